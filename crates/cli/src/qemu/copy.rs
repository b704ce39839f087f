//! Copying with qemu-img convert, with a bar.

use super::source::file_argument;
use super::{Door, Format, Image, Qemu, Source, last_words};
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

/// A run of bytes that could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hole {
    /// Where it begins.
    pub(crate) start: u64,
    /// Where it ends: the first byte after it.
    pub(crate) end: u64,
}

/// How a copy to a file went.
pub(crate) struct Saved {
    /// How long it took.
    pub(crate) seconds: f64,
    /// What could not be read, in order; empty unless it was to be salvaged.
    pub(crate) holes: Vec<Hole>,
}

impl Qemu {
    /// Copies an image into a new, empty export; returns the seconds it took. What is a hole stays one.
    pub(crate) fn fill(&self, from: &Source, image: &Image, to: &Door, copy: &Copy<'_>) -> Result<f64> {
        let mut command = Command::new("qemu-img");
        // The target is new, so zeros need no writing. Without -t qemu-img would leave out the flush at the end.
        command.args(["convert", "-p", "-n", "--target-is-zero", "-W", "-m", PARALLEL, "-t", "writeback"]);
        let to = to.written_by(&mut command, from.has_credentials());
        from.read_by(&mut command, Some(&image.format));
        command.arg(to);
        copy.run(command).map(|(seconds, _)| seconds)
    }

    /// Copies an export into a file that nobody else has.
    pub(crate) fn save(
        &self,
        from: &Door,
        format: Format,
        to: &Path,
        salvage: bool,
        copy: &Copy<'_>,
    ) -> Result<Saved> {
        let mut command = Command::new("qemu-img");
        command.args(["convert", "-p", "-m", PARALLEL]).args(salvage.then_some("--salvage"));
        match format {
            // In other formats, clusters written out of order stay out of order.
            Format::Raw => drop(command.arg("-W")),
            // Else the size is rounded to what disks of the nineties could have.
            Format::Vhd => drop(command.args(["-o", "force_size=on"])),
            _ => {}
        }
        command.args(["-O", format.of_qemu()]);
        from.read_by(&mut command, Some("raw"));
        command.arg(file_argument(to));
        copy.run(command).map(Saved::of).map_err(unreadable)
    }

    /// Copies an export over a block device, zeros too: what the device held must not show through.
    pub(crate) fn save_to_device(
        &self,
        from: &Door,
        to: &Path,
        salvage: bool,
        copy: &Copy<'_>,
    ) -> Result<Saved> {
        let mut command = Command::new("qemu-img");
        command.args(["convert", "-p", "-n", "-W", "-m", PARALLEL, "-t", "writeback"]);
        command.args(salvage.then_some("--salvage")).args(["-O", "raw"]);
        from.read_by(&mut command, Some("raw"));
        command.arg(format!("host_device:{}", to.display()));
        copy.run(command).map(Saved::of).map_err(unreadable)
    }
}

impl Saved {
    fn of((seconds, warnings): (f64, Vec<u8>)) -> Saved {
        Saved { seconds, holes: holes(&String::from_utf8_lossy(&warnings)) }
    }
}

/// What qemu-img warns of while it salvages: `… error while reading offset 35651584: Input/output error`, one sector
/// each, in any order.
fn holes(warnings: &str) -> Vec<Hole> {
    let offset = |line: &str| {
        let rest = line.split_once("error while reading offset ")?.1;
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok()
    };
    let mut sectors: Vec<u64> = warnings.lines().filter_map(offset).collect();
    sectors.sort_unstable();
    let mut holes: Vec<Hole> = Vec::new();
    for start in sectors {
        let end = start + SECTOR_BYTES;
        match holes.last_mut().filter(|last| last.end >= start) {
            Some(last) => last.end = end,
            None => holes.push(Hole { start, end }),
        }
    }
    holes
}

/// In what steps qemu-img salvages.
const SECTOR_BYTES: u64 = 512;

impl Copy<'_> {
    /// Runs it to its end; returns the seconds it took and what it said on stderr.
    fn run(&self, mut command: Command) -> Result<(f64, Vec<u8>)> {
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
            return Err(failed(&last_words(&complaint)));
        }
        Ok((bar.elapsed().as_secs_f64(), complaint))
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
                bar.set_position((percent / 100.0 * self.data_bytes.max(1) as f64) as u64);
            }
            complaint.join().unwrap_or_default()
        })
    }

    /// A bar on stderr; on anything but a terminal it is silent.
    fn bar(&self) -> Result<ProgressBar> {
        let template = "{msg} [{bar:30}] {percent}%  {binary_bytes_per_sec}, {eta} left";
        let style =
            ProgressStyle::with_template(template).map_err(|e| Error::new(Kind::Invalid, e.to_string()))?;
        let bar = ProgressBar::new(self.data_bytes.max(1)).with_style(style.progress_chars("=> "));
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

/// What qemu-img's last words mean for whoever reads them.
fn failed(words: &str) -> Error {
    let remedy = match words.contains("No space left") {
        true => {
            "no space is left where it was written to: remove something there and, if that is a pool, run \
             'stonefold pool reclaim', or enlarge it; then try again"
        }
        false => "see the server's log for its side, then try again",
    };
    Error::new(Kind::Io, format!("qemu-img failed: {words}")).remedy(remedy)
}

/// Of an export that cannot be read in places, the rest can be had.
fn unreadable(error: Error) -> Error {
    if !error.what().contains("error while reading") {
        return error;
    }
    error.with_kind(Kind::Corrupt).remedy(
        "'stonefold pool check' says what is affected; 'stonefold disk export --salvage' saves the rest",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_read_is_told_in_runs() {
        let said = "qemu-img: warning: error while reading offset 1536: Input/output error\n\
                    qemu-img: warning: error while reading offset 1024: Input/output error\n\
                    qemu-img: warning: something else\n\
                    qemu-img: warning: error while reading offset 8192: Input/output error\n";
        let expected = [Hole { start: 1024, end: 2048 }, Hole { start: 8192, end: 8704 }];
        assert_eq!(holes(said), expected);
        assert_eq!(holes(""), []);
    }

    #[test]
    fn qemus_progress_is_read() {
        let text = b"    (0.00/100%)\r    (12.34/100%)\r    (100.00/100%)\r    (100.00/100%)\n";
        assert_eq!(percents(&text[..]).collect::<Vec<_>>(), [0.0, 12.34, 100.0, 100.0]);
    }
}
