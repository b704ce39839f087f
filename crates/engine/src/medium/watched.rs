//! A medium that remembers what was synced.
//!
//! Durable is what a sync was asked for and has answered: of a file its content as it was when the sync began, of a folder its
//! names as they were then. Nothing else: the name of a file is not durable because the file is, nor a folder's because what is in it is.
//! One thing is taken for granted that file systems with a journal keep: a rename happens or does not. So what has a durable
//! name in one folder has none in another any more.

use super::image::{Image, Inode, Names, names};
use super::loss::Loss;
use crate::file::planted;
use parking_lot::{Condvar, Mutex};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stonefold_dice::Dice;

/// Contents remembered before those are forgotten that no name leads to.
const CONTENTS_MAX: usize = 256;

thread_local! {
    static WATCHING: RefCell<Option<Arc<Medium>>> = const { RefCell::new(None) };
}

/// Which syncs count for how long the power lasts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Counted {
    /// All.
    All,
    /// Those of folders below one of this name: few, and each of them after a rename.
    FoldersIn(&'static str),
}

impl Counted {
    fn counts(self, inode: Inode, descriptor: &Path) -> bool {
        match self {
            Counted::All => true,
            Counted::FoldersIn(name) => {
                let path = fs::read_link(descriptor).unwrap_or_default();
                let above = path.parent().unwrap_or(&path);
                inode.is_folder && above.components().any(|part| part.as_os_str() == name)
            }
        }
    }
}

/// What lies below a folder, as a loss of power would leave it.
pub(crate) struct Medium {
    root: PathBuf,
    state: Mutex<State>,
    /// Jobs of threads that work for those who are watched.
    jobs: Mutex<usize>,
    idle: Condvar,
}

#[derive(Default)]
struct State {
    durable: Image,
    /// Which sync made a file or a folder what it is in `durable`: of two at once the one that began later holds.
    made_by: HashMap<Inode, u64>,
    /// Syncs that were begun.
    begun: u64,
    /// Syncs that are still answered, and which of them count.
    syncs_left: Option<(u64, Counted)>,
    /// The power is lost: this is what the kernel had then.
    lost: Option<Image>,
}

impl Medium {
    /// Of a folder, in which everything is durable.
    pub(crate) fn new(root: &Path) -> Arc<Medium> {
        let durable = Image::of(root, true).expect("a folder that can be read");
        let state = Mutex::new(State { durable, ..State::default() });
        Arc::new(Medium { root: root.into(), state, jobs: Mutex::new(0), idle: Condvar::new() })
    }

    /// Looks on while this thread works, and those that work for it; or no more.
    pub(crate) fn watch(medium: Option<Arc<Medium>>) {
        WATCHING.set(medium);
    }

    /// Lets the power go when so many more of these syncs have been answered: the next one finds it gone. `None`: not any more.
    pub(crate) fn lose_after(&self, syncs: Option<(u64, Counted)>) {
        self.state.lock().syncs_left = syncs;
    }

    /// Lets the power go now.
    pub(crate) fn lose(&self) {
        self.lose_in(&mut self.state.lock());
    }

