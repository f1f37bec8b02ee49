//! Every sample event, those of `events/` and those that `sam local generate-event` makes, is understood by the function that it is for.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use leasehold_reconcile::Trigger;
use leasehold_tests::{ONE_MINUTE_MS, World};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What an event is to lead to.
enum Wanted {
    /// `desired-state` answers that nothing is sent again, and skips so many records.
    DesiredState { skipped: u64 },
    /// `reconcile` takes it for this, and answers that nothing is sent again.
    Reconcile(Trigger),
}

use Wanted::{DesiredState, Reconcile};

fn task() -> Trigger {
    let arn = "arn:aws:ecs:us-east-1:123456789012:task/leasehold/c13b4cb40f1f4fe4a2971f76ae5a47ad";
    Trigger::Tasks(BTreeSet::from([arn.to_owned()]))
}

/// A file that is not named here fails the test.
fn ours() -> Vec<(&'static str, Wanted)> {
    vec![
        ("ecs-task-stopped.json", Reconcile(task())),
        ("empty.json", Reconcile(Trigger::Minute)),
        ("schedule.json", Reconcile(Trigger::Minute)),
        ("stream-insert.json", DesiredState { skipped: 0 }),
        ("stream-mixed-with-poison.json", DesiredState { skipped: 1 }),
        ("stream-modify-stopped.json", DesiredState { skipped: 0 }),
        ("stream-remove.json", DesiredState { skipped: 0 }),
        ("tick.json", Reconcile(Trigger::Ticks { good: 1, bad: 0 })),
    ]
}

/// The keys of AWS's stream records are numbers, so they are no connections: skipped and counted. "Hello from SQS!" is no tick: deleted.
fn of_sam() -> Vec<(&'static str, Wanted)> {
    vec![
        ("cloudwatch-scheduled-event.json", Reconcile(Trigger::Minute)),
        ("dynamodb-update.json", DesiredState { skipped: 3 }),
        ("sqs-receive-message.json", Reconcile(Trigger::Ticks { good: 0, bad: 1 })),
        ("sqs-receive-message-tick.json", Reconcile(Trigger::Ticks { good: 1, bad: 0 })),
    ]
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn json_files(folder: &Path) -> BTreeSet<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".json")).collect()
}

async fn check(folder: &Path, samples: Vec<(&str, Wanted)>) {
    let named: BTreeSet<String> = samples.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(
        json_files(folder),
        named,
        "each file of {} is named in this test, and each name is a file",
        folder.display()
    );
    for (name, wanted) in samples {
        let event: Value = serde_json::from_str(&fs::read_to_string(folder.join(name)).unwrap()).unwrap();
        let world = World::new().await;
        match wanted {
            DesiredState { skipped } => {
                let answer = world.desired_state().handle(event).await.unwrap();
                assert_eq!(answer["batchItemFailures"], json!([]), "{name}: {answer}");
                assert_eq!(answer["skipped"].as_u64().unwrap_or(0), skipped, "{name}: {answer}");
            }
            Reconcile(trigger) => {
                assert_eq!(Trigger::of(&event), trigger, "{name}");
                let answer = world.reconcile().handle(event, ONE_MINUTE_MS).await.unwrap();
                assert_eq!(answer["batchItemFailures"], json!([]), "{name}: {answer}");
                let bad_ticks = if let Trigger::Ticks { bad, .. } = trigger { bad } else { 0 };
                assert_eq!(answer["bad_ticks"], bad_ticks, "{name}: {answer}");
                assert_eq!(answer["minute"] == true, trigger == Trigger::Minute, "{name}: {answer}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_sample_event_is_understood_by_its_function() {
    check(&folder("../events"), ours()).await;
}

#[tokio::test(start_paused = true)]
async fn events_as_sam_makes_them_are_understood_and_what_is_none_of_ours_is_skipped() {
    check(&folder("events-of-sam"), of_sam()).await;
}
