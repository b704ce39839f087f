//! One load: settling, then the sample.

use super::{Doing, GRACE, Point, PointLoad, Run, Unsettled};
use crate::counters::{self, Reconciled};
use crate::load::{Control, Goal, Outcome, Phase};
use crate::machine::CpuWatch;
use crate::profile::Step;
use crate::record::StreamRecord;
use crate::reduced::{self, Reduced};
use crate::workload::Load;
use std::time::Duration;
use stonefold_types::Result;

/// A load that is to be measured.
pub(super) struct Wanted {
    pub step: String,
    pub label: String,
    /// Streams by their numbers, each with its load.
    pub loads: Vec<(usize, Load)>,
    pub footprint: f64,
    /// How long it goes on uncounted, and then counted.
    pub before: Duration,
    pub sample: Duration,
    /// How long I/Os in flight at its end are waited for.
    pub grace: Duration,
}

impl Wanted {
    fn name(&self) -> String {
        if self.label.is_empty() { self.step.clone() } else { format!("{}, {}", self.step, self.label) }
    }

    fn phase(&self, streams: usize, length: Duration) -> Phase {
        let mut loads = vec![None; streams];
        self.loads.iter().for_each(|(number, load)| loads[*number] = Some(*load));
        Phase { goal: Goal::For(length), loads, footprint: self.footprint, grace: self.grace }
    }
}

impl Run<'_> {
    /// Measures streams as they run by themselves.
    pub(super) fn point(
        &mut self,
        step: &Step,
        label: &str,
        loads: Vec<(usize, Load)>,
        footprint: f64,
        before: Duration,
        sample: Duration,
    ) -> Result<()> {
        let (step, label) = (step.name.clone(), label.to_owned());
        let wanted = Wanted { step, label, loads, footprint, before, sample, grace: GRACE };
        let point = self.measure(&wanted, Self::phase)?;
        self.points.extend(point);
        self.reins.measured(&self.points);
        Ok(())
    }

    /// Settles and takes the sample, by `run`. Nothing where the run was ended before.
    pub(super) fn measure(
        &mut self,
        wanted: &Wanted,
        run: impl FnOnce(&mut Self, Doing, Phase) -> Result<Outcome>,
    ) -> Result<Option<Point>> {
        if self.reins.is_stopped() {
            return Ok(None);
        }
        let (name, streams) = (wanted.name(), self.workload.streams.len());
        let phase = |length| wanted.phase(streams, length);
        let loads = phase(wanted.sample).loads;
        let ceiling = self.generator.ceiling(self.env, self.plan, &loads, wanted.footprint)?;
        let doing = |what: String, length| Doing { what, length: Some(length), ..Doing::default() };
        let before = wanted.before;
        let settling = self.phase(doing(format!("{name}: settling, not counted"), before), phase(before))?;
        if self.reins.is_stopped() {
            return Ok(None);
        }
        let clocks = self.clocks();
        let counted = counters::sum(&self.plan.counters)?;
        let watch = CpuWatch::start();
        let outcome = run(self, doing(name, wanted.sample), phase(wanted.sample))?;
        let machine_cpu = watch.and_then(CpuWatch::end);
        let clocks_apart = self.clocks() - clocks;
        let (said, uncounted) = counters::since(&self.plan.counters, counted);
        let reconciled = Reconciled::of(said, &outcome.streams);
        let reduced = self.survey()?;
        let point = self.point_of(wanted, settling, outcome, ceiling, clocks_apart);
        let written = Some(std::mem::take(&mut self.written));
        Ok(Some(Point { machine_cpu, reduced, reconciled, uncounted, written, ..point }))
    }

    /// How far what the volumes hold reduces, beside what the profile declares.
    fn survey(&mut self) -> Result<Vec<Reduced>> {
        let loads = vec![None; self.workload.streams.len()];
        let phase = Phase { goal: Goal::Survey, loads, footprint: 1.0, grace: GRACE };
        let outcome = self.generator.run(&phase, &Control::new())?;
        Ok(reduced::declared(self.workload, outcome.reduced))
    }

    fn point_of(
        &self,
        wanted: &Wanted,
        settling: Outcome,
        outcome: Outcome,
        ceiling: f64,
        clocks_apart: f64,
    ) -> Point {
        let unsettled = Unsettled {
            failed: settling.streams.iter().map(StreamRecord::failed).sum(),
            unanswered: settling.unanswered(),
        };
        let mut verification = settling.verification;
        verification.add(&outcome.verification);
        let seconds = outcome.elapsed.as_secs_f64();
        let records = |streams: &[StreamRecord]| -> Vec<StreamRecord> {
            let of = |(number, _): &(usize, Load)| streams.get(*number).cloned().unwrap_or_default();
            wanted.loads.iter().map(of).collect()
        };
        Point {
            step: wanted.step.clone(),
            label: wanted.label.clone(),
            streams: records(&outcome.streams),
            workers: outcome.workers.iter().map(|(name, streams)| (name.clone(), records(streams))).collect(),
            loads: wanted.loads.iter().map(|(number, load)| self.told(*number, *load)).collect(),
            footprint: wanted.footprint,
            seconds,
            series: outcome.series,
            unsettled,
            before: settling.series,
            verification,
            busy: outcome.busiest.as_secs_f64() / seconds.max(1e-9),
            effort: Some(outcome.effort),
            ceiling,
            clocks_apart,
            reduced: Vec::new(),
            reconciled: None,
            uncounted: None,
            written: None,
            cut_short: self.reins.is_stopped(),
            database: None,
            machine_cpu: None,
            outage: None,
            task: None,
            probe: None,
        }
    }

    fn told(&self, stream: usize, load: Load) -> PointLoad {
        let copies = self.generator.copies();
        let (outstanding, rate, arrivals) = match load {
            Load::Closed { outstanding } => (Some(outstanding * copies as u32), None, None),
            Load::Open { from, to, arrivals } => {
                (None, Some((from + to) / 2.0 * copies as f64), Some(arrivals))
            }
            Load::Follow { .. } | Load::Replay { .. } => (None, None, None),
        };
        PointLoad { stream, name: self.workload.streams[stream].name.clone(), outstanding, rate, arrivals }
    }

    /// Wall clock less steady clock, in seconds.
    pub(super) fn clocks(&self) -> f64 {
        self.env.wall() as f64 / 1e9 - self.env.monotonic().as_secs_f64()
    }
}
