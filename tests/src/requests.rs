//! Which of the protocol's requests a request to DynamoDB is, by its expressions.

use serde_json::Value;

/// True for the renewal of a session.
pub fn is_renewal(operation: &str, request: &Value) -> bool {
    operation == "UpdateItem" && text(request, "ConditionExpression").contains("#heartbeat <")
}

/// True for the renewal of a row, where rows are leased by themselves.
pub fn is_row_renewal(operation: &str, request: &Value) -> bool {
    // An acquire sets an owner, and a restamp requires the expiry that was read.
    let sets = text(request, "UpdateExpression");
    operation == "UpdateItem"
        && sets.starts_with("SET #lease_expires_at_ms =")
        && !sets.contains("#lease_owner")
        && text(request, "ConditionExpression").contains("#lease_expires_at_ms < ")
}

/// True for a release.
pub fn is_release(operation: &str, request: &Value) -> bool {
    // A reap frees a row too, for its wish.
    let reaps = text(request, "ConditionExpression").contains("#desired_state");
    operation == "UpdateItem" && text(request, "UpdateExpression").contains("REMOVE #lease_owner") && !reaps
}

fn text<'r>(request: &'r Value, expression: &str) -> &'r str {
    request[expression].as_str().unwrap_or_default()
}

/// True for an acquire.
pub fn is_acquire(operation: &str, request: &Value) -> bool {
    operation == "UpdateItem" && text(request, "UpdateExpression").contains("#lease_owner =")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::World;
    use leasehold::aws::connections::Status;
    use leasehold::decide::acquire::{Acquire, Expected};
    use leasehold::decide::timing::Rules;
    use leasehold::model::{ConnectionId, SessionId};
    use std::sync::{Arc, Mutex, PoisonError};

    #[tokio::test(start_paused = true)]
    async fn each_request_to_a_row_is_taken_for_itself_only() {
        let world = World::new().await;
        let sent: Arc<Mutex<Vec<(bool, bool, bool)>>> = Arc::default();
        let log = sent.clone();
        world.break_with(Arc::new(move |call| {
            let (operation, request) = (call.operation, call.request);
            let is =
                (is_acquire(operation, request), is_row_renewal(operation, request), is_release(operation, request));
            log.lock().unwrap_or_else(PoisonError::into_inner).push(is);
            None
        }));
        let (store, me) = (world.store(), SessionId::new("me"));
        let id = ConnectionId::new("a").expect("it is one");
        let expected = Expected { owner: Some(me.clone()), epoch: Some(7), expired_by_ms: Some(9) };
        let acquire = Acquire { expected: expected.clone(), epoch: 8, expires_at_ms: Some(9), owners: vec![] };
        let (status, rules) = (Status::default(), Rules::default());
        let answers = [
            store.acquire(&id, &me, &acquire, 0).await,
            store.renew_row(&id, &me, 7, 9).await,
            store.release(&id, &me, 7, &status, &[], rules).await,
            store.reap(&id, &expected, 0).await,
            store.restamp(&id, Some(&me), 7, 9, 8).await,
            store.write_status(&id, &me, 7, &status, rules).await,
            store.stamp(&id, 0).await,
        ];
        assert!(answers.into_iter().all(|answer| answer.is_ok()));
        let (none, sent) = ((false, false, false), sent.lock().unwrap_or_else(PoisonError::into_inner).clone());
        let own = [(true, false, false), (false, true, false), (false, false, true)];
        assert_eq!(sent, [own.as_slice(), &[none; 4]].concat());
    }
}
