//! One GET over plain HTTP to a neighbour: the health check's own question, and the task's metadata. Nothing else is asked this way.

use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// No answer of a neighbour is larger.
const MAX_ANSWER_BYTES: u64 = 256 * 1024;

/// Asks `authority` (host and port) for `path`. Returns status and body. HTTP/1.0, so that the body ends with the connection.
///
/// # Errors
/// When there is no whole answer within `within`.
pub async fn get(authority: &str, path: &str, within: Duration) -> io::Result<(u16, String)> {
    let ask = async {
        let mut stream = TcpStream::connect(authority).await?;
        let request = format!("GET {path} HTTP/1.0\r\nhost: {authority}\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.take(MAX_ANSWER_BYTES).read_to_string(&mut answer).await?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
        Ok((status, body.to_owned()))
    };
    timeout(within, ask).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}
