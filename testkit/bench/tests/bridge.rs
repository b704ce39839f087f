//! The disk of a real QEMU whose processors never run, by the NBD tools of the distribution: what was there is read, what is written stays.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use stonefold_dice::Dice;
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

fn qemu(folder: &Path, image: &Path) -> Running {
    let at = |name: &str| folder.join(name).display().to_string();
    idle_firmware(&folder.join("bios"));
    let words = [
        "-accel tcg -display none -nodefaults -machine pc,memory-backend=ram".to_owned(),
        format!("-m {} -bios {}", MEMORY >> 20, at("bios")),
        format!("-object memory-backend-file,id=ram,size={MEMORY},mem-path={},share=on", at("memory")),
        format!("-qtest unix:{},server=on,wait=off -qtest-log none", at("test")),
        format!("-blockdev driver=raw,node-name=disk,file.driver=file,file.filename={}", image.display()),
        "-device virtio-blk-pci,drive=disk".to_owned(),
    ];
    let words: Vec<String> = words.iter().flat_map(|line| line.split(' ')).map(str::to_owned).collect();
    started("qemu-system-x86_64", &words, &folder.join("test"))
}

fn bridge(folder: &Path) -> Running {
    let at = |name: &str| folder.join(name).display().to_string();
    let words = ["--test", &at("test"), "--memory", &at("memory"), "--memory-bytes", &MEMORY.to_string()]
        .into_iter()
        .chain(["--socket", &at("bridge"), "--size", &SIZE.to_string()])
        .map(str::to_owned)
        .collect::<Vec<_>>();
    started(env!("CARGO_BIN_EXE_stonefold-bridge"), &words, &folder.join("bridge"))
}

fn done(program: &str, words: &[&str]) -> String {
    let finished = run(Command::new(program).args(words), PATIENCE).unwrap();
    assert!(finished.status.success(), "{program} {words:?}: {}{}", finished.stdout, finished.stderr);
    finished.stdout
}

#[test]
fn what_is_asked_of_the_bridge_is_asked_of_the_machines_own_disk() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    let mut dice = Dice::new(7);
    let mut content = vec![0u8; SIZE];
    dice.fill(&mut content);
    let image = folder.join("disk.raw");
    fs::write(&image, &content).unwrap();
    let machine = qemu(folder, &image);
    let bridge = bridge(folder);
    let uri = format!("nbd+unix:///disk?socket={}", folder.join("bridge").display());

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
    let lines: Vec<&str> = lines.iter().flat_map(|line| ["-c", line.as_str()]).collect();
    let said = done("qemu-io", &[&["-f", "raw"], &lines[..], &[uri.as_str()]].concat());
    assert!(!said.contains("failed"), "{said}");
    // What cannot be done is refused, and harms nobody.
    let beyond =
        run(Command::new("qemu-io").args(["-f", "raw", "-c", &format!("read {SIZE} 512"), &uri]), PATIENCE)
            .unwrap();
    assert!(!beyond.status.success() || beyond.stdout.contains("rror"), "{}{}", beyond.stdout, beyond.stderr);
    drop(bridge);
    drop(machine);
    assert!(fs::read(&image).unwrap() == content, "what was written is on the machine's disk");
}
