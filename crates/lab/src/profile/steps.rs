//! The words of a step, and what must come before what.

use super::file::invalid;
use super::{Step, StepKind, Tune};
use crate::workload::{Load, Workload};
use serde::Deserialize;
use stonefold_types::Result;

/// Steps of a sweep at most.
const POINTS_MAX: usize = 64;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StepWords {
    name: String,
    streams: Option<Vec<String>>,
    outstanding: Option<Vec<u32>>,
    loads: Option<Vec<f64>>,
    rates: Option<Vec<f64>>,
    footprints: Option<Vec<f64>>,
    fill: Option<Vec<String>>,
    copy: Option<CopyWords>,
    check: Option<Vec<String>>,
    /// Of a fill, a copy or a check: percent of each volume.
    part: Option<f64>,
    tune: Option<TuneWords>,
    #[serde(default)]
    outages: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CopyWords {
    from: String,
    to: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TuneWords {
    streams: Vec<String>,
    from: u32,
    to: u32,
    within: String,
}

impl StepWords {
    pub(super) fn check(&self, workload: &Workload) -> Result<Step> {
        let wrong = |why: &str| invalid(format!("step '{}': {why}", self.name));
        let kinds = [
            self.outstanding.is_some(),
            self.loads.is_some(),
            self.rates.is_some(),
            self.footprints.is_some(),
            self.fill.is_some(),
            self.copy.is_some(),
            self.check.is_some(),
            self.tune.is_some(),
            self.outages,
        ];
        if kinds.iter().filter(|kind| **kind).count() > 1 {
            return Err(wrong(
                "only one of outstanding, loads, rates, footprints, fill, copy, check, tune and outages can be",
            ));
        }
        if let Some(kind) = self.task(workload)? {
            if self.streams.is_some() {
                return Err(wrong("it runs no streams; leave 'streams' out"));
            }
            return Ok(Step { name: self.name.clone(), streams: Vec::new(), kind });
        }
        if self.part.is_some() {
            return Err(wrong("'part' is of fill, copy and check"));
        }
        let streams = match &self.streams {
            None => (0..workload.streams.len()).collect(),
            Some(names) => self.find_streams(names, workload)?,
        };
        let kind = self.load(workload, &streams)?;
        Ok(Step { name: self.name.clone(), streams, kind })
    }

    /// How streams are run.
    fn load(&self, workload: &Workload, streams: &[usize]) -> Result<StepKind> {
        let wrong = |why: &str| invalid(format!("step '{}': {why}", self.name));
        let points = |points: &[f64]| -> Result<Vec<f64>> {
            let shares = points.iter().all(|point| *point > 0.0 && *point <= 100.0);
            if points.is_empty() || points.len() > POINTS_MAX || !shares {
                return Err(wrong("it needs from 1 to 64 shares, each above 0 and up to 100%"));
            }
            Ok(points.iter().map(|point| point / 100.0).collect())
        };
        if let Some(depths) = &self.outstanding {
            let can_be = |depth: &u32| (1..=4096).contains(depth);
            if depths.is_empty() || depths.len() > POINTS_MAX || !depths.iter().all(can_be) {
                return Err(wrong("it needs from 1 to 64 depths, each from 1 to 4096"));
            }
            return Ok(StepKind::Sweep(depths.clone()));
        }
        if let Some(rates) = &self.rates {
            let can_be = |rate: &f64| *rate >= 1.0 && *rate <= 1e7;
            if rates.is_empty() || rates.len() > POINTS_MAX || !rates.iter().all(can_be) {
                return Err(wrong("it needs from 1 to 64 rates, each from 1 to 10,000,000 I/Os a second"));
            }
            return Ok(StepKind::Rates(rates.clone()));
        }
        match (&self.loads, &self.footprints, &self.tune) {
            (Some(loads), _, _) => Ok(StepKind::Loads(points(loads)?)),
            (_, Some(footprints), _) => Ok(StepKind::Footprints(points(footprints)?)),
            (_, _, Some(tune)) => self.tune(tune, workload, streams).map(StepKind::Tune),
            _ if self.outages => Ok(StepKind::Outages),
            _ => Ok(StepKind::Hold),
        }
    }

    /// What is timed as a whole, if it is that.
    fn task(&self, workload: &Workload) -> Result<Option<StepKind>> {
        let part = self.part.unwrap_or(100.0);
        if !(part > 0.0 && part <= 100.0) {
            return Err(invalid(format!("step '{}': a part above 0 and up to 100% can be", self.name)));
        }
        let share = part / 100.0;
        Ok(match (&self.fill, &self.copy, &self.check) {
            (Some(names), _, _) => Some(StepKind::Fill(self.find_volumes(names, workload)?, share)),
            (_, Some(copy), _) => {
                let from = self.find_volumes(std::slice::from_ref(&copy.from), workload)?;
                let to = self.find_volumes(&copy.to, workload)?;
                let [from] = from[..] else {
                    return Err(invalid(format!("step '{}': one volume is copied", self.name)));
                };
                Some(StepKind::Copy(from, to, share))
            }
            (_, _, Some(names)) => Some(StepKind::Check(self.find_volumes(names, workload)?, share)),
            _ => None,
        })
    }

    /// Which volume it copies to which, where it does; what is wrong with that [`StepWords::check`] says.
    pub(super) fn copies(&self, workload: &Workload) -> Option<(usize, Vec<usize>)> {
        match self.task(workload) {
            Ok(Some(StepKind::Copy(from, to, _))) => Some((from, to)),
            _ => None,
        }
    }

    fn tune(&self, words: &TuneWords, workload: &Workload, streams: &[usize]) -> Result<Tune> {
        let wrong = |why: String| invalid(format!("step '{}': {why}", self.name));
        let tuned = self.find_streams(&words.streams, workload)?;
        if let Some(other) = tuned.iter().find(|number| !streams.contains(number)) {
            let name = &workload.streams[*other].name;
            return Err(wrong(format!("'{name}' is tuned and does not run")));
        }
        let closed = |number: &usize| matches!(workload.streams[*number].load, Load::Closed { .. });
        if let Some(other) = tuned.iter().find(|number| !closed(number)) {
            let name = &workload.streams[*other].name;
            return Err(wrong(format!("'{name}' has no I/Os outstanding that could be tuned")));
        }
        if words.from == 0 || words.from >= words.to || words.to > 4096 {
            return Err(wrong("it needs a 'from' below a 'to', from 1 to 4096".into()));
        }
        let within = words.within.parse()?;
        Ok(Tune { streams: tuned, least: words.from, most: words.to, within })
    }

    fn find_streams(&self, names: &[String], workload: &Workload) -> Result<Vec<usize>> {
        let all: Vec<&str> = workload.streams.iter().map(|stream| stream.name.as_str()).collect();
        self.find(names, &all, "runs stream")
    }

    fn find_volumes(&self, names: &[String], workload: &Workload) -> Result<Vec<usize>> {
        let all: Vec<&str> = workload.volumes.iter().map(|volume| volume.name.as_str()).collect();
        self.find(names, &all, "is about volume")
    }

    /// Those of these names; of a name that several share, all.
    fn find(&self, names: &[String], all: &[&str], verb: &str) -> Result<Vec<usize>> {
        let mut found = Vec::new();
        for name in names {
            let before = found.len();
            let is =
                |other: &str| other == name || other.rsplit_once('-').is_some_and(|(base, _)| base == name);
            found.extend(all.iter().enumerate().filter(|(_, other)| is(other)).map(|(number, _)| number));
            if found.len() == before {
                return Err(invalid(format!("step '{}' {verb} '{name}', which is not there", self.name)));
            }
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }
}

/// How much of a volume has been written, and whether by more than one step.
#[derive(Clone, Copy, Default)]
struct Written {
    share: f64,
    /// Every block has its first content.
    fresh: bool,
}

/// Refuses steps that read what no step before them has written, or that copy what is no copy any more.
pub(super) fn check_order(steps: &[Step], workload: &Workload) -> Result<()> {
    if !steps.iter().any(|step| matches!(step.kind, StepKind::Fill(..) | StepKind::Copy(..))) {
        return Ok(());
    }
    let mut written = vec![Written::default(); workload.volumes.len()];
    for step in steps {
        let wrong = |volume: usize, why: &str| {
            let name = &workload.volumes[volume].name;
            invalid(format!("step '{}': volume '{name}' {why}", step.name))
        };
        match &step.kind {
            StepKind::Fill(volumes, share) => volumes.iter().for_each(|volume| {
                let fresh = written[*volume].share == 0.0;
                written[*volume] = Written { share: share.max(written[*volume].share), fresh };
            }),
            StepKind::Copy(from, to, share) => {
                let (source, of) = (written[*from], &workload.volumes[*from]);
                if !source.fresh || source.share < *share {
                    return Err(wrong(*from, "is copied, and was not just filled as far"));
                }
                for volume in to {
                    let copy = &workload.volumes[*volume];
                    if written[*volume].share > 0.0 || volume == from {
                        return Err(wrong(*volume, "becomes a copy, and holds something"));
                    }
                    if (copy.bytes, copy.reduction) != (of.bytes, of.reduction) {
                        return Err(wrong(*volume, "becomes a copy of one of another size or payload"));
                    }
                    written[*volume] = Written { share: *share, fresh: false };
                }
            }
            StepKind::Check(volumes, share) => {
                if let Some(volume) = volumes.iter().find(|volume| written[**volume].share < *share) {
                    return Err(wrong(*volume, "is read further than it was written"));
                }
            }
            _ => {
                for number in &step.streams {
                    let stream = &workload.streams[*number];
                    if written[stream.volume].share < stream.zone.1 {
                        return Err(wrong(stream.volume, "is used further than it was written"));
                    }
                    written[stream.volume].fresh = false;
                }
            }
        }
    }
    Ok(())
}

/// Refuses parts of a volume on which an alignment of a mix could not be kept.
pub(super) fn check_footprints(steps: &[Step], workload: &Workload) -> Result<()> {
    for step in steps {
        let StepKind::Footprints(parts) = &step.kind else { continue };
        let streams = step.streams.iter().map(|number| &workload.streams[*number]);
        for stream in streams.filter(|stream| stream.mixes_alignments()) {
            for part in parts {
                stream.on_part(*part).check_room(&workload.volumes[stream.volume]).map_err(|why| {
                    let on = format!("step '{}', on {}% of each volume", step.name, part * 100.0);
                    invalid(format!("{on}: stream '{}': {why}", stream.name))
                })?;
            }
        }
    }
    Ok(())
}

/// Refuses shares of a capacity that no step before them has found.
pub(super) fn check_loads(steps: &[Step], workload: &Workload) -> Result<()> {
    for (number, step) in steps.iter().enumerate() {
        let finds = |before: &Step| {
            let is_load = match &before.kind {
                StepKind::Hold => {
                    let load = |number: &usize| workload.streams[*number].load;
                    before.streams.iter().any(|number| matches!(load(number), Load::Closed { .. }))
                }
                StepKind::Sweep(_) | StepKind::Tune(_) => true,
                StepKind::Footprints(parts) => parts.contains(&1.0),
                _ => false,
            };
            is_load && before.streams == step.streams
        };
        if matches!(step.kind, StepKind::Loads(_)) && !steps[..number].iter().any(finds) {
            let what =
                format!("step '{}': its loads are shares of what no step before it has found", step.name);
            return Err(invalid(what)
                .remedy("put a step of the same streams before it in which they run with I/Os outstanding"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Profile;
    use super::*;

    const GOOD: &str = r#"
title = "t"
about = "a"
[payload]
copies = "equal"
[[volume]]
name = "db"
count = 2
size = "1M"
quick = "1M"
[[stream]]
name = "db"
volume = "db"
read = 50
random = 100
sizes = { "4K" = 100 }
zone = [0, 80]
outstanding = 2
[[step]]
name = "create"
fill = ["db-1"]
part = 80
[[step]]
name = "duplicate"
copy = { from = "db-1", to = ["db-2"] }
part = 80
[[step]]
name = "tune"
tune = { streams = ["db"], from = 1, to = 8, within = "db:read.mean<=20ms" }
[[step]]
name = "mixed"
[[step]]
name = "checksum"
check = ["db"]
part = 80
"#;

    #[test]
    fn timed_steps_are_read_with_their_volumes() {
        let profile = Profile::parse("x", GOOD).unwrap();
        assert!(profile.fills_itself() && !profile.has_outages());
        assert_eq!(profile.steps[0].kind, StepKind::Fill(vec![0], 0.8));
        assert_eq!(profile.steps[1].kind, StepKind::Copy(0, vec![1], 0.8));
        assert_eq!(profile.steps[4].kind, StepKind::Check(vec![0, 1], 0.8));
        let original = profile.full.volumes[1].original.unwrap();
        assert_eq!((original.volume, original.equal), (0, true));
        assert_eq!(profile.full.parts(), [vec![0, 1]], "a copy and its original share a thread");
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        for (from, to, says) in [
            ("fill = [\"db-1\"]", "fill = [\"db\"]", "holds something"),
            ("fill = [\"db-1\"]\npart = 80", "fill = [\"db-1\"]\npart = 50", "was not just filled"),
            ("check = [\"db\"]\npart = 80", "check = [\"db\"]", "further than it was written"),
            ("zone = [0, 80]", "zone = [0, 90]", "further than it was written"),
            ("to = [\"db-2\"]", "to = [\"dbx\"]", "'dbx'"),
            ("from = 1, to = 8", "from = 8, to = 8", "below"),
            ("read.mean<=20ms", "speed<=20ms", "speed"),
            ("check = [\"db\"]", "check = [\"db\"]\nfootprints = [50]", "only one of"),
            ("name = \"mixed\"", "name = \"mixed\"\npart = 80", "'part' is of"),
            ("name = \"checksum\"", "name = \"checksum\"\nstreams = [\"db\"]", "runs no streams"),
            ("copies = \"equal\"", "copies = \"same\"", "same"),
            ("{ \"4K\" = 100 }", "{ \"4K\" = 60, \"8K\" = 60 }", "are 120% together"),
            (
                "name = \"tune\"\ntune",
                "name = \"early\"\nloads = [50]\n[[step]]\nname = \"tune\"\ntune",
                "no step before",
            ),
        ] {
            assert!(GOOD.contains(from), "{from}");
            let error = Profile::parse("x", &GOOD.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(says), "{from} → {to}: {error}");
        }
        let timed =
            |sample: &str| Profile::parse("x", &format!("{GOOD}[time]\nquick_sample = \"{sample}\"\n"));
        assert!(timed("0s").unwrap_err().to_string().contains("measures nothing"));
        timed("1s").unwrap();
        // Where a step has found what they do, shares of that can be.
        let later =
            GOOD.replacen("name = \"mixed\"", "name = \"mixed\"\n[[step]]\nname = \"half\"\nloads = [50]", 1);
        Profile::parse("x", &later).unwrap();
    }

    /// Goal: what is chosen is run in the profile's order, and never without what it rests on.
    #[test]
    fn steps_are_chosen_with_what_they_rest_on() {
        let profile = crate::profile::shipped::find("poltp").unwrap();
        let choose = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            profile.clone().with_steps(&names, true)
        };
        let names =
            |profile: &Profile| profile.steps.iter().map(|step| step.name.clone()).collect::<Vec<_>>();
        let chosen = choose(&["latency", "hold"]).unwrap();
        assert_eq!(names(&chosen), ["hold", "latency"]);
        assert_eq!(chosen.only, names(&chosen));
        assert!(chosen.duration(true) < profile.duration(true));
        assert_eq!(choose(&[]).unwrap(), profile);
        for (wanted, says) in [
            (vec!["latency"], "choose the steps that must come before it"),
            (vec!["hold", "dpeth"], "choose among its steps: 'hold', 'depth', 'latency'"),
        ] {
            let error = choose(&wanted).unwrap_err().to_string();
            assert!(error.contains(says), "{wanted:?}: {error}");
        }
        assert_eq!(choose(&["latency", "hold", "depth"]).unwrap(), profile, "nothing was left out");
        let mail = crate::profile::shipped::find("mail").unwrap();
        let of_mail = |name: &str| mail.clone().with_steps(&[name.to_owned()], true);
        let error = of_mail("mixed").unwrap_err().to_string();
        assert!(error.contains("runs with what 'tune' finds"), "{error}");
        // What it requires is of another step, and what is written can be required of nothing.
        let create = of_mail("create").unwrap();
        assert!(
            create.require.is_empty() && create.does(true).iter().all(|does| !does.reads && !does.writes)
        );
        let required = crate::stats::require::check("iops>=1", &create.does(true)).unwrap_err().to_string();
        assert!(required.contains("choose other steps"), "{required}");
        let copies = Profile::parse("x", GOOD).unwrap();
        let error = copies.with_steps(&["duplicate".to_owned()], true).unwrap_err().to_string();
        assert!(error.contains("was not just filled"), "{error}");
    }
}
