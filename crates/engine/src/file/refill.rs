//! Making the members of a pool hold what they shall, before it is served.
//!
//! Some were there all along, and only a crash or rot can have set them apart; some come back after they were dropped,
//! or are new in place of one that was lost, and what they hold counts for nothing. Both are the same work: of each
//! object the newest sound copy goes to every member that shall have it, and what nobody shall have goes away. The
//! copies of a member that comes back are kept where they are the same put.

use super::durable::sync_file;
use super::header::SUMMED_BYTES_MAX;
use super::journal;
use super::member::{Member, Temporary, file_error};
use super::replay::files_of;
use super::replica::{FileNumber, ensure_folder};
use super::settle::{copy, fetch, is_put, newest};
use super::view::View;
use crate::{JournalId, Key};
use futures::future::{join_all, try_join_all};
use futures::stream::{FuturesUnordered, StreamExt};
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::sync::Arc;
use stonefold_types::Result;

/// Objects worked on at once: each may hold a segment in memory.
const AT_ONCE: usize = 4;

/// A member and what was found on it.
struct Surveyed {
    member: Arc<Member>,
    seat: usize,
    /// Whether its copies count.
    trusted: bool,
    objects: HashMap<Key, u64>,
}

/// What was done, and what is left to be done while the pool is served.
#[derive(Default)]
pub(super) struct Leveling {
    pub(super) copied_bytes: u64,
    /// Immutable objects with a copy less than they shall have.
    pub(super) short: Vec<Key>,
}

/// Makes every member of `next` hold what it shall; `untrusted` are the seats whose contents count for nothing. Where
/// there are none, segments that lack a copy can wait: any copy of a segment is as good as another.
pub(super) async fn level(next: &View, untrusted: &[usize]) -> Result<Leveling> {
    let surveys = next.current().map(|(seat, member)| async move {
        let (trusted, objects) = (!untrusted.contains(&seat), member.survey_all().await?);
        Ok(Surveyed { member: member.clone(), seat, trusted, objects })
    });
    let found = try_join_all(surveys).await?;
    let all: BTreeSet<&Key> = found.iter().flat_map(|one| one.objects.keys()).collect();
    let mut leveling = Leveling::default();
    let mut running = FuturesUnordered::new();
    for key in all {
        let Some(work) = leveled(next, &found, key) else { continue };
        if work.can_wait && untrusted.is_empty() {
            leveling.short.push(work.key);
            continue;
        }
        running.push(work.apply());
        if running.len() == AT_ONCE {
            leveling.copied_bytes += running.next().await.unwrap_or(Ok(0))?;
        }
    }
    while let Some(bytes) = running.next().await {
        leveling.copied_bytes += bytes?;
    }
    leveling.copied_bytes += level_journals(next, untrusted).await?;
    Ok(leveling)
}

/// What is to be done about a key; `None` when its copies are where they shall be, and cannot differ.
fn leveled(next: &View, found: &[Surveyed], key: &Key) -> Option<Leveled> {
    let has = |one: &&Surveyed| one.objects.contains_key(key);
    let targets = next.targets(key);
    let is_target = |one: &&Surveyed| targets.contains(one.seat);
    let known = found.iter().any(|one| one.trusted && has(&one));
    let members = |wanted: &dyn Fn(&&Surveyed) -> bool| -> Vec<Arc<Member>> {
        found.iter().filter(wanted).map(|one| one.member.clone()).collect()
    };
    let length = found.iter().find(|one| one.trusted && has(one)).and_then(|one| one.objects.get(key));
    let placed = found.iter().all(|one| is_target(&one) == has(&one));
    let same = found.iter().filter(is_target).all(|one| one.trusted && one.objects.get(key) == length);
    // A document may have been replaced here and not there; a segment is put once.
    let changes = length.is_none_or(|bytes| *bytes <= SUMMED_BYTES_MAX as u64);
    if known && placed && same && !changes {
        return None;
    }
    let excess = members(&|one| has(one) && !(known && is_target(one)));
    Some(Leveled {
        key: key.clone(),
        can_wait: known && !changes && excess.is_empty(),
        trusted: members(&|one| one.trusted && has(one)),
        targets: if known { members(&is_target) } else { Vec::new() },
        excess,
    })
}

