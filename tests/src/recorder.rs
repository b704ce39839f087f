//! A disk that remembers every write and every flush, so that a loss of power can be played at any moment of its life.
//!
//! It is an NBD server of our own door on an array of bytes, in a thread of this process. What a flush has answered for stays; of what came after
//! the last flush a loss of power keeps any part, in any order, and whole sectors of it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow};
use stonefold_dice::Dice;
use stonefold_env::{Env, SystemWorld};
use stonefold_nbd::{Address, Exports, Listener, Server, Target};
use stonefold_store::Extent;
use stonefold_types::{Error, ExportName, Kind, Name};
use tokio::sync::oneshot;

/// What a disk writes wholly or not at all.
const SECTOR: usize = 512;
/// Of a hundred writes that no flush has answered for, those that a loss of power leaves: none, some, nearly all.
const KEPT_PERCENT: [u64; 3] = [0, 60, 95];
/// Written to a file at one time; what is zero is left out.
const PIECE: usize = 64 << 10;
/// Its only export.
const EXPORT: &str = "disk";

/// One thing that happened to the disk.
enum Event {
    Write { offset: usize, data: Vec<u8>, is_durable: bool },
    Zero { offset: usize, len: usize, is_durable: bool },
    Flush,
}

impl Event {
    fn apply(&self, disk: &mut [u8]) {
        match self {
            Event::Write { offset, data, .. } => disk[*offset..offset + data.len()].copy_from_slice(data),
            Event::Zero { offset, len, .. } => disk[*offset..offset + len].fill(0),
            Event::Flush => {}
        }
    }

    /// Some of its sectors.
    fn tear(&self, disk: &mut [u8], chance: &mut Dice) {
        match self {
            Event::Write { offset, data, .. } => {
                for (at, sector) in data.chunks(SECTOR).enumerate().filter(|_| chance.percent(50)) {
                    disk[offset + at * SECTOR..][..sector.len()].copy_from_slice(sector);
                }
            }
            Event::Zero { .. } | Event::Flush => {}
        }
    }

    /// Was forced through by itself.
    fn is_durable(&self) -> bool {
        matches!(self, Event::Write { is_durable: true, .. } | Event::Zero { is_durable: true, .. })
    }
}

struct Life {
    now: Vec<u8>,
    events: Vec<Event>,
    bytes: usize,
}

#[derive(Clone)]
struct Disk(Arc<Mutex<Life>>);

impl Disk {
    fn life(&self) -> MutexGuard<'_, Life> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn happened(&self, event: Event) {
        let mut life = self.life();
        event.apply(&mut life.now);
        if let Event::Write { data, .. } = &event {
            life.bytes += data.len();
        }
        life.events.push(event);
    }
}

/// The disk while it is in use.
pub struct Recorder {
    disk: Disk,
    size_bytes: u64,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<()>>>,
    uri: String,
}

impl Recorder {
    /// A new disk of zeros, served at a socket.
    ///
    /// # Errors
    /// When it cannot be served there.
    pub fn serve(socket: &Path, size_bytes: u64) -> Result<Self> {
        let life = Life { now: vec![0; size_bytes as usize], events: Vec::new(), bytes: 0 };
        let disk = Disk(Arc::new(Mutex::new(life)));
        let (stop, stopped) = oneshot::channel();
        let (tell, told) = std::sync::mpsc::channel();
        let (address, exports) = (Address::Unix(socket.to_owned()), disk.clone());
        let thread = std::thread::Builder::new().name("recorder".into()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let env = Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1)?);
                let listener = Listener::bind(&address).await?;
                let _ = tell.send(());
                let asked = async { drop(stopped.await) };
                Server::new(env, exports).serve(listener, asked).await;
                anyhow::Ok(())
            })
        })?;
        let uri = format!("nbd+unix:///{EXPORT}?socket={}", socket.display());
        let recorder = Recorder { disk, size_bytes, stop: Some(stop), thread: Some(thread), uri };
        match told.recv() {
            Ok(()) => Ok(recorder),
            Err(_) => Err(recorder.end().err().unwrap_or_else(|| anyhow!("the recorder did not start"))),
        }
    }

    /// Where it is served.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// How much has happened to it so far.
    pub fn position(&self) -> usize {
        self.disk.life().events.len()
    }

    /// Bytes written to it so far.
    pub fn written_bytes(&self) -> usize {
        self.disk.life().bytes
    }

    /// The end of its use, and what is remembered.
    ///
    /// # Errors
    /// When its server has failed.
    pub fn end(mut self) -> Result<Recording> {
        drop(self.stop.take());
        let served = self.thread.take().context("it is served")?.join();
        served.map_err(|_| anyhow!("the recorder panicked"))??;
        let events = std::mem::take(&mut self.disk.life().events);
        Ok(Recording { events, durable: vec![0; self.size_bytes as usize], synced: 0 })
    }
}

/// What happened to a disk from its first to its last write.
pub struct Recording {
    events: Vec<Event>,
    /// What it holds for certain after `synced` events.
    durable: Vec<u8>,
    synced: usize,
}

impl Recording {
    /// So many things happened.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether nothing happened.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The next flush from a position on: power that is lost there leaves the most in doubt.
    pub fn flush_after(&self, position: usize) -> Option<usize> {
        self.events[position..]
            .iter()
            .position(|event| matches!(event, Event::Flush))
            .map(|more| position + more)
    }

