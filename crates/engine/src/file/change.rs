//! Directories that come, go, or take the place of others, on command.
//!
//! Every command is one change of the roster: from then on there are two rules of where objects lie ([`super::view`]), and
//! [`super::moving`] brings them from the one to the other. The order of steps is what makes a crash harmless:
//!
//! 1. A new directory is made a member's, with a record of generation 0, which nobody takes for a pool's history: a
//!    directory that was *invited*. A crash leaves a directory that can be invited again.
//! 2. The next generation of the roster is recorded on every member that counts in it, the new one too. A crash leaves it
//!    on some; it is the newest, and so it holds for whoever opens the pool.
//! 3. Only then is anything placed by the new rule, and a tombstone of the directory's former life, which is void by now, is removed.
//!
//! One change at a time, because objects would lie by three rules otherwise. To take one back is the same change the other
//! way round: joining and leaving members change their parts, and the two rules stay what they are.

use super::layout::Layout;
use super::member::Member;
use super::members::Members;
use super::moving::{PARTS, misplaced};
use super::roster::{Entry, MEMBERS_MAX, Roster, State};
use super::view::View;
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stonefold_types::{Error, Kind, Result, Size};

/// Seats are told in one byte; a process that has seen more directories come and go than this begins anew.
const SEATS_MAX: usize = 200;
/// Room that a directory keeps beside what is brought to it, in bytes: for journals, and for what comes meanwhile.
const KEPT_BYTES: u64 = 32 << 20;

/// What a command wants to be the roster, and who sits in it.
struct Wanted {
    /// What it was made from.
    from: Arc<View>,
    roster: Roster,
    seats: Vec<Option<Arc<Member>>>,
}

impl Members {
    /// See [`crate::Directories::add`].
    pub(super) async fn add_directory(self: &Arc<Self>, dir: &Path) -> Result<()> {
        let _one = self.commanding.lock().await;
        let view = self.view();
        if let Some(seat) = view.seat_of(dir) {
            return match view.roster.members[seat].state {
                State::Leaving => self.turn_back(&view).await,
                State::Dropped | State::Lost => Err(taken(dir, "is a directory of the pool, which does without it now").remedy(
                    "mend it and restart the server to have it filled again, or name another in its place: stonefold pool replace OLD NEW",
                )),
                _ => Err(taken(dir, "is a directory of the pool already")),
            };
        }
        check_unchanging(&view)?;
        let mut wanted = self.wanted(&view);
        self.join(&mut wanted, dir).await?;
        self.begin(wanted).await
    }

    /// See [`crate::Directories::drain`].
    pub(super) async fn drain_directory(self: &Arc<Self>, dir: &Path) -> Result<()> {
        let _one = self.commanding.lock().await;
        let view = self.view();
        let seat = known(&view, dir)?;
        match view.roster.members[seat].state {
            State::Joining => return self.turn_back(&view).await,
            State::Leaving | State::Lost => return Ok(()),
            _ => check_unchanging(&view)?,
        }
        let mut wanted = self.wanted(&view);
        wanted.leave(seat);
        self.begin(wanted).await
    }

    /// See [`crate::Directories::replace`].
    pub(super) async fn replace_directory(self: &Arc<Self>, old: &Path, new: &Path) -> Result<()> {
        let _one = self.commanding.lock().await;
        let view = self.view();
        let seat = known(&view, old)?;
        check_unchanging(&view)?;
        let used = view.roster.members[seat].state.counts();
        if view.seat_of(new).is_some_and(|other| other != seat || used) {
            return Err(taken(new, "is a directory of the pool already").remedy("name an empty directory"));
        }
        let mut wanted = self.wanted(&view);
        if view.seat_of(new).is_some() {
            // What is at its path now is another directory: nothing there is the old one's any more.
            wanted.seats[seat] = None;
        }
        wanted.leave(seat);
        self.join(&mut wanted, new).await?;
        self.begin(wanted).await
    }

    /// See [`crate::Directories::cancel`].
    pub(super) async fn cancel_change(self: &Arc<Self>) -> Result<()> {
        let _one = self.commanding.lock().await;
        let view = self.view();
        if !view.is_changing() {
            let what = "no directory of the pool is being added, drained or replaced";
            return Err(Error::new(Kind::NotFound, what)
                .remedy("nothing is to be taken back; 'stonefold pool status' shows its directories"));
        }
        self.turn_back(&view).await
    }

    fn wanted(&self, view: &Arc<View>) -> Wanted {
        Wanted { from: view.clone(), roster: self.next(view), seats: view.present().to_vec() }
    }

