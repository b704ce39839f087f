//! [Jobs](super::jobs) of a QEMU that the server has started: a mirror for each disk (`blockdev-mirror`, `write-blocking`), by QMP.

use super::files::Files;
use super::home::{self, Home, HomeFormat};
use super::jobs::{Progress, after_standstill};
use super::{Migration, MovedDisk, ends};
use crate::hypervisor::{ANSWER_MAX, Folder, disk_node};
use crate::pace::Counted;
use crate::qmp::Qmp;
use serde_json::{Value, json};
use std::future::Future;
use std::time::Duration;
use stonefold_env::Env;
use stonefold_types::{Error, Kind, Result};

/// How long the last bytes may take, and a job its end.
const PIVOT_MAX: Duration = Duration::from_secs(60);
/// How long a QEMU that a server finds again may be busy with the server's own return.
const FIND_MAX: Duration = Duration::from_secs(30);
/// How long a QEMU may be busy before it is told in vain to let its guest go on.
const GO_ON_MAX: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// See the module.
pub(super) struct Mirrors {
    env: Env,
    qmp: Qmp,
    disks: usize,
    /// They go where the move is given up.
    files: Files,
}

/// One job, as QEMU tells of it.
struct Job {
    done: u64,
    total: u64,
    ready: bool,
    paused: bool,
    concluded: bool,
    error: Option<String>,
}

impl Job {
    fn ended_well(&self) -> bool {
        self.concluded && self.error.is_none()
    }
}

fn job_id(number: usize) -> String {
    format!("stonefold-home{number}")
}

/// The new disk's node has the job's name.
fn home_node(number: usize) -> String {
    job_id(number)
}

impl Mirrors {
    /// Those of a machine.
    pub(super) async fn find(
        env: &Env,
        folder: &Folder,
        migration: &Migration,
        files: Files,
    ) -> Result<Mirrors> {
        let qmp = Qmp::connect(env, &folder.qmp(), FIND_MAX).await?;
        Ok(Mirrors { env: env.clone(), qmp, disks: migration.disks.len(), files })
    }

    /// Begins what has not been begun.
    pub(super) async fn begin(&self, migration: &Migration) -> Result<()> {
        for (number, disk) in migration.disks.iter().enumerate() {
            let (job, has_home) = (self.job(number).await?, self.has_node(&home_node(number)).await?);
            if has_home {
                self.files.claim(number, disk).await?;
            }
            if self.is_pivoted(number).await? || job.as_ref().is_some_and(|job| !job.ended_well()) {
                continue;
            }
            if job.is_some() {
                // A server that was killed had ended it to compare; what the guest has written since is not on the new disk.
                self.ask("job-dismiss", json!({ "id": job_id(number) })).await?;
            }
            if !has_home {
                self.files.make(number, disk).await?;
                let node = node_of(&disk.home, migration.format, &home_node(number))?;
                self.ask("blockdev-add", node).await?;
            }
            self.check_room(number, disk).await?;
            self.mirror(number, "full")
                .await
                .map_err(|e| e.context(format!("moving disk '{}'", disk.target)))?;
        }
        Ok(())
    }

    /// Fails where a new disk is smaller than the old one: of a server that was too old to say so before.
    async fn check_room(&self, number: usize, disk: &MovedDisk) -> Result<()> {
        let of = |node: Value| node["image"]["virtual-size"].as_u64();
        let (old, new) = (of(self.node(&disk_node(number)).await?), of(self.node(&home_node(number)).await?));
        match (old, new) {
            (Some(old), Some(new)) => home::check_size(disk, old, new),
            _ => Ok(()),
        }
    }

    pub(super) async fn progress(&self) -> Result<Progress> {
        let mut progress = Progress { bytes: Vec::new(), is_ready: true };
        for number in 0..self.disks {
            match self.job(number).await? {
                Some(Job { error: Some(why), .. }) => {
                    return Err(Error::new(Kind::Io, format!("QEMU cannot copy: {why}"))
                        .remedy("look at the new place: is it full, or gone?"));
                }
                Some(job) => {
                    progress.bytes.push((job.done, job.total));
                    progress.is_ready &= job.ready || job.concluded;
                }
                None if self.is_pivoted(number).await? => progress.bytes.push((1, 1)),
                None => return Err(ended_by_another()),
            }
        }
        Ok(progress)
    }

    pub(super) async fn pause(&self) -> Result<()> {
        self.each_unless("block-job-pause", |job| job.paused || job.concluded).await
    }

    pub(super) async fn resume(&self) -> Result<()> {
        self.each_unless("block-job-resume", |job| !job.paused || job.concluded).await
    }

    async fn each_unless(&self, command: &str, needless: impl Fn(&Job) -> bool) -> Result<()> {
        for number in 0..self.disks {
            if self.job(number).await?.is_some_and(|job| !needless(&job)) {
                self.ask(command, json!({ "device": job_id(number) })).await?;
            }
        }
        Ok(())
    }

