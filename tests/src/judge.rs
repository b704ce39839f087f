//! Whether what is found of a region may be there (P1).
//!
//! Steps in flight at one time never touch the same 512 bytes, so the steps on each such *grain* have an order: its
//! chain. What a grain holds tells how far along its chain the disk is. Over all grains that tells of each step
//! whether it is there; one that is there on one grain and not on another was torn, though it had to be one step.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use stonefold_model::{Image, Step};

/// The finest unit that steps are made of, as the model has it.
pub const GRAIN: u64 = 512;

/// A step and when it was.
#[derive(Debug)]
pub struct Entry {
    /// With offsets from the region's beginning.
    pub step: Step,
    /// By the story's clock.
    pub begun: u64,
    /// By the story's clock; 0 while it is in flight.
    acked: AtomicU64,
    /// For the words of a failure.
    pub name: String,
}

impl Entry {
    /// In flight from now.
    pub fn new(step: Step, begun: u64, name: String) -> Self {
        Entry { step, begun, acked: AtomicU64::new(0), name }
    }

    /// It was acknowledged.
    pub fn acknowledge(&self, now: u64) {
        self.acked.store(now, Ordering::SeqCst);
    }

    /// When it was acknowledged.
    pub fn acked(&self) -> Option<u64> {
        Some(self.acked.load(Ordering::SeqCst)).filter(|at| *at != 0)
    }

    /// Offset and length in bytes.
    pub fn range(&self) -> (u64, u64) {
        match &self.step {
            Step::Write { offset, data } => (*offset, data.len() as u64),
            Step::Zero { offset, len } => (*offset, *len),
            Step::Snapshot(_) | Step::Resize(_) => (0, 0),
        }
    }

    fn grains(&self) -> std::ops::Range<u64> {
        let (offset, len) = self.range();
        offset / GRAIN..(offset + len) / GRAIN
    }
}

/// What is known of a step after a look at the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is there.
    In,
    /// It is not.
    Out,
    /// It cannot be told: it changed nothing, or was overwritten.
    Either,
}

/// Positions in a grain's chain that what was found agrees with: the first and the last.
#[derive(Default)]
struct Found {
    length: usize,
    first: Option<usize>,
    last: usize,
}

impl Found {
    fn look(&mut self, agrees: bool) {
        if agrees {
            self.first = self.first.or(Some(self.length));
            self.last = self.length;
        }
    }
}

/// Judges what was `seen` of a region that held `base`, when each of the `entries` (in the order in which they were
/// begun) may have happened since or not.
///
/// # Errors
/// With what is wrong: something else is there, or part of a step.
pub fn judge<E: AsRef<Entry>>(base: &Image, entries: &[E], seen: &[u8]) -> Result<Vec<Verdict>, String> {
    let grain_of = |image: &Image, grain: u64| image.read(grain * GRAIN, GRAIN as usize);
    let seen_at = |grain: u64| &seen[(grain * GRAIN) as usize..((grain + 1) * GRAIN) as usize];
    let mut touched: BTreeMap<u64, Found> = BTreeMap::new();
    for entry in entries {
        for grain in entry.as_ref().grains() {
            let found = touched.entry(grain).or_default();
            if found.length == 0 && found.first.is_none() {
                found.look(grain_of(base, grain) == seen_at(grain));
            }
        }
    }
    untouched_is_as_it_was(base, &touched, seen)?;
    let mut running = base.clone();
    let mut places = Vec::with_capacity(entries.len());
    for entry in entries.iter().map(AsRef::as_ref) {
        running.apply(&entry.step);
        let mut chain = Vec::new();
        for grain in entry.grains() {
            let found = touched.get_mut(&grain).expect("every grain of every entry is there");
            chain.push((grain, found.length));
            found.length += 1;
            found.look(grain_of(&running, grain) == seen_at(grain));
        }
        places.push(chain);
    }
    if let Some((grain, _)) = touched.iter().find(|(_, found)| found.first.is_none()) {
        return Err(format!("at {} it holds neither what was nor what was written", grain * GRAIN));
    }
    entries.iter().zip(&places).map(|(entry, chain)| verdict(entry.as_ref(), chain, &touched)).collect()
}

fn untouched_is_as_it_was(base: &Image, touched: &BTreeMap<u64, Found>, seen: &[u8]) -> Result<(), String> {
    let expected = base.read(0, seen.len());
    let grains = expected.chunks(GRAIN as usize).zip(seen.chunks(GRAIN as usize)).enumerate();
    let wrong: Vec<u64> = grains
        .filter(|(grain, (a, b))| a != b && !touched.contains_key(&(*grain as u64)))
        .map(|(grain, _)| grain as u64 * GRAIN)
        .collect();
    let Some(at) = wrong.first() else { return Ok(()) };
    let show =
        |bytes: &[u8]| bytes[*at as usize..][..16].iter().map(|b| format!("{b:02x}")).collect::<String>();
    Err(format!(
        "at {at} (and {} more places) it does not hold what was acknowledged: {} and not {}",
        wrong.len() - 1,
        show(seen),
        show(&expected)
    ))
}

