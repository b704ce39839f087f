//! How a disk's list of snapshots is stored: the newest in its head, the others in pages, the pages in directories.
//!
//! *Promises*: neither a round of the fold nor a snapshot costs more behind 100,000 snapshots than behind one: each
//! writes the head, and now and then a page and a directory; a change of any snapshot writes its page, its directory and
//! the head. *Crash order*: what is new is put first, under numbers of its own, and nothing names it; then the head is
//! swapped, which makes all of it count at once; then what the head names no more is deleted. So a crash leaves objects
//! that nothing names, and nothing else; [`crate::sweep`] deletes them. *Never*: writes over a page.
//!
//! A page or a directory that cannot be read is *lost*: its snapshots cannot be seen, the disk is served without them, what they hold
//! stays ([`Snapshots::newest_up_to`] counts them), the head goes on naming it, and a later opening that can read it has
//! them again.
//!
//! Only who holds the fold's lock changes a list.

mod plan;

use crate::check::Checked;
use crate::disk::Disk;
use crate::planted;
use crate::snapshot::Snapshots;
use crate::store::Store;
use plan::{Planned, plan};
use std::collections::BTreeMap;
use std::sync::Arc;
use stonefold_engine::{Engine, Key};
use stonefold_format::head::Head;
use stonefold_format::snapshots::{
    PageRef, SnapshotRecord, decode_directory, decode_page, encode_directory, encode_page,
};
use stonefold_types::{Error, Kind, Result};

/// Pages read or put at one time.
const PAGES_ABREAST: usize = 16;
pub(crate) fn page_key(number: u64) -> Key {
    Key::new(format!("snapshots/{number:011x}"))
}

/// The number of a page by its key.
pub(crate) fn number_of(key: &Key) -> Option<u64> {
    key.as_str().strip_prefix("snapshots/").and_then(|id| u64::from_str_radix(id, 16).ok())
}

/// How records are to change, by id: as they will be, or `None` for those that go.
pub(crate) type Edit = BTreeMap<u64, Option<SnapshotRecord>>;

/// What a head says of its directories, and they of their pages.
#[derive(Clone, Default)]
pub(crate) struct StoredList {
    /// Oldest first.
    directories: Vec<Directory>,
    /// What cannot be read, by number; few, or none.
    lost: Arc<BTreeMap<u64, (PageRef, Error)>>,
}

#[derive(Clone)]
struct Directory {
    at: PageRef,
    /// Oldest first; none when it is lost.
    pages: Arc<Vec<PageRef>>,
}

impl StoredList {
    /// Snapshots with numbers up to this one are in pages, later ones in the head.
    pub(crate) fn paged_up_to(&self) -> u64 {
        self.directories.last().map_or(0, |directory| directory.at.last)
    }

    /// As the head names them.
    pub(crate) fn directories(&self) -> Vec<PageRef> {
        self.directories.iter().map(|directory| directory.at).collect()
    }

    /// What cannot be read, and why.
    pub(crate) fn lost(&self) -> impl Iterator<Item = &(PageRef, Error)> {
        self.lost.values()
    }

    /// All pages that can be read.
    pub(crate) fn pages(&self) -> Vec<PageRef> {
        let all = self.directories.iter().flat_map(|directory| directory.pages.iter());
        all.filter(|page| !self.lost.contains_key(&page.number)).copied().collect()
    }

    /// Numbers of all objects that the list consists of.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> {
        let of = |d: &Directory| {
            [d.at.number].into_iter().chain(d.pages.iter().map(|page| page.number)).collect::<Vec<_>>()
        };
        self.directories.iter().flat_map(of)
    }

    fn is_lost(&self, number: u64) -> bool {
        self.lost.contains_key(&number)
    }
}

