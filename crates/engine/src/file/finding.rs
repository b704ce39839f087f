//! Looking for the directories of a pool: those that its URL names, and those that its record knows.
//!
//! The pool's URL need not name them all: who else belongs is in the roster, and so is where each was last found. Only a
//! pool that was moved, or copied, must have all its directories named, lest a copy be opened together with parts of the
//! original.

use super::layout::Layout;
use super::member::Member;
use super::options::Options;
use super::planted;
use super::roster::{Entry, Roster, State};
use super::tombstone;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stonefold_env::Env;
use stonefold_types::{Error, Kind, Result};

/// A directory as it was found.
pub(super) enum Found {
    /// A member that knows its pool; whether it has its record twice.
    Member(Arc<Member>, Roster, bool),
    /// A directory that no pool has been made in, or not to its end, or one that has left its pool; whether it exists.
    Empty { exists: bool },
    /// It cannot be used now.
    Missing(Error),
    /// It was part of the pool once, and knows nothing that the others do not.
    Former,
}

impl Found {
    /// What is known of the pool; a pool that was never made to its end knows nothing.
    pub(super) fn roster(&self) -> Option<&Roster> {
        match self {
            Found::Member(_, roster, _) if roster.generation > 0 => Some(roster),
            _ => None,
        }
    }
}

/// Looks at the directories that are named, and at those that belong to the same pool.
pub(super) async fn find(env: &Env, options: &Options) -> Result<Vec<(PathBuf, Found)>> {
    let mut found = Vec::new();
    for dir in &options.dirs {
        found.push((dir.clone(), look(env, dir, options).await?));
    }
    complete(env, options, &mut found).await?;
    Ok(found)
}

/// The newest roster that was found.
pub(super) fn newest(found: &[(PathBuf, Found)]) -> Option<Roster> {
    let rosters = found.iter().filter_map(|(_, found)| found.roster());
    let newest = match planted::is("stale-roster-wins") {
        true => rosters.min_by_key(|roster| roster.generation),
        false => rosters.max_by_key(|roster| roster.generation),
    };
    newest.cloned()
}

/// Looks where the newest roster says that members are which the URL does not name.
async fn complete(env: &Env, options: &Options, found: &mut Vec<(PathBuf, Found)>) -> Result<()> {
    while let Some(newest) = newest(found) {
        let members = || newest.members.iter().filter(|entry| entry.state != State::Lost);
        let moved = |(dir, found): &(PathBuf, Found)| {
            let own = found.roster().map(|roster| roster.own);
            members().any(|entry| Some(entry.id) == own && entry.dir != *dir)
        };
        let is_found = |entry: &Entry, (dir, found): &(PathBuf, Found)| {
            entry.dir == *dir || found.roster().is_some_and(|roster| roster.own == entry.id)
        };
        let unnamed = members().find(|entry| !found.iter().any(|one| is_found(entry, one)));
        let Some(unnamed) = unnamed.filter(|_| !found.iter().any(moved)) else { break };
        let looked = match look(env, &unnamed.dir, options).await {
            Ok(Found::Member(_, roster, _)) if roster.pool != newest.pool => {
                Found::Missing(Error::new(Kind::Invalid, "another pool's directory is in its place"))
            }
            Ok(looked) => looked,
            Err(error) if error.kind() == Kind::Busy => return Err(error),
            Err(error) => Found::Missing(error),
        };
        found.push((unnamed.dir.clone(), looked));
    }
    Ok(())
}

async fn look(env: &Env, dir: &Path, options: &Options) -> Result<Found> {
    let layout = Layout { root: dir.to_path_buf() };
    let alone = options.dirs.len() == 1;
    // With others beside it a directory that fails may be done without; what is wrong with a lone one is said as it is.
    let missing = |error: Error| match error.kind() {
        Kind::Io | Kind::ReadOnly | Kind::Corrupt if !alone => Ok(Found::Missing(error)),
        _ => Err(error),
    };
    match tombstone::holds(&layout) {
        // No pool is made in it, and none is opened in it.
        Ok(true) => return Ok(Found::Empty { exists: true }),
        Ok(false) => {}
        Err(error) => return missing(error),
    }
    match layout.inspect(options.create || !alone) {
        Ok(true) => {}
        Ok(false) => return Ok(Found::Empty { exists: dir.exists() }),
        Err(error) => return missing(error),
    }
    let member = match Member::open(env, dir, options).await {
        Ok(member) => Arc::new(member),
        Err(error) => return missing(error),
    };
    match member.read_roster().await {
        Ok(Some((roster, twice))) => Ok(Found::Member(member, roster, twice)),
        // Its lock is taken again when it is made.
        Ok(None) => Ok(Found::Empty { exists: true }),
        Err(error) => missing(error),
    }
}
