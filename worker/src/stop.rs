//! The order to stop, as everybody in the process hears it.

use std::pin::pin;
use std::sync::Arc;
use tokio::sync::{Notify, watch};

/// The order to stop. Clones share it.
///
/// Who waits for it is woken in the order in which it began to wait. A `watch` wakes its receivers in an order of its own, different each
/// time, and a simulated run could not be repeated.
#[derive(Clone, Debug)]
pub struct Stop {
    order: watch::Receiver<bool>,
    given: Arc<Notify>,
}

impl Stop {
    /// Follows a channel that turns true. Must be called inside a tokio runtime.
    #[must_use]
    pub fn following(order: watch::Receiver<bool>) -> Self {
        let stop = Self { order: order.clone(), given: Arc::default() };
        let (mut order, given) = (order, stop.given.clone());
        tokio::spawn(async move {
            // An error means that the sender is gone, which is a shutdown too.
            let _ = order.wait_for(|stop| *stop).await;
            given.notify_waiters();
        });
        stop
    }

    /// True once it was given.
    #[must_use]
    pub fn is_told(&self) -> bool {
        *self.order.borrow() || self.order.has_changed().is_err()
    }

    /// Waits until it is given.
    pub async fn told(&self) {
        let mut given = pin!(self.given.notified());
        // Before looking, so that what comes between looking and waiting wakes us.
        given.as_mut().enable();
        if !self.is_told() {
            given.await;
        }
    }
}
