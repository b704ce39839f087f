//! Waiting for long work of the server, with a bar on a terminal.
//!
//! Some work is done when its call is answered; other work goes on in the server whether or not anybody waits.

use indicatif::{ProgressBar, ProgressStyle};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use stonefold_api::{Client, Pool};
use stonefold_types::{Error, Kind, Result};

/// How often the server is asked how far it is.
const LOOK_EVERY: Duration = Duration::from_millis(400);

/// Asks for work, and shows how far it is until the answer is there.
pub(crate) fn wait_for<T: Send + 'static>(
    client: &Client,
    what: &'static str,
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
    let bar = bar(what)?;
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
        if let Some(work) = work.into_iter().find(|work| work.what == what) {
            bar.set_length(work.total_bytes);
            bar.set_position(work.done_bytes);
        }
        bar.tick();
    };
    bar.finish_and_clear();
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
    let bar = bar(what)?;
    let mut told = None;
    loop {
        let pool = client.pool()?;
        if !at_work(&pool) {
            bar.finish_and_clear();
            return Ok(pool);
        }
        if let Some(work) = pool.work.iter().find(|work| work.what == what) {
            bar.set_length(work.total_bytes);
            bar.set_position(work.done_bytes);
        }
        let waits = why(&pool);
        if waits != told {
            waits.iter().for_each(|waits| bar.suspend(|| eprintln!("{what}: waiting: {waits}")));
            told = waits;
        }
        bar.tick();
        std::thread::sleep(LOOK_EVERY);
    }
}

fn bar(what: &'static str) -> Result<ProgressBar> {
    let style = "{spinner} {msg} [{wide_bar}] {binary_bytes}/{binary_total_bytes}, {eta} left";
    let style = ProgressStyle::with_template(style).map_err(|e| Error::new(Kind::Invalid, e.to_string()))?;
    Ok(ProgressBar::new(0).with_style(style.progress_chars("=> ")).with_message(what))
}
