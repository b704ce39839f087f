//! Machines of any hardware, read over SSH: their disks as they were when snapshots of their volumes (LVM) were taken, put together so that they boot.
//!
//! *How*: nothing is installed there. The server runs the system's `ssh`, as its user would, and sends a script of sh along ([`session`]). That tells what
//! there is ([`facts`]); from this is made where each byte of each disk is read ([`layout`]); LVM's own data are kept, what is mounted without a volume
//! is summed, the snapshots are made, one after another; then the copier asks for sums of chunks, and for the chunks that our disk has otherwise. *Order at the
//! end*: the snapshots are looked at, whether they still hold; what was summed is summed again; then all that was made there goes.
//!
//! *Promises*: a volume is of one instant, as after a loss of power, and several within the time that making their snapshots took, which the run
//! tells; what is read without a snapshot is what it was before the first and after the last byte; a machine that is not asked any more takes away what was
//! made there, and the next run what it could not. *Never*: writes to a device there, but for LVM's; holds a file system still itself; takes away anything
//! that has not this source's tag. *Bounds*: a volume group needs room for the snapshots; one that overflows makes no point.

mod complaint;
mod described;
mod disk;
mod facts;
mod folders;
mod layout;
mod machine;
mod session;

pub(crate) use disk::{CHUNK_BYTES, RemoteDisk, Sum};
pub use machine::SshMachine;

use crate::copying::{Copying, Reading};
use crate::origin::Origin;
use crate::{Hardware, Protection, Source};
use disk::words;
use facts::Facts;
use layout::{Layout, Piece, Place, Wanted};
use session::Session;
use std::collections::BTreeSet;
use std::sync::Arc;
use stonefold_types::{Error, Kind, Name, Result};

/// Disks of one machine: more than have letters are no machine's.
const DISKS_MAX: usize = 26;

/// A machine that can be read.
pub(crate) struct Reached {
    pub(crate) disks: Vec<Reading>,
    /// Nothing of folders alone.
    pub(crate) hardware: Option<Result<Hardware>>,
    session: Arc<Session>,
    /// Whether there are snapshots.
    has_snapshots: bool,
    /// What was summed: its path, what it is, and the sum.
    quiet: Vec<(String, String, String)>,
}

impl Reached {
    /// Fails where what was read is not of one instant.
    pub(crate) async fn check_still(&self) -> Result<()> {
        if self.has_snapshots {
            let told = self.session.ask_text("state").await?;
            if let Some(full) = told.lines().find_map(overflowed) {
                let what = format!(
                    "the snapshot '{full}' has overflowed: more was written meanwhile than it has room for"
                );
                return Err(Error::new(Kind::NoSpace, what).remedy(
                    "give it more (source add … --snapshot-size SIZE), or run it when less is written",
                ));
            }
        }
        for (path, what, before) in &self.quiet {
            if self.session.ask_text(&format!("whole {path}")).await? != *before {
                let what = format!("{what} was written while it was read");
                return Err(
                    Error::new(Kind::Conflict, what).remedy("run it again when nothing is installed there")
                );
            }
        }
        Ok(())
    }

    /// Has all that was made there go. Returns what stays.
    pub(crate) async fn end(self) -> Option<String> {
        drop(self.disks);
        self.session.end().await
    }
}

/// The snapshot's name, where a line of `state` says that it holds no more.
fn overflowed(line: &str) -> Option<String> {
    let words: Vec<&str> = line.split('|').map(str::trim).collect();
    let [name, state, full] = words.as_slice() else { return None };
    // Of a thin one there is no such number but how much of it is used.
    let is_thin = state.starts_with('V');
    let is_lost = matches!(state.as_bytes().get(4), Some(b'I' | b'S'));
    (is_lost || !is_thin && full.parse().is_ok_and(|full: f64| full >= 100.0)).then(|| (*name).to_owned())
}

impl Protection {
    /// Reaches a machine, and holds its volumes as they are now. What was made there when this fails goes, too.
    pub(crate) async fn reach(&self, copying: &Copying, of: &SshMachine) -> Result<Reached> {
        let named = |e: Error| e.context(format!("machine '{}'", of.url));
        let session = Arc::new(Session::begin(&self.env, of).await.map_err(named)?);
        let reached = copying.live.unless_stopped(self.hold_volumes(copying, of, &session)).await;
        let stays = if reached.is_err() { session.end().await } else { None };
        stays.into_iter().for_each(|stays| copying.live.note(stays));
        reached.map_err(named)
    }

