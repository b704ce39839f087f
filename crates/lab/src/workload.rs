//! What is asked of the storage, as the load engine takes it: volumes, and streams of I/Os to them.
//!
//! Everything here has been checked: shares lie between 0 and 1, zones within their volumes, sizes divide by what
//! they are aligned to. Profiles, importers and flags all end here.

mod check;

use crate::payload::{Reduction, SECTOR_BYTES};
use serde::{Deserialize, Serialize};
use stonefold_types::{Error, Kind, Result};

/// The largest I/O, in bytes: what an NBD server must take at most.
pub const IO_BYTES_MAX: u64 = 32 << 20;
/// Streams of one run at most: each has histograms of some hundred KiB.
pub const STREAMS_MAX: usize = 256;

/// One volume: what is behind one target.
#[derive(Clone, Debug, PartialEq)]
pub struct Volume {
    /// For people.
    pub name: String,
    /// Bytes that are used of it, from its beginning; whole blocks of 4 KiB.
    pub bytes: u64,
    /// How far what is written to it reduces.
    pub reduction: Reduction,
    /// It begins as a copy of another.
    pub original: Option<Original>,
}

/// What a volume is a copy of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Original {
    /// The other's number.
    pub volume: usize,
    /// Byte for byte, so that storage may keep both once; else with contents of its own.
    pub equal: bool,
}

/// A stream of I/Os to one volume.
#[derive(Clone, Debug, PartialEq)]
pub struct Stream {
    /// For people.
    pub name: String,
    /// Which of the volumes.
    pub volume: usize,
    /// Share of I/Os that read, from 0 to 1.
    pub read: f64,
    /// Share of I/Os that go to a place by chance; the others follow on the one before.
    pub random: f64,
    /// Bytes of an I/O, each with its weight.
    pub sizes: Vec<(u64, f64)>,
    /// What the address of an I/O that goes to a place by chance divides by, in bytes, each with its weight. None: each by its own size, rounded
    /// down to a power of two.
    pub alignments: Vec<(u64, f64)>,
    /// Part of the volume that is used, as fractions from 0 to 1.
    pub zone: (f64, f64),
    /// Places that get more than their share.
    pub hotspots: Option<Hotspots>,
    /// A flush after each so many of its writes; 0: none.
    pub flush: u32,
    /// When I/Os are issued.
    pub load: Load,
}

/// Places within a zone that get more than their share.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hotspots {
    /// How many, spread evenly with chance, all of one size.
    pub count: u32,
    /// How much of the zone they are together, from 0 to 1.
    pub range: f64,
    /// How much of the random I/Os goes to them, from 0 to 1.
    pub share: f64,
}

/// When I/Os are issued.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Load {
    /// Closed loop: the next as soon as one of `outstanding` is answered. Finds capacity.
    Closed {
        /// I/Os in flight.
        outstanding: u32,
    },
    /// Open loop: at moments of their own, whether the storage keeps up or not. Finds latency.
    Open {
        /// I/Os a second at the beginning of the phase.
        from: f64,
        /// And at its end; between them the rate changes evenly.
        to: f64,
        /// How they are spaced.
        arrivals: Arrivals,
    },
    /// Some for each so many that another stream has completed: a log beside its database.
    Follow {
        /// The stream that leads.
        stream: usize,
        /// I/Os of this one …
        ios: f64,
        /// … for each so many of that one.
        per: f64,
    },
    /// The requests of a trace, each at its moment.
    Replay {
        /// Which of those that the rig was given.
        play: usize,
    },
}

/// How I/Os of an open loop are spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// Evenly.
    Constant,
    /// By themselves, as from many who do not know each other.
    Poisson,
}

/// Volumes and streams that run together.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// At least one.
    pub volumes: Vec<Volume>,
    /// At least one.
    pub streams: Vec<Stream>,
}

impl Workload {
    /// Refuses what cannot be run, saying which stream and why.
    ///
    /// # Errors
    /// [`Kind::Invalid`].
    pub fn check(&self) -> Result<()> {
        if self.volumes.is_empty() || self.streams.is_empty() || self.streams.len() > STREAMS_MAX {
            return Err(invalid(format!(
                "a workload has from 1 to {STREAMS_MAX} streams and at least one volume"
            )));
        }
        for (index, stream) in self.streams.iter().enumerate() {
            let wrong = |what: String| invalid(format!("stream '{}': {what}", stream.name));
            stream.check().map_err(wrong)?;
            let volume =
                self.volumes.get(stream.volume).ok_or_else(|| wrong("its volume does not exist".into()))?;
            stream.check_room(volume).map_err(wrong)?;
            let follows = |other: &Stream| matches!(other.load, Load::Follow { .. });
            let leads = |leader| leader != index && self.streams.get(leader).is_some_and(|l| !follows(l));
            if matches!(stream.load, Load::Follow { stream: leader, .. } if !leads(leader)) {
                return Err(wrong("follows a stream that does not exist or that itself follows one".into()));
            }
        }
        Ok(())
    }

