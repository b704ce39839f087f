//! What was done to the disks, and what a killed server may have left of it: the oracle of the crash test.
//!
//! Each client owns a *region* of a disk and keeps many steps in flight there, none of which touch the same bytes. A
//! logical clock ticks when a step is begun and when it is acknowledged. When the server is killed (the machine lives):
//! *disk*: all that was acknowledged is there; of what was in flight, each step wholly or not at all.
//! *snapshot*: it holds what was acknowledged before it was asked for; of what was in flight then or was begun before
//! it was there, any steps, but none without those acknowledged before it was begun, over all disks it was taken of.
//! It never changes, and no step that it holds is gone from its disk. *clone*: begins as its snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stonefold_model::{Image, Step};

use crate::judge::{Entry, Verdict, in_order, judge};

/// One client's part of a disk.
pub struct Region {
    /// The disk.
    pub disk: String,
    /// Where it begins there, in bytes.
    pub base: u64,
    /// In bytes.
    pub bytes: u64,
    /// All that was acknowledged.
    image: Image,
    flying: Vec<Arc<Entry>>,
}

/// What regions held, by their number.
pub type Contents = BTreeMap<usize, Vec<u8>>;

/// A snapshot of one disk or two.
pub struct Taken {
    /// Of these.
    pub disks: Vec<String>,
    /// It is there for certain.
    pub acked: bool,
    /// Its removal was asked for.
    pub leaving: bool,
    /// Steps begun now may be in it.
    open: bool,
    /// Per region: what was acknowledged when it was asked for, and what may be in it beyond that.
    bounds: BTreeMap<usize, (Image, Vec<Arc<Entry>>)>,
    /// What it was seen to hold.
    pub seen: Option<Contents>,
}

/// A clone.
pub struct Cloned {
    /// Of this snapshot.
    pub snapshot: String,
    /// Of this disk.
    pub disk: String,
    /// It is there for certain.
    pub acked: bool,
    /// What it holds, once it was seen.
    pub holds: Option<Contents>,
}

/// All of it.
#[derive(Default)]
pub struct Story {
    /// By client.
    pub regions: Vec<Region>,
    /// By name.
    pub snapshots: BTreeMap<String, Taken>,
    /// By name.
    pub clones: BTreeMap<String, Cloned>,
    clock: u64,
    /// Steps that were in flight at a crash and are not on their disk; by when they were begun.
    lost: BTreeSet<u64>,
}

