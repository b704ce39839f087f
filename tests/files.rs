//! The files in points, looked at and fetched one by one.
//!
//! *Promise*: what a point's disks held then is found by its path, whatever became of the disks since: names of any bytes, modes, times, hard
//! links, symlinks and holes, from ext4, XFS, NTFS and FAT; what cannot be found is said, and nothing is replaced or left over. *Method*: file
//! systems that their own tools have made, in disks of a real server; the disks are overwritten after the point; then the command line, with a
//! real libguestfs.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};
use stonefold_e2e::binary::stonefold;
use stonefold_e2e::gateway::{Place, in_a_place};
use stonefold_e2e::tools::run;
use stonefold_guest::process::{self, Finished};
use stonefold_needs::{Need, is_there, there_is};

/// libguestfs's machine boots in half a minute where processors are emulated, and this one has other things to do.
const APPLIANCE_MAX: Duration = Duration::from_secs(400);
const DISK_BYTES: u64 = 64 << 20;
/// mkfs.xfs makes none that are smaller.
const XFS_BYTES: u64 = 320 << 20;
const MADE: Duration = Duration::from_secs(1_600_000_000);

/// A machine as a guest has it: its system on one disk, and what it mounts at /data on another.
#[test]
fn files_come_back_as_they_were_from_where_the_guest_has_them() {
    in_a_place(|place| {
        if !there_is_a_kernel("files of points") {
            return Ok(());
        }
        let tree = guest_tree(place)?;
        let [root, data] = ["root.img", "data.img"].map(|name| place.path(name));
        empty(&root, DISK_BYTES)?;
        run("mkfs.ext4", &["-q", "-F", "-L", "system", "-d", text(&tree), text(&root)])?;
        empty(&data, XFS_BYTES)?;
        let content = place.path("orders");
        fs::write(&content, "one\ntwo\n")?;
        let layout = format!("/\n0 0\nd--755 0 0\norders ---640 7 8 {}\n$\n", content.display());
        fs::write(place.path("layout"), layout)?;
        run("mkfs.xfs", &["-q", "-p", &place.text("layout"), text(&data)])?;

        let server = place.start(&[])?;
        let point = point_of(place, "web", &[&root, &data])?;
        for disk in ["web-0", "web-1"] {
            place.connect(disk)?.write(0, &vec![0x55; 8 << 20])?;
        }

        let found: serde_json::Value =
            serde_json::from_str(&ok(place, &["point", "files", &point, "ls", "--json"])?)?;
        let systems = &found["file_systems"];
        ensure!(systems[0]["name"] == "vda" && systems[0]["kind"] == "ext4", "{found}");
        ensure!(systems[0]["label"] == "system" && systems[0]["mounted_at"][0] == "/", "{found}");
        ensure!(systems[1]["name"] == "vdb" && systems[1]["mounted_at"][0] == "/data", "{found}");
        ensure!(systems[1]["size_bytes"] == XFS_BYTES, "{found}");

        let listed = ok(place, &["point", "files", &point, "ls", "/home"])?;
        ensure!(listed.contains("-rw-r-----") && listed.contains("link -> ../etc/fstab"), "{listed}");
        ensure!(listed.contains("2020-09-13 12:26:40  line\\nbreak"), "{listed}");

        let to = place.path("to");
        fs::create_dir(&to)?;
        let said = ok(place, &["point", "files", &point, "get", "/", "--to", text(&to)])?;
        let (wanted, mut came) = (seen(&tree)?, seen(&to.join("web"))?);
        let orders = came.remove(Path::new("data/orders")).context("no data/orders")?;
        ensure!(orders.contains("640 ") && orders.contains("[111, 110, 101"), "{orders}");
        came.remove(Path::new("lost+found"));
        // Files are as they were; no bit of theirs lets them run as somebody else.
        for (path, what) in &wanted {
            let is = came.get(path).with_context(|| format!("{} did not come: {said}", path.display()))?;
            ensure!(is == what || path == Path::new("data"), "{}: {is}, and was {what}", path.display());
        }
        ensure!(wanted.len() == came.len(), "more came than there was: {:?}", came.keys());
        ensure!(to.join("web/home/holes").metadata()?.blocks() * 512 < 1 << 20, "holes were filled");
        ensure!(to.join("web/home/one").metadata()?.nlink() == 2, "a hard link is none");

        // It is there already: nobody starts anything to find that out.
        let refused = answered(place, &["point", "files", &point, "get", "/", "--to", text(&to)])?;
        ensure!(refused.stderr.contains("is there already"), "{}", refused.stderr);
        nothing_is_left(place)?;
        server.stop()
    });
}

