//! A driver of virtio-blk without a system around it: requests lie in memory that this program has with a QEMU, and are rung for through its test
//! protocol; QEMU's device, with every filter below it, does the rest.
//!
//! *Promises*: a request goes the way that a guest's goes in QEMU, and no emulated processor is in its time. Drawings: virtio 1.2, 4.1.4.8 (legacy
//! PCI) and 2.7 (split queues):
//!
//! ```text
//! RING        descriptors, 16 bytes each: place u64, length u32, flags u16, next u16
//! available   flags u16, index u16, then heads of chains, u16 each
//! used        of the next page on: flags u16, index u16, then (head u32, length u32) each
//! PAGES       of each request in turn: a page of head (kind u32, 0 u32, sector u64) and status u8, then its data
//! ```

use crate::memory::Memory;
use crate::wire::Wire;
use anyhow::{Context, Result, ensure};
use std::ops::Range;

/// What is asked for, in virtio's numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Of the disk's bytes.
    Read = 0,
    /// Of bytes that were put into [`Device::data_mut`].
    Write = 1,
    /// Of what was written, to where it stays.
    Flush = 4,
}

/// A request's place; one that nothing is asked with, or that is with the device.
#[derive(Clone, Copy)]
pub(crate) struct Slot(usize);

/// A request that has ended.
pub(crate) struct Ended<T> {
    /// Its place, for [`Device::data`], until it is given back.
    pub(crate) slot: Slot,
    /// Whose it is.
    pub(crate) token: T,
    /// Whether the device has done it.
    pub(crate) is_good: bool,
}

/// The disk of a QEMU whose processors never run; `T` is what a request's caller knows it by.
pub(crate) struct Device<T> {
    wire: Wire,
    memory: Memory,
    largest: usize,
    entries: usize,
    used: usize,
    issued: u16,
    rung: u16,
    seen: u16,
    free: Vec<Slot>,
    with_device: Vec<Option<T>>,
    asked: usize,
}

const RING: usize = 0x10_0000;
const PAGES: usize = 0x20_0000;
const PAGE: usize = 4096;
/// Where a request's status is, in its page.
const STATUS: usize = 16;
const NEXT: u16 = 1;
const FOR_DEVICE: u16 = 2;
/// The device looks by itself, and needs no bell.
const LOOKS_ITSELF: u16 = 1;
/// `VIRTIO_BLK_F_FLUSH`: a driver that does not know how to flush is given each write through, flushed, and no guest of today is.
const FLUSHES: u32 = 1 << 9;
/// Ports of the legacy device, once it has been given them.
const PORTS: u32 = 0xC000;
const BLOCK_DEVICE: u32 = 0x1001_1AF4;
const BELL: &[u8] = b"outw 0xc010 0x0\n";

impl<T> Device<T> {
    /// Makes itself known to the disk; `largest`: what a request may carry, in bytes.
    ///
    /// # Errors
    ///
    /// When QEMU has gone, or has no such disk.
    pub(crate) fn begin(
        mut wire: Wire,
        mut memory: Memory,
        memory_bytes: usize,
        largest: usize,
    ) -> Result<Self> {
        let entries = usize::try_from(introduce(&mut wire)?)?;
        // Each takes three descriptors: its head, its data, its status.
        let slots = (entries / 3).min(memory_bytes.saturating_sub(PAGES) / (PAGE + largest));
        ensure!(slots > 0, "{memory_bytes} bytes of memory are too few for a request of {largest}");
        // What a driver before has left there is nobody's.
        memory.bytes_mut(RING..PAGES).fill(0);
        put(&mut wire, 'l', 0x08, RING / PAGE)?;
        put(&mut wire, 'b', 0x12, 7)?;
        Ok(Self {
            wire,
            memory,
            largest,
            entries,
            used: (RING + 16 * entries + 6 + 2 * entries).next_multiple_of(PAGE),
            issued: 0,
            rung: 0,
            seen: 0,
            free: (0..slots).map(Slot).collect(),
            with_device: (0..slots).map(|_| None).collect(),
            asked: 0,
        })
    }

    /// A place for one request more, if there is one.
    pub(crate) fn free(&mut self) -> Option<Slot> {
        self.free.pop()
    }

