//! Filter patterns of event source mappings.
//!
//! The rules are those of "Control which events Lambda sends to your function" and "Using event filtering with a
//! DynamoDB event source" (Lambda Developer Guide), which follow EventBridge's patterns (its matcher is
//! `aws/event-ruler`). The ones that surprise people:
//!
//! - `exists` looks at leaves only: below `dynamodb` an attribute is an object, its leaf is the type below it
//!   (`{"Pk": {"S": [{"exists": true}]}}`). An absent parent makes every leaf below it absent.
//! - `anything-but` needs the field to be there.
//! - `numeric` needs a JSON number: a DynamoDB `N` is a string, so it never matches one.
//! - Exact numbers compare by their text: 300 and 300.0 differ.

use serde_json::{Map, Value};

/// Patterns that a mapping may have without a raised quota.
pub const MAX_PATTERNS: usize = 5;

/// Why a set of patterns is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// Not JSON, or not a list.
    #[error("filter patterns must be a JSON array of objects: {0}")]
    NotAList(String),
    /// Above the default quota.
    #[error("{0} filter patterns: a mapping takes at most {MAX_PATTERNS} by default, put several cases into one")]
    TooMany(usize),
    /// A rule that Lambda does not know, and where it is.
    #[error("filter pattern {pattern}, at `{place}`: {reason}")]
    Invalid {
        /// Index of the pattern in its list, from 0.
        pattern: usize,
        /// The dotted path of the field.
        place: String,
        /// What is wrong and what would be right.
        reason: String,
    },
}

/// The patterns of one mapping: a record is delivered if any of them matches, or if there are none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filters {
    patterns: Vec<Fields>,
}

/// Fields of one level: all must match.
type Fields = Vec<Node>;

#[derive(Clone, Debug, PartialEq)]
enum Node {
    /// A field with an object below it.
    Below(String, Fields),
    /// A leaf: one of the rules must match.
    Leaf(String, Vec<Rule>),
    /// `$or`: one of the alternatives must match.
    Or(Vec<Fields>),
}