    async fn hold_volumes(
        &self,
        copying: &Copying,
        of: &SshMachine,
        session: &Arc<Session>,
    ) -> Result<Reached> {
        let source = &copying.source;
        let tag = tag(source);
        let told = session.ask_text(&format!("look {tag} {}", of.devices.join(" "))).await?;
        let mut facts = Facts::parse(&told)?;
        let is_folders = folders::make_images(session, source, &mut facts).await?;
        let mut layout = Wanted { facts: &facts, room: of.snapshot_bytes, tag: &tag }.layout()?;
        if layout.disks.len() > DISKS_MAX {
            let what = format!("it has {} disks, and {DISKS_MAX} are the most", layout.disks.len());
            return Err(Error::new(Kind::Invalid, what).remedy("name some: --device PATH"));
        }
        keep(session, &mut layout).await?;
        let mut quiet = Vec::new();
        for (path, what) in &layout.quiet {
            quiet.push((path.clone(), what.clone(), session.ask_text(&format!("whole {path}")).await?));
        }
        for what in &layout.unwatched {
            copying.live.note(format!("{what} is no volume and not mounted: whether anybody wrote to it while it was read is not known"));
        }
        self.snapshot_volumes(copying, session, &layout, &tag).await?;
        let targets: Vec<Name> = (0..layout.disks.len()).map(target).collect::<Result<_>>()?;
        let hardware = (!is_folders).then(|| described::machine(&facts, &source.name, &targets));
        let disk = |(disk, target): (layout::Disk, Name)| {
            let from = RemoteDisk::new(session.clone(), disk);
            Reading { target, from: Origin::Remote(from), whole: None }
        };
        let disks = layout.disks.into_iter().zip(targets).map(disk).collect();
        let has_snapshots = !layout.volumes.is_empty();
        Ok(Reached { disks, hardware, session: session.clone(), has_snapshots, quiet })
    }

    /// Makes the snapshots, one after another.
    async fn snapshot_volumes(
        &self,
        copying: &Copying,
        session: &Session,
        layout: &Layout,
        tag: &str,
    ) -> Result<()> {
        let began = self.env.monotonic();
        for volume in &layout.volumes {
            copying.live.check()?;
            let layout::Volume { group, name, snapshot, room } = volume;
            let made = session.ask(&format!("snap {group} {name} {snapshot} {room} {tag}")).await;
            made.map_err(|e| e.context(format!("the snapshot of volume '{group}/{name}'")))?;
        }
        if let count @ 2.. = layout.volumes.len() {
            let took = self.env.monotonic().saturating_sub(began).as_secs_f64();
            copying.live.note(format!("its {count} volumes are each of one instant, all within {took:.1} s"));
        }
        Ok(())
    }
}

/// Has copies of places made that the snapshots would change, and puts these in their places.
async fn keep(session: &Session, layout: &mut Layout) -> Result<()> {
    let mut devices = BTreeSet::new();
    for piece in layout.disks.iter().flat_map(|disk| &disk.pieces) {
        if let Place::Device(path, _) = &piece.from {
            devices.insert(path.clone());
        }
    }
    devices.extend(layout.kept.iter().map(|(device, ..)| device.clone()));
    // Those of snapshots are not there yet.
    let devices: Vec<String> = devices.into_iter().collect();
    session.ask(&format!("flush {}", devices.join(" "))).await?;
    let mut copies = Vec::new();
    for (number, (device, at, bytes)) in layout.kept.iter().enumerate() {
        let place = Piece { at: *at, bytes: *bytes, from: Place::Device(device.clone(), *at) };
        let path = session.ask_text(&format!("keep kept.{number} {}", words(&place))).await?;
        let path = path.trim().to_owned();
        if !facts::is_plain(&path) {
            return Err(Error::new(Kind::Io, "the other machine keeps things where they cannot be named"));
        }
        copies.push(path);
    }
    for piece in layout.disks.iter_mut().flat_map(|disk| &mut disk.pieces) {
        if let Place::Kept(number, at) = piece.from {
            piece.from = Place::Device(copies[number].clone(), at);
        }
    }
    Ok(())
}

/// What all that is made for a source there is known by.
fn tag(source: &Source) -> String {
    format!("stonefold_{:x}", source.added)
}

/// What a point calls a disk, by its number.
fn target(number: usize) -> Result<Name> {
    Name::new(&format!("vd{}", char::from(b'a' + number as u8)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_that_holds_no_more_is_known() {
        assert_eq!(overflowed("  stonefold_7_0|swi-a-s---|12.50"), None);
        assert_eq!(overflowed("  stonefold_7_0|swi-I-s---|100.00").as_deref(), Some("stonefold_7_0"));
        assert_eq!(overflowed("  stonefold_7_1|swi-a-s---|100.00").as_deref(), Some("stonefold_7_1"));
        assert_eq!(overflowed("  stonefold_7_2|Vwi-a-tz--|100.00"), None);
        assert_eq!(overflowed("nonsense"), None);
    }
}
