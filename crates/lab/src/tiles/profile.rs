//! The words of a profile of tiles: tables `[[vm]]` in place of volumes and streams.

use super::Operation;
use crate::profile::time;
use crate::trace::{Trace, shipped};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use stonefold_types::{BLOCK_BYTES, Error, Kind, Result};

/// The lab's own, by their names.
const SHIPPED: [(&str, &str); 2] = [
    ("vm-tile", include_str!("../../profiles/vm-tile.toml")),
    ("vm-ops", include_str!("../../profiles/vm-ops.toml")),
];
/// Machines of a tile at most: two tiles of them still make one run.
const VMS_MAX: usize = crate::workload::STREAMS_MAX / 2;
/// A volume has room for two requests of a mebibyte (see [`crate::trace::fit`]).
const VOLUME_BYTES_MIN: u64 = 2 << 20;
/// Bytes of a gigabyte, as volumes are published.
const GIGABYTE: f64 = 1e9;

/// A profile of tiles, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// By which it is run.
    pub name: String,
    /// One line.
    pub title: String,
    /// What it is for, and what it is not.
    pub about: String,
    /// The published method it is after.
    pub source: String,
    /// The machines of a tile, in the order of its volumes.
    pub vms: Vec<Vm>,
    /// How long each number of tiles is replayed, in full and quick.
    pub samples: [Duration; 2],
    /// By how much volumes are smaller, in full and quick; from above 0 to 1.
    pub scales: [f64; 2],
    /// What is done beside the tiles.
    pub operations: Vec<Operation>,
    /// The text it was read from.
    pub text: String,
}

/// A machine of a tile.
#[derive(Clone, Debug, PartialEq)]
pub struct Vm {
    /// Its name.
    pub name: String,
    /// What runs on it; several machines may run the same.
    pub application: String,
    /// The trace that it replays: one of the lab's by its name, or a file that ends in `.sftrace`.
    pub trace: String,
    /// Bytes of its volume as it is published.
    pub published_bytes: u64,
    /// Which of how many that replay the same in one tile, as a share from 0 to below 1: where in the trace it begins.
    pub turn: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: String,
    about: String,
    #[serde(default)]
    source: String,
    tiles: TilesWords,
    vm: Vec<VmWords>,
    #[serde(default)]
    operation: Vec<Operation>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TilesWords {
    sample: String,
    quick_sample: String,
    #[serde(default = "whole")]
    scale: f64,
    #[serde(default = "whole")]
    quick_scale: f64,
}

fn whole() -> f64 {
    1.0
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VmWords {
    name: String,
    trace: String,
    gigabytes: f64,
    #[serde(default = "one")]
    count: usize,
}

fn one() -> usize {
    1
}

impl Profile {
    /// The lab's own.
    pub fn shipped() -> impl Iterator<Item = Self> {
        let parse =
            |(name, text)| Profile::parse(name, text).expect("a shipped profile is right, as a test shows");
        SHIPPED.into_iter().map(parse)
    }

    /// Whether a profile's text is one of these, by its tables `[[vm]]`.
    pub fn is_one(text: &str) -> bool {
        text.parse::<toml::Table>().is_ok_and(|table| table.contains_key("vm"))
    }

    /// Reads a profile's file. Traces are looked for when it is run.
    ///
    /// # Errors
    /// [`Kind::Invalid`], with the line where the file is no TOML or has a word that is not known, else with what cannot be
    /// run and why.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        let file: File = toml::from_str(text).map_err(|e| {
            Error::new(Kind::Invalid, format!("profile '{name}': {}", e.to_string().trim_end()))
                .remedy("'stonefold lab show vm-tile' prints one that is right")
        })?;
        file.check(name, text).map_err(|e| e.context(format!("profile '{name}'")))
    }

    /// How long each number of tiles is replayed.
    pub fn sample(&self, quick: bool) -> Duration {
        self.samples[usize::from(quick)]
    }

    /// By how much volumes are smaller than they are published.
    pub fn scale(&self, quick: bool) -> f64 {
        self.scales[usize::from(quick)]
    }

    /// Bytes of a tile's volumes, by a scale.
    pub fn tile_bytes(&self, scale: f64) -> u64 {
        self.vms.iter().map(|vm| vm.bytes(scale)).sum()
    }

    /// The traces of its machines, each once, with the name by which the profile calls it.
    ///
    /// # Errors
    /// What is wrong with a trace, with the machine that was to replay it.
    pub fn traces(&self) -> Result<Vec<(String, Trace)>> {
        let mut traces: Vec<(String, Trace)> = Vec::new();
        for vm in &self.vms {
            if traces.iter().any(|(name, _)| *name == vm.trace) {
                continue;
            }
            let found = match vm.trace.ends_with(".sftrace") {
                true => Trace::open(Path::new(&vm.trace), false),
                false => shipped::find(&vm.trace),
            };
            traces.push((vm.trace.clone(), found.map_err(|e| e.context(format!("machine '{}'", vm.name)))?));
        }
        Ok(traces)
    }
}

impl Vm {
    /// Bytes of its volume by a scale: whole blocks.
    pub fn bytes(&self, scale: f64) -> u64 {
        let block = BLOCK_BYTES as u64;
        ((self.published_bytes as f64 * scale) as u64 / block * block).max(VOLUME_BYTES_MIN)
    }
}

