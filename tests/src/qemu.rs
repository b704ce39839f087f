//! QEMU's own NBD client, as a machine has it under its disk, without the machine: it reconnects when the server goes away
//! and comes back, and repeats what was not answered. What it holds is offered again, over NBD or as a file.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::gateway::Place;
use crate::tools::{Beside, attempt};

/// How long it waits for a server to come back, in seconds, before its own clients get an error: longer than any test keeps it
/// waiting.
const RECONNECT_SECONDS: u32 = 120;

/// What it offers on.
enum Offer<'a> {
    /// Over NBD, at this socket, under the same names.
    Nbd(&'a Path),
    /// As a file, which must be there already.
    Fuse(&'a Path),
}

/// A running `qemu-storage-daemon`.
pub struct Qemu {
    daemon: Beside,
    /// Its FUSE mount, which outlives it when it is killed.
    file: Option<PathBuf>,
}

impl Qemu {
    /// Opens exports of a place's server and offers them over NBD at `socket`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn over_nbd(place: &Place, exports: &[&str], socket: &Path) -> Result<Self> {
        let daemon = start(place, exports, &Offer::Nbd(socket), || UnixStream::connect(socket).is_ok())?;
        Ok(Qemu { daemon, file: None })
    }

    /// Opens an export of a place's server and offers it as `file`, over whatever is there.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn over_fuse(place: &Place, export: &str, file: &Path) -> Result<Self> {
        File::create(file).with_context(|| format!("making {}", file.display()))?;
        let mounted = || std::fs::metadata(file).is_ok_and(|meta| meta.len() > 0);
        let daemon = start(place, &[export], &Offer::Fuse(file), mounted)?;
        Ok(Qemu { daemon, file: Some(file.to_owned()) })
    }

    /// SIGKILL, as when the host's machine is killed.
    pub fn kill(self) {}
}

impl Drop for Qemu {
    fn drop(&mut self) {
        self.daemon.end();
        if let Some(file) = &self.file {
            let _ = attempt("fusermount3", &["-u", "-z", &file.to_string_lossy()]);
        }
    }
}

fn start(place: &Place, exports: &[&str], offer: &Offer<'_>, usable: impl FnMut() -> bool) -> Result<Beside> {
    let mut arguments = Vec::new();
    if let Offer::Nbd(socket) = offer {
        arguments
            .extend(["--nbd-server".to_owned(), format!("addr.type=unix,addr.path={}", socket.display())]);
    }
    for name in exports {
        let server = place.nbd();
        arguments.extend([
            "--blockdev".to_owned(),
            format!(
                "driver=nbd,node-name={name},export={name},server.type=unix,server.path={},reconnect-delay={RECONNECT_SECONDS},discard=unmap",
                server.display()
            ),
            "--export".to_owned(),
            match offer {
                Offer::Nbd(_) => format!("type=nbd,id=export-{name},node-name={name},name={name},writable=on"),
                Offer::Fuse(file) => {
                    format!("type=fuse,id=export-{name},node-name={name},mountpoint={},writable=on", file.display())
                }
            },
        ]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    Beside::start("qemu-storage-daemon", &arguments, usable)
}
