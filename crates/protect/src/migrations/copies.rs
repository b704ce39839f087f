//! [Jobs](super::jobs) of libvirt: its own copy of each disk (`virsh blockcopy`), so that libvirt knows of all of it.
//!
//! *Promise*: a job is ours where its domain's description says that the disk is copied to its new place; somebody else's is left alone. *What
//! libvirt cannot do*: have a job stand still; it is given the smallest speed there is, and a new one wakes it up. Nor does it have mirrors that
//! copy nothing, with which QEMU's own jobs go over after a comparison: both ends are read beside the job, which has nothing to do while the guest
//! stands still, without the locks that QEMU has on the new one.

mod told;

use super::files::Files;
use super::home::{Home, HomeFormat};
use super::jobs::{Progress, after_standstill};
use super::{Migration, MovedDisk, ends};
use crate::hypervisor::Virsh;
use crate::pace::{Counted, SPEED_BEGINNING};
use serde_json::{Value, json};
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use stonefold_env::Env;
use stonefold_types::{Error, Kind, Result};
use told::{Lies, Told};

/// Nothing would be no bound.
const STANDSTILL_BYTES: u64 = 1;
/// How long a libvirt may be away: it is restarted, or starts after the server. Its machines run on meanwhile.
const AWAY_MAX: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// See the module.
pub(super) struct Copies {
    env: Env,
    uri: String,
    domain: String,
    disks: Vec<MovedDisk>,
    format: HomeFormat,
    verify: bool,
    /// Bytes a second of each, while it does not stand still.
    speed: AtomicU64,
    /// They go where the copy is given up.
    files: Files,
}

impl Copies {
    /// Those of a domain, by its UUID.
    pub(super) fn of(env: &Env, (uri, domain): (&str, &str), migration: &Migration, files: Files) -> Copies {
        let disks = migration.disks.clone();
        Copies {
            env: env.clone(),
            uri: uri.to_owned(),
            domain: domain.to_owned(),
            speed: AtomicU64::new(SPEED_BEGINNING / disks.len().max(1) as u64),
            files,
            disks,
            format: migration.format,
            verify: migration.verify,
        }
    }