impl File {
    fn check(self, name: &str, text: &str) -> Result<Profile> {
        let wrong = |what: String| Err(Error::new(Kind::Invalid, what));
        let mut vms = Vec::new();
        for words in &self.vm {
            if !(words.gigabytes.is_finite() && words.gigabytes > 0.0 && words.gigabytes < 1e6) {
                return wrong(format!(
                    "machine '{}': {} gigabytes are no volume",
                    words.name, words.gigabytes
                ));
            }
            if words.count == 0 || words.count > VMS_MAX {
                return wrong(format!("machine '{}': a count of {}", words.name, words.count));
            }
            vms.extend((0..words.count).map(|turn| words.vm(turn)));
        }
        if vms.is_empty() || vms.len() > VMS_MAX {
            return wrong(format!("{} machines; a tile has from 1 to {VMS_MAX}", vms.len()));
        }
        let names: BTreeSet<&str> = vms.iter().map(|vm| vm.name.as_str()).collect();
        if names.len() < vms.len() {
            return wrong("two machines have one name".into());
        }
        let samples = [time(&self.tiles.sample)?, time(&self.tiles.quick_sample)?];
        if samples.iter().any(Duration::is_zero) {
            return wrong("a sample of no time".into());
        }
        let scales = [self.tiles.scale, self.tiles.quick_scale];
        check_scale(scales[0]).and_then(|()| check_scale(scales[1]))?;
        let names: BTreeSet<&str> = self.operation.iter().map(|one| one.name.as_str()).collect();
        if names.len() < self.operation.len() {
            return wrong("two operations have one name".into());
        }
        self.operation.iter().try_for_each(Operation::check)?;
        Ok(Profile {
            name: name.into(),
            title: self.title,
            about: self.about.trim().into(),
            source: self.source,
            vms,
            samples,
            scales,
            operations: self.operation,
            text: text.into(),
        })
    }
}

impl VmWords {
    fn vm(&self, turn: usize) -> Vm {
        let name = if self.count > 1 { format!("{}.{}", self.name, turn + 1) } else { self.name.clone() };
        let block = BLOCK_BYTES as u64;
        Vm {
            name,
            application: self.name.clone(),
            trace: self.trace.clone(),
            published_bytes: (self.gigabytes * GIGABYTE).round() as u64 / block * block,
            turn: turn as f64 / self.count as f64,
        }
    }
}

/// Refuses what is no share of a volume.
///
/// # Errors
/// [`Kind::Invalid`].
pub fn check_scale(scale: f64) -> Result<()> {
    match scale.is_finite() && scale > 0.0 && scale <= 1.0 {
        true => Ok(()),
        false => Err(Error::new(Kind::Invalid, format!("a scale of {scale} is none"))
            .remedy("choose more than 0, and 1 at most")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the published method says.
    #[test]
    fn the_shipped_tile_is_the_published_one() {
        let profile = Profile::shipped().next().unwrap();
        let sizes: Vec<(&str, u64)> = profile
            .vms
            .iter()
            .map(|vm| (vm.application.as_str(), vm.published_bytes.div_ceil(1 << 20)))
            .collect();
        let mib = |gigabytes: u64| (gigabytes * 1_000_000_000 / 4096 * 4096).div_ceil(1 << 20);
        let expected = [("mail", 80), ("web-db", 14), ("web", 80), ("idle", 10), ("store-db", 45)];
        let expected: Vec<(&str, u64)> = expected
            .into_iter()
            .chain([("store-web", 10); 3])
            .map(|(name, gigabytes)| (name, mib(gigabytes)))
            .collect();
        assert_eq!(sizes, expected);
        assert_eq!(profile.sample(false).as_secs(), 3600);
        assert!(profile.sample(true) < profile.sample(false));
        assert!(profile.tile_bytes(profile.scale(true)) < 3 << 30);
        let turns: Vec<f64> = profile.vms[5..].iter().map(|vm| vm.turn).collect();
        assert_eq!(turns, [0.0, 1.0 / 3.0, 2.0 / 3.0]);
        assert!(Profile::is_one(&profile.text) && !crate::oltp::Profile::is_one(&profile.text));
        assert!(crate::profile::shipped::all().all(|other| !Profile::is_one(&other.text)));
        assert_eq!(profile.traces().unwrap().len(), 6);
    }

    #[test]
    fn operations_are_the_published_ones() {
        let profile = Profile::shipped().nth(1).unwrap();
        let told: Vec<(&str, usize, f64, usize)> = profile
            .operations
            .iter()
            .map(|one| (one.name.as_str(), one.steps.len(), one.least, one.from))
            .collect();
        assert_eq!(told, [("deploy", 4, 6.0, 21), ("migrate", 1, 3.0, 21)]);
        assert_eq!(profile.vms, Profile::shipped().next().unwrap().vms);
    }

    #[test]
    fn what_is_wrong_in_a_file_is_told() {
        let shipped = SHIPPED[1].1;
        for (from, to, says) in [
            ("sample = \"1h\"", "sapmle = \"1h\"", "sapmle"),
            ("sample = \"1h\"", "sample = \"1y\"", "1y"),
            ("sample = \"1h\"", "sample = \"0s\"", "no time"),
            ("quick_scale = 0.0078125", "quick_scale = 1.5", "scale of 1.5"),
            ("gigabytes = 14", "gigabytes = -14", "machine 'web-db'"),
            ("count = 3", "count = 0", "count of 0"),
            ("name = \"web-db\"", "name = \"mail\"", "one name"),
            ("steps = [\"move\"]", "steps = []", "no steps"),
            ("least = 3", "least = 0", "'migrate': it is required"),
            ("name = \"migrate\"", "name = \"deploy\"", "two operations"),
        ] {
            assert!(shipped.contains(from), "{from}");
            let error = Profile::parse("x", &shipped.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(says), "{from} → {to}: {error}");
        }
        let strange = shipped.replacen("trace = \"mail\"", "trace = \"mali\"", 1);
        let error = Profile::parse("x", &strange).unwrap().traces().unwrap_err();
        assert!(error.to_string().contains("machine 'mail'"), "{error}");
    }
}
