//! What a migration says: whether the disk was moved while users worked, and whether everything is there afterwards.

use super::figures::Figures;
use super::record::MigrationRecord;
use crate::bundle::Bundle;
use crate::oltp::audit;
use crate::stats::gates::{self, STEADY, State};
use crate::stats::require::{self, Met};
use crate::verdict::{Judged, Required, Summary};
use stonefold_types::Result;

/// Computes all that a run says.
pub(in crate::oltp) fn summarise(bundle: &Bundle, record: &MigrationRecord) -> Result<Summary> {
    let moving: Vec<usize> =
        (0..bundle.points.len()).filter(|number| is_moving(bundle, record, *number)).collect();
    let mut points: Vec<Judged> = bundle.points.iter().map(audit::judge).collect();
    for number in &moving {
        // That it is disturbed is what it is run for.
        let judged = &mut points[*number];
        judged.gates.retain(|gate| gate.name != STEADY || gate.state != State::Void);
        judged.grade = gates::grade(&judged.gates);
    }
    let mut required: Vec<Required> =
        moving.last().map(|point| moved(bundle, record, *point)).into_iter().collect();
    for requirement in require::parse(&bundle.run.require)? {
        let judged =
            moving.iter().map(|point| audit::at(&requirement, bundle, *point)).collect::<Result<Vec<_>>>()?;
        required.extend(judged.into_iter().min_by(|a, b| a.met.worst_first(&b.met)));
    }
    // Before the move is what it is held against.
    let rests_on: Vec<usize> =
        if moving.is_empty() { Vec::new() } else { (0..=moving[moving.len() - 1]).collect() };
    let verdict = audit::conclude(bundle, &points, &rests_on, &required);
    Ok(Summary { verdict, points, required, beside: Vec::new() })
}

/// Whether the move went on in some of a cycle.
fn is_moving(bundle: &Bundle, record: &MigrationRecord, number: usize) -> bool {
    let (Some(from), Some(began)) = (record.cycles.get(number), record.began) else { return false };
    let ends = from + record.warm_up + bundle.points[number].seconds;
    ends > began && record.moved.is_none_or(|moved| *from < moved)
}

fn moved(bundle: &Bundle, record: &MigrationRecord, point: usize) -> Required {
    let figures = Figures::new(record, &bundle.points);
    let told = match (figures.seconds, &record.failure) {
        (Some(seconds), _) => format!("it took {seconds:.0} s"),
        (None, Some(why)) => why.clone(),
        (None, None) => "it had not ended".into(),
    };
    let met = Some(figures.seconds.is_some());
    let requirement = "the disk is moved while users work".into();
    Required { point, met: Met { requirement, measured: figures.seconds, told, headroom: None, met } }
}
