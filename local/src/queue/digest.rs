//! Digests that SQS answers with, and receipt handles.

use super::error::SqsError;
use super::message::AttributeValue;
use aws_smithy_types::base64;
use md5::Md5;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// `MD5OfMessageBody`: lower-case hex of the body's UTF-8 bytes.
#[must_use]
pub fn md5_of_body(body: &str) -> String {
    hex(&Md5::digest(body.as_bytes()))
}

/// The deduplication id of a FIFO queue with content-based deduplication: SHA-256 of the body, not of the attributes.
#[must_use]
pub fn sha256_of_body(body: &str) -> String {
    hex(&Sha256::digest(body.as_bytes()))
}

/// `MD5OfMessageAttributes`; none for no attributes.
///
/// Source: "Calculating the MD5 message digest for message attributes" in the SQS developer guide: sorted by name;
/// name, data type and value each behind its length in four bytes, big-endian; one byte for the value's transport
/// type (1 string, 2 binary).
#[must_use]
pub fn md5_of_attributes<'a>(attributes: impl IntoIterator<Item = (&'a String, &'a AttributeValue)>) -> Option<String> {
    let sorted: BTreeMap<_, _> = attributes.into_iter().collect();
    if sorted.is_empty() {
        return None;
    }
    let mut md5 = Md5::new();
    for (name, value) in sorted {
        add(&mut md5, name.as_bytes());
        add(&mut md5, value.data_type.as_bytes());
        md5.update([if value.is_binary() { 2 } else { 1 }]);
        add(&mut md5, &value.bytes());
    }
    Some(hex(&md5.finalize()))
}

fn add(md5: &mut Md5, bytes: &[u8]) {
    // A message is at most 1 MiB, so the length fits.
    md5.update(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
    md5.update(bytes);
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// What a receipt handle says: one receive of one message of one queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The queue's name.
    pub queue: String,
    /// The message's number in the store.
    pub number: u64,
    /// Which receive of the message, from 1.
    pub receive: u32,
}

impl Receipt {
    /// The opaque text that a consumer gets.
    #[must_use]
    pub fn to_handle(&self) -> String {
        base64::encode(format!("r1:{}:{}:{}", self.queue, self.number, self.receive))
    }

    /// Reads a handle given to a consumer of `queue`.
    ///
    /// # Errors
    /// [`SqsError::ReceiptHandleIsInvalid`] for anything that this queue did not hand out.
    pub fn from_handle(handle: &str, queue: &str) -> Result<Self, SqsError> {
        let receipt = Self::decode(handle).filter(|receipt| receipt.queue == queue);
        receipt.ok_or_else(|| SqsError::ReceiptHandleIsInvalid(handle.chars().take(100).collect()))
    }

    fn decode(handle: &str) -> Option<Self> {
        let text = String::from_utf8(base64::decode(handle).ok()?).ok()?;
        let mut parts = text.split(':');
        let (version, queue, number, receive) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        if version != "r1" || parts.next().is_some() {
            return None;
        }
        Some(Self { queue: queue.to_owned(), number: number.parse().ok()?, receive: receive.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_a_body_is_md5_in_hex() {
        // RFC 1321, appendix A.5.
        assert_eq!(md5_of_body("abc"), "900150983cd24fb0d6963f7d28e17f72");
    }

    #[test]
    fn content_is_deduplicated_by_sha_256_in_hex() {
        // FIPS 180-2, appendix B.1.
        assert_eq!(sha256_of_body("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn a_receipt_handle_reads_back_for_its_own_queue_only() {
        let receipt = Receipt { queue: "claims".into(), number: 7, receive: 2 };
        let handle = receipt.to_handle();
        assert_eq!(Receipt::from_handle(&handle, "claims"), Ok(receipt));
        assert!(Receipt::from_handle(&handle, "other").is_err());
        assert!(Receipt::from_handle("not a handle", "claims").is_err());
    }
}
