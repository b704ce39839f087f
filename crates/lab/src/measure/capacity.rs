//! What streams can do together: open loops are given shares of it.

use super::Point;

/// What some streams did at most, in a closed loop.
#[derive(Clone, Debug, PartialEq)]
pub struct Capacity {
    /// By their numbers in the workload.
    pub streams: Vec<usize>,
    /// I/Os a second of each, in the same order.
    pub rates: Vec<f64>,
}

impl Capacity {
    /// Of the point in which all of these together did most, and no others; nothing where no point has shown it.
    pub(crate) fn of(points: &[Point], streams: &[usize]) -> Option<Self> {
        let same = |point: &&Point| {
            point.footprint == 1.0
                && point.is_load()
                && point.loads.iter().map(|load| load.stream).eq(streams.iter().copied())
        };
        let closed = |point: &&Point| point.loads.iter().any(|load| load.outstanding.is_some());
        let best = points.iter().filter(same).filter(closed).max_by(|a, b| a.iops().total_cmp(&b.iops()))?;
        let rates = best.streams.iter().map(|record| record.ios() as f64 / best.seconds).collect();
        Some(Capacity { streams: streams.to_vec(), rates })
    }

    /// Of all of them together.
    pub fn total(&self) -> f64 {
        self.rates.iter().sum()
    }

    /// Of one; 0 of one that is not among them.
    pub(super) fn of_stream(&self, number: usize) -> f64 {
        let place = self.streams.iter().position(|stream| *stream == number);
        place.and_then(|place| self.rates.get(place)).copied().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::tests::point;

    #[test]
    fn the_most_that_the_same_streams_did_in_a_closed_loop_is_what_they_can_do() {
        let mut open = point(900);
        (open.loads[0].outstanding, open.loads[0].rate) = (None, Some(900.0));
        let part = Point { footprint: 0.5, ..point(800) };
        let mut other = point(700);
        other.loads[0].stream = 3;
        let points = [point(400), point(500), open, part, other];
        let found = Capacity::of(&points, &[0]).unwrap();
        assert_eq!(found, Capacity { streams: vec![0], rates: vec![500.0] });
        assert_eq!((found.total(), found.of_stream(0), found.of_stream(3)), (500.0, 500.0, 0.0));
        assert_eq!(Capacity::of(&points, &[3]).unwrap().rates, [700.0]);
        assert_eq!(Capacity::of(&points, &[0, 3]), None);
    }
}
