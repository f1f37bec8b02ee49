use super::super::DESIRED_STATE_FILTERS;
use super::*;
use serde_json::json;

fn one(pattern: Value) -> Filters {
    Filters::from_patterns(&[pattern]).expect("a valid pattern")
}

fn refused(pattern: Value) -> String {
    Filters::from_patterns(&[pattern]).expect_err("not a valid pattern").to_string()
}

// The table "Filter rule syntax" of "Control which events Lambda sends to your function", row by row.
#[test]
fn every_operator_of_the_documentation_works() {
    let rows = [
        (json!({"UserID": [null]}), json!({"UserID": null}), json!({"UserID": "7"})),
        (json!({"LastName": [""]}), json!({"LastName": ""}), json!({"LastName": "x"})),
        (json!({"Name": ["Alice"]}), json!({"Name": "Alice"}), json!({"Name": "alice"})),
        (json!({"Name": [{"equals-ignore-case": "alice"}]}), json!({"Name": "ALICE"}), json!({"Name": "Bob"})),
        (
            json!({"Location": ["New York"], "Day": ["Monday"]}),
            json!({"Location": "New York", "Day": "Monday"}),
            json!({"Location": "New York", "Day": "Tuesday"}),
        ),
        (json!({"PaymentType": ["Credit", "Debit"]}), json!({"PaymentType": "Debit"}), json!({"PaymentType": "Cash"})),
        (
            json!({"$or": [{"Location": ["New York"]}, {"Day": ["Monday"]}]}),
            json!({"Location": "Rome", "Day": "Monday"}),
            json!({"Location": "Rome", "Day": "Tuesday"}),
        ),
        (
            json!({"Weather": [{"anything-but": ["Raining"]}]}),
            json!({"Weather": "Sunny"}),
            json!({"Weather": "Raining"}),
        ),
        (json!({"Price": [{"numeric": ["=", 100]}]}), json!({"Price": 100}), json!({"Price": 101})),
        (json!({"Price": [{"numeric": [">", 10, "<=", 20]}]}), json!({"Price": 20}), json!({"Price": 10})),
        (json!({"ProductName": [{"exists": true}]}), json!({"ProductName": "x"}), json!({"Other": "x"})),
        (json!({"ProductName": [{"exists": false}]}), json!({"Other": "x"}), json!({"ProductName": "x"})),
        (json!({"Region": [{"prefix": "us-"}]}), json!({"Region": "us-east-1"}), json!({"Region": "eu-us-1"})),
        (json!({"FileName": [{"suffix": ".png"}]}), json!({"FileName": "a.png"}), json!({"FileName": "png.txt"})),
    ];
    for (pattern, matching, other) in rows {
        let filters = one(pattern.clone());
        assert!(filters.matches(&matching), "{pattern} should match {matching}");
        assert!(!filters.matches(&other), "{pattern} should not match {other}");
    }
}

#[test]
fn anything_but_needs_the_field_to_be_there() {
    for excluded in [json!("Raining"), json!(["Raining", "Snowing"])] {
        let filters = one(json!({"Weather": [{"anything-but": excluded}]}));
        assert!(!filters.matches(&json!({"Wind": "strong"})));
        assert!(!filters.matches(&json!({"Weather": {"now": "Sunny"}})), "an object is no leaf");
        assert!(filters.matches(&json!({"Weather": 7})));
    }
}

// "Using the Exists operator": it works on leaves only; the type below an attribute is the leaf.
#[test]
fn exists_does_not_see_an_attribute_but_the_type_below_it() {
    let record = json!({"dynamodb": {"NewImage": {"PhoneNumber": {"S": "(555) 555-5555"}}}});
    let attribute = |exists: bool| one(json!({"dynamodb": {"NewImage": {"PhoneNumber": [{"exists": exists}]}}}));
    let leaf = |exists: bool| one(json!({"dynamodb": {"NewImage": {"PhoneNumber": {"S": [{"exists": exists}]}}}}));
    assert!(!attribute(true).matches(&record));
    assert!(attribute(false).matches(&record));
    assert!(leaf(true).matches(&record));
    assert!(!leaf(false).matches(&record));
}

// "Multi-level filtering"; DynamoDB's numbers are strings in its JSON, which `numeric` does not read.
#[test]
fn a_dynamodb_number_is_matched_as_text() {
    let record = json!({"dynamodb": {"Keys": {"Id": {"N": "101"}}}});
    assert!(one(json!({"dynamodb": {"Keys": {"Id": {"N": ["101"]}}}})).matches(&record));
    assert!(!one(json!({"dynamodb": {"Keys": {"Id": {"N": [101]}}}})).matches(&record));
    assert!(!one(json!({"dynamodb": {"Keys": {"Id": {"N": [{"numeric": ["=", 101]}]}}}})).matches(&record));
}