impl Story {
    /// Adds a region of zeros.
    pub fn add_region(&mut self, disk: &str, base: u64, bytes: u64) {
        let image = Image::new(bytes);
        self.regions.push(Region { disk: disk.to_owned(), base, bytes, image, flying: Vec::new() });
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// A client begins what may take effect in several steps.
    pub fn begin(&mut self, client: usize, steps: Vec<Step>) -> Vec<Arc<Entry>> {
        let entries: Vec<Arc<Entry>> = steps
            .into_iter()
            .map(|step| {
                let begun = self.tick();
                let name = format!("step {begun} of client {client} ({})", step.in_words());
                Arc::new(Entry::new(step, begun, name))
            })
            .collect();
        self.regions[client].flying.extend(entries.iter().cloned());
        for taken in self.snapshots.values_mut().filter(|taken| taken.open) {
            if let Some((_, candidates)) = taken.bounds.get_mut(&client) {
                candidates.extend(entries.iter().cloned());
            }
        }
        entries
    }

    /// They were acknowledged.
    pub fn acknowledge(&mut self, client: usize, entries: &[Arc<Entry>]) {
        let now = self.tick();
        let region = &mut self.regions[client];
        for entry in entries {
            entry.acknowledge(now);
            region.image.apply(&entry.step);
        }
        region.flying.retain(|flying| !entries.iter().any(|entry| Arc::ptr_eq(entry, flying)));
    }

    /// What a client must read where it has nothing in flight; relative to its region.
    pub fn expected(&self, client: usize, offset: u64, len: usize) -> Vec<u8> {
        self.regions[client].image.read(offset, len)
    }

    /// Numbers of the regions of these disks.
    pub fn regions_of(&self, disks: &[String]) -> Vec<usize> {
        (0..self.regions.len()).filter(|at| disks.contains(&self.regions[*at].disk)).collect()
    }

    /// A snapshot is asked for.
    pub fn snapshot_begins(&mut self, name: &str, disks: Vec<String>) {
        self.tick();
        let bounds = self.regions_of(&disks).into_iter().map(|at| {
            let region = &self.regions[at];
            (at, (region.image.clone(), region.flying.clone()))
        });
        let bounds = bounds.collect();
        let taken = Taken { disks, acked: false, leaving: false, open: true, bounds, seen: None };
        self.snapshots.insert(name.to_owned(), taken);
    }

    /// It is there.
    pub fn snapshot_ended(&mut self, name: &str) {
        self.tick();
        if let Some(taken) = self.snapshots.get_mut(name) {
            (taken.open, taken.acked) = (false, true);
        }
    }

    /// The server was killed: what was asked for and not answered may have happened, and cannot happen any more.
    pub fn killed(&mut self) {
        self.snapshots.values_mut().for_each(|taken| taken.open = false);
    }

    /// The server is back: which snapshots (`disk@name`) and clones there are settles what was not answered.
    ///
    /// # Errors
    /// When one is missing, or there that was removed or never made.
    pub fn settle(&mut self, snapshots: &BTreeSet<String>, disks: &BTreeSet<String>) -> Result<(), String> {
        let mut unexplained = snapshots.clone();
        let mut gone = Vec::new();
        for (name, taken) in &mut self.snapshots {
            let there =
                taken.disks.iter().filter(|disk| unexplained.remove(&format!("{disk}@{name}"))).count();
            // Removals go disk by disk, the taking does not.
            match there {
                0 if taken.acked && !taken.leaving => return Err(format!("snapshot {name} is gone")),
                0 => gone.push(name.clone()),
                n if n < taken.disks.len() && !taken.leaving => {
                    return Err(format!("snapshot {name} is there on {n} disk only"));
                }
                n if n < taken.disks.len() => {
                    let there = |disk: &String| snapshots.contains(&format!("{disk}@{name}"));
                    taken.disks.retain(there);
                }
                _ => taken.acked = true,
            }
        }
        if let Some(name) = unexplained.first() {
            return Err(format!("snapshot {name} is there, which nobody made, or which was removed"));
        }
        gone.iter().for_each(|name| drop(self.snapshots.remove(name)));
        for (name, clone) in &mut self.clones {
            match disks.contains(name) {
                false if clone.acked => return Err(format!("clone {name} is gone")),
                there => clone.acked = there,
            }
        }
        self.clones.retain(|_, clone| clone.acked);
        Ok(())
    }

    /// Checks what all regions read as after a crash, and goes on from there.
    ///
    /// # Errors
    /// With what is lost or wrong.
    pub fn check_regions(&mut self, contents: &Contents) -> Result<(), String> {
        for (client, seen) in contents {
            let region = &mut self.regions[*client];
            let verdicts = judge(&region.image, &region.flying, seen)
                .map_err(|why| format!("disk {}, region {client}: {why}", region.disk))?;
            for (entry, verdict) in region.flying.drain(..).zip(verdicts) {
                match verdict {
                    Verdict::Out => drop(self.lost.insert(entry.begun)),
                    Verdict::In | Verdict::Either => region.image.apply(&entry.step),
                }
            }
        }
        Ok(())
    }

    /// Checks what a snapshot holds.
    ///
    /// # Errors
    /// With what is wrong.
    pub fn check_snapshot(&mut self, name: &str, contents: Contents) -> Result<(), String> {
        let taken = self.snapshots.get_mut(name).ok_or_else(|| format!("no snapshot {name}"))?;
        if let Some(seen) = &taken.seen {
            let same = contents.iter().all(|(at, bytes)| seen.get(at) == Some(bytes));
            return if same { Ok(()) } else { Err(format!("snapshot {name} has changed")) };
        }
        let mut judged = Vec::new();
        for (at, seen) in &contents {
            let (base, entries) = taken.bounds.get(at).ok_or_else(|| format!("no bounds for region {at}"))?;
            let verdicts =
                judge(base, entries, seen).map_err(|why| format!("snapshot {name}, region {at}: {why}"))?;
            judged.extend(entries.iter().map(|entry| &**entry).zip(verdicts));
        }
        let orphan =
            judged.iter().find(|(e, verdict)| *verdict == Verdict::In && self.lost.contains(&e.begun));
        if let Some((entry, _)) = orphan {
            return Err(format!("snapshot {name} holds {}, and its disk does not", entry.name));
        }
        in_order(judged.into_iter()).map_err(|why| format!("snapshot {name}: {why}"))?;
        taken.seen = Some(contents);
        taken.bounds.clear();
        Ok(())
    }

    /// Checks what a clone holds: its snapshot, and what was written to it since.
    ///
    /// # Errors
    /// With what is wrong.
    pub fn check_clone(&mut self, name: &str, contents: Contents) -> Result<(), String> {
        let clone = self.clones.get_mut(name).ok_or_else(|| format!("no clone {name}"))?;
        let snapshot = self.snapshots.get(&clone.snapshot).and_then(|taken| taken.seen.as_ref());
        let holds =
            clone.holds.as_ref().or(snapshot).ok_or_else(|| format!("clone {name} of nothing known"))?;
        if let Some((at, _)) = contents.iter().find(|(at, bytes)| holds.get(at) != Some(bytes)) {
            return Err(format!("clone {name} of {} differs in region {at}", clone.snapshot));
        }
        clone.holds = Some(contents);
        Ok(())
    }
}
