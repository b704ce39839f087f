//! What speaks against a run before it begins.
//!
//! *Promises*: refuses what would end for want of memory after hours, and tells what will spoil the figures. *Never*: touches a target.

use crate::machine::{self, CpuWatch};
use crate::workload::Workload;
use std::time::Duration;
use stonefold_types::{BLOCK_BYTES, Error, Kind, Result, Size};

/// Bytes of memory for each block whose content is known: see [`crate::generations`]. The second is for one whose sectors differ.
const KNOWN_BYTES: (u64, u64) = (4, 40);
/// Of the memory that is left, as much may be taken.
const MEMORY_SHARE_MAX: f64 = 0.8;
/// How long it is looked who else uses the processors: two seconds of the watch, and a little.
const LOOK: Duration = Duration::from_millis(2200);
/// Processors of each that are there, busy with something else, above which it is said.
const OTHERS_SHARE_MAX: f64 = 0.15;

/// Fails where there is too little memory to know what each block of the volumes must hold.
///
/// # Errors
/// [`Kind::NoSpace`].
pub(crate) fn check_memory(workload: &Workload) -> Result<()> {
    machine::available_bytes().map_or(Ok(()), |left| check_room(workload, left))
}

fn check_room(workload: &Workload, left: u64) -> Result<()> {
    let needed: u64 = (0..workload.volumes.len()).map(|volume| of_volume(workload, volume)).sum();
    if needed as f64 <= left as f64 * MEMORY_SHARE_MAX {
        return Ok(());
    }
    let bytes = workload.volumes.iter().map(|volume| volume.bytes).sum();
    let what = format!(
        "to know what {} must hold takes up to {} of memory, and {} is left",
        Size(bytes),
        Size(needed),
        Size(left)
    );
    Err(Error::new(Kind::NoSpace, what).remedy("choose a smaller --size, or do without looking: --no-verify"))
}

fn of_volume(workload: &Workload, volume: usize) -> u64 {
    let whole = |bytes: u64| bytes % BLOCK_BYTES as u64 == 0;
    let mut streams = workload.streams.iter().filter(|stream| stream.volume == volume && stream.read < 1.0);
    let in_parts = streams.any(|stream| {
        let mut bytes = stream.alignments.iter().chain(&stream.sizes);
        bytes.any(|(bytes, weight)| *weight > 0.0 && !whole(*bytes))
    });
    let of_each = if in_parts { KNOWN_BYTES.1 } else { KNOWN_BYTES.0 };
    workload.volumes[volume].bytes / BLOCK_BYTES as u64 * of_each
}

/// Who else uses the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Others {
    /// Processors that were busy, on average.
    pub busy: f64,
    /// Processors that are there.
    pub cores: usize,
}

impl Others {
    /// Looks for two seconds, in which the lab does nothing; nothing where the kernel does not tell.
    pub fn look() -> Option<Others> {
        let watch = CpuWatch::start()?;
        std::thread::sleep(LOOK);
        let busy = watch.end()?;
        Some(Others { busy: busy.mean, cores: busy.of? as usize })
    }

    /// In words.
    pub fn words(&self) -> String {
        format!("{:.1} of {} processors", self.busy, self.cores)
    }

    /// What to know of it before anything is measured, where there is something.
    pub fn warning(&self) -> Option<String> {
        let is_busy = self.busy > self.cores as f64 * OTHERS_SHARE_MAX;
        is_busy.then(|| {
            format!(
                "other work keeps {} busy: what is measured is what that leaves; end it, or let it end",
                self.words()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::tests::reads;

    #[test]
    fn memory_is_asked_for_by_what_must_be_known_of_each_block() {
        let mut workload = reads(1 << 40);
        assert_eq!(of_volume(&workload, 0), 1 << 30, "four bytes for each block");
        assert!(check_room(&workload, 2 << 30).is_ok());
        let error = check_room(&workload, 1 << 30).unwrap_err();
        assert!(error.kind() == Kind::NoSpace && error.to_string().contains("1T"), "{error}");
        // Of reads nothing new has to be known, whatever their sizes.
        workload.streams[0].sizes = vec![(512, 1.0)];
        assert_eq!(of_volume(&workload, 0), 1 << 30);
        workload.streams[0].read = 0.5;
        assert_eq!(of_volume(&workload, 0), 10 << 30, "sectors may differ");
        workload.streams[0].sizes = vec![(4096, 1.0)];
        workload.streams[0].alignments = vec![(4096, 90.0), (512, 0.0)];
        assert_eq!(of_volume(&workload, 0), 1 << 30);
        workload.streams[0].alignments[1].1 = 10.0;
        assert_eq!(of_volume(&workload, 0), 10 << 30, "one in ten may begin within a block");
    }

    #[test]
    fn a_machine_that_is_used_by_others_is_told() {
        assert_eq!(Others { busy: 0.2, cores: 2 }.warning(), None);
        assert!(Others { busy: 1.2, cores: 2 }.warning().unwrap().contains("1.2 of 2"));
        assert_eq!(Others { busy: 1.2, cores: 64 }.warning(), None);
    }
}
