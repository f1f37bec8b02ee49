//! Reading items in DynamoDB's JSON.

use serde_json::Value;

/// A string attribute.
#[must_use]
pub fn text<'a>(item: &'a Value, name: &str) -> Option<&'a str> {
    item[name]["S"].as_str()
}

/// A number attribute.
#[must_use]
pub fn number(item: &Value, name: &str) -> Option<u64> {
    item[name]["N"].as_str()?.parse().ok()
}

/// An item in one line: names in order, values without their types.
#[must_use]
pub fn brief(item: &Value) -> String {
    let mut out = String::new();
    for (name, value) in item.as_object().into_iter().flatten() {
        if !matches!(
            name.as_str(),
            "Pk" | "session_id" | "ws_url" | "owners" | "counters" | "version" | "task_arn" | "resume"
        ) {
            out.push_str(&format!(" {name}={}", plain(value)));
        }
    }
    out.trim_start().to_owned()
}

fn plain(value: &Value) -> String {
    let Some((_, inner)) = value.as_object().and_then(|typed| typed.iter().next()) else { return value.to_string() };
    match inner {
        Value::String(text) => text.chars().take(60).collect(),
        Value::Array(entries) => {
            let mut texts: Vec<String> = entries.iter().map(|entry| entry.as_str().unwrap_or("?").to_owned()).collect();
            texts.sort();
            format!("[{}]", texts.join(","))
        }
        other => other.to_string(),
    }
}
