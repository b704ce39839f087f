//! Files and block devices, around the page cache, by one io_uring for each thread.

use super::{Backend, Buffers, Completion, Op, Request};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

/// Entries of the submission queue; more are handed over in several calls.
const ENTRIES: u32 = 1024;

/// Files by their numbers, and the ring that carries their requests.
pub(crate) struct Files {
    // Dropped before what its requests point at.
    ring: IoUring,
    /// Open for as long as the ring.
    _files: Vec<File>,
    buffers: Buffers,
    /// Whether the kernel knows the buffers by number, as it does the files: that saves it work with each request.
    fixed_buffers: bool,
    in_flight: usize,
}

impl Files {
    /// Carries requests to `files`, which were opened with O_DIRECT, from and into `buffers`.
    pub(crate) fn new(files: Vec<File>, buffers: Buffers) -> io::Result<Self> {
        let completions = (buffers.slots() as u32 + 1).next_power_of_two().max(ENTRIES);
        let ring = IoUring::builder().setup_cqsize(completions * 2).setup_coop_taskrun().build(ENTRIES)?;
        let whole = libc::iovec {
            iov_base: buffers.start(0).cast(),
            iov_len: buffers.slots() * buffers.slot_bytes(),
        };
        // SAFETY: the mapping lives as long as this, and the ring goes first. Refused where memory may not be locked.
        let fixed_buffers = unsafe { ring.submitter().register_buffers(&[whole]) }.is_ok();
        let descriptors: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
        ring.submitter().register_files(&descriptors)?;
        Ok(Files { ring, _files: files, buffers, fixed_buffers, in_flight: 0 })
    }

    fn entry(&self, request: Request) -> squeue::Entry {
        let file = types::Fixed(request.volume);
        let start = self.buffers.start(request.slot);
        let (bytes, offset) = (request.bytes, request.offset);
        let durable = if request.fua { libc::RWF_DSYNC } else { 0 };
        let entry = match (request.op, self.fixed_buffers) {
            (Op::Read, true) => opcode::ReadFixed::new(file, start, bytes, 0).offset(offset).build(),
            (Op::Read, false) => opcode::Read::new(file, start, bytes).offset(offset).build(),
            (Op::Write, true) => {
                opcode::WriteFixed::new(file, start, bytes, 0).offset(offset).rw_flags(durable).build()
            }
            (Op::Write, false) => {
                opcode::Write::new(file, start, bytes).offset(offset).rw_flags(durable).build()
            }
            (Op::Flush, _) => opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build(),
            (Op::Trim, _) => fallocate(file, libc::FALLOC_FL_PUNCH_HOLE, offset, bytes),
            (Op::Zero, _) => fallocate(file, libc::FALLOC_FL_ZERO_RANGE, offset, bytes),
        };
        // The slot, and how many bytes there must be: a short answer is an error to whoever measures.
        let expected = if matches!(request.op, Op::Read | Op::Write) { bytes } else { 0 };
        entry.user_data(u64::from(expected) << 32 | u64::from(request.slot))
    }
}

fn fallocate(file: types::Fixed, mode: libc::c_int, offset: u64, bytes: u32) -> squeue::Entry {
    let mode = mode | libc::FALLOC_FL_KEEP_SIZE;
    opcode::Fallocate::new(file, bytes.into()).offset(offset).mode(mode).build()
}

impl Backend for Files {
    fn submit(&mut self, request: Request) {
        let entry = self.entry(request);
        loop {
            // SAFETY: the buffer is this backend's until completion, by the trait's contract, and mapped for as long as the
            // ring lives; the files are open for as long.
            let pushed = unsafe { self.ring.submission().push(&entry) };
            // At once, and not with those that are made next: meanwhile a quick device would have nothing to do. So is what was there before,
            // where it was full. An error comes again at the next push, where it can be told.
            let _ = self.ring.submit();
            if pushed.is_ok() {
                self.in_flight += 1;
                return;
            }
        }
    }

    fn push(&mut self) -> io::Result<()> {
        if self.ring.submission().is_empty() {
            return Ok(());
        }
        match self.ring.submit() {
            // The kernel is short of room for completions, or was interrupted: they are handed over next time.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EBUSY | libc::EAGAIN | libc::EINTR)) => Ok(()),
            other => other.map(drop),
        }
    }

    fn reap(&mut self, done: &mut Vec<Completion>) -> io::Result<()> {
        let before = done.len();
        done.extend(self.ring.completion().map(|entry| completion(&entry)));
        self.in_flight -= done.len() - before;
        Ok(())
    }

    fn wait(&mut self, at_most: Duration) -> io::Result<()> {
        let until = types::Timespec::from(at_most);
        let arguments = types::SubmitArgs::new().timespec(&until);
        match self.ring.submitter().submit_with_args(1, &arguments) {
            Err(e)
                if matches!(
                    e.raw_os_error(),
                    Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN)
                ) =>
            {
                Ok(())
            }
            other => other.map(drop),
        }
    }
}

fn completion(entry: &cqueue::Entry) -> Completion {
    let (slot, expected) = (entry.user_data() as u32, (entry.user_data() >> 32) as u32);
    let error = match entry.result() {
        result if result < 0 => -result,
        result if result as u32 == expected => 0,
        // Short: the file ends before what was asked for.
        _ => libc::EIO,
    };
    Completion { slot, error }
}

impl Drop for Files {
    fn drop(&mut self) {
        // What is in flight still writes to the buffers, which go after this.
        let mut done = Vec::new();
        let patience = Duration::from_millis(100);
        for _ in 0..600 {
            if self.in_flight == 0
                || self.reap(&mut done).is_err()
                || (self.in_flight > 0 && self.wait(patience).is_err())
            {
                break;
            }
        }
        if self.in_flight > 0 {
            // Better memory that is never given back than memory that is written to when it is another's.
            std::mem::forget(self.buffers.clone());
        }
    }
}
