//! Where the database lies: a folder of a `dir:` target, or an ext4 that is made on any other and mounted for the run.
//!
//! *Owns*: the lab's own folder on the target, the mount, the loop device and nbdfuse; all of them are taken down in their
//! order, whatever happens. *Never*: makes a file system, or removes a folder, where something lies that is not the lab's own,
//! unless that was asked for.

mod devices;

use super::tools::{User, command, run};
use crate::lock::Lock;
use crate::target::{Opened, TargetSpec, refuse_memory};
use devices::{Device, Fuse, Loop, Mount};
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::{Path, PathBuf};
use stonefold_env::Env;
use stonefold_types::{Error, Kind, Result, Size};

/// The lab's folder in a `dir:` target.
const FOLDER: &str = "stonefold-lab-oltp";
/// What is in it and says whose it is.
const MARK: &str = "made-by-stonefold-lab";
/// The label of a file system that the lab has made.
const LABEL: &[u8] = b"stonefold-oltp";
/// Of an ext4 superblock (Linux, Documentation/filesystems/ext4/super.rst): where it lies, its magic and its label.
const SUPERBLOCK: usize = 1024;
const MAGIC: (usize, [u8; 2]) = (SUPERBLOCK + 0x38, [0x53, 0xef]);
const LABEL_AT: usize = SUPERBLOCK + 0x78;

/// See the module. Fields are dropped in their order.
pub(super) struct Place {
    /// Where the database goes; empty, and its server's user's.
    pub folder: PathBuf,
    /// What was used, in words.
    pub told: String,
    guard: Guard,
}

/// What is held while the database lies there.
enum Guard {
    Folder(Own),
    /// Whoever recovered it takes it down.
    Recovered,
    Mounted {
        mount: Mount,
        device: Option<Loop>,
        fuse: Option<Fuse>,
        _opened: Option<Box<Opened>>,
    },
}

impl Place {
    /// Makes it, on a target that takes `bytes`. `private` is a folder of this run.
    pub(super) fn new(
        env: &Env,
        spec: &TargetSpec,
        bytes: u64,
        destroy_data: bool,
        user: Option<User>,
        private: &Path,
    ) -> Result<Self> {
        match spec {
            TargetSpec::Directory(path) => in_folder(path, bytes, destroy_data, user),
            TargetSpec::Null => Err(Error::new(Kind::Invalid, "a database cannot lie on null:")
                .remedy("name dir:PATH, file:PATH, dev:PATH or an export")),
            _ => on_device(env, spec, bytes, destroy_data, user, private),
        }
    }

    /// Takes what was recovered as it is: its file system is mounted, and nothing is made.
    pub(super) fn of_recovered(
        env: &Env,
        spec: &TargetSpec,
        user: Option<User>,
        private: &Path,
    ) -> Result<Self> {
        if let TargetSpec::Directory(path) = spec {
            let path = fs::canonicalize(path);
            let path = path.map_err(|e| Error::io(format!("looking at what was recovered, {spec}"), e))?;
            let folder = path.join(FOLDER);
            reachable(&folder, user)?;
            let told = format!("a folder on {}", file_system(&path));
            return Ok(Place { folder, told, guard: Guard::Recovered });
        }
        DirBuilder::new()
            .recursive(true)
            .mode(0o711)
            .create(private)
            .map_err(|e| Error::io(format!("making '{}'", private.display()), e))?;
        let attached = Attached::new(env, spec, Opened::new(spec, 0)?, private)?;
        attached.mount(private).map_err(|e| e.context(format!("what was recovered, {spec}")))
    }

    /// Takes it down in good order. The database is gone then, but for one that was recovered.
    pub(super) fn close(self, env: &Env) -> Result<()> {
        match self.guard {
            Guard::Folder(Own { ref folder, .. }) => fs::remove_dir_all(folder)
                .map_err(|e| Error::io(format!("removing '{}'", folder.display()), e)),
            Guard::Recovered => Ok(()),
            Guard::Mounted { mount, device, fuse, _opened } => {
                mount.unmount(env)?;
                drop(device);
                fuse.map_or(Ok(()), |fuse| fuse.unmount(env))
            }
        }
    }
}

