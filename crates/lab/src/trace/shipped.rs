//! The traces that the lab brings: captured from real software, for the profile `vm-tile`.
//!
//! What each is, how it was captured and what it holds stands in `bench/lab/tiles/README.md`.

use super::Trace;
use stonefold_types::{Error, Kind, Result};

/// Each with its file. Together they are small enough to be compiled in, as a test holds them to.
const SHIPPED: [(&str, &[u8]); 6] = [
    ("mail", include_bytes!("../../traces/mail.sftrace")),
    ("web-db", include_bytes!("../../traces/web-db.sftrace")),
    ("web", include_bytes!("../../traces/web.sftrace")),
    ("idle", include_bytes!("../../traces/idle.sftrace")),
    ("store-db", include_bytes!("../../traces/store-db.sftrace")),
    ("store-web", include_bytes!("../../traces/store-web.sftrace")),
];

/// Their names.
pub fn names() -> impl Iterator<Item = &'static str> {
    SHIPPED.iter().map(|(name, _)| *name)
}

/// One by its name.
///
/// # Errors
/// [`Kind::NotFound`] with the names that there are.
pub fn find(name: &str) -> Result<Trace> {
    let (_, bytes) = SHIPPED.iter().find(|(other, _)| *other == name).ok_or_else(|| {
        let names: Vec<&str> = names().collect();
        Error::new(Kind::NotFound, format!("the lab has no trace '{name}'"))
            .remedy(format!("name one of {}, or a file that ends in .sftrace", names.join(", ")))
    })?;
    Trace::of(bytes.to_vec(), false).map_err(|e| e.context(format!("the lab's own trace '{name}'")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Reason, Summary};

    const README: &str =
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/lab/tiles/README.md"));
    /// What is compiled into every binary, in bytes.
    const BYTES_MAX: usize = 4 << 20;

    /// Counts as the README writes them: `12,345`.
    fn grouped(number: u64) -> String {
        let digits = number.to_string();
        let groups: Vec<&str> =
            digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap()).collect();
        groups.join(",")
    }

    /// Goal: nobody is told of another trace than the one that is replayed. A row is made anew from each file.
    #[test]
    fn each_is_what_its_page_says() {
        for name in names() {
            let trace = find(name).unwrap();
            let of = Summary::of(&trace);
            let counts: Vec<String> = ["read", "write", "flush", "trim", "zero"]
                .iter()
                .map(|kind| grouped(of.count[kind]))
                .collect();
            let ios = of.count["read"] + of.count["write"];
            let mean = (of.bytes["read"] + of.bytes["write"]) as f64 / ios.max(1) as f64 / 1024.0;
            let row = format!(
                "| `{name}` | {:.1} | {} | {:.1}% | {:.1} | {} | {mean:.1} | {:.1} | {} |",
                of.seconds,
                counts.join(" | "),
                of.read_share * 100.0,
                of.rate_mean,
                of.rate_max,
                of.footprint_bytes as f64 / f64::from(1 << 20),
                grouped(trace.bytes() as u64),
            );
            assert!(README.contains(&row), "bench/lab/tiles/README.md has another row than\n{row}");
        }
    }

    #[test]
    fn each_is_whole_and_ten_minutes_long_at_least() {
        let mut bytes = 0;
        for name in names() {
            let trace = find(name).unwrap();
            assert_eq!((trace.end().reason, trace.end().dropped), (Reason::Stopped, 0), "{name}");
            assert!(trace.length() >= 600_000_000_000, "{name}: {} ns", trace.length());
            assert!(trace.end().totals.records() > 0, "{name}");
            bytes += trace.bytes();
        }
        assert!(bytes <= BYTES_MAX, "{bytes} bytes of traces");
        let error = find("nobody").unwrap_err();
        assert!(error.remedy_text().unwrap().contains("store-db"), "{error}");
    }
}
