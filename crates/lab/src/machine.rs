//! What can be told of the machine that a load runs on.

use crate::stats::mean;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use utoipa::ToSchema;

/// Processors that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Bytes of its memory; 0 where it cannot be told.
pub fn memory_bytes() -> u64 {
    let kib = field("/proc/meminfo", "MemTotal", ':')
        .and_then(|value| value.split(' ').next()?.parse::<u64>().ok());
    kib.map_or(0, |kib| kib << 10)
}

/// Bytes of memory that programs can still have without swapping; nothing where it cannot be told.
pub(crate) fn available_bytes() -> Option<u64> {
    let told = field("/proc/meminfo", "MemAvailable", ':')?;
    told.split(' ').next()?.parse::<u64>().ok().map(|kib| kib << 10)
}

/// What all processors together have done since the machine started, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Processors {
    all: u64,
    idle: u64,
    waiting: u64,
}

impl Processors {
    /// Since an earlier look: the share of time in which they did something, and the share in which they waited for storage.
    pub fn since(&self, before: &Processors) -> (f64, f64) {
        let all = self.all.saturating_sub(before.all).max(1) as f64;
        let share = |now: u64, then: u64| now.saturating_sub(then) as f64 / all;
        let (idle, waiting) = (share(self.idle, before.idle), share(self.waiting, before.waiting));
        ((1.0 - idle - waiting).max(0.0), waiting)
    }
}

/// As the kernel tells it; nothing where it does not.
pub fn processors() -> Processors {
    parsed(&fs::read_to_string("/proc/stat").unwrap_or_default())
}

/// The first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal (proc(5)); what a guest used is in the
/// first two again.
fn parsed(stat: &str) -> Processors {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu ")).unwrap_or_default();
    let ticks: Vec<u64> = line.split_whitespace().take(8).filter_map(|field| field.parse().ok()).collect();
    let of = |at: usize| ticks.get(at).copied().unwrap_or(0);
    Processors { all: ticks.iter().sum(), idle: of(3), waiting: of(4) }
}

/// Processor time of all threads of this process.
#[expect(clippy::disallowed_methods, reason = "processor time is measured, not waited for")]
pub fn own_processor_time() -> std::time::Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    std::time::Duration::new(used.tv_sec.unsigned_abs(), used.tv_nsec as u32)
}

fn field(path: &str, name: &str, separator: char) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_once(separator).map(|(_, value)| value.trim().trim_matches('"').to_owned())
}

/// What is to be known first of a machine that [`describe`] has described.
pub fn words(machine: &BTreeMap<String, String>) -> String {
    let told = ["processor", "cores", "memory", "kernel"].iter().filter_map(|name| machine.get(*name));
    told.filter(|word| !word.is_empty()).cloned().collect::<Vec<_>>().join(", ")
}

/// By names: processor, cores, memory, kernel, system, governor, virtual. What cannot be told is left out.
pub fn describe() -> BTreeMap<String, String> {
    let mut machine = BTreeMap::new();
    let mut tell = |name: &str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            machine.insert(name.to_owned(), value);
        }
    };
    let first = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    tell("processor", field("/proc/cpuinfo", "model name", ':'));
    tell("cores", Some(format!("{} cores", cores())));
    let bytes = Some(memory_bytes()).filter(|bytes| *bytes > 0);
    tell("memory", bytes.map(|bytes| format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))));
    tell("kernel", first("/proc/sys/kernel/osrelease").map(|release| format!("Linux {release}")));
    tell("system", field("/etc/os-release", "PRETTY_NAME", '='));
    tell("governor", first("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"));
    let flags = field("/proc/cpuinfo", "flags", ':').unwrap_or_default();
    tell(
        "virtual",
        flags.split(' ').any(|flag| flag == "hypervisor").then(|| "a virtual machine".to_owned()),
    );
    machine
}

/// How many processors were busy, second by second, whoever used them; all of a machine of two cores are 2.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Busy {
    /// In the second in which the fewest were.
    pub min: f64,
    /// On the average.
    pub mean: f64,
    /// In the second in which the most were.
    pub max: f64,
    /// Of how many; nothing of a bundle that does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<u32>,
    /// How many were wanted and had been given to others by the host of a virtual machine, on the average; not among those that were busy.
    #[serde(default)]
    pub stolen: f64,
}

