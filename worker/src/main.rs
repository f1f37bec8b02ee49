//! The Fargate worker.

use std::process::ExitCode;

fn main() -> ExitCode {
    #[expect(clippy::disallowed_methods, reason = "settings are read here, once")]
    leasehold_worker::entry::main(&|name| std::env::var(name).ok())
}
