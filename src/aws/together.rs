//! Requests side by side, within a bound.

use futures_util::{StreamExt, stream};

/// Requests under way at once.
const AT_ONCE: usize = 16;

/// Waits for all of these, 16 at once; the results are in the order of the requests.
pub async fn together<F: Future>(requests: Vec<F>) -> Vec<F::Output> {
    stream::iter(requests).buffered(AT_ONCE).collect().await
}