impl Busy {
    /// Share of the processors that were in use, or could not be had.
    pub fn share(&self) -> Option<f64> {
        self.of.filter(|of| *of > 0).map(|of| (self.mean + self.stolen) / f64::from(of))
    }
}

/// Looks each second, on a thread of its own, until it is told to end.
pub(crate) struct CpuWatch {
    ending: Sender<()>,
    /// Of each second, how many were busy and how many stolen.
    thread: JoinHandle<Vec<(f64, f64)>>,
    /// Of the machine.
    processors: u32,
}

impl CpuWatch {
    /// From now on; nothing where the kernel does not tell.
    pub(crate) fn start() -> Option<Self> {
        let mut before = processor_ticks()?;
        // All that the kernel counts, of which this process may be allowed some.
        let processors = before.processors.max(1);
        let (ending, ended) = channel();
        let look = move || {
            let mut seconds = Vec::new();
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(Duration::from_secs(1)) {
                let Some(now) = processor_ticks() else { break };
                let all = now.all.saturating_sub(before.all).max(1) as f64;
                let of = |now: u64, before: u64| now.saturating_sub(before) as f64 / all * processors as f64;
                if now.all > before.all {
                    seconds.push((of(now.busy, before.busy), of(now.stolen, before.stolen)));
                }
                before = now;
            }
            seconds
        };
        let thread = std::thread::Builder::new().name("watch-cpu".into()).spawn(look).ok()?;
        Some(CpuWatch { ending, thread, processors: processors as u32 })
    }

    /// What was seen; nothing of less than a second.
    pub(crate) fn end(self) -> Option<Busy> {
        drop(self.ending);
        let (seconds, stolen): (Vec<f64>, Vec<f64>) = self.thread.join().ok()?.into_iter().unzip();
        Some(Busy {
            of: Some(self.processors),
            stolen: mean(&stolen),
            min: seconds.iter().copied().min_by(f64::total_cmp)?,
            mean: mean(&seconds),
            max: seconds.iter().copied().max_by(f64::total_cmp)?,
        })
    }
}

/// Ticks since the machine started, of all processors.
struct Ticks {
    busy: u64,
    stolen: u64,
    all: u64,
    /// How many these are.
    processors: usize,
}

/// By proc_stat(5): of the first eight columns, idle and iowait are not busy; guests' time is counted in user's already, and stolen time is
/// somebody else's.
fn processor_ticks() -> Option<Ticks> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let is_one = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let processors = text.lines().filter(is_one).count();
    let ticks: Vec<u64> =
        text.lines().next()?.split_whitespace().skip(1).take(8).map_while(|word| word.parse().ok()).collect();
    let [user, nice, system, idle, iowait, irq, softirq, ..] = ticks[..] else { return None };
    let busy = user + nice + system + irq + softirq;
    let stolen = ticks.get(7).copied().unwrap_or(0);
    Some(Ticks { busy, stolen, all: busy + idle + iowait + stolen, processors })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_told_apart() {
        let before = parsed("cpu  100 0 50 800 50 0 0 0 7 0\ncpu0 1 1 1 1\n");
        let after = parsed("cpu  160 0 70 900 70 0 0 0 9 0\n");
        let (busy, waiting) = after.since(&before);
        assert!((busy - 0.4).abs() < 1e-9 && (waiting - 0.1).abs() < 1e-9, "{busy} {waiting}");
        assert_eq!(parsed("").since(&parsed("")), (1.0, 0.0));
        assert!(processors() != Processors::default());
    }

    #[test]
    fn a_busy_thread_is_seen() {
        let watch = CpuWatch::start().unwrap();
        let before = processor_ticks().unwrap();
        let mut turns = 0u64;
        // Two seconds and a bit: ticks are hundredths of a second, of each processor.
        while processor_ticks().unwrap().all < before.all + 220 * before.processors as u64 {
            turns = std::hint::black_box(turns + 1);
        }
        let busy = watch.end().unwrap();
        assert!(busy.max > 0.1 && busy.min <= busy.mean && busy.mean <= busy.max, "{busy:?}");
        let share = busy.share().unwrap();
        assert!(share > 0.0 && share < 1.01, "{busy:?}");
        assert_eq!(Busy { of: None, ..busy }.share(), None, "of a bundle that does not tell");
    }

    #[test]
    fn a_linux_machine_tells_of_itself() {
        let machine = describe();
        assert!(
            machine.contains_key("kernel") && machine.contains_key("memory") && machine.contains_key("cores")
        );
    }
}