/// One key: who has it now, and who shall.
struct Leveled {
    key: Key,
    /// It is immutable, and lies nowhere that it shall not.
    can_wait: bool,
    /// Members whose copies count.
    trusted: Vec<Arc<Member>>,
    /// Members that shall have it.
    targets: Vec<Arc<Member>>,
    /// Members that have something under this key and shall not.
    excess: Vec<Arc<Member>>,
}

impl Leveled {
    /// Makes the newest sound copy the one that every target has; returns the bytes copied.
    async fn apply(self) -> Result<u64> {
        let key = &self.key;
        let looks = join_all(self.trusted.iter().map(|member| member.look(key))).await;
        let Some((header, document)) = newest(looks.iter()) else {
            if self.trusted.is_empty() {
                // Left from before its member was dropped.
                try_join_all(self.excess.iter().map(|member| member.delete(key))).await?;
            }
            // Otherwise there is nothing sound to make anything from: whoever reads it is told.
            return Ok(0);
        };
        let holder = self.trusted.iter().zip(&looks).find(|(_, look)| is_put(look, header));
        let source = holder.map_or(&self.trusted[0], |(member, _)| member);
        let mut copied = 0;
        let mut payload = None;
        for target in &self.targets {
            if is_put(&target.look(key).await, header) {
                continue;
            }
            if payload.is_none() {
                payload = match fetch(source, key, header, document.as_ref()).await {
                    Ok(payload) => Some(payload),
                    Err(error) => {
                        tracing::warn!(%error, "object '{key}' stays with a copy less");
                        return Ok(copied);
                    }
                };
            }
            let payload = payload.clone().unwrap_or_default();
            copied += payload.len() as u64;
            copy(target, key, header, payload).await?;
        }
        for member in &self.excess {
            member.delete(key).await?;
        }
        Ok(copied)
    }
}

/// Makes every file of every journal lie on as many members as there are copies. That their chunks are the same is seen
/// to when they are replayed.
pub(super) async fn level_journals(next: &View, untrusted: &[usize]) -> Result<u64> {
    for seat in untrusted {
        let member = next.member(*seat);
        for id in member.journal_list().await? {
            journal::remove_from(member, id).await?;
        }
    }
    let mut copied = 0;
    for id in journal::list(next).await? {
        for (_, member) in next.current() {
            let by = member.clone();
            member.io.blocking(move || ensure_folder(&by, id)).await?;
        }
        for (number, seats) in files_of(next, id).await?.unwrap_or_default() {
            let lacking = next.copies_now().saturating_sub(seats.len());
            let turn = next.journal_targets(id, number.number);
            let others = next.current().map(|(seat, _)| seat);
            let mut candidates: Vec<usize> = turn.into_iter().chain(others).collect();
            candidates.retain(|seat| !seats.contains(seat));
            for to in candidates.into_iter().take(lacking) {
                copied += copy_journal_file(next.member(seats[0]), next.member(to), id, number).await?;
            }
        }
    }
    Ok(copied)
}

async fn copy_journal_file(
    from: &Arc<Member>,
    to: &Arc<Member>,
    id: JournalId,
    number: FileNumber,
) -> Result<u64> {
    let source = from.layout.journal(id).join(number.name());
    let (by, folder) = (to.clone(), to.layout.journal(id));
    let copied = to.io.blocking(move || {
        let mut temporary = Temporary { path: by.temporary_path(), kept: false };
        let failed = |e| file_error("copying journal file", &source, e);
        let bytes = fs::copy(&source, &temporary.path).map_err(failed)?;
        fs::File::open(&temporary.path).and_then(|file| sync_file(&file)).map_err(failed)?;
        fs::rename(&temporary.path, folder.join(number.name())).map_err(failed)?;
        temporary.kept = true;
        by.count_bytes(0, bytes);
        by.sync_folder_now(&folder)?;
        Ok(bytes)
    });
    copied.await
}
