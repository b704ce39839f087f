//! Opening a target: what it is, how large, and whether it may be written to.
//!
//! *Never*: writes to what holds data that is not the lab's own, unless that was asked for; opens what somebody else uses.

use super::nbd::{self, Connection, Lasting, Link, Nbd};
use super::own::Source;
use super::{Abilities, Backend, Buffers, Files, Null, TargetSpec, used};
use crate::lock::Lock;
use crate::space;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use stonefold_types::{BLOCK_BYTES, Error, Kind, Result, Size};

/// Connections to an export at most, where its server says that several agree.
const CONNECTIONS_MAX: usize = 4;
/// File systems that are memory (Linux, `include/uapi/linux/magic.h`): tmpfs, ramfs, hugetlbfs.
const IN_MEMORY: [u32; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];

/// A target, ready to be used.
pub(crate) struct Opened {
    spec: TargetSpec,
    /// Bytes it has; a file, once it has [grown](Opened::grow).
    pub bytes: u64,
    /// Bytes of a file that has not yet grown.
    held: Option<u64>,
    /// Of a file, held so that nobody else writes meanwhile.
    lock: Option<Lock>,
    /// Of a device, which nobody mounts while it is open so.
    claim: Option<File>,
    /// What I/Os must be multiples of, and the largest, in bytes.
    pub io_bytes_min: u64,
    pub io_bytes_max: u64,
    pub abilities: Abilities,
    connections: usize,
}

/// What can be told of a target before it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    /// Nothing where it becomes as large as is asked for.
    pub bytes: Option<u64>,
    pub io_bytes_min: u64,
    pub io_bytes_max: u64,
}

/// Looks at a target without taking it.
pub(crate) fn look(spec: &TargetSpec) -> Result<Look> {
    let bytes = match spec {
        TargetSpec::Null => None,
        TargetSpec::File(path) => std::fs::metadata(path).ok().map(|meta| meta.len()).filter(|len| *len > 0),
        // Opening a folder says why it is none.
        TargetSpec::Device(_) | TargetSpec::Nbd(_) | TargetSpec::Directory(_) => {
            let Opened { bytes, io_bytes_min, io_bytes_max, .. } = Opened::new(spec, 0)?;
            return Ok(Look { bytes: Some(bytes), io_bytes_min, io_bytes_max });
        }
        TargetSpec::Stonefold(disk) => {
            return Err(Error::new(Kind::Invalid, format!("disk '{disk}' was not looked up")));
        }
    };
    Ok(Look { bytes, io_bytes_min: 1, io_bytes_max: u64::MAX })
}

impl Opened {
    /// Looks at a target that is to hold `bytes`; makes a file that is not there, with nothing in it.
    pub(crate) fn new(spec: &TargetSpec, bytes: u64) -> Result<Self> {
        let opened = match spec {
            TargetSpec::Null => Opened {
                spec: spec.clone(),
                bytes,
                held: None,
                lock: None,
                claim: None,
                io_bytes_min: 1,
                io_bytes_max: u64::MAX,
                abilities: Abilities::ALL,
                connections: 1,
            },
            TargetSpec::File(path) => file(spec, path, bytes)?,
            TargetSpec::Device(path) => device(spec, path)?,
            TargetSpec::Nbd(_) => export(spec)?,
            TargetSpec::Directory(_) => {
                return Err(Error::new(
                    Kind::Invalid,
                    format!("{spec} is a folder, which databases alone lie on"),
                )
                .remedy("name a file in it as file:PATH, or run the profile oltp"));
            }
            TargetSpec::Stonefold(disk) => {
                return Err(Error::new(Kind::Invalid, format!("disk '{disk}' was not looked up")));
            }
        };
        if opened.bytes < bytes {
            let what = format!("{spec} has {}, and the load needs {}", Size(opened.bytes), Size(bytes));
            return Err(Error::new(Kind::Invalid, what).remedy("name a larger one, or say --size"));
        }
        Ok(opened)
    }

    /// A file for direct I/O, or connections, for one thread.
    fn handle(&self) -> Result<Handle> {
        match &self.spec {
            TargetSpec::Null => Ok(Handle::Null),
            TargetSpec::File(path) | TargetSpec::Device(path) => direct(path).map(Handle::File),
            TargetSpec::Nbd(address) => (0..self.connections)
                .map(|_| nbd::connect(address.place(), address.export()).map(|(connection, _)| connection))
                .collect::<Result<_>>()
                .map(Handle::Nbd),
            TargetSpec::Directory(_) | TargetSpec::Stonefold(_) => {
                unreachable!("neither is ever opened")
            }
        }
    }

    /// Its first block; zeros where it has none.
    pub(crate) fn beginning(&self) -> Result<Vec<u8>> {
        let mut block = vec![0; BLOCK_BYTES];
        if let Some(mut source) = self.source()?.filter(|_| self.held_bytes() > 0) {
            source.read(0, &mut block).map_err(|e| Error::io(format!("looking at {}", self.spec), e))?;
        }
        Ok(block)
    }

