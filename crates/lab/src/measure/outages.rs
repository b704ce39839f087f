//! Steps in which the target is struck: a load for each outage, then a look at every block.

use super::point::Wanted;
use super::{Doing, GRACE, Generator, Plan, Run};
use crate::chaos::{Director, Outage, OutageRecord, Promise, Struck};
use crate::load::{Gap, Goal, Outcome, Phase};
use crate::profile::Step;
use crate::record::StreamRecord;
use crate::target::TargetSpec;
use crate::workload::Load;
use std::time::Duration;
use stonefold_types::{Error, Kind, Result};

/// Refuses a plan with outages that cannot be, or without those that its profile needs.
pub(super) fn check(plan: &Plan) -> Result<()> {
    let wrong = |what: String, remedy: &str| Err(Error::new(Kind::Invalid, what).remedy(remedy));
    let name = &plan.profile.name;
    let outages = match (&plan.outages, plan.profile.has_outages()) {
        (None, false) => return Ok(()),
        (None, true) => {
            return wrong(
                format!("the profile '{name}' strikes the target, and nobody has said how"),
                "say --outages FILE; docs/use/lab.md has one",
            );
        }
        (Some(_), false) => {
            return wrong(
                format!("the profile '{name}' strikes nobody, and outages were named"),
                "leave --outages out, or run chaos",
            );
        }
        (Some(outages), true) => outages,
    };
    if plan.fleet.token.is_some() {
        return wrong("outages cannot be with workers yet".into(), "leave --worker out");
    }
    if !plan.options.verify {
        return wrong("outages are about what is read afterwards".into(), "leave --no-verify out");
    }
    if plan.targets.contains(&TargetSpec::Null) {
        return wrong("null: keeps nothing that could be lost".into(), "name a target that does");
    }
    outages.check_within(plan.profile.times(plan.quick).sample)?;
    let is_export = |target: &TargetSpec| matches!(target, TargetSpec::Nbd(_));
    let comes_back = |outage: &&Outage| outage.kind != crate::chaos::Strike::Freeze;
    let target = plan.targets.iter().find(|target| !is_export(target));
    if let Some((target, outage)) = target.zip(outages.outages.iter().find(comes_back)) {
        return wrong(
            format!("outage '{}': {target} is no server that could come back", outage.name),
            "serve it, and name the export as nbd:// or nbd+unix://; files and devices can be frozen only",
        );
    }
    Ok(())
}

/// I/Os that failed, or had no answer.
fn in_vain(outcome: &Outcome) -> u64 {
    outcome.streams.iter().map(StreamRecord::failed).sum::<u64>() + outcome.unanswered()
}

