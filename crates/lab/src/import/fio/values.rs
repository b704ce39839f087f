//! Numbers, sizes and times as fio writes them, and what options are that no profile has.

use super::super::Mapped;

/// A size in bytes: `4k`, `1m`, `0x1000`, `4kb`; with `ki`, `mi` powers of 1000, as fio reads them unless `kb_base` is 1000.
pub(super) fn bytes(text: &str, base_1000: bool) -> Option<u64> {
    let lower = text.trim().to_ascii_lowercase();
    if let Some(hex) = lower.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok();
    }
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = lower[digits.len()..].trim_end_matches('b');
    let (letter, binary) = match unit.strip_suffix('i') {
        // With the usual base the meanings are the reverse of the standard's.
        Some(letter) => (letter, base_1000),
        None => (unit, !base_1000),
    };
    let power = ["", "k", "m", "g", "t", "p"].iter().position(|one| *one == letter)? as u32;
    let factor = if binary { 1024u64 } else { 1000 }.checked_pow(power)?;
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

/// Seconds; without a unit they are that.
pub(super) fn seconds(text: &str) -> Option<f64> {
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &lower[digits.len()..] {
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        "ms" => 1e-3,
        "us" => 1e-6,
        _ => return None,
    };
    digits.parse::<f64>().ok().map(|number| number * factor)
}

/// A share in percent, with or without its sign.
pub(super) fn percent(text: &str) -> Option<f64> {
    let number = text.trim().trim_end_matches('%').parse::<f64>().ok()?;
    (0.0..=100.0).contains(&number).then_some(number)
}

/// Of `reads,writes,trims` those of reads and writes; a value that stands alone is of both.
pub(super) fn directions(text: &str) -> (String, String) {
    let mut parts = text.split(',');
    let read = parts.next().unwrap_or_default().trim().to_owned();
    let write = parts.next().map(str::trim).unwrap_or(&read).to_owned();
    (read, write)
}

/// Options that say nothing of a load.
const BESIDE: &[&str] = &[
    "group_reporting",
    "new_group",
    "name",
    "description",
    "thread",
    "stonewall",
    "directory",
    "opendir",
    "filename_format",
    "unlink",
    "create_on_open",
    "create_serialize",
    "create_fsync",
    "fallocate",
    "file_service_type",
    "openfiles",
    "eta",
    "status_interval",
    "disk_util",
    "gtod_reduce",
    "clocksource",
    "clat_percentiles",
    "lat_percentiles",
    "slat_percentiles",
    "percentile_list",
    "unified_rw_reporting",
    "significant_figures",
    "minimal",
    "output",
    "output-format",
    "randrepeat",
    "allrandrepeat",
    "randseed",
    "random_generator",
    "norandommap",
    "softrandommap",
    "invalidate",
    "exitall",
    "exitall_on_error",
    "stats",
    "log_avg_msec",
    "log_hist_msec",
    "log_max_value",
    "write_bw_log",
    "write_lat_log",
    "write_iops_log",
    "write_hist_log",
    "per_job_logs",
    "bwavgtime",
    "iopsavgtime",
    "hipri",
    "fixedbufs",
    "registerfiles",
    "sqthread_poll",
    "sqthread_poll_cpu",
    "userspace_reap",
    "cpus_allowed",
    "cpus_allowed_policy",
    "cpumask",
    "numa_cpu_nodes",
    "numa_mem_policy",
    "nice",
    "prioclass",
    "prio",
    "iomem",
    "mem",
    "iomem_align",
    "mem_align",
    "buffered",
    "uri",
    "loops",
    "disable_lat",
    "disable_clat",
    "disable_slat",
    "disable_bw",
    "disable_bw_measurement",
    "overwrite",
    "kb_base",
    "unit_base",
    "steadystate",
    "ss",
    "ss_dur",
    "ss_ramp",
    "refill_buffers",
    "scramble_buffers",
    "time_based",
];

/// What an option is that nobody has taken.
pub(super) fn left(name: &str) -> (Mapped, &'static str) {
    let why = match name {
        _ if BESIDE.contains(&name) => return (Mapped::Beside, beside(name)),
        "fsync" | "fdatasync" | "sync" | "sync_file_range" | "end_fsync" | "fsync_on_close"
        | "write_barrier" => "the importer makes no flushes: the load has none",
        "thinktime" | "thinktime_spin" | "thinktime_blocks" | "thinkcycles" => {
            "no pauses: give the stream a rate in place of 'outstanding'"
        }
        "startdelay" => "the streams of a step begin together",
        "latency_target" | "latency_window" | "latency_percentile" | "max_latency" => {
            "say it as a requirement: --require 'p99<=2ms'"
        }
        "rate_min" | "rate_iops_min" => "say it as a requirement: --require 'iops>=1000'",
        "read_iolog" | "replay_no_stall" | "replay_redirect" | "replay_time_scale" => {
            "a log that is replayed is no profile"
        }
        "flow" | "flow_watermark" | "flow_sleep" | "flow_id" => {
            "write it as 'follows = { stream = …, ios = …, per = … }'"
        }
        "iodepth_batch"
        | "iodepth_batch_submit"
        | "iodepth_batch_complete"
        | "iodepth_low"
        | "iodepth_batch_complete_min"
        | "iodepth_batch_complete_max" => "each I/O is issued as soon as it may be",
        "number_ios" | "io_size" => "a step ends by its time, not by what it has done",
        "zero_buffers" | "buffer_pattern" => {
            "what is written is the lab's own, so that it can be verified; it reduces by 'payload'"
        }
        _ if name.starts_with("verify") => "the lab verifies what it reads by marks of its own",
        _ if name.starts_with("zone") => "no zones that move; 'zone = [from, to]' is one that stays",
        _ => "no profile has the like of it",
    };
    (Mapped::Not, why)
}

fn beside(name: &str) -> &'static str {
    match name {
        "norandommap" | "softrandommap" => "the lab draws places by chance: none is kept from coming twice",
        "randrepeat" | "allrandrepeat" | "randseed" => "the seed is '--seed' of the run",
        "cpus_allowed" | "cpumask" | "numa_cpu_nodes" | "cpus_allowed_policy" => {
            "start the lab under taskset"
        }
        "uri" | "directory" => "where it runs is '--target' of the run",
        "overwrite" | "refill_buffers" | "scramble_buffers" => {
            "the lab writes every block first, and blocks of its own each time"
        }
        "time_based" | "loops" => "every step of the lab ends by its time",
        _ => "it says nothing of the load",
    }
}
