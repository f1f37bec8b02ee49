//! What AWS does to its callers: delay, throttling, lost requests and answers, stale indexes, the write limit of a key.
//!
//! Each is a connector around another connector, embedded or real (see [`crate::engine`] for the usual order):
//!
//! - [`Faulty`]: a plan decides for each request what goes wrong with it
//! - [`StaleIndexes`]: eventually consistent reads are answered as of some time ago
//! - [`SmallPages`]: pages of queries and scans end early
//! - [`WriteLimit`]: 1,000 write units a second for one partition key value of a table or an index

mod bucket;
mod cost;
mod faulty;
mod rehearsal;
mod schema;
mod small_pages;
mod stale;
mod write_limit;
mod writes;

pub use faulty::{Call, Fault, Faulty, Plan};
pub use small_pages::SmallPages;
pub use stale::StaleIndexes;
pub use write_limit::WriteLimit;
