//! Waiting for long work of the server: on a terminal with a bar, or with the time it has taken where nobody knows how much there is.
//!
//! Some work is done when its call is answered; other work goes on in the server whether or not anybody waits.

use indicatif::{ProgressBar, ProgressStyle};
use std::cell::Cell;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use stonefold_api::{Client, Pool, Work};
use stonefold_types::{Error, Kind, Result};

/// How often the server is asked how far it is.
const LOOK_EVERY: Duration = Duration::from_millis(400);

/// How it looks while it is known how much there is to do, and while it is not.
const OF_SO_MANY: &str = "{spinner} {msg} [{wide_bar}] {binary_bytes}/{binary_total_bytes}, {eta} left";
const SO_LONG: &str = "{spinner} {msg}, {elapsed}";

/// Asks for work, and shows how far it is until the answer is there. Of work that the server does not tell of by this name, it shows
/// how long it takes; nothing, if it takes no time.
pub(crate) fn wait_for<T: Send + 'static>(
    client: &Client,
    what: &'static str,
    ask: impl FnOnce(&Client) -> Result<T> + Send + 'static,
) -> Result<T> {
    wait_for_parts(client, what, std::slice::from_ref(&what), ask)
}

/// The same of work that the server tells of in parts, each by its name.
pub(crate) fn wait_for_parts<T: Send + 'static>(
    client: &Client,
    what: &'static str,
    parts: &[&'static str],
    ask: impl FnOnce(&Client) -> Result<T> + Send + 'static,
) -> Result<T> {
    let (tell, told) = channel();
    let of_thread = client.clone();
    let work = move || {
        // Nobody is waiting any more only when the process ends.
        let _ = tell.send(ask(&of_thread));
    };
    let thread = std::thread::Builder::new().name(what.to_owned());
    thread.spawn(work).map_err(|e| Error::io(format!("starting the thread for {what}"), e))?;
    let bar = Bar::new(what, parts)?;
    let answer = loop {
        match told.recv_timeout(LOOK_EVERY) {
            Ok(answer) => break answer,
            Err(RecvTimeoutError::Disconnected) => {
                break Err(Error::new(Kind::Io, format!("{what} ended without an answer")));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        // Only for the bar: the answer itself is on its way.
        let work = client.pool().map(|pool| pool.work).unwrap_or_default();
        bar.show(&work)?;
    };
    bar.bar.finish_and_clear();
    answer
}

/// Waits while the pool is at work that its state tells of, and shows how far it is; tells why it waits, when that changes.
/// Returns the pool's state at the end.
pub(crate) fn wait_while(
    client: &Client,
    what: &'static str,
    at_work: impl Fn(&Pool) -> bool,
    why: impl Fn(&Pool) -> Option<String>,
) -> Result<Pool> {
    let bar = Bar::new(what, std::slice::from_ref(&what))?;
    let mut told = None;
    loop {
        let pool = client.pool()?;
        if !at_work(&pool) {
            bar.bar.finish_and_clear();
            return Ok(pool);
        }
        bar.show(&pool.work)?;
        let waits = why(&pool);
        if waits != told {
            waits.iter().for_each(|waits| bar.bar.suspend(|| eprintln!("{what}: waiting: {waits}")));
            told = waits;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// A line at the bottom of the terminal.
struct Bar<'a> {
    bar: ProgressBar,
    parts: &'a [&'static str],
    knows_how_much: Cell<bool>,
}

impl<'a> Bar<'a> {
    fn new(what: &'static str, parts: &'a [&'static str]) -> Result<Self> {
        let bar = ProgressBar::new(0).with_style(style(SO_LONG)?).with_message(what);
        Ok(Bar { bar, parts, knows_how_much: Cell::new(false) })
    }

    /// Looks for it in what the server is at.
    fn show(&self, work: &[Work]) -> Result<()> {
        let is_own = |work: &&Work| self.parts.contains(&work.what.as_str()) && work.total_bytes > 0;
        let own = work.iter().find(is_own);
        if self.knows_how_much.replace(own.is_some()) != own.is_some() {
            self.bar.set_style(style(if own.is_some() { OF_SO_MANY } else { SO_LONG })?);
        }
        if let Some(own) = own {
            self.bar.set_length(own.total_bytes);
            self.bar.set_position(own.done_bytes);
        }
        self.bar.tick();
        Ok(())
    }
}

fn style(template: &str) -> Result<ProgressStyle> {
    let style =
        ProgressStyle::with_template(template).map_err(|e| Error::new(Kind::Invalid, e.to_string()))?;
    Ok(style.progress_chars("=> "))
}