    /// What is read to look at it; nothing of what has nothing.
    pub(super) fn source(&self) -> Result<Option<Source<'_>>> {
        match (&self.lock, &self.claim) {
            (Some(lock), _) => Ok(Some(Source::File(lock.file()))),
            (None, Some(device)) => Ok(Some(Source::File(device))),
            (None, None) if self.spec == TargetSpec::Null => Ok(None),
            (None, None) => {
                let buffers = Source::buffers();
                let buffers = buffers.map_err(|e| Error::io(format!("looking at {}", self.spec), e))?;
                Ok(Some(Source::Export(backend(&[self], &buffers)?, buffers)))
            }
        }
    }

    /// Bytes that it has now.
    pub(super) fn held_bytes(&self) -> u64 {
        self.held.unwrap_or(self.bytes)
    }

    /// Makes a file as long as the load needs it. To be done when it is known that it may be written to, and before that is done.
    pub(crate) fn grow(&mut self) -> Result<()> {
        let (Some(lock), Some(held)) = (&self.lock, self.held) else { return Ok(()) };
        if held < self.bytes {
            let failed = |e| Error::io(format!("making {} as long as the load needs it", self.spec), e);
            lock.file().set_len(self.bytes).map_err(failed)?;
        }
        self.held = None;
        Ok(())
    }

    /// As it was named.
    pub(crate) fn name(&self) -> &TargetSpec {
        &self.spec
    }
}

enum Handle {
    Null,
    File(File),
    Nbd(Vec<Connection>),
}

/// A backend for one thread whose volumes are these targets, in this order.
pub(crate) fn backend(targets: &[&Opened], buffers: &Buffers) -> Result<Box<dyn Backend + Send>> {
    let (mut files, mut exports, mut nulls) = (Vec::new(), Vec::new(), 0);
    for target in targets {
        match target.handle()? {
            Handle::Null => nulls += 1,
            Handle::File(file) => files.push(file),
            Handle::Nbd(connections) => exports.push(connections),
        }
    }
    let ring = |e| {
        Error::io("the kernel gives no io_uring", e)
            .remedy("set kernel.io_uring_disabled=0, or allow io_uring in the container's seccomp profile")
    };
    match (files.is_empty(), exports.is_empty(), nulls == 0) {
        (false, true, true) => Ok(Box::new(Files::new(files, buffers.clone()).map_err(ring)?)),
        (true, false, true) => Ok(Box::new(Nbd::new(exports, buffers.clone()))),
        (true, true, false) => Ok(Box::new(Null::default())),
        _ => Err(Error::new(Kind::Invalid, "targets of different kinds in one load")
            .remedy("name files and devices, or exports, or null: alone")),
    }
}

/// The same of exports whose servers come and go, which are waited for; of other targets as [`backend`].
pub(crate) fn lasting(targets: &[&Opened], buffers: &Buffers) -> Result<Box<dyn Backend + Send>> {
    let link = |target: &&Opened| match &target.spec {
        TargetSpec::Nbd(address) => Some(Link::new(address, target.bytes, target.connections)),
        _ => None,
    };
    match targets.iter().map(link).collect::<Option<Vec<_>>>() {
        None => backend(targets, buffers),
        Some(links) => {
            let links = links.into_iter().collect::<Result<Vec<_>>>()?;
            Ok(Box::new(Lasting::new(links, buffers.clone())))
        }
    }
}

fn direct(path: &Path) -> Result<File> {
    let opened = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(path);
    opened.map_err(|e| match e.raw_os_error() {
        Some(libc::EINVAL) => Error::new(
            Kind::Unsupported,
            format!("'{}' cannot be read around the page cache", path.display()),
        )
        .remedy("name a file on a file system with direct I/O, as ext4 or XFS, and not tmpfs"),
        _ => Error::io(format!("opening '{}'", path.display()), e)
            .remedy("name what this user may read and write"),
    })
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// What a file has allocated, and what its file system has left beside, in bytes.
pub(crate) fn room_of_file(path: &Path) -> Result<u64> {
    let failed = |e| Error::io(format!("looking at the file system of '{}'", path.display()), e);
    let folder = folder_of(path);
    let free = rustix::fs::statvfs(folder)
        .map_err(|e| failed(e.into()).remedy("name a file in a folder that is there"))?;
    let allocated = space::of_file(path).unwrap_or(0);
    Ok(allocated + free.f_bavail * free.f_frsize)
}

/// Fails where a file cannot hold so many bytes: filling it would fill its file system for everybody.
fn check_room(path: &Path, bytes: u64) -> Result<()> {
    let room = room_of_file(path)?;
    if room >= bytes {
        return Ok(());
    }
    let what =
        format!("'{}' has room for {}, and the load needs {}", path.display(), Size(room), Size(bytes));
    Err(Error::new(Kind::NoSpace, what).remedy("choose a smaller --size, or a file system with more room"))
}

/// Fails where a file or a folder lies in memory: what is measured there is no storage, though some kernels read it around the page cache.
pub(crate) fn refuse_memory(path: &Path) -> Result<()> {
    let told = rustix::fs::statfs(path)
        .map_err(|e| Error::io(format!("looking at the file system of '{}'", path.display()), e.into()))?;
    // As wide as the machine's words, and of some with a sign.
    if !IN_MEMORY.contains(&(told.f_type as u32)) {
        return Ok(());
    }
    let what = format!("'{}' lies in memory (tmpfs), which is no storage", path.display());
    Err(Error::new(Kind::Unsupported, what).remedy(
        "name a place on a disk's file system, as ext4 or XFS; null: is what tells the lab's own limits",
    ))
}

/// Before anything else of a file is looked at: what holds devices' names is memory, and that says nothing of the device.
fn refuse_device(path: &Path) -> Result<()> {
    if !std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_block_device()) {
        return Ok(());
    }
    let what = format!("'{}' is a block device", path.display());
    Err(Error::new(Kind::Invalid, what).remedy(format!("write dev:{}", path.display())))
}