    fn lose_in(&self, state: &mut State) {
        if state.lost.is_none() {
            state.lost = Some(Image::of(&self.root, true).expect("a folder that can be read"));
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.state.lock().lost.is_some()
    }

    /// What happened to names in the folder itself, by somebody who is no process that dies, is durable.
    pub(crate) fn settle_root(&self) {
        let own = Inode::of(&fs::metadata(&self.root).expect("the folder"));
        let names = names(&self.root).expect("a folder that can be read");
        self.state.lock().durable.folders.insert(own, names);
    }

    /// The power is back: makes the folder hold what was left, by dice where it was in doubt, once nobody works in it any more.
    pub(crate) fn come_back(&self, dice: &mut Dice) {
        self.wait_until_idle();
        let mut state = self.state.lock();
        let live = state.lost.take().expect("the power was lost");
        Loss::of(&state.durable, &live, dice).lay_out(&self.root).expect("a folder that can be written");
        *state = State {
            durable: Image::of(&self.root, true).expect("a folder that can be read"),
            begun: state.begun,
            ..State::default()
        };
    }

    /// Waits until threads have ended what they were about.
    pub(crate) fn wait_until_idle(&self) {
        let mut jobs = self.jobs.lock();
        while *jobs > 0 {
            self.idle.wait(&mut jobs);
        }
    }

    fn begin(self: &Arc<Self>, file: &File) -> io::Result<Syncing> {
        let mut state = self.state.lock();
        let inode = Inode::of(&file.metadata()?);
        // Read anew: the descriptor may be for writing only, or around the page cache, and its file without a name.
        let again = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        match state.syncs_left {
            Some((left, counted)) if counted.counts(inode, &again) => match left {
                0 => self.lose_in(&mut state),
                _ => state.syncs_left = Some((left - 1, counted)),
            },
            _ => {}
        }
        check(&state)?;
        state.begun += 1;
        let seen = match inode.is_folder {
            true => Seen::Names(names(&again)?),
            false => Seen::Content(fs::read(&again)?.into()),
        };
        Ok(Syncing(Some((self.clone(), state.begun, inode, seen))))
    }
}

fn check(state: &State) -> io::Result<()> {
    match state.lost {
        Some(_) => Err(io::Error::other("the power is lost")),
        None => Ok(()),
    }
}

impl State {
    fn end(&mut self, begun: u64, inode: Inode, seen: Seen) {
        let made_by = self.made_by.entry(inode).or_default();
        if *made_by > begun {
            return;
        }
        *made_by = begun;
        match seen {
            Seen::Content(bytes) => drop(self.durable.files.insert(inode, bytes)),
            Seen::Names(names) => self.name(inode, names),
        }
    }

    fn name(&mut self, folder: Inode, names: Names) {
        let before = self.durable.folders.insert(folder, names.clone()).unwrap_or_default();
        for (name, inode) in names {
            if before.get(&name) == Some(&inode) {
                continue;
            }
            // It was moved here.
            for (other, names) in &mut self.durable.folders {
                if *other != folder {
                    names.retain(|_, named| *named != inode);
                }
            }
        }
    }
}

/// What a sync is to make durable.
enum Seen {
    Content(Arc<[u8]>),
    Names(Names),
}

/// A sync on its way.
pub(crate) struct Syncing(Option<(Arc<Medium>, u64, Inode, Seen)>);

/// To be called before a file or a folder is synced; fails when the power is lost.
pub(crate) fn begin(file: &File) -> io::Result<Syncing> {
    let watching = WATCHING.with_borrow(Clone::clone);
    watching.map_or(Ok(Syncing(None)), |medium| medium.begin(file))
}

impl Syncing {
    /// To be called when the sync has been answered.
    pub(crate) fn end(self) -> io::Result<()> {
        let Some((medium, begun, inode, seen)) = self.0 else { return Ok(()) };
        let mut state = medium.state.lock();
        check(&state)?;
        state.end(begun, inode, seen);
        if state.durable.files.len() > CONTENTS_MAX {
            let mut named = Image::of(&medium.root, false)?.named();
            named.extend(state.durable.named());
            state.durable.files.retain(|inode, _| named.contains(inode));
            state.made_by.retain(|inode, _| inode.is_folder || named.contains(inode));
        }
        Ok(())
    }
}

/// A job for another thread, which does it for whoever is watched here, with the bug that is planted here.
pub(crate) fn carried(job: impl FnOnce() + Send + 'static) -> impl FnOnce() + Send + 'static {
    let (watching, bug) = (WATCHING.with_borrow(Clone::clone), planted::planted());
    let working = watching.clone().map(Working::new);
    move || {
        WATCHING.set(watching);
        planted::plant(bug);
        job();
        WATCHING.set(None);
        drop(working);
    }
}

/// A job that is not over.
struct Working(Arc<Medium>);

impl Working {
    fn new(medium: Arc<Medium>) -> Self {
        *medium.jobs.lock() += 1;
        Working(medium)
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        *self.0.jobs.lock() -= 1;
        self.0.idle.notify_all();
    }
}