/// *Promise*: disks without an operating system, too, of which each file system is named.
#[test]
fn files_of_windows_disks_are_seen_in_a_folder() {
    in_a_place(|place| {
        if !there_is_a_kernel("files of disks without a system") {
            return Ok(());
        }
        let [ntfs, fat] = ["ntfs.img", "fat.img"].map(|name| place.path(name));
        let content = place.path("content");
        fs::write(&content, vec![7; 300_000])?;
        empty(&ntfs, DISK_BYTES)?;
        run("mkntfs", &["-q", "-F", "-Q", text(&ntfs)])?;
        run("ntfscp", &["-q", text(&ntfs), text(&content), "report.doc"])?;
        empty(&fat, DISK_BYTES)?;
        run("mkfs.fat", &[text(&fat)])?;
        run("mcopy", &["-i", text(&fat), text(&content), "::LETTER.TXT"])?;
        let server = place.start(&[])?;
        let point = point_of(place, "old", &[&ntfs, &fat])?;

        let unclear = answered(place, &["point", "files", &point, "ls", "/"])?;
        ensure!(
            unclear.status.code() == Some(1) && unclear.stderr.contains("vda, vdb"),
            "{}",
            unclear.stderr
        );
        let to = place.path("to");
        fs::create_dir(&to)?;
        let arguments = ["get", "/letter.txt", "--to", text(&to), "--file-system", "vdb"];
        ok(place, &[&["point", "files", &point], arguments.as_slice()].concat())?;
        ensure!(fs::read(to.join("letter.txt"))? == fs::read(&content)?, "the letter is another");
        nothing_is_left(place)?;

        if there_is(Need::Loop, "a point in a folder") {
            let folder = place.path("folder");
            fs::create_dir(&folder)?;
            mounted(place, &point, &folder, || {
                let report = fs::read(folder.join("report.doc"))?;
                ensure!(report == fs::read(&content)?, "the report is another");
                let written = File::create(folder.join("new"));
                ensure!(written.is_err(), "a point was written to");
                Ok(())
            })?;
            ensure!(fs::read_dir(&folder)?.next().is_none(), "it is still mounted");
            nothing_is_left(place)?;
        }
        server.stop()
    });
}

/// *Promise*: a folder's points are file systems that have all it had then, owners and extended attributes with it; what has not changed is not
/// written again; a folder that cannot be read whole makes no point; no image of it is left over.
#[test]
fn a_folder_comes_back_with_all_that_it_had() {
    in_a_place(|place| {
        if !there_is_a_kernel("points of folders") {
            return Ok(());
        }
        let (tree, scratch) = (guest_tree(place)?, place.path("scratch"));
        fs::create_dir(&scratch)?;
        let large: Vec<u8> =
            (0..6_u32 << 20).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        fs::write(tree.join("home/large"), &large)?;
        // Of 2040 and of 1960: what 32 bits without a sign, or with one, do not hold.
        for (name, seconds) in [("far", 2_219_965_323_i64), ("old", -315_619_200)] {
            let since = |more| Timespec { tv_sec: seconds + more, tv_nsec: 0 };
            fs::write(tree.join("home").join(name), name)?;
            // Read after it was written: else the kernel notes each time anew that it was read, as long as that is before 2040.
            let times = Timestamps { last_access: since(1), last_modification: since(0) };
            rustix::fs::utimensat(CWD, tree.join("home").join(name), &times, AtFlags::empty())?;
        }
        let noted = tree.join("home/one");
        rustix::fs::setxattr(&noted, "user.note", b"kept", rustix::fs::XattrFlags::empty())?;
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&noted, Some(1234), Some(77))?;
        }
        fs::set_permissions(&tree, Permissions::from_mode(0o2750))?;
        let wanted = owned(&tree)?;

        let server = place.start(&[])?;
        place.ok(&format!("source add files --dir {} --scratch {}", tree.display(), scratch.display()))?;
        let first = place.json("backup run files")?;
        let again = place.json("backup run files")?;
        ensure!(written(&again)? < 1 << 20, "it was written again: {again}");
        // By now the kernel has noted that all was read; since then nothing is other.
        let same = place.json("backup run files")?;
        ensure!(written(&same)? == 0, "nothing has changed, and yet: {same}");
        fs::write(tree.join("home/large"), [&large[4096..], &large[..4096]].concat())?;
        fs::remove_file(tree.join("home/line\nbreak"))?;
        fs::write(tree.join("home/new"), "new")?;
        let third = place.json("backup run files")?;
        ensure!(fs::read_dir(&scratch)?.next().is_none(), "an image is left over");

        // As its own tools see the newest.
        let name = third["name"].as_str().context("a run has a name")?.replace('@', ".vda@");
        let image = place.text("third.img");
        place.ok(&format!("disk export {name} {image}"))?;
        run("e2fsck", &["-f", "-n", &image])?;
        let listed = run("debugfs", &["-R", "ls /home", &image])?;
        ensure!(listed.contains("new") && !listed.contains("break"), "{listed}");
        let holes = run("debugfs", &["-R", "stat /home/holes", &image])?;
        let blocks = holes.split("Blockcount: ").nth(1).and_then(|rest| rest.split_whitespace().next());
        ensure!(blocks.context("it tells blocks")?.parse::<u64>()? < 64, "holes were filled: {holes}");
        let root = run("debugfs", &["-R", "stat /", &image])?;
        ensure!(root.contains("Mode:  02750") || root.contains("Mode:  2750"), "{root}");

        // The oldest, with all that an archive keeps.
        let name = first["name"].as_str().context("a run has a name")?;
        let archive = place.text("first.tar");
        ok(place, &["point", "files", name, "get", "/", "--archive", &archive])?;
        let back = place.path("back");
        fs::create_dir(&back)?;
        run("tar", &["-x", "-p", "--xattrs", "--numeric-owner", "-f", &archive, "-C", text(&back)])?;
        let mut came = owned(&back)?;
        came.remove(Path::new("lost+found"));
        ensure!(came == wanted, "{came:?} came, and was {wanted:?}");
        nothing_is_left(place)?;

        // It is no machine: that is told, and nothing is booted.
        let said = place.fails(&format!("verify {name}"), 1)?;
        ensure!(said.contains("is of a folder") && said.contains("point files"), "{said}");

        // A folder that goes: it is said, and there is no point of it.
        let (points, gone) = (place.json("point ls files")?, place.path("gone"));
        fs::rename(&tree, &gone)?;
        let said = place.fails("backup run files", 1)?;
        ensure!(said.contains("cannot be read"), "{said}");
        ensure!(place.json("point ls files")? == points, "a point was made of nothing");
        server.stop()
    });
}

