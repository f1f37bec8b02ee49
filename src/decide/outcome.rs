//! What the end of an attempt or of a socket means: try again, later, or not at all.

/// How an attempt or a socket ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The handshake was answered with a status other than 101.
    Status {
        /// The HTTP status.
        status: u16,
        /// How long the server asked to wait, if it did.
        retry_after_ms: Option<u64>,
    },
    /// The peer closed with a code (RFC 6455, section 7.4), or without one.
    Closed(Option<u16>),
    /// The name did not resolve, TCP or TLS failed, the socket broke, or a timer ran out: what, in a few words.
    Failed(String),
    /// The peer broke the protocol (RFC 6455, section 7.1.7).
    Protocol(String),
}

/// What follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Back off, then try again.
    Retry,
    /// Try again, not before so many ms, and then with back-off.
    RetryAfter(u64),
    /// Stop trying until the spec changes.
    Park,
}

/// A server may ask for at most this wait; a longer one is cut, so that no typing error silences a connection for a day.
pub const MAX_RETRY_AFTER_MS: u64 = 3_600_000;

/// Reads a Retry-After: seconds or an HTTP date (RFC 9110, section 10.2.3), or a Unix timestamp, which some vendors send. `wall_ms` is the
/// caller's clock.
#[must_use]
pub fn retry_after_ms(text: &str, wall_ms: u64) -> Option<u64> {
    /// No server asks for 30 years: a number as large as this is a date in seconds.
    const FIRST_TIMESTAMP_S: u64 = 1_000_000_000;
    let text = text.trim();
    if let Ok(number) = text.parse::<u64>() {
        let number_ms = number.saturating_mul(1_000);
        return Some(if number < FIRST_TIMESTAMP_S { number_ms } else { number_ms.saturating_sub(wall_ms) });
    }
    let at = httpdate::parse_http_date(text).ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(at.as_secs().saturating_mul(1_000).saturating_sub(wall_ms))
}

/// The default table.
#[must_use]
pub fn outcome(end: &End) -> Outcome {
    match end {
        End::Status { retry_after_ms: Some(wait), .. } => Outcome::RetryAfter((*wait).min(MAX_RETRY_AFTER_MS)),
        // 408 and 425 ask to be repeated, 429 says later, 5xx may pass (RFC 9110, section 15). Any other 4xx says that the request itself
        // is wrong.
        End::Status { status: 408 | 425 | 429, .. } => Outcome::Retry,
        End::Status { status: 400..=499, .. } => Outcome::Park,
        End::Status { .. } => Outcome::Retry,
        // 1002, 1003, 1007 and 1010 blame what we sent or offered, 1008 is a policy (RFC 6455, section 7.4.1).
        End::Closed(Some(1002 | 1003 | 1007 | 1008 | 1010)) => Outcome::Park,
        End::Closed(_) | End::Failed(_) | End::Protocol(_) => Outcome::Retry,
    }
}

/// The sentence for the row's `reason`.
#[must_use]
pub fn reason(end: &End) -> String {
    match end {
        End::Status { status, retry_after_ms: Some(wait) } => {
            format!("the handshake was answered with {status}, retry after {} s", wait / 1_000)
        }
        End::Status { status, .. } => format!("the handshake was answered with {status}"),
        End::Closed(Some(code)) => format!("the peer closed with {code}"),
        End::Closed(None) => "the peer closed without a code".into(),
        End::Failed(what) => what.clone(),
        End::Protocol(what) => format!("the peer broke the protocol: {what}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(status: u16) -> Outcome {
        outcome(&End::Status { status, retry_after_ms: None })
    }

    #[test]
    fn refusals_that_will_not_change_park_and_others_are_tried_again() {
        for code in [400, 401, 403, 404, 410] {
            assert_eq!(status(code), Outcome::Park, "{code}");
        }
        for code in [200, 408, 425, 429, 500, 502, 503, 504] {
            assert_eq!(status(code), Outcome::Retry, "{code}");
        }
    }

    #[test]
    fn normal_and_going_away_closes_are_tried_again_and_policy_violations_park() {
        for code in [1000, 1001, 1006, 1011, 1012, 1013, 4000] {
            assert_eq!(outcome(&End::Closed(Some(code))), Outcome::Retry, "{code}");
        }
        assert_eq!(outcome(&End::Closed(None)), Outcome::Retry);
        assert_eq!(outcome(&End::Closed(Some(1008))), Outcome::Park);
    }

    #[test]
    fn retry_after_is_read_as_seconds_as_a_date_and_as_a_unix_timestamp() {
        // 2015-10-21 07:28:00 UTC is 1,445,412,480 s (the date of RFC 9110's own example).
        let wall_ms = 1_445_412_450_000;
        assert_eq!(retry_after_ms("120", wall_ms), Some(120_000));
        assert_eq!(retry_after_ms("Wed, 21 Oct 2015 07:28:00 GMT", wall_ms), Some(30_000));
        assert_eq!(retry_after_ms("1445412480", wall_ms), Some(30_000));
        assert_eq!(retry_after_ms("soon", wall_ms), None);
    }

    #[test]
    fn a_server_that_asks_for_time_gets_it_within_reason() {
        let after = |wait| outcome(&End::Status { status: 503, retry_after_ms: Some(wait) });
        assert_eq!(after(5_000), Outcome::RetryAfter(5_000));
        assert_eq!(after(u64::MAX), Outcome::RetryAfter(3_600_000));
    }
}
