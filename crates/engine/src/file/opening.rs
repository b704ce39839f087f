//! Opening a pool: which of its directories are there, which of these count, and which must be filled again.
//!
//! The newest roster found is believed. A member that it calls current holds everything that was acknowledged, whatever
//! generation its own record has: a change of membership is recorded everywhere before anything is acknowledged under
//! it. One that it calls dropped holds the past, and is filled from the others before it counts again. A member that
//! should be current and is not there may have gone on alone and know more than those that are: then the pool is not
//! opened unless the operator says so (`degraded`), and from then on the others are right.
//!
//! Two members that have each gone on without the other are two histories; nobody but the operator can say which is
//! to be kept.
//!
//! What the URL names and is no part of the pool any more is left out with a warning, because a server must start after
//! somebody drained a directory and forgot to edit a file. Where nothing else is named, it does not: a directory that has
//! left says so ([`super::tombstone`]), and no pool is made there.

use super::finding::{self, Found};
use super::member::Member;
use super::members::Members;
use super::options::Options;
use super::planted;
use super::refill;
use super::roster::{Entry, MEMBERS_MAX, Roster, State};
use super::tombstone;
use super::view::View;
use crate::Key;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stonefold_env::Env;
use stonefold_types::{Error, Kind, Result};

/// Opens the pool in these directories, or makes it where they are empty or absent.
pub(super) async fn open(env: Env, options: &Options) -> Result<Arc<Members>> {
    let found = finding::find(&env, options).await?;
    match finding::newest(&found) {
        Some(newest) => Opening { env, options, newest, found }.open().await,
        None => make(env, options, found).await,
    }
}

/// Makes a pool. Every directory is told of all the others before any is told that the pool is made.
async fn make(env: Env, options: &Options, found: Vec<(PathBuf, Found)>) -> Result<Arc<Members>> {
    if options.dirs.len() > MEMBERS_MAX {
        let why = format!("{} directories are named, a pool has {MEMBERS_MAX} at most", options.dirs.len());
        return Err(Error::new(Kind::Invalid, why).remedy("name fewer"));
    }
    let copies = options.copies_to_make()?;
    tombstone::check_none(found.iter().map(|(dir, _)| dir.as_path()))?;
    for (dir, found) in found {
        match found {
            Found::Missing(error) => return Err(error),
            _ if !options.create => {
                let why = format!("'{}' holds no pool", dir.display());
                return Err(Error::new(Kind::NotFound, why).remedy("correct the path"));
            }
            _ => {}
        }
    }
    let entry = |dir: &PathBuf| Entry { id: env.random(), since: 1, state: State::Current, dir: dir.clone() };
    let members: Vec<Entry> = options.dirs.iter().map(entry).collect();
    let making = Roster {
        pool: env.random(),
        generation: 0,
        nonce: env.random(),
        own: members[0].id,
        copies: copies as u16,
        members,
    };
    let mut seats = Vec::new();
    for dir in &options.dirs {
        seats.push(Some(Arc::new(Member::open(&env, dir, options).await?)));
    }
    let made = View::new(making.next(env.random()), seats.clone());
    View::new(making, seats).record().await?;
    made.record().await?;
    let dirs: Vec<String> = options.dirs.iter().map(|dir| format!("'{}'", dir.display())).collect();
    // Where a pool was expected, its disk may not be mounted.
    tracing::warn!("made a new, empty pool in {}, where there was none", dirs.join(" and "));
    Ok(Members::new(env, options, made))
}

/// A pool that exists.
struct Opening<'a> {
    env: Env,
    options: &'a Options,
    newest: Roster,
    found: Vec<(PathBuf, Found)>,
}

