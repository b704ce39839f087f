//! What an I/O took of processors.

use super::Point;
use serde::Serialize;
use utoipa::ToSchema;

/// Microseconds of a processor for each I/O; nothing where that is not known.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
pub struct CpuCost {
    /// Of the load's own threads, for what they did: without what they waited awake.
    pub generator: Option<f64>,
    /// Of all processors of the machine that made the load, whoever used them: of the target, too, where that runs there.
    pub machine: Option<f64>,
}

impl Point {
    /// What each of its I/Os took of processors.
    pub fn cpu_cost(&self) -> CpuCost {
        let each = |seconds_each_second: f64| {
            let micros = seconds_each_second * 1e6 / self.iops();
            micros.is_finite().then_some(micros)
        };
        CpuCost {
            generator: self.effort.and_then(|effort| each(effort.work / self.seconds)),
            machine: self.machine_of_load().and_then(|busy| each(busy.mean)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Effort;
    use crate::machine::Busy;
    use crate::measure::tests::point;

    #[test]
    fn an_io_costs_what_was_used_by_all_of_them() {
        // A thousand a second, for twelve seconds.
        let plain = point(1000);
        assert_eq!(plain.cpu_cost(), CpuCost { generator: None, machine: None });
        let effort = Some(Effort { work: 0.6, most: 0.6, awake: 11.0 });
        let busy = Busy { min: 0.0, mean: 1.5, max: 2.0, of: Some(2), stolen: 0.0 };
        let told = Point { effort, machine_cpu: Some(busy), ..plain.clone() };
        let CpuCost { generator, machine } = told.cpu_cost();
        assert!((generator.unwrap() - 50.0).abs() < 1e-9 && (machine.unwrap() - 1500.0).abs() < 1e-9);
        // The processors of whoever leads say nothing of what workers elsewhere used.
        let led = Point { workers: vec![("one".into(), Vec::new())], ..told.clone() };
        assert_eq!(led.cpu_cost(), CpuCost { generator, machine: None });
        let nothing = Point { streams: Vec::new(), ..told };
        assert_eq!(nothing.cpu_cost(), CpuCost { generator: None, machine: None });
    }
}
