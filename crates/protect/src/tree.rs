//! Folders of this machine, made a file system (ext4) in an image that is then read as any other.
//!
//! *Why a file system*: each point is then a disk with all that the folder had, owners, modes, times, extended attributes, hard links, holes, and
//! whatever reads ext4 reads it: `point files`, a mount, a machine. mke2fs(8) writes it, without root and without a mount. It is made anew by each run,
//! and only blocks that differ go into the pool. *Order*: what is there is counted; a file of that size is made in the scratch folder; mke2fs
//! fills it; it is read; it goes. *Never*: leaves such a file for longer than until the next run.

use crate::Source;
use crate::hypervisor::last_words;
use crate::image::aside;
use crate::sources::only_disk;
use rustix::fs::SeekFrom;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs::{File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use stonefold_types::{DISK_BYTES_MAX, Error, Kind, Name, Result, Size};
use tempfile::TempDir;
use tokio::process::Command;

/// Where images of folders are made unless somebody says otherwise: on a disk, which `/tmp` need not be.
pub(crate) const SCRATCH: &str = "/var/tmp";
const BLOCK: u64 = 4096;
/// What mke2fs takes for an inode.
const INODE_BYTES: u64 = 256;
/// Room for what is not counted: tables of groups, bitmaps, extents, and what grows while it is read.
const SPARE_BYTES: u64 = 64 << 20;
/// The image, and its table of inodes, grow in steps of an eighth of themselves.
const STEPS: u64 = 8;
/// The journal of an image that has one. Such a one is to be worked on: it has twice the room and the inodes that are needed, and these.
const JOURNAL_MIB: u64 = 64;
const ROOM_BYTES: u64 = 4 << 30;
const ROOM_INODES: u64 = 16_384;
/// How often it is made before that is given up: files come and go while they are read.
const TRIES_MAX: u32 = 3;

/// A folder of the server's machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Folder {
    /// From the root on.
    pub path: PathBuf,
    /// Where its image is made meanwhile, from the root on; in `/var/tmp` where none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scratch: Option<PathBuf>,
}

/// What is in a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counted {
    inodes: u64,
    /// In whole blocks.
    bytes: u64,
    /// What was changed at a time that 32 bits do not hold, from the folder on, with the bits above these.
    far: Vec<(PathBuf, u32)>,
}

/// What image is to be made of a folder.
pub(crate) struct Image<'a> {
    pub(crate) source: &'a Source,
    /// What the source's points call the disk.
    pub(crate) target: &'a Name,
    /// It is no smaller than so many bytes.
    pub(crate) bytes_min: u64,
    /// Whether it has a journal, and room: for what is worked on once it is brought back.
    pub(crate) journal: bool,
}

/// An image of a folder; it goes with this.
pub(crate) struct Made {
    pub(crate) image: PathBuf,
    _folder: TempDir,
}

impl Folder {
    /// Looks at what can be known beforehand.
    pub(crate) async fn check(&self) -> Result<()> {
        for path in [Some(&self.path), self.scratch.as_ref()].into_iter().flatten() {
            if !path.is_absolute() {
                let what = format!("'{}' is no path from the root on", path.display());
                return Err(Error::new(Kind::Invalid, what).remedy("name the folder from the root on"));
            }
        }
        let (path, scratch) = (self.path.clone(), self.scratch().to_owned());
        aside(move || look(&path, &scratch)).await?
    }

    fn scratch(&self) -> &Path {
        self.scratch.as_deref().unwrap_or(Path::new(SCRATCH))
    }

    /// Makes an image of it.
    ///
    /// # Errors
    /// [`Kind::NoSpace`] where it has no room, before anything is made; what mke2fs says of what it cannot read.
    pub(crate) async fn image(&self, wanted: &Image<'_>) -> Result<Made> {
        let mut tries = 1;
        loop {
            match self.image_now(wanted, tries).await {
                // What came or went between two looks is there or gone now.
                Err(error) if tries < TRIES_MAX && error.kind() == Kind::Conflict => {
                    tracing::info!("source '{}' is read again: {error}", wanted.source.name);
                }
                made => return made,
            }
            tries += 1;
        }
    }

