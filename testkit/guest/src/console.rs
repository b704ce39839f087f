//! A guest's serial console: everything it says is kept in a log file and, as plain text, in memory to be waited for.
//!
//! One thread reads; whoever waits is woken. A reading place moves forward with each match, so that two waits for the
//! same words see two different occurrences, in order.

use std::{
    fs::File,
    io::{Read, Write},
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};

use crate::{
    cancel::{self, LOOK_EVERY},
    terminal::Plain,
    time::Deadline,
};

/// What is kept in memory. A boot prints some 50 KiB; a guest that prints for ever must not take our memory with it.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// How much of the console an error message shows.
pub(crate) const TAIL_LINES: usize = 12;

pub(crate) struct Console {
    shared: Arc<Shared>,
    input: Box<dyn Write + Send>,
    log: PathBuf,
}

#[derive(Default)]
struct Shared {
    heard: Mutex<Heard>,
    changed: Condvar,
}

#[derive(Default)]
struct Heard {
    text: String,
    /// Where in `text` the next wait begins to look.
    place: usize,
    closed: bool,
}

impl Console {
    /// Begins to listen. The log gets the bytes as they come, escape sequences and all.
    pub(crate) fn open(
        output: impl Read + Send + 'static,
        input: impl Write + Send + 'static,
        log: &Path,
    ) -> Result<Self> {
        let file = File::create(log)
            .with_context(|| format!("could not create the console log {}", log.display()))?;
        let shared = Arc::new(Shared::default());
        let listener = Arc::clone(&shared);
        thread::Builder::new()
            .name("guest-console".into())
            .spawn(move || listen(output, file, &listener))
            .context("could not start the console's thread")?;
        Ok(Self { shared, input: Box::new(input), log: log.to_owned() })
    }

    /// Types a line.
    pub(crate) fn type_line(&mut self, line: &str) -> Result<()> {
        self.input
            .write_all(format!("{line}\n").as_bytes())
            .and_then(|()| self.input.flush())
            .context("could not type on the guest's console: QEMU has gone")
    }

