//! Copying with qemu-img convert, with a bar.

use super::source::file_argument;
use super::{Door, Qemu, Source, last_words};
use crate::interrupt::Interrupt;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use stonefold_types::{Error, Kind, Result};

/// Requests in flight: enough to keep a door and an engine busy, few enough to stay in order on a disk.
const PARALLEL: &str = "16";

/// How a copy is shown and stopped.
pub(crate) struct Copy<'a> {
    /// What is being done, for the bar.
    pub(crate) message: String,
    /// How much there is to copy, as far as is known.
    pub(crate) data_bytes: u64,
    /// What stops it.
    pub(crate) interrupt: &'a Interrupt,
}

impl Qemu {
    /// Copies an image into a new, empty export; returns the seconds it took. What is a hole stays one.
    pub(crate) fn fill(&self, from: &Source, format: &str, to: &Door, copy: &Copy<'_>) -> Result<f64> {
        let mut command = Command::new("qemu-img");
        // The target is new, so zeros need no writing. Without -t qemu-img would leave out the flush at the end.
        command.args(["convert", "-p", "-n", "--target-is-zero", "-W", "-m", PARALLEL, "-t", "writeback"]);
        let to = to.written_by(&mut command, from.has_credentials());
        from.read_by(&mut command, Some(format));
        command.arg(to);
        copy.run(command)
    }

    /// Copies an export into a file; returns the seconds it took.
    pub(crate) fn save(&self, from: &Door, format: &str, to: &Path, copy: &Copy<'_>) -> Result<f64> {
        let mut command = Command::new("qemu-img");
        command.args(["convert", "-p", "-m", PARALLEL]);
        if format == "raw" {
            // In other formats, clusters written out of order stay out of order.
            command.arg("-W");
        }
        command.args(["-O", format]);
        from.read_by(&mut command, Some("raw"));
        command.arg(file_argument(to));
        copy.run(command)
    }
}

impl Copy<'_> {
    fn run(&self, mut command: Command) -> Result<f64> {
        self.interrupt.check()?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| Error::io("running qemu-img convert", e))?;
        let watched = self.interrupt.watch(child.id());
        let bar = self.bar()?;
        let complaint = self.follow(&mut child, &bar);
        let status = child.wait().map_err(|e| Error::io("waiting for qemu-img", e))?;
        drop(watched);
        bar.finish_and_clear();
        self.interrupt.check()?;
        if !status.success() {
            return Err(Error::new(Kind::Io, format!("qemu-img failed: {}", last_words(&complaint)))
                .remedy("see the server's log for its side, then try again"));
        }
        Ok(bar.elapsed().as_secs_f64())
    }

    /// Moves the bar until qemu-img falls silent; returns what it complained of.
    fn follow(&self, child: &mut Child, bar: &ProgressBar) -> Vec<u8> {
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        std::thread::scope(|scope| {
            // Read beside, so that a long complaint cannot fill its pipe and stop the copy.
            let complaint = scope.spawn(|| {
                let mut text = Vec::new();
                // What was read until the pipe broke is what there is.
                let _ = stderr.map(|mut pipe| pipe.read_to_end(&mut text));
                text
            });
            for percent in stdout.into_iter().flat_map(percents) {
                bar.set_position((percent / 100.0 * self.data_bytes as f64) as u64);
            }
            complaint.join().unwrap_or_default()
        })
    }

    /// A bar on stderr; on anything but a terminal it is silent.
    fn bar(&self) -> Result<ProgressBar> {
        let template = "{msg} [{bar:30}] {percent}%  {binary_bytes_per_sec}, {eta} left";
        let style =
            ProgressStyle::with_template(template).map_err(|e| Error::new(Kind::Invalid, e.to_string()))?;
        let bar = ProgressBar::new(self.data_bytes).with_style(style.progress_chars("=> "));
        bar.set_message(self.message.clone());
        bar.enable_steady_tick(std::time::Duration::from_millis(200));
        Ok(bar)
    }
}

/// The percentages in `    (12.34/100%)\r    (12.35/100%)\r…`.
fn percents(pipe: impl Read) -> impl Iterator<Item = f64> {
    BufReader::new(pipe).split(b'\r').map_while(std::io::Result::ok).filter_map(|piece| {
        let text = String::from_utf8_lossy(&piece).into_owned();
        text.split_once('(')?.1.split_once('/')?.0.trim().parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qemus_progress_is_read() {
        let text = b"    (0.00/100%)\r    (12.34/100%)\r    (100.00/100%)\r    (100.00/100%)\n";
        assert_eq!(percents(&text[..]).collect::<Vec<_>>(), [0.0, 12.34, 100.0, 100.0]);
    }
}
