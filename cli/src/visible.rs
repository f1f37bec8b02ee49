//! Text that others wrote, made fit to be shown: no control character reaches the terminal, so no escape sequence does.

/// Controls (C0, DEL, C1) and the characters that change the direction or the line of what follows.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text in one line, with controls written as `\n`, `\t`, `\r` or `\u{1b}`.
#[must_use]
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_unsafe(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// A JSON document whose strings have all such characters as `\u…`. JSON itself only asks for the first 32 (RFC 8259, section 7), and some
/// terminals obey the others.
#[must_use]
pub fn visible_json(document: &str) -> String {
    let mut out = String::with_capacity(document.len());
    for c in document.chars() {
        // Below space there are only the line breaks between values: the serializer escapes those within strings.
        if c >= '\u{7f}' && is_unsafe(c) {
            out.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            out.push(c);
        }
    }
    out
}

/// The first `most` characters, with an ellipsis where that is not all.
#[must_use]
pub fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A length of time in two units at most: `7s`, `3m 4s`, `2h 5m`, `3d 4h`.
#[must_use]
pub fn span(ms: u64) -> String {
    let seconds = ms / 1_000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    if days > 0 {
        format!("{days}d {}h", hours % 24)
    } else if hours > 0 {
        format!("{hours}h {}m", minutes % 60)
    } else if minutes > 0 {
        format!("{minutes}m {}s", seconds % 60)
    } else {
        format!("{seconds}s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_escape_sequence_gets_through() {
        assert_eq!(visible("a\u{1b}[31mb\n\u{9b}2J"), "a\\u{1b}[31mb\\n\\u{9b}2J");
        assert_eq!(visible("price \u{202e}001"), "price \\u{202e}001");
        assert_eq!(visible("ü € \"quoted\" \\n"), "ü € \"quoted\" \\n");
    }

    #[test]
    fn json_stays_the_same_document_without_raw_controls() {
        let text = "a\u{1b}b\u{9b}c\u{7f}\u{2028}ü";
        let shown = visible_json(&serde_json::to_string(text).unwrap());
        assert!(!shown.chars().any(is_unsafe), "{shown:?}");
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
    }

    #[test]
    fn long_texts_and_times_are_short() {
        assert_eq!(cut("äöü", 2), "äö…");
        assert_eq!(cut("äö", 2), "äö");
        let spans = [(999, "0s"), (61_000, "1m 1s"), (7_500_000, "2h 5m"), (273_600_000, "3d 4h")];
        for (ms, text) in spans {
            assert_eq!(span(ms), text);
        }
    }
}
