//! Guests that stand still while their disks are snapshotted, so that a point holds what their file systems, and by their agents' hooks their
//! programs, had finished.
//!
//! *Order*: the agent is seen to be there; a document says that the guest is about to stand still; it does; what is to be done is done; it goes on;
//! the document goes. *Promise*: a guest is told to go on until it has, whatever came between: at once, then with each round, also of a later
//! server. *Never*: keeps a guest still for longer than [`STILL_MAX`] because something else takes long: it goes on, and what was done is not taken for done
//! while it stood.

use crate::catalog::{self, Entry, Unknown};
use crate::copying::Live;
use crate::domain::Domain;
use crate::hypervisor::{AgentPlace, Guest};
use crate::machines::Machine;
use crate::{Hardware, Protection};
use serde::{Deserialize, Serialize};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;
use stonefold_env::WallNanos;
use stonefold_types::{Error, Kind, Name, Result};

/// How long a guest may take to stand still: it writes all that it has in memory, and its hooks have databases do so.
const FREEZE_MAX: Duration = Duration::from_secs(60);
/// How long it stands still at most. Windows goes on by itself after ten seconds.
const STILL_MAX: Duration = Duration::from_secs(9);
/// How long it is told to go on before that is left to the rounds.
const WAKE_MAX: Duration = Duration::from_secs(30);
/// How long a guest may take to go on, once it is told.
const THAW_MAX: Duration = Duration::from_secs(20);
/// All of that.
const STANDSTILL_MAX: Duration =
    Duration::from_secs(FREEZE_MAX.as_secs() + STILL_MAX.as_secs() + WAKE_MAX.as_secs() + THAW_MAX.as_secs());
const WAKE_AGAIN: Duration = Duration::from_millis(500);
/// How long a run waits for a guest that another run, or the waking of one that was left, looks after; and how often it looks.
const TURN_MAX: Duration = Duration::from_secs(THAW_MAX.as_secs() + 1);
const TURN_AGAIN: Duration = Duration::from_millis(20);

/// The document of a guest that may stand still, `standstills/MACHINE`, or of a guest on other storage `standstills/SOURCE/source`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Standstill {
    /// The machine's name, or the source's.
    pub(crate) machine: Name,
    /// Whether it is a source's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_source: bool,
    /// Where its agent is reached.
    pub(crate) agent: AgentPlace,
    /// What libvirt calls it.
    pub(crate) domain: String,
    /// Trusted time, nanoseconds since 1970.
    pub(crate) asked: WallNanos,
    #[serde(flatten)]
    pub(crate) unknown: Unknown,
}

/// How a guest stood while something was done.
#[derive(Debug, Default)]
pub(crate) struct Stood {
    /// Why what was done cannot be taken for done while it stood still.
    pub(crate) broken: Option<String>,
    /// Why it may stand still yet.
    pub(crate) asleep: Option<String>,
}

impl Stood {
    /// An error of what was done meanwhile, which tells of the guest, too, where that may stand still yet.
    pub(crate) fn blamed_for(&self, error: Error) -> Error {
        match &self.asleep {
            Some(asleep) => error.context(format!("the guest was not seen to go on ({asleep})")),
            None => error,
        }
    }
}

impl Entry for Standstill {
    const FAMILY: &'static str = "standstills";
    const NOUN: &'static str = "standstill of machine";
    const LISTED_BY: &'static str = "stonefold machine ls";

    fn key(&self) -> String {
        if self.is_source { format!("{}/source", self.machine) } else { self.machine.to_string() }
    }
}

impl Standstill {
    fn whose(&self) -> String {
        let kind = if self.is_source { "source" } else { "machine" };
        format!("the guest of {kind} '{}'", self.machine)
    }
}

impl Machine {
    /// Fails where nothing is known of its guest's agent.
    pub(crate) fn check_agent(&self) -> Result<&AgentPlace> {
        self.agent.as_ref().ok_or_else(|| {
            let what = format!("nobody said where the guest agent of machine '{}' is reached", self.name);
            let remedy = format!(
                "say so: stonefold machine set {} --agent unix:PATH or libvirt:URI; or back it up as after a loss of power (crash)",
                self.name
            );
            Error::new(Kind::Invalid, what).remedy(remedy)
        })
    }
}

