//! What goes on while a run is under way: a line that is drawn anew on a terminal, a line for each phase elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;
use stonefold_env::Env;
use stonefold_lab::load::Control;
use stonefold_lab::measure::{Doing, Reins};
use stonefold_lab::stats::require::time;
use stonefold_types::{Error, Result};

const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Runs `work` on a thread of its own, and shows what it does until it is done.
pub(super) fn show<T: Send>(env: &Env, reins: &Reins, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("measure".into()).spawn_scoped(scope, work);
        let thread = thread.map_err(|e| Error::io("starting the thread that measures", e))?;
        let mut picture = Picture::new();
        while !thread.is_finished() {
            let (doing, control) = reins.doing();
            picture.draw(&doing, &control, env.monotonic());
            std::thread::sleep(LOOK_EVERY);
        }
        picture.bar.finish_and_clear();
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

struct Picture {
    bar: ProgressBar,
    terminal: bool,
    told: String,
}

impl Picture {
    fn new() -> Self {
        let bar = ProgressBar::new(1000);
        bar.set_style(
            ProgressStyle::with_template("{spinner} {msg} [{wide_bar}] {prefix}")
                .expect("a template that is right"),
        );
        // Neither is a terminal that cannot move its cursor, or does not say so.
        let terminal = !bar.is_hidden();
        Picture { bar, terminal, told: String::new() }
    }

    fn draw(&mut self, doing: &Doing, control: &Control, now: Duration) {
        if doing.what.is_empty() {
            return;
        }
        if !self.terminal {
            if doing.what != self.told {
                let length =
                    doing.length.map(|length| format!(", {} s", length.as_secs())).unwrap_or_default();
                eprintln!("{}{length}", doing.what);
                self.told.clone_from(&doing.what);
            }
            return;
        }
        let live = control.live();
        let since = now.saturating_sub(doing.since).as_secs_f64();
        let done = match (doing.length, doing.bytes) {
            (Some(length), _) => since / length.as_secs_f64().max(0.001),
            (None, Some(bytes)) => live.bytes as f64 / bytes.max(1) as f64,
            (None, None) => 0.0,
        };
        let left = match doing.length {
            Some(length) => format!("{:.0} s left", (length.as_secs_f64() - since).max(0.0)),
            None if done > 0.01 => format!("{:.0} s left", (since / done - since).max(0.0)),
            None => String::new(),
        };
        self.bar.set_position((done.min(1.0) * 1000.0) as u64);
        self.bar.set_message(doing.what.clone());
        let p99 = live.last.response.quantile(0.99);
        let rate = rate(live.last.ios(), p99, doing.transactions);
        let words: Vec<String> = [rate, left].into_iter().filter(|word| !word.is_empty()).collect();
        self.bar.set_prefix(words.join(", "));
        self.bar.tick();
    }
}

/// Of the last second; nothing where nothing was answered, as before the first second is over, or while a database is loaded.
fn rate(ios: u64, p99_nanos: u64, transactions: bool) -> String {
    let unit = if transactions { "transactions a second" } else { "IOPS" };
    match ios {
        0 => String::new(),
        _ => format!("{ios} {unit}, p99 {}", time(p99_nanos as f64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_told_in_its_own_unit_and_nothing_where_nothing_is_measured() {
        assert_eq!(rate(120, 2_000_000, false), "120 IOPS, p99 2.00 ms");
        assert_eq!(rate(120, 2_000_000, true), "120 transactions a second, p99 2.00 ms");
        assert_eq!(rate(0, 0, true), "");
    }
}
