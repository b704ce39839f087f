//! What a run took beside its time: processors for each I/O, and bytes of each kind.

use crate::context::Context;
use crate::table::Table;
use serde::Serialize;
use stonefold_lab::TargetSpec;
use stonefold_lab::machine::Busy;
use stonefold_lab::measure::{CpuCost, Point};
use stonefold_lab::space::{Occupied, Space, of_file};
use stonefold_lab::stats::require::time;
use stonefold_types::Size;

/// What targets say that they take, when a run is over: files and disks of a server tell, and nobody is made to.
pub(super) fn occupied(context: &Context, targets: &[String]) -> Vec<Occupied> {
    let bytes = |text: &str| match text.parse::<TargetSpec>().ok()? {
        TargetSpec::File(path) => of_file(&path),
        TargetSpec::Stonefold(name) => {
            let usage = context.client().ok()?.disk_usage(&name.parse().ok()?).ok()?;
            Some(usage.unique_bytes + usage.shared_bytes)
        }
        _ => None,
    };
    targets.iter().map(|target| Occupied { target: target.clone(), bytes: bytes(target) }).collect()
}

/// What a point took of processors.
#[derive(Serialize)]
pub(super) struct PointCost {
    point: String,
    /// Microseconds for each I/O.
    #[serde(flatten)]
    cost: CpuCost,
    /// Processors of the machine.
    busy: Option<Busy>,
}

/// Of those of which anything is known.
pub(super) fn costs(points: &[Point]) -> Vec<PointCost> {
    let of = |point: &Point| PointCost {
        point: point.name(),
        cost: point.cpu_cost(),
        busy: point.machine_of_load(),
    };
    let is_known = |one: &PointCost| one.cost.generator.is_some() || one.cost.machine.is_some();
    points.iter().map(of).filter(is_known).collect()
}

/// Empty without any.
pub(super) fn of_cpu(costs: &[PointCost]) -> String {
    if costs.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["POINT", "AN I/O TOOK OF THE LOAD>", "OF THE MACHINE>", "PROCESSORS BUSY>"]);
    let took = |micros: Option<f64>| micros.map_or_else(|| "-".into(), |micros| time(micros * 1e3));
    for one in costs {
        let busy = one.busy.map_or_else(
            || "-".into(),
            |busy| match busy.of {
                Some(of) => format!("{:.1} of {of}", busy.mean),
                None => format!("{:.1}", busy.mean),
            },
        );
        table.row([one.point.clone(), took(one.cost.generator), took(one.cost.machine), busy]);
    }
    format!("\n{}", table.text())
}

/// Empty where no more is known than how large volumes are.
pub(super) fn space_words(space: Option<&Space>) -> String {
    let Some(Space { logical, written, physical }) = space else { return String::new() };
    if written.is_none() && physical.is_empty() {
        return String::new();
    }
    let mut words = vec![format!("logical {}", Size(*logical))];
    words.extend(written.map(|written| format!("written {}", Size(written))));
    words.extend(physical.iter().map(|Occupied { target, bytes }| match bytes {
        Some(bytes) => format!("physical {} as {target} tells", Size(*bytes)),
        None => format!("physical not told by {target}"),
    }));
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_told_by_their_kinds() {
        let occupied = |target: &str, bytes| Occupied { target: target.into(), bytes };
        let mut space = Space {
            logical: 1 << 30,
            written: Some(3 << 30),
            physical: vec![occupied("file:/t", Some(1 << 29)), occupied("nbd://h/x", None)],
        };
        assert_eq!(
            space_words(Some(&space)),
            "logical 1G, written 3G, physical 512M as file:/t tells, physical not told by nbd://h/x"
        );
        (space.written, space.physical) = (None, Vec::new());
        assert_eq!(space_words(Some(&space)), "", "of a bundle of before");
    }
}
