//! The room in a pool's directories, and what each of them is.

use super::members::Members;
use super::roster::State;
use super::view::View;
use crate::Room;
use crate::directories::{Directory, DirectoryState};
use std::fs;
use std::path::Path;
use stonefold_types::Result;

/// The pool is told to be bounded by a directory when the others have room for at least a tenth more.
const BOUNDS_FROM: u64 = 10;

/// The room of a member that counts.
struct Roomy {
    seat: usize,
    receives: bool,
    device: u64,
    room: Room,
}

impl Members {
    /// Room for objects, each counted once however many copies it has. Objects spread evenly, so the member with
    /// the least room says how much is left; members that share a file system share its room. Where a directory is
    /// being drained, what lies on it takes room of the others.
    pub(super) async fn room(&self) -> Result<Room> {
        let view = self.view();
        let rooms = rooms(&view).await?;
        let copies = view.copies_now().max(1) as u64;
        let used: u64 = rooms.iter().map(|one| one.room.used_bytes).sum();
        let leaving: u64 = rooms.iter().filter(|one| !one.receives).map(|one| one.room.used_bytes).sum();
        let receiving: Vec<&Roomy> = rooms.iter().filter(|one| one.receives).collect();
        let total: u64 = receiving.iter().map(|one| one.room.total_bytes / sharing(&receiving, one)).sum();
        let least = receiving.iter().map(|one| free(&receiving, one)).min().unwrap_or(0);
        let free_bytes = least.saturating_mul(receiving.len() as u64).saturating_sub(leaving);
        Ok(Room {
            raw_bytes: total,
            total_bytes: total / copies,
            free_bytes: free_bytes / copies,
            used_bytes: used / copies,
        })
    }

    /// See [`crate::Directories::states`].
    pub(super) async fn directories(&self) -> Result<Vec<Directory>> {
        let view = self.view();
        // Where none can be asked, each is told to be damaged.
        let rooms = rooms(&view).await.unwrap_or_default();
        let receiving: Vec<&Roomy> = rooms.iter().filter(|one| one.receives).collect();
        let least = receiving.iter().map(|one| free(&receiving, one)).min().unwrap_or(0);
        let uneven = receiving.iter().any(|one| free(&receiving, one) > least + least / BOUNDS_FROM);
        let mut directories = Vec::new();
        for (seat, entry) in view.roster.members.iter().enumerate() {
            let there = view.present()[seat].as_ref();
            let Some(state) = state(entry.state, there.is_some()) else { continue };
            let roomy = rooms.iter().find(|one| one.seat == seat);
            // It counts still, because nothing was written to it since it failed.
            let state = if entry.state.counts() && roomy.is_none() { DirectoryState::Damaged } else { state };
            let room = roomy.map(|one| one.room).unwrap_or_default();
            directories.push(Directory {
                medium: there.map(|member| medium(member.path())).unwrap_or_default(),
                dir: entry.dir.clone(),
                state,
                used_bytes: room.used_bytes,
                free_bytes: room.free_bytes,
                total_bytes: room.total_bytes,
                bounds: uneven && roomy.is_some_and(|one| one.receives && free(&receiving, one) == least),
            });
        }
        Ok(directories)
    }
}

fn state(state: State, there: bool) -> Option<DirectoryState> {
    Some(match state {
        State::Gone => return None,
        State::Current => DirectoryState::Sound,
        State::Joining => DirectoryState::Filling,
        State::Leaving => DirectoryState::Draining,
        State::Left => DirectoryState::Emptying,
        State::Dropped | State::Lost if there => DirectoryState::Damaged,
        State::Dropped | State::Lost => DirectoryState::Missing,
    })
}

/// The room of those that can be asked. One that is gone, or whose medium fails, is left out: its state tells of it.
///
/// # Errors
/// When none can be asked.
async fn rooms(view: &View) -> Result<Vec<Roomy>> {
    let asked = view.current().map(|(seat, member)| async move {
        let (device, room) = member.room().await?;
        Ok(Roomy { seat, receives: view.receives(seat), device, room })
    });
    let (mut rooms, mut failed) = (Vec::new(), None);
    for one in futures::future::join_all(asked).await {
        match one {
            Ok(roomy) => rooms.push(roomy),
            Err(error) => failed = Some(error),
        }
    }
    match failed {
        Some(error) if rooms.is_empty() => Err(error),
        _ => Ok(rooms),
    }
}

/// How many members share a file system.
fn sharing(all: &[&Roomy], one: &Roomy) -> u64 {
    all.iter().filter(|other| other.device == one.device).count().max(1) as u64
}

/// A member's part of what is free on its file system, in bytes.
fn free(all: &[&Roomy], one: &Roomy) -> u64 {
    one.room.free_bytes / sharing(all, one)
}

/// The file system that a directory lies on, and what that lies on: "ext4 on /dev/sdb1"; empty where that cannot be told.
pub(super) fn medium(dir: &Path) -> String {
    let Ok(dir) = fs::canonicalize(dir) else { return String::new() };
    let Ok(mounts) = fs::read_to_string("/proc/self/mountinfo") else { return String::new() };
    let mut best: Option<(usize, String)> = None;
    for line in mounts.lines() {
        // 36 35 98:0 /root /mount options … - type source options
        let Some((before, after)) = line.split_once(" - ") else { continue };
        let (Some(point), Some((kind, rest))) = (before.split(' ').nth(4), after.split_once(' ')) else {
            continue;
        };
        let point = unescape(point);
        if !dir.starts_with(&point) || best.as_ref().is_some_and(|(len, _)| *len > point.len()) {
            continue;
        }
        let source = unescape(rest.split(' ').next().unwrap_or_default());
        // Of two mounts on one place the later one is seen.
        best = Some((point.len(), format!("{kind} on {source}")));
    }
    best.map(|(_, medium)| medium).unwrap_or_default()
}

/// The kernel writes blanks and backslashes in octal.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_medium_of_a_directory_is_told() {
        assert!(
            medium(Path::new("/proc/self")).starts_with("proc on "),
            "{}",
            medium(Path::new("/proc/self"))
        );
        assert_eq!(medium(Path::new("/no/such/place")), "");
        assert_eq!(unescape("a\\040b\\134c"), "a b\\c");
    }
}
