//! What is shown while the demonstration runs: a live line on a terminal, plain lines elsewhere. All of it on standard error.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The display.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    live: bool,
    /// When the last plain line was written, in seconds since the start.
    last_line_s: AtomicU64,
}

/// A plain line about the state at most this often.
const LINE_EVERY_S: u64 = 5;

impl Progress {
    /// A display for so many connections.
    #[must_use]
    pub fn new(connections: u64) -> Self {
        let live = std::io::stderr().is_terminal();
        let bar = if live {
            ProgressBar::with_draw_target(Some(connections), ProgressDrawTarget::stderr())
        } else {
            ProgressBar::hidden()
        };
        let template = "{spinner} {elapsed_precise} [{bar:30}] {pos}/{len} sockets open  {msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        if live {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Self { bar, live, last_line_s: AtomicU64::new(0) }
    }

    fn line(&self, text: &str) {
        let elapsed = self.bar.elapsed().as_secs();
        let line = format!("{:02}:{:02}  {text}", elapsed / 60, elapsed % 60);
        if self.live {
            self.bar.println(line);
        } else {
            eprintln!("{line}");
        }
    }

    /// A step begins.
    pub fn step(&self, text: &str) {
        self.line(text);
        self.bar.set_message(text.to_owned());
    }

    /// The state: `open` sockets, `stored` messages.
    pub fn state(&self, open: usize, stored: usize) {
        self.bar.set_position(open as u64);
        let now_s = self.bar.elapsed().as_secs();
        if !self.live && now_s >= self.last_line_s.load(Ordering::Relaxed) + LINE_EVERY_S {
            self.last_line_s.store(now_s, Ordering::Relaxed);
            self.line(&format!("  {open} sockets open, {stored} messages stored"));
        }
    }

    /// The end.
    pub fn finish(&self, text: &str) {
        self.line(text);
        self.bar.finish_and_clear();
    }
}
