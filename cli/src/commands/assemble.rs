//! Messages out of their items: a message that is too large for one item is stored in consecutive parts.

use leasehold::aws::messages::Body;
use leasehold::model::message::attr;
use leasehold::model::{AttributeValue, Item, MessageKey, fields};

/// A stored message. Bodies are users' data, so there is no `Debug`.
#[derive(Clone, PartialEq)]
pub struct Message {
    /// Where it is stored.
    pub key: MessageKey,
    /// When it was read from the socket, in lease time.
    pub received_at_ms: u64,
    /// What it carries: without the parts that are missing.
    pub body: Body,
    /// Parts that are not in the table (any more).
    pub missing_parts: u32,
    /// The sort key of its last item.
    pub last_sk: String,
}

/// One item of a message.
#[derive(Clone)]
struct Part {
    key: MessageKey,
    index: u32,
    parts: u32,
    received_at_ms: u64,
    body: Body,
}

/// Takes items in the order of their keys, or in the opposite one, and gives messages in that order.
#[derive(Default)]
pub struct Assembler {
    open: Vec<Part>,
    /// Items that are no messages of our format.
    pub strangers: u64,
}

impl Assembler {
    /// Takes the next item; what is complete by then is pushed to `out`.
    pub fn push(&mut self, item: &Item, out: &mut Vec<Message>) {
        let Some(part) = Part::from_item(item) else {
            self.strangers += 1;
            return;
        };
        if self.open.first().is_some_and(|first| first.key != part.key) {
            out.extend(self.finish());
        }
        let parts = part.parts;
        self.open.push(part);
        if self.open.len() >= usize::try_from(parts).unwrap_or(usize::MAX) {
            out.extend(self.finish());
        }
    }

    /// What is there of the message under way: nothing more of it will come.
    pub fn finish(&mut self) -> Option<Message> {
        let mut parts = std::mem::take(&mut self.open);
        parts.sort_by_key(|part| part.index);
        let (first, last) = (parts.first()?.clone(), parts.last()?.clone());
        let there = u32::try_from(parts.len()).unwrap_or(u32::MAX);
        Some(Message {
            last_sk: last.key.sk(last.index),
            received_at_ms: first.received_at_ms,
            missing_parts: first.parts.saturating_sub(there),
            body: if first.parts == 1 { first.body } else { join(&parts) },
            key: first.key,
        })
    }
}

/// Parts are stored as bytes, whatever they were: what is text is taken for text.
fn join(parts: &[Part]) -> Body {
    let mut bytes = Vec::new();
    for part in parts {
        match &part.body {
            Body::Text(text) => bytes.extend_from_slice(text.as_bytes()),
            Body::Binary(part) => bytes.extend_from_slice(part),
        }
    }
    String::from_utf8(bytes).map_or_else(|error| Body::Binary(error.into_bytes()), Body::Text)
}

impl Part {
    fn from_item(item: &Item) -> Option<Self> {
        let (key, index) = MessageKey::from_sk(&fields::string(item, attr::SK).ok()??)?;
        let body = match item.get(attr::BODY)? {
            AttributeValue::S(text) => Body::Text(text.clone()),
            AttributeValue::B(bytes) => Body::Binary(bytes.clone()),
            _ => return None,
        };
        let parts = fields::number(item, attr::PARTS).ok()?.map_or(1, |parts| u32::try_from(parts).unwrap_or(u32::MAX));
        let received_at_ms = fields::number(item, attr::RECEIVED_AT_MS).ok().flatten().unwrap_or(0);
        Some(Self { key, index, parts: parts.max(1), received_at_ms, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold::model::Series;
    use std::collections::HashMap;

    fn key(seq: u64) -> MessageKey {
        MessageKey { series: Series::from_stored("s"), seq, sub: 0 }
    }

    fn item(seq: u64, part: u32, parts: u32, bytes: &[u8]) -> Item {
        let mut item = HashMap::from([
            (attr::SK.to_owned(), AttributeValue::S(key(seq).sk(part))),
            (attr::BODY.to_owned(), AttributeValue::B(bytes.to_vec())),
            (attr::RECEIVED_AT_MS.to_owned(), AttributeValue::N("5".into())),
        ]);
        if parts > 1 {
            item.insert(attr::PARTS.to_owned(), AttributeValue::N(parts.to_string()));
        }
        item.into()
    }

    fn assemble(items: &[Item]) -> Vec<Message> {
        let (mut assembler, mut out) = (Assembler::default(), Vec::new());
        for item in items {
            assembler.push(item, &mut out);
        }
        out.extend(assembler.finish());
        out
    }

    #[test]
    fn parts_are_joined_in_either_direction_even_within_a_character() {
        // "ü" is C3 BC in UTF-8 (RFC 3629).
        let mut items = [item(1, 0, 1, &[0xff]), item(2, 0, 2, b"a\xc3"), item(2, 1, 2, b"\xbcb"), item(3, 0, 1, b"x")];
        let forward = assemble(&items);
        let bodies: Vec<Body> = forward.iter().map(|message| message.body.clone()).collect();
        let binary = |bytes: &[u8]| Body::Binary(bytes.to_vec());
        assert!(bodies == [binary(&[0xff]), Body::Text("aüb".into()), binary(b"x")]);
        assert_eq!(forward[1].last_sk, key(2).sk(1));
        items.reverse();
        let mut backward = assemble(&items);
        backward.reverse();
        assert!(backward == forward);
    }

    #[test]
    fn a_message_that_lost_a_part_is_shown_and_says_so() {
        let messages = assemble(&[item(1, 1, 3, b"b"), item(1, 2, 3, b"c"), item(2, 0, 1, b"x")]);
        assert_eq!((messages.len(), messages[0].missing_parts, messages[1].missing_parts), (2, 1, 0));
        assert!(messages[0].body == Body::Text("bc".into()));
    }

    #[test]
    fn an_item_of_another_format_is_counted_and_left_out() {
        let stranger: Item = HashMap::from([(attr::SK.to_owned(), AttributeValue::S("x".into()))]).into();
        let (mut assembler, mut out) = (Assembler::default(), Vec::new());
        assembler.push(&stranger, &mut out);
        assert_eq!((out.len(), assembler.strangers), (0, 1));
    }
}
