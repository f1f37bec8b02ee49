//! Event sources over the embedded engine and queue, in virtual time.

#[macro_use]
mod world;

mod function;
mod sqs;
mod stream;
