//! Disks of a domain of libvirt's on other people's storage, read as they were at one instant while its guest writes on: libvirt's own backups
//! in pull mode, and its checkpoints.
//!
//! *Order*: a document names the socket and the files that libvirt will make; the backup begins, with a checkpoint at the same instant; what is exported
//! is read; the job is ended, which removes those files, and the document goes. Of a domain that does not run the images are read. *Promises*: what a
//! server left that died in the midst is taken out with a later round; a run ends before what the guest overwrites meanwhile finds no
//! more room, since its write would fail. *Never*: ends a job, or removes a checkpoint, that is not ours.

mod checkpoints;
mod images;
mod release;
mod xml;

pub(crate) use checkpoints::Checkpoints;

use crate::catalog::{self, Entry, Unknown};
use crate::copying::{Guest, Live, Reading};
use crate::domain::{Domain, DomainDisk};
use crate::hypervisor::{AgentPlace, Virsh, socket_folder};
use crate::nbd::{Address, Client, Place};
use crate::origin::Origin;
use crate::sources::LibvirtDomain;
use crate::{Hardware, Point, Protection, Source, image};
use images::{Images, check_room};
use release::boot_id;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use stonefold_env::{Env, WallNanos};
use stonefold_types::{Error, Kind, Name, Result};
use tempfile::TempDir;
use xml::BackedUp;

/// How long an NBD server may say nothing that owes an answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked whether a job that was ended has gone, and how long after the last time.
const RELEASES_MAX: u32 = 50;
const AGAIN: Duration = Duration::from_millis(100);
/// A run is not begun with less room than this, in bytes, where the guest's overwritten blocks go, and ends where it is down to half of it.
const ROOM_BYTES_MIN: u64 = 2 << 30;
/// How often that is looked at: a guest that fills half of it meanwhile would write 5 GiB a second.
const LOOK_AT_ROOM: Duration = Duration::from_millis(200);
/// How often it is looked whether a domain that did not run does.
const LOOK_AT_DOMAIN: Duration = Duration::from_secs(5);

/// The document of a backup that a domain is in, `domain-backups/SOURCE`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DomainBackup {
    pub(crate) source: Name,
    pub(crate) uri: String,
    /// Its UUID.
    pub(crate) domain: String,
    /// Where it is read.
    pub(crate) socket: PathBuf,
    /// What libvirt keeps meanwhile.
    pub(crate) scratches: Vec<PathBuf>,
    /// The kernel's number for its life: no job outlives that.
    pub(crate) boot: String,
    /// Trusted time, nanoseconds since 1970.
    pub(crate) begun: WallNanos,
    #[serde(flatten)]
    pub(crate) unknown: Unknown,
}

impl Entry for DomainBackup {
    const FAMILY: &'static str = "domain-backups";
    const NOUN: &'static str = "the backup of a domain for source";
    const LISTED_BY: &'static str = "stonefold source ls";

    fn key(&self) -> String {
        self.source.to_string()
    }
}

/// A domain's disks as they were, to be read.
pub(crate) struct Pulled {
    pub(crate) disks: Vec<Reading>,
    /// Its description, or why that is not known.
    pub(crate) hardware: Result<Hardware>,
    kept: Kept,
}

/// What it takes to read them.
enum Kept {
    /// Of one that does not run.
    Images(Images),
    /// Of one that runs.
    Job(Box<Job>),
}

/// A backup that a domain is in.
struct Job {
    backup: DomainBackup,
    checkpoints: Checkpoints,
    _folder: TempDir,
}

impl Pulled {
    /// The guest, where it runs and uses them on.
    pub(crate) fn guest(&self) -> Option<Guest> {
        match &self.kept {
            Kept::Job(job) => {
                Some(Guest::Libvirt { uri: job.backup.uri.clone(), domain: job.backup.domain.clone() })
            }
            Kept::Images(_) => None,
        }
    }

