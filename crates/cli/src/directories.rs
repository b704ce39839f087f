//! `stonefold pool add`, `drain`, `replace` and `cancel`: the pool's directories, changed while it is served.

use crate::context::Context;
use crate::failure::Failure;
use crate::waiting::wait_while;
use clap::Args;
use std::path::{Path, PathBuf};
use stonefold_api::{Directory, DirectoryState, Pool};
use stonefold_types::{Error, Kind, Size};

/// The work as the server tells of it.
const WORK: &str = "directories";

#[derive(Args)]
pub(crate) struct Add {
    /// An empty directory, or one that has left a pool, on a disk of its own, on the machine that serves the pool
    dir: PathBuf,
    #[command(flatten)]
    waiting: Waiting,
}

#[derive(Args)]
pub(crate) struct Drain {
    /// A directory of the pool
    dir: PathBuf,
    /// Keep it: what was brought elsewhere comes back
    #[arg(long)]
    cancel: bool,
    #[command(flatten)]
    waiting: Waiting,
}

#[derive(Args)]
pub(crate) struct Replace {
    /// A directory of the pool, whether it works or not
    old: PathBuf,
    /// An empty directory, or one that has left a pool, on the machine that serves the pool
    new: PathBuf,
    #[command(flatten)]
    waiting: Waiting,
}

#[derive(Args)]
pub(crate) struct Waiting {
    /// Return when it has begun, and not when it is done
    #[arg(long)]
    no_wait: bool,
}

/// What it shall have come to.
enum Goal<'a> {
    Used(&'a Path),
    /// `emptied`: it was there to be emptied.
    Gone {
        dir: &'a Path,
        emptied: bool,
    },
    Undone,
}

impl Add {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let dir = absolute(&self.dir)?;
        let begun = context.client()?.add_directory(&dir.to_string_lossy())?;
        self.waiting.answer(context, begun, &[Goal::Used(&dir)])
    }
}

impl Drain {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let (client, dir) = (context.client()?, absolute(&self.dir)?);
        if !self.cancel {
            let before = client.pool()?;
            let begun = client.drain_directory(&dir.to_string_lossy())?;
            let gone = Goal::gone(&dir, &before);
            return self.waiting.answer(context, begun, &[gone]);
        }
        let drained = |one: &Directory| Path::new(&one.dir) == dir && one.state == DirectoryState::Draining;
        if !client.pool()?.directories.iter().any(drained) {
            let what = format!("'{}' is not being drained", dir.display());
            return Err(Error::new(Kind::NotFound, what)
                .remedy("'stonefold pool status' shows what is")
                .into());
        }
        let begun = client.cancel_directories()?;
        self.waiting.answer(context, begun, &[Goal::Used(&dir)])
    }
}

impl Replace {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let (old, new) = (absolute(&self.old)?, absolute(&self.new)?);
        let client = context.client()?;
        let before = client.pool()?;
        let begun = client.replace_directory(&old.to_string_lossy(), &new.to_string_lossy())?;
        let in_place = [Goal::Used(&new)];
        let goals = [Goal::gone(&old, &before), Goal::Used(&new)];
        self.waiting.answer(context, begun, if old == new { &in_place } else { &goals })
    }
}

impl Waiting {
    /// Takes the change under way back.
    pub(crate) fn cancel(self, context: &Context) -> Result<(), Failure> {
        let begun = context.client()?.cancel_directories()?;
        self.answer(context, begun, &[Goal::Undone])
    }

