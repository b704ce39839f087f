//! Recording what clients ask of a disk, while somebody wants to know: the source of a trace.
//!
//! *Promises*: each request that a door takes is a record, or is counted as dropped; records go forward in time; nothing waits for whoever takes
//! them away. While nobody records, a request costs one look at a flag. *Never*: looks at data. *Owns*: memory for as many records as were asked
//! for, 48 bytes each, while a capture lives. *May be used by*: the server, which streams them out; doors tell through
//! [`Attachment::note`](crate::Attachment::note).

use crate::disk::Disk;
use crate::store::Store;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use stonefold_env::{Env, WallNanos};
use stonefold_format::trace::{Op, Reason, Record};
use stonefold_types::{Error, Kind, Name, Result};

/// Records that a capture may hold: 192 MiB, some seconds of what one server can do at its best.
pub const CAPTURE_ROOM_MAX: usize = 4 << 20;

/// Where a disk's requests are recorded, when they are.
#[derive(Default)]
pub(crate) struct Tap {
    /// Whether requests are to be told: looked at by each.
    on: AtomicBool,
    recording: Mutex<Option<Recording>>,
    /// Clients that have come since the start: each is a queue of its own.
    queues: AtomicU32,
}

struct Recording {
    /// Of which capture it is.
    number: [u8; 8],
    since: WallNanos,
    /// By the steady clock.
    started: Duration,
    records: Vec<Record>,
    room: usize,
    recorded: u64,
    dropped: u64,
    /// Nothing more is recorded, and why; and how long it had gone on.
    ended: Option<(Reason, Duration)>,
}

/// A capture under way. It ends when this is dropped.
pub struct Capture {
    store: Arc<Store>,
    disk: Arc<Disk>,
    number: [u8; 8],
    since: WallNanos,
    device_bytes: u64,
}

/// What is told of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureStatus {
    /// The disk.
    pub disk: Name,
    /// Since when.
    pub since: WallNanos,
    /// Requests recorded.
    pub recorded: u64,
    /// Requests for which there was no room.
    pub dropped: u64,
    /// Records that nobody has taken yet.
    pub waiting: usize,
    /// How many of those there may be.
    pub room: usize,
}

/// What was taken from a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// In the order of their times, which are nanoseconds since the capture began.
    pub records: Vec<Record>,
    /// Requests since it began for which there was no room.
    pub dropped: u64,
    /// Nothing more will come: why, and how long it was captured.
    pub ended: Option<(Reason, Duration)>,
}

