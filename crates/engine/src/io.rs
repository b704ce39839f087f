//! Reading, writing and syncing files without blocking the caller's thread.
//!
//! *Promises*: one interface over two ways: the calling thread's ring ([`crate::uring`]) where it has one, else a
//! few threads of its own. Buffers and files belong to the operation until the kernel is done with them, so that a
//! future can be dropped at any time. *Never*: retries an error, or interprets bytes. *Owns*: the threads and the
//! rings. *May be used by*: the file engine.

mod flight;
mod pool;
pub mod uring;

use crate::medium;
use bytes::Bytes;
use flight::Work;
use pool::Pool;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use stonefold_types::AlignedBuf;

/// The longest single write, in bytes: a segment goes in parts, so that the journal's small writes find their way in between. One of
/// 16 MiB keeps a fast disk busy for some ten milliseconds.
const REQUEST_BYTES_MAX: usize = 1 << 20;

/// A way to files. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Io {
    pool: Arc<Pool>,
}

impl Io {
    pub(crate) fn new() -> Self {
        Io { pool: Arc::new(Pool::default()) }
    }

    /// Runs something that blocks (opening, renaming, listing) on one of the threads.
    pub(crate) async fn blocking<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        self.pool.run(job).await
    }

    /// Fills `buf` from `offset`; its length afterwards is what the file had.
    pub(crate) async fn read_at(
        &self,
        file: &Arc<File>,
        mut buf: AlignedBuf,
        offset: u64,
    ) -> io::Result<AlignedBuf> {
        let (want, mut done) = (buf.len(), 0);
        loop {
            let work = Work::Read { buf, from: done, offset: offset + done as u64 };
            let (result, Work::Read { buf: back, .. }) = self.perform(file, work).await else {
                unreachable!("a read gives its buffer back")
            };
            buf = back;
            let got = result?;
            done += got;
            // A direct read stops inside a sector only where the file ends.
            if got == 0 || done == want || done % AlignedBuf::ALIGN != 0 {
                buf.set_len(done);
                return Ok(buf);
            }
        }
    }

    /// Writes all of `bytes` at `offset`.
    pub(crate) async fn write_all_at(&self, file: &Arc<File>, bytes: Bytes, offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let end = bytes.len().min(done + REQUEST_BYTES_MAX);
            let work = Work::Write { bytes: bytes.slice(done..end), offset: offset + done as u64 };
            match self.perform(file, work).await.0? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                wrote => done += wrote,
            }
        }
        Ok(())
    }

    /// Makes the file's data durable, and what metadata is needed to reach it.
    pub(crate) async fn datasync(&self, file: &Arc<File>) -> io::Result<()> {
        let syncing = medium::begin(file)?;
        self.perform(file, Work::Datasync).await.0?;
        syncing.end()
    }

    async fn perform(&self, file: &Arc<File>, work: Work) -> (io::Result<usize>, Work) {
        match uring::start(file, work) {
            Ok(landing) => landing.await,
            Err(mut work) => {
                let file = file.clone();
                self.pool
                    .run(move || {
                        let result = plainly(&file, &mut work);
                        (result, work)
                    })
                    .await
            }
        }
    }
}

/// One request by an ordinary system call.
fn plainly(file: &File, work: &mut Work) -> io::Result<usize> {
    loop {
        let result = match work {
            Work::Read { buf, from, offset } => file.read_at(&mut buf[*from..], *offset),
            Work::Write { bytes, offset } => file.write_at(bytes, *offset),
            Work::Datasync => file.sync_data().map(|()| 0),
        };
        match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
