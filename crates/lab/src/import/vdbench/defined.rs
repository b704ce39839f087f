//! What a parameter file has defined so far: storage, workloads, and what is said for all.

use super::super::{Mapped, Notes, Place, wrong};
use super::values::{bytes, is_meant, number};
use super::words::Line;
use crate::payload::{COMPRESSION_MAX, DEDUPE_MAX};
use stonefold_types::Result;

/// Threads of a storage definition that says nothing of them.
const THREADS: u32 = 8;
/// Bytes of one that does not say how large it is.
const VOLUME_BYTES: u64 = 10 << 30;

/// A storage definition.
#[derive(Clone, Debug)]
pub(super) struct Storage {
    pub name: String,
    pub bytes: u64,
    pub threads: u32,
    /// Of random addresses; 0: each by its own size.
    pub align: u64,
    /// Percent.
    pub zone: (f64, f64),
}

/// A workload definition. Shares are percent.
#[derive(Clone, Debug)]
pub(super) struct Work {
    pub name: String,
    /// Names of its storage, with wild cards.
    pub storage: Vec<String>,
    pub sizes: Vec<(u64, f64)>,
    pub read: f64,
    pub random: f64,
    pub skew: Option<f64>,
    /// I/Os a second of its own.
    pub rate: Option<f64>,
    pub threads: Option<u32>,
    pub zone: Option<Zone>,
    pub place: Place,
}

/// A part of a volume, as it is written.
#[derive(Clone, Debug)]
pub(super) struct Zone(Vec<String>);

/// All of them.
pub(super) struct Definitions {
    pub storage: Vec<Storage>,
    pub works: Vec<Work>,
    /// Ratios of deduplication and compression.
    pub payload: (f64, f64),
    storage_default: Storage,
    work_default: Work,
}

impl Default for Definitions {
    fn default() -> Self {
        let storage =
            Storage { name: String::new(), bytes: 0, threads: THREADS, align: 0, zone: (0.0, 100.0) };
        let work = Work {
            name: String::new(),
            storage: vec!["*".into()],
            sizes: vec![(4096, 100.0)],
            read: 100.0,
            random: 100.0,
            skew: None,
            rate: None,
            threads: None,
            zone: None,
            place: Place { file: String::new(), line: 0 },
        };
        Definitions {
            storage: Vec::new(),
            works: Vec::new(),
            payload: (1.0, 1.0),
            storage_default: storage,
            work_default: work,
        }
    }
}

impl Definitions {
    pub(super) fn storage(&mut self, line: &mut Line, notes: &mut Notes) -> Result<()> {
        let name = line.take_one("sd").unwrap_or_default();
        let place = line.place.clone();
        let mut sd = self.storage_default.clone();
        if let Some(size) = line.take_one("size") {
            sd.bytes =
                bytes(&size).ok_or_else(|| wrong(&place, format!("size '{size}' is none; write 10g")))?;
        }
        if let Some(threads) = line.take_one("threads") {
            sd.threads = number(&threads, "threads", &place)? as u32;
        }
        if let Some(align) = line.take_one("align") {
            let in_sectors = bytes(&align).filter(|align| align % 512 == 0);
            sd.align = in_sectors
                .ok_or_else(|| wrong(&place, format!("align '{align}' is no size in multiples of 512")))?;
        }
        if let Some(flags) = line.take("openflags") {
            self.flags(&flags, &place, notes);
        }
        if let Some(range) = line.take("range") {
            sd.zone = Zone(range.clone()).of(sd.bytes).unwrap_or_else(|| {
                notes.tell(&place, format!("range={}", range.join(",")), Mapped::Not, Zone::WHY);
                (0.0, 100.0)
            });
        }
        let count = line.take("count");
        if name == "default" {
            self.storage_default = sd;
            return Ok(());
        }
        if sd.bytes == 0 {
            let why =
                format!("none: vdbench asks the device; here {} GiB, change it to yours", VOLUME_BYTES >> 30);
            notes.tell(&place, "size", Mapped::Nearly, why);
            sd.bytes = VOLUME_BYTES;
        }
        let numbers = match &count {
            None => vec![name],
            Some(values) => {
                let at = |at: usize| number(values.get(at).map_or("", String::as_str), "count", &place);
                let (first, many) = (at(0)? as u64, at(1)?.min(1000.0) as u64);
                (first..first + many).map(|number| format!("{name}{number}")).collect()
            }
        };
        self.storage.extend(numbers.into_iter().map(|name| Storage { name, ..sd.clone() }));
        Ok(())
    }

    fn flags(&self, flags: &[String], place: &Place, notes: &mut Notes) {
        for flag in flags.iter().filter(|flag| !flag.starts_with("o_direct") && *flag != "directio") {
            let why = "the importer makes no flushes: the load has none";
            notes.tell(place, format!("openflags={flag}"), Mapped::Not, why);
        }
    }

