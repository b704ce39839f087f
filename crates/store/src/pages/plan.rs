//! What a disk's list of snapshots will be after a change: which pages and directories stay, and what the others will hold.
//!
//! Neither does I/O nor gives numbers. A page that changes is written anew; two neighbours that fit into one become one; what the head
//! has too many of goes behind the last page.

use super::{Directory, Edit};
use crate::snapshot::{Snapshot, Snapshots};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use stonefold_format::snapshots::{PageRef, SnapshotRecord};
use stonefold_types::Error;

/// A page is no longer than this, about, in bytes, unless one snapshot alone is: well below the bound of documents.
const PAGE_BYTES_MAX: usize = 256 << 10;
/// A head holds so many snapshots itself, as part of a page: more make each round's head longer, fewer have pages
/// written more often.
const RECENT_PART: usize = 8;

/// A part of a list: as it was, or to be written anew from these.
#[derive(Clone, Debug)]
pub(super) enum Planned<K, P> {
    Kept(K),
    Anew(Vec<P>),
}

pub(super) type PlannedPage = Planned<PageRef, SnapshotRecord>;

/// What the list will be, without numbers.
pub(super) struct Plan {
    pub(super) directories: Vec<Planned<Directory, PlannedPage>>,
    pub(super) lost: Arc<BTreeMap<u64, (PageRef, Error)>>,
    pub(super) recent: Vec<SnapshotRecord>,
    pub(super) replaced: Vec<u64>,
}

pub(super) fn plan(now: &Snapshots, edit: &Edit, page_records: usize) -> Plan {
    let list = &now.list;
    let paged_up_to = list.paged_up_to();
    let mut planner = Planner { now, edit, page_records, replaced: Vec::new() };
    let mut recent = planner.records(paged_up_to + 1, u64::MAX);
    let spills = recent.len() > (page_records / RECENT_PART).max(1)
        || recent.iter().map(weight).sum::<usize>() > PAGE_BYTES_MAX;
    let spilled = if spills { std::mem::take(&mut recent) } else { Vec::new() };
    let touched: BTreeSet<u64> =
        edit.keys().chain(now.changed()).filter(|id| **id <= paged_up_to).copied().collect();
    let mut directories = Vec::new();
    for directory in &list.directories {
        let is_touched = touched.range(directory.at.first..=directory.at.last).next().is_some();
        directories.push(match is_touched && !list.is_lost(directory.at.number) {
            true => Planned::Anew(planner.pages(directory, &touched)),
            false => Planned::Kept(directory.clone()),
        });
    }
    planner.append(&mut directories, spilled);
    let directories = planner.settle_directories(directories);
    Plan { directories, lost: list.lost.clone(), recent, replaced: planner.replaced }
}

struct Planner<'a> {
    now: &'a Snapshots,
    edit: &'a Edit,
    page_records: usize,
    replaced: Vec<u64>,
}