    /// Ends when it cannot be read on: there is hardly any room left for what the guest overwrites, or a domain that did not run does.
    pub(crate) async fn in_danger(&self, env: &Env) -> Error {
        loop {
            let (every, looked) = match &self.kept {
                Kept::Job(job) => {
                    env.sleep(LOOK_AT_ROOM).await;
                    (Duration::ZERO, check_room(&job.backup.scratches, ROOM_BYTES_MIN / 2).await)
                }
                Kept::Images(images) => (LOOK_AT_DOMAIN, images.check_still(env).await),
            };
            if let Err(error) = looked {
                return error;
            }
            env.sleep(every).await;
        }
    }

    /// Fails where what was read may not be what the disks held at one instant.
    pub(crate) async fn check_still(&self, env: &Env) -> Result<()> {
        match &self.kept {
            Kept::Job(_) => Ok(()),
            Kept::Images(images) => images.check_still(env).await,
        }
    }

    /// Why it cannot be read: where that is because its job is no more, it is said.
    pub(crate) async fn blamed(&self, env: &Env, error: Error) -> Error {
        let Kept::Job(job) = &self.kept else { return error };
        let DomainBackup { uri, domain, socket, .. } = &job.backup;
        let is_ours = |told: &String| xml::is_served_on(told, socket);
        match (Virsh { env, uri }).backup_of(domain).await {
            Ok(told) if !told.as_ref().is_some_and(is_ours) => {
                let what =
                    format!("domain '{domain}' was ended, or its backup by somebody else: {}", error.what());
                Error::new(error.kind(), what).remedy("run it again: what a bitmap has lost is compared")
            }
            _ => error,
        }
    }
}

impl Protection {
    /// Reads a domain's disks as they are now, for the run whose point is `stamp`. Whoever has it gives it back by
    /// [`unpull`](Self::unpull).
    pub(crate) async fn pull(
        &self,
        source: &Source,
        of: &LibvirtDomain,
        (stamp, last): (&Name, Option<&Point>),
        live: &Live,
    ) -> Result<Pulled> {
        let virsh = Virsh { env: &self.env, uri: &of.uri };
        if let Some(left) = catalog::find::<DomainBackup>(&self.store, source.name.as_str()).await? {
            self.release_domain(&left).await?;
        }
        let domain = virsh.uuid_of(&of.domain).await?;
        let hardware = virsh.describe(&domain, false).await.map(Hardware::Libvirt);
        let runs = virsh.state(&domain).await? == Some(true);
        let described = virsh.describe(&domain, runs).await?;
        let (described, user) = (Domain::parse(&described)?, xml::user(&described));
        let disks: Vec<DomainDisk> = described.disks.into_iter().filter(|disk| !disk.read_only).collect();
        if disks.is_empty() {
            let what = format!("domain '{}' has no disk that could be backed up", of.domain);
            return Err(Error::new(Kind::Invalid, what).remedy("look whether it is the right one"));
        }
        live.check()?;
        if live.has_it_stand && !runs {
            let what =
                format!("domain '{}' does not run, and no guest can be asked to stand still", of.domain);
            let remedy = "start it, or back it up as after a loss of power (crash)";
            return Err(Error::new(Kind::NotFound, what).remedy(remedy));
        }
        let (disks, kept) = if runs {
            let stamps = [Some(stamp), last.map(|point| &point.name.stamp)];
            let checkpoints = Checkpoints::of(&self.env, source, of, &domain, stamps);
            self.begin_domain_backup(source, of, (&disks, user), checkpoints, live).await?
        } else {
            self.read_images((&of.uri, &domain), &disks, last.is_some()).await?
        };
        Ok(Pulled { disks, hardware, kept })
    }