impl Opening<'_> {
    async fn open(mut self) -> Result<Arc<Members>> {
        self.check_histories()?;
        self.leave_out_former();
        self.check_copies()?;
        let mut next = self.newest.next(self.env.random());
        let seats = self.seats(&mut next);
        let absent = self.absent(&seats);
        let lags = self.lags(&next);
        let view = if !absent.is_empty() {
            self.check_spared(&absent)?;
            absent.iter().for_each(|(seat, _)| next.drop_member(*seat));
            let view = View::new(next, seats);
            view.record().await?;
            view
        } else if lags {
            let view = View::new(next, seats);
            // Good to have, and not needed: a pool on a full disk must open.
            if let Err(error) = view.record().await {
                tracing::warn!(%error, "a directory's record of the pool stays behind");
            }
            view
        } else {
            View::new(self.newest.clone(), seats)
        };
        for (seat, why) in absent {
            tracing::warn!("'{}' is given up: {why}", view.roster.members[seat].dir.display());
        }
        let (view, short) = self.level(view).await?;
        for entry in view.roster.dropped() {
            tracing::warn!("the pool runs without '{}', with fewer copies", entry.dir.display());
        }
        let members = Members::new(self.env, self.options, view);
        Self::tell_url(self.options, &members);
        members.heal_all_later(short);
        for (_, member) in members.view().current() {
            member.remove_tombstone().await;
        }
        Ok(members)
    }

    /// Whether a member's record is of an older generation, there only once, or tells of another directory.
    fn lags(&self, next: &Roster) -> bool {
        let behind = |found: &Found| match found {
            Found::Member(_, roster, twice) => {
                let current = next.members.iter().any(|entry| entry.state.counts() && entry.id == roster.own);
                current && !(*twice && roster.generation == self.newest.generation)
            }
            _ => false,
        };
        next.members != self.newest.members || self.found.iter().any(|(_, found)| behind(found))
    }

    fn check_copies(&self) -> Result<()> {
        let has = usize::from(self.newest.copies);
        let Some(asked) = self.options.copies.filter(|asked| *asked != has) else { return Ok(()) };
        let why = format!("the pool was made with copies={has}, not copies={asked}");
        Err(Error::new(Kind::Invalid, why).remedy(format!("write copies={has} in its URL, or leave it out")))
    }

    /// Everybody found must be of this pool, and of its one history.
    fn check_histories(&self) -> Result<()> {
        for (dir, found) in &self.found {
            let Some(roster) = found.roster() else { continue };
            let invalid = |why: &str, fix: &str| {
                let why = format!("directory '{}' {why}", dir.display());
                Err(Error::new(Kind::Invalid, why).remedy(fix))
            };
            if roster.pool != self.newest.pool {
                return invalid(
                    "and another that is named belong to different pools",
                    "name those of one pool",
                );
            }
            let Some(entry) = self.newest.members.iter().find(|entry| entry.id == roster.own) else {
                if self.knows_no_more(roster) {
                    continue;
                }
                let fix = "leave it out; to have it filled again, empty it first";
                return invalid("is no part of the pool any more, another took its place", fix);
            };
            let same = roster.generation == self.newest.generation && roster.nonce != self.newest.nonce;
            if same || (!entry.state.counts() && roster.generation >= entry.since) {
                let fix = "decide which is to be kept, empty the other (keep a copy of it), and open again";
                return invalid("and the others have each gone on alone: there are two histories", fix);
            }
        }
        Ok(())
    }

    /// Whether whoever wrote a record has done nothing without one that counts today: had it gone on alone, its record would
    /// say that it did without the others.
    fn knows_no_more(&self, roster: &Roster) -> bool {
        let counts_in = |roster: &Roster, id| roster.members.iter().any(|e| e.id == id && e.state.counts());
        let theirs = roster.members.iter().filter(|entry| entry.state.counts());
        roster.generation < self.newest.generation
            && theirs.into_iter().any(|entry| counts_in(&self.newest, entry.id))
    }

    /// What the URL names and is no part of the pool is not touched: the server is to start after a directory was drained or
    /// replaced, whether or not somebody has edited the URL.
    fn leave_out_former(&mut self) {
        for (dir, found) in &mut self.found {
            let own = match found {
                Found::Member(_, roster, _) => Some(roster.own),
                _ => None,
            };
            let by_id = self.newest.members.iter().any(|entry| Some(entry.id) == own);
            if by_id || own.is_none() && self.newest.members.iter().any(|entry| entry.dir == *dir) {
                continue;
            }
            tracing::warn!(
                "'{}' is no directory of the pool (any more) and is not used: leave it out of the pool's URL; \
                 or have it used with 'stonefold pool add', which takes an empty one",
                dir.display()
            );
            *found = Found::Former;
        }
    }

    /// Tells the URL that names all directories, where another was given.
    fn tell_url(options: &Options, members: &Members) {
        let view = members.view();
        let mut known: Vec<&PathBuf> = view.entries().map(|(_, entry)| &entry.dir).collect();
        let mut named: Vec<&PathBuf> = options.dirs.iter().collect();
        known.sort_unstable();
        named.sort_unstable();
        if known != named {
            tracing::warn!(
                "the pool's URL does not name just its directories; write it as {}",
                members.url()
            );
        }
    }

    /// Who sits where.
    fn seats(&self, next: &mut Roster) -> Vec<Option<Arc<Member>>> {
        let mut seats: Vec<Option<Arc<Member>>> = vec![None; next.members.len()];
        for (dir, found) in &self.found {
            let known = match found {
                Found::Member(member, roster, _) => {
                    let seat = next.members.iter().position(|entry| entry.id == roster.own);
                    seat.map(|seat| (seat, member))
                }
                _ => None,
            };
            if let Some((seat, member)) = known {
                next.members[seat].dir.clone_from(dir);
                seats[seat] = Some(member.clone());
            }
        }
        seats
    }

    /// Members that should be current and are not there, and why.
    fn absent(&self, seats: &[Option<Arc<Member>>]) -> Vec<(usize, String)> {
        let entries = self.newest.members.iter().enumerate();
        let absent = entries.filter(|(seat, entry)| entry.state.counts() && seats[*seat].is_none());
        absent.map(|(seat, entry)| (seat, self.why_absent(&entry.dir))).collect()
    }

    fn why_absent(&self, dir: &Path) -> String {
        match self.found.iter().find(|(named, _)| named == dir).map(|(_, found)| found) {
            None => "it is not named in the pool's URL, and the pool lies elsewhere than it did: name all its directories".into(),
            Some(Found::Former) => "what lies there is no part of the pool any more, another took its place".into(),
            Some(Found::Missing(error)) => error.what(),
            Some(Found::Empty { exists: false }) => "it does not exist".into(),
            Some(_) => "it is empty, as where nothing is mounted".into(),
        }
    }

    /// Whether the pool may be opened without these.
    fn check_spared(&self, absent: &[(usize, String)]) -> Result<()> {
        let dir = |seat: usize| format!("'{}'", self.newest.members[seat].dir.display());
        let each: Vec<_> = absent.iter().map(|(seat, why)| format!("{} ({why})", dir(*seat))).collect();
        let missing = format!("the pool is without its directory {}", each.join(" and "));
        let mut without = self.newest.clone();
        absent.iter().for_each(|(seat, _)| without.drop_member(*seat));
        if without.lacking() >= usize::from(self.newest.copies) {
            let why =
                format!("{missing}(and with {} copies some objects lie nowhere else)", self.newest.copies);
            return Err(
                Error::new(Kind::Io, why.trim()).remedy("bring it back, or restore the pool from a backup")
            );
        }
        if self.options.degraded {
            return Ok(());
        }
        let why = format!("{missing}, which may hold what the others do not");
        Err(Error::new(Kind::Io, why).remedy(
            "bring it back; or open with --degraded (degraded=yes in the URL): what only it has is lost then",
        ))
    }

    /// Fills whoever is there and does not count, unless the operator wants to be served at once. Returns the members
    /// then, and what is left to be healed while they serve.
    async fn level(&self, view: View) -> Result<(View, Vec<Key>)> {
        if view.copies() == 1 {
            return Ok((view, Vec::new()));
        }
        if view.is_changing() {
            // Objects are where either rule has them, and brought to where they shall lie while the pool is served. Whoever is
            // to be filled again waits: there would be a third rule.
            refill::level_journals(&view, &[]).await?;
            return Ok((view, Vec::new()));
        }
        let mut seats = view.present().to_vec();
        let mut next = view.roster.next(self.env.random());
        let mut refilled = Vec::new();
        for seat in (0..seats.len())
            .filter(|seat| view.roster.members[*seat].state == State::Dropped && !self.options.degraded)
        {
            if seats[seat].is_none() {
                let Some(successor) = self.succeed(&mut next, seat).await? else { continue };
                seats[seat] = Some(successor);
            }
            tracing::warn!("'{}' is filled again; this may take long", next.members[seat].dir.display());
            next.set(seat, State::Current);
            refilled.push(seat);
        }
        let next = View::new(next, seats);
        let leveling = match planted::is("not-filled-again") && !refilled.is_empty() {
            true => refill::Leveling::default(),
            false => refill::level(&next, &refilled).await?,
        };
        if leveling.copied_bytes > 0 {
            tracing::info!(leveling.copied_bytes, "the pool's directories hold the same again");
        }
        if refilled.is_empty() {
            return Ok((view, leveling.short));
        }
        next.record().await?;
        Ok((next, leveling.short))
    }

    /// An empty directory where a member was that is dropped, if it is to take its place.
    async fn succeed(&self, next: &mut Roster, seat: usize) -> Result<Option<Arc<Member>>> {
        let dir = next.members[seat].dir.clone();
        let empty = |(named, found): &(PathBuf, Found)| {
            *named == dir && matches!(found, Found::Empty { exists: true })
        };
        if !self.found.iter().any(empty) {
            return Ok(None);
        }
        if !self.options.replace.contains(&dir) {
            let dir = dir.display();
            tracing::warn!(
                "'{dir}' is empty: mount its disk; or have it filled as a new one with replace={dir}"
            );
            return Ok(None);
        }
        next.members[seat].id = self.env.random();
        Ok(Some(Arc::new(Member::open(&self.env, &dir, self.options).await?)))
    }
}
