//! Making, changing, removing and attaching disks.

use crate::attachment::Attachment;
use crate::clients::{Client, OWN};
use crate::disk::{Disk, State, View};
use crate::domains::DEFAULT;
use crate::heads::{gone_key, head_key};
use crate::overlay::Source;
use crate::planted;
use crate::reserve::promised_to;
use crate::snapshot::Snapshots;
use crate::status::{DamagedDisk, DiskInfo};
use crate::store::Store;
use std::sync::Arc;
use stonefold_format::head::{Base, Head, Lease};
use stonefold_format::ledger::LedgerRef;
use stonefold_format::record::{Change, Record};
use stonefold_format::snapshots::Commit;
use stonefold_types::{
    BLOCK_BYTES, DISK_BYTES_MAX, DiskSettings, Error, ExportName, Kind, Name, Result, Size, SnapshotName,
};

/// What a disk is when it is made.
pub(crate) struct Beginning {
    pub(crate) id: u64,
    pub(crate) domain: u16,
    /// What it is a clone of, for people.
    pub(crate) origin: Option<SnapshotName>,
    /// Of what it shares: what was born up to there is the other disk's.
    pub(crate) base: Option<Base>,
    pub(crate) commit: Commit,
    /// Its first epoch: nothing that it maps was born later.
    pub(crate) epoch: u64,
    /// Where the ledger tells of the references that are its own.
    pub(crate) changes: Vec<LedgerRef>,
}

impl Beginning {
    /// Zeros.
    fn empty(id: [u8; 8], domain: u16) -> Self {
        let (id, commit) = (u64::from_le_bytes(id), Commit::default());
        Beginning { id, domain, origin: None, base: None, commit, epoch: 1, changes: Vec::new() }
    }

    /// A snapshot; its epochs follow that one's.
    pub(crate) fn clone_of(id: [u8; 8], domain: u16, from: SnapshotName, base: Base, commit: Commit) -> Self {
        let (epoch, base) = (base.epoch + 1, Some(base));
        Beginning { epoch, base, commit, origin: Some(from), ..Beginning::empty(id, domain) }
    }

    /// Whether it takes after another disk.
    fn has_a_past(&self) -> bool {
        self.base.is_some() || !self.commit.root.is_hole()
    }
}

impl Store {
    /// Makes a disk of zeros in the predefined domain.
    pub async fn create_disk(
        &self,
        name: &Name,
        size_bytes: u64,
        settings: DiskSettings,
    ) -> Result<DiskInfo> {
        check_size(name, size_bytes)?;
        self.add_disk(name, size_bytes, settings, Beginning::empty(self.env.random(), DEFAULT)).await
    }

    /// The same, or in another domain, with a [number](DiskInfo::number) that the caller has drawn, so that he knows the disk for his own
    /// whatever becomes of this call. A number is drawn for one disk only.
    pub async fn create_disk_as(
        &self,
        domain: Option<&Name>,
        name: &Name,
        size_bytes: u64,
        settings: DiskSettings,
        number: u64,
    ) -> Result<DiskInfo> {
        check_size(name, size_bytes)?;
        let domain = domain.map_or(Ok(DEFAULT), |domain| self.domain_id(domain))?;
        self.add_disk(name, size_bytes, settings, Beginning::empty(number.to_le_bytes(), domain)).await
    }

    /// Makes a disk of zeros in a domain, where it stays.
    pub async fn create_disk_in(
        &self,
        domain: &Name,
        name: &Name,
        size_bytes: u64,
        settings: DiskSettings,
    ) -> Result<DiskInfo> {
        check_size(name, size_bytes)?;
        let domain = self.domain_id(domain)?;
        self.add_disk(name, size_bytes, settings, Beginning::empty(self.env.random(), domain)).await
    }

