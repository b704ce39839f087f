//! What a loss of power leaves.
//!
//! What is durable is there. Of what the kernel had beyond it, each directory of its own chooses: nothing came to the
//! medium, all of it did, or each name and each sector by dice, in no order: a new name is there or not; one that was removed is gone or
//! not; one that was replaced leads to either; a file that was renamed has one of its names; a content is old, new, or torn.

use super::image::{Image, Inode, Names};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;
use stonefold_dice::Dice;

/// Bytes that a device writes whole or not at all.
const SECTOR: usize = 512;

/// What becomes of what is not durable.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Lost,
    Kept,
    ByDice,
}

/// See the module.
pub(super) struct Loss<'a> {
    durable: &'a Image,
    live: &'a Image,
    dice: &'a mut Dice,
    left: HashMap<Inode, (Names, Fate)>,
}

impl<'a> Loss<'a> {
    pub(super) fn of(durable: &'a Image, live: &'a Image, dice: &'a mut Dice) -> Self {
        Loss { durable, live, dice, left: HashMap::new() }
    }

    /// Makes a folder hold what is left of it.
    pub(super) fn lay_out(mut self, root: &Path) -> io::Result<()> {
        let own = Inode::of(&fs::metadata(root)?);
        // The folder of the directories is none of theirs: a name in it is there when it was made durable.
        self.choose(own, Fate::Lost, true);
        self.settle_renamed();
        for entry in fs::read_dir(root)? {
            let entry = entry?;
            match entry.file_type()?.is_dir() {
                true => fs::remove_dir_all(entry.path())?,
                false => fs::remove_file(entry.path())?,
            }
        }
        self.fill(own, root)
    }

    /// The names that a folder is left with, and those below it.
    fn choose(&mut self, folder: Inode, fate: Fate, is_root: bool) {
        if self.left.contains_key(&folder) {
            return;
        }
        let (durable, live) = (names_of(self.durable, folder), names_of(self.live, folder));
        let mut all: Vec<&OsString> = durable.keys().chain(live.keys()).collect();
        all.sort_unstable();
        all.dedup();
        let mut left = Names::new();
        for name in all {
            let (before, now) = (durable.get(name), live.get(name));
            let new = match fate {
                _ if before == now => true,
                Fate::Lost => is_root && self.dice.one_in(2),
                Fate::Kept => true,
                Fate::ByDice => self.dice.one_in(2),
            };
            if let Some(inode) = if new { now } else { before } {
                left.insert(name.clone(), *inode);
            }
        }
        self.left.insert(folder, (left.clone(), fate));
        for inode in left.into_values().filter(|inode| inode.is_folder) {
            let fate =
                if is_root { *self.dice.one_of(&[Fate::Lost, Fate::Kept, Fate::ByDice]) } else { fate };
            self.choose(inode, fate, false);
        }
    }

    /// What was left under the name from before a rename and under that from behind it, has the latter only.
    fn settle_renamed(&mut self) {
        let mut places: HashMap<Inode, Vec<(Inode, OsString)>> = HashMap::new();
        for (folder, (names, _)) in &self.left {
            for (name, inode) in names {
                places.entry(*inode).or_default().push((*folder, name.clone()));
            }
        }
        for (inode, places) in places.into_iter().filter(|(_, places)| places.len() > 1) {
            let is_live =
                |(folder, name): &(Inode, OsString)| names_of(self.live, *folder).get(name) == Some(&inode);
            let kept = places
                .iter()
                .find(|place| is_live(place))
                .or(places.iter().min_by_key(|(_, name)| name))
                .cloned();
            for (folder, name) in places.into_iter().filter(|place| Some(place) != kept.as_ref()) {
                if let Some((names, _)) = self.left.get_mut(&folder) {
                    names.remove(&name);
                }
            }
        }
    }

    fn fill(&mut self, folder: Inode, path: &Path) -> io::Result<()> {
        let (names, fate) = self.left.remove(&folder).unwrap_or((Names::new(), Fate::Lost));
        for (name, inode) in names {
            let path = path.join(name);
            if inode.is_folder {
                fs::create_dir(&path)?;
                self.fill(inode, &path)?;
            } else {
                fs::write(&path, self.content(inode, fate))?;
            }
        }
        Ok(())
    }

    /// What a file holds.
    fn content(&mut self, file: Inode, fate: Fate) -> Vec<u8> {
        let durable = self.durable.files.get(&file).map(|bytes| &bytes[..]);
        let live = self.live.files.get(&file).map(|bytes| &bytes[..]);
        let Some(live) = live else { return durable.unwrap_or_default().to_vec() };
        match (durable, fate) {
            (Some(durable), _) if durable == live => live.to_vec(),
            (_, Fate::Kept) => live.to_vec(),
            (Some(durable), Fate::Lost) => durable.to_vec(),
            // Its length is known before what it holds is.
            (None, Fate::Lost) => vec![0; if self.dice.one_in(2) { live.len() } else { 0 }],
            (durable, Fate::ByDice) => self.torn(durable.unwrap_or_default(), live),
        }
    }

    /// Sectors of the old content and of the new one.
    fn torn(&mut self, old: &[u8], new: &[u8]) -> Vec<u8> {
        let len = *self.dice.one_of(&[old.len(), new.len(), new.len()]);
        let sectors = len.div_ceil(SECTOR);
        // All before one place, all behind it, or any.
        let (kind, cut) = (self.dice.below(3), self.dice.below(sectors as u64 + 1) as usize);
        let mut left = vec![0; len];
        for (at, sector) in left.chunks_mut(SECTOR).enumerate() {
            let is_new = match kind {
                0 => at < cut,
                1 => at >= cut,
                _ => self.dice.one_in(2),
            };
            let from = if is_new { new } else { old };
            let from = from.get(at * SECTOR..).unwrap_or_default();
            let len = from.len().min(sector.len());
            sector[..len].copy_from_slice(&from[..len]);
        }
        left
    }
}

