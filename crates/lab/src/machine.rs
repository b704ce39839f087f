//! What can be told of the machine that a load runs on.

use std::collections::BTreeMap;
use std::fs;

/// Processors that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// By names: processor, cores, memory, kernel, system, governor, virtual. What cannot be told is left out.
pub fn describe() -> BTreeMap<String, String> {
    let mut machine = BTreeMap::new();
    let mut tell = |name: &str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            machine.insert(name.to_owned(), value);
        }
    };
    let field = |path: &str, name: &str, separator: char| -> Option<String> {
        let text = fs::read_to_string(path).ok()?;
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.split_once(separator).map(|(_, value)| value.trim().trim_matches('"').to_owned())
    };
    let first = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    tell("processor", field("/proc/cpuinfo", "model name", ':'));
    tell("cores", Some(format!("{} cores", cores())));
    let kib = field("/proc/meminfo", "MemTotal", ':')
        .and_then(|value| value.split(' ').next()?.parse::<u64>().ok());
    tell("memory", kib.map(|kib| format!("{:.1} GiB", kib as f64 / f64::from(1 << 20))));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linux_machine_tells_of_itself() {
        let machine = describe();
        assert!(
            machine.contains_key("kernel") && machine.contains_key("memory") && machine.contains_key("cores")
        );
    }
}
