//! The clients people use, run against the door. None is skipped: one that is missing fails, and says which package has it.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::fixture::Fixture;

const SIZE: usize = 32 << 20;

/// Runs a program to its end and returns its output; fails with everything it said.
pub(crate) fn run(program: &str, package: &str, arguments: &[&str]) -> String {
    let out =
        Command::new(program).args(arguments).stdin(Stdio::null()).output().unwrap_or_else(|error| {
            panic!("{program} cannot be run ({error}); install the package {package}")
        });
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{program} {arguments:?} failed:\n{text}");
    text
}

/// A program that runs beside the test, and ends with it.
pub(crate) struct Beside(Child);

impl Beside {
    pub(crate) fn start(program: &str, package: &str, arguments: &[&str]) -> Self {
        let child = Command::new(program).args(arguments).stdin(Stdio::null()).spawn();
        Beside(child.unwrap_or_else(|error| {
            panic!("{program} cannot be run ({error}); install the package {package}")
        }))
    }

    pub(crate) fn wait_for(&mut self, mut ready: impl FnMut() -> bool) {
        for _ in 0..500 {
            if ready() {
                return;
            }
            if let Ok(Some(status)) = self.0.try_wait() {
                panic!("it ended with {status} before it was ready");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("it was not ready in 10 s");
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn nbdinfo_shows_what_there_is() {
    let (fixture, disk) = Fixture::with_disk(SIZE);
    disk.snapshot("monday");
    let text = run("nbdinfo", "libnbd-bin", &[&fixture.uri("disk")]);
    // Extended ones are asked for from 1.18 on.
    let version = run("nbdinfo", "libnbd-bin", &["--version"]);
    let minor = version.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok());
    let packets = match minor.expect("nbdinfo tells its version") {
        ..18 => "using structured packets",
        18.. => "using extended packets",
    };
    for line in [
        packets,
        "export-size: 33554432 (32M)",
        "base:allocation",
        "stonefold:changed-since/monday",
        "is_read_only: false",
        "can_cache: true",
        "can_df: true",
        "can_fast_zero: true",
        "can_flush: true",
        "can_fua: true",
        "can_multi_conn: true",
        "can_trim: true",
        "can_zero: true",
        "block_size_preferred: 4096",
        "block_size_maximum: 33554432",
    ] {
        assert!(text.contains(line), "no {line:?} in\n{text}");
    }
    let text = run("nbdinfo", "libnbd-bin", &["--list", &fixture.uri("")]);
    assert!(text.contains("export=\"disk\"") && text.contains("export=\"disk@monday\""), "{text}");
    let text = run("nbdinfo", "libnbd-bin", &[&fixture.uri("disk@monday")]);
    assert!(text.contains("is_read_only: true"), "{text}");
}

#[test]
fn nbdinfo_maps_allocation_and_changes() {
    let (fixture, disk) = Fixture::with_disk(SIZE);
    let uri = fixture.uri("disk");
    run("qemu-io", "qemu-utils", &["-f", "raw", "-c", "write -P 1 1M 1M", &uri]);
    disk.snapshot("s");
    run("qemu-io", "qemu-utils", &["-f", "raw", "-c", "write -P 2 1M 64k", "-c", "write -P 2 4M 8k", &uri]);
    let columns = |text: String| -> Vec<String> {
        text.lines().map(|line| line.split_whitespace().take(3).collect::<Vec<_>>().join(" ")).collect()
    };
    let allocation = columns(run("nbdinfo", "libnbd-bin", &["--map", &uri]));
    assert_eq!(
        allocation,
        ["0 1048576 3", "1048576 1048576 0", "2097152 2097152 3", "4194304 8192 0", "4202496 29351936 3"]
    );
    let changed = columns(run("nbdinfo", "libnbd-bin", &["--map=stonefold:changed-since/s", &uri]));
    assert_eq!(
        changed,
        ["0 1048576 0", "1048576 65536 1", "1114112 3080192 0", "4194304 8192 1", "4202496 29351936 0"]
    );
}

#[test]
fn nbdcopy_there_and_back() {
    let (fixture, disk) = Fixture::with_disk(SIZE);
    let file = fixture.folder.path().join("image");
    let contents: Vec<u8> =
        (0..SIZE).map(|at| if at / 300_000 % 3 == 0 { 0 } else { (at % 251) as u8 }).collect();
    std::fs::write(&file, &contents).unwrap();
    let (file, uri) = (file.to_str().unwrap(), fixture.uri("disk"));
    run("nbdcopy", "libnbd-bin", &["--flush", file, &uri]);
    assert!(disk.contents() == contents);
    let back = fixture.folder.path().join("back");
    run("nbdcopy", "libnbd-bin", &[&uri, back.to_str().unwrap()]);
    assert!(std::fs::read(back).unwrap() == contents);
}

#[test]
fn qemu_io_does_everything() {
    let (fixture, _disk) = Fixture::with_disk(SIZE);
    let commands = [
        "write -P 1 0 32M",
        "read -P 1 0 32M",
        "write -P 2 100 1000",
        "read -P 2 100 1000",
        "write -f -P 3 1M 4k",
        "read -P 3 1M 4k",
        "write -z 2M 1M",
        "read -P 0 2M 1M",
        "write -z -u 4M 1M",
        "write -z -f 5M 1M",
        "read -P 0 4M 2M",
        "discard 8M 8M",
        "aio_write -P 9 20M 1M",
        "aio_read 24M 1M",
        "aio_flush",
        "read -P 9 20M 1M",
        "flush",
    ];
    let uri = fixture.uri("disk");
    let mut arguments = vec!["-f", "raw"];
    commands.iter().for_each(|command| arguments.extend(["-c", command]));
    arguments.push(&uri);
    let text = run("qemu-io", "qemu-utils", &arguments);
    assert!(!text.contains("failed") && !text.contains("Pattern"), "{text}");
}

#[test]
fn qemu_img_converts_maps_and_compares() {
    let (fixture, disk) = Fixture::with_disk(SIZE);
    disk.fill();
    let uri = fixture.uri("disk");
    run("qemu-io", "qemu-utils", &["-f", "raw", "-c", "write -z -u 4M 8M", &uri]);
    let map = run("qemu-img", "qemu-utils", &["map", "-f", "raw", "--output=json", &uri]);
    assert!(
        map.contains("\"start\": 4194304, \"length\": 8388608") && map.contains("\"zero\": true"),
        "{map}"
    );
    let image = fixture.folder.path().join("image.qcow2");
    let image = image.to_str().unwrap();
    run("qemu-img", "qemu-utils", &["convert", "-f", "raw", "-O", "qcow2", &uri, image]);
    let text = run("qemu-img", "qemu-utils", &["compare", "-f", "raw", "-F", "qcow2", &uri, image]);
    assert!(text.contains("identical"), "{text}");
    fixture.exports.create("copy", SIZE);
    let copy = fixture.uri("copy");
    run("qemu-img", "qemu-utils", &["convert", "-n", "-f", "qcow2", "-O", "raw", image, &copy]);
    let text = run("qemu-img", "qemu-utils", &["compare", "-f", "raw", "-F", "raw", &uri, &copy]);
    assert!(text.contains("identical"), "{text}");
    disk.snapshot("s");
    let snapshot = fixture.uri("disk@s");
    let text = run("qemu-img", "qemu-utils", &["compare", "-f", "raw", "-F", "raw", &uri, &snapshot]);
    assert!(text.contains("identical"), "{text}");
}

/// Other servers as clients: what they pass on is what we hold.
#[test]
fn qemu_nbd_and_nbdkit_pass_it_on() {
    let (fixture, disk) = Fixture::with_disk(SIZE);
    disk.fill();
    let qemu = fixture.folder.path().join("qemu.sock");
    let kit = fixture.folder.path().join("kit.sock");
    let (upstream, qemu_path, kit_path) =
        (fixture.uri("disk"), qemu.to_str().unwrap(), kit.to_str().unwrap());
    let mut qemu_nbd = Beside::start(
        "qemu-nbd",
        "qemu-utils",
        &["-t", "-f", "raw", "-k", qemu_path, "-e", "4", "--shared=4", &upstream],
    );
    let mut nbdkit =
        Beside::start("nbdkit", "nbdkit", &["-f", "-U", kit_path, "nbd", &format!("uri={upstream}")]);
    qemu_nbd.wait_for(|| qemu.exists());
    nbdkit.wait_for(|| kit.exists());
    for socket in [qemu_path, kit_path] {
        let uri = format!("nbd+unix:///?socket={socket}");
        let back = fixture.folder.path().join("back");
        run("nbdcopy", "libnbd-bin", &[&uri, back.to_str().unwrap()]);
        assert!(std::fs::read(&back).unwrap() == disk.contents(), "{socket}");
        run("qemu-io", "qemu-utils", &["-f", "raw", "-c", "write -P 5 1M 3M", "-c", "flush", &uri]);
        assert_eq!(disk.contents()[1 << 20..4 << 20], vec![5; 3 << 20]);
        disk.fill();
    }
}

#[test]
fn nbdfuse_mounts_it() {
    let (fixture, disk) = Fixture::with_disk(SIZE);
    disk.fill();
    assert!(
        std::path::Path::new("/dev/fuse").exists(),
        "nbdfuse needs /dev/fuse; load the kernel's fuse module, or give it to this container"
    );
    let folder = fixture.folder.path().join("mount");
    std::fs::create_dir(&folder).unwrap();
    let mount = folder.to_str().unwrap();
    let uri = fixture.uri("disk");
    let mut fuse = Beside::start("nbdfuse", "libnbd-bin", &[mount, &uri]);
    let file = folder.join("nbd");
    fuse.wait_for(|| file.exists());
    assert!(std::fs::read(&file).unwrap() == disk.contents());
    let mut contents = disk.contents();
    contents[5000..9000].fill(9);
    std::os::unix::fs::FileExt::write_all_at(
        &std::fs::OpenOptions::new().write(true).open(&file).unwrap(),
        &[9; 4000],
        5000,
    )
    .unwrap();
    // A program that another test starts meanwhile has this process's open files for a moment, and then it is busy.
    let unmounts =
        || Command::new("fusermount3").args(["-u", mount]).status().is_ok_and(|status| status.success());
    fuse.wait_for(unmounts);
    fuse.wait_for_end();
    assert!(disk.contents() == contents);
}

impl Beside {
    fn wait_for_end(&mut self) {
        assert!(self.0.wait().unwrap().success());
    }
}

#[test]
fn fio_verifies_what_it_wrote() {
    let (fixture, disk) = Fixture::with_disk(SIZE);
    let uri = format!("--uri={}", fixture.uri("disk"));
    for polls in [0, 2] {
        disk.polls_to_wait.store(polls, std::sync::atomic::Ordering::SeqCst);
        let text = run(
            "fio",
            "fio",
            &[
                "--name=verify",
                "--ioengine=nbd",
                &uri,
                "--rw=randrw",
                "--bsrange=512-300k",
                "--bs_unaligned",
                "--size=32M",
                "--iodepth=32",
                "--fsync=64",
                "--verify=crc32c",
                "--verify_backlog=128",
                "--randseed=7",
                "--verify_state_save=0",
            ],
        );
        assert!(text.contains("err= 0"), "{text}");
    }
}
