//! An nbdkit of a test's own, with what filters and plugin it likes; it ends with the test.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// One on a socket.
pub(crate) struct Served(pub(crate) Child);

impl Served {
    /// Returns when it listens.
    pub(crate) fn start(socket: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new("nbdkit");
        command.args(["--foreground", "--exit-with-parent", "--unix"]).arg(socket).args(arguments);
        let served = Served(command.stderr(Stdio::null()).spawn().unwrap());
        for _ in 0..400 {
            // A socket that is there is not yet one that is listened on.
            if UnixStream::connect(socket).is_ok() {
                return served;
            }
            std::thread::sleep(Duration::from_millis(25));
        }
        panic!("nbdkit {arguments:?} does not listen");
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One with a directory of its own, where its socket lies.
#[allow(dead_code, reason = "not every test that has servers uses it")]
pub(crate) struct Nbdkit {
    pub(crate) served: Served,
    pub(crate) dir: tempfile::TempDir,
}

#[allow(dead_code, reason = "not every test that has servers uses it")]
impl Nbdkit {
    pub(crate) fn start(dir: tempfile::TempDir, arguments: &[&str]) -> Self {
        let served = Served::start(&dir.path().join("nbd.sock"), arguments);
        Nbdkit { served, dir }
    }

    pub(crate) fn target(&self) -> String {
        format!("nbd+unix:///?socket={}/nbd.sock", self.dir.path().display())
    }
}