    /// Streams, and with them volumes, that must run on one thread: who shares a volume, follows one another, or is a copy
    /// of another. Each part lists streams.
    pub fn parts(&self) -> Vec<Vec<usize>> {
        let mut part: Vec<usize> = (0..self.streams.len()).collect();
        let join = |part: &mut Vec<usize>, a: usize, b: usize| {
            let (from, to) = (part[a].max(part[b]), part[a].min(part[b]));
            part.iter_mut().filter(|p| **p == from).for_each(|p| *p = to);
        };
        for (index, stream) in self.streams.iter().enumerate() {
            if let Load::Follow { stream: leader, .. } = stream.load {
                join(&mut part, index, leader);
            }
            let first = self.streams.iter().position(|other| other.volume == stream.volume);
            join(&mut part, index, first.expect("it is itself among them"));
            let original = self.volumes[stream.volume].original;
            let source = original
                .and_then(|original| self.streams.iter().position(|other| other.volume == original.volume));
            if let Some(source) = source {
                join(&mut part, index, source);
            }
        }
        let mut parts: Vec<Vec<usize>> = Vec::new();
        for number in 0..self.streams.len() {
            let members: Vec<usize> =
                (0..self.streams.len()).filter(|index| part[*index] == number).collect();
            if !members.is_empty() {
                parts.push(members);
            }
        }
        parts
    }
}

impl Stream {
    /// Over all of a volume, in order.
    pub(crate) fn whole(read: f64, bytes: u64, load: Load) -> Self {
        Stream {
            name: "whole".into(),
            volume: 0,
            read,
            random: 0.0,
            sizes: vec![(bytes, 1.0)],
            alignments: Vec::new(),
            zone: (0.0, 1.0),
            hotspots: None,
            flush: 0,
            load,
        }
    }

    /// The same on the first part of what it uses of its volume, from 0 to 1.
    pub(crate) fn on_part(&self, share: f64) -> Self {
        Stream { zone: (self.zone.0 * share, self.zone.1 * share), ..self.clone() }
    }

    /// Whether an alignment is drawn for each of its I/Os that go to a place by chance; else all have one.
    pub fn mixes_alignments(&self) -> bool {
        self.alignments.iter().filter(|(_, weight)| *weight > 0.0).count() > 1
    }

    /// Bytes of its largest I/O.
    pub fn largest(&self) -> u64 {
        self.sizes.iter().filter(|(_, weight)| *weight > 0.0).map(|(bytes, _)| *bytes).max().unwrap_or(0)
    }

    /// Mean bytes of an I/O.
    pub fn mean_bytes(&self) -> f64 {
        let whole: f64 = self.sizes.iter().map(|(_, weight)| weight).sum();
        self.sizes.iter().map(|(bytes, weight)| *bytes as f64 * weight).sum::<f64>() / whole
    }

    /// The bytes of `volume` it goes to, from and to, in whole sectors.
    pub fn span(&self, volume: &Volume) -> (u64, u64) {
        let sectors = (volume.bytes / SECTOR_BYTES as u64) as f64;
        let at = |fraction: f64| (sectors * fraction).round() as u64 * SECTOR_BYTES as u64;
        (at(self.zone.0), at(self.zone.1))
    }
}

fn invalid(what: String) -> Error {
    Error::new(Kind::Invalid, what)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// One stream of 4K random reads.
    pub(crate) fn reads(bytes: u64) -> Workload {
        Workload {
            volumes: vec![Volume { name: "v".into(), bytes, reduction: Reduction::NONE, original: None }],
            streams: vec![Stream {
                name: "s".into(),
                volume: 0,
                read: 1.0,
                random: 1.0,
                sizes: vec![(4096, 1.0)],
                alignments: Vec::new(),
                zone: (0.0, 1.0),
                hotspots: None,
                flush: 0,
                load: Load::Closed { outstanding: 1 },
            }],
        }
    }

    pub(crate) fn why(change: impl FnOnce(&mut Workload)) -> String {
        let mut workload = reads(1 << 20);
        change(&mut workload);
        workload.check().unwrap_err().to_string()
    }

    #[test]
    fn what_cannot_be_run_is_refused_by_name() {
        assert!(reads(1 << 20).check().is_ok());
        assert!(why(|w| w.streams[0].read = 1.01).contains("stream 's'"));
        assert!(why(|w| w.streams[0].sizes = vec![(100, 1.0)]).contains("100 bytes"));
        assert!(why(|w| w.streams[0].sizes = vec![(4096, 0.0)]).contains("no size"));
        assert!(why(|w| w.streams[0].sizes = vec![(4096, f64::NAN)]).contains("share"));
        assert!(why(|w| w.streams[0].zone = (0.5, 0.5)).contains("zone"));
        assert!(why(|w| w.streams[0].sizes = vec![(2 << 20, 1.0)]).contains("does not fit"));
        assert!(why(|w| w.streams[0].load = Load::Closed { outstanding: 0 }).contains("outstanding"));
        assert!(
            why(|w| w.streams[0].load = Load::Follow { stream: 0, ios: 1.0, per: 1.0 }).contains("follows")
        );
        assert!(why(|w| w.streams[0].volume = 3).contains("does not exist"));
        assert!(why(|w| w.streams.clear()).contains("streams"));
    }

    #[test]
    fn who_shares_a_volume_or_follows_runs_together() {
        let mut workload = reads(1 << 20);
        let (volume, stream) = (workload.volumes[0].clone(), workload.streams[0].clone());
        workload.volumes.extend([volume.clone(), volume.clone(), volume]);
        for (volume, load) in [
            (1, Load::Closed { outstanding: 1 }),
            (0, Load::Closed { outstanding: 1 }),
            (2, Load::Follow { stream: 1, ios: 15.0, per: 100.0 }),
            (3, Load::Closed { outstanding: 1 }),
        ] {
            workload.streams.push(Stream { volume, load, ..stream.clone() });
        }
        assert_eq!(workload.parts(), [vec![0, 2], vec![1, 3], vec![4]]);
    }
}