    fn answer(self, context: &Context, begun: Pool, goals: &[Goal<'_>]) -> Result<(), Failure> {
        if self.no_wait {
            return context.answer(&begun, || {
                "begun; it goes on in the server, and 'stonefold pool status' shows how far it is\n"
                    .to_owned()
            });
        }
        let pool = wait_while(&context.client()?, WORK, is_changing, |pool| pool.directories_wait.clone())?;
        let wrong = goals.iter().find_map(|goal| goal.missed(&pool));
        if let Some(what) = wrong {
            return Err(Error::new(Kind::Conflict, what)
                .remedy("'stonefold pool status' shows what is used")
                .into());
        }
        context.answer(&pool, || {
            let mut text: String = goals.iter().map(Goal::told).collect();
            if let Some(url) = &pool.url {
                text.push_str(&format!("the pool is {url}: name that at its next start\n"));
            }
            text
        })
    }
}

impl<'a> Goal<'a> {
    /// `before` is the pool as it was when that was asked for.
    fn gone(dir: &'a Path, before: &Pool) -> Self {
        let lost = |one: &Directory| matches!(one.state, DirectoryState::Missing | DirectoryState::Damaged);
        let emptied = !before.directories.iter().any(|one| Path::new(&one.dir) == dir && lost(one));
        Goal::Gone { dir, emptied }
    }

    /// What it has come to instead.
    fn missed(&self, pool: &Pool) -> Option<String> {
        let used = |dir: &Path| pool.directories.iter().any(|one| Path::new(&one.dir) == dir);
        match self {
            Goal::Used(dir) if !used(dir) => {
                Some(format!("'{}' is no directory of the pool: that was taken back", dir.display()))
            }
            Goal::Gone { dir, .. } if used(dir) => {
                Some(format!("'{}' is a directory of the pool still: that was taken back", dir.display()))
            }
            _ => None,
        }
    }

    fn told(&self) -> String {
        match self {
            Goal::Used(dir) => {
                format!("'{}' is a directory of the pool, and holds what it shall\n", dir.display())
            }
            Goal::Gone { dir, emptied: false } => format!(
                "'{}' has left the pool; it could not be used, so what lies there was not removed: the pool ignores it, and \
                 whoever wants to use it again empties it first\n",
                dir.display()
            ),
            Goal::Gone { dir, emptied: true } => {
                format!(
                    "'{}' has left the pool, and nothing lies there but a note ('left') that says so\n",
                    dir.display()
                )
            }
            Goal::Undone => "all is as it was before\n".to_owned(),
        }
    }
}

fn is_changing(pool: &Pool) -> bool {
    use DirectoryState::{Draining, Emptying, Filling};
    pool.work.iter().any(|work| work.what == WORK)
        || pool.directories.iter().any(|one| matches!(one.state, Filling | Draining | Emptying))
}

/// As the shell means it, for a server on this machine.
fn absolute(dir: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(dir)
        .map_err(|e| Failure::Misuse(Error::io(format!("finding '{}'", dir.display()), e)))
}

/// The directories, a line each, for the pool's status.
pub(crate) fn lines(pool: &Pool) -> String {
    let percent = pool.work.iter().find(|work| work.what == WORK).map(|work| match work.total_bytes {
        0 => 0,
        total => work.done_bytes * 100 / total,
    });
    let mut lines: Vec<String> = pool.directories.iter().map(|one| line(one, percent)).collect();
    lines.extend(pool.directories_wait.iter().map(|why| format!("waiting: {why}")));
    lines.join("\n")
}

fn line(one: &Directory, percent: Option<u64>) -> String {
    let so_far = percent.map(|percent| format!(" {percent}%")).unwrap_or_default();
    let state = match one.state {
        DirectoryState::Ok => "ok".to_owned(),
        DirectoryState::Filling => format!("filling{so_far}"),
        DirectoryState::Draining => format!("draining{so_far}"),
        DirectoryState::Emptying => "being emptied".to_owned(),
        DirectoryState::Missing => return format!("{}: missing", one.dir),
        DirectoryState::Damaged => return format!("{}: damaged, see the log for why", one.dir),
    };
    let medium = if one.medium.is_empty() { String::new() } else { format!("; {}", one.medium) };
    let bounds = if one.bounds { "; has the least room, which bounds the pool" } else { "" };
    let (used, free, total) = (Size(one.used_bytes), Size(one.free_bytes), Size(one.total_bytes));
    format!("{}: {state}, {used} used, {free} of {total} free{medium}{bounds}", one.dir)
}
