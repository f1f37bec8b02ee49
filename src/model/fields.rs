//! Reading attributes with errors that name the attribute, what was found, and what belongs there.

use super::{AttributeValue, Item};

/// A row, or one attribute of it, is not of our format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// The attribute is absent.
    #[error("{attribute} is missing: it must be {wanted}")]
    Missing {
        /// The attribute's name.
        attribute: &'static str,
        /// What belongs there.
        wanted: &'static str,
    },
    /// The attribute is there with another type or an impossible value.
    #[error("{attribute} is {found}: it must be {wanted}")]
    Wrong {
        /// The attribute's name.
        attribute: &'static str,
        /// What was found: a type, or a short value that is no secret.
        found: String,
        /// What belongs there.
        wanted: &'static str,
    },
    /// The key is no connection's.
    #[error(transparent)]
    Id(#[from] super::IdError),
}

/// A string, if the attribute is there.
///
/// # Errors
/// [`RowError::Wrong`] for any other type.
pub fn string(item: &Item, attribute: &'static str) -> Result<Option<String>, RowError> {
    match item.get(attribute) {
        None => Ok(None),
        Some(AttributeValue::S(text)) => Ok(Some(text.clone())),
        Some(other) => Err(wrong_type(attribute, other, "a string")),
    }
}

/// A whole number that is not negative, if the attribute is there.
///
/// # Errors
/// [`RowError::Wrong`] for any other type, a fraction, or a negative number.
pub fn number(item: &Item, attribute: &'static str) -> Result<Option<u64>, RowError> {
    let wanted = "a whole number, 0 or more (type N)";
    match item.get(attribute) {
        None => Ok(None),
        Some(AttributeValue::N(text)) => match text.parse() {
            Ok(value) => Ok(Some(value)),
            Err(_) => Err(RowError::Wrong { attribute, found: short(text), wanted }),
        },
        Some(other) => Err(wrong_type(attribute, other, wanted)),
    }
}

/// A boolean; absent reads as false.
///
/// # Errors
/// [`RowError::Wrong`] for any other type.
pub fn flag(item: &Item, attribute: &'static str) -> Result<bool, RowError> {
    match item.get(attribute) {
        None => Ok(false),
        Some(AttributeValue::Bool(value)) => Ok(*value),
        Some(other) => Err(wrong_type(attribute, other, "a boolean")),
    }
}

/// A list or set of strings; absent reads as empty.
///
/// # Errors
/// [`RowError::Wrong`] for any other type, or a list with anything but strings.
pub fn strings(item: &Item, attribute: &'static str) -> Result<Vec<String>, RowError> {
    let wanted = "a list of strings";
    match item.get(attribute) {
        None => Ok(Vec::new()),
        Some(AttributeValue::Ss(values)) => Ok(values.clone()),
        Some(AttributeValue::L(values)) => {
            let mut out = Vec::with_capacity(values.len());
            for value in values {
                match value {
                    AttributeValue::S(text) => out.push(text.clone()),
                    other => return Err(wrong_type(attribute, other, wanted)),
                }
            }
            Ok(out)
        }
        Some(other) => Err(wrong_type(attribute, other, wanted)),
    }
}

/// A map of strings, in the order of its names; absent reads as empty.
///
/// # Errors
/// [`RowError::Wrong`] for any other type, or a map with anything but strings.
pub fn string_map(item: &Item, attribute: &'static str) -> Result<Vec<(String, String)>, RowError> {
    let wanted = "a map of strings";
    let map = match item.get(attribute) {
        None => return Ok(Vec::new()),
        Some(AttributeValue::M(map)) => map,
        Some(other) => return Err(wrong_type(attribute, other, wanted)),
    };
    let mut out = Vec::with_capacity(map.len());
    for (name, value) in map {
        match value {
            AttributeValue::S(text) => out.push((name.clone(), text.clone())),
            other => return Err(wrong_type(attribute, other, wanted)),
        }
    }
    out.sort();
    Ok(out)
}

fn wrong_type(attribute: &'static str, value: &AttributeValue, wanted: &'static str) -> RowError {
    RowError::Wrong { attribute, found: format!("of type {}", type_name(value)), wanted }
}

/// DynamoDB's letter for a value's type.
fn type_name(value: &AttributeValue) -> &'static str {
    match value {
        AttributeValue::N(_) => "N",
        AttributeValue::S(_) => "S",
        AttributeValue::Bool(_) => "BOOL",
        AttributeValue::B(_) => "B",
        AttributeValue::Null(_) => "NULL",
        AttributeValue::M(_) => "M",
        AttributeValue::L(_) => "L",
        AttributeValue::Ss(_) => "SS",
        AttributeValue::Ns(_) => "NS",
        AttributeValue::Bs(_) => "BS",
    }
}

/// A value as it may be shown in an error: quoted, and not for ever.
#[must_use]
pub fn short(text: &str) -> String {
    let head: String = text.chars().take(40).collect();
    if head.len() < text.len() { format!("{head:?}…") } else { format!("{head:?}") }
}
