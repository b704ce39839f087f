//! What is behind a target, as whoever measures it declares: a figure without it can be compared with nothing.
//!
//! The lab sees a target from its front, and cannot tell how many machines answer, what they cost, or what of it came from a cache.
//! So a file says that, it stands in every report, and what it makes possible is computed: I/Os for each node, core, terabyte and
//! 1,000 of the currency, volumes as a multiple of the cache, and, of two arms, in what they are not alike.

use crate::certificate::check_date;
use serde::{Deserialize, Serialize};
use stonefold_types::{Error, Kind, Result, Size};
use utoipa::ToSchema;

/// 10^12 bytes, by which capacity is sold.
const TB: f64 = 1e12;
/// By how much memory, cores and the like may differ, as a share, and still count as alike.
const ALIKE_MAX: f64 = 0.05;
/// Volumes that are no larger than this share of a cache are read from it.
const FITS: f64 = 1.0;

/// The file: TOML, every word of it as below.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SystemWords {
    hardware: String,
    #[serde(default)]
    software: String,
    #[serde(default)]
    redundancy: String,
    #[serde(default)]
    reduction: String,
    nodes: Option<u32>,
    cores: Option<u32>,
    memory: Option<String>,
    cache: Option<String>,
    usable: Option<String>,
    price: Option<PriceWords>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PriceWords {
    total: f64,
    currency: String,
    date: String,
}

/// What somebody declares a target to be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct System {
    /// Machines, devices, network.
    pub hardware: String,
    /// What serves it, with versions.
    pub software: String,
    /// Copies, parity.
    pub redundancy: String,
    /// Deduplication, compression, encryption: what is on.
    pub reduction: String,
    /// Machines that store.
    pub nodes: Option<u32>,
    /// Cores of all of them.
    pub cores: Option<u32>,
    /// Bytes of memory of all of them.
    pub memory: Option<u64>,
    /// Bytes of the cache that answers before the devices do, of all of them; 0 where there is none.
    pub cache: Option<u64>,
    /// Bytes that can be stored, redundancy taken off and reduction not counted.
    pub usable: Option<u64>,
    /// What it costs.
    pub price: Option<SystemPrice>,
}

/// What a system costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SystemPrice {
    /// All of it.
    pub total: f64,
    /// ISO 4217.
    pub currency: String,
    /// Day of the price.
    pub date: String,
}

impl System {
    /// Reads a file; `name` is the file's.
    ///
    /// # Errors
    /// [`Kind::Invalid`] with the line where it is no TOML or has a word that is not known, and where a figure is none.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        let words: SystemWords = toml::from_str(text).map_err(|e| wrong(name, e.to_string().trim_end()))?;
        words.check(name)
    }

    /// A file that says the same, for [`System::parse`].
    pub(crate) fn file(&self) -> String {
        let mut text = String::new();
        let texts = [
            ("hardware", &self.hardware),
            ("software", &self.software),
            ("redundancy", &self.redundancy),
            ("reduction", &self.reduction),
        ];
        for (name, what) in texts.into_iter().filter(|(_, what)| !what.is_empty()) {
            text.push_str(&format!("{name} = {}\n", quoted(what)));
        }
        for (name, count) in [("nodes", self.nodes), ("cores", self.cores)] {
            text.extend(count.map(|count| format!("{name} = {count}\n")));
        }
        for (name, bytes) in [("memory", self.memory), ("cache", self.cache), ("usable", self.usable)] {
            text.extend(bytes.map(|bytes| format!("{name} = \"{bytes}\"\n")));
        }
        text.extend(self.price.as_ref().map(|SystemPrice { total, currency, date }| {
            let (currency, date) = (quoted(currency), quoted(date));
            format!("price = {{ total = {total:?}, currency = {currency}, date = {date} }}\n")
        }));
        text
    }

    /// What it says, line by line, with names.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let count = |count: Option<u32>| count.map(|count| count.to_string()).unwrap_or_default();
        let size = |bytes: Option<u64>| bytes.map(|bytes| Size(bytes).to_string()).unwrap_or_default();
        let price = self.price.as_ref().map(SystemPrice::words).unwrap_or_default();
        let all = [
            ("hardware", self.hardware.clone()),
            ("software", self.software.clone()),
            ("redundancy", self.redundancy.clone()),
            ("reduction", self.reduction.clone()),
            ("nodes", count(self.nodes)),
            ("cores", count(self.cores)),
            ("memory", size(self.memory)),
            ("cache", if self.cache == Some(0) { "none".into() } else { size(self.cache) }),
            ("usable", size(self.usable)),
            ("price", price),
        ];
        all.into_iter().filter(|(_, what)| !what.is_empty()).collect()
    }

    /// So many I/Os a second, for each of what it is made of.
    pub fn shares(&self, iops: f64) -> Vec<String> {
        let share = |by: f64, of: String| format!("{} I/Os a second per {of}", significant(iops / by));
        let mut shares = Vec::new();
        shares.extend(self.nodes.map(|nodes| share(f64::from(nodes), format!("node, of {nodes}"))));
        shares.extend(self.cores.map(|cores| share(f64::from(cores), format!("core, of {cores}"))));
        shares.extend(self.usable.map(|bytes| {
            let tb = bytes as f64 / TB;
            share(tb, format!("TB (10^12 bytes) usable, of {}", significant(tb)))
        }));
        shares.extend(self.price.as_ref().map(|price| {
            share(price.total / 1000.0, format!("1,000 {}, of {}", price.currency, price.words()))
        }));
        shares
    }

    /// How large volumes are, against its cache; nothing where that is not told, or there is none.
    pub fn of_cache(&self, bytes: u64) -> Option<String> {
        let cache = self.cache.filter(|&cache| cache > 0)?;
        let times = bytes as f64 / cache as f64;
        let says = if times <= FITS { ": they fit into it" } else { "" };
        Some(format!("{} times its cache{says}", significant(times)))
    }
}

