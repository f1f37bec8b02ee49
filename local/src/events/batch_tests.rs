use super::*;
use serde_json::Value;

const SETTINGS: FailureSettings = FailureSettings { max_retries: 2, max_record_age_ms: 60_000, bisect: true };

fn batch(sequences: &[&str]) -> Batch {
    let record =
        |sequence: &&str| StreamRecord { sequence: (*sequence).to_owned(), created_ms: 100_000, json: Value::Null };
    Batch::new(sequences.iter().map(record).collect())
}

fn next(batch: &Batch) -> Vec<String> {
    batch.next().unwrap_or_default().iter().map(|record| record.sequence.clone()).collect()
}

fn sequences(discarded: &Discarded) -> Vec<String> {
    discarded.records.iter().map(|record| record.sequence.clone()).collect()
}

fn partial(positions: &[usize]) -> Outcome {
    Outcome::Answered(Answer::Partial(positions.to_vec()))
}

/// Invokes a function that fails whenever `poison` is in the batch. Gives what was done with in order, what was
/// discarded, and the number of invocations.
fn run(mut batch: Batch, poison: &str, settings: &FailureSettings) -> (Vec<String>, Vec<String>, u32) {
    let (mut done, mut discarded, mut invocations) = (Vec::new(), Vec::new(), 0);
    while let Some(records) = batch.next() {
        invocations += 1;
        assert!(invocations < 1_000, "never ends");
        let failed = records.iter().any(|record| record.sequence == poison);
        let outcome = if failed { Outcome::FunctionError } else { Outcome::Answered(Answer::Success) };
        let settled = batch.settle(&outcome, settings);
        done.extend(settled.done);
        discarded.extend(settled.discarded.iter().flat_map(sequences));
    }
    (done, discarded, invocations)
}

// solita.github.com #376: a poison record blocked its shard for a day.
#[test]
fn bisecting_leaves_the_poison_record_alone_and_goes_on() {
    let (done, discarded, invocations) = run(batch(&["1", "2", "3", "4", "5", "6", "7", "8"]), "6", &SETTINGS);
    assert_eq!(discarded, ["6"]);
    assert_eq!(done, ["4", "5", "6", "8"]);
    // 1-8, 1-4, 5-8, 5-6, 5, then 6 once and twice again, then 7-8.
    assert_eq!(invocations, 9);
}

#[test]
fn without_bisecting_the_whole_batch_is_given_up_after_its_retries() {
    let settings = FailureSettings { bisect: false, ..SETTINGS };
    let (done, discarded, invocations) = run(batch(&["1", "2", "3"]), "2", &settings);
    assert_eq!((done, discarded, invocations), (vec!["3".to_owned()], vec!["1".into(), "2".into(), "3".into()], 3));
}

#[test]
fn no_retries_means_one_invocation() {
    let settings = FailureSettings { max_retries: 0, bisect: false, ..SETTINGS };
    assert_eq!(run(batch(&["1"]), "1", &settings).2, 1);
}

// "Lambda uses the record with the lowest sequence number as the checkpoint, then retries all records from it."
#[test]
fn a_partial_answer_goes_on_from_the_lowest_failed_record() {
    let mut batch = batch(&["1", "2", "3", "4"]);
    let settled = batch.settle(&partial(&[1, 3]), &SETTINGS);
    assert_eq!(settled, Settled { done: Some("1".into()), discarded: None, back_off: true });
    assert_eq!(next(&batch), ["2", "3", "4"]);
}

// "Splitting batches doesn't consume the retry quota."
#[test]
fn progress_within_a_bisected_batch_uses_no_retry_up() {
    let mut batch = batch(&["1", "2", "3", "4", "5"]);
    for left in (1..5).rev() {
        assert_eq!(batch.settle(&partial(&[1]), &SETTINGS).discarded, None);
        assert_eq!(next(&batch).len(), left);
    }
}

#[test]
fn without_bisecting_a_partial_answer_is_an_attempt() {
    let settings = FailureSettings { bisect: false, ..SETTINGS };
    let mut batch = batch(&["1", "2", "3", "4"]);
    batch.settle(&partial(&[1]), &settings);
    batch.settle(&partial(&[1]), &settings);
    let settled = batch.settle(&partial(&[1]), &settings);
    assert_eq!(settled.done.as_deref(), Some("4"));
    assert_eq!(settled.discarded.as_ref().map(sequences), Some(vec!["4".to_owned()]));
    assert_eq!(batch.next(), None);
}

#[test]
fn the_first_record_reported_as_failed_ends_up_alone() {
    let mut batch = batch(&["1", "2", "3", "4"]);
    for expected in [vec!["1", "2"], vec!["1"], vec!["1"], vec!["1"]] {
        assert_eq!(batch.settle(&partial(&[0]), &SETTINGS).discarded, None);
        assert_eq!(next(&batch), expected);
    }
    let settled = batch.settle(&partial(&[0]), &SETTINGS);
    assert_eq!(settled.discarded.as_ref().map(|discarded| discarded.invocations), Some(5));
    assert_eq!(next(&batch), ["2"]);
}

// An empty identifier is read as a failure of everything.
#[test]
fn an_answer_that_cannot_be_read_fails_the_batch_but_not_for_ever() {
    let settings = FailureSettings { bisect: false, ..SETTINGS };
    let mut batch = batch(&["1", "2"]);
    let unreadable = Outcome::Answered(Answer::Failure("an empty itemIdentifier".into()));
    batch.settle(&unreadable, &settings);
    assert_eq!(next(&batch), ["1", "2"]);
    batch.settle(&unreadable, &settings);
    assert!(batch.settle(&unreadable, &settings).discarded.is_some());
    assert_eq!(batch.next(), None);
}

// "Before invocation: if a mapping is unable to invoke the function due to throttling, it retries until the records
// expire or exceed the maximum age."
#[test]
fn throttling_uses_no_retry_up_and_ends_with_the_age() {
    let mut batch = batch(&["1", "2"]);
    for _ in 0..100 {
        assert!(batch.settle(&Outcome::Throttled, &SETTINGS).back_off);
    }
    assert_eq!(batch.expire(160_000, &SETTINGS), Settled::default());
    let settled = batch.expire(160_001, &SETTINGS);
    let discarded = settled.discarded.expect("a minute and a millisecond old");
    assert_eq!((discarded.condition, discarded.invocations), (Condition::RecordAgeExceeded, 0));
    assert_eq!((settled.done.as_deref(), batch.next()), (Some("2"), None));
}

#[test]
fn only_what_is_too_old_is_given_up() {
    let mut batch = batch(&["1", "2", "3"]);
    batch.parts[0].records[2].created_ms = 200_000;
    let settled = batch.expire(200_000, &SETTINGS);
    assert_eq!(settled.done.as_deref(), Some("2"));
    assert_eq!(next(&batch), ["3"]);
}