/// Reads the list that a head names. Fails only when the engine does, and when a page is of a later version.
pub(crate) async fn load(engine: &dyn Engine, head: &Head) -> Result<Snapshots> {
    let mut lost = BTreeMap::new();
    let mut directories = Vec::new();
    for at in &head.directories {
        let read = read(engine, at, |bytes| decode_directory(bytes, head.id, at)).await?;
        let pages = read.unwrap_or_else(|why| {
            lost.insert(at.number, (*at, why));
            Vec::new()
        });
        directories.push(Directory { at: *at, pages: Arc::new(pages) });
    }
    let pages: Vec<PageRef> =
        directories.iter().flat_map(|directory| directory.pages.iter()).copied().collect();
    let mut records = Vec::new();
    for group in pages.chunks(PAGES_ABREAST) {
        let reads = group.iter().map(|at| read(engine, at, |bytes| decode_page(bytes, head.id, at)));
        for (at, read) in group.iter().zip(futures::future::try_join_all(reads).await?) {
            match read {
                Ok(found) => records.extend(found),
                Err(why) => drop(lost.insert(at.number, (*at, why))),
            }
        }
    }
    for (at, why) in lost.values() {
        let PageRef { first, last, records, .. } = at;
        tracing::error!(
            "{records} snapshots of disk '{}', with numbers from {first} to {last}, cannot be read: {why}",
            head.name
        );
    }
    records.extend_from_slice(&head.recent);
    Ok(Snapshots::loaded(StoredList { directories, lost: Arc::new(lost) }, records))
}

async fn read<T>(
    engine: &dyn Engine,
    at: &PageRef,
    decode: impl FnOnce(&[u8]) -> Result<T>,
) -> Result<std::result::Result<T, Error>> {
    let key = page_key(at.number);
    let found = match engine.get(&key).await {
        Ok((bytes, _)) => decode(&bytes),
        Err(error) => Err(error),
    };
    match found {
        Ok(found) => Ok(Ok(found)),
        Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::NotFound) => {
            Ok(Err(error.with_kind(Kind::Corrupt).remedy(format!("restore object '{key}' and start again"))))
        }
        Err(error) => Err(error.context(format!("reading '{key}'"))),
    }
}

/// Reads every page again. What was lost before is told; what was damaged since it was loaded is told, or, with `heal`, written
/// anew from memory.
pub(crate) async fn check(store: &Store, heal: bool, checked: &mut Checked) -> Result<()> {
    for disk in store.disks_and_gone() {
        // A round may put other pages in the place of these meanwhile.
        let _alone = store.folding.lock().await;
        let list = {
            let state = disk.state.lock();
            if state.check_not_barred().is_err_and(|why| why.kind() == Kind::NotFound) {
                continue;
            }
            state.snapshots.list.clone()
        };
        for (at, why) in list.lost() {
            let PageRef { first, last, records, .. } = at;
            let name = &disk.name;
            checked.problems.push(format!("{records} snapshots of disk '{name}', with numbers from {first} to {last}, cannot be read: {why}"));
        }
        let damaged = damaged(&*store.engine, disk.id, &list).await?;
        if !heal {
            let what = |(at, why): (PageRef, Error)| {
                format!(
                    "a page of {} snapshots of disk '{}' is damaged, and sound in memory: {why}",
                    at.records, disk.name
                )
            };
            checked.problems.extend(damaged.into_iter().map(what));
            continue;
        }
        if damaged.is_empty() {
            continue;
        }
        {
            let mut state = disk.state.lock();
            damaged.iter().for_each(|(at, _)| state.snapshots.renew(at.first..=at.last));
        }
        store.change_snapshots(&disk, Edit::new(), |_, _| (), |_| ()).await?;
        checked.healed += damaged.len() as u64;
    }
    Ok(())
}

