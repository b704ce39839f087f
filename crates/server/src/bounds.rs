//! What memory a server may be given.
//!
//! *Promises*: a bound that cannot be kept to, or with which nothing would go on well, is refused before anything is
//! opened.

use stonefold_types::{Error, Kind, Result, Size};

/// The smallest cache that still serves: below it every map lookup would be an engine read.
const CACHE_BYTES_MIN: u64 = 8 << 20;
/// The smallest journal: less would be folded into ever smaller segments, and one request may have 32 MiB.
const JOURNAL_BYTES_MIN: u64 = 8 << 20;

/// Refuses a cache that is too small, or larger than this machine's memory.
pub(crate) fn check_cache(bytes: u64) -> Result<()> {
    check("a cache", bytes, CACHE_BYTES_MIN)
}

/// Refuses a journal's memory that is too small, or larger than this machine's.
pub(crate) fn check_journal(bytes: u64) -> Result<()> {
    check("a journal", bytes, JOURNAL_BYTES_MIN)
}

fn check(what: &str, bytes: u64, bytes_min: u64) -> Result<()> {
    if bytes < bytes_min {
        let error = Error::new(Kind::Invalid, format!("{what} of {} is too small", Size(bytes)));
        return Err(error.remedy(format!("choose at least {}", Size(bytes_min))));
    }
    match memory_bytes() {
        Some(memory) if bytes > memory => {
            let what =
                format!("{what} of {} is more than this machine's memory, {}", Size(bytes), Size(memory));
            Err(Error::new(Kind::Invalid, what).remedy("choose a part of that"))
        }
        _ => Ok(()),
    }
}

/// This machine's memory, where it can be found out.
fn memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kib = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    kib.trim().trim_end_matches("kB").trim().parse::<u64>().ok().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_small_or_too_large_is_refused_with_the_bound() {
        check_cache(1 << 30).unwrap();
        check_journal(8 << 20).unwrap();
        for (refused, word) in [
            (check_cache(1), "at least 8M"),
            (check_journal(1 << 10), "at least 8M"),
            (check_cache(1 << 50), "this machine's memory"),
        ] {
            let error = refused.unwrap_err();
            assert!(error.kind() == Kind::Invalid && error.to_string().contains(word), "{error}");
        }
    }
}
