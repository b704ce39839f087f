//! An export served anew at a socket of this program's own, for programs that speak no TLS or know none of our names.

use super::{Door, Qemu, last_words};
use std::fs::File;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use stonefold_types::{Error, Kind, Result};

/// Until a server of an export that answers is there.
const READY_MAX: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Programs look at a disk first and open it then.
const CLIENTS_MAX: &str = "8";

/// A qemu-nbd that ends with this.
pub(crate) struct Served {
    child: Child,
    socket: PathBuf,
}

impl Qemu {
    /// Serves an export, to be read, at a socket in a folder that is the caller's alone; what the program complains of is written beside it.
    ///
    /// # Errors
    /// When the export cannot be opened.
    pub(crate) fn serve(&self, from: &Door, socket: &Path) -> Result<Served> {
        let words = socket.with_extension("log");
        let log = File::create(&words).map_err(|e| Error::io(format!("making '{}'", words.display()), e))?;
        // Whatever this program dies of, the kernel ends that one.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", "qemu-nbd", "--read-only", "--persistent"]);
        command.args(["--shared", CLIENTS_MAX, "--socket"]).arg(socket);
        from.read_by(&mut command, Some("raw"));
        // Out of the terminal's group: Ctrl-C comes to this program, which ends things in their order.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().map_err(|e| Error::io("running setpriv, which starts qemu-nbd", e))?;
        let mut served = Served { child, socket: socket.to_owned() };
        served.wait_until_ready(&words)?;
        Ok(served)
    }
}

impl Served {
    /// Where it is.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    fn wait_until_ready(&mut self, words: &Path) -> Result<()> {
        let failed = |what: &str| {
            Error::new(Kind::Io, format!("qemu-nbd {what}"))
                .remedy("see the server's log for its side, then try again")
        };
        for _ in 0..READY_MAX.as_millis() / LOOK_EVERY.as_millis() {
            if UnixStream::connect(&self.socket).is_ok() {
                return Ok(());
            }
            if self.child.try_wait().map_err(|e| Error::io("waiting for qemu-nbd", e))?.is_some() {
                let said = std::fs::read(words).unwrap_or_default();
                return Err(failed(&format!(
                    "failed: {}",
                    last_words(&said).trim_start_matches("qemu-nbd: ")
                )));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Err(failed("did not come up"))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // One that has ended by itself needs no more than being waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