/// The pages and directories that are not as they were loaded.
async fn damaged(engine: &dyn Engine, disk: u64, list: &StoredList) -> Result<Vec<(PageRef, Error)>> {
    let mut damaged = Vec::new();
    for directory in list.directories.iter().filter(|d| !list.is_lost(d.at.number)) {
        let at = &directory.at;
        let found = read(engine, at, |bytes| decode_directory(bytes, disk, at)).await?;
        damaged.extend(found.err().map(|why| (*at, why)));
    }
    for at in list.pages() {
        let found = read(engine, &at, |bytes| decode_page(bytes, disk, &at)).await?;
        damaged.extend(found.err().map(|why| (at, why)));
    }
    Ok(damaged)
}

/// A list that will be the disk's once a head names it.
pub(crate) struct Next {
    pub(crate) edit: Edit,
    pub(crate) list: StoredList,
    /// For the head.
    pub(crate) recent: Vec<SnapshotRecord>,
    /// What new pages say.
    pub(crate) written: Vec<SnapshotRecord>,
    /// Objects that were put for it.
    pub(crate) fresh: Vec<u64>,
    /// Objects that nothing will name then.
    pub(crate) replaced: Vec<u64>,
}

/// Puts whatever pages and directories the edited list needs anew; durable on return, and named by nothing yet. The caller
/// holds the fold's lock until a head names them.
pub(crate) async fn put(store: &Store, disk: &Disk, edit: Edit) -> Result<Next> {
    let planned = {
        let state = disk.state.lock();
        plan(&state.snapshots, &edit, store.options.snapshot_page_records)
    };
    let mut next = Next {
        edit,
        list: StoredList::default(),
        recent: planned.recent,
        written: Vec::new(),
        fresh: Vec::new(),
        replaced: planned.replaced,
    };
    let mut objects = Vec::new();
    let mut directories = Vec::new();
    for directory in planned.directories {
        match directory {
            Planned::Kept(directory) => directories.push(directory),
            Planned::Anew(pages) => directories.push(draw(store, disk.id, pages, &mut objects, &mut next)),
        }
    }
    next.list = StoredList { directories, lost: planned.lost };
    put_all(store, objects).await?;
    Ok(next)
}

/// Gives numbers to what is new in a directory, and draws it.
fn draw(
    store: &Store,
    disk: u64,
    pages: Vec<Planned<PageRef, SnapshotRecord>>,
    objects: &mut Vec<(Key, Vec<u8>)>,
    next: &mut Next,
) -> Directory {
    let mut object = |encode: &dyn Fn(u64) -> Vec<u8>| {
        let number = store.segments.next_id().0;
        objects.push((page_key(number), encode(number)));
        next.fresh.push(number);
        number
    };
    let mut refs = Vec::new();
    for page in pages {
        match page {
            Planned::Kept(at) => refs.push(at),
            Planned::Anew(records) => {
                let number = object(&|number| encode_page(disk, number, &records));
                refs.push(PageRef::of_records(number, &records));
                next.written.extend(records);
            }
        }
    }
    let number = object(&|number| encode_directory(disk, number, &refs));
    Directory { at: PageRef::of_pages(number, &refs), pages: Arc::new(refs) }
}

async fn put_all(store: &Store, objects: Vec<(Key, Vec<u8>)>) -> Result<()> {
    if planted::is("page-put-late") {
        let engine = store.engine.clone();
        store.env.spawn("late", async move {
            for (key, bytes) in objects {
                let _ = engine.put_new(&key, bytes.into()).await;
            }
        });
        return Ok(());
    }
    for group in objects.chunks(PAGES_ABREAST) {
        let puts = group.iter().map(|(key, bytes)| store.engine.put_new(key, bytes.clone().into()));
        futures::future::try_join_all(puts).await.map_err(|e| e.context("storing snapshots"))?;
    }
    Ok(())
}

/// Deletes objects that no head names. What cannot be deleted now is swept after the next start.
pub(crate) async fn forget(store: &Store, numbers: &[u64]) {
    for number in numbers {
        let _ = store.engine.delete(&page_key(*number)).await;
    }
}