#[derive(Clone, Debug, PartialEq)]
enum Rule {
    Exactly(Value),
    Exists(bool),
    AnythingBut(Vec<Value>),
    Prefix(String),
    Suffix(String),
    IgnoreCase(String),
    Numeric(Vec<(Comparison, f64)>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Comparison {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Filters {
    /// Reads a JSON array of pattern objects.
    ///
    /// # Errors
    /// Says which pattern is refused, where, and why.
    pub fn parse(json: &str) -> Result<Self, FilterError> {
        let patterns: Vec<Value> =
            serde_json::from_str(json).map_err(|error| FilterError::NotAList(error.to_string()))?;
        Self::from_patterns(&patterns)
    }

    /// The same from values.
    ///
    /// # Errors
    /// As [`Filters::parse`].
    pub fn from_patterns(patterns: &[Value]) -> Result<Self, FilterError> {
        if patterns.len() > MAX_PATTERNS {
            return Err(FilterError::TooMany(patterns.len()));
        }
        let mut parsed = Vec::with_capacity(patterns.len());
        for (index, pattern) in patterns.iter().enumerate() {
            parsed.push(parse_fields(pattern, "").map_err(|error| error.in_pattern(index))?);
        }
        Ok(Self { patterns: parsed })
    }

    /// Whether `record` (one entry of `Records`) is delivered.
    #[must_use]
    pub fn matches(&self, record: &Value) -> bool {
        self.patterns.is_empty() || self.matching(record).next().is_some()
    }

    /// The indexes of the patterns that match `record`: for tests and explanations.
    pub fn matching<'a>(&'a self, record: &'a Value) -> impl Iterator<Item = usize> + 'a {
        let matching = self.patterns.iter().enumerate();
        matching.filter(|(_, fields)| fields_match(fields, Some(record))).map(|(index, _)| index)
    }

    /// Whether any pattern looks below `field` at the top level (the body of an SQS message is only read then).
    #[must_use]
    pub fn looks_below(&self, field: &str) -> bool {
        self.patterns.iter().any(|fields| names_below(fields, field))
    }
}

fn names_below(fields: &Fields, field: &str) -> bool {
    fields.iter().any(|node| match node {
        Node::Below(name, _) => name == field,
        Node::Leaf(..) => false,
        Node::Or(alternatives) => alternatives.iter().any(|fields| names_below(fields, field)),
    })
}

struct Refused {
    place: String,
    reason: String,
}

impl Refused {
    fn at(place: &str, reason: impl Into<String>) -> Self {
        Self { place: place.to_owned(), reason: reason.into() }
    }

    fn in_pattern(self, pattern: usize) -> FilterError {
        FilterError::Invalid { pattern, place: self.place, reason: self.reason }
    }
}

fn parse_fields(value: &Value, place: &str) -> Result<Fields, Refused> {
    let Value::Object(object) = value else {
        return Err(Refused::at(place, "expected an object of field names"));
    };
    if object.is_empty() {
        return Err(Refused::at(place, "an empty object matches nothing: name a field"));
    }
    let mut fields = Vec::with_capacity(object.len());
    for (name, below) in object {
        let place = if place.is_empty() { name.clone() } else { format!("{place}.{name}") };
        fields.push(parse_node(name, below, &place)?);
    }
    Ok(fields)
}

fn parse_node(name: &str, below: &Value, place: &str) -> Result<Node, Refused> {
    match below {
        Value::Object(_) => Ok(Node::Below(name.to_owned(), parse_fields(below, place)?)),
        Value::Array(alternatives) if name == "$or" => parse_or(alternatives, place),
        Value::Array(rules) => {
            if rules.is_empty() {
                return Err(Refused::at(place, "an empty list matches nothing: put a rule in"));
            }
            let mut parsed = Vec::with_capacity(rules.len());
            for rule in rules {
                parsed.push(parse_rule(rule, place)?);
            }
            Ok(Node::Leaf(name.to_owned(), parsed))
        }
        _ => Err(Refused::at(place, "a value must be in a list: write [value]")),
    }
}

fn parse_or(alternatives: &[Value], place: &str) -> Result<Node, Refused> {
    if alternatives.len() < 2 {
        return Err(Refused::at(place, "$or takes a list of at least two objects"));
    }
    let mut parsed = Vec::with_capacity(alternatives.len());
    for (index, alternative) in alternatives.iter().enumerate() {
        parsed.push(parse_fields(alternative, &format!("{place}[{index}]"))?);
    }
    Ok(Node::Or(parsed))
}

fn parse_rule(rule: &Value, place: &str) -> Result<Rule, Refused> {
    match rule {
        Value::Object(object) => parse_operator(object, place),
        Value::Array(_) => Err(Refused::at(place, "a list within a list is no rule")),
        exact => Ok(Rule::Exactly(exact.clone())),
    }
}

fn parse_operator(object: &Map<String, Value>, place: &str) -> Result<Rule, Refused> {
    let mut entries = object.iter();
    let (Some((operator, operand)), None) = (entries.next(), entries.next()) else {
        return Err(Refused::at(place, "a rule object has exactly one operator"));
    };
    let text = || match operand {
        Value::String(text) => Ok(text.clone()),
        _ => Err(Refused::at(place, format!("`{operator}` takes a string"))),
    };
    match operator.as_str() {
        "exists" => match operand {
            Value::Bool(exists) => Ok(Rule::Exists(*exists)),
            _ => Err(Refused::at(place, "`exists` takes true or false")),
        },
        "prefix" => Ok(Rule::Prefix(text()?)),
        "suffix" => Ok(Rule::Suffix(text()?)),
        "equals-ignore-case" => Ok(Rule::IgnoreCase(text()?)),
        "anything-but" => parse_anything_but(operand, place),
        "numeric" => parse_numeric(operand, place),
        other => Err(Refused::at(place, format!("`{other}` is no operator of Lambda's event filtering"))),
    }
}

/// One string or number, or a list of only strings or only numbers.
fn parse_anything_but(operand: &Value, place: &str) -> Result<Rule, Refused> {
    let values = match operand {
        Value::Array(values) => values.clone(),
        single => vec![single.clone()],
    };
    let strings = values.iter().filter(|value| value.is_string()).count();
    let numbers = values.iter().filter(|value| value.is_number()).count();
    if values.is_empty() || (strings != values.len() && numbers != values.len()) {
        return Err(Refused::at(place, "`anything-but` takes strings or numbers, not both, at least one"));
    }
    Ok(Rule::AnythingBut(values))
}

/// One comparison, or a lower and an upper bound: `["=", 100]`, `[">", 10, "<=", 20]`.
fn parse_numeric(operand: &Value, place: &str) -> Result<Rule, Refused> {
    let wrong =
        || Refused::at(place, "`numeric` takes one comparison, or a lower and an upper bound: [\">\", 10, \"<=\", 20]");
    let Value::Array(parts) = operand else { return Err(wrong()) };
    if parts.is_empty() || parts.len() % 2 != 0 {
        return Err(wrong());
    }
    let mut comparisons = Vec::with_capacity(parts.len() / 2);
    for pair in parts.chunks(2) {
        let comparison = match pair[0].as_str() {
            Some("=") => Comparison::Equal,
            Some("<") => Comparison::Less,
            Some("<=") => Comparison::LessOrEqual,
            Some(">") => Comparison::Greater,
            Some(">=") => Comparison::GreaterOrEqual,
            _ => return Err(wrong()),
        };
        comparisons.push((comparison, pair[1].as_f64().ok_or_else(wrong)?));
    }
    let bounds: Vec<Comparison> = comparisons.iter().map(|(comparison, _)| *comparison).collect();
    let range = matches!(
        bounds[..],
        [Comparison::Greater | Comparison::GreaterOrEqual, Comparison::Less | Comparison::LessOrEqual]
    );
    if bounds.len() == 1 || range { Ok(Rule::Numeric(comparisons)) } else { Err(wrong()) }
}

/// `None` is an absent object: everything below it is absent, which `exists: false` matches.
fn fields_match(fields: &Fields, object: Option<&Value>) -> bool {
    fields.iter().all(|node| node_matches(node, object))
}

fn node_matches(node: &Node, object: Option<&Value>) -> bool {
    match node {
        Node::Below(name, fields) => match object.and_then(|object| object.get(name)) {
            // A list of objects matches if one of them does.
            Some(Value::Array(entries)) if !entries.is_empty() => {
                entries.iter().any(|entry| fields_match(fields, Some(entry)))
            }
            below => fields_match(fields, below),
        },
        Node::Leaf(name, rules) => {
            let value = object.and_then(|object| object.get(name));
            rules.iter().any(|rule| rule_matches(rule, value))
        }
        Node::Or(alternatives) => alternatives.iter().any(|fields| fields_match(fields, object)),
    }
}

fn rule_matches(rule: &Rule, value: Option<&Value>) -> bool {
    let leaves = leaves(value);
    match rule {
        Rule::Exists(wanted) => *wanted != leaves.is_empty(),
        // As with every rule, one entry of a list is enough.
        Rule::AnythingBut(excluded) => leaves.iter().any(|leaf| !excluded.contains(leaf)),
        Rule::Exactly(wanted) => leaves.contains(&wanted),
        Rule::Prefix(prefix) => leaves.iter().any(|leaf| text(leaf).starts_with(prefix.as_str()) && leaf.is_string()),
        Rule::Suffix(suffix) => leaves.iter().any(|leaf| text(leaf).ends_with(suffix.as_str()) && leaf.is_string()),
        Rule::IgnoreCase(wanted) => {
            leaves.iter().any(|leaf| leaf.is_string() && text(leaf).to_lowercase() == wanted.to_lowercase())
        }
        Rule::Numeric(comparisons) => {
            leaves.iter().filter_map(|leaf| leaf.as_f64()).any(|number| holds(comparisons, number))
        }
    }
}

/// The leaves of a field: itself, or the entries of a list. An object is no leaf, an empty list has none.
fn leaves(value: Option<&Value>) -> Vec<&Value> {
    match value {
        None | Some(Value::Object(_)) => Vec::new(),
        Some(Value::Array(entries)) => entries.iter().filter(|entry| !entry.is_object() && !entry.is_array()).collect(),
        Some(leaf) => vec![leaf],
    }
}

fn text(leaf: &Value) -> &str {
    leaf.as_str().unwrap_or("")
}

fn holds(comparisons: &[(Comparison, f64)], number: f64) -> bool {
    comparisons.iter().all(|(comparison, bound)| match comparison {
        Comparison::Equal => number == *bound,
        Comparison::Less => number < *bound,
        Comparison::LessOrEqual => number <= *bound,
        Comparison::Greater => number > *bound,
        Comparison::GreaterOrEqual => number >= *bound,
    })
}

#[cfg(test)]
#[path = "filter_tests.rs"]
mod tests;