    pub(crate) async fn add_disk(
        &self,
        name: &Name,
        size_bytes: u64,
        mut settings: DiskSettings,
        begins: Beginning,
    ) -> Result<DiskInfo> {
        self.check_open()?;
        let _no_class_goes = self.qos.changing.lock().await;
        // Nor a domain; this one may have gone before.
        self.domains.check_there(begins.domain)?;
        match self.qos.check_class(&settings.qos) {
            // A clone takes after its disk, whose class may have been lost.
            Err(_) if begins.has_a_past() => settings.qos = DiskSettings::default().qos,
            checked => checked?,
        }
        // What was promised was promised to the disk, not to clones of it.
        settings.reserve &= !begins.has_a_past();
        let reserve = settings.reserve;
        if reserve {
            self.check_promise(name, size_bytes, 0).await?;
        }
        if let Some(why) = self.damage.of(name) {
            let what = format!("disk '{name}' exists already, although {}", why.what());
            return Err(Error::new(Kind::AlreadyExists, what).remedy("choose another name"));
        }
        let head = Head {
            id: begins.id,
            domain: begins.domain,
            name: name.clone(),
            created: self.env.wall(),
            size_bytes,
            settings,
            lease: Lease::default(),
            origin: begins.origin,
            // Records before its birth are not its own.
            folded_lsn: self.journal.next_lsn() - 1,
            commit: begins.commit,
            base: begins.base,
            next_snapshot_id: begins.epoch,
            reclaimed: 0,
            changes: begins.changes,
            deaths: Vec::new(),
            directories: Vec::new(),
            recent: Vec::new(),
        };
        let (key, bytes) = (head_key(name), head.encode());
        let version = match self.engine.put_new(&key, bytes.clone().into()).await {
            Ok(version) => version,
            Err(error) if error.kind() == Kind::AlreadyExists => {
                let what = format!("disk '{name}' exists already");
                return Err(Error::new(Kind::AlreadyExists, what)
                    .remedy("choose another name, or remove that disk first"));
            }
            // An error does not say whether it happened: what is stored does.
            Err(error) => match self.engine.get(&key).await {
                Ok((found, version)) if found == bytes => version,
                _ => return Err(error.context(format!("creating disk '{name}'"))),
            },
        };
        let disk = Disk::from_head(key, head, version, Snapshots::default());
        let class = disk.state.lock().settings.qos.clone();
        self.qos.assign(&disk.flow, class.as_str());
        self.disks.lock().insert(name.clone(), disk.clone());
        if reserve {
            self.look_at_room().await;
        }
        Ok(self.describe(&disk))
    }

    /// All disks, by name.
    pub fn disks(&self) -> Vec<DiskInfo> {
        self.all_disks().iter().map(|disk| self.describe(disk)).collect()
    }

    /// Disks that nobody can use, because their heads cannot be read, by name.
    pub fn damaged_disks(&self) -> Vec<DamagedDisk> {
        let all = self.damage.disks().into_iter();
        all.map(|disk| DamagedDisk { name: disk.name, why: disk.why }).collect()
    }

    /// One disk. Fails with `Corrupt` when its head cannot be read.
    pub fn disk(&self, name: &Name) -> Result<DiskInfo> {
        self.find(name).map(|disk| self.describe(&disk))
    }

    /// Changes a disk's settings to what `change` makes of them, one call after another; they hold for what is written from now on,
    /// its class of service for what waits already, too.
    pub async fn set_disk(
        &self,
        name: &Name,
        change: impl FnOnce(DiskSettings) -> DiskSettings,
    ) -> Result<DiskInfo> {
        let disk = self.find(name)?;
        let _no_other_change = self.qos.changing.lock().await;
        let (before, size_bytes) = {
            let state = disk.state.lock();
            (state.settings.clone(), state.size_bytes)
        };
        let settings = change(before.clone());
        let class = settings.qos.clone();
        // One that it has already may be one that was lost: that must not keep anything else from being changed.
        if class != before.qos {
            self.qos.check_class(&class)?;
        }
        let changes = settings.reserve != before.reserve;
        if settings.reserve && changes {
            self.check_promise(name, size_bytes, 0).await?;
        }
        self.change_head(&disk, |head, _| head.settings = settings, |_| ()).await?;
        if changes {
            self.look_at_room().await;
        }
        self.qos.assign(&disk.flow, class.as_str());
        Ok(self.describe(&disk))
    }

    /// Changes a disk's size. What a smaller size cuts off is gone, so that it must be asked for (`shrink`), and is refused while
    /// clients are attached to the disk itself. Clients see a larger size when they next connect.
    pub async fn resize_disk(&self, name: &Name, size_bytes: u64, shrink: bool) -> Result<DiskInfo> {
        check_size(name, size_bytes)?;
        let disk = self.find(name)?;
        let _no_other_promise = self.qos.changing.lock().await;
        let promised = promised_to(&disk.state.lock());
        if promised > 0 && size_bytes > promised {
            self.check_promise(name, size_bytes, promised).await?;
        }
        let appended = {
            let mut state = disk.state.lock();
            state.check_not_barred()?;
            if size_bytes < state.size_bytes {
                check_shrinkable(name, &state, size_bytes, shrink)?;
            }
            let block_bytes = BLOCK_BYTES as u64;
            let lost = size_bytes / block_bytes..state.size_bytes.div_ceil(block_bytes);
            let mut encoded = Vec::new();
            let shrinks = !lost.is_empty() && !planted::is("shrink-keeps");
            if shrinks {
                let change = Change::Zero { block: lost.start, blocks: lost.end - lost.start };
                Record { of: disk.leased(), change }.encode(&mut encoded);
            }
            Record { of: disk.leased(), change: Change::Resize { size_bytes } }.encode(&mut encoded);
            let count = 1 + u32::from(shrinks);
            let appended = self.journal.append_records(&encoded, count)?;
            if shrinks {
                state.active.insert(lost, appended.lsn, Source::Zero);
            }
            state.active.note(appended.lsn, 0);
            state.active.note(appended.lsn + u64::from(count) - 1, 0);
            state.active.size_bytes = Some(size_bytes);
            state.size_bytes = size_bytes;
            appended
        };
        if promised > 0 {
            self.look_at_room().await;
        }
        self.durably(appended).await?;
        Ok(self.describe(&disk))
    }