    async fn image_now(&self, wanted: &Image<'_>, tries: u32) -> Result<Made> {
        let (path, scratch) = (self.path.clone(), self.scratch().to_owned());
        let Image { source, target, bytes_min, journal } = *wanted;
        let left = format!("stonefold-tree-{:x}-{target}-", source.added);
        let (grows, spare) = if journal { (2, (JOURNAL_MIB << 20) + ROOM_BYTES) } else { (1, 0) };
        let prepare = move || {
            look(&path, &scratch)?;
            let counted = count(&path)?;
            remove_left(&scratch, &left);
            let size = (size_for(&counted, u64::from(tries)) * grows + spare).max(bytes_min);
            check_room(&scratch, &counted)?;
            new_image(&scratch, &left, size).map(|made| (made, counted))
        };
        let (made, Counted { inodes, far, .. }) = aside(prepare).await??;
        // By root nothing is hidden, and the files of others are theirs in the image.
        let mut command = tool("mke2fs", source);
        command.args(["-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0"]);
        if journal {
            command.args(["-O", "has_journal,^resize_inode", "-J", &format!("size={JOURNAL_MIB}")]);
        } else {
            command.args(["-O", "^has_journal,^resize_inode"]);
        }
        let inodes = in_steps(inodes + 64, 64);
        let inodes = if journal { 2 * inodes + ROOM_INODES } else { inodes };
        command.args(["-N", &inodes.to_string(), "-L", label(source)]);
        let uuid = uuid(source, target);
        command.args(["-U", &uuid, "-E", &format!("hash_seed={uuid},lazy_itable_init=1")]);
        command.arg("-d").arg(&self.path).arg(&made.image);
        run(command, "mke2fs").await.map_err(|e| e.context(format!("folder '{}'", self.path.display())))?;
        self.settle(source, &made, &far).await?;
        Ok(made)
    }

    /// mke2fs takes what is in the folder, and leaves what the folder itself is; and of times it writes the lower half alone.
    async fn settle(&self, source: &Source, made: &Made, far: &[(PathBuf, u32)]) -> Result<()> {
        let (path, script) = (self.path.clone(), made.image.with_extension("root"));
        let of_thread = script.clone();
        let far: Vec<String> = far.iter().filter_map(|(path, bits)| far_line(path, *bits)).collect();
        let write = move || {
            let meta = std::fs::metadata(&path)?;
            let (mode, mtime) = (meta.mode(), meta.mtime());
            let fields = format!("mode 0{mode:o}|uid {}|gid {}|mtime @{mtime}", meta.uid(), meta.gid());
            let of_root = fields.split('|').map(|field| format!("set_inode_field / {field}\n"));
            std::fs::write(&of_thread, of_root.chain(far).collect::<String>())
        };
        let written = aside(write).await?;
        written.map_err(|e| Error::io(format!("looking at '{}'", self.path.display()), e))?;
        let mut command = tool("debugfs", source);
        command.arg("-w").arg("-f").arg(&script).arg(&made.image);
        run(command, "debugfs").await
    }
}

