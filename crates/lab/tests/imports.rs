//! Foreign traces: what fio and blkparse say of their own files is what the lab makes of them.
//!
//! The kernel's own tracing is closed to most test machines, so that blktrace's files are made here, by the kernel's header; that they are right is
//! shown by blkparse, which reads them, too.

use std::path::{Path, PathBuf};
use std::process::Command;
use stonefold_lab::trace::import::{Event, Imported, import};
use stonefold_lab::trace::{Op, Reason, Record, Trace};

fn records(imported: &Imported) -> Vec<Record> {
    Trace::of(imported.bytes.clone(), false).unwrap().records().collect()
}

fn text(dir: &Path, content: &str) -> Vec<PathBuf> {
    let path = dir.join("io.log");
    std::fs::write(&path, content).unwrap();
    vec![path]
}

fn of_text(content: &str) -> stonefold_types::Result<Imported> {
    let dir = tempfile::tempdir().unwrap();
    import(&text(dir.path(), content), Event::Queue, None)
}

/// As fio's HOWTO draws it.
#[test]
fn version_2_of_fio_has_its_times_in_waits() {
    let log = "fio version 2 iolog\n/d add\n/d open\n/d write 4096 8192\n/d wait 1500 0\n/d read 0 512\n/d wait 99 0\n\
               /d sync 0 0\n/d wait 250 0\n/d trim 65536 65536\n/d rename 0 0\n/d read 4096 0\n/d close\n";
    let imported = of_text(log).unwrap();
    let told: Vec<_> = records(&imported)
        .iter()
        .map(|record| (record.at / 1000, record.op, record.offset, record.bytes))
        .collect();
    let meant = [
        (0, Op::Write, 4096, 8192),
        (1500, Op::Read, 0, 512),
        (1500, Op::Flush, 0, 0),
        (1750, Op::Trim, 65536, 65536),
    ];
    assert_eq!(told, meant);
    let left: Vec<_> = imported.left_out.into_iter().collect();
    assert_eq!(left, [("of no bytes".to_owned(), 1), ("with the action 'rename'".to_owned(), 1)]);
}

#[test]
fn what_fio_wrote_is_what_fio_did() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let log = dir.path().join("fio.log");
    let said = Command::new("fio")
        .args(["--name=a", "--size=4M", "--rw=randrw", "--rwmixread=70", "--bsrange=4k-32k", "--fsync=8"])
        .args(["--rate_iops=300,130", "--runtime=3", "--time_based", "--output-format=json"])
        .arg(format!("--filename={}", dir.path().join("data").display()))
        .arg(format!("--write_iolog={}", log.display()))
        .output()
        .unwrap();
    let told = String::from_utf8(said.stdout).unwrap();
    let told: serde_json::Value = serde_json::from_str(&told[told.find('{').unwrap()..]).unwrap();
    let imported = import(std::slice::from_ref(&log), Event::Queue, None).unwrap();
    assert_eq!(imported.format, "fio's I/O log, version 3");
    let job = &told["jobs"][0];
    let [reads, writes, flushes, ..] = imported.totals.count;
    assert_eq!(
        (reads, writes),
        (job["read"]["total_ios"].as_u64().unwrap(), job["write"]["total_ios"].as_u64().unwrap())
    );
    assert_eq!(flushes, job["sync"]["total_ios"].as_u64().unwrap());
    let bytes = job["read"]["io_bytes"].as_u64().unwrap() + job["write"]["io_bytes"].as_u64().unwrap();
    assert_eq!(imported.totals.bytes[0] + imported.totals.bytes[1], bytes);
    let trace = Trace::of(imported.bytes, false).unwrap();
    let seconds = trace.length() as f64 / 1e9;
    assert!((2.5..4.0).contains(&seconds) && trace.end().reason == Reason::Imported, "{seconds} s of 3");
    assert!(imported.left_out.is_empty());
}

