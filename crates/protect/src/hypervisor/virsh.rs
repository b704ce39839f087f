//! Machines of libvirt, by its own command `virsh`.
//!
//! *Promises*: a domain that could not be started is not left defined; one is known by its UUID, which is chance, so none of
//! somebody else's is ever touched.

mod backup;
mod blocks;
mod life;

use super::last_words;
use crate::qmp::within;
use std::process::Stdio;
use std::time::Duration;
use stonefold_env::Env;
use stonefold_types::{Error, Kind, Result};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// How long a command may take: a start waits for QEMU.
const COMMAND_MAX: Duration = Duration::from_secs(60);

/// A libvirt.
pub(crate) struct Virsh<'a> {
    pub(crate) env: &'a Env,
    pub(crate) uri: &'a str,
}

impl Virsh<'_> {
    /// Defines a domain and starts it.
    ///
    /// # Errors
    /// [`Kind::NotFound`] where virsh is not installed; what libvirt says, where it refuses: then the domain is not there.
    pub(super) async fn start(&self, xml: &str, uuid: &str) -> Result<()> {
        let started = async {
            self.run(&["define", "/dev/stdin"], xml).await?;
            self.run(&["start", uuid], "").await
        };
        let Err(error) = started.await else { return Ok(()) };
        if error.kind() == Kind::NotFound {
            return Err(error);
        }
        // What nobody waited for any more may have been done all the same.
        match self.end(uuid).await {
            Ok(()) => Err(error),
            Err(left) => Err(error.context(format!("it may be there yet: {left}"))),
        }
    }

    /// Whether the domain runs; nothing where there is none.
    pub(crate) async fn state(&self, uuid: &str) -> Result<Option<bool>> {
        match self.run(&["domstate", uuid], "").await {
            Ok(state) => Ok(Some(!matches!(state.trim(), "shut off" | "crashed"))),
            Err(error) if is_no_domain(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Fails where it has no such network.
    pub(crate) async fn check_network(&self, network: &str) -> Result<()> {
        let found = self.run(&["net-info", "--network", network], "").await;
        found.map(drop).map_err(|e| e.remedy("'virsh net-list --all' shows the networks that there are"))
    }

    /// Asks the guest to shut down, and waits until it has.
    ///
    /// # Errors
    /// [`Kind::Busy`] where it has not within `patience`: it runs on.
    pub(super) async fn shut_down(&self, uuid: &str, patience: Duration) -> Result<()> {
        let until = self.env.monotonic() + patience;
        if self.state(uuid).await? == Some(true) {
            self.run(&["shutdown", uuid], "").await?;
        }
        while self.state(uuid).await? == Some(true) {
            if self.env.monotonic() > until {
                let what = format!("the guest did not shut down within {} s", patience.as_secs());
                return Err(Error::new(Kind::Busy, what)
                    .remedy("shut it down from within, or pull its plug: recover stop NAME --power-off"));
            }
            self.env.sleep(Duration::from_millis(500)).await;
        }
        self.undefine(uuid).await
    }

    /// Pulls the plug, and forgets the domain. One that is gone is gone.
    pub(super) async fn end(&self, uuid: &str) -> Result<()> {
        if self.state(uuid).await? == Some(true) {
            self.run(&["destroy", uuid], "").await?;
        }
        self.undefine(uuid).await
    }

    /// Runs a command that says of how many it did something: "Froze 2 filesystem(s)".
    pub(super) async fn count_of(&self, words: &[&str], patience: Duration) -> Result<u64> {
        let said = self.run_for(words, "", patience).await?;
        let number = said.split_whitespace().find_map(|word| word.parse().ok());
        number.ok_or_else(|| {
            let what = format!("libvirt at '{}' answers '{}' with '{}'", self.uri, words[0], said.trim());
            Error::new(Kind::Io, what)
        })
    }

    async fn undefine(&self, uuid: &str) -> Result<()> {
        match self.run(&["undefine", uuid, "--nvram"], "").await {
            Err(error) if is_no_domain(&error) => Ok(()),
            undefined => undefined.map(drop),
        }
    }

    async fn run(&self, words: &[&str], input: &str) -> Result<String> {
        self.run_for(words, input, COMMAND_MAX).await
    }

    async fn run_for(&self, words: &[&str], input: &str, patience: Duration) -> Result<String> {
        let mut command = Command::new("virsh");
        // Its words are told to people and looked at here: in one language.
        command.env("LC_ALL", "C").args(["--connect", self.uri]).args(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let failed = |e: std::io::Error| {
            match e.kind() {
            std::io::ErrorKind::NotFound => Error::new(Kind::NotFound, "virsh is not installed where the server runs")
                .remedy("install it: apt install libvirt-clients (Debian, Ubuntu) or dnf install libvirt-client (Fedora, RHEL)"),
            _ => Error::io("running virsh", e),
        }
        };
        let mut child = command.spawn().map_err(failed)?;
        if let Some(mut stdin) = child.stdin.take() {
            // One that refuses before it has read all says why.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        let output = within(self.env, patience, child.wait_with_output()).await.ok_or_else(|| {
            let seconds = patience.as_secs();
            let what = format!("libvirt at '{}' did not answer '{}' within {seconds} s", self.uri, words[0]);
            Error::new(Kind::Io, what).remedy("look whether libvirtd runs")
        })?;
        let output = output.map_err(failed)?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => {
                let what = format!(
                    "libvirt at '{}' refuses '{}': {}",
                    self.uri,
                    words[0],
                    last_words(&output.stderr)
                );
                Err(Error::new(Kind::Io, what).remedy(
                    "see that libvirtd runs, and that the server's user may speak to it (group libvirt)",
                ))
            }
        }
    }
}

/// Whether a libvirt is on this host: between the driver and the path stands another's name.
pub(crate) fn is_of_this_host(uri: &str) -> bool {
    uri.split_once("://").is_some_and(|(_, rest)| rest.starts_with('/'))
}

fn is_no_domain(error: &Error) -> bool {
    error.what().contains("failed to get domain") || error.what().contains("Domain not found")
}