    /// Bytes a second, of all together.
    pub(super) async fn set_speed(&self, bytes: u64) -> Result<()> {
        let each = bytes / self.disks.max(1) as u64;
        for number in 0..self.disks {
            if self.job(number).await?.is_some_and(|job| !job.concluded) {
                self.ask("block-job-set-speed", json!({ "device": job_id(number), "speed": each })).await?;
            }
        }
        Ok(())
    }

    /// What the guest's devices have done since it was started.
    pub(super) async fn counted(&self) -> Result<Counted> {
        Counted::by(&self.qmp).await
    }

    /// Goes over to the new disks, once both are alike; compares them before, where that is wished, while the guest stands still. Returns what is left
    /// to do.
    pub(super) async fn pivot(
        &self,
        env: &Env,
        migration: &Migration,
        runs: bool,
        given_up: impl Future<Output = Error>,
    ) -> Result<Option<String>> {
        if !migration.verify {
            return self.complete(env, migration).await.map(|()| None);
        }
        for disk in &migration.disks {
            if let Home::Nbd(uri) = &disk.home {
                ends::check_reached(env, &uri.parse()?).await?;
            }
        }
        // Nobody has it sleep on: what it wrote after the mirrors end would be lost.
        if self.ask("query-status", json!({})).await?["status"] == "suspended" {
            let what = "the guest sleeps, and may wake while both ends are compared";
            return Err(Error::new(Kind::Conflict, what).remedy("wake it first, or move it without --verify"));
        }
        // One that somebody has stand still is left so.
        let moved = async {
            if runs {
                self.ask("stop", json!({})).await?;
            }
            self.compare_all(env, migration, given_up).await?;
            self.complete(env, migration).await
        };
        let moved = moved.await.map(|()| None);
        // Whatever became of it, the guest goes on.
        let goes_on = if runs { self.go_on().await } else { Ok(()) };
        after_standstill(moved, goes_on)
    }

    pub(super) async fn runs(&self) -> Result<bool> {
        Ok(self.ask("query-status", json!({})).await?["running"] == true)
    }

    /// Has the guest go on, however long its QEMU is busy with disks that do not answer.
    pub(super) async fn go_on(&self) -> Result<()> {
        let until = self.env.monotonic() + GO_ON_MAX;
        loop {
            let Err(error) = self.ask("cont", json!({})).await else { return Ok(()) };
            // QEMU answers in order: what was asked in vain may have been done since.
            if matches!(self.runs().await, Ok(true)) {
                return Ok(());
            }
            if error.kind() == Kind::Closed || self.env.monotonic() > until {
                return Err(error
                    .context("the machine stands still")
                    .remedy("look whether its disks answer, and have it go on by its QMP socket: cont"));
            }
            self.env.sleep(LOOK_EVERY).await;
        }
    }

