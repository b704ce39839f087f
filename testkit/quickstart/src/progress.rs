//! What is said while things happen: scenes, and steps that tell what is being waited for and how long it took.
//!
//! On a terminal a running step shows a spinner and its seconds; elsewhere it is announced, and says now and then that it
//! is still at it, so that a log explains a pause.

use std::{
    io::{IsTerminal, Write, stdout},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::Duration,
};

use anyhow::Result;
use stonefold_guest::time::Stopwatch;

const SPINNER: [&str; 8] = ["⠋", "⠙", "⠸", "⠴", "⠦", "⠇", "⠏", "⠹"];
const REDRAW_EVERY: Duration = Duration::from_millis(120);
const REMIND_EVERY: Duration = Duration::from_secs(20);
/// Where the durations are aligned; longer texts push theirs to the right.
const TEXT_COLUMNS: usize = 70;

/// A line for the user. A reader that has gone away is no reason to fail.
pub(crate) fn say(line: &str) {
    let mut out = stdout().lock();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

/// A duration as people read it.
pub(crate) fn shown(duration: Duration) -> String {
    let milliseconds = duration.as_secs_f64() * 1000.0;
    match milliseconds {
        ..10.0 => format!("{milliseconds:.1} ms"),
        ..1000.0 => format!("{milliseconds:.0} ms"),
        _ => format!("{:.1} s", milliseconds / 1000.0),
    }
}

pub(crate) struct Progress {
    on_terminal: bool,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self { on_terminal: stdout().is_terminal() }
    }

    pub(crate) fn scene(&self, title: &str) {
        if self.on_terminal { say(&format!("\n\x1b[1m{title}\x1b[0m")) } else { say(&format!("\n{title}")) }
    }

    /// Something worth knowing that took no time.
    pub(crate) fn note(&self, text: &str) {
        say(&format!("    {text}"));
    }

    /// Does something, telling that it is being done and how long it took.
    pub(crate) fn step<T>(&self, text: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.timed_step(text, work).map(|(value, _)| value)
    }

    /// The same, and gives back how long it took.
    pub(crate) fn timed_step<T>(
        &self,
        text: &str,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<(T, Duration)> {
        let (result, took) = self.attempt(text, work);
        Ok((result?, took))
    }

    /// The same for something that may well fail: its error is the caller's to judge.
    pub(crate) fn attempt<T>(&self, text: &str, work: impl FnOnce() -> Result<T>) -> (Result<T>, Duration) {
        let teller = Teller::start(self.on_terminal, text);
        let watch = Stopwatch::start();
        let result = work();
        let took = watch.elapsed();
        teller.stop();
        let sign = if result.is_ok() { '✓' } else { '✗' };
        say(&format!("  {sign} {text:TEXT_COLUMNS$} {:>8}", shown(took)));
        (result, took)
    }
}

/// The thread that keeps the user company during a step.
struct Teller {
    stop: Sender<()>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Teller {
    fn start(on_terminal: bool, text: &str) -> Self {
        let (stop, stopped) = channel();
        let text = text.to_owned();
        let tell = move || if on_terminal { spin(&text, &stopped) } else { remind(&text, &stopped) };
        // Without company the step is done all the same.
        let thread = thread::Builder::new().name("progress".into()).spawn(tell).ok();
        Self { stop, thread }
    }

    fn stop(self) {
        let _ = self.stop.send(());
        if let Some(thread) = self.thread {
            let _ = thread.join();
        }
    }
}

fn spin(text: &str, stopped: &Receiver<()>) {
    let watch = Stopwatch::start();
    for frame in SPINNER.iter().cycle() {
        draw(&format!("\r  {frame} {text} … {:.0} s\x1b[K", watch.elapsed().as_secs_f64()));
        if stopped.recv_timeout(REDRAW_EVERY) != Err(RecvTimeoutError::Timeout) {
            break;
        }
    }
    draw("\r\x1b[K");
}

fn draw(text: &str) {
    let mut out = stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn remind(text: &str, stopped: &Receiver<()>) {
    let watch = Stopwatch::start();
    while stopped.recv_timeout(REMIND_EVERY) == Err(RecvTimeoutError::Timeout) {
        say(&format!("  … {text} ({:.0} s so far)", watch.elapsed().as_secs_f64()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_shown_in_the_unit_that_fits() {
        assert_eq!(shown(Duration::from_micros(1234)), "1.2 ms");
        assert_eq!(shown(Duration::from_millis(123)), "123 ms");
        assert_eq!(shown(Duration::from_millis(61_250)), "61.2 s");
    }

    #[test]
    fn a_step_gives_back_its_result_or_its_error() {
        let progress = Progress { on_terminal: false };
        assert_eq!(progress.step("add", || Ok(1 + 1)).unwrap(), 2);
        assert!(progress.step("fail", || Err::<(), _>(anyhow::anyhow!("no"))).is_err());
    }
}