    fn virsh(&self) -> Virsh<'_> {
        Virsh { env: &self.env, uri: &self.uri }
    }

    fn of_disk<'a>(&'a self, disk: &'a MovedDisk) -> (&'a str, &'a str) {
        (&self.domain, disk.target.as_str())
    }

    /// The domain as it is now.
    async fn described(&self) -> Result<String> {
        let until = self.env.monotonic() + AWAY_MAX;
        loop {
            match self.virsh().describe(&self.domain, true).await {
                Err(error) if error.kind() == Kind::Io && self.env.monotonic() < until => {
                    self.env.sleep(LOOK_EVERY).await;
                }
                told => return told,
            }
        }
    }

    /// The disks, each with what libvirt tells of it now.
    async fn now(&self) -> Result<Vec<(&MovedDisk, Told)>> {
        let description = self.described().await?;
        let of = |disk| Ok((disk, Told::of(&description, disk)?));
        self.disks.iter().map(of).collect()
    }

    /// What libvirt tells of one of them now.
    async fn told(&self, disk: &MovedDisk) -> Result<Told> {
        Told::of(&self.described().await?, disk)
    }

    /// Begins what has not been begun.
    pub(super) async fn begin(&self) -> Result<()> {
        for (number, (disk, told)) in self.now().await?.into_iter().enumerate() {
            if told.lies.is(&disk.home) {
                continue;
            }
            if told.is_copied_to(&disk.home) {
                self.files.claim(number, disk).await?;
                continue;
            }
            self.check_old(disk, &told)?;
            if self.files.was_copied_to(number, disk) {
                // While no server looked.
                return Err(has_ended(disk));
            }
            self.files.make(number, disk).await?;
            let to = told::destination(&disk.home, self.format)?;
            let speed = self.speed.load(Ordering::Relaxed);
            let begun = self.virsh().begin_block_copy(self.of_disk(disk), &to, speed).await;
            begun.map_err(|e| e.context(format!("moving disk '{}'", disk.target)))?;
        }
        Ok(())
    }

    /// Fails where a disk cannot be moved, or not compared after.
    fn check_old(&self, disk: &MovedDisk, told: &Told) -> Result<()> {
        let target = &disk.target;
        if told.copied_to.is_some() {
            let what = format!("disk '{target}' is in another job of libvirt's");
            let remedy = format!("end it: virsh blockjob {} {target} --abort", self.domain);
            return Err(Error::new(Kind::Busy, what).remedy(remedy));
        }
        match &told.lies {
            Lies::Export { address, .. } if address.export != disk.disk.as_str() => {
                let what = format!("disk '{target}' of the domain is not '{}' any more", disk.disk);
                Err(Error::new(Kind::Conflict, what).remedy("move it by libvirt: virsh blockcopy"))
            }
            Lies::Export { is_secret: true, .. } if self.verify => {
                let what = format!("disk '{target}' is reached by TLS, by which it cannot be compared");
                Err(Error::new(Kind::Unsupported, what).remedy("begin without --verify"))
            }
            Lies::Export { .. } => Ok(()),
            Lies::File(_) | Lies::Elsewhere => {
                let what = format!("disk '{target}' of the domain is on other storage already");
                Err(Error::new(Kind::Conflict, what).remedy("move it by libvirt: virsh blockcopy"))
            }
        }
    }

    pub(super) async fn progress(&self) -> Result<Progress> {
        let mut progress = Progress { bytes: Vec::new(), is_ready: true };
        for (disk, told) in self.now().await? {
            if told.lies.is(&disk.home) {
                progress.bytes.push((1, 1));
            } else if told.is_copied_to(&disk.home) {
                // One that has ended since is told the next time.
                let job = self.virsh().block_job(self.of_disk(disk)).await?;
                progress.bytes.push(job.unwrap_or((disk.done_bytes, disk.total_bytes)));
                progress.is_ready &= told.is_ready;
            } else {
                return Err(has_ended(disk));
            }
        }
        Ok(progress)
    }

    pub(super) async fn pause(&self) -> Result<()> {
        self.let_each(STANDSTILL_BYTES).await
    }

    pub(super) async fn resume(&self) -> Result<()> {
        self.let_each(self.speed.load(Ordering::Relaxed)).await
    }

    /// Bytes a second, of all together.
    pub(super) async fn set_speed(&self, bytes: u64) -> Result<()> {
        let each = bytes / self.disks.len().max(1) as u64;
        self.speed.store(each, Ordering::Relaxed);
        self.let_each(each).await
    }

    async fn let_each(&self, bytes: u64) -> Result<()> {
        for (disk, told) in self.now().await? {
            if !told.is_copied_to(&disk.home) {
                continue;
            }
            let set = self.virsh().set_block_speed(self.of_disk(disk), bytes).await;
            // Why one ended meanwhile is told by whoever looks how far it is.
            if set.is_err() && self.told(disk).await?.is_copied_to(&disk.home) {
                return set;
            }
        }
        Ok(())
    }

    /// What the guest's devices have done since it was started.
    pub(super) async fn counted(&self) -> Result<Counted> {
        let (operations, nanos) = self.virsh().block_counters(&self.domain).await?;
        Ok(Counted { operations, nanos })
    }

    /// Goes over to the new disks, compared before where that is wished. Returns what is left to do.
    pub(super) async fn pivot(
        &self,
        runs: bool,
        given_up: impl Future<Output = Error>,
    ) -> Result<Option<String>> {
        if !self.verify {
            return self.complete().await;
        }
        let ends = self.ends().await?;
        // One that somebody has stand still is left so.
        let moved = async {
            if runs {
                self.virsh().suspend(&self.domain).await?;
            }
            let compared = async {
                for (disk, old, new) in &ends {
                    ends::compare(&disk.target, &[&format!("json:{old}"), &format!("json:{new}")]).await?;
                }
                Ok(())
            };
            ends::unless(given_up, compared).await?;
            self.complete().await
        };
        let moved = moved.await;
        // Whatever became of it, the guest goes on.
        let goes_on = if runs { self.go_on().await } else { Ok(()) };
        after_standstill(moved, goes_on)
    }

    pub(super) async fn runs(&self) -> Result<bool> {
        Ok(!self.virsh().is_suspended(&self.domain).await?)
    }

    /// Has the domain go on, however long a libvirt is away that is restarted.
    pub(super) async fn go_on(&self) -> Result<()> {
        let until = self.env.monotonic() + AWAY_MAX;
        loop {
            let asked = self.virsh().resume(&self.domain).await;
            let Err(error) = asked else { return Ok(()) };
            if matches!(self.virsh().is_suspended(&self.domain).await, Ok(false)) {
                return Ok(());
            }
            if self.env.monotonic() > until {
                return Err(error
                    .context("the domain stands still")
                    .remedy(format!("virsh resume {}", self.domain)));
            }
            self.env.sleep(LOOK_EVERY).await;
        }
    }

    /// Both ends of each disk that has not gone over, as qemu-img opens them; both let somebody in.
    async fn ends(&self) -> Result<Vec<(&MovedDisk, Value, Value)>> {
        let mut ends = Vec::new();
        for (disk, told) in self.now().await? {
            // One that has was compared by a server that was killed then.
            let Lies::Export { address, .. } = &told.lies else { continue };
            if told.lies.is(&disk.home) {
                continue;
            }
            ends::check_reached(&self.env, address).await?;
            let mut place = ends::place(&disk.home)?;
            match &disk.home {
                Home::File(_) => place["locking"] = json!("off"),
                Home::Nbd(uri) => ends::check_reached(&self.env, &uri.parse()?).await?,
            }
            let old = json!({ "driver": "raw", "file": ends::export(address)? });
            ends.push((disk, old, json!({ "driver": self.format.name(), "file": place })));
        }
        Ok(ends)
    }

    async fn complete(&self) -> Result<Option<String>> {
        for (disk, told) in self.now().await? {
            if told.lies.is(&disk.home) {
                continue;
            }
            let asked = self.virsh().pivot_block_job(self.of_disk(disk)).await;
            // What became of it is what the domain has, also where an answer came too late.
            if !self.told(disk).await?.lies.is(&disk.home) {
                let failed = || Error::new(Kind::Io, "libvirt did not do it, and did not say why");
                let why = asked.err().unwrap_or_else(failed);
                return Err(why.context(format!("going over to the new disk '{}'", disk.target)));
            }
        }
        Ok(self.left_behind().await)
    }

    /// libvirt brings along what it starts the domain from the next time, where that was the same disk.
    async fn left_behind(&self) -> Option<String> {
        let defined = self.virsh().describe(&self.domain, false).await.ok()?;
        let has = |disk: &&MovedDisk| Told::of(&defined, disk).is_ok_and(|told| told.lies.is(&disk.home));
        let left = self.disks.iter().find(|disk| !has(disk))?;
        Some(format!(
            "the domain runs on its new disk '{}', but its definition names another: virsh edit {}",
            left.target, self.domain
        ))
    }

    /// Of each disk whether the domain has it at its new place.
    pub(super) async fn moved(&self) -> Result<Vec<bool>> {
        Ok(self.now().await?.iter().map(|(disk, told)| told.lies.is(&disk.home)).collect())
    }

    /// Ends what was begun: the machine goes on with what it has, and files that it does not have go.
    pub(super) async fn abandon(&self) -> Result<()> {
        for (number, disk) in self.disks.iter().enumerate() {
            let ended = match self.told(disk).await?.is_copied_to(&disk.home) {
                true => self.virsh().abort_block_job(self.of_disk(disk)).await,
                false => Ok(()),
            };
            // Another end may have come before that one: a way over to the new disk whose answer came too late.
            let now = self.told(disk).await?;
            if now.is_copied_to(&disk.home) {
                let failed = || Error::new(Kind::Busy, "libvirt's copying does not end");
                return Err(ended.err().unwrap_or_else(failed));
            }
            // What it has by now may stand on that file.
            if matches!(now.lies, Lies::Export { .. }) {
                self.files.take_away(number, disk)?;
            }
        }
        Ok(())
    }
}

fn has_ended(disk: &MovedDisk) -> Error {
    let what = format!("libvirt's copying of disk '{}' has ended", disk.target);
    let remedy =
        "look at the new place: is it full, or gone? And at the domain's log: did it reach its old disk?";
    Error::new(Kind::Io, what).remedy(remedy)
}