fn written(run: &serde_json::Value) -> Result<u64> {
    run["copied"]["written_bytes"].as_u64().with_context(|| format!("{run} wrote nothing"))
}

/// As [`seen`], and who has it, and what else is said of it.
fn owned(folder: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let mut all = seen(folder)?;
    for (path, what) in &mut all {
        let full = folder.join(path);
        let meta = full.symlink_metadata()?;
        let mut note = [0; 16];
        let len = rustix::fs::lgetxattr(&full, "user.note", &mut note).unwrap_or(0);
        *what +=
            &format!(" {:o} {}:{} {:?} {}", meta.mode(), meta.uid(), meta.gid(), &note[..len], meta.nlink());
    }
    Ok(all)
}

/// What looks like a Debian, with files of every kind.
fn guest_tree(place: &Place) -> Result<PathBuf> {
    let tree = place.path("tree");
    for folder in ["bin", "etc", "home/inner", "data"] {
        fs::create_dir_all(tree.join(folder))?;
    }
    fs::write(
        tree.join("etc/os-release"),
        "ID=debian\nVERSION_ID=12\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n",
    )?;
    fs::write(tree.join("etc/debian_version"), "12.1\n")?;
    fs::write(tree.join("etc/fstab"), "/dev/vda / ext4 defaults 0 1\n/dev/vdb /data xfs defaults 0 2\n")?;
    let home = tree.join("home");
    fs::write(home.join("line\nbreak"), "n")?;
    fs::write(home.join(OsStr::from_bytes(b"\xff\"quote' $x")), "b")?;
    fs::write(home.join("one"), vec![9; 3_000_000])?;
    fs::hard_link(home.join("one"), home.join("other"))?;
    std::os::unix::fs::symlink("../etc/fstab", home.join("link"))?;
    fs::write(home.join("inner/secret"), "s")?;
    let holes = File::create(home.join("holes"))?;
    holes.set_len(20 << 20)?;
    std::os::unix::fs::FileExt::write_at(&holes, b"in the midst", 10_000_000)?;
    for (name, mode) in [("one", 0o640), ("inner/secret", 0o4755), ("holes", 0o600)] {
        fs::set_permissions(home.join(name), Permissions::from_mode(mode))?;
    }
    for path in ["line\nbreak", "one", "holes", "inner/secret", "inner"] {
        File::open(home.join(path))?.set_modified(SystemTime::UNIX_EPOCH + MADE)?;
    }
    fs::set_permissions(home.join("inner"), Permissions::from_mode(0o550))?;
    Ok(tree)
}

