//! What runs machines' processors: KVM where a guest really runs under it, else emulation.
//!
//! That /dev/kvm can be opened proves little: inside some virtual machines QEMU dies under it at once, inside others once a kernel uses what
//! firmware does not. So the firmware is started with nothing behind it, and has to say its name; then a kernel of this machine's, where there
//! is one, with no disk, and QEMU must not die of it.

use super::qemu::PROGRAM;
use crate::qmp::within;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::str::FromStr;
use std::time::Duration;
use stonefold_env::Env;
use tokio::process::Command;

/// How long the firmware may take to its first words: it takes a tenth of a second.
const FIRST_WORDS_MAX: Duration = Duration::from_secs(5);
/// How long a kernel is watched: it ends within two seconds, since it finds no disk.
const KERNEL_MAX: Duration = Duration::from_secs(8);
/// What QEMU says, and stands still, when the processor's virtualisation cannot do what a guest's instruction asks.
const BROKEN: &str = "KVM internal error";
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What runs a machine's processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accelerator {
    /// The processor's own virtualisation where a guest runs under it, else emulation.
    #[default]
    Auto,
    /// The processor's own virtualisation.
    Kvm,
    /// Emulation.
    Tcg,
}

impl FromStr for Accelerator {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "auto" => Ok(Accelerator::Auto),
            "kvm" => Ok(Accelerator::Kvm),
            "tcg" => Ok(Accelerator::Tcg),
            _ => Err(format!("'{text}' runs no machines: write auto, kvm or tcg")),
        }
    }
}

impl Accelerator {
    /// Whether that is KVM here; looked at anew each time it is asked.
    pub async fn is_kvm(self, env: &Env) -> bool {
        match self {
            Accelerator::Kvm => true,
            Accelerator::Tcg => false,
            Accelerator::Auto => {
                let why = runs_under_kvm(env).await.err();
                match &why {
                    None => tracing::info!("machines run under KVM"),
                    Some(why) => tracing::warn!("machines are emulated, which is slow: {why}"),
                }
                why.is_none()
            }
        }
    }
}

async fn runs_under_kvm(env: &Env) -> std::result::Result<(), String> {
    let opened = fs::OpenOptions::new().read(true).write(true).open("/dev/kvm");
    opened.map_err(|error| format!("/dev/kvm cannot be opened: {error}"))?;
    let place = tempfile::tempdir().map_err(|error| format!("it could not be tried: {error}"))?;
    firmware_speaks(env, place.path()).await?;
    match kernel() {
        Some(kernel) => kernel_lives(env, place.path(), &kernel).await,
        None => Ok(()),
    }
}

/// A QEMU under KVM with nothing in it.
fn bare(place: &Path) -> std::result::Result<Command, String> {
    let log =
        fs::File::create(place.join("log")).map_err(|error| format!("it could not be tried: {error}"))?;
    let mut command = Command::new(PROGRAM);
    command.args(["-accel", "kvm", "-cpu", "host", "-nodefaults", "-no-user-config", "-no-reboot"]);
    command.args(["-display", "none", "-nic", "none"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).kill_on_drop(true);
    Ok(command)
}

async fn firmware_speaks(env: &Env, place: &Path) -> std::result::Result<(), String> {
    let said = place.join("firmware");
    let mut command = bare(place)?;
    command.args(["-m", "64", "-global", "isa-debugcon.iobase=0x402"]);
    command.arg("-debugcon").arg(format!("file:{}", said.display()));
    let mut child = command.spawn().map_err(|error| format!("{PROGRAM} cannot be run: {error}"))?;
    let speaks = async {
        while fs::metadata(&said).map_or(0, |found| found.len()) == 0 {
            match child.try_wait() {
                Ok(None) => env.sleep(LOOK_EVERY).await,
                _ => return Err("/dev/kvm is there, but QEMU gives up under it at once".to_owned()),
            }
        }
        Ok(())
    };
    let silent = || "/dev/kvm is there, but under it firmware says nothing".to_owned();
    let spoke = within(env, FIRST_WORDS_MAX, speaks).await.unwrap_or_else(|| Err(silent()));
    // One that has ended is only waited for.
    let _ = child.kill().await;
    spoke
}

/// The newest kernel of this machine that can be read.
fn kernel() -> Option<PathBuf> {
    let all = fs::read_dir("/boot").ok()?.flatten().map(|entry| entry.path());
    let is_kernel = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"vmlinuz-"))
    };
    all.filter(|path| is_kernel(path) && fs::File::open(path).is_ok())
        .max_by_key(|path| fs::metadata(path).and_then(|meta| meta.modified()).ok())
}

/// Fails only where QEMU dies of it: what a kernel says, and whether here, is its own matter.
async fn kernel_lives(env: &Env, place: &Path, kernel: &Path) -> std::result::Result<(), String> {
    let said = place.join("console");
    let mut command = bare(place)?;
    command.args(["-m", "512", "-append", "console=ttyS0 panic=-1"]).arg("-kernel").arg(kernel);
    command.arg("-serial").arg(format!("file:{}", said.display()));
    let mut child = command.spawn().map_err(|error| format!("{PROGRAM} cannot be run: {error}"))?;
    let text = |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
    let dies = || format!("/dev/kvm is there, but under it a kernel ('{}') dies", kernel.display());
    let lives = async {
        loop {
            let ended = child.try_wait();
            if text(&place.join("log")).contains(BROKEN) {
                return Err(dies());
            }
            match ended {
                // It ends by itself, as it finds no disk, and was told to start anew then.
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(None) if text(&said).contains("Kernel panic") => return Ok(()),
                Ok(None) => env.sleep(LOOK_EVERY).await,
                _ => return Err(dies()),
            }
        }
    };
    // One that says nothing for so long has not died.
    let lived = within(env, KERNEL_MAX, lives).await.unwrap_or(Ok(()));
    let _ = child.kill().await;
    lived
}

#[cfg(test)]
mod tests {
    use super::*;
    use stonefold_env::SystemWorld;

    /// Goal: whatever this machine has, it is known within the time, and what was started for it has ended.
    #[tokio::test]
    async fn what_this_machine_has_is_found_out() {
        let env = Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap());
        let found = runs_under_kvm(&env).await;
        let is_there = fs::OpenOptions::new().read(true).write(true).open("/dev/kvm").is_ok();
        assert!(is_there || found.is_err_and(|why| why.contains("/dev/kvm")));
        assert!(Accelerator::Kvm.is_kvm(&env).await && !Accelerator::Tcg.is_kvm(&env).await);
    }
}
