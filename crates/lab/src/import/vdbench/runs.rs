//! Run definitions: steps, with the streams that each needs.

use super::super::draft::{Draft, LoadDraft, StepDraft, StepDraftKind, StreamDraft, VolumeDraft, plain};
use super::super::{Mapped, Notes, Place, wrong};
use super::defined::{Definitions, Storage, Work, Zone};
use super::turns::{Turn, turns};
use super::values::{is_meant, numbers, seconds};
use super::words::Line;
use stonefold_types::Result;

/// Seconds of a run that does not say how long it takes.
pub(super) const ELAPSED_SECONDS: f64 = 30.0;
/// Percent of the most at which `iorate=curve` runs.
const CURVE: [f64; 6] = [10.0, 50.0, 70.0, 80.0, 90.0, 100.0];

/// How fast.
enum Rate {
    Most,
    Curve(Vec<f64>),
    Each(Vec<f64>),
}

/// What a run definition says, for all its turns.
struct Run {
    name: String,
    place: Place,
    works: Vec<Work>,
    rate: Rate,
    even: bool,
}

pub(super) fn add(
    line: &mut Line,
    defined: &mut Definitions,
    draft: &mut Draft,
    notes: &mut Notes,
) -> Result<()> {
    let place = line.place.clone();
    times(line, draft, notes)?;
    let name = line.take_one("rd").unwrap_or_default();
    let wanted = line.take("wd").unwrap_or_else(|| vec!["*".into()]);
    let only = line.take("sd");
    let works = defined.works.iter().filter(|work| is_meant(&work.name, &wanted)).cloned();
    let works =
        works.map(|work| Work { storage: only.clone().unwrap_or(work.storage.clone()), ..work }).collect();
    let even = arrivals(line, notes);
    let run = Run { rate: rate(line, notes)?, name, works, even, place };
    let turns = turns(line, notes)?;
    if run.name == "default" {
        notes.tell(&run.place, "rd=default", Mapped::Not, "write what it says into each run definition");
        return Ok(());
    }
    if run.works.is_empty() {
        return Err(wrong(&run.place, format!("run '{}' has no workload: its wd= names none", run.name)));
    }
    for turn in &turns {
        run.turn(turn, defined, draft, notes)?;
    }
    Ok(())
}

fn times(line: &mut Line, draft: &mut Draft, notes: &mut Notes) -> Result<()> {
    let place = line.place.clone();
    for (name, longest, usual) in
        [("elapsed", &mut draft.sample, ELAPSED_SECONDS), ("warmup", &mut draft.precondition, 0.0)]
    {
        let written = line.take_one(name);
        let length = match &written {
            Some(text) => seconds(text)
                .ok_or_else(|| wrong(&place, format!("{name} '{text}' is no time; write 60, 5m or 2h")))?,
            None => usual,
        };
        if *longest > 0.0 && *longest != length {
            let why = format!("all steps take as long as the longest: {} s", longest.max(length));
            notes.tell(&place, format!("{name}={}", written.unwrap_or_default()), Mapped::Nearly, why);
        }
        *longest = longest.max(length);
    }
    Ok(())
}

/// Whether I/Os come evenly; else by themselves.
fn arrivals(line: &mut Line, notes: &mut Notes) -> bool {
    let Some(values) = line.take("distribution") else { return false };
    match values.first().map_or("", String::as_str) {
        "deterministic" | "d" => true,
        "exponential" | "e" => false,
        other => {
            let why = "I/Os come by themselves (exponential gaps)";
            notes.tell(&line.place, format!("distribution={other}"), Mapped::Nearly, why);
            false
        }
    }
}

fn rate(line: &mut Line, notes: &mut Notes) -> Result<Rate> {
    let place = line.place.clone();
    let curve = line.take("curve");
    let values = line.take("foriorate").or_else(|| line.take("iorate")).unwrap_or_else(|| vec!["max".into()]);
    Ok(match values.first().map_or("", String::as_str) {
        "max" => Rate::Most,
        "curve" => {
            let points =
                curve.map_or_else(|| Ok(CURVE.to_vec()), |values| numbers(&values, "curve", &place))?;
            let asked = points.len();
            let points: Vec<f64> = points.into_iter().filter(|point| (0.0..=100.0).contains(point)).collect();
            if points.len() < asked {
                notes.tell(&place, "curve", Mapped::Nearly, "points above 100% of the most are left out");
            }
            Rate::Curve(points)
        }
        _ => {
            let rates = numbers(&values, "iorate", &place)?;
            let rates: Vec<f64> = rates.into_iter().filter(|rate| *rate > 0.0).collect();
            if rates.is_empty() {
                return Err(wrong(&place, "iorate has no rate above 0; write max, curve, 1000 or (100,200)"));
            }
            Rate::Each(rates)
        }
    })
}

impl Run {
    fn turn(&self, turn: &Turn, defined: &Definitions, draft: &mut Draft, notes: &mut Notes) -> Result<()> {
        let named = |more: &[String]| {
            let words: Vec<String> =
                [self.name.clone()].into_iter().chain(turn.told.iter().cloned()).collect();
            [words, more.to_vec()].concat().join(", ")
        };
        let closed = |name: String, streams: Vec<String>, kind| StepDraft { name, streams, kind };
        match &self.rate {
            Rate::Most => {
                let streams = self.streams(turn, None, defined, draft, notes)?;
                draft.steps.push(closed(named(&[]), streams, StepDraftKind::Hold));
            }
            Rate::Curve(points) => {
                let streams = self.streams(turn, None, defined, draft, notes)?;
                let depth = turn.threads.unwrap_or_else(|| self.threads(defined)).max(1);
                let most = StepDraftKind::Outstanding(vec![depth]);
                draft.steps.push(closed(named(&["most".into()]), streams.clone(), most));
                draft.steps.push(closed(
                    named(&["curve".into()]),
                    streams,
                    StepDraftKind::Loads(points.clone()),
                ));
            }
            Rate::Each(rates) => {
                for rate in rates {
                    let streams = self.streams(turn, Some(*rate), defined, draft, notes)?;
                    draft.steps.push(closed(
                        named(&[format!("{rate} a second")]),
                        streams,
                        StepDraftKind::Hold,
                    ));
                }
            }
        }
        Ok(())
    }

