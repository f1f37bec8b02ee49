//! One queue without protocol or client: what takes too many messages for them.

use leasehold_local::queue::attributes::QueueConfig;
use leasehold_local::queue::error::SqsError;
use leasehold_local::queue::limits::{MAX_IN_FLIGHT, QueueLimits};
use leasehold_local::queue::message::Outgoing;
use leasehold_local::queue::state::{QueueState, Receive, Received};

const TEN: Receive = Receive { max: 10, visibility_s: None, dead_after: None };

fn filled(fifo: bool) -> QueueState {
    let config = QueueConfig { fifo, ..QueueConfig::default() };
    let mut queue = QueueState::new("q", config, QueueLimits::default(), 0);
    for number in 0..=MAX_IN_FLIGHT as u64 {
        let id = fifo.then(|| number.to_string());
        let outgoing =
            Outgoing { body: Some("x".into()), group_id: id.clone(), deduplication_id: id, ..Outgoing::default() };
        queue.send(0, number, outgoing).unwrap();
    }
    queue
}

// "There can be a maximum of approximately 120,000 in flight messages. If you reach this limit, Amazon SQS returns the
// OverLimit error message." (ChangeMessageVisibility)
#[test]
fn a_standard_queue_with_120_000_in_flight_is_over_its_limit() {
    let mut queue = filled(false);
    for _ in 0..MAX_IN_FLIGHT / 10 {
        assert_eq!(queue.receive(1, TEN).unwrap().messages.len(), 10);
    }
    assert!(matches!(queue.receive(1, TEN), Err(SqsError::OverLimit(_))));
    let counts = queue.counts(1);
    assert_eq!((counts.visible, counts.not_visible), (1, 120_000));
    // Thirty seconds later all are visible again.
    assert_eq!(queue.receive(30_001, TEN).unwrap().messages.len(), 10);
}

#[test]
fn a_group_of_thousands_is_handed_out_in_order() {
    let config = QueueConfig { fifo: true, ..QueueConfig::default() };
    let mut queue = QueueState::new("q.fifo", config, QueueLimits::default(), 0);
    for number in 0..2_000_u64 {
        let id = Some(number.to_string());
        let outgoing =
            Outgoing { body: id.clone(), group_id: Some("g".into()), deduplication_id: id, ..Outgoing::default() };
        queue.send(number, number, outgoing).unwrap();
    }
    let first = queue.receive(2_000, TEN).unwrap();
    let bodies: Vec<&str> = first.messages.iter().map(|message| message.body.as_str()).collect();
    assert_eq!(bodies, ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
    assert_eq!(queue.receive(2_001, TEN), Ok(Received::default()));
}

#[test]
fn messages_received_too_often_leave_in_the_same_call_that_takes_others() {
    let mut queue = QueueState::new("q", QueueConfig::default(), QueueLimits::default(), 0);
    let text = |body: &str| Outgoing { body: Some(body.into()), ..Outgoing::default() };
    queue.send(0, 1, text("old")).unwrap();
    let once = Receive { max: 1, visibility_s: Some(1), dead_after: Some(1) };
    assert_eq!(queue.receive(0, once).unwrap().messages.len(), 1);
    queue.send(1_000, 2, text("new")).unwrap();
    let received = queue.receive(1_000, once).unwrap();
    assert_eq!((received.dead[0].number, received.messages[0].number), (1, 2));
}