#[test]
fn what_is_no_log_or_cut_or_mixed_is_refused_with_the_reason() {
    for (log, why) in [
        ("fio version 1 iolog\n", "versions 2 and 3"),
        ("fio version 3 iolog\n5 /d read 0\n", "line 2"),
        ("fio version 3 iolog\n5 /d read 0 4096\nx /d read 0 4096\n", "line 3"),
        ("fio version 3 iolog\n5 /d read 0 4096\n6 /e read 0 4096\n", "several files: /d, /e"),
        ("fio version 3 iolog\n5 /d read 9223372036854775807 4096\n", "beyond every device"),
        ("fio version 3 iolog\n5 /d add\n", "holds no I/O"),
        ("hello\n", "neither"),
    ] {
        let error = of_text(log).err().unwrap_or_else(|| panic!("{log} is taken"));
        let said = format!("{error} {}", error.remedy_text().unwrap_or_default());
        assert!(said.contains(why), "{log}: {said}");
    }
    let dir = tempfile::tempdir().unwrap();
    let two = text(dir.path(), "fio version 3 iolog\n5 /d read 0 4096\n6 /e read 0 4096\n");
    let imported = import(&two, Event::Queue, Some("/e")).unwrap();
    assert_eq!((records(&imported).len(), imported.left_out["of other files"]), (1, 1));
}

/// An event as the kernel writes it.
#[derive(Clone, Copy)]
struct Traced {
    time: u64,
    sector: u64,
    bytes: u32,
    action: u32,
    cpu: u32,
    minor: u32,
}

const READ: u32 = 1 << 16;
const WRITE: u32 = 1 << 17;
const FLUSH: u32 = 1 << 18;
const SYNC: u32 = 1 << 19;
const DISCARD: u32 = 1 << 29;
const FUA: u32 = 1 << 31;
/// The lower half, with the bit of the upper half that goes with it.
const Q: u32 = 1 | 1 << 20;
const D: u32 = 7 | 1 << 22;
const C: u32 = 8 | 1 << 23;

impl Traced {
    fn encode(self, number: u32, big: bool, note: &[u8]) -> Vec<u8> {
        let device = 8 << 20 | self.minor;
        let mut bytes = Vec::new();
        let mut put = |value: u64, width: usize| {
            let le = &value.to_le_bytes()[..width];
            if big { bytes.extend(le.iter().rev()) } else { bytes.extend(le) }
        };
        put(0x6561_7407, 4);
        put(number.into(), 4);
        put(self.time, 8);
        put(self.sector, 8);
        put(self.bytes.into(), 4);
        put(self.action.into(), 4);
        put(77, 4);
        put(device.into(), 4);
        put(self.cpu.into(), 4);
        put(0, 2);
        put(note.len() as u64, 2);
        bytes.extend(note);
        bytes
    }
}

/// Two processors, six I/Os; the clock's note, a process's name, plugging, and another device if asked.
fn events(other_device: bool) -> Vec<Traced> {
    let at = |time: u64, cpu: u32, action: u32, sector: u64, bytes: u32| Traced {
        time,
        sector,
        bytes,
        action,
        cpu,
        minor: 0,
    };
    let mut events = vec![
        at(1_000, 0, Q | READ, 100, 4096),
        at(2_000, 0, D | READ, 100, 4096),
        at(3_000, 1, Q | WRITE | SYNC, 800, 8192),
        at(4_500, 1, D | WRITE | SYNC, 800, 8192),
        // Merged: two were asked for, one came to the device.
        at(5_000, 0, Q | WRITE, 2000, 4096),
        at(5_100, 0, Q | WRITE, 2008, 4096),
        at(6_000, 0, D | WRITE, 2000, 8192),
        at(7_000, 1, Q | DISCARD | WRITE, 4096, 1 << 20),
        at(7_500, 1, D | DISCARD | WRITE, 4096, 1 << 20),
        // A flush before a write that must be durable.
        at(8_000, 0, Q | WRITE | FLUSH | FUA, 16, 512),
        at(8_500, 0, D | WRITE | FUA, 16, 512),
        at(9_000, 1, Q | WRITE | FLUSH, 0, 0),
        at(102_000, 1, C | READ, 100, 4096),
        at(204_500, 1, C | WRITE, 800, 8192),
        at(206_000, 0, C | WRITE, 2000, 8192),
    ];
    if other_device {
        events.push(Traced { minor: 16, ..at(9_500, 1, Q | READ, 0, 4096) });
    }
    events
}

fn files(dir: &Path, events: &[Traced], big: bool) -> Vec<PathBuf> {
    (0..2)
        .map(|cpu| {
            let mut bytes = Vec::new();
            if cpu == 0 {
                // Seconds and nanoseconds of the wall clock, in the order of bytes of the machine.
                let clock: [u32; 2] = [1_700_000_000, 5];
                let note =
                    clock.map(|half| if big { half.to_be_bytes() } else { half.to_le_bytes() }).concat();
                let noted = Traced { time: 0, sector: 0, bytes: 0, action: 1 << 26 | 1, cpu: 0, minor: 0 };
                bytes.extend(noted.encode(0, big, &note));
                bytes.extend(Traced { action: 1 << 26, ..noted }.encode(0, big, b"dd\0\0"));
            }
            let of_cpu = events.iter().filter(|event| event.cpu == cpu);
            of_cpu.zip(1..).for_each(|(event, number)| bytes.extend(event.encode(number, big, &[])));
            let path = dir.join(format!("sda.blktrace.{cpu}"));
            std::fs::write(&path, bytes).unwrap();
            path
        })
        .collect()
}

