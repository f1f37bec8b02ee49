//! Worker processes whose wall clock is an hour ahead or behind.
//!
//! The clock is shifted for the whole process, below everything that reads it: the worker's own clock, the AWS SDK (which signs with the
//! time of day), TLS, the log. A library that is loaded before the C library answers `clock_gettime`, and adds an offset to the wall
//! clock alone; no line of the worker knows of it. An offset at the worker's `Clock` would shift only what goes through it, and prove the
//! seam; the kernel's time namespaces shift every clock but this one; Debian's `libfaketime` does the same as these thirty lines, but would
//! have to be installed. The C compiler is there where Rust is: it links.
//!
//! That the shift is real is seen in the table: each session reports how far its machine's clock is from DynamoDB's.

use crate::signals::{REPORTED_S, SIGTERM_S};
use crate::world::{SETTLE, Stage};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::process::Command;

const HOUR_S: i64 = 3_600;
/// Longer than a lease and the skew: whoever went by the wall clock would be fenced, or fence.
const LONG: Duration = Duration::from_secs(30);

/// One worker an hour ahead, one an hour behind, one right.
pub async fn an_hour_wrong(stage: Stage) -> Result<()> {
    let library = build(&stage.directory).await?;
    let mut world = stage.world().await?;
    for offset_s in [HOUR_S, -HOUR_S] {
        world.cast.start_worker_with(&environment(&library, offset_s))?;
    }
    world.cast.start_worker()?;
    world.open().await?;
    let (before, sockets) = (world.active_ids().await?, world.sockets_ever());
    world.cast.watch(LONG).await?;

    ensure!(world.active_ids().await? == before && before.len() == 3, "a session was fenced, or started over");
    ensure!(world.sockets_ever() == sockets, "a socket was given up");

    let mut skews_s = Vec::new();
    for session in world.cast.active_sessions().await? {
        skews_s.push(session.clock_skew_ms / 1_000);
    }
    skews_s.sort_unstable();
    world.say(&format!("reported skews in seconds: {skews_s:?}"));
    for (found_s, wanted_s) in skews_s.iter().zip([-HOUR_S, 0, HOUR_S]) {
        ensure!((found_s - wanted_s).abs() <= 3, "a skew of {wanted_s} s is reported as {found_s} s");
    }

    // Hand-overs go both ways: from the worker ahead to one that is behind as well, and to one that is right.
    world.cast.start_worker_with(&environment(&library, -HOUR_S))?;
    world.cast.watch(SETTLE).await?;
    let done = world.cast.terminate(1).await?;
    world.recovered("SIGTERM an hour ahead", done, SIGTERM_S).await?;
    let done = world.cast.kill(2, true).await?;
    world.recovered("SIGKILL an hour behind", done, REPORTED_S).await?;
    world.judge().await?;
    Ok(())
}

fn environment(library: &Path, offset_s: i64) -> [(String, String); 2] {
    let library = library.to_string_lossy().into_owned();
    [("LD_PRELOAD".into(), library), ("WALL_CLOCK_OFFSET_S".into(), offset_s.to_string())]
}

/// Compiles the library.
async fn build(directory: &Path) -> Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/processes/wall_clock.c");
    let library = directory.join("wall_clock.so");
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-O1", "-Wall", "-o"]).arg(&library).arg(source);
    let output = compile.output().await.context("the C compiler `cc`, which links Rust's programs, is not there")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(library)
}
