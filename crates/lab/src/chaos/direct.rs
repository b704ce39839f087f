//! Whoever strikes and restores while the load goes on.

use super::{Allowance, Outage};
use crate::load::Control;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use stonefold_env::Env;
use stonefold_types::{Error, Kind, Result};

/// How often it is looked whether something has happened.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long a command may take.
const COMMAND_MAX: Duration = Duration::from_secs(300);

/// One outage and the phase in which it happens.
pub(crate) struct Director<'a> {
    pub env: &'a Env,
    pub control: &'a Control,
    pub outage: &'a Outage,
    /// Since the phase began.
    pub begins: Duration,
    pub allowance: Allowance,
}

/// When each thing was done: time since the phase began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Struck {
    /// The command that strikes was begun.
    pub struck: Duration,
    /// The command that restores was begun.
    pub restored: Duration,
    /// Something was answered after that.
    pub came_back: bool,
}

impl Director<'_> {
    /// Strikes, waits, restores, and waits for an answer. Nothing where the phase ended before. What was struck is
    /// restored, whatever else happens.
    ///
    /// # Errors
    /// When a command fails or does not end; the phase is ended then.
    pub(crate) fn direct(&self) -> Result<Option<Struck>> {
        let done = self.strike_and_restore();
        if done.is_err() {
            self.control.abandon();
        }
        done
    }

    fn strike_and_restore(&self) -> Result<Option<Struck>> {
        if !self.wait_until(self.begins) {
            return Ok(None);
        }
        self.control.allow(self.allowance);
        let struck = self.now();
        self.run("strike", &self.outage.strike)?;
        std::thread::sleep(Duration::from_secs_f64(self.outage.lasts));
        let restored = self.now();
        self.run("restore", &self.outage.restore)?;
        let patient = self.now() + Duration::from_secs_f64(self.outage.patience);
        while self.control.last_answer() <= restored {
            if self.control.is_over() || self.now() > patient {
                self.control.abandon();
                return Ok(Some(Struck { struck, restored, came_back: false }));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(Some(Struck { struck, restored, came_back: true }))
    }

    /// False where the phase ended before.
    fn wait_until(&self, moment: Duration) -> bool {
        loop {
            if self.control.is_stopped() || self.control.is_over() {
                return false;
            }
            if self.control.start().is_some() && self.now() >= moment {
                return true;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Since the phase began.
    fn now(&self) -> Duration {
        self.env.monotonic().saturating_sub(self.control.start().unwrap_or_default())
    }

    /// What the command says goes to stderr, past whoever waits for it: a server that it leaves behind holds its output
    /// open. It is no member of our process group, so that Ctrl-C does not reach what it has started.
    fn run(&self, word: &str, command: &str) -> Result<()> {
        use std::os::unix::process::CommandExt;
        let which = || format!("the command '{word}' of outage '{}', {command:?}", self.outage.name);
        let mut child = Command::new("sh")
            .args(["-c", command])
            .stdin(Stdio::null())
            .stdout(std::io::stderr())
            .process_group(0)
            .spawn()
            .map_err(|e| Error::io(format!("starting {}", which()), e))?;
        let status = self.wait_for(&mut child).map_err(|e| Error::io(which(), e))?;
        match status {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(Error::new(Kind::Io, format!("{} ended with {status}", which()))
                .remedy("try it by hand; what it said stands above")),
            None => {
                Err(Error::new(Kind::Io, format!("{} goes on after {} s", which(), COMMAND_MAX.as_secs()))
                    .remedy("let it start a server in the background"))
            }
        }
    }

    fn wait_for(&self, child: &mut Child) -> std::io::Result<Option<std::process::ExitStatus>> {
        let until = self.env.monotonic() + COMMAND_MAX;
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status));
            }
            if self.env.monotonic() > until {
                child.kill()?;
                child.wait()?;
                return Ok(None);
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}
