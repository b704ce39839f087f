//! A real libvirtd that a test starts, in a mount namespace whose /etc/libvirt, /var/lib/libvirt and /run/libvirt are its own, so that a libvirt
//! of this machine is never touched. For root.

use std::fs;

use anyhow::{Result, ensure};

use crate::gateway::Place;
use crate::tools::{Beside, attempt};

/// A libvirt. Its domains end with it: libvirtd by itself would leave them running.
pub struct Libvirt {
    running: Option<Beside>,
    uri: String,
}

impl Libvirt {
    /// Ends its domains, and kills it.
    pub fn kill(mut self) {
        self.end_domains();
        if let Some(running) = self.running.take() {
            running.kill();
        }
    }

    fn end_domains(&self) {
        let listed = attempt("virsh", &["-q", "-c", &self.uri, "list", "--uuid"]);
        for domain in listed.iter().flat_map(|(_, said)| said.split_whitespace()) {
            let _ = attempt("virsh", &["-q", "-c", &self.uri, "destroy", domain]);
        }
    }
}

impl Drop for Libvirt {
    fn drop(&mut self) {
        if self.running.is_some() {
            self.end_domains();
        }
    }
}

/// A libvirt of this place's, and its URI.
///
/// # Errors
/// When it does not start.
pub fn libvirt(place: &Place) -> Result<(Libvirt, String)> {
    let socket = place.path("libvirt/libvirt-sock");
    fs::create_dir_all(place.path("libvirt"))?;
    let conf = format!(
        "unix_sock_dir = '{}'\nauth_unix_rw = 'none'\nlog_outputs = '1:file:{}'\n",
        place.text("libvirt"),
        place.text("libvirtd.log")
    );
    fs::write(place.path("libvirtd.conf"), conf.replace('\'', "\""))?;
    // QEMU as root, as the test is: the NBD socket is root's.
    fs::write(
        place.path("qemu.conf"),
        "user = \"root\"\ngroup = \"root\"\nsecurity_driver = \"none\"\nnamespaces = []\ncgroup_controllers = []\nstdio_handler = \"file\"\n",
    )?;
    // Its packages make these accounts, where they may start services.
    for (file, lines) in [
        ("passwd", &["libvirt-qemu:x:64055:64055::/:/bin/false"][..]),
        ("group", &["libvirt-qemu:x:64055:", "kvm:x:64056:"]),
    ] {
        let mut own = fs::read_to_string(format!("/etc/{file}"))?;
        for line in lines {
            let name = line.split(':').next().unwrap_or_default();
            if !own.lines().any(|known| known.split(':').next() == Some(name)) {
                own.push_str(line);
                own.push('\n');
            }
        }
        fs::write(place.path(file), own)?;
    }
    let at = place.path("").display().to_string();
    // What other tests have mounted now would be busy for as long as this namespace has it, too.
    let others = format!(
        "while read -r _ folder _; do case $folder in {}/*) umount --lazy $folder || true ;; esac; done < /proc/self/mounts",
        std::env::temp_dir().display()
    );
    let script = format!(
        "set -e; {others}; cd {at}; mount --bind passwd /etc/passwd; mount --bind group /etc/group; \
        for d in /etc/libvirt /var/lib/libvirt /var/cache/libvirt /run/libvirt; do mkdir -p $d; mount -t tmpfs own $d; done; \
        cp qemu.conf /etc/libvirt/qemu.conf; exec libvirtd -f {at}/libvirtd.conf -p {at}/libvirtd.pid"
    );
    let uri = format!("qemu+unix:///system?socket={}", socket.display());
    let answers = || attempt("virsh", &["-c", &uri, "list"]).is_ok_and(|(status, _)| status == Some(0));
    let running =
        Beside::start("unshare", &["--mount", "--propagation", "slave", "sh", "-c", &script], answers)?;
    Ok((Libvirt { running: Some(running), uri: uri.clone() }, uri))
}

/// Runs a command of virsh's, and returns what it says.
///
/// # Errors
/// When it fails.
pub fn virsh(uri: &str, words: &[&str]) -> Result<String> {
    let (status, said) = attempt("virsh", &[&["-q", "-c", uri], words].concat())?;
    ensure!(status == Some(0), "virsh {words:?}: {said}");
    Ok(said)
}