impl Protection {
    /// Says where a machine's guest agent is reached, or that it is not any more.
    pub async fn set_machine_agent(&self, name: &Name, agent: Option<AgentPlace>) -> Result<Machine> {
        let set = |machine: &mut Machine| {
            machine.agent.clone_from(&agent);
            Ok(())
        };
        self.change(catalog::change(&self.store, name.as_str(), set)).await
    }

    /// What becomes of a machine's guest, which has an agent.
    pub(crate) fn standstill_of(&self, machine: &Machine) -> Result<Standstill> {
        let domain = match &machine.hardware {
            Some(Hardware::Libvirt(xml)) => Domain::parse(xml)?.known_as(),
            _ => machine.name.to_string(),
        };
        Ok(Standstill {
            machine: machine.name.clone(),
            is_source: false,
            agent: machine.check_agent()?.clone(),
            domain,
            asked: self.store.time().trusted,
            unknown: Unknown::new(),
        })
    }

    /// The same of a guest on other storage, which its agent or libvirt calls `domain`.
    pub(crate) fn standstill_of_guest(&self, source: &Name, agent: AgentPlace, domain: &str) -> Standstill {
        Standstill {
            machine: source.clone(),
            is_source: true,
            agent,
            domain: domain.to_owned(),
            asked: self.store.time().trusted,
            unknown: Unknown::new(),
        }
    }

    /// Does a step of a run that copies, while its guest stands still where that is wished; how it stood is kept with the run.
    pub(crate) async fn still_for<T>(
        &self,
        still: Option<&Standstill>,
        live: &Live,
        step: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let Some(still) = still else { return step.await };
        let (done, stood) = self.while_still(still, step).await?;
        let done = done.map_err(|error| stood.blamed_for(error));
        live.stood(stood);
        done
    }

    /// Fails where a guest could not be had to stand still: what takes hours before it is to be is not begun.
    pub(crate) async fn check_can_stand(&self, still: &Standstill) -> Result<()> {
        self.guest(still).greet().await.map(drop).map_err(|e| e.context(still.whose()))
    }

    /// Does something while a guest stands still. Where it cannot be had to, nothing is done.
    pub(crate) async fn while_still<T>(
        &self,
        still: &Standstill,
        what: impl Future<Output = T>,
    ) -> Result<(T, Stood)> {
        let named = |e: Error| e.context(still.whose());
        let _standing = self.stands_in_turn(still).await.map_err(named)?;
        let frozen = self.freeze(still).await.map_err(named)?;
        let mut what = pin!(what);
        let in_time = tokio::select! {
            biased;
            done = &mut what => Some(done),
            () = self.env.sleep(STILL_MAX) => None,
        };
        let woken = self.wake(still, WAKE_MAX).await;
        // Only of a guest that was seen to stand still to the end is said that it did.
        let broken = match (&in_time, &woken) {
            (None, _) => {
                Some(format!("it took longer than {} s, and the guest went on", STILL_MAX.as_secs()))
            }
            (Some(_), Ok(thawed)) if *thawed < frozen => {
                Some("its file systems had gone on by themselves".to_owned())
            }
            (Some(_), Err(_)) => Some("it is not known whether the guest stood still to the end".to_owned()),
            (Some(_), Ok(_)) => None,
        };
        let done = match in_time {
            Some(done) => done,
            None => what.await,
        };
        Ok((done, Stood { broken, asleep: woken.err().map(|error| error.to_string()) }))
    }

    /// Until no guest stands still for a run of this server, which is leaving: what a guest has begun to finish cannot be taken back. No other is begun.
    pub(crate) async fn end_standstills(&self) {
        let until = self.env.monotonic() + STANDSTILL_MAX;
        while !self.standing.lock().is_empty() && self.env.monotonic() < until {
            self.env.sleep(TURN_AGAIN).await;
        }
    }

