//! A few hundred seeds, and what the simulation itself promises: the same seed does the same, and a missing rule is noticed.

use leasehold::decide::timing::Rules;
use leasehold_sim::{Campaign, Options, Plan, Summary, run, run_seeds};
use std::process::Command;
use std::thread;

/// Short cases: what counts is how many.
const SHORT: Options = Options {
    minutes: 2,
    beyond: false,
    rules: Rules { fence: true, epoch_conditions: true, local_deadline: true },
    scope: None,
};
const SEEDS: u64 = 200;
const REPEATED: [u64; 4] = [1, 2, 3, 8];

fn hash(seed: u64) -> u64 {
    run(&Plan::draw(seed, SHORT)).hash
}

fn hashes() -> Vec<String> {
    REPEATED.iter().map(|seed| format!("{seed}:{:016x}", hash(*seed))).collect()
}

#[test]
fn no_promise_is_broken_by_two_hundred_seeds() {
    let summary = campaign(SEEDS, SHORT);
    let broken: Vec<_> = summary.violations.iter().map(|found| (found.seed, found.invariant, &found.what)).collect();
    assert!(broken.is_empty(), "`leasehold sim --minutes 2 --seed N` shows: {broken:#?}");
    assert_eq!(summary.cases, SEEDS);
    assert!(summary.tally.hand_overs > SEEDS, "something happened: {} hand-overs", summary.tally.hand_overs);
    let never: Vec<_> = summary.tally.faults.iter().filter(|(_, count)| **count == 0).collect();
    assert!(never.is_empty(), "each fault struck: {never:?}");
    let unjudged: Vec<_> = summary.tally.judged.iter().filter(|(_, times)| times.held == 0).collect();
    assert!(unjudged.is_empty(), "no promise was excused each time: {unjudged:?}");
}

#[test]
fn the_same_seed_does_the_same_again_in_another_thread_and_in_another_process() {
    let first = hashes();
    let second = thread::scope(|scope| {
        let both = [scope.spawn(hashes), scope.spawn(hashes)];
        both.map(|thread| thread.join().expect("no seed panics"))
    });
    assert_eq!(second, [first.clone(), first.clone()]);
    let me = std::env::current_exe().expect("a test has a path");
    let asked = ["--ignored", "--exact", "prints_hashes", "--nocapture"];
    let output = Command::new(me).args(asked).output().expect("it runs again");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for line in &first {
        assert!(text.contains(line), "{line} is not in {text}");
    }
}

#[test]
#[ignore = "a part of the test above, which runs it in another process"]
fn prints_hashes() {
    println!("{}", hashes().join(" "));
}

/// The first of so many seeds that shows that a rule is missing, and what it shows. With all rules none does.
fn first_broken_by(rules: Rules) -> Option<(u64, &'static str)> {
    (0..SEEDS).find_map(|seed| {
        let outcome = run(&Plan::draw(seed, Options { rules, ..SHORT }));
        Some((seed, outcome.violation?.invariant))
    })
}

#[test]
fn a_worker_without_its_own_deadline_is_noticed() {
    assert!(first_broken_by(Rules { local_deadline: false, ..Rules::default() }).is_some());
}

#[test]
fn taking_before_fencing_is_noticed() {
    assert!(first_broken_by(Rules { fence: false, ..Rules::default() }).is_some());
}

#[test]
fn writes_without_owner_and_epoch_are_noticed() {
    assert!(first_broken_by(Rules { epoch_conditions: false, ..Rules::default() }).is_some());
}

fn campaign(seeds: u64, options: Options) -> Summary {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    run_seeds(&Campaign { seeds: 0..seeds, options, threads, shown: 0, until_found: false }, &|_| {})
}
