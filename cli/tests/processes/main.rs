//! Real worker processes under real faults: signals, a network that drops, delays or loses, an engine that is restarted, wall clocks that
//! are wrong, a rolling restart. What the feed logged is the truth; the verdict is that of the demonstration.
//!
//! Each scenario has a system and workers of its own. They wait far more than they work, so all of them run side by side, whatever the
//! number of cores: hence a harness that can be told so. (On a machine that is too busy workers cannot renew in time, and rightly drop their
//! sockets.) `cargo test -p leasehold-cli --test processes -- NAME` runs those whose name contains NAME.
//!
//! - [`world`]: a scenario's system, feed and workers; [`proxy`]: a worker's way to the engine
//! - [`signals`], [`network`], [`engine`], [`clocks`]: the scenarios

mod clocks;
mod engine;
mod network;
mod proxy;
mod signals;
mod world;

use anyhow::{Context, Result};
use libtest_mimic::{Arguments, Failed, Trial};
use std::future::Future;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};
use world::Stage;

/// More than there are scenarios.
const SIDE_BY_SIDE: usize = 32;
/// The start of a system and three processes is the only work that there is: they do not all start at once.
const APART: Duration = Duration::from_millis(1_500);
/// Scenarios that have started.
static STARTED: AtomicU32 = AtomicU32::new(0);
/// No scenario takes half of this.
const AT_MOST: Duration = Duration::from_secs(240);

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(SIDE_BY_SIDE);
    // Those that take longest come first.
    let scenarios = vec![
        scenario("sockets_survive_a_restart_of_the_engine_and_nobody_is_fenced", engine::restarted),
        scenario("a_worker_whose_answers_all_come_too_late_loses_and_doubles_nothing", network::late_answers),
        scenario("a_worker_whose_answers_are_all_lost_loses_and_doubles_nothing", network::lost_answers),
        scenario("a_worker_that_reaches_the_engine_no_more_drops_its_sockets_before_others_open", network::cut_off),
        scenario("a_worker_that_loses_every_second_answer_keeps_its_sockets", network::half_of_the_answers),
        scenario("a_worker_suspended_past_its_lease_stores_nothing_when_it_runs_again", signals::suspended),
        scenario("wall_clocks_that_are_an_hour_wrong_change_nothing", clocks::an_hour_wrong),
        scenario("what_a_killed_worker_held_is_taken_over_when_its_lease_has_ended", signals::killed),
        scenario("a_rolling_restart_while_messages_flow_loses_nothing", signals::rolling_restart),
        scenario(
            "what_a_killed_worker_held_is_taken_over_at_once_when_its_end_is_reported",
            signals::killed_and_reported,
        ),
    ];
    libtest_mimic::run(&arguments, scenarios).exit_code()
}

fn scenario<F>(name: &'static str, run: fn(Stage) -> F) -> Trial
where
    F: Future<Output = Result<()>> + 'static,
{
    Trial::test(name, move || play(name, run).map_err(|error| Failed::from(format!("{error:#}"))))
}

/// Plays one scenario on a runtime of its own. The workers' logs of one that failed are kept.
fn play<F: Future<Output = Result<()>>>(name: &'static str, run: fn(Stage) -> F) -> Result<()> {
    let directory = tempfile::Builder::new().prefix("leasehold-processes-").tempdir()?;
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let turn = STARTED.fetch_add(1, Ordering::Relaxed);
    let stage = Stage { name, directory: directory.path().to_owned() };
    let played = runtime.block_on(async {
        sleep(APART * turn).await;
        timeout(AT_MOST, run(stage)).await.context("it never ended")?
    });
    // Whatever still runs holds no other scenario up.
    runtime.shutdown_background();
    played.with_context(|| format!("{name}; its files are in {}", directory.keep().display()))
}
