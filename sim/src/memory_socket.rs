//! A socket in memory, for simulated upstreams and those of tests.

use futures_util::{Sink, Stream};
use leasehold::decide::outcome::End;
use leasehold_worker::connector::{Frame, Socket};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// The way in: what the worker will read.
pub type Sender = mpsc::UnboundedSender<Result<Frame, End>>;

/// The upstream's end of a socket.
pub trait Peer: Send + Unpin + 'static {
    /// The worker has sent a frame; what is answered at once, if anything.
    fn received(&mut self, frame: Frame) -> Option<Frame>;

    /// The worker has let go of the socket.
    fn gone(&mut self);
}

/// A socket that is open: what is sent into `incoming`, by way of `sender`, is read by the worker, and `peer` hears what the worker sends.
#[must_use]
pub fn socket<P: Peer>(peer: P, sender: Sender, incoming: mpsc::UnboundedReceiver<Result<Frame, End>>) -> Socket {
    Box::pin(MemorySocket { peer, sender, incoming })
}

struct MemorySocket<P: Peer> {
    peer: P,
    sender: Sender,
    incoming: mpsc::UnboundedReceiver<Result<Frame, End>>,
}

impl<P: Peer> Stream for MemorySocket<P> {
    type Item = Result<Frame, End>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.incoming.poll_recv(context)
    }
}

impl<P: Peer> Sink<Frame> for MemorySocket<P> {
    type Error = End;

    fn poll_ready(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), End>> {
        Poll::Ready(Ok(()))
    }

    fn start_send(mut self: Pin<&mut Self>, frame: Frame) -> Result<(), End> {
        if let Some(answer) = self.peer.received(frame) {
            // The reader is this socket itself.
            let _ = self.sender.send(Ok(answer));
        }
        Ok(())
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), End>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), End>> {
        Poll::Ready(Ok(()))
    }
}

impl<P: Peer> Drop for MemorySocket<P> {
    fn drop(&mut self) {
        self.peer.gone();
    }
}
