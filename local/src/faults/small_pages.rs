//! Pages that end early.

use crate::engine::wire;
use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture, SharedHttpConnector};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use serde_json::json;

/// Lets pages of queries and scans hold so many items at most. DynamoDB ends a page at 1 MB (AWS, "Paginating table query results"), which
/// takes thousands of small items: with this layer a few make several pages. A request that asks for fewer gets these.
#[derive(Clone, Debug)]
pub struct SmallPages {
    inner: SharedHttpConnector,
    most: u64,
}

impl SmallPages {
    /// A layer around `inner`, which must be DynamoDB. `most` is at least 1.
    pub fn new(inner: impl HttpConnector + 'static, most: u64) -> Self {
        Self { inner: SharedHttpConnector::new(inner), most: most.max(1) }
    }
}

impl HttpConnector for SmallPages {
    fn call(&self, mut request: HttpRequest) -> HttpConnectorFuture {
        if matches!(wire::operation_of(&request), "Query" | "Scan") {
            let mut body = wire::json_of(&request);
            if body.is_object() && body["Limit"].as_u64().is_none_or(|limit| limit > self.most) {
                body["Limit"] = json!(self.most);
                wire::set_json(&mut request, &body);
            }
        }
        self.inner.call(request)
    }
}