/// In what two systems are not alike, so that a difference between them need not be one of what is compared. `bytes` are those of the
/// volumes that both have.
pub fn unlike(first: (&str, &System), second: (&str, &System), bytes: u64) -> Vec<String> {
    let ((a, of_a), (b, of_b)) = (first, second);
    let mut found = Vec::new();
    let fits = |system: &System| Some(bytes as f64 <= system.cache? as f64 * FITS);
    if let (Some(in_a), Some(in_b)) = (fits(of_a), fits(of_b)) {
        if in_a != in_b {
            let (fitting, other) = if in_a { (a, b) } else { (b, a) };
            found.push(format!(
                "the volumes, {}, fit into the cache of {fitting} and not into that of {other}: a memory is held against a storage",
                Size(bytes)
            ));
        }
    }
    let counts = |count: Option<u32>| count.map(u64::from);
    let figures = [
        ("nodes", counts(of_a.nodes), counts(of_b.nodes)),
        ("cores", counts(of_a.cores), counts(of_b.cores)),
        ("memory", of_a.memory, of_b.memory),
        ("cache", of_a.cache, of_b.cache),
        ("usable capacity", of_a.usable, of_b.usable),
    ];
    for (what, in_a, in_b) in figures {
        match (in_a, in_b) {
            (Some(0), Some(in_b)) if in_b > 0 => {
                found.push(format!("{what}: {b} has {}, {a} none", Size(in_b)))
            }
            (Some(in_a), Some(0)) if in_a > 0 => {
                found.push(format!("{what}: {a} has {}, {b} none", Size(in_a)))
            }
            (Some(in_a), Some(in_b)) if !is_alike(in_a, in_b) => {
                let times = in_b as f64 / in_a as f64;
                found.push(format!("{what}: {b} has {} times what {a} has", significant(times)));
            }
            (Some(_), None) => found.push(format!("{what}: told of {a}, and not of {b}")),
            (None, Some(_)) => found.push(format!("{what}: told of {b}, and not of {a}")),
            _ => {}
        }
    }
    for (what, in_a, in_b) in
        [("redundancy", &of_a.redundancy, &of_b.redundancy), ("reduction", &of_a.reduction, &of_b.reduction)]
    {
        if in_a != in_b {
            let told = |text: &str| if text.is_empty() { "nothing".to_owned() } else { format!("'{text}'") };
            found.push(format!("{what}: {a} says {}, {b} {}", told(in_a), told(in_b)));
        }
    }
    found
}

fn is_alike(a: u64, b: u64) -> bool {
    (a.max(b) as f64 / a.min(b).max(1) as f64) <= 1.0 + ALIKE_MAX
}

fn wrong(name: &str, what: &str) -> Error {
    Error::new(Kind::Invalid, format!("the system '{name}': {what}"))
        .remedy("docs/use/lab.md tells what is said of one")
}

impl SystemWords {
    pub(crate) fn check(self, name: &str) -> Result<System> {
        if self.hardware.trim().is_empty() {
            return Err(wrong(name, "its hardware is not told"));
        }
        let counts = [("nodes", self.nodes), ("cores", self.cores)];
        if let Some((what, _)) = counts.iter().find(|(_, count)| *count == Some(0)) {
            return Err(wrong(name, &format!("0 {what} store nothing")));
        }
        let size = |what: &str, text: Option<String>| {
            text.map(|text| match text.parse::<Size>() {
                Ok(Size(bytes)) if bytes > 0 || what == "cache" => Ok(bytes),
                _ => Err(wrong(name, &format!("{what} = \"{text}\" is no size; write it as in 64G"))),
            })
            .transpose()
        };
        let price = self.price.map(|words| words.check().map_err(|e| wrong(name, &e.what()))).transpose()?;
        Ok(System {
            hardware: self.hardware,
            software: self.software,
            redundancy: self.redundancy,
            reduction: self.reduction,
            nodes: self.nodes,
            cores: self.cores,
            memory: size("memory", self.memory)?,
            cache: size("cache", self.cache)?,
            usable: size("usable", self.usable)?,
            price,
        })
    }
}