    /// Whether there is a place for one request more.
    pub(crate) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Whether requests are with the device.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked > 0
    }

    fn page(&self, slot: Slot) -> usize {
        PAGES + slot.0 * (PAGE + self.largest)
    }

    fn place(&self, slot: Slot, len: usize) -> Range<usize> {
        assert!(
            len <= self.largest && self.with_device[slot.0].is_none(),
            "a place of nobody's, for {len} bytes"
        );
        let at = self.page(slot) + PAGE;
        at..at + len
    }

    /// What a read has brought.
    pub(crate) fn data(&self, slot: Slot, len: usize) -> &[u8] {
        self.memory.bytes(self.place(slot, len))
    }

    /// What a write is to take.
    pub(crate) fn data_mut(&mut self, slot: Slot, len: usize) -> &mut [u8] {
        self.memory.bytes_mut(self.place(slot, len))
    }

    /// Puts a request where the device finds it; it looks when it is [rung for](Device::ring).
    pub(crate) fn submit(&mut self, slot: Slot, kind: Kind, offset: u64, len: usize, token: T) {
        let (head, data) = (self.page(slot), self.place(slot, len).start);
        let page = self.memory.bytes_mut(head..head + STATUS + 1);
        page[..4].copy_from_slice(&(kind as u32).to_le_bytes());
        page[4..8].fill(0);
        page[8..16].copy_from_slice(&(offset / 512).to_le_bytes());
        page[STATUS] = 0xFF;
        let of_data = if kind == Kind::Read { FOR_DEVICE } else { 0 };
        let parts = [(head, STATUS, 0), (data, len, of_data), (head + STATUS, 1, FOR_DEVICE)];
        let parts = parts.into_iter().filter(|(_, len, _)| *len > 0);
        let first = slot.0 * 3;
        let last = first + if len > 0 { 2 } else { 1 };
        for (entry, (at, len, flags)) in (first..).zip(parts) {
            let (flags, next) = if entry == last { (flags, 0) } else { (flags | NEXT, entry + 1) };
            let bytes = self.memory.bytes_mut(RING + entry * 16..RING + entry * 16 + 16);
            bytes[..8].copy_from_slice(&(at as u64).to_le_bytes());
            bytes[8..12].copy_from_slice(&(len as u32).to_le_bytes());
            bytes[12..14].copy_from_slice(&flags.to_le_bytes());
            bytes[14..].copy_from_slice(&(next as u16).to_le_bytes());
        }
        let available = RING + 16 * self.entries;
        self.memory.tell(available + 4 + usize::from(self.issued) % self.entries * 2, first as u16);
        self.issued = self.issued.wrapping_add(1);
        self.memory.tell(available + 2, self.issued);
        self.with_device[slot.0] = Some(token);
        self.asked += 1;
    }

    /// Rings for what was submitted since the last time, unless the device looks by itself just now.
    ///
    /// # Errors
    ///
    /// When QEMU has gone.
    pub(crate) fn ring(&mut self) -> Result<()> {
        if self.rung == self.issued {
            return Ok(());
        }
        self.rung = self.issued;
        if self.memory.heard(self.used) & LOOKS_ITSELF == 0 {
            self.wire.ring(BELL)?;
        }
        Ok(())
    }

    /// One that has ended since the last look. It is to be [given back](Device::give_back).
    ///
    /// # Errors
    ///
    /// When the device ends what was not asked.
    pub(crate) fn ended(&mut self) -> Result<Option<Ended<T>>> {
        if self.memory.heard(self.used + 2) == self.seen {
            return Ok(None);
        }
        let entry = self.used + 4 + usize::from(self.seen) % self.entries * 8;
        let head = usize::from(self.memory.heard(entry));
        self.seen = self.seen.wrapping_add(1);
        let slot = Slot(head / 3);
        let token = self.with_device.get_mut(slot.0).and_then(Option::take);
        let token = token.context("the device has ended what was not asked")?;
        self.asked -= 1;
        let at = self.page(slot) + STATUS;
        Ok(Some(Ended { slot, token, is_good: self.memory.bytes(at..at + 1)[0] == 0 }))
    }

    /// The place of a request that has ended.
    pub(crate) fn give_back(&mut self, slot: Slot) {
        assert!(self.with_device[slot.0].is_none(), "a place that is with the device");
        self.free.push(slot);
    }

    /// Takes QEMU's answers to bells.
    ///
    /// # Errors
    ///
    /// When QEMU has gone.
    pub(crate) fn hear(&mut self) -> Result<()> {
        self.wire.hear()
    }
}

/// Of a pc: a transitional device on the first bus, which is given its ports as a firmware would, and is begun anew. How many entries its queue has, of
/// which it does not know the place yet.
fn introduce(wire: &mut Wire) -> Result<u32> {
    let mut found = None;
    for slot in 0..32u32 {
        wire.say(&format!("outl 0xcf8 {:#x}", 1 << 31 | slot << 11))?;
        if wire.read("inl 0xcfc")? == BLOCK_DEVICE {
            found = Some(slot);
            break;
        }
    }
    let slot = found.context("the QEMU has no disk")?;
    // Where its ports are; then ports, memory, and the device's own reads and writes of it.
    for (register, value) in [(0x10, PORTS), (0x04, 0x7)] {
        wire.say(&format!("outl 0xcf8 {:#x}", 1 << 31 | slot << 11 | register))?;
        wire.say(&format!("outl 0xcfc {value:#x}"))?;
    }
    // Reset, seen, driven; what it can; the queue to ask of.
    put(wire, 'b', 0x12, 0)?;
    put(wire, 'b', 0x12, 1)?;
    put(wire, 'b', 0x12, 3)?;
    put(wire, 'l', 0x04, FLUSHES as usize)?;
    put(wire, 'w', 0x0E, 0)?;
    wire.read(&format!("inw {:#x}", PORTS + 0x0C))
}

/// Writes a register of the device's, of one, two or four bytes (`b`, `w`, `l`).
fn put(wire: &mut Wire, width: char, register: u32, value: usize) -> Result<()> {
    wire.say(&format!("out{width} {:#x} {value:#x}", PORTS + register)).map(drop)
}