    /// Threads of the first storage of the first workload.
    fn threads(&self, defined: &Definitions) -> u32 {
        self.works.first().and_then(|work| defined.of(work).next()).map_or(1, |sd| sd.threads)
    }

    /// The streams of a turn, by volume: of those that share one, the one with most of the I/Os comes first.
    fn streams(
        &self,
        turn: &Turn,
        rate: Option<f64>,
        defined: &Definitions,
        draft: &mut Draft,
        notes: &mut Notes,
    ) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for sd in &defined.storage {
            let here = self.on(sd, defined);
            // Who is first of those without a rate of their own, and with which share.
            let mut leader: Option<(String, f64)> = None;
            for (work, share) in &here {
                let load = match (work.rate, rate, &leader) {
                    (Some(own), ..) => {
                        LoadDraft::Rate { iops: own / defined.of(work).count() as f64, even: self.even }
                    }
                    (None, Some(rate), _) => LoadDraft::Rate { iops: rate * share / 100.0, even: self.even },
                    (None, None, None) => LoadDraft::Outstanding(
                        turn.threads.or(work.threads).unwrap_or(sd.threads).clamp(1, 4096),
                    ),
                    (None, None, Some((stream, per))) => {
                        self.tell_leader(stream, sd, notes);
                        LoadDraft::Follows { stream: stream.clone(), ios: *share, per: *per }
                    }
                };
                volume(draft, sd, defined.payload);
                let leads = matches!(load, LoadDraft::Outstanding(_));
                let name = stream(draft, work, sd, turn, load, notes);
                if leads {
                    leader = Some((name.clone(), *share));
                }
                names.push(name);
            }
        }
        match names.is_empty() {
            true => Err(wrong(
                &self.place,
                format!("run '{}' has no storage: sd= of its workloads names none", self.name),
            )),
            false => Ok(names),
        }
    }

    fn tell_leader(&self, leader: &str, sd: &Storage, notes: &mut Notes) {
        let why = format!(
            "threads are those of '{leader}' on '{}'; the others keep their shares beside it",
            sd.name
        );
        notes.tell(&self.place, format!("rd={}", self.name), Mapped::Nearly, why);
    }

    /// The workloads on a volume that have any I/Os, with their percent of all; the one with most comes first.
    fn on<'a>(&'a self, sd: &Storage, defined: &Definitions) -> Vec<(&'a Work, f64)> {
        let mut here: Vec<(&Work, f64)> = Vec::new();
        for (work, share) in self.works.iter().zip(self.shares()) {
            let is_here = defined.of(work).any(|other| other.name == sd.name);
            if is_here && (share > 0.0 || work.rate.is_some()) {
                here.push((work, share / defined.of(work).count() as f64));
            }
        }
        here.sort_by(|a, b| b.1.total_cmp(&a.1));
        here
    }

    /// Percent of the I/Os that each workload has: its skew, or an even part of what those leave.
    fn shares(&self) -> Vec<f64> {
        let shared = || self.works.iter().filter(|work| work.rate.is_none());
        let told: f64 = shared().filter_map(|work| work.skew).sum();
        let untold = shared().filter(|work| work.skew.is_none()).count().max(1) as f64;
        self.works.iter().map(|work| work.skew.unwrap_or((100.0 - told).max(0.0) / untold)).collect()
    }
}

fn volume(draft: &mut Draft, sd: &Storage, payload: (f64, f64)) {
    let name = plain(&sd.name);
    if !draft.volumes.iter().any(|volume| volume.name == name) {
        draft.volumes.push(VolumeDraft { name, bytes: sd.bytes, count: 1, payload });
    }
}

/// The stream of a workload on a volume; one that is there already is taken again.
fn stream(
    draft: &mut Draft,
    work: &Work,
    sd: &Storage,
    turn: &Turn,
    load: LoadDraft,
    notes: &mut Notes,
) -> String {
    let mut stream = StreamDraft::new(String::new(), plain(&sd.name));
    stream.read = turn.read.unwrap_or(work.read);
    stream.random = turn.random.unwrap_or(work.random);
    stream.sizes = turn.sizes.clone().unwrap_or_else(|| work.sizes.clone());
    stream.align = sd.align;
    stream.zone = match &work.zone {
        None => sd.zone,
        Some(zone) => zone.of(sd.bytes).unwrap_or_else(|| {
            notes.tell(&work.place, format!("range={}", zone.written()), Mapped::Not, Zone::WHY);
            sd.zone
        }),
    };
    stream.load = load;
    let same = |other: &&StreamDraft| StreamDraft { name: String::new(), ..(*other).clone() } == stream;
    if let Some(there) = draft.streams.iter().find(same) {
        return there.name.clone();
    }
    stream.name = draft.free_name(&format!("{}.{}", work.name, sd.name));
    let name = stream.name.clone();
    draft.streams.push(stream);
    name
}
