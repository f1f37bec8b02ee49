//! AWS in one process: what tests, the demonstration and `leasehold local` run on.
//!
//! - [`clock`]: a virtual clock over tokio's paused time
//! - [`engine`]: a real DynamoDB engine behind the AWS SDK, and what it applied
//! - [`queue`]: SQS behind the AWS SDK
//! - [`faults`]: delay, throttling, lost requests and answers, stale indexes, the per-key write limit
//! - [`front`]: any of them over loopback HTTP, for other processes
//! - [`events`]: event sources as AWS has them: streams, queues, schedules, task state changes
//! - [`stack`]: the tables and queues of a deployment
//! - [`feed`]: an upstream with replay and a log of its own: the truth of a run
//! - [`system`]: all of it together, with worker processes
//! - [`trial`]: the main job on it under faults, with a verdict
pub mod clock;
pub mod engine;
pub mod events;
pub mod faults;
pub mod feed;
pub mod front;
pub mod queue;
pub mod stack;
pub mod system;
pub mod trial;