    /// The disks of a domain that does not run.
    async fn read_images(
        &self,
        (uri, domain): (&str, &str),
        disks: &[DomainDisk],
        has_last: bool,
    ) -> Result<(Vec<Reading>, Kept)> {
        let mut readings = Vec::new();
        let (mut served, mut seen) = (Vec::new(), Vec::new());
        for disk in disks {
            let path =
                disk.source.as_deref().filter(|path| Path::new(path).is_absolute()).ok_or_else(|| {
                    let what = format!("the domain does not run, and its disk '{}' is no file", disk.target);
                    Error::new(Kind::Unsupported, what).remedy("start the domain, and run it again")
                })?;
            // Before it is opened, and before it is asked once more whether the domain runs.
            seen.push(image::Seen::now(path).await?);
            let format = image::inspect(path, Some(&disk.format)).await?;
            let (from, one) = image::connect(&self.env, path, &format, PATIENCE).await?;
            let whole =
                has_last.then(|| "its domain does not run, and bitmaps are read where one does".into());
            readings.push(Reading { target: Name::new(&disk.target)?, from: Origin::Export(from), whole });
            served.push(one);
        }
        let images = Images { uri: uri.to_owned(), domain: domain.to_owned(), seen, _served: served };
        images.check_still(&self.env).await?;
        Ok((readings, Kept::Images(images)))
    }

    /// Begins the backup of a domain that runs; where that fails nothing of it is left.
    async fn begin_domain_backup(
        &self,
        source: &Source,
        of: &LibvirtDomain,
        (disks, user): (&[DomainDisk], Option<u32>),
        checkpoints: Checkpoints,
        live: &Live,
    ) -> Result<(Vec<Reading>, Kept)> {
        // Those of runs that were cut off tell nothing that is asked for.
        if let Err(error) = checkpoints.remove_but(checkpoints.last.as_deref()).await {
            tracing::warn!("source '{}': old checkpoints stay for now: {error}", source.name);
        }
        let marked = checkpoints.marked().await?;
        let disks: Vec<BackedUp> = disks
            .iter()
            .map(|disk| {
                let scratch = scratch_of(source, of, disk, &checkpoints.own)?;
                let keeps = disk.format == "qcow2";
                let is_known = keeps && marked.contains(&disk.target);
                Ok(BackedUp { target: disk.target.clone(), scratch, keeps, is_known })
            })
            .collect::<Result<_>>()?;
        let folder = socket_folder(&self.hypervisors.folder, user)?;
        let backup = DomainBackup {
            source: source.name.clone(),
            uri: of.uri.clone(),
            domain: checkpoints.domain.clone(),
            socket: folder.path().join("nbd.sock"),
            scratches: disks.iter().map(|disk| disk.scratch.clone()).collect(),
            boot: boot_id(),
            begun: self.store.time().trusted,
            unknown: Unknown::new(),
        };
        check_room(&backup.scratches, ROOM_BYTES_MIN).await?;
        self.change(catalog::put_new(&self.store, &backup)).await?;
        match self.begin_and_connect(&backup, disks, &checkpoints, live).await {
            Ok(readings) => {
                let job = Job { backup, checkpoints, _folder: folder };
                Ok((readings, Kept::Job(Box::new(job))))
            }
            Err(error) => {
                self.release_domain_or_tell(&backup).await;
                checkpoints.settle(false).await;
                Err(error)
            }
        }
    }

    async fn begin_and_connect(
        &self,
        backup: &DomainBackup,
        mut disks: Vec<BackedUp>,
        checkpoints: &Checkpoints,
        live: &Live,
    ) -> Result<Vec<Reading>> {
        let place = || AgentPlace::Libvirt(backup.uri.clone());
        let still =
            live.has_it_stand.then(|| self.standstill_of_guest(&backup.source, place(), &backup.domain));
        let begun = begin_as_far(checkpoints, backup, &mut disks);
        let mut whole = self.still_for(still.as_ref(), live, begun).await?;
        let mut readings = Vec::new();
        for disk in &disks {
            let address = Address { place: Place::Unix(backup.socket.clone()), export: disk.target.clone() };
            let bitmap = disk.is_known.then_some(xml::LOOKED_UP);
            let from = Client::connect(&self.env, &address, bitmap, PATIENCE).await?.with_its_bitmap()?;
            let whole = whole.remove(&disk.target);
            readings.push(Reading { target: Name::new(&disk.target)?, from: Origin::Export(from), whole });
        }
        Ok(readings)
    }

    /// Gives a domain back; its checkpoints are left, for whoever knows what became of the run.
    pub(crate) async fn unpull(&self, pulled: Pulled) -> Option<Checkpoints> {
        let Pulled { disks, kept, .. } = pulled;
        drop(disks);
        match kept {
            Kept::Images(_) => None,
            Kept::Job(job) => {
                self.release_domain_or_tell(&job.backup).await;
                Some(job.checkpoints)
            }
        }
    }