/// All below a folder, each in words: what it is, who may do what, since when, its bytes.
fn seen(folder: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let mut all = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(path) = open.pop() {
        for entry in fs::read_dir(&path).with_context(|| path.display().to_string())? {
            let path = entry?.path();
            let meta = path.symlink_metadata()?;
            let what = if meta.is_symlink() {
                format!("to {}", fs::read_link(&path)?.display())
            } else if meta.is_dir() {
                open.push(path.clone());
                format!("folder {:o} {}", meta.mode() & 0o777, meta.mtime())
            } else {
                let bytes = fs::read(&path)?;
                let sum =
                    bytes.iter().fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
                let begin = &bytes[..bytes.len().min(8)];
                format!("{:o} {} {} {sum} {begin:?}", meta.mode() & 0o777, meta.mtime(), bytes.len())
            };
            all.insert(path.strip_prefix(folder)?.to_owned(), what);
        }
    }
    Ok(all)
}

/// Disks out of images, a machine of them, a point of that.
fn point_of(place: &Place, name: &str, images: &[&Path]) -> Result<String> {
    let disks: Vec<String> = (0..images.len()).map(|number| format!("{name}-{number}")).collect();
    for (disk, image) in disks.iter().zip(images) {
        place.ok(&format!("disk import {disk} {}", image.display()))?;
    }
    place.ok(&format!("machine add {name} --disk {}", disks.join(",")))?;
    place.ok(&format!("source add {name} --machine {name}"))?;
    let made = place.json(&format!("backup run {name}"))?;
    Ok(made["name"].as_str().with_context(|| format!("no name in {made}"))?.to_owned())
}

/// Shows a point in a folder meanwhile, and ends that as Ctrl-C does.
fn mounted(place: &Place, point: &str, folder: &Path, look: impl FnOnce() -> Result<()>) -> Result<()> {
    let mut child = command(place, &["point", "mount", point, text(folder), "--file-system", "vda"])?
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("its output is a pipe")?).read_line(&mut line)?;
    let looked = if line.contains("until Ctrl-C") { look() } else { Err(anyhow::anyhow!("it said: {line}")) };
    run("kill", &["-INT", &child.id().to_string()])?;
    let status = child.wait()?;
    looked?;
    ensure!(status.success(), "it ended with {status}");
    Ok(())
}

fn command(place: &Place, arguments: &[&str]) -> Result<Command> {
    let own = place.path("own");
    fs::create_dir_all(&own)?;
    let mut command = process::tied_to_us(stonefold()?, "TERM");
    command.args(arguments).env("STONEFOLD_API", place.api()).env("TMPDIR", own);
    // What libguestfs makes once and uses again.
    command.env("LIBGUESTFS_CACHEDIR", "/var/tmp");
    Ok(command)
}

fn answered(place: &Place, arguments: &[&str]) -> Result<Finished> {
    process::run(&mut command(place, arguments)?, APPLIANCE_MAX)
}

fn ok(place: &Place, arguments: &[&str]) -> Result<String> {
    let done = answered(place, arguments)?;
    ensure!(done.status.success(), "stonefold {arguments:?}: {}\n{}", done.stderr, place.last_words());
    Ok(done.stdout)
}

/// No folder, no program: not of this program's, nor of libguestfs's.
fn nothing_is_left(place: &Place) -> Result<()> {
    let own = place.path("own");
    let left: Vec<_> = fs::read_dir(&own)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    ensure!(left.is_empty(), "left over: {left:?}");
    for process in fs::read_dir("/proc")? {
        let words = fs::read(process?.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        ensure!(!words.contains(text(&own)), "still runs: {words}");
    }
    Ok(())
}

fn there_is_a_kernel(what: &str) -> bool {
    let kernels = fs::read_dir("/boot").into_iter().flatten().flatten();
    let mut kernels = kernels.filter(|entry| entry.file_name().as_bytes().starts_with(b"vmlinuz-"));
    let readable = kernels.any(|entry| File::open(entry.path()).is_ok());
    is_there(
        Need::Loop,
        what,
        (!readable).then(|| "no kernel in /boot can be read, which libguestfs needs".to_owned()),
    )
}

fn empty(path: &Path, bytes: u64) -> Result<()> {
    Ok(File::create(path)?.set_len(bytes)?)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("the place's name is text")
}
