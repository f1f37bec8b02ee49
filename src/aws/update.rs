//! The one place that renders updates and their conditions.

use aws_sdk_dynamodb::types::AttributeValue;
use std::collections::HashMap;

/// A conditional update under construction. Attribute names become `#name`, values `:v0`, `:v1` and so on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Update {
    sets: Vec<String>,
    removes: Vec<String>,
    conditions: Vec<String>,
    names: HashMap<String, String>,
    values: HashMap<String, AttributeValue>,
}

/// How far ahead of a request's own time a stored one may lie. A request can land late, when others have written later times: by 15
/// minutes at most, since AWS refuses older signatures (AWS, "Troubleshoot Signature Version 4 signing").
const FARTHEST_AHEAD_MS: u64 = 3_600_000;

/// A string value.
#[must_use]
pub fn s(text: impl Into<String>) -> AttributeValue {
    AttributeValue::S(text.into())
}

/// A number value.
#[must_use]
pub fn n(number: impl ToString) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

impl Update {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn name(&mut self, attribute: &str) -> String {
        let name = format!("#{attribute}");
        self.names.insert(name.clone(), attribute.to_owned());
        name
    }

    fn value(&mut self, value: AttributeValue) -> String {
        let name = format!(":v{}", self.values.len());
        self.values.insert(name.clone(), value);
        name
    }

    /// Sets an attribute.
    #[must_use]
    pub fn set(mut self, attribute: &str, value: AttributeValue) -> Self {
        let (name, value) = (self.name(attribute), self.value(value));
        self.sets.push(format!("{name} = {value}"));
        self
    }

    /// Sets an attribute, or removes it when there is no value.
    #[must_use]
    pub fn set_or_remove(self, attribute: &str, value: Option<AttributeValue>) -> Self {
        match value {
            Some(value) => self.set(attribute, value),
            None => self.remove(attribute),
        }
    }

    /// Removes an attribute.
    #[must_use]
    pub fn remove(mut self, attribute: &str) -> Self {
        let name = self.name(attribute);
        self.removes.push(name);
        self
    }

    /// The attribute must be there.
    #[must_use]
    pub fn require_exists(mut self, attribute: &str) -> Self {
        let name = self.name(attribute);
        self.conditions.push(format!("attribute_exists({name})"));
        self
    }

    /// The attribute must not be there.
    #[must_use]
    pub fn require_absent(mut self, attribute: &str) -> Self {
        let name = self.name(attribute);
        self.conditions.push(format!("attribute_not_exists({name})"));
        self
    }

    /// The attribute must have this value.
    #[must_use]
    pub fn require(mut self, attribute: &str, value: AttributeValue) -> Self {
        let (name, value) = (self.name(attribute), self.value(value));
        self.conditions.push(format!("{name} = {value}"));
        self
    }

    /// The attribute must not have this value; absent is fine.
    #[must_use]
    pub fn require_not(mut self, attribute: &str, value: AttributeValue) -> Self {
        let (name, value) = (self.name(attribute), self.value(value));
        self.conditions.push(format!("{name} <> {value}"));
        self
    }

    /// The attribute must have this value, or be absent where there is none.
    #[must_use]
    pub fn require_as_read(self, attribute: &str, value: Option<AttributeValue>) -> Self {
        match value {
            Some(value) => self.require(attribute, value),
            None => self.require_absent(attribute),
        }
    }

    /// The attribute must be below this number.
    #[must_use]
    pub fn require_below(mut self, attribute: &str, number: u64) -> Self {
        let (name, value) = (self.name(attribute), self.value(n(number)));
        self.conditions.push(format!("{name} < {value}"));
        self
    }

    /// The attribute must be absent, or at most this number.
    #[must_use]
    pub fn require_absent_or_at_most(mut self, attribute: &str, number: u64) -> Self {
        let (name, value) = (self.name(attribute), self.value(n(number)));
        self.conditions.push(format!("(attribute_not_exists({name}) OR {name} <= {value})"));
        self
    }

    /// The attribute, a time in ms, may only rise to this one: it is absent, below, or so far ahead that nobody of us wrote it.
    #[must_use]
    pub fn require_rise(mut self, attribute: &str, time_ms: u64) -> Self {
        let farthest_ms = time_ms.saturating_add(FARTHEST_AHEAD_MS);
        let (name, value, far) = (self.name(attribute), self.value(n(time_ms)), self.value(n(farthest_ms)));
        self.conditions.push(format!("(attribute_not_exists({name}) OR {name} < {value} OR {name} > {far})"));
        self
    }

    /// Progress never goes back within a series: the stored number is not above this one, or counts in another series.
    #[must_use]
    pub fn require_progress(mut self, last_seq: (&str, u64), series: (&str, &str)) -> Self {
        let (seq_name, seq) = (self.name(last_seq.0), self.value(n(last_seq.1)));
        let (series_name, series) = (self.name(series.0), self.value(s(series.1)));
        self.conditions.push(format!(
            "(attribute_not_exists({seq_name}) OR {seq_name} <= {seq} OR attribute_not_exists({series_name}) OR {series_name} <> {series})"
        ));
        self
    }

    /// The update expression.
    #[must_use]
    pub fn expression(&self) -> Option<String> {
        let mut parts = Vec::new();
        if !self.sets.is_empty() {
            parts.push(format!("SET {}", self.sets.join(", ")));
        }
        if !self.removes.is_empty() {
            parts.push(format!("REMOVE {}", self.removes.join(", ")));
        }
        (!parts.is_empty()).then(|| parts.join(" "))
    }

    /// The condition expression.
    #[must_use]
    pub fn condition(&self) -> Option<String> {
        (!self.conditions.is_empty()).then(|| self.conditions.join(" AND "))
    }

    /// The names and values of both.
    #[must_use]
    pub fn into_names_and_values(self) -> (HashMap<String, String>, Option<HashMap<String, AttributeValue>>) {
        let values = (!self.values.is_empty()).then_some(self.values);
        (self.names, values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_renders_each_part_once_and_joins_conditions_with_and() {
        let update = Update::new()
            .set("a", s("x"))
            .remove("b")
            .require_as_read("c", None)
            .require_as_read("a", Some(s("y")))
            .require_absent_or_at_most("d", 5);
        assert_eq!(update.expression().unwrap(), "SET #a = :v0 REMOVE #b");
        assert_eq!(
            update.condition().unwrap(),
            "attribute_not_exists(#c) AND #a = :v1 AND (attribute_not_exists(#d) OR #d <= :v2)"
        );
        let (names, values) = update.into_names_and_values();
        assert_eq!((names.len(), values.unwrap().len()), (4, 3));
    }
}
