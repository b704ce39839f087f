//! Snapshots and clones, taken and removed, and space given back, by the command line while clients write and the server is killed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::gateway::Place;
use crate::load::World;
use crate::story::{Cloned, Contents};
use stonefold_dice::Dice;

/// Snapshots kept; each is read whole after a crash.
const SNAPSHOTS_MAX: usize = 4;
/// Clones kept.
const CLONES_MAX: usize = 3;

/// Takes snapshots of these disks and clones of them.
pub struct Keeper<'a> {
    /// Where the server is.
    pub place: &'a Place,
    /// With whom it happens.
    pub world: Arc<World>,
    /// The disks.
    pub disks: &'a [&'a str],
    /// Made so far.
    pub made: u64,
    /// What to do next.
    pub chance: Dice,
}

impl Keeper<'_> {
    /// Goes on until the server is to be killed.
    ///
    /// # Errors
    /// When a command fails before that.
    pub fn keep(&mut self) -> Result<()> {
        while !self.world.killing.load(SeqCst) && !self.world.ending.load(SeqCst) {
            match self.chance.below(10) {
                0..5 => self.snapshot()?,
                5..7 => self.clone_one()?,
                7 => drop(self.run("pool reclaim")?),
                _ => self.remove()?,
            }
            std::thread::sleep(self.chance.millis(0, 30));
        }
        Ok(())
    }

    /// Runs a command; `false` when its server was killed under it.
    fn run(&self, line: &str) -> Result<bool> {
        let done = self.place.run(line)?;
        let excused = self.world.killing.load(SeqCst);
        ensure!(done.status.success() || excused, "stonefold {line}: {}", done.stderr);
        Ok(done.status.success())
    }

    fn snapshot(&mut self) -> Result<()> {
        if self.world.story().snapshots.len() >= SNAPSHOTS_MAX {
            return self.remove();
        }
        self.made += 1;
        let name = format!("s{}", self.made);
        let disks: Vec<String> = match self.chance.percent(60) {
            true => self.disks.iter().map(|disk| (*disk).to_owned()).collect(),
            false => vec![(*self.chance.one_of(self.disks)).to_owned()],
        };
        let line = format!("snapshot create {} --name {name}", disks.join(","));
        self.world.story().snapshot_begins(&name, disks);
        if self.run(&line)? {
            self.world.story().snapshot_ended(&name);
        }
        Ok(())
    }

    fn clone_one(&mut self) -> Result<()> {
        let story = self.world.story();
        let clones = story.clones.len();
        let of: Vec<(String, String)> = story
            .snapshots
            .iter()
            .filter(|(_, taken)| taken.acked && !taken.leaving)
            .flat_map(|(name, taken)| taken.disks.iter().map(|disk| (name.clone(), disk.clone())))
            .collect();
        drop(story);
        if of.is_empty() || clones >= CLONES_MAX {
            return Ok(());
        }
        self.made += 1;
        let (snapshot, disk) = self.chance.one_of(&of).clone();
        let (line, name) = (format!("clone {disk}@{snapshot} c{}", self.made), format!("c{}", self.made));
        let clone = Cloned { snapshot, disk, acked: false, holds: None };
        self.world.story().clones.insert(name.clone(), clone);
        if self.run(&line)? {
            if let Some(clone) = self.world.story().clones.get_mut(&name) {
                clone.acked = true;
            }
        }
        Ok(())
    }

    /// Removes a snapshot that was seen, and that no clone still has to be compared with.
    fn remove(&mut self) -> Result<()> {
        let mut story = self.world.story();
        let wanted: BTreeSet<String> = story
            .clones
            .values()
            .filter(|clone| clone.holds.is_none())
            .map(|clone| clone.snapshot.clone())
            .collect();
        let may_go = story.snapshots.iter_mut().find(|(name, taken)| {
            taken.acked && !taken.leaving && taken.seen.is_some() && !wanted.contains(*name)
        });
        let Some((name, taken)) = may_go else { return Ok(()) };
        taken.leaving = true;
        let name = name.clone();
        let all: Vec<String> = taken.disks.iter().map(|disk| format!("{disk}@{name}")).collect();
        drop(story);
        if self.run(&format!("snapshot rm {}", all.join(" ")))? {
            self.world.story().snapshots.remove(&name);
        }
        Ok(())
    }

    /// After a restart: settles which snapshots and clones there are.
    ///
    /// # Errors
    /// When one is missing or should not be there.
    pub fn settle(&self) -> Result<()> {
        let names = |line: &str, name: &dyn Fn(&serde_json::Value) -> String| -> Result<BTreeSet<String>> {
            let listed = self.place.json(line)?;
            Ok(listed.as_array().into_iter().flatten().map(name).collect())
        };
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let snapshots = names("snapshot ls", &|s| format!("{}@{}", text(&s["disk"]), text(&s["name"])))?;
        let disks = names("disk ls", &|disk| text(&disk["name"]))?;
        self.world.story().settle(&snapshots, &disks).map_err(|why| self.place.explain(anyhow::anyhow!(why)))
    }

    /// Reads all snapshots and clones and checks them; writes to one clone, and removes clones when there are many.
    ///
    /// # Errors
    /// When one holds what it must not.
    pub fn check(&mut self) -> Result<()> {
        let story = self.world.story();
        let snapshots: Vec<(String, Vec<String>)> =
            story.snapshots.iter().map(|(name, taken)| (name.clone(), taken.disks.clone())).collect();
        let clones: Vec<(String, String)> =
            story.clones.iter().map(|(name, clone)| (name.clone(), clone.disk.clone())).collect();
        drop(story);
        for (name, disks) in snapshots {
            let mut contents = Contents::new();
            for disk in &disks {
                contents.extend(self.read(&format!("{disk}@{name}"), disk)?);
            }
            self.world.story().check_snapshot(&name, contents).map_err(|why| self.wrong(why))?;
        }
        for (name, disk) in &clones {
            let contents = self.read(name, disk)?;
            self.world.story().check_clone(name, contents).map_err(|why| self.wrong(why))?;
        }
        match clones.first() {
            Some((name, _)) if clones.len() >= CLONES_MAX => {
                self.place.ok(&format!("disk rm {name}"))?;
                self.world.story().clones.remove(name);
            }
            Some((name, _)) => self.write_to(name)?,
            None => {}
        }
        Ok(())
    }

    /// Every reference leads to something sound, and nothing is kept that nobody refers to, however busy the pool is. When nothing
    /// is going on, what can be given back is given back first.
    ///
    /// # Errors
    /// When the pool's own check finds something.
    pub fn check_pool(&self, quiet: bool) -> Result<()> {
        if quiet {
            self.place.ok("pool reclaim")?;
        }
        let found = self.place.json("pool check")?;
        let lost = found["lost_bytes"].as_u64().unwrap_or(u64::MAX);
        ensure!(lost == 0, "{lost} bytes are never given back: {found}");
        Ok(())
    }

    fn wrong(&self, why: String) -> anyhow::Error {
        self.place.explain(anyhow::anyhow!(why))
    }

    /// Writes to a clone and flushes, so that it must be there after every later crash.
    fn write_to(&mut self, name: &str) -> Result<()> {
        let mut connection = self.place.connect(name)?;
        let mut story = self.world.story();
        let bases: Vec<u64> = story.regions.iter().map(|region| region.base).collect();
        let clone = story.clones.get_mut(name).and_then(|clone| clone.holds.as_mut());
        for (at, bytes) in clone.into_iter().flatten() {
            let offset = self.chance.below(bytes.len() as u64 / 512 - 16) * 512;
            let data: Vec<u8> = std::iter::repeat_with(|| self.chance.number() as u8).take(8192).collect();
            connection.write(bases[*at] + offset, &data)?;
            bytes[offset as usize..offset as usize + data.len()].copy_from_slice(&data);
        }
        connection.flush()
    }

    /// What an export holds where the regions of a disk are.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(&self, export: &str, disk: &str) -> Result<Contents> {
        let story = self.world.story();
        let regions: Vec<(usize, u64, u64)> = story
            .regions_of(&[disk.to_owned()])
            .into_iter()
            .map(|at| (at, story.regions[at].base, story.regions[at].bytes))
            .collect();
        drop(story);
        let mut connection = self.place.connect(export)?;
        regions
            .into_iter()
            .map(|(at, base, bytes)| {
                let read = connection.read_all(base, bytes);
                Ok((at, read.map_err(|e| self.place.explain(e.context(format!("reading {export}"))))?))
            })
            .collect()
    }

    /// Waits until every client has found all that it wrote on this server.
    ///
    /// # Errors
    /// When one does not in time, or anything fails.
    pub fn wait_for_clients(&self, server: u64, allowed: Duration) -> Result<()> {
        let deadline = stonefold_guest::time::Deadline::after(allowed);
        loop {
            self.world.check().map_err(|e| self.place.explain(e))?;
            if self.world.settled.iter().all(|settled| settled.load(SeqCst) >= server) {
                return Ok(());
            }
            let words = "a client did not come back and find what it wrote";
            ensure!(!deadline.passed(), "{words} within {allowed:?}\n{}", self.place.last_words());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
