//! The request head: reading it, and what it asks for.

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::handshake::machine::TryParse;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response, create_response, write_response};
use tokio_tungstenite::tungstenite::http::header::{HeaderValue, SEC_WEBSOCKET_PROTOCOL};

/// A longer request head is refused.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// A longer channel id is refused.
const MAX_ID_BYTES: usize = 256;
/// The header that names the last sequence number a client has.
const RESUME_HEADER: &str = "x-resume-from";

/// Why there is no request.
#[derive(Debug)]
pub(super) enum HeadError {
    /// The peer went away.
    Gone,
    /// Not HTTP, not GET, or too long.
    Bad,
}

/// Reads one request head. Bytes after it (frames of a hasty client) come back too.
pub(super) async fn read_head(tcp: &mut TcpStream) -> Result<(Request, Vec<u8>), HeadError> {
    let mut bytes = Vec::with_capacity(1_024);
    loop {
        match tcp.read_buf(&mut bytes).await {
            Ok(0) | Err(_) => return Err(HeadError::Gone),
            Ok(_) => {}
        }
        match Request::try_parse(&bytes) {
            Ok(Some((size, request))) => return Ok((request, bytes.split_off(size))),
            Ok(None) if bytes.len() < MAX_HEAD_BYTES => {}
            Ok(None) | Err(_) => return Err(HeadError::Bad),
        }
    }
}

/// The channel id of `/feed/{id}`, as it stands in the path.
pub(super) fn channel_id(request: &Request) -> Option<&str> {
    let id = request.uri().path().strip_prefix("/feed/")?;
    let fits = !id.is_empty() && id.len() <= MAX_ID_BYTES && !id.contains('/');
    fits.then_some(id)
}

/// The resume position in the query (`?from=N`) or in the header `x-resume-from`.
pub(super) fn resume_from(request: &Request) -> Option<u64> {
    for pair in request.uri().query().unwrap_or("").split('&') {
        if let Some(from) = pair.strip_prefix("from=").and_then(|value| value.parse().ok()) {
            return Some(from);
        }
    }
    request.headers().get(RESUME_HEADER)?.to_str().ok()?.trim().parse().ok()
}

/// The resume position in a client's first text message: `{"resume":N}`, where N is a number or one in quotes.
pub(super) fn resume_message(text: &str) -> Option<u64> {
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    let resume = value.get("resume")?;
    resume.as_u64().or_else(|| resume.as_str()?.parse().ok())
}

/// The 101 answer as bytes, with the first subprotocol that the client offered (RFC 6455, section 4.2.2);
/// `None` if the request is not a WebSocket handshake.
pub(super) fn switching_protocols(request: &Request) -> Option<Vec<u8>> {
    let mut response: Response = create_response(request).ok()?;
    let offered = request.headers().get(SEC_WEBSOCKET_PROTOCOL).and_then(|value| value.to_str().ok());
    let first = offered.and_then(|offered| offered.split(',').next()).map(str::trim);
    if let Some(protocol) = first.and_then(|first| HeaderValue::from_str(first).ok()) {
        response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    let mut bytes = Vec::new();
    write_response(&mut bytes, &response).ok()?;
    Some(bytes)
}

/// An answer that refuses.
pub(super) fn refusal(status: u16, retry_after_s: Option<u32>) -> Vec<u8> {
    let reason = match status {
        400 => "Bad Request",
        401 => "Unauthorized",
        404 => "Not Found",
        429 => "Too Many Requests",
        503 => "Service Unavailable",
        _ => "Refused",
    };
    let retry_after = retry_after_s.map(|seconds| format!("Retry-After: {seconds}\r\n")).unwrap_or_default();
    format!("HTTP/1.1 {status} {reason}\r\n{retry_after}Content-Length: 0\r\nConnection: close\r\n\r\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(head: &str) -> Request {
        let (_, request) = Request::try_parse(head.as_bytes()).expect("parses").expect("is whole");
        request
    }

    #[test]
    fn the_path_names_the_channel() {
        let id = |path: &str| channel_id(&request(&format!("GET {path} HTTP/1.1\r\n\r\n"))).map(str::to_owned);
        assert_eq!(id("/feed/meeting-1?from=3").as_deref(), Some("meeting-1"));
        assert_eq!(id("/feed/"), None);
        assert_eq!(id("/feed/a/b"), None);
        assert_eq!(id("/other"), None);
    }

    #[test]
    fn a_position_is_read_from_the_query_the_header_or_the_first_message() {
        assert_eq!(resume_from(&request("GET /feed/a?x=1&from=3 HTTP/1.1\r\n\r\n")), Some(3));
        assert_eq!(resume_from(&request("GET /feed/a HTTP/1.1\r\nX-Resume-From: 4\r\n\r\n")), Some(4));
        assert_eq!(resume_from(&request("GET /feed/a?from= HTTP/1.1\r\n\r\n")), None);
        assert_eq!(resume_message(r#"{"resume":5}"#), Some(5));
        assert_eq!(resume_message(r#"{"resume":"5"}"#), Some(5));
        assert_eq!(resume_message(r#"{"resume":null}"#), None);
        assert_eq!(resume_message("hello"), None);
    }

    #[test]
    fn the_key_is_answered_as_in_the_rfc() {
        // The example of RFC 6455, section 1.3.
        let head = "GET /feed/a HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
            Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: chat, superchat\r\n\
            Sec-WebSocket-Version: 13\r\n\r\n";
        let answer = switching_protocols(&request(head)).expect("is a handshake");
        let answer = String::from_utf8(answer).expect("is text").to_lowercase();
        assert!(answer.starts_with("http/1.1 101 "));
        assert!(answer.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n"));
        assert!(answer.contains("sec-websocket-protocol: chat\r\n"));
        assert!(switching_protocols(&request("GET /feed/a HTTP/1.1\r\n\r\n")).is_none());
    }
}