fn file(spec: &TargetSpec, path: &Path, bytes: u64) -> Result<Opened> {
    refuse_device(path)?;
    check_room(path, bytes)?;
    refuse_memory(if path.exists() { path } else { folder_of(path) })?;
    let failed = |e| {
        Error::io(format!("opening '{}'", path.display()), e).remedy("name a file that this user may write")
    };
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    if !meta.is_file() {
        let what = format!("'{}' is no regular file", path.display());
        return Err(Error::new(Kind::Invalid, what).remedy("name a block device as dev:PATH"));
    }
    let busy = || {
        Error::new(Kind::Busy, format!("'{}' is used by somebody else", path.display()))
            .remedy("name another file, or end what uses it")
    };
    used::check(&file, path)?;
    let lock = Lock::take(file, path, busy)?;
    direct(path)?;
    Ok(Opened {
        spec: spec.clone(),
        bytes: meta.len().max(bytes),
        held: Some(meta.len()),
        lock: Some(lock),
        claim: None,
        io_bytes_min: 1,
        io_bytes_max: u64::MAX,
        abilities: Abilities::ALL,
        connections: 1,
    })
}

fn device(spec: &TargetSpec, path: &Path) -> Result<Opened> {
    let name = path.display();
    // O_EXCL on a block device fails while it is mounted, swapped to, or part of another device.
    let opened = OpenOptions::new().read(true).write(true).custom_flags(libc::O_EXCL).open(path);
    let file = opened.map_err(|e| match e.raw_os_error() {
        Some(libc::EBUSY) => Error::new(Kind::Busy, format!("'{name}' is mounted or in use"))
            .remedy("unmount it, or name a device that nothing uses"),
        _ => Error::io(format!("opening '{name}'"), e)
            .remedy("name a block device that is there, and that this user may write"),
    })?;
    let failed = |e| Error::io(format!("looking at '{name}'"), e);
    if !file.metadata().map_err(failed)?.file_type().is_block_device() {
        return Err(Error::new(Kind::Invalid, format!("'{name}' is no block device"))
            .remedy("name a file as file:PATH"));
    }
    let bytes = std::io::Seek::seek(&mut (&file), std::io::SeekFrom::End(0)).map_err(failed)?;
    Ok(Opened {
        spec: spec.clone(),
        bytes,
        abilities: Abilities { trim: can_discard(&file), ..Abilities::ALL },
        held: None,
        lock: None,
        claim: Some(file),
        io_bytes_min: 1,
        io_bytes_max: u64::MAX,
        connections: 1,
    })
}

/// Whether the kernel says that a device can be told what is needed no more.
fn can_discard(device: &File) -> bool {
    let told = rustix::fs::fstat(device).ok().and_then(|stat| {
        let (major, minor) = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
        // A partition has the queue of its disk, one folder up.
        let at = format!("/sys/dev/block/{major}:{minor}");
        let read = |queue: &str| std::fs::read_to_string(format!("{at}/{queue}/discard_max_bytes")).ok();
        read("queue").or_else(|| read("../queue"))
    });
    told.is_some_and(|bytes| bytes.trim() != "0")
}

fn export(spec: &TargetSpec) -> Result<Opened> {
    let TargetSpec::Nbd(address) = spec else { unreachable!("asked of exports only") };
    let (_connection, export) = nbd::connect(address.place(), address.export())?;
    if export.read_only {
        return Err(
            Error::new(Kind::ReadOnly, format!("{spec} is read-only")).remedy("name a writable export")
        );
    }
    Ok(Opened {
        spec: spec.clone(),
        bytes: export.bytes,
        held: None,
        lock: None,
        claim: None,
        io_bytes_min: export.io_bytes_min.into(),
        io_bytes_max: export.io_bytes_max.into(),
        abilities: export.abilities,
        connections: if export.multi_conn { CONNECTIONS_MAX } else { 1 },
    })
}
