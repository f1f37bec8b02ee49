//! What really happened, in order: every applied write, every socket, everything that was done to the cluster.
//!
//! - [`Book`]: the record, and what it says of rows, sessions, processes, sockets and messages right now
//! - [`observed`]: the engine that writes it
//! - [`image`]: items in DynamoDB's JSON

pub mod book;
pub mod image;
pub mod notes;
pub mod observed;

pub use book::{Book, Line, Violation};

use crate::time::WorldClock;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The book, shared by all who write it.
#[derive(Clone)]
pub struct Ledger {
    clock: WorldClock,
    book: Arc<Mutex<Book>>,
}

impl Ledger {
    /// An open book.
    #[must_use]
    pub fn new(clock: WorldClock, book: Book) -> Self {
        Self { clock, book: Arc::new(Mutex::new(book)) }
    }

    /// The book, whose clock is right.
    pub fn open(&self) -> MutexGuard<'_, Book> {
        let now_ms = self.clock.now_ms();
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        // Processes take turns within a step, so their times overlap a little; the record's order is what counts.
        book.now_ms = book.now_ms.max(now_ms);
        book
    }
}