#[test]
fn a_blktrace_is_merged_by_time_whoever_wrote_it() {
    for big in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let files = files(dir.path(), &events(false), big);
        let queued = import(&files, Event::Queue, None).unwrap();
        let told: Vec<_> = records(&queued)
            .iter()
            .map(|record| {
                (record.at, record.op, record.offset, record.bytes, record.fua, record.queue, record.took)
            })
            .collect();
        let meant = [
            (0, Op::Read, 51_200, 4096, false, 0, Some(101_000)),
            (2_000, Op::Write, 409_600, 8192, false, 1, Some(201_500)),
            (4_000, Op::Write, 1_024_000, 4096, false, 0, None),
            (4_100, Op::Write, 1_028_096, 4096, false, 0, None),
            (6_000, Op::Trim, 2_097_152, 1 << 20, false, 1, None),
            (7_000, Op::Flush, 0, 0, false, 0, None),
            (7_000, Op::Write, 8192, 512, true, 0, None),
            (8_000, Op::Flush, 0, 0, false, 1, None),
        ];
        assert_eq!(told, meant, "big {big}");
        let trace = Trace::of(queued.bytes, false).unwrap();
        assert_eq!(
            (trace.header().started, trace.header().name.as_str()),
            (1_700_000_000_000_000_005, "8:0")
        );
        let issued = import(&files, Event::Issue, None).unwrap();
        assert_eq!(issued.totals.count, [1, 3, 0, 1, 0]);
        let merged = records(&issued)[2];
        assert_eq!((merged.bytes, merged.took), (8192, Some(200_000)));
    }
}

/// blkparse reads the same files, and counts the same.
#[test]
fn blkparse_tells_the_same_of_the_files_as_the_lab() {
    let dir = tempfile::tempdir().unwrap();
    let files = files(dir.path(), &events(false), false);
    let said = Command::new("blkparse")
        .args(["-q", "-f", "%a %d %S %N %T.%t\n", "-i", "sda"])
        .current_dir(dir.path())
        .output()
        .expect("blkparse is in the package blktrace");
    let said = String::from_utf8(said.stdout).unwrap();
    for (event, letter) in [(Event::Queue, "Q "), (Event::Issue, "D ")] {
        let trace = import(&files, event, None).unwrap();
        let begin = records(&trace)[0];
        let ours: Vec<String> = records(&trace)
            .iter()
            .filter(|record| record.op != Op::Flush)
            .map(|record| {
                // blkparse counts from the first event of all, which is the first that was asked for.
                let at = record.at - begin.at + if event == Event::Issue { 1_000 } else { 0 };
                format!(
                    "{} {} {}.{:09}",
                    record.offset / 512,
                    record.bytes,
                    at / 1_000_000_000,
                    at % 1_000_000_000
                )
            })
            .collect();
        let theirs: Vec<String> = said
            .lines()
            .filter(|line| line.starts_with(letter) && !line.contains(" 0 0 "))
            .filter_map(|line| line.splitn(3, ' ').nth(2).map(str::to_owned))
            .collect();
        assert_eq!(ours, theirs, "{said}");
    }
}

#[test]
fn a_blktrace_that_is_cut_or_of_several_devices_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let several = files(dir.path(), &events(true), false);
    let error = import(&several, Event::Queue, None).unwrap_err();
    assert!(error.to_string().contains("several devices: 8:0, 8:16"), "{error}");
    let one = import(&several, Event::Queue, Some("8:16")).unwrap();
    assert_eq!((records(&one).len(), one.left_out["events of other devices"]), (1, 10));
    assert!(import(&several, Event::Queue, Some("sda")).is_err());
    let bytes = std::fs::read(&several[1]).unwrap();
    std::fs::write(&several[1], &bytes[..bytes.len() - 20]).unwrap();
    let error = import(&several, Event::Queue, Some("8:0")).unwrap_err();
    assert!(error.to_string().contains("was cut short"), "{error}");
}
