//! The spec of a connection: what to open, and how to resume.

use super::fields::{self, RowError, short};
use super::{AttributeValue, Item};
use url::Url;

/// Attribute names of the spec.
pub mod attr {
    #![allow(missing_docs, reason = "each constant is the attribute's own name")]
    pub const WS_URL: &str = "ws_url";
    pub const HEADERS: &str = "headers";
    pub const SUBPROTOCOLS: &str = "subprotocols";
    pub const ON_OPEN: &str = "on_open";
    pub const RESUME: &str = "resume";
    pub const SEQUENCE_POINTER: &str = "sequence_pointer";
}

/// What stands for the resume point in resume templates.
pub const LAST_SEQ_PLACEHOLDER: &str = "{last_seq}";

/// How an upstream is told where to go on. Each part is a template with `{last_seq}`, and is left out while there is no resume point.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resume {
    /// Added to the URL's query: `from={last_seq}`.
    pub query: Option<String>,
    /// A header, `name: value`.
    pub header: Option<(String, String)>,
    /// A text message sent after the on-open messages.
    pub on_open: Option<String>,
}

/// What the user wants opened.
#[derive(Clone, PartialEq, Eq)]
pub struct Spec {
    /// `ws://` or `wss://`.
    pub ws_url: Url,
    /// Headers of the handshake, by name.
    pub headers: Vec<(String, String)>,
    /// Offered subprotocols.
    pub subprotocols: Vec<String>,
    /// Text messages sent when the socket is open, in order.
    pub on_open: Vec<String>,
    /// How to resume.
    pub resume: Resume,
    /// Where a message carries its sequence number: a JSON pointer (RFC 6901). Absent: the upstream has no numbers.
    pub sequence_pointer: Option<String>,
}

impl Spec {
    /// Reads the spec of a row.
    ///
    /// # Errors
    /// [`RowError`] naming the attribute and what belongs there.
    pub fn from_item(item: &Item) -> Result<Self, RowError> {
        let text = fields::string(item, attr::WS_URL)?
            .ok_or(RowError::Missing { attribute: attr::WS_URL, wanted: "a ws:// or wss:// URL" })?;
        let headers = fields::string_map(item, attr::HEADERS)?;
        for (name, value) in &headers {
            check_header(attr::HEADERS, name, value)?;
        }
        Ok(Self {
            ws_url: parse_url(&text)?,
            headers,
            subprotocols: fields::strings(item, attr::SUBPROTOCOLS)?,
            on_open: fields::strings(item, attr::ON_OPEN)?,
            resume: resume(item)?,
            sequence_pointer: pointer(item)?,
        })
    }

    /// The URL as it may be shown: without user, password and query values.
    #[must_use]
    pub fn shown_url(&self) -> String {
        shown_url(&self.ws_url)
    }
}

/// Query values and credentials never reach a log, so `Debug` leaves them out.
impl std::fmt::Debug for Spec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let headers: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Spec")
            .field("ws_url", &self.shown_url())
            .field("headers", &headers)
            .field("subprotocols", &self.subprotocols)
            .field("on_open", &self.on_open.len())
            .field("sequence_pointer", &self.sequence_pointer)
            .finish_non_exhaustive()
    }
}

/// A URL without user, password and query values.
#[must_use]
pub fn shown_url(url: &Url) -> String {
    let names: Vec<String> = url.query_pairs().map(|(name, _)| format!("{name}=…")).collect();
    let query = if names.is_empty() { String::new() } else { format!("?{}", names.join("&")) };
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}{}{query}", url.scheme(), url.host_str().unwrap_or(""), url.path())
}

/// Reads a `ws_url`.
///
/// # Errors
/// [`RowError::Wrong`] when it does not parse, is not `ws` or `wss`, has no host, or has a fragment (RFC 6455, section 3).
pub fn parse_url(text: &str) -> Result<Url, RowError> {
    let wanted = "a ws:// or wss:// URL with a host and without a fragment";
    let attribute = attr::WS_URL;
    let url =
        Url::parse(text).map_err(|error| RowError::Wrong { attribute, found: format!("no URL ({error})"), wanted })?;
    if !matches!(url.scheme(), "ws" | "wss") {
        return Err(RowError::Wrong { attribute, found: format!("of scheme {}", short(url.scheme())), wanted });
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err(RowError::Wrong { attribute, found: "without a host".into(), wanted });
    }
    if url.fragment().is_some() {
        return Err(RowError::Wrong { attribute, found: "with a fragment".into(), wanted });
    }
    Ok(url)
}

