//! KVM where a guest really runs under it, else emulation.
//!
//! That `/dev/kvm` can be opened proves little: inside some virtual machines QEMU dies on its first register, or a stock
//! kernel hangs at its first instructions. So the probe boots a small kernel and waits for its first words, not for long.

use std::{fmt, fs::OpenOptions, io::ErrorKind, path::Path, time::Duration};

use anyhow::Result;

use crate::{Launch, cancel};

const KVM: &str = "/dev/kvm";

/// What runs a guest's processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// The processor's own virtualisation.
    Kvm,
    /// QEMU's emulation: runs everywhere, some ten times slower.
    Tcg,
}

impl Accelerator {
    pub(crate) fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Kvm => &["-accel", "kvm", "-cpu", "host"],
            Self::Tcg => &["-accel", "tcg,thread=multi", "-cpu", "max"],
        }
    }
}

impl fmt::Display for Accelerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kvm => "KVM",
            Self::Tcg => "emulation (TCG)",
        })
    }
}

/// What the probe found.
#[derive(Clone, Debug)]
pub struct Probe {
    /// What to run guests with here.
    pub accelerator: Accelerator,
    /// Why, in words for the user.
    pub reason: String,
}

/// Finds what guests can run with here, by booting `kernel` with `initramfs` under KVM and waiting until its console says
/// `first_words`, for no longer than `allowed`.
///
/// # Errors
/// Only when the process was asked to stop: everything else is a reason to emulate.
pub fn probe_accelerator(
    logs: &Path,
    (kernel, initramfs, command_line): (&Path, &Path, &str),
    first_words: &str,
    allowed: Duration,
) -> Result<Probe> {
    let emulate = |reason: String| Ok(Probe { accelerator: Accelerator::Tcg, reason });
    if let Err(error) = OpenOptions::new().read(true).write(true).open(KVM) {
        return emulate(match error.kind() {
            ErrorKind::NotFound => format!("there is no {KVM} on this machine"),
            ErrorKind::PermissionDenied => {
                format!("this user may not open {KVM} (joining the group kvm helps)")
            }
            _ => format!("{KVM} cannot be opened: {error}"),
        });
    }
    let started = Launch::new("kvm-probe", logs)
        .accelerator(Accelerator::Kvm)
        .memory_mib(256)
        .direct_kernel(kernel, initramfs, command_line)
        .start();
    let mut guest = match started {
        Ok(guest) => guest,
        Err(error) => return emulate(format!("{error:#}")),
    };
    let spoke = guest.wait_for(first_words, allowed).is_ok();
    cancel::check()?;
    if spoke {
        return Ok(Probe { accelerator: Accelerator::Kvm, reason: "a guest boots under it".into() });
    }
    emulate(if guest.has_ended() {
        format!("{KVM} is there, but QEMU gives up under it at once")
    } else {
        format!("{KVM} is there, but a guest did not say a word under it within {} s", allowed.as_secs())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_no_guest_runs_under_kvm_the_probe_says_why_and_emulates() {
        let folder = tempfile::tempdir().unwrap();
        let nothing = folder.path().join("no-kernel");
        let probe =
            probe_accelerator(folder.path(), (&nothing, &nothing, ""), "hello", Duration::from_secs(5))
                .unwrap();
        assert_eq!(probe.accelerator, Accelerator::Tcg);
        assert!(probe.reason.contains(KVM), "{}", probe.reason);
    }
}