    /// The other way round: what was to come goes, what was to go stays.
    async fn turn_back(self: &Arc<Self>, view: &Arc<View>) -> Result<()> {
        let mut wanted = self.wanted(view);
        let states: Vec<State> = wanted.roster.members.iter().map(|entry| entry.state).collect();
        for (seat, state) in states.into_iter().enumerate() {
            match state {
                State::Joining => wanted.roster.set(seat, State::Leaving),
                State::Leaving => wanted.roster.set(seat, State::Joining),
                State::Lost => wanted.roster.set(seat, State::Dropped),
                _ => {}
            }
        }
        self.hold(wanted).await
    }

    /// Invites a directory, and gives it a seat.
    async fn join(&self, wanted: &mut Wanted, dir: &Path) -> Result<()> {
        let members = wanted.roster.members.iter().filter(|entry| entry.state != State::Gone).count();
        if members >= MEMBERS_MAX {
            let what = format!("a pool has {MEMBERS_MAX} directories at most");
            return Err(Error::new(Kind::Invalid, what).remedy("replace one instead"));
        }
        if wanted.seats.len() >= SEATS_MAX {
            let what = "this server has seen too many directories come and go";
            return Err(Error::new(Kind::Invalid, what).remedy("restart it, and try again"));
        }
        check_place(wanted, dir)?;
        let member = Arc::new(Member::open(&self.env, dir, &self.options).await?);
        let since = wanted.roster.generation;
        let entry = Entry { id: self.env.random(), since, state: State::Joining, dir: dir.to_path_buf() };
        self.invite(&member, &wanted.roster, &entry).await?;
        wanted.roster.members.push(entry);
        wanted.seats.push(Some(member));
        Ok(())
    }

    /// Makes it known to a directory that it may become a member; whoever finds this alone knows nothing of the pool.
    async fn invite(&self, member: &Arc<Member>, roster: &Roster, entry: &Entry) -> Result<()> {
        let strange = |why: &str| {
            let what = format!("'{}' is not empty: {why}", member.path().display());
            Err(Error::new(Kind::Invalid, what).remedy("name an empty directory"))
        };
        match member.read_roster().await? {
            Some((found, _)) if found.generation > 0 || found.pool != roster.pool => {
                return strange("it is the directory of a pool");
            }
            _ => {}
        }
        if !member.survey_all().await?.is_empty() || !member.journal_list().await?.is_empty() {
            return strange("objects of a pool lie in it");
        }
        let mut invitation = Roster { generation: 0, ..roster.clone() };
        invitation.members.push(entry.clone());
        member.write_roster(&invitation, invitation.members.len() - 1).await
    }

    /// Begins a change that brings objects to other members, if these have room.
    async fn begin(self: &Arc<Self>, wanted: Wanted) -> Result<()> {
        let next = View::new(wanted.roster.clone(), wanted.seats.clone());
        if next.receivers() < next.copies() {
            let what = format!(
                "copies={} need as many directories, and {} would be left",
                next.copies(),
                next.receivers()
            );
            return Err(Error::new(Kind::Invalid, what).remedy("add another first, or replace it by another"));
        }
        check_room(&next).await?;
        self.hold(wanted).await
    }

    /// Lets a roster hold, unless something has changed meanwhile.
    async fn hold(self: &Arc<Self>, wanted: Wanted) -> Result<()> {
        let _held = self.changing.lock().await;
        if !Arc::ptr_eq(&wanted.from, &self.view()) {
            let what = "the pool's directories have changed meanwhile";
            return Err(
                Error::new(Kind::Conflict, what).remedy("look at 'stonefold pool status', and try again")
            );
        }
        let adopted = self.adopt(View::new(wanted.roster, wanted.seats)).await.map_err(|e| {
            e.context("recording the change of directories")
                .remedy("look at 'stonefold pool status' after a restart: where it was recorded, it goes on")
        })?;
        for (_, member) in adopted.current() {
            member.remove_tombstone().await;
        }
        Ok(())
    }

    /// The URL that names all directories of the pool.
    pub(super) fn url(&self) -> String {
        let view = self.view();
        let dirs: Vec<&PathBuf> = view
            .entries()
            .filter(|(_, entry)| entry.state != State::Lost)
            .map(|(_, entry)| &entry.dir)
            .collect();
        self.options.url(&dirs, view.copies())
    }
}

impl Wanted {
    /// A member is to go: with what lies on it brought elsewhere, or as it is where it is not used.
    fn leave(&mut self, seat: usize) {
        let used = self.roster.members[seat].state.counts();
        self.roster.set(seat, if used { State::Leaving } else { State::Lost });
    }
}