fn resume(item: &Item) -> Result<Resume, RowError> {
    let attribute = attr::RESUME;
    let wanted = "a map with any of query, header (\"name: value\") and on_open, each with {last_seq} in it";
    let mut out = Resume::default();
    for (name, template) in fields::string_map(item, attribute)? {
        if !["query", "header", "on_open"].contains(&name.as_str()) {
            // What was pasted in the wrong place may be a secret: it is not shown.
            return Err(RowError::Wrong { attribute, found: "with another entry".into(), wanted });
        }
        if !template.contains(LAST_SEQ_PLACEHOLDER) {
            return Err(RowError::Wrong { attribute, found: format!("without {{last_seq}} in {name}"), wanted });
        }
        match name.as_str() {
            "query" => out.query = Some(template),
            "on_open" => out.on_open = Some(template),
            _ => {
                let (name, value) = template.split_once(':').ok_or(RowError::Wrong {
                    attribute,
                    found: "a header without a colon".into(),
                    wanted,
                })?;
                check_header(attribute, name.trim(), value.trim())?;
                out.header = Some((name.trim().to_owned(), value.trim().to_owned()));
            }
        }
    }
    Ok(out)
}

fn pointer(item: &Item) -> Result<Option<String>, RowError> {
    let attribute = attr::SEQUENCE_POINTER;
    match fields::string(item, attribute)? {
        Some(text) if !text.is_empty() && !text.starts_with('/') => {
            Err(RowError::Wrong { attribute, found: short(&text), wanted: "a JSON pointer, such as /seq (RFC 6901)" })
        }
        other => Ok(other),
    }
}

/// Header names are tokens, values are printable (RFC 9110, section 5).
fn check_header(attribute: &'static str, name: &str, value: &str) -> Result<(), RowError> {
    let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if name.is_empty() || !name.chars().all(token) {
        // Often it is a whole header pasted as a name, value and all: it is not shown.
        let found = "with a name that is none (it is not shown: it may be a secret)".into();
        return Err(RowError::Wrong {
            attribute,
            found,
            wanted: "header names of letters, digits and !#$%&'*+-.^_`|~",
        });
    }
    if !value.chars().all(|c| c == '\t' || (' '..='\u{7e}').contains(&c)) {
        // The value may be a secret: it is not shown.
        return Err(RowError::Wrong {
            attribute,
            found: format!("not printable in {name}"),
            wanted: "a header value of printable ASCII",
        });
    }
    Ok(())
}

/// A row of three attributes, as people write it by hand.
#[must_use]
pub fn minimal_item(id: &super::ConnectionId, started: bool, ws_url: &str) -> Item {
    use super::connection::{DesiredState, attr as row};
    let state = if started { DesiredState::STARTED } else { DesiredState::STOPPED };
    let mut item = std::collections::HashMap::new();
    item.insert(row::PK.to_owned(), AttributeValue::S(id.pk()));
    item.insert(row::DESIRED_STATE.to_owned(), AttributeValue::S(state.to_owned()));
    item.insert(attr::WS_URL.to_owned(), AttributeValue::S(ws_url.to_owned()));
    item.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_urls_are_refused_with_what_belongs_there() {
        let cases = [
            ("http://a/", "ws_url is of scheme \"http\""),
            ("not a url", "ws_url is no URL"),
            ("wss://a/#x", "ws_url is with a fragment"),
            ("ws://", "ws_url is no URL"),
        ];
        for (text, message) in cases {
            let error = parse_url(text).unwrap_err().to_string();
            assert!(error.starts_with(message), "{text}: {error}");
            assert!(error.contains("it must be a ws:// or wss:// URL"), "{error}");
        }
    }

    /// The refusal lands on the row and in logs.
    #[test]
    fn a_header_pasted_as_a_name_is_not_shown() {
        let id = super::super::ConnectionId::new("a").unwrap();
        let mut item = minimal_item(&id, true, "wss://example.com/");
        let refused = |item: &Item, attribute| {
            let error = Spec::from_item(item).unwrap_err().to_string();
            assert!(error.starts_with(attribute) && !error.contains("SECRET"), "{error}");
        };
        let entry = |name: &str, value: &str| {
            let value = AttributeValue::S(value.to_owned());
            AttributeValue::M(std::collections::HashMap::from([(name.to_owned(), value)]))
        };
        for name in ["authorization: Bearer SECRET", "", "a b SECRET"] {
            item.insert(attr::HEADERS.to_owned(), entry(name, "SECRET"));
            refused(&item, "headers is");
        }
        item.insert(attr::HEADERS.to_owned(), entry("x-a", "SECRET\n"));
        refused(&item, "headers is not printable in x-a");
        item.remove(attr::HEADERS);
        for (name, value) in
            [("authorization: SECRET", "{last_seq}"), ("SECRET", "x"), ("header", "SECRET {last_seq}: x")]
        {
            item.insert(attr::RESUME.to_owned(), entry(name, value));
            refused(&item, "resume is");
        }
    }

    #[test]
    fn query_values_and_passwords_are_never_shown() {
        let url = parse_url("wss://user:pass@example.com:8443/v1?token=secret&x=1").unwrap();
        let shown = shown_url(&url);
        assert_eq!(shown, "wss://example.com:8443/v1?token=…&x=…");
    }
}
