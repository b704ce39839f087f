//! What runs machines' processors: KVM where a guest really runs under it, else emulation.
//!
//! That /dev/kvm can be opened proves little: inside some virtual machines QEMU dies under it at once. So the firmware is
//! started with nothing behind it, and has to say its name.

use super::qemu::PROGRAM;
use crate::qmp::within;
use std::fs;
use std::process::Stdio;
use std::str::FromStr;
use std::time::Duration;
use stonefold_env::Env;
use tokio::process::Command;

/// How long the firmware may take to its first words: it takes a tenth of a second.
const FIRST_WORDS_MAX: Duration = Duration::from_secs(5);
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
    let said = place.path().join("firmware");
    let mut command = Command::new(PROGRAM);
    command.args(["-accel", "kvm", "-cpu", "host", "-m", "64", "-nodefaults", "-no-user-config"]);
    command.args(["-display", "none", "-nic", "none", "-global", "isa-debugcon.iobase=0x402"]);
    command.arg("-debugcon").arg(format!("file:{}", said.display()));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
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
