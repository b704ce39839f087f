//! A profile while it is made, and the text that it becomes.

use std::fmt::Write;
use stonefold_types::{BLOCK_BYTES, Error, Kind, Result};

/// The size of a volume with `--quick`, where it is not smaller at full size.
pub(super) const QUICK_BYTES: u64 = 1 << 30;
/// The longest sample of a quick run, in seconds.
const QUICK_SECONDS: f64 = 60.0;

/// What a file says, in the words of a profile.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub title: String,
    pub about: String,
    pub source: String,
    pub volumes: Vec<VolumeDraft>,
    pub streams: Vec<StreamDraft>,
    pub steps: Vec<StepDraft>,
    /// Seconds before a step, uncounted.
    pub precondition: f64,
    /// Seconds of a step.
    pub sample: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct VolumeDraft {
    pub name: String,
    pub bytes: u64,
    pub count: usize,
    /// Ratios of deduplication and compression.
    pub payload: (f64, f64),
}

/// Shares are percent.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StreamDraft {
    pub name: String,
    pub volume: String,
    pub read: f64,
    pub random: f64,
    pub sizes: Vec<(u64, f64)>,
    /// 0: by its own size.
    pub align: u64,
    pub zone: (f64, f64),
    pub hotspots: Option<SpotsDraft>,
    pub load: LoadDraft,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SpotsDraft {
    pub count: u32,
    pub range: f64,
    pub share: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum LoadDraft {
    Outstanding(u32),
    Rate { iops: f64, even: bool },
    Follows { stream: String, ios: f64, per: f64 },
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct StepDraft {
    pub name: String,
    pub streams: Vec<String>,
    pub kind: StepDraftKind,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum StepDraftKind {
    Hold,
    Outstanding(Vec<u32>),
    Loads(Vec<f64>),
}

impl StreamDraft {
    /// 4K random reads over all of a volume.
    pub(super) fn new(name: String, volume: String) -> Self {
        StreamDraft {
            name,
            volume,
            read: 100.0,
            random: 100.0,
            sizes: vec![(4096, 100.0)],
            align: 0,
            zone: (0.0, 100.0),
            hotspots: None,
            load: LoadDraft::Outstanding(1),
        }
    }
}

impl Draft {
    pub(super) fn check(&self) -> Result<()> {
        match self.streams.is_empty() {
            true => {
                Err(Error::new(Kind::Invalid, "nothing in it loads storage in a way that a profile can say")
                    .remedy("'--json' tells what was not mapped, and why"))
            }
            false => Ok(()),
        }
    }

    /// A name like this one that no stream has yet. A dash would be the mark of one of several volumes.
    pub(super) fn free_name(&self, like: &str) -> String {
        let base = plain(like);
        let taken = |name: &str| self.streams.iter().any(|stream| stream.name == name);
        let mut name = base.clone();
        let mut number = 2;
        while taken(&name) {
            name = format!("{base}_{number}");
            number += 1;
        }
        name
    }

    /// The profile's file; volumes of a quick run have `quick_bytes` at most.
    pub(super) fn text(&self, quick_bytes: u64) -> String {
        let mut text = format!(
            "title = {}\nsource = {}\nabout = {}\n",
            quoted(&self.title),
            quoted(&self.source),
            quoted(&self.about)
        );
        self.volumes.iter().for_each(|volume| volume.write(&mut text, quick_bytes));
        self.streams.iter().for_each(|stream| stream.write(&mut text));
        for step in &self.steps {
            let names: Vec<String> = step.streams.iter().map(|name| quoted(name)).collect();
            line(&mut text, format_args!("\n[[step]]\nname = {}", quoted(&step.name)));
            line(&mut text, format_args!("streams = [{}]", names.join(", ")));
            match &step.kind {
                StepDraftKind::Hold => {}
                StepDraftKind::Outstanding(depths) => {
                    line(&mut text, format_args!("outstanding = {depths:?}"))
                }
                StepDraftKind::Loads(loads) => line(&mut text, format_args!("loads = {loads:?}")),
            }
        }
        let quick = |seconds: f64| seconds.min(QUICK_SECONDS);
        let quick_precondition = self.precondition.min(QUICK_SECONDS / 3.0);
        line(&mut text, format_args!("\n[time]\nprecondition = \"{}s\"", self.precondition));
        line(&mut text, format_args!("sample = \"{}s\"\npoint = \"{}s\"", self.sample, self.sample));
        line(&mut text, format_args!("quick_precondition = \"{quick_precondition}s\""));
        line(&mut text, format_args!("quick_sample = \"{}s\"", quick(self.sample)));
        line(&mut text, format_args!("quick_point = \"{}s\"", quick(self.sample)));
        text
    }
}

impl VolumeDraft {
    fn write(&self, text: &mut String, quick_bytes: u64) {
        let bytes = self.bytes.next_multiple_of(BLOCK_BYTES as u64);
        line(text, format_args!("\n[[volume]]\nname = {}", quoted(&self.name)));
        line(text, format_args!("size = {}\nquick = {}", size(bytes), size(bytes.min(quick_bytes))));
        if self.count > 1 {
            line(text, format_args!("count = {}", self.count));
        }
        if self.payload != (1.0, 1.0) {
            let (dedupe, compression) = self.payload;
            line(text, format_args!("payload = {{ dedupe = {dedupe:?}, compression = {compression:?} }}"));
        }
    }
}

impl StreamDraft {
    fn write(&self, text: &mut String) {
        let sizes: Vec<String> =
            self.sizes.iter().map(|(bytes, share)| format!("{} = {share:?}", size(*bytes))).collect();
        line(text, format_args!("\n[[stream]]\nname = {}", quoted(&self.name)));
        line(text, format_args!("volume = {}", quoted(&self.volume)));
        line(text, format_args!("read = {:?}\nrandom = {:?}", self.read, self.random));
        line(text, format_args!("sizes = {{ {} }}", sizes.join(", ")));
        if self.align > 0 {
            line(text, format_args!("align = {}", size(self.align)));
        }
        if self.zone != (0.0, 100.0) {
            line(text, format_args!("zone = [{:?}, {:?}]", self.zone.0, self.zone.1));
        }
        if let Some(SpotsDraft { count, range, share }) = self.hotspots {
            line(
                text,
                format_args!("hotspots = {{ count = {count}, range = {range:?}, share = {share:?} }}"),
            );
        }
        match &self.load {
            LoadDraft::Outstanding(outstanding) => line(text, format_args!("outstanding = {outstanding}")),
            LoadDraft::Rate { iops, even } => {
                let arrivals = if *even { "constant" } else { "poisson" };
                line(text, format_args!("rate = {{ iops = {iops:?}, arrivals = \"{arrivals}\" }}"));
            }
            LoadDraft::Follows { stream, ios, per } => line(
                text,
                format_args!("follows = {{ stream = {}, ios = {ios:?}, per = {per:?} }}", quoted(stream)),
            ),
        }
    }
}

fn line(text: &mut String, words: std::fmt::Arguments<'_>) {
    writeln!(text, "{words}").expect("a string takes all");
}

/// A name in which nothing has a meaning of its own.
pub(super) fn plain(name: &str) -> String {
    let plain: String = name.chars().map(|c| if c.is_alphanumeric() || c == '.' { c } else { '_' }).collect();
    if plain.is_empty() { "unnamed".into() } else { plain }
}

/// With the largest unit that divides it.
fn size(bytes: u64) -> String {
    let units = [("T", 40), ("G", 30), ("M", 20), ("K", 10)];
    let whole = units.iter().find(|(_, shift)| bytes > 0 && bytes % (1u64 << shift) == 0);
    match whole {
        Some((unit, shift)) => format!("\"{}{unit}\"", bytes >> shift),
        None => format!("\"{bytes}\""),
    }
}

/// As a basic string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            c if c.is_control() => write!(quoted, "\\u{:04X}", c as u32).expect("a string takes all"),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
