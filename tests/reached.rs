//! Machines that are read over SSH: what the server asks of `ssh`, and what its script does on the other side.
//!
//! *Promise*: a point holds what the machine held, also in the midst of chunks and behind the last whole one; a second run has only what differs sent; a machine
//! that cannot be reached, read or held still leaves no point, and says why; nothing stays there, whoever is killed. *Method*: a program named `ssh`
//! that runs what it is told on this machine, as root; images and loop devices for disks. What takes volumes of LVM's is tried in a real guest
//! (`guest/reached.rs`), since not every kernel has them. *Past bug*: none yet.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stonefold_e2e::gateway::{Place, in_a_place};
use stonefold_e2e::mounts::{Loop, Mount};
use stonefold_e2e::runs::until_made_again;
use stonefold_e2e::tools::run;
use stonefold_guest::time::Deadline;
use stonefold_needs::{Need, there_is};

const MIB: usize = 1 << 20;
/// Not a whole number of chunks, of blocks, or of sectors.
const BYTES: usize = 5 * MIB + 4096 + 1001;
/// Until what was made on the other side has gone.
const GONE_MAX: Duration = Duration::from_secs(60);
const MADE_AGAIN_MAX: Duration = Duration::from_secs(120);
/// What is left on the other side is told by this machine's folder: one at a time.
static OTHER_SIDE: Mutex<()> = Mutex::new(());
/// It runs what it is told, unless a file says what it complains of instead.
const SSH: &str = r#"#!/bin/sh
echo "$@" >>PLACE/asked
if [ -e PLACE/complaint ]; then cat PLACE/complaint >&2; exit 255; fi
for last; do :; done
echo 'Welcome to this machine'
exec sh -c "$last"
"#;
/// It reads the machine's disk slowly, not at all, or has it written meanwhile, where a file says so.
const DD: &str = r#"#!/bin/sh
case "$1" in
    if=PLACE/disk.img)
        [ ! -e PLACE/slow ] || sleep 1
        if [ -e PLACE/broken ]; then echo "dd: error reading '${1#if=}': Input/output error" >&2; exit 1; fi
        if [ -e PLACE/meddle ]; then rm -f PLACE/meddle; printf x | REAL of=PLACE/disk.img bs=1 seek=77 conv=notrunc 2>/dev/null; fi
        ;;
esac
exec REAL "$@"
"#;

/// A machine with a disk, behind a program that is called as ssh is.
fn machine(place: &Place) -> Result<Vec<u8>> {
    fs::create_dir(place.path("bin"))?;
    let (real, bin) = (run("which", &["dd"])?, place.text("bin"));
    let here = bin.strip_suffix("/bin").context("it lies in the place")?;
    for (name, text) in [("ssh", SSH), ("dd", DD)] {
        let program = place.path("bin").join(name);
        fs::write(&program, text.replace("PLACE", here).replace("REAL", real.trim()))?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    }
    let mut held: Vec<u8> = (0..BYTES).map(|at| (at / 7 % 251) as u8).collect();
    held[MIB..3 * MIB].fill(0);
    fs::write(place.path("disk.img"), &held)?;
    Ok(held)
}

fn holds(place: &Place, made: &Value, held: &[u8]) -> Result<()> {
    let name = made["name"].as_str().context("a run has a name")?;
    let (source, stamp) = name.split_once('@').context("a point has a time")?;
    let whole = held.len().next_multiple_of(4096);
    let found = place.connect(&format!("{source}.vda@{stamp}"))?.read_all(0, whole as u64)?;
    let behind = found[held.len()..].iter().all(|byte| *byte == 0);
    let differs = found.iter().zip(held).position(|(one, other)| one != other);
    ensure!(differs.is_none() && behind, "it differs at {differs:?}");
    Ok(())
}

/// What a run has left on the other side.
fn left() -> Result<Vec<PathBuf>> {
    let is_ours = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("stonefold_"))
    };
    let mut all = Vec::new();
    for folder in ["/run", "/var/tmp"] {
        let found = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        all.extend(found.into_iter().filter(is_ours));
    }
    Ok(all)
}