    /// The same, once whoever looks after it is done: one that was left is told to go on in the rounds, and a run that is due in that moment is not
    /// lost for it.
    async fn stands_in_turn(&self, still: &Standstill) -> Result<Standing<'_>> {
        let until = self.env.monotonic() + TURN_MAX;
        loop {
            let standing = self.stands(still);
            // Looked at behind that: whoever leaves waits for what it finds.
            if self.ending.load(Ordering::SeqCst) {
                return Err(Error::new(Kind::Closed, "the server leaves"));
            }
            match standing {
                Err(_) if self.env.monotonic() < until => self.env.sleep(TURN_AGAIN).await,
                standing => return standing,
            }
        }
    }

    /// Told of a guest that this server looks after; of one at a time.
    fn stands(&self, still: &Standstill) -> Result<Standing<'_>> {
        match self.standing.lock().insert(still.key()) {
            true => Ok(Standing { protection: self, key: still.key() }),
            false => {
                Err(Error::new(Kind::Busy, "it stands still for another run")
                    .remedy("wait until that has ended"))
            }
        }
    }

    /// Has it stand still, on return; how many file systems do.
    async fn freeze(&self, still: &Standstill) -> Result<u64> {
        let mut agent = self.guest(still).greet().await?;
        // One that was left has gone on before it is asked again; nothing has been asked of it yet.
        if let Some(left) = catalog::find::<Standstill>(&self.store, &still.key()).await? {
            drop(agent);
            self.wake(&left, THAW_MAX).await?;
            agent = self.guest(still).greet().await?;
        }
        catalog::put_new(&self.store, still).await?;
        let frozen = match agent.freeze(FREEZE_MAX).await {
            Ok(0) => Err(Error::new(Kind::Conflict, "its agent found no file system that could stand still")
                .remedy("back it up as after a loss of power (crash)")),
            frozen => frozen,
        };
        drop(agent);
        let error = match frozen {
            Ok(frozen) => return Ok(frozen),
            Err(error) => error,
        };
        // Some may stand, and one that was too slow comes to it later.
        match self.wake(still, WAKE_MAX).await {
            Ok(_) => Err(error),
            Err(asleep) => Err(error.context(format!("{asleep}; it is told to go on until it has"))),
        }
    }

    fn guest<'a>(&'a self, still: &'a Standstill) -> Guest<'a> {
        Guest { env: &self.env, agent: &still.agent, domain: &still.domain }
    }

    /// Has a guest go on, and forgets that it stood. Returns how many file systems had stood still.
    async fn wake(&self, still: &Standstill, patience: Duration) -> Result<u64> {
        let (guest, until) = (self.guest(still), self.env.monotonic() + patience);
        let woken = loop {
            match guest.thaw(THAW_MAX).await {
                Ok(thawed) => break thawed,
                // With the machine its guest has gone, and nothing stands.
                Err(_) if guest.is_gone().await => break 0,
                Err(error) if self.env.monotonic() > until => {
                    return Err(error.context("it may stand still"));
                }
                Err(_) => self.env.sleep(WAKE_AGAIN).await,
            }
        };
        if let Err(error) = catalog::remove::<Standstill>(&self.store, &still.key()).await {
            // It is told once more to go on, then, which changes nothing.
            tracing::warn!("that {} goes on is not kept: {error}", still.whose());
        }
        Ok(woken)
    }

    /// Has all go on that were left standing still, each in a task of its own: one that does not answer keeps nothing else waiting.
    pub(crate) async fn wake_left(&self) -> Result<()> {
        for key in catalog::keys::<Standstill>(&self.store, None).await? {
            let Some(left) = self.readable::<Standstill>(&key).await? else { continue };
            let Some(me) = self.me.upgrade() else { return Ok(()) };
            self.env.spawn("wake a guest", async move { me.wake_one(&left).await });
        }
        Ok(())
    }

    async fn wake_one(&self, left: &Standstill) {
        // One that this server has stand still is looked after.
        let Ok(_standing) = self.stands(left) else { return };
        match self.wake(left, Duration::ZERO).await {
            Ok(_) => tracing::warn!("{} was left standing still, and goes on", left.whose()),
            Err(error) => tracing::warn!("{}: {error}", left.whose()),
        }
    }
}

/// A guest that this server looks after.
struct Standing<'a> {
    protection: &'a Protection,
    key: String,
}

impl Drop for Standing<'_> {
    fn drop(&mut self) {
        self.protection.standing.lock().remove(&self.key);
    }
}