impl PriceWords {
    fn check(self) -> Result<SystemPrice> {
        check_date(&self.date)?;
        let Self { total, currency, date } = self;
        if !(total.is_finite() && total > 0.0) {
            return Err(Error::new(Kind::Invalid, format!("a price of {total} is none")));
        }
        if currency.len() != 3 || !currency.bytes().all(|byte| byte.is_ascii_uppercase()) {
            return Err(Error::new(Kind::Invalid, format!("currency '{currency}' is none, as USD is one")));
        }
        Ok(SystemPrice { total, currency, date })
    }
}

impl SystemPrice {
    fn words(&self) -> String {
        format!("{:.2} {} at the prices of {}", self.total, self.currency, self.date)
    }
}

/// As TOML has a string: by what JSON escapes, which TOML reads alike.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Three digits of what is small, all of what is large.
fn significant(value: f64) -> String {
    let digits = (2.0 - value.abs().max(1e-9).log10().floor()).clamp(0.0, 6.0) as usize;
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"
        hardware = "4 nodes, each 20 cores, 4 disks of 1 TB, an SSD of 480 GB"
        software = "9.9"
        redundancy = "two copies"
        reduction = "dedupe and compression"
        nodes = 4
        cores = 80
        memory = "512G"
        cache = "16G"
        usable = "8T"
        price = { total = 225000, currency = "USD", date = "2018-05-01" }
    "#;

    fn system(change: &str, to: &str) -> Result<System> {
        assert!(WHOLE.contains(change));
        System::parse("s.toml", &WHOLE.replace(change, to))
    }

    /// Goal: the figures of a published report (238,000 8K reads of four nodes with twenty cores each) come out as they were derived from
    /// it: 2,975 for each core.
    #[test]
    fn shares_are_those_of_a_published_report() {
        let system = system("nodes", "nodes").unwrap();
        let shares = system.shares(238_000.0);
        assert_eq!(shares[0], "59500 I/Os a second per node, of 4");
        assert_eq!(shares[1], "2975 I/Os a second per core, of 80");
        assert!(
            shares[2].starts_with("27057 I/Os a second per TB (10^12 bytes) usable, of 8.80"),
            "{shares:?}"
        );
        assert!(shares[3].starts_with("1058 I/Os a second per 1,000 USD"), "{shares:?}");
        assert_eq!(system.of_cache(40 << 30).unwrap(), "2.50 times its cache");
        assert!(system.of_cache(4 << 30).unwrap().ends_with("they fit into it"));
        assert_eq!(system.facts().len(), 10);
        assert_eq!(System::default().shares(1.0), Vec::<String>::new());
    }

    #[test]
    fn what_is_no_figure_is_refused_by_name() {
        for (change, to, says) in [
            ("nodes = 4", "nodes = 0", "0 nodes"),
            ("\"16G\"", "\"many\"", "cache = \"many\""),
            ("225000", "-1", "a price of -1"),
            ("\"USD\"", "\"dollars\"", "dollars"),
            ("2018-05-01", "2018-02-30", "2018-02-30"),
            ("software", "softwares", "softwares"),
            (
                "\"4 nodes, each 20 cores, 4 disks of 1 TB, an SSD of 480 GB\"",
                "\" \"",
                "hardware is not told",
            ),
        ] {
            let error = system(change, to).unwrap_err();
            assert!(error.kind() == Kind::Invalid && error.to_string().contains(says), "{says}: {error}");
            assert!(error.to_string().contains("s.toml"));
        }
    }

    /// Goal: each way in which arms are not alike is named, and arms that are alike pass.
    #[test]
    fn arms_that_are_not_alike_are_told() {
        let whole = system("nodes", "nodes").unwrap();
        assert_eq!(unlike(("A", &whole), ("B", &whole), 8 << 30), Vec::<String>::new());
        let smaller = system("cache = \"16G\"", "cache = \"4G\"").unwrap();
        let found = unlike(("A", &whole), ("B", &smaller), 8 << 30);
        assert!(found[0].contains("fit into the cache of A and not into that of B"), "{found:?}");
        assert!(found[1].contains("cache: B has 0.250 times"), "{found:?}");
        let bare = system("cache = \"16G\"", "cache = \"0\"").unwrap();
        assert_eq!((bare.of_cache(1), bare.facts()[7].1.as_str()), (None, "none"));
        let found = unlike(("A", &whole), ("B", &bare), 64 << 30);
        assert!(found.len() == 1 && found[0].ends_with("cache: A has 16G, B none"), "{found:?}");
        for (change, to, says) in [
            ("cores = 80", "cores = 112", "cores: B has 1.40 times"),
            ("cores = 80", "", "cores: told of A, and not of B"),
            ("two copies", "none", "redundancy: A says 'two copies', B 'none'"),
            ("dedupe and compression", "", "reduction: A says 'dedupe and compression', B nothing"),
        ] {
            let found = unlike(("A", &whole), ("B", &system(change, to).unwrap()), 8 << 30);
            assert!(found.len() == 1 && found[0].contains(says), "{says}: {found:?}");
        }
    }
}
