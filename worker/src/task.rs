//! Which ECS task this is: asked of the task metadata endpoint, version 4 (ECS Developer Guide).

use crate::plain_http;
use std::time::Duration;
use url::Url;

/// The variable in which ECS tells every container where its metadata is.
pub const METADATA_URI: &str = "ECS_CONTAINER_METADATA_URI_V4";

const WITHIN: Duration = Duration::from_secs(2);

/// The ARN of the task whose metadata is at `uri`.
///
/// # Errors
/// A sentence. A worker goes on without: then a task event cannot hasten its successor, and expiry alone decides.
pub async fn arn(uri: &str) -> Result<String, String> {
    let url = Url::parse(uri).map_err(|error| format!("{METADATA_URI} is no URL: {error}"))?;
    let host = url.host_str().ok_or_else(|| format!("{METADATA_URI} has no host"))?;
    let authority = format!("{host}:{}", url.port_or_known_default().unwrap_or(80));
    let path = format!("{}/task", url.path().trim_end_matches('/'));
    let (status, body) = plain_http::get(&authority, &path, WITHIN)
        .await
        .map_err(|error| format!("the task metadata cannot be read: {error}"))?;
    let document: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
    match document["TaskARN"].as_str() {
        Some(arn) if status == 200 => Ok(arn.to_owned()),
        _ => Err(format!("the task metadata answers {status} and names no TaskARN")),
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use axum::{Json, Router};
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn the_task_is_read_from_the_metadata_endpoint() {
        // The form of the answer is the ECS Developer Guide's, "Example task metadata".
        let arn = "arn:aws:ecs:us-west-2:111122223333:task/default/158d1c8083dd49d6b527399fd6414f5c";
        let answer = serde_json::json!({ "Cluster": "default", "TaskARN": arn, "Family": "worker", "Revision": "26" });
        let router = Router::new().route("/v4/abc/task", get(move || async move { Json(answer) }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}/v4/abc", listener.local_addr().unwrap());
        tokio::spawn(async { axum::serve(listener, router).await });
        assert_eq!(super::arn(&uri).await.as_deref(), Ok(arn));
        let error = super::arn(&format!("{uri}/x")).await.unwrap_err();
        assert!(error.contains("404"), "{error}");
    }
}
