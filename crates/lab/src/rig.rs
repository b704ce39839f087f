//! Volumes on their targets, and the threads that load them.
//!
//! *Owns*: the targets, locked, from opening to the end of the run.

use crate::generations::Generations;
use crate::load::Behind;
use crate::load::{self, Control, FILL_BYTES, FILL_OUTSTANDING, Outcome, Part, Phase, Play, slots_for};
use crate::payload::Payload;
use crate::preflight;
use crate::target::{Buffers, Opened, TargetSpec, backend, lasting};
use crate::volume::Content;
use crate::workload::{Load, Workload};
use std::sync::Arc;
use stonefold_env::Env;
use stonefold_types::{BLOCK_BYTES, Error, Kind, Result, Size};

/// How volumes are laid on targets, and what is done with what is read.
#[derive(Clone, Debug)]
pub struct RigOptions {
    /// Threads of the load; the streams of one volume share one.
    pub threads: usize,
    /// Whether everything that is read is looked at.
    pub verify: bool,
    /// Of everything that is drawn.
    pub seed: u64,
    /// Whether data that is not the lab's own may be overwritten.
    pub destroy_data: bool,
    /// Targets come and go: what hangs up while somebody strikes it is waited for.
    pub lasting: bool,
}

/// See the module.
pub struct Rig {
    env: Env,
    parts: Vec<Part>,
    /// Held, and locked, as long as the rig.
    targets: Vec<Opened>,
}

/// A volume's place: number of its target, and where in it the volume begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seat {
    target: usize,
    base: u64,
}

impl Rig {
    /// Opens the targets and lays the volumes on them: one on each where there are as many, else all on one, one behind
    /// the other. `depths` are all loads that will be asked for, by stream, so that there is room for them.
    ///
    /// # Errors
    /// What is wrong with a target, or with a load on it.
    pub fn open(
        env: &Env,
        workload: &Workload,
        specs: &[TargetSpec],
        depths: &[Vec<Load>],
        options: &RigOptions,
    ) -> Result<Self> {
        workload.check()?;
        if options.verify && !specs.contains(&TargetSpec::Null) {
            preflight::check_memory(workload)?;
        }
        let (seats, sizes) = lay(workload, specs)?;
        let mut targets = specs
            .iter()
            .zip(&sizes)
            .map(|(spec, bytes)| Opened::new(spec, *bytes))
            .collect::<Result<Vec<_>>>()?;
        for target in &targets {
            check_bytes(workload, (target.io_bytes_min, target.io_bytes_max), || target.name().to_string())?;
        }
        if !options.destroy_data {
            targets.iter().try_for_each(Opened::check_own)?;
        }
        targets.iter_mut().try_for_each(Opened::grow)?;
        let null = specs.contains(&TargetSpec::Null);
        let workload = Arc::new(workload.clone());
        let parts = spread(workload.parts(), options.threads)
            .into_iter()
            .map(|streams| {
                part(env, &workload, streams, &seats, &targets, depths, options, options.verify && !null)
            })
            .collect::<Result<_>>()?;
        Ok(Rig { env: env.clone(), parts, targets })
    }

    /// Volumes on nothing, to find out what the generator does when nothing holds it up. As much is done with what is read as with what a
    /// target answers that is looked at.
    ///
    /// # Errors
    /// What is wrong with the load.
    pub(crate) fn rehearse(
        env: &Env,
        workload: &Workload,
        depths: &[Vec<Load>],
        options: &RigOptions,
    ) -> Result<Self> {
        let mut rig = Rig::open(env, workload, &[TargetSpec::Null], depths, options)?;
        rig.parts.iter_mut().for_each(Part::rehearse);
        Ok(rig)
    }

    /// Threads of the load.
    pub fn threads(&self) -> usize {
        self.parts.len()
    }

    /// What streams that replay have to replay, by its numbers.
    pub fn give(&mut self, plays: &[Play]) {
        let plays: Arc<[Play]> = plays.into();
        self.parts.iter_mut().for_each(|part| part.give(plays.clone()));
    }

    /// From here on it is known what was flushed, of all that is acknowledged from now on; or nobody asks any more.
    pub(crate) fn keep_durability(&mut self, keep: bool) {
        self.parts.iter_mut().for_each(|part| part.keep_durability(keep));
    }