    pub(super) fn workload(&mut self, line: &mut Line, notes: &mut Notes) -> Result<()> {
        let name = line.take_one("wd").unwrap_or_default();
        let place = line.place.clone();
        let mut wd = Work { place: place.clone(), name, ..self.work_default.clone() };
        wd.storage = line.take("sd").unwrap_or(wd.storage);
        let share = |text: String, what: &str| {
            number(&text, what, &place).and_then(|share| match share <= 100.0 {
                true => Ok(share),
                false => Err(wrong(&place, format!("{what} {share} is no share from 0 to 100"))),
            })
        };
        if let Some(sizes) = line.take("xfersize") {
            wd.sizes = sizes_of(&sizes, &place, notes)?;
        }
        if let Some(read) = line.take_one("rdpct") {
            wd.read = share(read, "rdpct")?;
        }
        if let Some(seek) = line.take_one("seekpct") {
            wd.random = random_of(&seek, &place, notes)?;
        }
        if let Some(skew) = line.take_one("skew") {
            wd.skew = Some(share(skew, "skew")?).filter(|skew| *skew > 0.0);
        }
        if let Some(rate) = line.take_one("iorate") {
            wd.rate = Some(number(&rate, "iorate", &place)?).filter(|rate| *rate > 0.0);
        }
        if let Some(threads) = line.take_one("threads") {
            wd.threads = Some(number(&threads, "threads", &place)? as u32);
        }
        if let Some(band) = line.take("hotband") {
            let why = "as 'range': evenly, where vdbench wants its middle most";
            notes.tell(&place, format!("hotband={}", band.join(",")), Mapped::Nearly, why);
            wd.zone = Some(Zone(band));
        }
        if let Some(range) = line.take("range") {
            wd.zone = Some(Zone(range));
        }
        match wd.name == "default" {
            true => self.work_default = wd,
            false => self.works.push(wd),
        }
        Ok(())
    }

    /// Of a line that defines nothing.
    pub(super) fn general(&mut self, line: &mut Line, notes: &mut Notes) -> Result<()> {
        let place = line.place.clone();
        for (name, most, ratio) in [
            ("compratio", COMPRESSION_MAX, &mut self.payload.1),
            ("dedupratio", DEDUPE_MAX, &mut self.payload.0),
        ] {
            let Some(text) = line.take_one(name) else { continue };
            let asked = number(&text, name, &place)?.max(1.0);
            if asked > most {
                let why = format!("{most}:1, which is the most that the lab's payload reduces");
                notes.tell(&place, format!("{name}={text}"), Mapped::Nearly, why);
            }
            *ratio = asked.min(most);
        }
        if let Some(unit) = line.take_one("dedupunit").filter(|unit| bytes(unit) != Some(4096)) {
            let why = "duplicates are blocks of 4K";
            notes.tell(&place, format!("dedupunit={unit}"), Mapped::Nearly, why);
        }
        Ok(())
    }

    /// The storage of a workload, in order.
    pub(super) fn of<'a>(&'a self, work: &'a Work) -> impl Iterator<Item = &'a Storage> {
        self.storage.iter().filter(|sd| is_meant(&sd.name, &work.storage))
    }
}

impl Zone {
    /// Why one is not mapped.
    pub(super) const WHY: &'static str =
        "a zone goes from a lower to a higher part of the volume, and not around its end";

    /// In percent of so many bytes.
    pub(super) fn of(&self, of: u64) -> Option<(f64, f64)> {
        let share = |text: &String| match text.parse::<f64>() {
            Ok(number) if number <= 200.0 => Some(number),
            _ => bytes(text).map(|bytes| bytes as f64 / of.max(1) as f64 * 100.0),
        };
        let zone = (share(self.0.first()?)?, share(self.0.get(1)?)?);
        (zone.0 < zone.1 && zone.1 <= 100.0).then_some(zone)
    }

    pub(super) fn written(&self) -> String {
        self.0.join(",")
    }
}

/// `4k`; `4k,60,8k,40`; or `4k,32k,1k`: from, to, and what they divide by.
pub(super) fn sizes_of(values: &[String], place: &Place, notes: &mut Notes) -> Result<Vec<(u64, f64)>> {
    let size = |text: &String| {
        let bytes = bytes(text).filter(|bytes| *bytes > 0 && bytes % 512 == 0);
        bytes.ok_or_else(|| wrong(place, format!("xfersize '{text}' is no multiple of 512 bytes")))
    };
    match values {
        [one] => Ok(vec![(size(one)?, 100.0)]),
        [from, to, by] => {
            let (from, to, by) = (size(from)?, size(to)?, size(by)?);
            let many = (to.saturating_sub(from) / by + 1).min(256);
            if from + (many - 1) * by != to {
                let why = format!("{many} sizes from {from} bytes on");
                notes.tell(place, format!("xfersize={}", values.join(",")), Mapped::Nearly, why);
            }
            Ok((0..many).map(|times| (from + times * by, 100.0 / many as f64)).collect())
        }
        pairs if !pairs.is_empty() && pairs.len() % 2 == 0 => pairs
            .chunks(2)
            .map(|pair| Ok((size(&pair[0])?, number(&pair[1], "the share of an xfersize", place)?)))
            .collect(),
        _ => Err(wrong(
            place,
            "xfersize has neither one size, nor pairs of size and share, nor from, to and step",
        )),
    }
}

/// Percent of places by chance.
pub(super) fn random_of(text: &str, place: &Place, notes: &mut Notes) -> Result<f64> {
    Ok(match text {
        "random" | "rand" => 100.0,
        "seq" | "sequential" => 0.0,
        "eof" | "seqnz" => {
            let why = "in order from the beginning, and again when it is through";
            notes.tell(place, format!("seekpct={text}"), Mapped::Nearly, why);
            0.0
        }
        text => number(text, "seekpct", place)?.min(100.0),
    })
}