    /// Removes a disk. Refused while clients are attached, clones of it are being made, or it has snapshots; clones of it live on.
    pub async fn remove_disk(&self, name: &Name) -> Result<()> {
        let disk = self.find(name)?;
        self.remove_found(&disk).await
    }

    /// The same of a disk of that [number](DiskInfo::number) alone; `NotFound` where the name is another's.
    pub async fn remove_disk_numbered(&self, name: &Name, number: u64) -> Result<()> {
        let disk = self.find(name)?;
        if disk.id != number {
            return Err(Error::new(Kind::NotFound, format!("disk '{name}' is another by now")));
        }
        self.remove_found(&disk).await
    }

    async fn remove_found(&self, disk: &Arc<Disk>) -> Result<()> {
        let name = &disk.name;
        // After any round that is under way, so that none writes the head anew.
        let _alone = self.folding.lock().await;
        // Another call may have removed it meanwhile, and the name may be that of another disk by now.
        let is_there = self.disks.lock().get(name).is_some_and(|found| Arc::ptr_eq(found, disk));
        if !is_there {
            return Err(Error::new(Kind::NotFound, format!("disk '{name}' has been removed meanwhile")));
        }
        {
            let mut state = disk.state.lock();
            self.check_none_locked(disk, &state)?;
            check_removable(&disk.name, &state)?;
            state.barred = Some(Error::new(Kind::NotFound, format!("disk '{name}' has been removed")));
        }
        let gone = match self.bury(disk).await {
            Ok(gone) => gone,
            Err((error, done)) => {
                let what = format!("disk '{name}' may have been removed: {}", error.what());
                let unclear = || Error::new(Kind::Busy, what).remedy("remove it again");
                let mut state = disk.state.lock();
                state.buried = done == Done::Perhaps;
                state.barred = if state.buried { Some(unclear()) } else { None };
                drop(state);
                return Err(error.context(format!("removing disk '{name}'")));
            }
        };
        self.gone.lock().push(gone);
        {
            // Once the head was gone another disk could be made with the name, and be here already.
            let mut disks = self.disks.lock();
            if disks.get(name).is_some_and(|found| Arc::ptr_eq(found, disk)) {
                disks.remove(name);
            }
        }
        let mut state = disk.state.lock();
        state.freeze(None);
        self.budget.give(state.frozen.drain(..).map(|layer| layer.budget_bytes).sum());
        Ok(())
    }

    /// Moves a disk's head to where reclaim finds it. From the first put on the disk is gone: an opening that finds both
    /// deletes the other. An error comes with what is known.
    async fn bury(&self, disk: &Arc<Disk>) -> std::result::Result<Arc<Disk>, (Error, Done)> {
        let key = gone_key(disk.id);
        let mut stored = disk.head.lock().await;
        self.settle_doubt(disk, &mut stored).await.map_err(|error| (error, Done::No))?;
        let (head, snapshots) = {
            let state = disk.state.lock();
            (disk.head(&state), state.snapshots.of_gone())
        };
        let bytes = head.encode();
        let version = match self.engine.put_new(&key, bytes.clone().into()).await {
            Ok(version) => version,
            // An error does not say whether it happened: what is stored does.
            Err(error) => match self.engine.get(&key).await {
                Ok((found, version)) if found == bytes => version,
                Err(gone) if gone.kind() == Kind::NotFound => return Err((error, Done::No)),
                _ => return Err((error, Done::Perhaps)),
            },
        };
        let old = head_key(&disk.name);
        if let Err(error) = self.engine.delete(&old).await {
            match self.engine.get(&old).await {
                Err(gone) if gone.kind() == Kind::NotFound => {}
                _ => return Err((error, Done::Perhaps)),
            }
        }
        Ok(Disk::from_head(key, head, version, snapshots))
    }