fn verdict(entry: &Entry, chain: &[(u64, usize)], touched: &BTreeMap<u64, Found>) -> Result<Verdict, String> {
    let (mut inside, mut outside) = (None, None);
    for (grain, place) in chain {
        let found = &touched[grain];
        if found.first.is_some_and(|first| first > *place) {
            inside = Some(*grain);
        } else if found.last <= *place {
            outside = Some(*grain);
        }
    }
    match (inside, outside) {
        (Some(there), Some(not)) => Err(format!(
            "{} is torn: it is there at {} and not at {}",
            entry.name,
            there * GRAIN,
            not * GRAIN
        )),
        (Some(_), None) => Ok(Verdict::In),
        (None, Some(_)) => Ok(Verdict::Out),
        (None, None) => Ok(Verdict::Either),
    }
}

/// When a step is there, so is every step that had been acknowledged before it was begun.
///
/// # Errors
/// Naming the two.
pub fn in_order<'a>(judged: impl Iterator<Item = (&'a Entry, Verdict)>) -> Result<(), String> {
    let (mut newest, mut missing) = (None::<&Entry>, None::<&Entry>);
    for (entry, verdict) in judged {
        match verdict {
            Verdict::In if newest.is_none_or(|other| entry.begun > other.begun) => newest = Some(entry),
            Verdict::Out
                if entry.acked().is_some() && missing.is_none_or(|other| entry.acked() < other.acked()) =>
            {
                missing = Some(entry);
            }
            _ => {}
        }
    }
    match (newest, missing) {
        (Some(there), Some(gone)) if gone.acked() < Some(there.begun) => Err(format!(
            "{} is there, but {}, which was acknowledged before it was begun, is not",
            there.name, gone.name
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    //! Promise: the judge refuses what P1 forbids. Method: each kind of wrong disk, by hand; a judge that could not say
    //! no would make every crash test worthless.
    use super::*;
    use std::sync::Arc;

    fn write(offset: u64, byte: u8, grains: u64, begun: u64) -> Arc<Entry> {
        let data = vec![byte; (grains * GRAIN) as usize];
        Arc::new(Entry::new(Step::Write { offset, data }, begun, format!("write {byte}")))
    }

    fn holding(steps: &[&Arc<Entry>]) -> Vec<u8> {
        let mut image = Image::new(4096);
        steps.iter().for_each(|entry| image.apply(&entry.step));
        image.read(0, 4096)
    }

    #[test]
    fn what_is_there_and_what_is_not_are_told_apart() {
        let base = Image::new(4096);
        let (a, b, c) = (write(0, 1, 2, 1), write(1024, 2, 2, 2), write(512, 3, 2, 3));
        let all = [a.clone(), b.clone(), c.clone()];
        use Verdict::{Either, In, Out};
        assert_eq!(judge(&base, &all, &holding(&[])).unwrap(), [Out, Out, Out]);
        assert_eq!(judge(&base, &all, &holding(&[&b])).unwrap(), [Out, In, Out]);
        assert_eq!(judge(&base, &all, &holding(&[&a, &b, &c])).unwrap(), [In, In, In]);
        let same = write(0, 0, 1, 1);
        assert_eq!(judge(&base, &[same], &holding(&[])).unwrap(), [Either], "zeros over zeros");
    }

    #[test]
    fn lost_torn_and_foreign_are_refused() {
        let (a, b) = (write(0, 1, 2, 1), write(1024, 2, 2, 2));
        let mut base = Image::new(4096);
        base.apply(&a.step);
        let lost = judge(&base, std::slice::from_ref(&b), &holding(&[&b])).unwrap_err();
        assert!(lost.contains("at 0 (and 1 more places)"), "{lost}");
        let half = write(1024, 2, 1, 2);
        let torn = judge(&base, std::slice::from_ref(&b), &holding(&[&a, &half])).unwrap_err();
        assert!(torn.contains("write 2 is torn"), "{torn}");
        let foreign = judge(&base, &[b], &holding(&[&a, &write(1024, 9, 2, 2)])).unwrap_err();
        assert!(foreign.contains("neither"), "{foreign}");
    }

    #[test]
    fn a_step_without_one_acknowledged_before_it_is_refused() {
        let (a, b) = (write(0, 1, 1, 1), write(1024, 2, 1, 5));
        a.acknowledge(3);
        assert!(in_order([(&*a, Verdict::Out), (&*b, Verdict::In)].into_iter()).is_err());
        assert!(in_order([(&*a, Verdict::In), (&*b, Verdict::Out)].into_iter()).is_ok());
        let late = write(0, 1, 1, 1);
        late.acknowledge(7);
        assert!(in_order([(&*late, Verdict::Out), (&*b, Verdict::In)].into_iter()).is_ok());
    }
}