fn tool(name: &str, source: &Source) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("setpriv");
    // Users who are not root have them in no path.
    command.env("PATH", format!("{path}:/usr/sbin:/sbin")).env("LC_ALL", "C");
    // What they would take from the clock is the same in each run, so that what is as it was has the same blocks.
    command.env("E2FSPROGS_FAKE_TIME", (source.added / 1_000_000_000).to_string());
    command.args(["--pdeathsig", "KILL", "--", name]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

async fn run(mut command: Command, name: &str) -> Result<()> {
    let output = command.output().await.map_err(|e| Error::io(format!("running {name}"), e))?;
    let complaints =
        String::from_utf8_lossy(&output.stderr).lines().filter(|line| !line.starts_with("debugfs ")).count();
    // debugfs says its version, and fails with success.
    if output.status.success() && (name != "debugfs" || complaints == 0) {
        return Ok(());
    }
    // The last line says what failed, one before it on which file.
    let text = String::from_utf8_lossy(&output.stderr);
    let of_file = text.lines().rev().find(|line| line.contains('"')).map(|line| line.trim().to_owned());
    let said = of_file.unwrap_or_else(|| last_words(&output.stderr));
    let (kind, remedy) = if said.contains("failed to execute") {
        (Kind::NotFound, "install it: apt install e2fsprogs util-linux, where the server runs")
    } else if said.contains("Could not allocate") {
        (Kind::Conflict, "it holds more than was counted, or grew while it was read: run it again")
    } else if said.contains("No such file") || said.contains("File not found") {
        (
            Kind::Conflict,
            "files come and go while it is read: name a snapshot of it (LVM, Btrfs, ZFS), or run it again",
        )
    } else if said.contains("No space left") {
        (Kind::NoSpace, "make room there, or add the source with --scratch and another folder")
    } else {
        (Kind::Io, "see that the server may read all of it")
    };
    Err(Error::new(kind, format!("{name}: {said}")).remedy(remedy))
}

/// Fails where it is no folder, other file systems are mounted in it, or its image would be made in it.
fn look(path: &Path, scratch: &Path) -> Result<()> {
    let shown = path.display();
    let real = path.canonicalize().map_err(|e| {
        Error::io(format!("folder '{shown}' cannot be read"), e)
            .remedy("name a folder that the server can read, on the server's machine")
    })?;
    if !real.is_dir() {
        let what = format!("'{shown}' is no folder");
        return Err(Error::new(Kind::Invalid, what).remedy("name a folder; an image is a source by --image"));
    }
    if scratch.canonicalize().is_ok_and(|scratch| scratch.starts_with(&real)) {
        let what = format!("the image of '{shown}' would be made in it, at '{}'", scratch.display());
        return Err(Error::new(Kind::Invalid, what).remedy("name a folder beside it with --scratch"));
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    match mounted_below(&mounts, &real) {
        None => Ok(()),
        Some(mount) => {
            let what = format!("something else is mounted in '{shown}', at '{mount}'");
            Err(Error::new(Kind::Unsupported, what).remedy("name folders that have nothing mounted in them"))
        }
    }
}

/// What ext4 keeps of a time above its lower 32 bits, which are signed (inodes of 256 bytes: `i_mtime_extra`, kernel documentation, ext4, "Inode
/// Timestamps"); nothing where these hold it.
fn bits_above(seconds: i64) -> Option<u32> {
    let above = (seconds - i64::from(seconds as i32)) >> 32;
    (1..4).contains(&above).then_some(above as u32)
}

/// The line by which debugfs sets them; none for a name that no line can have.
fn far_line(path: &Path, bits: u32) -> Option<String> {
    let name = path.to_str().filter(|name| !name.contains(['"', '\n']))?;
    Some(format!("set_inode_field \"/{name}\" mtime_extra {bits}\n"))
}

/// The first mount point below a folder: the fifth field of mountinfo (proc_pid_mountinfo(5)).
fn mounted_below(mounts: &str, folder: &Path) -> Option<String> {
    let below = |at: &String| Path::new(at) != folder && Path::new(at).starts_with(folder);
    mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(unescaped).find(below)
}

/// Blanks and the like stand as octal numbers there.
fn unescaped(text: &str) -> String {
    let codes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    codes.iter().fold(text.to_owned(), |text, (code, letter)| text.replace(code, letter))
}

fn count(path: &Path) -> Result<Counted> {
    let mut counted = Counted::default();
    let (mut seen, mut open) = (HashSet::new(), vec![path.to_owned()]);
    while let Some(folder) = open.pop() {
        let unread = |e| Error::io(format!("'{}' cannot be read", folder.display()), e);
        let entries = match std::fs::read_dir(&folder) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
            entries => entries.map_err(unread)?,
        };
        let (mut names, before) = (0, open.len());
        for entry in entries {
            let entry = entry.map_err(unread)?;
            names += entry.file_name().len() as u64 + 16;
            // One that has gone is not there.
            let Ok(meta) = entry.metadata() else { continue };
            let below = || entry.path().strip_prefix(path).map(Path::to_owned).unwrap_or_default();
            counted.far.extend(bits_above(meta.mtime()).map(|bits| (below(), bits)));
            if meta.is_dir() {
                open.push(entry.path());
            } else if meta.nlink() == 1 || seen.insert((meta.dev(), meta.ino())) {
                counted.inodes += 1;
                counted.bytes += bytes_in(&entry.path(), &meta).next_multiple_of(BLOCK) + BLOCK;
            }
        }
        counted.inodes += 1;
        counted.bytes += (2 * names).next_multiple_of(BLOCK) + BLOCK * (open.len() - before) as u64;
    }
    Ok(counted)
}

/// How many bytes of a file are no holes. Where less is stored than it has, that may be holes, or a file system that compresses.
fn bytes_in(path: &Path, meta: &std::fs::Metadata) -> u64 {
    if !meta.is_file() || meta.blocks() * 512 >= meta.len() {
        return meta.len();
    }
    let Ok(file) = File::open(path) else { return meta.len() };
    let (mut at, mut bytes) = (0, 0);
    // Behind the last of them there is none.
    while let Ok(data) = rustix::fs::seek(&file, SeekFrom::Data(at)) {
        let end = rustix::fs::seek(&file, SeekFrom::Hole(data)).unwrap_or(meta.len()).max(data + 1);
        (bytes, at) = (bytes + (end - data).next_multiple_of(BLOCK), end);
    }
    bytes
}

/// At least that much, in steps of an eighth of itself: so it is the same from run to run.
fn in_steps(needed: u64, step_min: u64) -> u64 {
    let step = (needed.next_power_of_two() / 2 / STEPS).max(step_min);
    needed.next_multiple_of(step)
}

/// How large a file system it takes, and a half more with each try.
fn size_for(counted: &Counted, tries: u64) -> u64 {
    let inodes = in_steps(counted.inodes + 64, 64) * INODE_BYTES;
    let needed = counted.bytes + counted.bytes / 16 + inodes + SPARE_BYTES;
    (in_steps(needed, SPARE_BYTES) / 2 * (tries + 1)).next_multiple_of(BLOCK)
}

fn check_room(scratch: &Path, counted: &Counted) -> Result<()> {
    let told = rustix::fs::statvfs(scratch).map_err(|e| {
        Error::io(format!("scratch folder '{}'", scratch.display()), e.into())
            .remedy("make it, or add the source with --scratch and another")
    })?;
    let (left, needed) = (told.f_bavail.saturating_mul(told.f_frsize), counted.bytes + SPARE_BYTES);
    if left >= needed {
        return Ok(());
    }
    let what = format!(
        "{} are left in '{}', and an image of the folder takes {}",
        Size(left),
        scratch.display(),
        Size(needed)
    );
    Err(Error::new(Kind::NoSpace, what)
        .remedy("make room there, or add the source with --scratch and another folder"))
}

fn new_image(scratch: &Path, prefix: &str, size: u64) -> Result<Made> {
    if size > DISK_BYTES_MAX {
        let what =
            format!("the folder takes {}, and a disk has at most {}", Size(size), Size(DISK_BYTES_MAX));
        return Err(Error::new(Kind::Invalid, what).remedy("name the folders in it one by one"));
    }
    let failed = |e| Error::io(format!("making an image in '{}'", scratch.display()), e);
    let mut builder = tempfile::Builder::new();
    builder.prefix(prefix).permissions(Permissions::from_mode(0o700));
    let folder = builder.tempdir_in(scratch).map_err(failed)?;
    let image = folder.path().join("image");
    File::create_new(&image).and_then(|file| file.set_len(size)).map_err(failed)?;
    Ok(Made { image, _folder: folder })
}

/// What a server that was killed has left of this source.
pub(crate) fn remove_left(scratch: &Path, prefix: &str) {
    for entry in std::fs::read_dir(scratch).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            if let Err(e) = std::fs::remove_dir_all(entry.path()) {
                tracing::warn!("'{}' is left of a backup: remove it ({e})", entry.path().display());
            }
        }
    }
}

