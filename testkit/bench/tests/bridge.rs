//! The disk of a real QEMU whose processors never run, by the NBD tools of the distribution: what was there is read, what is written stays.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use stonefold_guest::process::{run, stop, tied_to_us};
use stonefold_guest::time::Deadline;

const PATIENCE: Duration = Duration::from_secs(60);
const SIZE: usize = 48 << 20;
const MEMORY: usize = 128 << 20;

/// Ended, whatever the test says.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        stop(&mut self.0, PATIENCE);
    }
}

fn started(program: &str, arguments: &[String], made: &Path) -> Running {
    let running = Running(tied_to_us(program, "KILL").args(arguments).spawn().expect(program));
    let deadline = Deadline::after(PATIENCE);
    while !made.exists() {
        assert!(!deadline.passed(), "{program} has not made {}", made.display());
        std::thread::sleep(Duration::from_millis(20));
    }
    running
}

/// Firmware of which the processor's first instructions are cli and hlt.
fn idle_firmware(at: &Path) {
    let mut firmware = vec![0u8; 0x10000];
    firmware[0xFFF0..0xFFF2].copy_from_slice(&[0xFA, 0xF4]);
    fs::write(at, firmware).unwrap();
}

/// `disk`: QEMU's words for what is below the virtio disk.
fn qemu(folder: &Path, disk: &str) -> Running {
    let at = |name: &str| folder.join(name).display().to_string();
    idle_firmware(&folder.join("bios"));
    let words = [
        "-accel tcg -display none -nodefaults -machine pc,memory-backend=ram".to_owned(),
        format!("-m {} -bios {}", MEMORY >> 20, at("bios")),
        format!("-object memory-backend-file,id=ram,size={MEMORY},mem-path={},share=on", at("memory")),
        format!("-qtest unix:{},server=on,wait=off -qtest-log none", at("test")),
        format!("-blockdev node-name=disk,{disk} -device virtio-blk-pci,drive=disk"),
    ];
    let words: Vec<String> = words.iter().flat_map(|line| line.split(' ')).map(str::to_owned).collect();
    started("qemu-system-x86_64", &words, &folder.join("test"))
}

/// A bridge that says that the disk has `size` bytes, and its export.
fn bridge(folder: &Path, size: usize) -> (Running, String) {
    let at = |name: &str| folder.join(name).display().to_string();
    let words = ["--test", &at("test"), "--memory", &at("memory"), "--memory-bytes", &MEMORY.to_string()]
        .into_iter()
        .chain(["--socket", &at("bridge"), "--size", &size.to_string()])
        .map(str::to_owned)
        .collect::<Vec<_>>();
    let running = started(env!("CARGO_BIN_EXE_stonefold-bridge"), &words, &folder.join("bridge"));
    (running, format!("nbd+unix:///disk?socket={}", at("bridge")))
}

fn done(program: &str, words: &[&str]) -> String {
    let finished = run(Command::new(program).args(words), PATIENCE).unwrap();
    assert!(finished.status.success(), "{program} {words:?}: {}{}", finished.stdout, finished.stderr);
    finished.stdout
}

/// Whether qemu-io could do one after another of `lines`, and what it says of them.
fn acted(uri: &str, lines: &[&str]) -> (bool, String) {
    let lines = lines.iter().flat_map(|line| ["-c", *line]);
    let mut command = Command::new("qemu-io");
    // Otherwise each write is flushed.
    command.args(["-f", "raw", "-t", "writeback"]).args(lines).arg(uri);
    let finished = run(&mut command, PATIENCE).unwrap();
    (finished.status.success(), finished.stdout + &finished.stderr)
}

#[test]
fn what_is_asked_of_the_bridge_is_asked_of_the_machines_own_disk() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    let mut content = stonefold_dice::noise(7, SIZE);
    let image = folder.join("disk.raw");
    fs::write(&image, &content).unwrap();
    let machine = qemu(folder, &format!("driver=raw,file.driver=file,file.filename={}", image.display()));
    let (bridge, uri) = bridge(folder, SIZE);

    assert_eq!(done("nbdinfo", &["--size", &uri]).trim(), SIZE.to_string());
    // Many requests at one time, each of 256 KiB.
    let copy = folder.join("copy.raw");
    done("nbdcopy", &[&uri, &copy.display().to_string()]);
    assert!(fs::read(&copy).unwrap() == content, "the disk is read as it is");

    // Small ones, and the largest, at places of any sector; flushed; read again.
    let writes =
        [(512, 1024, 0x51), (4096 * 3 + 1536, 7680, 0x52), (5 << 20, 1 << 20, 0x53), (SIZE - 512, 512, 0x54)];
    let mut lines: Vec<String> =
        writes.iter().map(|(at, len, byte)| format!("write -P {byte:#x} {at} {len}")).collect();
    lines.push("flush".to_owned());
    for (at, len, byte) in writes {
        content[at..at + len].fill(byte as u8);
        lines.push(format!("read -P {byte:#x} {at} {len}"));
    }
    let (is_done, said) = acted(&uri, &lines.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(is_done && !said.contains("failed"), "{said}");

    // Another bridge to the same machine begins with what that one has left in its memory.
    drop(bridge);
    fs::remove_file(folder.join("bridge")).unwrap();
    let (bridge, uri) = self::bridge(folder, SIZE);
    done("nbdcopy", &[&uri, &copy.display().to_string()]);
    assert!(fs::read(&copy).unwrap() == content, "the disk is read as it was written");
    drop(bridge);
    drop(machine);
    assert!(fs::read(&image).unwrap() == content, "what was written is on the machine's disk");
}

#[test]
fn what_the_machines_disk_fails_to_do_fails_for_the_client_alone() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    let image = folder.join("disk.raw");
    fs::write(&image, vec![0; 1 << 20]).unwrap();
    // No flush succeeds, and the disk ends before the export does.
    let disk = format!(
        "driver=blkdebug,inject-error.0.event=none,inject-error.0.iotype=flush,image.driver=file,image.filename={}",
        image.display()
    );
    let _machine = qemu(folder, &disk);
    let (_bridge, uri) = bridge(folder, 2 << 20);
    let (is_done, said) = acted(&uri, &["write -P 0x51 0 4096", "read -P 0x51 0 4096"]);
    assert!(is_done && !said.contains("failed"), "{said}");
    let (is_done, said) = acted(&uri, &["flush"]);
    assert!(!is_done, "the flush came to the disk: {said}");
    let (is_done, said) = acted(&uri, &["read 1M 4096", "read -P 0x51 0 4096"]);
    assert!(!is_done && said.contains("read failed: Input/output error"), "{said}");
    assert!(said.contains("read 4096/4096"), "the next is done: {said}");
}