    /// A disk that is being written by a mirror lets nobody read it: the mirrors end, without going over; then both ends are read; then mirrors that have
    /// nothing to copy take the disks over.
    async fn compare_all(
        &self,
        env: &Env,
        migration: &Migration,
        given_up: impl Future<Output = Error>,
    ) -> Result<()> {
        for number in 0..self.disks {
            if self.job(number).await?.is_some_and(|job| !job.concluded) {
                self.ask("block-job-cancel", json!({ "device": job_id(number) })).await?;
                self.concluded(env, number).await?;
            }
            if self.job(number).await?.is_some() {
                self.ask("job-dismiss", json!({ "id": job_id(number) })).await?;
            }
        }
        ends::unless(given_up, self.compare(migration)).await?;
        for number in 0..self.disks {
            if !self.is_pivoted(number).await? {
                self.mirror(number, "none").await?;
            }
        }
        let until = env.monotonic() + PIVOT_MAX;
        while !self.progress().await?.is_ready {
            if env.monotonic() > until {
                return Err(Error::new(Kind::Io, "QEMU does not take the new disks"));
            }
            env.sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    async fn mirror(&self, number: usize, sync: &str) -> Result<()> {
        let mirror = json!({
            "job-id": job_id(number),
            "device": disk_node(number),
            "target": home_node(number),
            "sync": sync,
            "copy-mode": "write-blocking",
            "auto-dismiss": false,
        });
        self.ask("blockdev-mirror", mirror).await.map(drop)
    }

    async fn complete(&self, env: &Env, migration: &Migration) -> Result<()> {
        for (number, disk) in migration.disks.iter().enumerate() {
            if let Some(job) = self.job(number).await? {
                if !job.concluded {
                    self.ask("job-complete", json!({ "id": job_id(number) })).await?;
                }
                self.concluded(env, number)
                    .await
                    .map_err(|e| e.context(format!("going over to the new disk '{}'", disk.target)))?;
                self.ask("job-dismiss", json!({ "id": job_id(number) })).await?;
            }
            if !self.is_pivoted(number).await? {
                return Err(ended_by_another());
            }
            // The pool's disk is let go.
            if self.has_node(&disk_node(number)).await? {
                self.ask("blockdev-del", json!({ "node-name": disk_node(number) })).await?;
            }
        }
        Ok(())
    }

    async fn concluded(&self, env: &Env, number: usize) -> Result<()> {
        let until = env.monotonic() + PIVOT_MAX;
        loop {
            match self.job(number).await? {
                Some(Job { concluded: true, error: None, .. }) | None => return Ok(()),
                Some(Job { error: Some(why), .. }) => return Err(Error::new(Kind::Io, why)),
                Some(_) if env.monotonic() > until => {
                    return Err(Error::new(
                        Kind::Io,
                        format!("QEMU did not do it within {} s", PIVOT_MAX.as_secs()),
                    ));
                }
                Some(_) => env.sleep(LOOK_EVERY).await,
            }
        }
    }

    /// Reads both ends of each disk, while nothing is written.
    async fn compare(&self, migration: &Migration) -> Result<()> {
        for (number, disk) in migration.disks.iter().enumerate() {
            if self.is_pivoted(number).await? {
                // By a server that was killed then, which had compared it.
                continue;
            }
            // The old end as QEMU itself reaches it.
            let found = self.node(&disk_node(number)).await?;
            let old = found["image"]["filename"].as_str().unwrap_or_default();
            let new = match &disk.home {
                Home::File(path) => path.to_string_lossy().into_owned(),
                Home::Nbd(uri) => uri.clone(),
            };
            ends::compare(&disk.target, &["-f", "raw", "-F", migration.format.name(), old, &new]).await?;
        }
        Ok(())
    }

    /// Ends what was begun: the machine goes on with what it has, and files that it does not have go.
    pub(super) async fn abandon(&self, migration: &Migration) -> Result<()> {
        for (number, disk) in migration.disks.iter().enumerate() {
            if let Some(job) = self.job(number).await? {
                if !job.concluded {
                    self.ask("block-job-cancel", json!({ "device": job_id(number), "force": true })).await?;
                    // What it ends with is no matter.
                    let _ = self.concluded(&self.env, number).await;
                }
                self.ask("job-dismiss", json!({ "id": job_id(number) })).await?;
            }
            if self.is_pivoted(number).await? {
                continue;
            }
            if self.has_node(&home_node(number)).await? {
                self.ask("blockdev-del", json!({ "node-name": home_node(number) })).await?;
            }
            self.files.take_away(number, disk)?;
        }
        Ok(())
    }

    async fn job(&self, number: usize) -> Result<Option<Job>> {
        let id = job_id(number);
        let jobs = self.ask("query-jobs", json!({})).await?;
        let found = jobs.as_array().into_iter().flatten().find(|job| job["id"] == id.as_str()).cloned();
        let Some(job) = found else { return Ok(None) };
        let block = self.ask("query-block-jobs", json!({})).await?;
        let block = block
            .as_array()
            .into_iter()
            .flatten()
            .find(|job| job["device"] == id.as_str())
            .cloned()
            .unwrap_or_default();
        Ok(Some(Job {
            done: job["current-progress"].as_u64().unwrap_or(0),
            total: job["total-progress"].as_u64().unwrap_or(0),
            ready: block["ready"] == true,
            paused: block["paused"] == true,
            concluded: job["status"] == "concluded",
            error: job["error"].as_str().map(str::to_owned),
        }))
    }

    async fn has_node(&self, name: &str) -> Result<bool> {
        Ok(!self.node(name).await?.is_null())
    }

    /// A node by its name; nothing where there is none.
    async fn node(&self, name: &str) -> Result<Value> {
        let nodes = self.ask("query-named-block-nodes", json!({ "flat": true })).await?;
        Ok(nodes
            .as_array()
            .into_iter()
            .flatten()
            .find(|node| node["node-name"] == name)
            .cloned()
            .unwrap_or_default())
    }

    /// Of each disk whether the machine has it at its new place.
    pub(super) async fn moved(&self, migration: &Migration) -> Result<Vec<bool>> {
        let mut moved = Vec::new();
        for number in 0..migration.disks.len() {
            moved.push(self.is_pivoted(number).await?);
        }
        Ok(moved)
    }

    /// Whether a device of the machine has the new disk.
    async fn is_pivoted(&self, number: usize) -> Result<bool> {
        let devices = self.ask("query-block", json!({})).await?;
        let has = |device: &Value| device["inserted"]["node-name"] == home_node(number).as_str();
        Ok(devices.as_array().is_some_and(|devices| devices.iter().any(has)))
    }

    async fn ask(&self, command: &str, arguments: Value) -> Result<Value> {
        self.qmp.execute(command, arguments, ANSWER_MAX).await
    }
}

fn ended_by_another() -> Error {
    Error::new(Kind::Io, "QEMU's copying was ended by somebody else").remedy("begin it again")
}

/// A new disk as QEMU opens it.
fn node_of(home: &Home, format: HomeFormat, name: &str) -> Result<Value> {
    let below = ends::place(home)?;
    Ok(json!({ "driver": format.name(), "node-name": name, "discard": "unmap", "file": below }))
}