    /// Ends what keeps a domain in a backup, so that nothing it overwrites is kept any more; what reads it fails then.
    pub(crate) async fn end_pulling(&self, pulled: &Pulled) {
        if let Kept::Job(job) = &pulled.kept {
            self.release_domain_or_tell(&job.backup).await;
        }
    }
}

/// Begins a backup with as many bitmaps as there are: which disks are to be read whole, and why.
async fn begin_as_far(
    checkpoints: &Checkpoints,
    backup: &DomainBackup,
    disks: &mut [BackedUp],
) -> Result<BTreeMap<String, String>> {
    let mut whole: BTreeMap<String, String> = BTreeMap::new();
    if checkpoints.last.is_some() {
        for disk in disks.iter().filter(|disk| !disk.is_known) {
            let why = match disk.keeps {
                true => "it has no bitmap from then: libvirt knows of no checkpoint",
                false => "its image can have no bitmap, as qcow2 can",
            };
            whole.insert(disk.target.clone(), why.to_owned());
        }
    }
    while let Err(error) = begin(checkpoints, backup, disks).await {
        let complaint = error.what();
        if xml::knows_no_bitmaps(&complaint) && disks.iter().any(|disk| disk.keeps) {
            // It does not say which.
            for disk in disks.iter_mut() {
                if disk.is_known {
                    let why = "an image of its domain is qcow2 of version 2, which can have no bitmap";
                    whole.insert(disk.target.clone(), why.to_owned());
                }
                (disk.keeps, disk.is_known) = (false, false);
            }
            tracing::warn!("source '{}': no checkpoint is made: {error}", backup.source);
            continue;
        }
        let broken = xml::broken(&complaint);
        let broken = disks.iter_mut().find(|disk| disk.is_known && Some(disk.target.as_str()) == broken);
        let Some(disk) = broken else { return Err(error) };
        disk.is_known = false;
        whole.insert(
            disk.target.clone(),
            "its bitmap from then is lost or broken, as libvirt says".to_owned(),
        );
    }
    Ok(whole)
}

/// Asks libvirt to begin.
async fn begin(checkpoints: &Checkpoints, backup: &DomainBackup, disks: &[BackedUp]) -> Result<()> {
    let failed = |e| Error::io("describing a backup to libvirt", e);
    // Read by virsh, which is ours; it names where QEMU's socket will be.
    let mut made = tempfile::Builder::new();
    let folder = made.permissions(Permissions::from_mode(0o700)).tempdir().map_err(failed)?;
    let (asked, marked) = (folder.path().join("backup.xml"), folder.path().join("checkpoint.xml"));
    std::fs::write(&asked, xml::backup(&backup.socket, disks, checkpoints.last.as_deref()))
        .map_err(failed)?;
    let checkpoint = xml::checkpoint(&checkpoints.own, disks);
    if let Some(checkpoint) = &checkpoint {
        std::fs::write(&marked, checkpoint).map_err(failed)?;
    }
    let marked = checkpoint.is_some().then_some(&*marked);
    checkpoints.virsh().begin_backup(&backup.domain, &asked, marked).await
}

/// Where libvirt keeps what a guest overwrites of a disk: a name that no earlier run has left anything by.
fn scratch_of(source: &Source, of: &LibvirtDomain, disk: &DomainDisk, own: &str) -> Result<PathBuf> {
    let file = disk.source.as_deref().filter(|_| disk.is_file);
    match (&of.scratch, file) {
        (Some(folder), _) => Ok(folder.join(format!("{own}-{}.scratch", disk.target))),
        (None, Some(image)) => Ok(PathBuf::from(format!("{image}.{own}.scratch"))),
        (None, None) => {
            let what = format!(
                "the disk '{}' is no file, beside which libvirt could keep what the guest overwrites while it is read",
                disk.target
            );
            let remedy = format!("name a folder for that: source add {} … --scratch DIR", source.name);
            Err(Error::new(Kind::Invalid, what).remedy(remedy))
        }
    }
}