fn in_folder(path: &Path, bytes: u64, destroy_data: bool, user: Option<User>) -> Result<Place> {
    let failed = |doing: &str, path: &Path, e| Error::io(format!("{doing} '{}'", path.display()), e);
    fs::create_dir_all(path).map_err(|e| failed("making", path, e))?;
    // Programs are run elsewhere.
    let path = &fs::canonicalize(path).map_err(|e| failed("looking at", path, e))?;
    refuse_memory(path)?;
    let folder = path.join(FOLDER);
    let mark = folder.join(MARK);
    if folder.exists() {
        if !mark.exists() && !destroy_data {
            let what = format!("'{}' is there, and the lab has not made it", folder.display());
            return Err(Error::new(Kind::AlreadyExists, what)
                .remedy("name another folder, or say --destroy-data if what it holds may go"));
        }
        if mark.exists() {
            let _held = lock(&mark)?;
        }
        fs::remove_dir_all(&folder).map_err(|e| failed("removing", &folder, e))?;
    }
    let free = rustix::fs::statvfs(path).map_err(|e| failed("looking at", path, e.into()))?;
    let free = free.f_bavail * free.f_frsize;
    if free < bytes {
        let what = format!("'{}' has {} left, and the run needs {}", path.display(), Size(free), Size(bytes));
        return Err(Error::new(Kind::NoSpace, what).remedy("name a larger place, or fewer warehouses"));
    }
    DirBuilder::new().mode(0o700).create(&folder).map_err(|e| failed("making", &folder, e))?;
    File::create(&mark).map_err(|e| failed("making", &mark, e))?;
    let guard = Guard::Folder(Own { folder: folder.clone(), _lock: lock(&mark)? });
    give(&folder, user)?;
    reachable(&folder, user)?;
    let told = format!("a folder on {}", file_system(path));
    Ok(Place { folder, told, guard })
}

fn on_device(
    env: &Env,
    spec: &TargetSpec,
    bytes: u64,
    destroy_data: bool,
    user: Option<User>,
    private: &Path,
) -> Result<Place> {
    if !rustix::process::geteuid().is_root() {
        let what = format!("a file system on {spec} is made and mounted by root only");
        return Err(Error::new(Kind::Denied, what).remedy("run as root, or name a folder as dir:PATH"));
    }
    let mut opened = Opened::new(spec, bytes)?;
    if !destroy_data && !is_ours(&opened.beginning()?) {
        opened.check_own()?;
    }
    opened.grow()?;
    let attached = Attached::new(env, spec, opened, private)?;
    let label = String::from_utf8_lossy(LABEL);
    // Nothing is left to be written in the background while it is measured.
    let made = ["-q", "-F", "-m", "0", "-L", &label, "-E", "lazy_itable_init=0,lazy_journal_init=0"];
    run(command("mkfs.ext4", None).args(made).arg(attached.device.path()), None)?;
    let place = attached.mount(private)?;
    DirBuilder::new()
        .mode(0o700)
        .create(&place.folder)
        .map_err(|e| Error::io(format!("making '{}'", place.folder.display()), e))?;
    give(&place.folder, user)?;
    Ok(place)
}

/// A target as a block device. Fields are dropped in their order.
struct Attached {
    device: Device,
    fuse: Option<Fuse>,
    opened: Option<Box<Opened>>,
}