fn known(view: &View, dir: &Path) -> Result<usize> {
    view.seat_of(dir).ok_or_else(|| {
        let all: Vec<_> = view.entries().map(|(_, entry)| format!("'{}'", entry.dir.display())).collect();
        let what = format!("'{}' is no directory of the pool", dir.display());
        Error::new(Kind::NotFound, what).remedy(format!("name one of {}", all.join(", ")))
    })
}

fn taken(dir: &Path, what: &str) -> Error {
    Error::new(Kind::AlreadyExists, format!("'{}' {what}", dir.display()))
}

fn check_unchanging(view: &View) -> Result<()> {
    if view.is_changing() { Err(busy(view)) } else { Ok(()) }
}

fn busy(view: &View) -> Error {
    let doing = view.entries().filter(|(_, entry)| entry.state.changes()).map(|(_, entry)| {
        let doing = match entry.state {
            State::Joining => "being added",
            _ => "being drained",
        };
        format!("'{}' is {doing}", entry.dir.display())
    });
    let what = format!("the pool's directories are changing: {}", doing.collect::<Vec<_>>().join(", "));
    Error::new(Kind::Busy, what).remedy(
        "wait until that is done ('stonefold pool status'), or take it back with 'stonefold pool cancel'",
    )
}

/// A new directory must be there, empty, and apart from all others.
fn check_place(wanted: &Wanted, dir: &Path) -> Result<()> {
    let wrong = |what: String, fix: &str| Err(Error::new(Kind::Invalid, what).remedy(fix));
    if !dir.is_absolute() {
        return wrong(format!("'{}' is not an absolute path", dir.display()), "begin it with a slash");
    }
    let there = match fs::canonicalize(dir) {
        Ok(there) => there,
        Err(e) => {
            return Err(Error::io(format!("looking for the directory '{}'", dir.display()), e)
                .remedy("make it, and mount its disk there, on the machine that serves the pool"));
        }
    };
    let same = |one: &Path, other: &Path| match (fs::metadata(one), fs::metadata(other)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => false,
    };
    for (_, entry) in wanted.from.entries().filter(|(seat, _)| wanted.seats[*seat].is_some()) {
        let other = fs::canonicalize(&entry.dir).unwrap_or_else(|_| entry.dir.clone());
        let at = entry.dir.display();
        if same(&there, &other) {
            return wrong(format!("'{}' is the pool's directory '{at}'", dir.display()), "name another");
        }
        if there.starts_with(&other) || other.starts_with(&there) {
            let what =
                format!("'{}' and the pool's directory '{at}' lie one inside the other", dir.display());
            return wrong(what, "name a directory of its own, best on a disk of its own");
        }
    }
    let looked = Layout { root: dir.to_path_buf() }.inspect(true).map(drop);
    // One that is not there is most likely a disk that is not mounted.
    looked.map_err(|error| match error.kind() {
        Kind::Invalid => error.remedy("name an empty directory"),
        _ => error,
    })
}

/// Refuses a change whose receiving directories have no room for what would come to them.
async fn check_room(next: &View) -> Result<()> {
    let (mut comes, mut goes) = (HashMap::<usize, u64>::new(), HashMap::<usize, u64>::new());
    for part in 0..PARTS {
        for one in misplaced(next, part).await? {
            let bytes = one.bytes.next_multiple_of(4096) + 4096;
            one.lacking.iter().for_each(|seat| *comes.entry(*seat).or_default() += bytes);
            one.excess.iter().for_each(|seat| *goes.entry(*seat).or_default() += bytes);
        }
    }
    let mut devices: HashMap<u64, (u64, u64, u64, Vec<String>)> = HashMap::new();
    for (seat, member) in next.current() {
        let (device, room) = member.room().await?;
        let one = devices.entry(device).or_default();
        one.0 = room.free_bytes;
        one.1 += comes.get(&seat).copied().unwrap_or(0);
        one.2 += goes.get(&seat).copied().unwrap_or(0);
        if comes.contains_key(&seat) {
            one.3.push(format!("'{}'", member.path().display()));
        }
    }
    for (free, comes, goes, dirs) in devices.into_values() {
        if comes > goes && comes - goes + KEPT_BYTES > free {
            let what = format!(
                "there is no room: {} would come to {}, which has {} free ({} of it are kept)",
                Size(comes - goes),
                dirs.join(" and "),
                Size(free),
                Size(KEPT_BYTES)
            );
            return Err(Error::new(Kind::NoSpace, what).remedy(
                "add or name a larger directory, or remove disks or snapshots and run 'stonefold pool reclaim'",
            ));
        }
    }
    Ok(())
}
