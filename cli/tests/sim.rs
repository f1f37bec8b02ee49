//! `leasehold sim`, the command: what it refuses, what it prints, and its exit code. What is simulated has tests of its own.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;

/// The names of the document, which scripts rely on.
const NAMES: [&str; 17] = [
    "first_seed",
    "cases",
    "minutes",
    "beyond",
    "virtual_hours",
    "pairs",
    "rarest_pair",
    "faults",
    "hand_overs",
    "messages",
    "writes",
    "sockets",
    "longest_down_ms",
    "longest_double_ms",
    "doubles",
    "judged",
    "violations",
];

struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

/// Runs `leasehold sim` with short cases, if any run at all.
fn sim(arguments: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    let output = command.args(["sim", "--minutes", "2"]).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

#[test]
fn arguments_that_make_no_sense_are_refused_with_what_would() {
    let refused: [(&[&str], &str); 9] = [
        (&["--seeds", "0"], "0 is not in 1..=10000000"),
        (&["--from", "18446744073709551615"], "18446744073709551615 is not in "),
        (&["--seed", "18446744073709551615"], "18446744073709551615 is not in "),
        (&["--threads", "1025"], "1025 is not in 0..=1024"),
        (&["--scope", "row"], "[possible values: worker, connection, both]"),
        (&["--seed", "1", "--from", "1"], "'--seed <SEED>' cannot be used with '--from <SEED>'"),
        (&["--trace"], "--seed <SEED>"),
        (&["--seed", "1", "--trace", "--json"], "'--trace' cannot be used with '--json'"),
        (&["--seed", "1", "--until-found"], "cannot be used with"),
    ];
    for (arguments, why) in refused {
        let ran = sim(arguments);
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains(why), "{arguments:?}: {}", ran.err);
    }
}

#[test]
fn with_json_it_prints_one_document_with_the_documented_names_and_ends_with_0() {
    let ran = sim(&["--seeds", "2", "--from", "3", "--threads", "2", "--scope", "worker", "--json"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{}", ran.out);
    let document: Value = serde_json::from_str(&ran.out).unwrap();
    let names: BTreeSet<&str> = document.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(names, BTreeSet::from(NAMES));
    assert_eq!((&document["first_seed"], &document["cases"], &document["minutes"]), (&3.into(), &2.into(), &2.into()));
    assert_eq!((&document["beyond"], &document["violations"]), (&false.into(), &Value::Array(Vec::new())));
    assert!(document["sockets"].as_u64() > Some(0), "nothing happened: {document}");
}

#[test]
fn the_trace_of_a_seed_says_what_happened_in_order_and_is_the_same_again() {
    let ran = sim(&["--seed", "1", "--trace"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let (trace, rest) = ran.out.split_once("\ntrace ").unwrap();
    let (hash, summary) = rest.split_once('\n').unwrap();
    assert!(hash.len() == 16 && u64::from_str_radix(hash, 16).is_ok(), "{hash}");
    let times: Vec<f64> = trace.lines().map(|line| line.split_once(" s ").unwrap().0.trim().parse().unwrap()).collect();
    assert!(times.len() > 100 && times.is_sorted(), "{} lines", times.len());
    assert!(summary.starts_with("cases ") && summary.contains("1, from seed 1\n"), "{summary}");
    assert!(summary.lines().any(|line| line.split_whitespace().eq(["promises", "broken", "0"])), "{summary}");

    assert_eq!(sim(&["--seed", "1", "--trace"]).out, ran.out);
    let without = sim(&["--seed", "1"]).out;
    assert_eq!(without, summary, "without `--trace` only the summary is printed");
}