impl Attached {
    fn new(env: &Env, spec: &TargetSpec, opened: Opened, private: &Path) -> Result<Self> {
        match spec {
            // Held open exclusively it could not be mounted.
            TargetSpec::Device(path) => {
                drop(opened);
                Ok(Attached { device: Device::Whole(path.clone()), fuse: None, opened: None })
            }
            TargetSpec::File(path) => Ok(Attached {
                device: Device::Loop(Loop::over(path)?),
                fuse: None,
                opened: Some(Box::new(opened)),
            }),
            _ => {
                let fuse = Fuse::of(env, &spec.to_string(), &private.join("nbd"))?;
                let device = Device::Loop(Loop::over(&fuse.file())?);
                Ok(Attached { device, fuse: Some(fuse), opened: Some(Box::new(opened)) })
            }
        }
    }

    fn mount(self, private: &Path) -> Result<Place> {
        let mount = Mount::of(self.device.path(), &private.join("mount"))?;
        let folder = mount.folder.join("data");
        let told = format!("ext4 on {}", self.device.told(self.fuse.is_some()));
        let device = match self.device {
            Device::Loop(device) => Some(device),
            Device::Whole(_) => None,
        };
        Ok(Place {
            folder,
            told,
            guard: Guard::Mounted { mount, device, fuse: self.fuse, _opened: self.opened },
        })
    }
}

/// Whether a device begins with a file system that the lab has made.
pub(super) fn is_ours(beginning: &[u8]) -> bool {
    let has = |at: usize, what: &[u8]| beginning.get(at..at + what.len()) == Some(what);
    has(MAGIC.0, &MAGIC.1) && has(LABEL_AT, LABEL)
}

fn lock(path: &Path) -> Result<Lock> {
    let file = File::open(path).map_err(|e| Error::io(format!("locking '{}'", path.display()), e))?;
    Lock::take(file, path, || {
        Error::new(Kind::Busy, format!("another run has its database in '{}'", path.display()))
            .remedy("wait for it, or name another folder")
    })
}

/// A folder of the lab's own on a target, removed with what is in it.
struct Own {
    folder: PathBuf,
    _lock: Lock,
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A folder of one run beside the target, for the socket, the log and what is mounted: for the server's user and root alone.
pub(super) struct Private {
    pub path: PathBuf,
}

impl Private {
    pub(super) fn new(env: &Env, user: Option<User>) -> Result<Self> {
        // Short, as a socket's path has 107 bytes at most.
        let name = format!("stonefold-oltp-{:08x}", u32::from_le_bytes(env.random()));
        let path = std::env::temp_dir().join(name);
        let failed = |e| Error::io(format!("making '{}'", path.display()), e);
        DirBuilder::new().mode(0o700).create(&path).map_err(failed)?;
        let private = Private { path };
        give(&private.path, user)?;
        reachable(&private.path, user)?;
        Ok(private)
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // One by one, and only what is empty: should something still be mounted, nothing of it is removed.
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let _ = fs::remove_file(entry.path()).or_else(|_| fs::remove_dir(entry.path()));
        }
        let _ = fs::remove_dir(&self.path);
    }
}

/// To the server's user.
fn give(path: &Path, user: Option<User>) -> Result<()> {
    user.map_or(Ok(()), |user| chown(path, Some(user.uid), Some(user.gid)))
        .map_err(|e| Error::io(format!("giving '{}' to PostgreSQL's user", path.display()), e))
}

/// Fails where the server's user may not go, which initdb would tell less well.
fn reachable(folder: &Path, user: Option<User>) -> Result<()> {
    run(command("test", user).arg("-w").arg(folder), None).map(drop).map_err(|_| {
        Error::new(Kind::Denied, format!("PostgreSQL's user may not go to '{}'", folder.display()))
            .remedy("allow others to pass through the folders above it (chmod o+x), or name another")
    })
}

/// The type of the file system that a folder is on, and its device.
fn file_system(path: &Path) -> String {
    let mut stat = command("findmnt", None);
    let said = run(stat.args(["-n", "-o", "FSTYPE,SOURCE", "-T"]).arg(path), None).unwrap_or_default();
    match said.split_whitespace().collect::<Vec<_>>()[..] {
        [kind, source, ..] => format!("{kind} ({source})"),
        _ => "a file system that does not tell its kind".into(),
    }
}