    /// Fails unless the disk's domain is open.
    pub(crate) fn check_domain(&self, disk: &Disk) -> Result<()> {
        self.domains.keyring.check(disk.domain).map_err(|e| e.context(format!("disk '{}'", disk.name)))
    }

    /// Fails with `Busy` while a client is attached to a disk or to one of its snapshots, and names it.
    pub fn check_no_clients(&self, name: &Name) -> Result<()> {
        let disk = self.find(name)?;
        let state = disk.state.lock();
        check_idle(name, &state)
    }

    /// Attaches a client to a disk, writable, or to a snapshot, read-only; one of this process.
    pub fn attach(self: &Arc<Self>, export: &ExportName) -> Result<Attachment> {
        self.attach_for(export, OWN.into())
    }

    /// The same for somebody else; `peer` says who, for people.
    pub fn attach_for(self: &Arc<Self>, export: &ExportName, peer: Arc<str>) -> Result<Attachment> {
        let disk = self.find(export.disk())?;
        let mut state = disk.state.lock();
        state.check_not_barred()?;
        // Under the disk's lock, under which shredding looks for clients.
        self.check_domain(&disk)?;
        let view = match export {
            ExportName::Disk(_) => View::Now,
            ExportName::Snapshot(name) => {
                let id = state.snapshot_named(&name.disk, &name.snapshot)?.id;
                state.snapshots.add_reader(id);
                View::Snapshot(id)
            }
        };
        let client = Client { peer, since: self.env.wall(), export: export.clone() };
        let client = state.clients.add(client);
        let size_bytes = state.size_of(view);
        drop(state);
        Ok(Attachment::new(self.clone(), disk, view, client, size_bytes))
    }
}

/// What is known of a change that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    /// It has not happened.
    No,
    /// Nobody knows, or half of it has.
    Perhaps,
}

/// Fails with `Busy` while a client is attached to the disk or to one of its snapshots.
pub(crate) fn check_idle(name: &Name, state: &State) -> Result<()> {
    debug_assert_eq!(state.clients.all().len(), state.clients.writers() + state.snapshots.readers());
    state.clients.check_none(&format!("disk '{name}'"), |_| true)
}

/// Fails with `Invalid` where shrinking was not asked for, and with `Busy` while a client is attached to the disk itself.
fn check_shrinkable(name: &Name, state: &State, size_bytes: u64, asked: bool) -> Result<()> {
    if !asked {
        let (now, new) = (Size(state.size_bytes), Size(size_bytes));
        let what = format!("disk '{name}' has {now}; {new} would throw away what lies beyond");
        return Err(Error::new(Kind::Invalid, what).remedy("if that is meant, ask for shrinking (--shrink)"));
    }
    // A guest whose disk ends in its midst is a broken guest. What we do with it ourselves takes the cut.
    state.clients.check_none(&format!("disk '{name}'"), Client::is_guest)
}

/// Fails with `Busy` while something needs the disk. One of which it is not known whether it was removed can be removed again.
fn check_removable(name: &Name, state: &State) -> Result<()> {
    if !state.buried {
        state.check_not_barred()?;
    }
    check_idle(name, state)?;
    if let Some((_, why)) = state.snapshots.list.lost().next() {
        return Err(why.clone().context(format!("disk '{name}' has snapshots that cannot be read")));
    }
    let snapshots = state.snapshots.live();
    if snapshots > 0 {
        let what = format!("disk '{name}' has {snapshots} snapshots");
        return Err(Error::new(Kind::Busy, what).remedy("remove its snapshots first"));
    }
    // Also of a snapshot that was removed meanwhile: nothing else says yet that the clone will need what it held.
    let clones = state.snapshots.held();
    if clones > 0 {
        let what = format!("{clones} clones of disk '{name}' are being made");
        return Err(Error::new(Kind::Busy, what)
            .remedy("try again when they are done; where making one failed, after a restart"));
    }
    Ok(())
}

fn check_size(name: &Name, size_bytes: u64) -> Result<()> {
    if size_bytes > 0 && size_bytes <= DISK_BYTES_MAX && size_bytes % BLOCK_BYTES as u64 == 0 {
        return Ok(());
    }
    let asked =
        if size_bytes % 1024 == 0 { Size(size_bytes).to_string() } else { format!("{size_bytes} bytes") };
    Err(Error::new(Kind::Invalid, format!("disk '{name}' cannot have a size of {asked}"))
        .remedy(format!("choose a multiple of 4K, from 4K to {}", Size(DISK_BYTES_MAX))))
}