// "300, 300.0, and 3.0e2 are not considered equal".
#[test]
fn exact_numbers_compare_by_their_text() {
    assert!(one(json!({"a": [300]})).matches(&json!({"a": 300})));
    assert!(!one(json!({"a": [300]})).matches(&json!({"a": 300.0})));
    assert!(one(json!({"a": [{"numeric": ["=", 300]}]})).matches(&json!({"a": 300.0})));
}

// aws/event-ruler, README: the literals true, false and null; the CDK's FilterRule example matches `BOOL: [true]`.
#[test]
fn a_boolean_leaf_matches_its_literal() {
    let filters = one(json!({"dynamodb": {"NewImage": {"id": {"BOOL": [true]}}}}));
    assert!(filters.matches(&json!({"dynamodb": {"NewImage": {"id": {"BOOL": true}}}})));
    assert!(!filters.matches(&json!({"dynamodb": {"NewImage": {"id": {"BOOL": false}}}})));
}

// aws/event-ruler, "JSON Array Matching": one entry is enough, and an empty list has no leaf.
#[test]
fn a_list_matches_by_any_entry() {
    let filters = one(json!({"tags": ["a", "b"]}));
    assert!(filters.matches(&json!({"tags": ["x", "b"]})));
    assert!(!filters.matches(&json!({"tags": ["x"]})));
    assert!(one(json!({"tags": [{"exists": false}]})).matches(&json!({"tags": []})));
}

#[test]
fn a_pattern_that_is_not_valid_is_refused_with_its_place() {
    assert!(refused(json!({"dynamodb": {"NewImage": {"Pk": {"S": "a"}}}})).contains("at `dynamodb.NewImage.Pk.S`"));
    assert!(refused(json!({"a": [{"exsits": true}]})).contains("`exsits`"));
    for pattern in [
        json!([]),
        json!({}),
        json!({"a": []}),
        json!({"a": {}}),
        json!({"a": [["b"]]}),
        json!({"a": [{"exists": "yes"}]}),
        json!({"a": [{"anything-but": []}]}),
        json!({"a": [{"anything-but": ["b", 1]}]}),
        json!({"a": [{"prefix": 1}]}),
        json!({"a": [{"numeric": [">", 1, ">", 2]}]}),
        json!({"a": [{"numeric": [">"]}]}),
        json!({"a": [{"numeric": ["~", 1]}]}),
        json!({"$or": [{"a": ["b"]}]}),
        json!({"a": [{"prefix": "b", "suffix": "c"}]}),
        json!({"a": [{"wildcard": "*"}]}),
    ] {
        assert!(!refused(pattern.clone()).is_empty(), "{pattern}");
    }
    assert!(matches!(Filters::parse("{}"), Err(FilterError::NotAList(_))));
}

#[test]
fn a_sixth_pattern_is_above_the_default_quota() {
    let patterns = vec![json!({"a": ["b"]}); 6];
    assert!(Filters::from_patterns(&patterns[..5]).is_ok());
    assert_eq!(Filters::from_patterns(&patterns), Err(FilterError::TooMany(6)));
}

#[test]
fn no_patterns_let_everything_through() {
    assert!(Filters::default().matches(&json!({})));
}

/// The indexes of the `desired-state` patterns that a change from `old` to `new` matches.
fn desired_state(old: Value, new: Value) -> Vec<usize> {
    let mut dynamodb = json!({"Keys": {"Pk": {"S": "CONN#a"}}});
    for (name, image) in [("OldImage", old), ("NewImage", new)] {
        if !image.is_null() {
            dynamodb[name] = image;
        }
    }
    let filters = Filters::parse(DESIRED_STATE_FILTERS).expect("the template's patterns are valid");
    filters.matching(&json!({"eventName": "MODIFY", "dynamodb": dynamodb})).collect()
}

/// A row with more attributes: `(name, type, value)`.
fn row(state: &str, more: &[(&str, &str, &str)]) -> Value {
    let mut row = json!({"Pk": {"S": "CONN#a"}, "desired_state": {"S": state}, "ws_url": {"S": "wss://example.com"}});
    for (name, kind, value) in more {
        row[*name] = json!({*kind: value});
    }
    row
}

const EPOCH: (&str, &str, &str) = ("lease_epoch", "N", "1748775600123");
const OWNER: (&str, &str, &str) = ("lease_owner", "S", "01973a2b-7c3d-7e4f-8a5b-6c7d8e9f0a1b");
const FREE: (&str, &str, &str) = ("lease_expires_at_ms", "N", "0");
const CHANGED: (&str, &str, &str) = ("spec_changed", "S", "01973a2b-7c3d-7e4f-8a5b-6c7d8e9f0a1c");

