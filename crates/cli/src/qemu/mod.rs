//! qemu-img: how images of other formats come in and go out.
//!
//! *Promises*: every failure is told in the user's words, with qemu-img's own beside; a file's name is never taken
//! for one of QEMU's protocols. *Never*: leaves a qemu-img running.

mod copy;
mod door;
mod format;
mod image;
mod served;
mod source;

pub(crate) use copy::{Copy, Hole, Saved};
pub(crate) use door::Door;
pub(crate) use format::Format;
pub(crate) use image::Image;
pub(crate) use served::Served;
pub(crate) use source::{Source, reachable};

use std::process::Command;
use stonefold_types::{Error, Kind, Result};

/// A qemu-img that is installed.
pub(crate) struct Qemu(());

impl Qemu {
    /// Finds it, or says how to get it.
    pub(crate) fn find() -> Result<Self> {
        match Command::new("qemu-img").arg("--version").output() {
            Ok(output) if output.status.success() => Ok(Qemu(())),
            Ok(output) => {
                Err(Error::new(Kind::Io, format!("qemu-img does not run: {}", last_words(&output.stderr)))
                    .remedy("install it again"))
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Err(Error::new(
                Kind::NotFound,
                "qemu-img, which reads and writes image files, is not installed",
            )
            .remedy(
                "install it: apt install qemu-utils (Debian, Ubuntu) or dnf install qemu-img (Fedora, RHEL)",
            )),
            Err(e) => Err(Error::io("qemu-img does not run", e).remedy("install it again")),
        }
    }
}

/// What a program complained of last, without its own name in front.
fn last_words(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it did not say why");
    line.trim().trim_start_matches("qemu-img: ").trim_start_matches("ERROR: ").to_owned()
}