    /// Whether every target can be asked for a flush.
    pub(crate) fn can_flush(&self) -> bool {
        self.targets.iter().all(|target| target.abilities.flush)
    }

    /// Runs a phase.
    ///
    /// # Errors
    /// When a target can no longer be spoken to.
    pub fn run(&mut self, phase: &Phase, control: &Control) -> Result<Outcome> {
        load::run(&mut self.parts, phase, &self.env, control)
    }
}

/// Refuses I/Os that are larger, finer or aligned to less than the target takes.
fn check_bytes(workload: &Workload, (least, most): (u64, u64), name: impl Fn() -> String) -> Result<()> {
    let refused = |what: String, remedy: &str| {
        Err(Error::new(Kind::Unsupported, format!("{} takes I/Os {what}", name())).remedy(remedy))
    };
    let largest = workload.streams.iter().map(|stream| stream.largest()).max().unwrap_or(0);
    if most < largest {
        let what = format!("up to {}, the load has {}", Size(most), Size(largest));
        return refused(what, "choose a profile with smaller I/Os");
    }
    let least = least.max(1);
    let with_share = |mix: &[(u64, f64)]| -> Vec<u64> {
        mix.iter().filter(|(_, weight)| *weight > 0.0).map(|(bytes, _)| *bytes).collect()
    };
    let finest = workload.streams.iter().flat_map(|stream| with_share(&stream.sizes)).min().unwrap_or(0);
    if finest % least != 0 {
        let what = format!("in multiples of {least} bytes, the load has {finest}");
        return refused(what, "choose a profile with larger I/Os");
    }
    let drawn = workload.streams.iter().filter(|stream| stream.random > 0.0);
    let mut alignments = drawn.flat_map(|stream| with_share(&stream.alignments));
    if let Some(align) = alignments.find(|align| align % least != 0) {
        let what = format!("at multiples of {least} bytes, the load has some at multiples of {align}");
        return refused(what, "choose a profile with a larger 'align'");
    }
    Ok(())
}

/// The seat of each volume, and the bytes that each target must have.
fn lay(workload: &Workload, specs: &[TargetSpec]) -> Result<(Vec<Seat>, Vec<u64>)> {
    let volumes = &workload.volumes;
    if specs.len() == volumes.len() {
        let seats = (0..specs.len()).map(|target| Seat { target, base: 0 }).collect();
        return Ok((seats, volumes.iter().map(|volume| volume.bytes).collect()));
    }
    if specs.len() != 1 {
        let what = format!("{} targets for {} volumes", specs.len(), volumes.len());
        return Err(Error::new(Kind::Invalid, what)
            .remedy("name one for each volume, or one that takes them all, one behind the other"));
    }
    let mut base = 0;
    let seats = volumes.iter().map(|volume| {
        let seat = Seat { target: 0, base };
        base += volume.bytes;
        seat
    });
    let seats = seats.collect();
    Ok((seats, vec![base]))
}

/// Streams that must stay together, shared out over at most so many threads, the most first.
fn spread(mut together: Vec<Vec<usize>>, threads: usize) -> Vec<Vec<usize>> {
    together.sort_by_key(|streams| std::cmp::Reverse(streams.len()));
    let mut shares: Vec<Vec<usize>> = vec![Vec::new(); threads.clamp(1, together.len().max(1))];
    for streams in together {
        let least = shares.iter_mut().min_by_key(|share| share.len()).expect("there is at least one share");
        least.extend(streams);
    }
    shares.iter_mut().for_each(|share| share.sort_unstable());
    shares
}