impl Planner<'_> {
    /// Records as they will be, of what is materialised, with numbers from `first` to `last`.
    fn records(&self, first: u64, last: u64) -> Vec<SnapshotRecord> {
        if first > last {
            return Vec::new();
        }
        let edited = |s: &Snapshot| match self.edit.get(&s.id) {
            // Flags are always as of now.
            Some(Some(record)) => {
                Some(SnapshotRecord { removed: s.removed, locked_until: s.locked_until, ..record.clone() })
            }
            Some(None) => None,
            None => s.commit.map(|commit| s.record(commit)),
        };
        self.now.within(first..=last).filter_map(edited).collect()
    }

    fn is_lost(&self, number: u64) -> bool {
        self.now.list.is_lost(number)
    }

    /// The pages of a directory of which some change.
    fn pages(&mut self, directory: &Directory, touched: &BTreeSet<u64>) -> Vec<PlannedPage> {
        self.replaced.push(directory.at.number);
        let mut pages = Vec::new();
        for at in directory.pages.iter() {
            let page = match touched.range(at.first..=at.last).next() {
                Some(_) if !self.is_lost(at.number) => self.anew(at),
                _ => Planned::Kept(*at),
            };
            self.push_page(&mut pages, page);
        }
        pages
    }

    fn anew(&mut self, at: &PageRef) -> PlannedPage {
        self.replaced.push(at.number);
        Planned::Anew(self.records(at.first, at.last))
    }

    /// Adds a page behind others, together with the one before it where both are no more than one page then.
    fn push_page(&mut self, pages: &mut Vec<PlannedPage>, page: PlannedPage) {
        let half = |page: &PlannedPage| matches!(page, Planned::Anew(records) if records.len() * 2 <= self.page_records);
        let length = |page: &PlannedPage| match page {
            Planned::Kept(at) if self.is_lost(at.number) => usize::MAX / 2,
            Planned::Kept(at) => at.records as usize,
            Planned::Anew(records) => records.len(),
        };
        match pages.last() {
            Some(last)
                if (half(last) || half(&page)) && length(last) + length(&page) <= self.page_records =>
            {
                let last = pages.pop().expect("there is a last one");
                let (mut first, second) = (self.taken(last), self.taken(page));
                first.extend(second);
                pages.push(Planned::Anew(first));
            }
            _ => pages.push(page),
        }
    }

    fn taken(&mut self, page: PlannedPage) -> Vec<SnapshotRecord> {
        match page {
            Planned::Anew(records) => records,
            Planned::Kept(at) => {
                self.replaced.push(at.number);
                self.records(at.first, at.last)
            }
        }
    }

    /// Adds records that the head holds no more, behind all others.
    fn append(
        &mut self,
        directories: &mut Vec<Planned<Directory, PlannedPage>>,
        mut spilled: Vec<SnapshotRecord>,
    ) {
        if spilled.is_empty() {
            return;
        }
        let mut pages = match directories.pop() {
            Some(Planned::Anew(pages)) => pages,
            Some(Planned::Kept(directory)) if !self.is_lost(directory.at.number) => {
                self.replaced.push(directory.at.number);
                directory.pages.iter().copied().map(Planned::Kept).collect()
            }
            lost => {
                directories.extend(lost);
                Vec::new()
            }
        };
        let has_room = |page: &PlannedPage| match page {
            Planned::Kept(at) => !self.is_lost(at.number) && (at.records as usize) < self.page_records,
            Planned::Anew(records) => records.len() < self.page_records,
        };
        if pages.last().is_some_and(has_room) {
            let last = pages.pop().expect("there is a last one");
            let mut records = self.taken(last);
            records.append(&mut spilled);
            spilled = records;
        }
        pages.extend(cut(spilled, self.page_records).into_iter().map(Planned::Anew));
        directories.push(Planned::Anew(pages));
    }

    /// Cuts pages and directories that became too long, drops those that became empty, and joins short directories.
    fn settle_directories(
        &mut self,
        planned: Vec<Planned<Directory, PlannedPage>>,
    ) -> Vec<Planned<Directory, PlannedPage>> {
        let mut settled: Vec<Planned<Directory, PlannedPage>> = Vec::new();
        for directory in planned {
            let Planned::Anew(pages) = directory else {
                settled.push(directory);
                continue;
            };
            let mut pages: Vec<PlannedPage> =
                pages.into_iter().flat_map(|page| self.whole_pages(page)).collect();
            if let Some(Planned::Anew(before)) = settled.last_mut() {
                if before.len() + pages.len() <= self.page_records {
                    before.append(&mut pages);
                }
            }
            while !pages.is_empty() {
                let rest = pages.split_off(pages.len().min(self.page_records));
                settled.push(Planned::Anew(std::mem::replace(&mut pages, rest)));
            }
        }
        settled
    }

    fn whole_pages(&self, page: PlannedPage) -> Vec<PlannedPage> {
        match page {
            Planned::Kept(at) => vec![Planned::Kept(at)],
            Planned::Anew(records) => {
                cut(records, self.page_records).into_iter().map(Planned::Anew).collect()
            }
        }
    }
}

/// About the bytes of a record.
fn weight(record: &SnapshotRecord) -> usize {
    80 + record.name.as_str().len() + 20 * record.deaths.len()
}

/// Cuts records into pages.
fn cut(records: Vec<SnapshotRecord>, page_records: usize) -> Vec<Vec<SnapshotRecord>> {
    let mut pages: Vec<Vec<SnapshotRecord>> = Vec::new();
    let mut bytes = 0;
    for record in records {
        let more = weight(&record);
        match pages.last_mut() {
            Some(page) if page.len() < page_records && bytes + more <= PAGE_BYTES_MAX => {
                bytes += more;
                page.push(record);
            }
            _ => {
                bytes = more;
                pages.push(vec![record]);
            }
        }
    }
    pages
}
