//! An embedded service over loopback HTTP, for other processes: any AWS SDK or the AWS CLI with, for instance,
//! `AWS_ENDPOINT_URL_DYNAMODB=http://127.0.0.1:4100`.

use aws_smithy_runtime_api::client::http::{HttpConnector, SharedHttpConnector};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_types::body::SdkBody;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_LENGTH;
use axum::response::Response;
use axum::routing::post;
use axum::serve::{IncomingStream, Listener};
use std::future::Future;
use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// DynamoDB takes 16 MB in one request at most (`BatchWriteItem`), and SQS 1 MiB.
const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;

/// How long requests may go on after the shutdown has begun: a long poll must not hold it up.
const GRACE: Duration = Duration::from_secs(1);

/// Serves `connector` on `listener` until `shutdown` completes, and then for a second at most.
///
/// Headers go through unchanged, `Date` above all: it is the connector's clock, and hyper adds its own only where there is none. An error
/// of the connector (a request or an answer lost) breaks the caller's connection without an answer.
///
/// Requests are carried out on the runtime's threads: an embedded engine needs a fraction of a millisecond. Use a
/// runtime with several threads, and real time.
///
/// # Errors
///
/// An I/O error if the listener fails for good.
pub async fn serve(
    listener: TcpListener,
    connector: impl HttpConnector + 'static,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let app = Router::new().fallback(post(forward)).with_state(SharedHttpConnector::new(connector));
    let app = app.into_make_service_with_connect_info::<BreakSwitch>();
    let (begun, has_begun) = oneshot::channel();
    let shutdown = async move {
        shutdown.await;
        // Nobody listens any more if the server has ended by itself.
        let _ = begun.send(());
    };
    let server = axum::serve(BreakableListener(listener), app).with_graceful_shutdown(shutdown);
    let grace_is_over = async {
        if has_begun.await.is_err() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        ended = async { server.await } => ended,
        () = grace_is_over => Ok(()),
    }
}

async fn forward(
    State(connector): State<SharedHttpConnector>,
    ConnectInfo(connection): ConnectInfo<BreakSwitch>,
    request: Request,
) -> Response {
    let request = match read(request).await {
        Ok(request) => request,
        Err(refusal) => return refusal,
    };
    let answered = match connector.call(request).await {
        Ok(response) => write(response).await,
        Err(error) => Err(error.into()),
    };
    answered.unwrap_or_else(|error| {
        tracing::debug!(%error, "breaking a connection");
        connection.break_it();
        status(StatusCode::BAD_GATEWAY)
    })
}

async fn read(request: Request) -> Result<HttpRequest, Response> {
    let (parts, body) = request.into_parts();
    // What announces itself as too long is not waited for.
    let announced = parts.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if announced.is_some_and(|bytes: usize| bytes > MAX_BODY_BYTES) {
        return Err(status(StatusCode::PAYLOAD_TOO_LARGE));
    }
    let body = to_bytes(body, MAX_BODY_BYTES).await.map_err(|_| status(StatusCode::PAYLOAD_TOO_LARGE))?;
    let request = axum::http::Request::from_parts(parts, SdkBody::from(body));
    HttpRequest::try_from(request).map_err(|_| status(StatusCode::BAD_REQUEST))
}

async fn write(mut response: HttpResponse) -> Result<Response, Box<dyn std::error::Error + Send + Sync>> {
    let bytes = crate::engine::wire::read(&mut response).await?;
    let (parts, _) = response.try_into_http1x()?.into_parts();
    Ok(Response::from_parts(parts, Body::from(bytes)))
}

fn status(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// Breaks one connection: whatever is written to it afterwards fails, so that hyper drops it.
#[derive(Clone, Debug, Default)]
struct BreakSwitch(Arc<AtomicBool>);

impl BreakSwitch {
    fn break_it(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn check(&self) -> io::Result<()> {
        if self.0.load(Ordering::Acquire) {
            return Err(io::Error::new(ErrorKind::ConnectionReset, "broken on purpose"));
        }
        Ok(())
    }
}

impl Connected<IncomingStream<'_, BreakableListener>> for BreakSwitch {
    fn connect_info(stream: IncomingStream<'_, BreakableListener>) -> Self {
        stream.io().switch.clone()
    }
}

struct BreakableListener(TcpListener);

impl Listener for BreakableListener {
    type Io = BreakableStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let (stream, address) = Listener::accept(&mut self.0).await;
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot send small answers at once");
        }
        (BreakableStream { stream, switch: BreakSwitch::default() }, address)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.0.local_addr()
    }
}

struct BreakableStream {
    stream: TcpStream,
    switch: BreakSwitch,
}

impl AsyncRead for BreakableStream {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for BreakableStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        self.switch.check()?;
        Pin::new(&mut self.stream).poll_write(context, from)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.switch.check()?;
        Pin::new(&mut self.stream).poll_write_vectored(context, from)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
