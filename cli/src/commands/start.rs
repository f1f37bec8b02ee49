//! `leasehold start`: writes that a connection should be STARTED, and its spec.

use super::connection_id;
use crate::failure::Failure;
use crate::output::Output;
use crate::target::Target;
use leasehold::aws::user::{GivenSpec, Started};
use leasehold::model::ConnectionId;

/// Say that a connection should be STARTED; one worker will open it and keep it open.
///
/// On a connection that is there already, what is given replaces what was there and the rest stays: all --header together replace the
/// headers, all --resume-* together the way to resume. The owner then opens the socket anew. Without any option only the wish is written.
///
/// What is given is checked as workers check it. Other users of this machine can see command lines: headers with secrets are better written
/// to the row by other means.
#[derive(clap::Args)]
pub struct Arguments {
    /// The connection: 1 to 128 of A-Z a-z 0-9 . _ : @ -
    #[arg(value_parser = connection_id)]
    id: ConnectionId,
    /// The remote server, ws:// or wss://; needed for a new connection
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// A header of the handshake; may be repeated
    #[arg(long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// A subprotocol to offer; may be repeated
    #[arg(long = "subprotocol", value_name = "NAME")]
    subprotocols: Vec<String>,
    /// A text message to send when the socket is open; may be repeated
    #[arg(long, value_name = "TEXT")]
    on_open: Vec<String>,
    /// How to resume: added to the URL's query, such as 'from={last_seq}'
    #[arg(long, value_name = "TEMPLATE")]
    resume_query: Option<String>,
    /// How to resume: a header, such as 'X-From: {last_seq}'
    #[arg(long, value_name = "TEMPLATE")]
    resume_header: Option<String>,
    /// How to resume: a text message sent after the --on-open messages
    #[arg(long, value_name = "TEMPLATE")]
    resume_on_open: Option<String>,
    /// Where a message carries its sequence number: a JSON pointer, such as /seq
    #[arg(long, value_name = "POINTER")]
    sequence_pointer: Option<String>,
}

impl Arguments {
    /// Runs the command.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn run(self, target: &Target, output: &Output) -> Result<(), Failure> {
        let (id, given) = self.given()?;
        match target.store.start(&id, &given).await {
            Ok(Started::Made) => output.line(&format!("{id} is to be STARTED")),
            Ok(Started::Changed) if given.is_empty() => {
                output.line(&format!("{id} is to be STARTED; its spec is as it was"))
            }
            Ok(Started::Changed) => output.line(&format!("{id} is to be STARTED with the new spec")),
            Err(error) => Err(target.user_failure(error)),
        }
    }

    fn given(self) -> Result<(ConnectionId, GivenSpec), Failure> {
        let resume = [("query", self.resume_query), ("header", self.resume_header), ("on_open", self.resume_on_open)];
        let given = GivenSpec {
            ws_url: self.url,
            headers: headers(&self.headers)?,
            subprotocols: self.subprotocols,
            on_open: self.on_open,
            resume: resume.into_iter().filter_map(|(name, template)| Some((name, template?))).collect(),
            sequence_pointer: self.sequence_pointer,
        };
        Ok((self.id, given))
    }
}

/// Names and values. Errors never show a value: it may be a secret.
fn headers(texts: &[String]) -> Result<Vec<(String, String)>, Failure> {
    let mut headers: Vec<(String, String)> = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        let Some((name, value)) = text.split_once(':') else {
            return Err(Failure::Usage(format!("header {} has no colon: it must be 'Name: value'", index + 1)));
        };
        let (name, value) = (name.trim().to_owned(), value.trim().to_owned());
        if headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(&name)) {
            return Err(Failure::Usage(format!("header {name} is given twice: join its values with commas")));
        }
        headers.push((name, value));
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_a_name_and_a_value_and_errors_do_not_show_the_value() {
        let parsed = headers(&["X-Key:  a:b ".into()]).unwrap();
        assert_eq!(parsed, [("X-Key".to_owned(), "a:b".to_owned())]);
        assert_eq!(
            headers(&["secret".into()]).unwrap_err().to_string(),
            "header 1 has no colon: it must be 'Name: value'"
        );
        let twice = headers(&["X-Key: secret".into(), "x-key: secret".into()]).unwrap_err().to_string();
        assert!(twice.starts_with("header x-key is given twice") && !twice.contains("secret"), "{twice}");
    }
}