impl Run<'_> {
    /// Strikes once for each outage. Where something was lost, every block is written anew before the next.
    pub(super) fn outages(&mut self, step: &Step, loads: &[(usize, Load)]) -> Result<()> {
        let plan = self.plan;
        let Some(outages) = &plan.outages else { return Ok(()) };
        self.check_promise(outages.promise)?;
        for outage in &outages.outages {
            if let failed @ 1.. = self.flush()? {
                let what = format!("{failed} flushes failed or had no answer, before anything struck");
                return Err(
                    Error::new(Kind::Io, what).remedy("look at the target: it keeps nothing for sure")
                );
            }
            self.rig(|rig| rig.keep_durability(true));
            let Some(clean) = self.outage(step, loads, outages.promise, outage)? else { break };
            self.rig(|rig| rig.keep_durability(false));
            if !clean {
                self.fill()?;
            }
        }
        Ok(())
    }

    fn check_promise(&self, promise: Promise) -> Result<()> {
        match &self.generator {
            Generator::Here(rig) if promise == Promise::Flush && !rig.can_flush() => Err(Error::new(
                Kind::Unsupported,
                "the target cannot be asked for a flush, so that it promises nothing on one",
            )
            .remedy("declare promise = \"ack\", if it keeps what it acknowledges")),
            _ => Ok(()),
        }
    }

    fn rig(&mut self, change: impl FnOnce(&mut crate::rig::Rig)) {
        if let Generator::Here(rig) = &mut self.generator {
            change(rig);
        }
    }

    /// Returns how many flushes failed, or had no answer.
    fn flush(&mut self) -> Result<u64> {
        match &self.generator {
            Generator::Here(rig) if !rig.can_flush() => Ok(0),
            _ => self.whole("flushing", Goal::Flush).map(|outcome| in_vain(&outcome)),
        }
    }

    /// Something that is done to all volumes once.
    fn whole(&mut self, what: &str, goal: Goal) -> Result<Outcome> {
        let bytes = self.workload.volumes.iter().map(|volume| volume.bytes).sum();
        let bytes = (goal == Goal::Scan).then_some(bytes);
        let loads = vec![None; self.workload.streams.len()];
        let doing = Doing { what: what.into(), bytes, ..Doing::default() };
        self.phase(doing, Phase { goal, loads, footprint: 1.0, grace: GRACE })
    }

    /// True where nothing was lost; nothing where the run or the target ended.
    fn outage(
        &mut self,
        step: &Step,
        loads: &[(usize, Load)],
        promise: Promise,
        outage: &Outage,
    ) -> Result<Option<bool>> {
        let times = self.plan.profile.times(self.plan.quick);
        let wanted = Wanted {
            step: step.name.clone(),
            label: outage.name.clone(),
            loads: loads.to_vec(),
            footprint: 1.0,
            before: times.precondition,
            sample: times.sample,
            grace: GRACE + Duration::from_secs_f64(outage.patience),
        };
        let mut told: Option<(Struck, Vec<Gap>, u64)> = None;
        let begins = outage.begins(times.sample);
        let point = self.measure(&wanted, |run, doing, phase| {
            let (outcome, struck) = run.struck(doing, &phase, promise, outage, begins)?;
            told = struck.map(|struck| (struck, outcome.gaps.clone(), outcome.breaks));
            Ok(outcome)
        })?;
        let (Some(mut point), Some((struck, gaps, breaks))) = (point, told) else { return Ok(None) };
        let mut record = OutageRecord::new(outage, promise, &struck, &gaps, breaks);
        let mut clean = None;
        if record.came_back {
            match self.flush().and_then(|failed| Ok((failed, self.whole("reading every block", Goal::Scan)?)))
            {
                Ok((failed, look)) => {
                    record.unread = failed + in_vain(&look);
                    let mut seen = look.verification;
                    seen.add(&point.verification);
                    clean = Some(seen.faults() == 0 && record.unread == 0);
                    point.verification = seen.clone();
                    record.verification = Some(seen);
                }
                // It answered for a moment: that is what came of the outage, and not the end of the run.
                Err(_) => record.came_back = false,
            }
        }
        self.target_is_gone = !record.came_back;
        point.cut_short = self.reins.is_stopped();
        point.outage = Some(record);
        self.points.push(point);
        self.reins.measured(&self.points);
        Ok(clean)
    }

    /// Runs a phase while somebody strikes.
    fn struck(
        &mut self,
        doing: Doing,
        phase: &Phase,
        promise: Promise,
        outage: &Outage,
        begins: Duration,
    ) -> Result<(Outcome, Option<Struck>)> {
        let env = self.env;
        let control = self.reins.begin(Doing { since: env.monotonic(), ..doing });
        control.watch();
        let director =
            Director { env, control: &control, outage, begins, allowance: outage.may_lose(promise) };
        std::thread::scope(|scope| {
            let strikes = std::thread::Builder::new()
                .name("outage".into())
                .spawn_scoped(scope, || director.direct())
                .map_err(|e| Error::io("starting the thread that strikes", e))?;
            let outcome = self.generator.run(phase, &control);
            // Also where it failed: nobody waits for an answer any more.
            control.end();
            self.written += outcome.as_ref().map_or(0, Outcome::written);
            let struck = strikes.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            Ok((outcome?, struck))
        })
    }
}