    /// Writes into a new file what the disk holds when power is lost after so many events; no fewer than the last time. Gives how many
    /// writes were in doubt.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn lose_power(&mut self, position: usize, chance: &mut Dice, file: &Path) -> Result<usize> {
        let flush =
            self.events[self.synced..position].iter().rposition(|event| matches!(event, Event::Flush));
        let synced = flush.map_or(self.synced, |at| self.synced + at + 1);
        for event in &self.events[self.synced..synced] {
            event.apply(&mut self.durable);
        }
        self.synced = synced;
        let mut disk = self.durable.clone();
        let kept = *chance.one_of(&KEPT_PERCENT);
        for event in &self.events[synced..position] {
            if event.is_durable() || chance.percent(kept) {
                event.apply(&mut disk);
            } else if chance.one_in(4) {
                event.tear(&mut disk, chance);
            }
        }
        write_sparsely(&disk, file)?;
        Ok(position - synced)
    }
}

fn write_sparsely(disk: &[u8], file: &Path) -> Result<()> {
    let file = File::create(file).with_context(|| file.display().to_string())?;
    file.set_len(disk.len() as u64)?;
    for (at, piece) in disk.chunks(PIECE).enumerate() {
        if piece.iter().any(|byte| *byte != 0) {
            file.write_all_at(piece, (at * PIECE) as u64)?;
        }
    }
    Ok(())
}

impl Exports for Disk {
    type Target = Disk;

    fn attach(&self, name: &ExportName, _peer: &Arc<str>) -> stonefold_types::Result<Disk> {
        if name.to_string() == EXPORT {
            return Ok(self.clone());
        }
        Err(Error::new(Kind::NotFound, format!("'{name}' does not exist")).remedy("ask for 'disk'"))
    }

    fn list(&self, _limit: usize) -> Vec<(ExportName, String)> {
        Vec::new()
    }

    fn snapshots(&self, _disk: &Name) -> stonefold_types::Result<Vec<Name>> {
        Ok(Vec::new())
    }
}

impl Target for Disk {
    fn size_bytes(&self) -> u64 {
        self.life().now.len() as u64
    }

    fn read_only(&self) -> bool {
        false
    }

    fn description(&self) -> String {
        "a disk that remembers".to_owned()
    }

    fn read_cached(&self, offset: u64, buf: &mut [u8]) -> Option<stonefold_types::Result<()>> {
        buf.copy_from_slice(&self.life().now[offset as usize..][..buf.len()]);
        Some(Ok(()))
    }

    async fn read(&self, offset: u64, buf: &mut [u8]) -> stonefold_types::Result<()> {
        buf.copy_from_slice(&self.life().now[offset as usize..][..buf.len()]);
        Ok(())
    }

    async fn write(&self, offset: u64, data: &[u8], fua: bool) -> stonefold_types::Result<()> {
        self.happened(Event::Write { offset: offset as usize, data: data.to_owned(), is_durable: fua });
        Ok(())
    }

    async fn zero(&self, offset: u64, len: u64, fua: bool) -> stonefold_types::Result<()> {
        self.happened(Event::Zero { offset: offset as usize, len: len as usize, is_durable: fua });
        Ok(())
    }

    async fn trim(&self, offset: u64, len: u64, fua: bool) -> stonefold_types::Result<()> {
        self.zero(offset, len, fua).await
    }

    async fn flush(&self) -> stonefold_types::Result<()> {
        self.happened(Event::Flush);
        Ok(())
    }

    async fn extents(&self, _offset: u64, len: u64) -> stonefold_types::Result<Vec<Extent>> {
        Ok(vec![Extent { bytes: len, hole: false }])
    }

    async fn changed_since(
        &self,
        _snapshot: &Name,
        _offset: u64,
        len: u64,
    ) -> stonefold_types::Result<Vec<Extent>> {
        Ok(vec![Extent { bytes: len, hole: false }])
    }

    async fn prefetch(&self, _offset: u64, _len: u64) -> stonefold_types::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    //! Promise: what a flush answered for is always there, and what came later sometimes is not; a recorder that lost nothing would prove
    //! nothing.
    use super::*;

    fn recording(events: Vec<Event>) -> Recording {
        Recording { events, durable: vec![0; 4 * SECTOR], synced: 0 }
    }

    fn write(offset: usize, byte: u8, len: usize) -> Event {
        Event::Write { offset, data: vec![byte; len], is_durable: false }
    }

    #[test]
    fn what_was_flushed_stays_and_what_was_not_is_in_doubt() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("disk");
        let mut chance = Dice::new(1);
        let (mut lost, mut kept, mut torn) = (0, 0, 0);
        for _ in 0..100 {
            let events = vec![write(0, 1, SECTOR), Event::Flush, write(SECTOR, 2, 2 * SECTOR)];
            let mut recording = recording(events);
            assert_eq!(recording.flush_after(0), Some(1));
            assert_eq!(recording.lose_power(3, &mut chance, &file).unwrap(), 1);
            let disk = std::fs::read(&file).unwrap();
            assert_eq!(disk.len(), 4 * SECTOR);
            assert_eq!(disk[..SECTOR], [1; SECTOR]);
            match (disk[SECTOR], disk[2 * SECTOR]) {
                (0, 0) => lost += 1,
                (2, 2) => kept += 1,
                _ => torn += 1,
            }
        }
        assert!(lost > 0 && kept > 0 && torn > 0, "{lost} lost, {kept} kept, {torn} torn");
    }

    #[test]
    fn before_the_first_flush_nothing_is_certain() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("disk");
        let mut lost = recording(vec![write(0, 1, SECTOR)]);
        let mut chance = Dice::new(3);
        let mut all = (0..40).map(|_| {
            lost.lose_power(1, &mut chance, &file).unwrap();
            std::fs::read(&file).unwrap()[0]
        });
        assert!(all.any(|byte| byte == 0));
    }
}