#[expect(
    clippy::too_many_arguments,
    reason = "all of them are its own; a struct of them would live for one call"
)]
fn part(
    env: &Env,
    workload: &Arc<Workload>,
    streams: Vec<usize>,
    seats: &[Seat],
    targets: &[Opened],
    depths: &[Vec<Load>],
    options: &RigOptions,
    verify: bool,
) -> Result<Part> {
    let mut volumes: Vec<usize> = streams.iter().map(|number| workload.streams[*number].volume).collect();
    volumes.sort_unstable();
    volumes.dedup();
    let mut used: Vec<usize> = volumes.iter().map(|volume| seats[*volume].target).collect();
    used.dedup();
    let largest = streams.iter().map(|number| workload.streams[*number].largest()).max().unwrap_or(0);
    let slot_bytes = largest.max(FILL_BYTES);
    let loads: Vec<Load> = streams.iter().filter_map(|number| deepest(&depths[*number])).collect();
    let slots = slots_for(&loads, slot_bytes).max(FILL_OUTSTANDING as usize * volumes.len());
    let buffers = Buffers::new(slots, slot_bytes as usize)
        .map_err(|e| Error::io("memory for the I/Os in flight", e))?;
    let behind = |volume: &usize| {
        let Seat { target, base } = seats[*volume];
        let target = used.iter().position(|number| *number == target).expect("it is among those used") as u32;
        let of = &workload.volumes[*volume];
        let payload =
            Payload::new(options.seed, *volume as u16, of.bytes / BLOCK_BYTES as u64, of.reduction)?;
        let payload = match of.original {
            Some(original) if original.equal => payload.copy_of(original.volume as u16),
            _ => payload,
        };
        let generations = verify.then(|| Generations::new(of.bytes / BLOCK_BYTES as u64));
        Ok(Behind {
            volume: *volume,
            target,
            base,
            abilities: targets[seats[*volume].target].abilities,
            content: Content::new(*volume as u16, payload, generations),
        })
    };
    let volumes = volumes.iter().map(behind).collect::<Result<_>>()?;
    let used: Vec<&Opened> = used.iter().map(|number| &targets[*number]).collect();
    let backend = if options.lasting { lasting(&used, &buffers) } else { backend(&used, &buffers) }?;
    Ok(Part::new(env, workload.clone(), streams, volumes, backend, buffers, options.seed))
}

/// Of all loads of one stream, the one that needs most room.
fn deepest(loads: &[Load]) -> Option<Load> {
    let depth = |load: &&Load| match load {
        Load::Closed { outstanding } => u64::from(*outstanding),
        _ => u64::MAX,
    };
    loads.iter().max_by_key(depth).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::tests::reads;

    #[test]
    fn volumes_lie_one_behind_the_other_or_each_on_its_own() {
        let mut workload = reads(1 << 20);
        workload.volumes.push(workload.volumes[0].clone());
        let (seats, sizes) = lay(&workload, &[TargetSpec::Null]).unwrap();
        assert_eq!((seats[1], sizes), (Seat { target: 0, base: 1 << 20 }, vec![2 << 20]));
        let (seats, sizes) = lay(&workload, &[TargetSpec::Null, TargetSpec::Null]).unwrap();
        assert_eq!((seats[1], sizes), (Seat { target: 1, base: 0 }, vec![1 << 20; 2]));
        assert!(lay(&workload, &[TargetSpec::Null, TargetSpec::Null, TargetSpec::Null]).is_err());
    }

    /// Goal: what a target cannot be asked for is refused before the run, and not by errors in it.
    #[test]
    fn io_that_a_target_does_not_take_is_refused() {
        let mut workload = reads(1 << 20);
        let check = |workload: &Workload, least, most| {
            check_bytes(workload, (least, most), || "it".into()).map_err(|e| e.to_string())
        };
        assert_eq!(check(&workload, 4096, 4096), Ok(()));
        assert!(check(&workload, 1, 2048).unwrap_err().contains("up to 2K, the load has 4K"));
        assert!(check(&workload, 8192, 1 << 20).unwrap_err().contains("in multiples of 8192 bytes"));
        workload.streams[0].alignments = vec![(8192, 50.0), (6144, 50.0), (512, 0.0)];
        assert_eq!(check(&workload, 2048, 4096), Ok(()));
        let refused = check(&workload, 4096, 4096).unwrap_err();
        assert!(
            refused.contains("at multiples of 4096 bytes, the load has some at multiples of 6144"),
            "{refused}"
        );
        // What follows on the one before has no alignment.
        (workload.streams[0].alignments, workload.streams[0].random) = (vec![(512, 100.0)], 0.0);
        assert_eq!(check(&workload, 4096, 4096), Ok(()));
    }

    #[test]
    fn streams_that_belong_together_stay_together() {
        let shares = spread(vec![vec![0], vec![1, 4], vec![2], vec![3]], 2);
        assert_eq!(shares.len(), 2);
        assert!(shares.iter().any(|share| share.contains(&1) && share.contains(&4)));
        assert_eq!(shares.iter().map(Vec::len).sum::<usize>(), 5);
        assert_eq!(spread(vec![vec![0]], 8), [vec![0]]);
    }
}