    /// Waits until one of these texts appears; tells which, and what came before it.
    pub(crate) fn wait_for_any(&self, texts: &[&str], allowed: Duration) -> Result<(usize, String)> {
        let deadline = Deadline::after(allowed);
        let mut heard = self.shared.lock();
        loop {
            if let Some((which, before)) = heard.take_up_to_any(texts) {
                return Ok((which, before));
            }
            let wanted = texts.iter().map(|text| format!("{text:?}")).collect::<Vec<_>>().join(" or ");
            if heard.closed {
                bail!("the guest ended before its console said {wanted}\n{}", self.described(&heard));
            }
            if deadline.passed() {
                let seconds = deadline.allowed().as_secs_f32();
                bail!(
                    "the guest's console did not say {wanted} within {seconds} s\n{}",
                    self.described(&heard)
                );
            }
            cancel::check()?;
            heard = self
                .shared
                .changed
                .wait_timeout(heard, deadline.remaining().min(LOOK_EVERY))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// The last lines, for an error message.
    pub(crate) fn tail(&self) -> String {
        self.described(&self.shared.lock())
    }

    fn described(&self, heard: &Heard) -> String {
        let lines = last_lines(&heard.text, TAIL_LINES);
        let said = if lines.is_empty() { "    (nothing)\n".to_owned() } else { lines };
        format!("its last lines were:\n{said}whole console: {}", self.log.display())
    }
}

impl Shared {
    /// A panic in the listener leaves text that is still true.
    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Heard {
    fn hear(&mut self, text: &str) {
        self.text.push_str(text);
        if self.text.len() > TEXT_BYTES_MAX {
            let mut cut = self.text.len() - TEXT_BYTES_MAX / 2;
            while !self.text.is_char_boundary(cut) {
                cut += 1;
            }
            self.text.drain(..cut);
            self.place = self.place.saturating_sub(cut);
        }
    }

    /// The earliest of these texts after the reading place; moves the place behind it.
    fn take_up_to_any(&mut self, texts: &[&str]) -> Option<(usize, String)> {
        let rest = &self.text[self.place..];
        let (at, which) =
            texts.iter().enumerate().filter_map(|(which, text)| Some((rest.find(text)?, which))).min()?;
        let before = rest[..at].to_owned();
        self.place += at + texts[which].len();
        Some((which, before))
    }
}

fn listen(mut output: impl Read, mut log: File, shared: &Shared) {
    let mut plain = Plain::default();
    let mut buffer = [0; 4096];
    // An error ends the console as its end does: QEMU has gone, and waiters are told so.
    while let Ok(count @ 1..) = output.read(&mut buffer) {
        // A full disk must not deafen us: the log is a convenience, the text in memory is not.
        let _ = log.write_all(&buffer[..count]);
        let text = plain.text_of(&buffer[..count]);
        shared.lock().hear(&text);
        shared.changed.notify_all();
    }
    shared.lock().closed = true;
    shared.changed.notify_all();
}

/// The last lines that are not blank, indented.
fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(count)..].iter().map(|line| format!("    {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    const SOON: Duration = Duration::from_secs(5);

    fn console() -> (Console, UnixStream, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let console =
            Console::open(ours.try_clone().unwrap(), ours, &folder.path().join("console.log")).unwrap();
        (console, theirs, folder)
    }

    #[test]
    fn a_wait_sees_words_that_arrive_in_pieces_and_each_occurrence_once() {
        let (console, mut guest, _folder) = console();
        guest.write_all(b"debian log").unwrap();
        guest.write_all(b"in: root\r\ndebian login: ").unwrap();
        assert_eq!(console.wait_for_any(&["login:"], SOON).unwrap(), (0, "debian ".to_owned()));
        assert_eq!(
            console.wait_for_any(&["panic", "login:"], SOON).unwrap(),
            (1, " root\ndebian ".to_owned())
        );
        assert!(console.wait_for_any(&["login:"], Duration::from_millis(50)).is_err());
    }

    #[test]
    fn the_earliest_of_several_texts_wins() {
        let (console, mut guest, _folder) = console();
        guest.write_all(b"one two").unwrap();
        assert_eq!(console.wait_for_any(&["two", "one"], SOON).unwrap().0, 1);
    }

    #[test]
    fn a_wait_in_vain_says_what_it_waited_for_and_what_was_said_last() {
        let (console, mut guest, _folder) = console();
        guest.write_all(b"Kernel panic - not syncing\n").unwrap();
        console.wait_for_any(&["syncing"], SOON).unwrap();
        let error = console.wait_for_any(&["login:"], Duration::from_millis(50)).unwrap_err().to_string();
        assert!(
            error.contains("\"login:\"")
                && error.contains("    Kernel panic - not syncing\n")
                && error.contains("console.log"),
            "{error}"
        );
    }

    #[test]
    fn the_end_of_the_guest_ends_the_wait_at_once() {
        let (console, guest, _folder) = console();
        drop(guest);
        let error = console.wait_for_any(&["login:"], Duration::from_secs(60)).unwrap_err().to_string();
        assert!(error.contains("ended before") && error.contains("(nothing)"), "{error}");
    }

    #[test]
    fn what_is_typed_reaches_the_guest_as_a_line() {
        let (mut console, mut guest, _folder) = console();
        console.type_line("uname -r").unwrap();
        let mut line = [0; 9];
        guest.read_exact(&mut line).unwrap();
        assert_eq!(&line, b"uname -r\n");
    }

    #[test]
    fn memory_stays_bounded_and_the_place_stays_right() {
        let mut heard = Heard::default();
        for _ in 0..3 {
            heard.hear(&"…".repeat(TEXT_BYTES_MAX / 4));
        }
        heard.hear("login:");
        assert!(heard.text.len() <= TEXT_BYTES_MAX);
        assert!(heard.take_up_to_any(&["login:"]).is_some());
        assert_eq!(heard.place, heard.text.len());
    }
}
