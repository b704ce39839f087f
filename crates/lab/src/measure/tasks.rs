//! Steps that are timed as a whole: volumes filled, copied and read.

use super::{Doing, GRACE, Point, PointLoad, Run, Unsettled};
use crate::load::{FILL_OUTSTANDING, Goal, Outcome, Phase, Task};
use crate::machine::CpuWatch;
use crate::profile::Step;
use crate::record::StreamRecord;
use serde::{Deserialize, Serialize};
use stonefold_types::Result;
use utoipa::ToSchema;

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TaskKind {
    /// Volumes were written.
    Fill,
    /// One was copied to another.
    Copy,
    /// Volumes were read, and every block looked at.
    Check,
}

/// What was timed as a whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskRecord {
    /// What was done.
    pub kind: TaskKind,
    /// To what, in words.
    pub what: String,
    /// Bytes that were written; of a check, read; of a copy, read and written again.
    pub bytes: u64,
}

impl Run<'_> {
    pub(super) fn fill_step(&mut self, step: &Step, volumes: &[usize], share: f64) -> Result<()> {
        let task = Task::Fill { volumes: volumes.to_vec(), share };
        self.task(step, "", &task)
    }

    pub(super) fn copy_step(&mut self, step: &Step, from: usize, to: &[usize], share: f64) -> Result<()> {
        to.iter().try_for_each(|to| {
            let label = format!("to {}", self.workload.volumes[*to].name);
            self.task(step, &label, &Task::Copy { from, to: *to, share })
        })
    }

    pub(super) fn check_step(&mut self, step: &Step, volumes: &[usize], share: f64) -> Result<()> {
        let task = Task::Check { volumes: volumes.to_vec(), share };
        self.task(step, "", &task)
    }

    fn task(&mut self, step: &Step, label: &str, task: &Task) -> Result<()> {
        if self.reins.is_stopped() {
            return Ok(());
        }
        let name = if label.is_empty() { step.name.clone() } else { format!("{}, {label}", step.name) };
        let loads = vec![None; self.workload.streams.len()];
        let phase = Phase { goal: Goal::Task(task.clone()), loads, footprint: 1.0, grace: GRACE };
        let doing = Doing { what: name, bytes: Some(self.bytes_of(task)), ..Doing::default() };
        let clocks = self.clocks();
        let watch = CpuWatch::start();
        let outcome = self.phase(doing, phase)?;
        let machine_cpu = watch.and_then(CpuWatch::end);
        let clocks_apart = self.clocks() - clocks;
        let point = self.task_point(step, label, task, outcome);
        let written = Some(std::mem::take(&mut self.written));
        self.points.push(Point { machine_cpu, clocks_apart, written, ..point });
        self.reins.measured(&self.points);
        Ok(())
    }

    /// Bytes that a task moves, as a load counts them.
    fn bytes_of(&self, task: &Task) -> u64 {
        let of = |volume: &usize, share: f64| (self.workload.volumes[*volume].bytes as f64 * share) as u64;
        match task {
            Task::Fill { volumes, share } | Task::Check { volumes, share } => {
                volumes.iter().map(|volume| of(volume, *share)).sum()
            }
            Task::Copy { from, share, .. } => 2 * of(from, *share),
        }
    }

    fn task_point(&self, step: &Step, label: &str, task: &Task, outcome: Outcome) -> Point {
        let name = |volume: &usize| self.workload.volumes[*volume].name.clone();
        let (kind, numbers, share) = match task {
            Task::Fill { volumes, share } => (TaskKind::Fill, volumes.clone(), *share),
            Task::Check { volumes, share } => (TaskKind::Check, volumes.clone(), *share),
            Task::Copy { from, share, .. } => (TaskKind::Copy, vec![*from], *share),
        };
        let what = match task {
            Task::Copy { from, to, .. } => format!("{} to {}", name(from), name(to)),
            _ => numbers.iter().map(name).collect::<Vec<_>>().join(", "),
        };
        let records = |streams: &[StreamRecord]| -> Vec<StreamRecord> {
            numbers.iter().map(|number| streams.get(*number).cloned().unwrap_or_default()).collect()
        };
        let workers =
            outcome.workers.iter().map(|(name, streams)| (name.clone(), records(streams))).collect();
        let streams = records(&outcome.streams);
        let moved = |side: fn(&StreamRecord) -> u64| streams.iter().map(side).sum::<u64>();
        let bytes = match kind {
            TaskKind::Check => moved(|record| record.read.bytes),
            TaskKind::Fill | TaskKind::Copy => moved(|record| record.write.bytes),
        };
        let seconds = outcome.elapsed.as_secs_f64().max(1e-9);
        let load = |number: &usize| PointLoad {
            stream: *number,
            name: name(number),
            outstanding: Some(FILL_OUTSTANDING),
            rate: None,
            arrivals: None,
        };
        Point {
            step: step.name.clone(),
            label: label.to_owned(),
            loads: numbers.iter().map(load).collect(),
            footprint: share,
            seconds,
            streams,
            series: outcome.series,
            before: Vec::new(),
            unsettled: Unsettled::default(),
            verification: outcome.verification,
            busy: outcome.busiest.as_secs_f64() / seconds,
            effort: Some(outcome.effort),
            ceiling: 0.0,
            clocks_apart: 0.0,
            reduced: Vec::new(),
            reconciled: None,
            uncounted: None,
            written: None,
            cut_short: self.reins.is_stopped(),
            database: None,
            workers,
            machine_cpu: None,
            outage: None,
            task: Some(TaskRecord { kind, what, bytes }),
            probe: None,
        }
    }
}