/// ext4's labels have sixteen bytes.
fn label(source: &Source) -> &str {
    let name = source.name.as_str();
    &name[..name.len().min(16)]
}

/// Of the source's disk, and of nothing else: it is added at one moment.
pub(crate) fn uuid(source: &Source, target: &Name) -> String {
    let added = source.added;
    // Of one disk alone it is as it always was.
    let of_target = match *target == only_disk() {
        true => 0,
        false => blake3::hash(target.as_str().as_bytes())
            .as_bytes()
            .iter()
            .take(6)
            .fold(0, |all, byte| all << 8 | u64::from(*byte)),
    };
    format!(
        "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
        added >> 32 & 0xffff_ffff,
        added >> 16 & 0xffff,
        added & 0xfff,
        added >> 12 & 0xfff,
        (added & 0xffff_ffff_ffff) ^ of_target
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_below_are_found_and_those_beside_are_not() {
        let mounts = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:5 / /srv/a\\040b/c rw - tmpfs x rw\n3 1 0:6 / /srv/files rw - xfs y rw\n";
        assert_eq!(mounted_below(mounts, Path::new("/srv/a b")).as_deref(), Some("/srv/a b/c"));
        assert_eq!(mounted_below(mounts, Path::new("/srv/files")), None);
        assert_eq!(mounted_below(mounts, Path::new("/srv/a")), None);
        assert!(mounted_below(mounts, Path::new("/")).is_some());
    }

    #[test]
    fn a_folder_that_grows_a_little_keeps_its_image_s_size() {
        let counted = |bytes| Counted { inodes: 1000, bytes, far: Vec::new() };
        let of = |bytes| size_for(&counted(bytes), 1);
        assert_eq!(of(10 << 30), of((10 << 30) + (20 << 20)));
        for bytes in [0, 1 << 20, 1 << 30, 300 << 30] {
            let size = of(bytes);
            assert!(size > bytes + bytes / 16 && size < 2 * (bytes + 2 * SPARE_BYTES), "{bytes}: {size}");
            assert_eq!(size % BLOCK, 0);
            assert!(size_for(&counted(bytes), 2) > size);
        }
    }

    #[test]
    fn times_that_32_bits_do_not_hold_are_told() {
        let of = |year: i64| bits_above((year - 1970) * 31_556_952);
        assert_eq!([1902, 1960, 1970, 2037].map(of), [None; 4]);
        assert_eq!([2040, 2105, 2110, 2440].map(of), [Some(1), Some(1), Some(1), Some(3)]);
        let line = |name: &str| far_line(Path::new(name), 1);
        assert_eq!(line("a b/c").as_deref(), Some("set_inode_field \"/a b/c\" mtime_extra 1\n"));
        assert_eq!(line("a\"b"), None);
    }

    #[test]
    fn all_is_counted_once() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        std::fs::write(at("one"), vec![1; 10_000]).unwrap();
        std::fs::hard_link(at("one"), at("two")).unwrap();
        std::fs::create_dir(at("inner")).unwrap();
        File::create(at("inner/holes")).unwrap().set_len(1 << 30).unwrap();
        std::os::unix::fs::symlink("one", at("link")).unwrap();
        let counted = count(place.path()).unwrap();
        assert_eq!(counted.inodes, 5);
        assert!(counted.bytes > 10_000 && counted.bytes < 100_000, "{counted:?}");
        assert!(count(&at("nowhere")).unwrap() == Counted::default());
    }

    #[tokio::test]
    async fn what_is_no_folder_is_refused() {
        let refused = |path: &str| Folder { path: path.into(), scratch: None };
        let own = tempfile::tempdir().unwrap();
        let within = Folder { path: own.path().into(), scratch: Some(own.path().into()) };
        assert!(within.check().await.unwrap_err().to_string().contains("beside it"));
        for (path, why) in [
            ("files", "from the root on"),
            ("/nowhere", "cannot be read"),
            ("/etc/passwd", "is no folder"),
            ("/", "would be made in it"),
        ] {
            let error = refused(path).check().await.unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
        }
    }
}