fn names_of(image: &Image, folder: Inode) -> &Names {
    const NONE: &Names = &Names::new();
    image.folders.get(&folder).unwrap_or(NONE)
}

#[cfg(test)]
mod tests {
    use super::super::Medium;
    use super::super::watched::begin;
    use std::collections::BTreeSet;
    use std::fs::{self, File};
    use std::path::Path;
    use stonefold_dice::Dice;

    fn sync(path: &Path) {
        let file = File::open(path).unwrap();
        begin(&file).unwrap().end().unwrap();
    }

    /// What is found after losses by many dice, told by `look`.
    fn outcomes(live: impl Fn(&Path), look: impl Fn(&Path) -> String) -> BTreeSet<String> {
        (0..150)
            .map(|seed| {
                let quick = tempfile::tempdir_in("/dev/shm");
                let dir = quick.or_else(|_| tempfile::tempdir()).unwrap();
                let own = dir.path().join("own");
                fs::create_dir(&own).unwrap();
                let medium = Medium::new(dir.path());
                Medium::watch(Some(medium.clone()));
                live(&own);
                medium.lose();
                assert!(begin(&File::open(&own).unwrap()).is_err(), "nothing is synced without power");
                Medium::watch(None);
                medium.come_back(&mut Dice::new(seed));
                look(&own)
            })
            .collect()
    }

    fn text(path: &Path) -> String {
        fs::read_to_string(path).map_or("-".into(), |text| text.replace('\0', "0"))
    }

    fn set(all: &[&str]) -> BTreeSet<String> {
        all.iter().map(|one| (*one).to_owned()).collect()
    }

    /// A name without its content, a content without its name, both, and a content that was changed since.
    #[test]
    fn only_what_was_synced_is_sure() {
        let look = |own: &Path| text(&own.join("f"));
        let write = |own: &Path, text: &str| fs::write(own.join("f"), text).unwrap();
        let named = outcomes(|own| (write(own, "new"), sync(own)).1, look);
        assert_eq!(named, set(&["", "000", "new"]));
        let filled = outcomes(|own| (write(own, "new"), sync(&own.join("f"))).1, look);
        assert_eq!(filled, set(&["-", "new"]));
        let both = |own: &Path| (write(own, "old"), sync(&own.join("f")), sync(own)).2;
        assert_eq!(outcomes(both, look), set(&["old"]));
        let changed = outcomes(|own| (both(own), write(own, "new")).1, look);
        assert_eq!(changed, set(&["old", "new"]));
        let removed = outcomes(|own| (both(own), fs::remove_file(own.join("f")).unwrap()).1, look);
        assert_eq!(removed, set(&["old", "-"]));
    }

    /// A rename has happened or not; over another file; and into a folder that itself is not sure.
    #[test]
    fn a_rename_happens_or_not() {
        let make = |own: &Path| {
            for name in ["a", "b"] {
                fs::write(own.join(name), name).unwrap();
                sync(&own.join(name));
            }
            fs::create_dir(own.join("to")).unwrap();
            sync(own);
            sync(&own.join("to"));
        };
        let look = |own: &Path| ["a", "b", "to/a"].map(|name| text(&own.join(name))).join(" ");
        let over = |own: &Path| (make(own), fs::rename(own.join("a"), own.join("b")).unwrap()).1;
        let found = outcomes(over, look);
        assert!(found.is_superset(&set(&["a b -", "- a -"])), "{found:?}");
        assert!(found.iter().all(|one| one.matches('a').count() <= 1), "in one place only: {found:?}");
        assert_eq!(outcomes(|own| (over(own), sync(own)).1, look), set(&["- a -"]));
        let into = |own: &Path| (make(own), fs::rename(own.join("a"), own.join("to/a")).unwrap()).1;
        assert_eq!(outcomes(|own| (into(own), sync(&own.join("to"))).1, look), set(&["- b a"]));
        let fresh = |own: &Path| {
            fs::create_dir(own.join("to")).unwrap();
            fs::write(own.join("to/a"), "a").unwrap();
            sync(&own.join("to/a"));
            sync(&own.join("to"));
        };
        assert_eq!(outcomes(fresh, look), set(&["- - -", "- - a"]));
    }

    /// A file that was long in place is old here and new there, by the sector; what is durable of it is never touched.
    #[test]
    fn a_content_is_torn_by_the_sector() {
        let old = |own: &Path| {
            fs::write(own.join("f"), "o".repeat(2048)).unwrap();
            sync(&own.join("f"));
            sync(own);
            fs::write(own.join("f"), "n".repeat(2048)).unwrap();
        };
        let look = |own: &Path| {
            let bytes = fs::read(own.join("f")).unwrap();
            let sectors = bytes.chunks(512);
            sectors
                .map(|sector| if sector.iter().all(|b| *b == sector[0]) { sector[0] as char } else { '?' })
                .collect()
        };
        let found = outcomes(old, look);
        assert!(found.is_superset(&set(&["oooo", "nnnn", "nooo", "ooon", "nono"])), "{found:?}");
        assert!(!found.iter().any(|one| one.contains('?') || one.len() != 4), "{found:?}");
    }
}
