//! The figures of streams: of each, of those that do alike as of one, and of each worker that made a part of them.

use super::data::MILLI;
use crate::measure::{Point, PointLoad};
use crate::record::{Direction, StreamRecord};
use serde::Serialize;
use std::ops::Range;
use utoipa::ToSchema;

/// The figures of a stream.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct StreamFigures {
    /// Its name.
    pub stream: String,
    /// Whether it was an open or a closed loop, and how much of one.
    pub load: String,
    /// Reads or writes.
    pub side: &'static str,
    /// I/Os a second.
    pub iops: f64,
    /// Bytes a second.
    pub bytes: f64,
    /// Milliseconds of the response time.
    pub mean: f64,
    /// See `mean`; as every percentile nothing where fewer than ten I/Os are above it.
    pub p50: Option<f64>,
    /// From 1,000 I/Os on.
    pub p99: Option<f64>,
    /// From 10,000 I/Os on.
    pub p999: Option<f64>,
    /// See `mean`.
    pub max: f64,
    /// Milliseconds from the moment at which an I/O was issued, on average: what the storage took of the response time.
    pub service: f64,
}

/// What one worker did of a load that several made.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct WorkerFigures {
    /// Its address.
    pub worker: String,
    /// Its part of each stream; of streams that do alike on a volume each as of one.
    pub streams: Vec<StreamFigures>,
}

/// Of each stream by itself.
pub(super) fn streams(point: &Point) -> Vec<StreamFigures> {
    let each = point.loads.iter().zip(&point.streams);
    each.flat_map(|(load, record)| figures(load, record, point.seconds)).collect()
}

/// Of streams that do alike as of one, where there are such.
pub(super) fn together(point: &Point) -> Vec<StreamFigures> {
    let loads = PointLoad::together(&point.loads);
    if loads.len() == point.loads.len() {
        return Vec::new();
    }
    alike(&loads, &point.streams, point.seconds)
}

/// What each worker did of a point, in the order in which they were named; nothing where there were none.
pub fn workers(point: &Point) -> Vec<WorkerFigures> {
    // Each has volumes of its own, and as much to do as any other.
    // Of none there is nothing to divide.
    let many = point.workers.len().max(1);
    let part = |load: PointLoad| PointLoad {
        outstanding: load.outstanding.map(|all| all / many as u32),
        rate: load.rate.map(|all| all / many as f64),
        ..load
    };
    let loads: Vec<_> =
        PointLoad::together(&point.loads).into_iter().map(|(of, load)| (of, part(load))).collect();
    let one = |(worker, records): &(String, Vec<StreamRecord>)| WorkerFigures {
        worker: worker.clone(),
        streams: alike(&loads, records, point.seconds),
    };
    point.workers.iter().map(one).collect()
}

fn alike(loads: &[(Range<usize>, PointLoad)], records: &[StreamRecord], seconds: f64) -> Vec<StreamFigures> {
    let of = |(streams, load): &(Range<usize>, PointLoad)| {
        let mut all = StreamRecord::default();
        records[streams.clone()].iter().for_each(|record| all.add(record));
        figures(load, &all, seconds)
    };
    loads.iter().flat_map(of).collect()
}

fn percentile(side: &Direction, share: f64) -> Option<f64> {
    side.response.percentile(share).map(|nanos| nanos as f64 / MILLI)
}

fn figures(load: &PointLoad, record: &StreamRecord, seconds: f64) -> Vec<StreamFigures> {
    [("reads", &record.read), ("writes", &record.write), ("flushes, trims, zeroings", &record.control)]
        .into_iter()
        .filter(|(_, side)| side.ios > 0)
        .map(|(name, side)| StreamFigures {
            stream: load.name.clone(),
            load: load.words(),
            side: name,
            iops: side.ios as f64 / seconds,
            bytes: side.bytes as f64 / seconds,
            mean: side.response.mean() / MILLI,
            p50: percentile(side, 0.5),
            p99: percentile(side, 0.99),
            p999: percentile(side, 0.999),
            max: side.response.max() as f64 / MILLI,
            service: side.service.mean() / MILLI,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::tests::point;

    /// Goal: what the workers did adds up to what is told of all, each with its part of the load, and of a run without workers nothing is told.
    #[test]
    fn the_figures_of_workers_add_up_to_those_of_all() {
        let mut all = point(3000);
        assert!(workers(&all).is_empty());
        let (one, two) = (point(1000), point(2000));
        all.loads[0].outstanding = Some(8);
        all.workers = vec![("vm-1".into(), one.streams), ("vm-2".into(), two.streams)];
        let (told, each) = (streams(&all), workers(&all));
        assert_eq!(each.iter().map(|one| &*one.worker).collect::<Vec<_>>(), ["vm-1", "vm-2"]);
        let sum: f64 = each.iter().flat_map(|one| &one.streams).map(|stream| stream.iops).sum();
        assert!((sum - told.iter().map(|stream| stream.iops).sum::<f64>()).abs() < 1e-6, "{each:?}");
        assert!(each[1].streams[0].iops > 1.9 * each[0].streams[0].iops);
        assert_eq!(
            (&*told[0].load, &*each[0].streams[0].load),
            ("closed, 8 in flight", "closed, 4 in flight")
        );
    }

    /// Goal: ten disks that do alike are one line of each worker's.
    #[test]
    fn disks_that_do_alike_are_one_of_each_worker() {
        let mut all = point(100);
        let (load, record) = (all.loads[0].clone(), all.streams[0].clone());
        all.loads =
            (1..=10).map(|number| PointLoad { name: format!("disk-{number}"), ..load.clone() }).collect();
        all.streams = vec![record.clone(); 10];
        all.workers = vec![("vm-1".into(), vec![record; 10])];
        let each = workers(&all);
        assert_eq!((each[0].streams.len(), streams(&all).len(), together(&all).len()), (1, 10, 1));
        assert_eq!(each[0].streams[0].stream, "disk-1 to 10");
    }
}