#[test]
fn every_desired_state_pattern_looks_below_dynamodb() {
    let patterns: Vec<Map<String, Value>> = serde_json::from_str(DESIRED_STATE_FILTERS).expect("a list of objects");
    assert_eq!(patterns.len(), MAX_PATTERNS);
    for pattern in patterns {
        assert_eq!(pattern.keys().collect::<Vec<_>>(), ["dynamodb"]);
    }
}

#[test]
fn what_a_user_does_with_a_row_is_delivered() {
    let owned = |state| row(state, &[OWNER, EPOCH]);
    // A new row, started or stopped or without any state.
    assert_eq!(desired_state(Value::Null, row("STARTED", &[])), [0, 1]);
    assert_eq!(desired_state(Value::Null, row("STOPPED", &[])), [0]);
    assert_eq!(desired_state(Value::Null, json!({"Pk": {"S": "CONN#a"}})), [0]);
    // Started and stopped, whoever owns it.
    assert_eq!(desired_state(row("STOPPED", &[EPOCH, FREE]), row("STARTED", &[EPOCH, FREE])), [1]);
    assert_eq!(desired_state(owned("STARTED"), owned("STOPPED")), [2]);
    // The state is taken away, or is of a wrong type.
    let mut stateless = owned("STARTED");
    stateless["desired_state"] = json!({"BOOL": true});
    assert_eq!(desired_state(owned("STARTED"), stateless.clone()), [2]);
    assert_eq!(desired_state(stateless, owned("STARTED")), [1]);
    // Overwritten by hand with three attributes while a worker holds it.
    assert_eq!(desired_state(owned("STARTED"), row("STARTED", &[])), [3]);
    // Removed, owned or free, started or stopped; never stamped and stopped leaves nothing to do.
    assert_eq!(desired_state(owned("STARTED"), Value::Null), [2, 3]);
    assert_eq!(desired_state(row("STOPPED", &[EPOCH, FREE]), Value::Null), [3]);
    assert_eq!(desired_state(row("STOPPED", &[]), Value::Null), Vec::<usize>::new());
    // Another spec, through the tools.
    assert_eq!(desired_state(owned("STARTED"), row("STARTED", &[OWNER, EPOCH, CHANGED])), [4]);
}

#[test]
fn our_own_writes_do_not_come_back() {
    let nothing = Vec::<usize>::new();
    let stamped = row("STARTED", &[("lease_epoch", "N", "0"), FREE]);
    let owned = row("STARTED", &[OWNER, EPOCH]);
    let free = row("STARTED", &[EPOCH, FREE]);
    // stamp: epoch and expiry appear.
    assert_eq!(desired_state(row("STARTED", &[]), stamped.clone()), nothing);
    // acquire: of a stamped row, of a released one, from a session that is over; of one that was never stamped.
    assert_eq!(desired_state(stamped, owned.clone()), nothing);
    assert_eq!(desired_state(free.clone(), owned.clone()), nothing);
    let taken = row("STARTED", &[("lease_owner", "S", "other"), ("lease_epoch", "N", "1748775700000")]);
    assert_eq!(desired_state(owned.clone(), taken), nothing);
    assert_eq!(desired_state(row("STARTED", &[]), owned.clone()), nothing);
    // checkpoint and status.
    let checkpointed = row("STARTED", &[OWNER, EPOCH, ("last_seq", "N", "4711"), ("observed_state", "S", "CONNECTED")]);
    assert_eq!(desired_state(owned.clone(), checkpointed), nothing);
    // release; reap, of a stopped row.
    assert_eq!(desired_state(owned.clone(), free), nothing);
    assert_eq!(desired_state(row("STOPPED", &[OWNER, EPOCH]), row("STOPPED", &[EPOCH, FREE])), nothing);
    // The owner takes the flag off, with any write.
    assert_eq!(desired_state(row("STARTED", &[OWNER, EPOCH, CHANGED]), owned), nothing);
}

#[test]
fn the_sample_events_match_as_described() {
    let filters = Filters::parse(DESIRED_STATE_FILTERS).expect("the template's patterns are valid");
    let matching = |text: &str| -> Vec<Vec<usize>> {
        let event: Value = serde_json::from_str(text).expect("JSON");
        let records = event["Records"].as_array().expect("records");
        records.iter().map(|record| filters.matching(record).collect()).collect()
    };
    assert_eq!(matching(include_str!("../../../events/stream-insert.json")), [vec![0, 1]]);
    assert_eq!(matching(include_str!("../../../events/stream-modify-stopped.json")), [vec![2]]);
    assert_eq!(matching(include_str!("../../../events/stream-remove.json")), [vec![2, 3]]);
    assert_eq!(matching(include_str!("../../../events/stream-mixed-with-poison.json")), [vec![0, 1], vec![0], vec![1]]);
}