impl Tap {
    /// The number of a client that has come.
    pub(crate) fn next_queue(&self) -> u32 {
        self.queues.fetch_add(1, Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Records a request that is made now.
    pub(crate) fn note(&self, env: &Env, record: Record) {
        let mut recording = self.recording.lock();
        let Some(recording) = recording.as_mut().filter(|recording| recording.ended.is_none()) else {
            return;
        };
        if recording.records.len() >= recording.room {
            recording.dropped += 1;
            return;
        }
        // Under the lock, so that records lie in the order of their times.
        let at = env.monotonic().saturating_sub(recording.started).as_nanos() as u64;
        recording.records.push(Record { at, ..record });
        recording.recorded += 1;
    }

    fn end(&self, env: &Env, reason: Reason) {
        self.on.store(false, Ordering::Relaxed);
        if let Some(recording) = self.recording.lock().as_mut() {
            let length = env.monotonic().saturating_sub(recording.started);
            recording.ended.get_or_insert((reason, length));
        }
    }

    fn status(&self, disk: &Name) -> Option<CaptureStatus> {
        self.recording.lock().as_ref().map(|recording| CaptureStatus {
            disk: disk.clone(),
            since: recording.since,
            recorded: recording.recorded,
            dropped: recording.dropped,
            waiting: recording.records.len(),
            room: recording.room,
        })
    }
}

impl Capture {
    /// The disk.
    pub fn disk(&self) -> &Name {
        &self.disk.name
    }

    /// When it began.
    pub fn since(&self) -> WallNanos {
        self.since
    }

    /// The disk's size then, in bytes.
    pub fn device_bytes(&self) -> u64 {
        self.device_bytes
    }

    /// Takes what was recorded; there is room for as many again.
    pub fn take(&self) -> Taken {
        self.take_if(true, 0)
    }

    /// The same, but leaves records where they are until they are `due`, as many as `worth`, half of the room, or the last.
    pub fn take_if(&self, due: bool, worth: usize) -> Taken {
        if !self.store.find(&self.disk.name).is_ok_and(|disk| Arc::ptr_eq(&disk, &self.disk)) {
            self.disk.tap.end(&self.store.env, Reason::DiskGone);
        }
        let mut recording = self.disk.tap.recording.lock();
        let Some(recording) = recording.as_mut().filter(|recording| recording.number == self.number) else {
            return Taken::default();
        };
        let enough = worth.min(recording.room.div_ceil(2));
        let take = due || recording.ended.is_some() || recording.records.len() >= enough;
        let records = if take { std::mem::take(&mut recording.records) } else { Vec::new() };
        Taken { records, dropped: recording.dropped, ended: recording.ended }
    }

    /// Takes what was recorded, and tells the ranges that were read: offset and length in bytes, in the order of the requests.
    pub fn take_reads(&self) -> Vec<(u64, u64)> {
        let is_read = |record: &Record| record.op == Op::Read;
        self.take().records.into_iter().filter(is_read).map(|record| (record.offset, record.bytes)).collect()
    }

    /// Records nothing more; what was recorded can still be taken.
    pub fn end(&self, reason: Reason) {
        self.disk.tap.end(&self.store.env, reason);
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let tap = &self.disk.tap;
        let mut recording = tap.recording.lock();
        if recording.as_ref().is_some_and(|recording| recording.number == self.number) {
            tap.on.store(false, Ordering::Relaxed);
            *recording = None;
        }
    }
}

impl Store {
    /// Begins to record what clients ask of a disk, up to `room` records ahead of whoever takes them.
    ///
    /// # Errors
    /// [`Kind::NotFound`]; [`Kind::Busy`] when somebody records it already; [`Kind::Invalid`] for a room of none or above
    /// [`CAPTURE_ROOM_MAX`].
    pub fn capture(self: &Arc<Self>, name: &Name, room: usize) -> Result<Capture> {
        if !(1..=CAPTURE_ROOM_MAX).contains(&room) {
            let what = format!("a trace with room for {room} records");
            return Err(
                Error::new(Kind::Invalid, what).remedy(format!("choose from 1 to {CAPTURE_ROOM_MAX}"))
            );
        }
        let disk = self.find(name)?;
        let device_bytes = disk.state.lock().size_bytes;
        let mut recording = disk.tap.recording.lock();
        if recording.is_some() {
            return Err(Error::new(Kind::Busy, format!("disk '{name}' is being traced already"))
                .remedy(format!("end that first, with 'stonefold lab trace stop {name}'")));
        }
        let (number, since) = (self.env.random(), self.env.wall());
        *recording = Some(Recording {
            number,
            since,
            started: self.env.monotonic(),
            records: Vec::new(),
            room,
            recorded: 0,
            dropped: 0,
            ended: None,
        });
        disk.tap.on.store(true, Ordering::Relaxed);
        drop(recording);
        Ok(Capture { store: self.clone(), disk, number, since, device_bytes })
    }

    /// Ends the recording of a disk; whoever takes the records gets what is left, and an end. Returns what it came to.
    ///
    /// # Errors
    /// [`Kind::NotFound`] when there is no such disk, or nobody records it.
    pub fn stop_capture(&self, name: &Name) -> Result<CaptureStatus> {
        let disk = self.find(name)?;
        disk.tap.end(&self.env, Reason::Stopped);
        disk.tap.status(name).ok_or_else(|| {
            Error::new(Kind::NotFound, format!("disk '{name}' is not being traced"))
                .remedy("'stonefold lab trace ls' shows what is")
        })
    }

    /// All recordings under way, by the names of their disks.
    pub fn captures(&self) -> Vec<CaptureStatus> {
        let disks = self.disks();
        let status = |info: &crate::DiskInfo| self.find(&info.name).ok()?.tap.status(&info.name);
        disks.iter().filter_map(status).collect()
    }
}

/// A request, but for its time.
pub(crate) fn request(op: Op, fua: bool, queue: u32, offset: u64, bytes: u64) -> Record {
    Record { at: 0, op, fua, queue, offset, bytes, took: None }
}