fn nothing_is_left() -> Result<()> {
    let patience = Deadline::after(GONE_MAX);
    loop {
        let left = left()?;
        if left.is_empty() {
            return Ok(());
        }
        ensure!(!patience.passed(), "there is left: {left:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn points(place: &Place) -> Result<usize> {
    Ok(place.json("point ls")?.as_array().context("points are a list")?.len())
}

#[test]
fn a_machine_is_read_and_only_what_differs_is_sent() {
    if !there_is(Need::Loop, "a machine that is read over SSH, as root") {
        return;
    }
    let _alone = OTHER_SIDE.lock().unwrap_or_else(PoisonError::into_inner);
    in_a_place(|place| {
        let mut held = machine(place)?;
        let server = place.start(&["--cache", "64M"])?;
        let disk = place.text("disk.img");
        let added =
            place.ok(&format!("source add web --ssh keeper@web:2222 --identity /k --device {disk}"))?;
        ensure!(added.contains("the machine at 'ssh://keeper@web:2222'"), "{added}");
        let shown = place.ok("source show web")?;
        ensure!(shown.contains(&disk) && shown.contains("/k"), "{shown}");

        let first = place.json("backup run web")?;
        holds(place, &first, &held)?;
        let sent = first["copied"]["sent_bytes"].as_u64();
        ensure!(sent < Some((BYTES - 2 * MIB + 4096) as u64), "zeros were sent: {first}");
        let asked = fs::read_to_string(place.path("asked"))?;
        ensure!(
            asked.contains("-o BatchMode=yes") && asked.contains("-p 2222 -l keeper -i /k -- web exec sh -c"),
            "{asked}"
        );

        // A byte, and the last one.
        held[4 * MIB + 5] ^= 1;
        held[BYTES - 1] ^= 1;
        fs::write(place.path("disk.img"), &held)?;
        let second = place.json("backup run web")?;
        holds(place, &second, &held)?;
        let copied = &second["copied"];
        ensure!(copied["written_bytes"] == 2 * 4096 && copied["read_bytes"] == BYTES as u64, "{copied}");
        ensure!(copied["sent_bytes"].as_u64() < Some(2 * MIB as u64 + 8192), "{copied}");

        // What it is now is nobody's snapshot, and is the machine's again.
        place.connect("web.vda")?.write(0, &[7; 4096])?;
        let third = place.json("backup run web")?;
        holds(place, &third, &held)?;
        let full = place.json("backup run web --full")?;
        ensure!(full["copied"]["sent_bytes"] == BYTES as u64, "{full}");
        holds(place, &full, &held)?;
        nothing_is_left()?;

        let point = third["name"].as_str().context("a run has a name")?;
        let made = place.json(&format!("recover {point} --as again"))?;
        ensure!(
            made["recovery"]["hardware"]["text"].to_string().contains("<domain")
                || made.to_string().contains("again.vda"),
            "{made}"
        );
        place.ok("recover stop again --discard")?;
        place.ok("source rm web")?;
        server.stop()
    });
}

#[test]
fn what_fails_makes_no_point_and_says_why() {
    if !there_is(Need::Loop, "a machine that fails over SSH, as root") {
        return;
    }
    let _alone = OTHER_SIDE.lock().unwrap_or_else(PoisonError::into_inner);
    in_a_place(|place| {
        let held = machine(place)?;
        let server = place.start(&["--cache", "64M"])?;
        let disk = place.text("disk.img");
        place.ok(&format!("source add web --ssh root@web --device {disk}"))?;
        place.ok("source add none --ssh root@web --device /dev/nothing")?;
        for (complaint, words) in [
            ("Host key verification failed.", "run 'ssh -l root web true' once"),
            ("root@web: Permission denied (publickey).", "authorized_keys"),
            ("ssh: connect to host web port 22: Connection refused", "cannot be reached"),
            ("sudo: a password is required", "NOPASSWD"),
        ] {
            fs::write(place.path("complaint"), complaint)?;
            let said = place.fails("backup run web", 1)?;
            ensure!(said.contains(words) && said.contains("ssh://root@web"), "{said}");
        }
        fs::remove_file(place.path("complaint"))?;
        let said = place.fails("backup run none", 1)?;
        ensure!(said.contains("'/dev/nothing' is neither a block device nor a file there"), "{said}");
        let said = place.fails("backup run web --consistent app", 1)?;
        ensure!(said.contains("no guest can be asked"), "{said}");

        fs::write(place.path("broken"), "")?;
        let said = place.fails("backup run web", 1)?;
        ensure!(said.contains("error reading") && said.contains("Input/output error"), "{said}");
        fs::remove_file(place.path("broken"))?;
        fs::write(place.path("meddle"), "")?;
        let said = place.fails("backup run web", 1)?;
        ensure!(said.contains("was written while it was read"), "{said}");
        ensure!(points(place)? == 0, "a run that failed made a point");
        nothing_is_left()?;

        let written = fs::read(place.path("disk.img"))?;
        ensure!(written != held, "it was written meanwhile");
        holds(place, &place.json("backup run web")?, &written)?;
        for (line, words) in [
            ("source add x --ssh root:hush@web", "a password has no place in it"),
            ("source add x --ssh web --device sda", "no device that can be named"),
            ("source add x --ssh -oProxyCommand=x", "names no host"),
        ] {
            let said = place.run(line)?;
            ensure!(
                !said.status.success() && (said.stderr.contains(words) || said.stderr.contains("-o")),
                "{}",
                said.stderr
            );
        }
        server.stop()
    });
}

/// *Promise*: nothing of a run stays on the other side when its server is killed, or when somebody ends it; and the next run makes its point.
#[test]
fn nothing_stays_there_whoever_is_killed() {
    if !there_is(Need::Loop, "a server that is killed while it reads a machine, as root") {
        return;
    }
    let _alone = OTHER_SIDE.lock().unwrap_or_else(PoisonError::into_inner);
    in_a_place(|place| {
        let held = machine(place)?;
        let server = place.start(&["--cache", "64M"])?;
        place.ok(&format!("source add web --ssh root@web --device {}", place.text("disk.img")))?;
        fs::write(place.path("slow"), "")?;
        let begun = || -> Result<std::process::Child> {
            let mut command = std::process::Command::new(stonefold_e2e::binary::stonefold()?);
            command.args(["backup", "run", "web"]).env("STONEFOLD_API", place.api());
            let child =
                command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn()?;
            let patience = Deadline::after(GONE_MAX);
            while left()?.is_empty() {
                ensure!(!patience.passed(), "it does not begin");
                std::thread::sleep(Duration::from_millis(50));
            }
            Ok(child)
        };
        let mut waits = begun()?;
        let runs = place.json("backup ls")?;
        let run = runs.as_array().and_then(|runs| runs.last()).context("there is a run")?;
        let name = run["name"].as_str().context("a run has a name")?;
        let ended = place.ok(&format!("backup cancel {name}"))?;
        ensure!(ended.contains("was cancelled"), "{ended}");
        waits.wait()?;
        nothing_is_left()?;

        let mut waits = begun()?;
        server.kill();
        waits.wait()?;
        nothing_is_left()?;
        let server = place.start(&["--cache", "64M"])?;
        let runs = place.json("backup ls")?;
        let mut notes = runs.as_array().into_iter().flatten().filter_map(|run| run["note"].as_str());
        ensure!(notes.any(|note| note.starts_with("the server stopped in its midst")), "{runs}");
        fs::remove_file(place.path("slow"))?;
        until_made_again(place, "web", MADE_AGAIN_MAX)?;
        ensure!(points(place)? == 1, "what was cut off is not made again");
        holds(place, &place.json("backup run web")?, &held)?;
        server.stop()
    });
}

/// *Promise*: of a disk with partitions all of it comes back, also what is mounted; the file system on it is sound.
#[test]
fn a_disk_with_a_mounted_partition_comes_back() {
    if !there_is(Need::Loop, "a disk with partitions, one mounted, over SSH") {
        return;
    }
    let _alone = OTHER_SIDE.lock().unwrap_or_else(PoisonError::into_inner);
    in_a_place(|place| {
        machine(place)?;
        let image = place.path("parted.img");
        fs::File::create(&image)?.set_len(48 << 20)?;
        let text = image.to_string_lossy().into_owned();
        run(
            "sh",
            &[
                "-c",
                &format!("printf 'start=1MiB,size=16MiB,type=c\\nstart=17MiB,type=83\\n' | sfdisk -q {text}"),
            ],
        )?;
        let device = Loop::over(&image)?;
        run("partx", &["--update", &device.device])?;
        let (boot, other) = (format!("{}p1", device.device), format!("{}p2", device.device));
        // Nothing is to be written later that was not written now.
        run("mkfs.ext4", &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", &boot])?;
        fs::OpenOptions::new().write(true).open(&other)?.write_all_at(b"nobody has mounted it", 4096)?;
        let mount = Mount::of(&boot, &place.path("boot"), "noatime")?;
        fs::write(place.path("boot").join("vmlinuz"), vec![42; 3 * MIB])?;

        let server = place.start(&["--cache", "64M"])?;
        place.ok(&format!("source add web --ssh root@web --device {}", device.device))?;
        let first = place.json("backup run web")?;
        fs::write(place.path("boot").join("initrd"), vec![43; MIB])?;
        let second = place.json("backup run web")?;
        mount.unmount()?;
        run("partx", &["--delete", &device.device])?;
        drop(device);
        let held = fs::read(&image)?;
        let name = second["name"].as_str().context("a run has a name")?;
        let (_, stamp) = name.split_once('@').context("a point has a time")?;
        let found = place.connect(&format!("web.vda@{stamp}"))?.read_all(0, held.len() as u64)?;
        ensure!(
            found[..MIB] == held[..MIB] && found[17 * MIB..] == held[17 * MIB..],
            "what is not mounted differs"
        );
        fs::write(place.path("found.img"), &found[MIB..17 * MIB])?;
        let sound = run("e2fsck", &["-fy", &place.text("found.img")]);
        // It tells of the journal that it replayed by its status.
        let said = sound.unwrap_or_else(|error| error.to_string());
        ensure!(!said.contains("UNEXPECTED"), "{said}");
        let listed = run("debugfs", &["-R", "ls -l /", &place.text("found.img")])?;
        ensure!(listed.contains("vmlinuz") && listed.contains("initrd"), "{listed}");
        ensure!(first["name"] != second["name"], "{second}");
        nothing_is_left()?;
        server.stop()
    });
}

/// Where a folder's files are, and what is said of each.
fn told(folder: &Path) -> Result<String> {
    // A folder's own size and links are its file system's.
    let words = "find . -path ./lost+found -prune -o -type d -printf '%P|%m|%U:%G|%T@|\\n' -o -printf '%P|%y|%m|%U:%G|%n|%s|%T@|%l\\n' \
        | sed 's/\\.0*|/|/' | LC_ALL=C sort; \
        find . -path ./lost+found -prune -o -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum";
    run("sh", &["-c", &format!("cd '{}' && {{ {words}; }}", folder.display())])
}

/// *Promise*: a folder of another machine comes with all that its files have, only what differs is sent, and no image of it stays there; what else is mounted
/// in it is not taken for its own.
#[test]
fn a_folder_of_another_machine_is_kept() {
    if !there_is(Need::Loop, "a folder that is read over SSH, as root") {
        return;
    }
    let _alone = OTHER_SIDE.lock().unwrap_or_else(PoisonError::into_inner);
    in_a_place(|place| {
        machine(place)?;
        let share = place.path("share");
        fs::create_dir_all(share.join("inner folder"))?;
        fs::write(share.join("inner folder/one"), vec![9; 3 * MIB])?;
        fs::hard_link(share.join("inner folder/one"), share.join("other"))?;
        std::os::unix::fs::symlink("inner folder/one", share.join("link"))?;
        std::os::unix::fs::chown(share.join("other"), Some(1234), Some(77))?;
        rustix::fs::setxattr(share.join("other"), "user.note", b"kept", rustix::fs::XattrFlags::empty())?;
        fs::File::create(share.join("holes"))?.set_len(64 << 20)?;
        let large: Vec<u8> = (0..4 * MIB).map(|at| (at * at / 5 % 253) as u8).collect();
        fs::write(share.join("large"), &large)?;
        fs::set_permissions(&share, fs::Permissions::from_mode(0o2750))?;
        // Whole seconds are kept.
        run(
            "sh",
            &["-c", &format!("find '{}' -exec touch -h -d 2024-05-06T07:08:09 {{}} +", share.display())],
        )?;
        let wanted = told(&share)?;

        let server = place.start(&["--cache", "64M"])?;
        place.ok(&format!("source add share --ssh root@nas --device {}", share.display()))?;
        let first = place.json("backup run share")?;
        let again = place.json("backup run share")?;
        let sent = |run: &Value| run["copied"]["sent_bytes"].as_u64().context("a run tells what was sent");
        ensure!(sent(&again)? < MIB as u64 && sent(&first)? > 7 * MIB as u64, "{first} and {again}");
        nothing_is_left()?;

        let point = first["name"].as_str().context("a run has a name")?;
        let said = place.fails(&format!("verify {point}"), 1)?;
        ensure!(said.contains("is of folders") && said.contains("point files"), "{said}");
        let name = point.replace('@', ".vda@");
        let image = place.text("share.img");
        place.ok(&format!("disk export {name} {image}"))?;
        run("e2fsck", &["-f", "-n", &image])?;
        let device = Loop::over(place.path("share.img").as_path())?;
        let mount = Mount::of(&device.device, &place.path("shown"), "ro")?;
        let came = told(&place.path("shown"))?;
        let mut note = [0; 16];
        let len = rustix::fs::lgetxattr(place.path("shown").join("other"), "user.note", &mut note)?;
        ensure!(note[..len] == *b"kept", "{note:?}");
        mount.unmount()?;
        drop(device);
        ensure!(came == wanted, "{came} came, and was {wanted}");

        let device = Loop::over(place.path("share.img").as_path())?;
        let mount = Mount::of(&device.device, &share.join("inner"), "ro")?;
        let said = place.fails("backup run share", 1)?;
        mount.unmount()?;
        ensure!(said.contains("something else is mounted"), "{said}");
        nothing_is_left()?;
        server.stop()
    });
}
