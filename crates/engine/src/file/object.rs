//! One copy of an object, as a file: write, name, look, read, delete.
//!
//! A put writes a file of no name, makes it durable, gives it its name, makes the name durable: in that order, so
//! that a name never leads to half an object. Whoever reads the key meanwhile waits for the key's lock, so that
//! nothing is shown that a loss of power could still take back. What keeps the copies together is [`super::copies`].

use super::durable::{rename_new, sync_file, unsupported};
use super::handles::Handle;
use super::header::{Header, SUMMED_BYTES_MAX, front, front_bytes, header_bytes};
use super::layout::Place;
use super::member::{Member, SharedFile, Temporary, file_error, occupied_by, opening_error};
use super::planted;
use super::private;
use super::whole::{Whole, length, read_and_mend};
use crate::Key;
use bytes::Bytes;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stonefold_types::{AlignedBuf, Error, Kind, Result};

/// Objects longer than this are written and read around the page cache; shorter ones, the documents, through it:
/// one system call does it, and they are read again soon.
const DIRECT_FROM_BYTES: usize = 64 << 10;
/// Bytes copied at once where the caller's buffer is not aligned.
const COPY_BYTES: usize = 1 << 20;

impl Member {
    /// Gives a written file its name, durably. `replaces`: over what has the name already.
    pub(super) async fn publish(
        self: &Arc<Self>,
        key: &Key,
        temporary: Temporary,
        replaces: bool,
    ) -> Result<()> {
        let place = self.layout.place(key)?;
        let _held = self.lock_key(key).await;
        self.check_sound()?;
        self.ensure_folder(&place).await?;
        let member = self.clone();
        let named = self.io.blocking(move || -> Result<()> {
            // Moved in whole: a closure would take its flag alone.
            let mut temporary = temporary;
            let failed = |e| file_error("putting", &place.file, e);
            let before_bytes = if replaces {
                let before = fs::metadata(&place.file).map_or(0, |before| occupied_by(&before));
                fs::rename(&temporary.path, &place.file).map_err(failed)?;
                before
            } else {
                rename_new(&temporary.path, &place.file).map_err(failed)?;
                0
            };
            temporary.kept = true;
            let after = fs::metadata(&place.file).map_err(failed)?;
            member.count_bytes(before_bytes, occupied_by(&after));
            if planted::is("name-not-synced") { Ok(()) } else { member.sync_folder_now(&place.folder) }
        });
        let result = named.await;
        self.handles.forget(key);
        result
    }

    /// Writes a durable file without its name; where the disk is full, spare journal files give way.
    pub(super) async fn stage(self: &Arc<Self>, header: &Header, bytes: Bytes) -> Result<Temporary> {
        self.check_sound()?;
        match self.write(header, bytes.clone()).await {
            Err(error) if error.kind() == Kind::NoSpace => {
                let released = self.release_spares().await;
                if released == 0 { Err(error) } else { self.write(header, bytes).await }
            }
            other => other,
        }
    }

    /// Writes a durable file without its name.
    async fn write(self: &Arc<Self>, header: &Header, bytes: Bytes) -> Result<Temporary> {
        let temporary = Temporary { path: self.temporary_path(), kept: false };
        let header = header.clone();
        if !self.is_direct() || bytes.len() <= DIRECT_FROM_BYTES {
            return self.io.blocking(move || write_through_cache(temporary, &header, &bytes)).await;
        }
        let (member, payload) = (self.clone(), bytes.clone());
        let created = self.io.blocking(move || {
            let front = front(&header, &payload).freeze();
            let created = create(&member, temporary, front.len() + payload.len());
            created.map(|(temporary, file)| (temporary, file, front))
        });
        let (temporary, file, front) = created.await?;
        let front_len = front.len();
        let aligned = bytes.len() / AlignedBuf::ALIGN * AlignedBuf::ALIGN;
        let body = bytes.slice(..aligned);
        let failed = |e| file_error("writing", &temporary.path, e);
        let body = self.write_aligned(&file, body, front_len);
        futures::future::try_join(self.io.write_all_at(&file, front, 0), body).await.map_err(failed)?;
        let tail = bytes.slice(aligned..);
        if !tail.is_empty() {
            // Direct I/O cannot end inside a sector, and cutting a padded file costs the same page written once
            // more: so the last page alone goes through the cache.
            let (path, at) = (temporary.path.clone(), (front_len + aligned) as u64);
            let written = self
                .io
                .blocking(move || fs::OpenOptions::new().write(true).open(&path)?.write_all_at(&tail, at));
            written.await.map_err(|e| opening_error("writing", &temporary.path, e))?;
        }
        if !planted::is("object-not-synced") {
            self.io.datasync(&file).await.map_err(failed)?;
        }
        Ok(temporary)
    }

    /// Writes whole pages from `at` on; a buffer that is not page-aligned is copied piece by piece.
    async fn write_aligned(&self, file: &SharedFile, bytes: Bytes, at: usize) -> std::io::Result<()> {
        if bytes.as_ptr().align_offset(AlignedBuf::ALIGN) == 0 {
            return self.io.write_all_at(file, bytes, at as u64).await;
        }
        for (index, piece) in bytes.chunks(COPY_BYTES).enumerate() {
            let at = (at + index * COPY_BYTES) as u64;
            self.io.write_all_at(file, AlignedBuf::copy_of(piece).freeze(), at).await?;
        }
        Ok(())
    }

    /// Makes the folder of an object durable before anything is named in it.
    async fn ensure_folder(self: &Arc<Self>, place: &Place) -> Result<()> {
        let mut known = self.folders.lock().await;
        if known.contains(&place.folder) {
            return Ok(());
        }
        let (member, kind, folder) = (self.clone(), place.kind.clone(), place.folder.clone());
        let made = self.io.blocking(move || -> Result<()> {
            private::make_folders(&folder).map_err(|e| file_error("making folder", &folder, e))?;
            if planted::is("bucket-not-synced") {
                return Ok(());
            }
            member.sync_folder_now(&kind)?;
            member.sync_folder_now(&member.layout.objects())
        });
        made.await?;
        known.insert(place.folder.clone());
        Ok(())
    }

    /// An object's header, and its payload too when it is a document's; both sound, and mended where they were not. `None` when it is
    /// absent.
    pub(super) async fn look(self: &Arc<Self>, key: &Key) -> Result<Option<(Header, Option<Bytes>)>> {
        let path = self.layout.place(key)?.file;
        let _held = self.lock_key(key).await;
        let found = self.io.blocking(move || match read_document(&path) {
            Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::Io) => {
                let mended = read_and_mend(&path).is_ok_and(|whole| whole.mended > 0);
                let again = if mended { read_document(&path) } else { Err(error) };
                again.map(|found| (found, mended))
            }
            done => done.map(|found| (found, false)),
        });
        match found.await {
            Ok((found, mended)) => {
                if mended {
                    self.tell_mended(key);
                }
                Ok(Some(found))
            }
            Err(error) if error.kind() == Kind::NotFound => Ok(None),
            Err(error) => Err(self.named(error, key)),
        }
    }

    /// All of an object, read from the medium and held against the checksums of its pages; what its parity can mend is mended. The
    /// payload may have lost pages.
    pub(super) async fn read_and_mend(self: &Arc<Self>, key: &Key) -> Result<Whole> {
        let path = self.layout.place(key)?.file;
        let _held = self.lock_key(key).await;
        let whole = self.io.blocking(move || read_and_mend(&path)).await.map_err(|e| self.named(e, key))?;
        if whole.mended > 0 {
            self.tell_mended(key);
        }
        Ok(whole)
    }

    fn tell_mended(&self, key: &Key) {
        self.healed.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(
            "object '{key}' in '{}' was damaged, and was mended by its own parity",
            self.path().display()
        );
    }

    /// A copy was damaged or missing here, and was made sound from another.
    pub(super) fn tell_healed(&self, key: &Key) {
        self.healed.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(
            "object '{key}' in '{}' was damaged or missing, and is made sound from another copy",
            self.path().display()
        );
    }

    /// Part of an object.
    pub(super) async fn get_range(self: &Arc<Self>, key: &Key, offset: u64, len: usize) -> Result<Bytes> {
        let handle = self.handle(key).await?;
        self.read_handle(key, &handle, offset, len).await
    }

    /// An object, open for reading.
    pub(super) async fn handle(self: &Arc<Self>, key: &Key) -> Result<Arc<Handle>> {
        match self.handles.find(key) {
            Some(handle) => Ok(handle),
            None => self.open_handle(key).await,
        }
    }

    /// Part of an open object.
    pub(super) async fn read_handle(
        &self,
        key: &Key,
        handle: &Handle,
        offset: u64,
        len: usize,
    ) -> Result<Bytes> {
        let begin = offset.min(handle.len);
        let end = begin.saturating_add(len as u64).min(handle.len);
        if begin == end {
            return Ok(Bytes::new());
        }
        // Whole sectors, which the header's page leaves aligned; a file's last one may be short.
        let align = self.read_align() as u64;
        let first = begin / align * align;
        let span = (end.next_multiple_of(align) - first) as usize;
        let at = front_bytes(handle.len) as u64 + first;
        let read = self.io.read_at(&handle.file, AlignedBuf::stale(span), at).await;
        let read = read.map_err(|e| {
            Error::io(format!("reading object '{key}' in '{}' at {begin}", self.path().display()), e)
        })?;
        if (read.len() as u64) < end - first {
            let ends = first + read.len() as u64;
            let why = format!("it ends at {ends} although it has {} bytes", handle.len);
            return Err(self.named(Error::new(Kind::Corrupt, why), key));
        }
        Ok(read.freeze().slice((begin - first) as usize..(end - first) as usize))
    }

    /// The words of an error in terms of the object rather than of its file, where the caller knows better.
    pub(super) fn named(&self, error: Error, key: &Key) -> Error {
        match error.kind() {
            Kind::NotFound => not_found(key),
            Kind::Corrupt => error
                .context(format!("object '{key}' in '{}'", self.path().display()))
                .remedy("run a scrub, or restore it"),
            _ => error,
        }
    }

    /// Opens an object for reading, and keeps it open.
    async fn open_handle(self: &Arc<Self>, key: &Key) -> Result<Arc<Handle>> {
        let path = self.layout.place(key)?.file;
        let _held = self.lock_key(key).await;
        if let Some(handle) = self.handles.find(key) {
            return Ok(handle);
        }
        let member = self.clone();
        let opened = self.io.blocking(move || -> Result<(File, u64)> {
            let opened = member.open_options().read(true).open(&path);
            let file = opened.map_err(|e| file_error("opening", &path, e))?;
            let len = length(&path, &file)?;
            Ok((file, len))
        });
        let (file, len) = opened.await.map_err(|e| self.named(e, key))?;
        let handle = Handle::new(file, len);
        self.handles.keep(key, handle.clone());
        Ok(handle)
    }

    /// Writes over part of an object that is there, durably: sound bytes over damaged ones.
    pub(super) async fn mend(self: &Arc<Self>, key: &Key, offset: u64, bytes: Bytes) -> Result<()> {
        let path = self.layout.place(key)?.file;
        let _held = self.lock_key(key).await;
        self.check_sound()?;
        let file = path;
        let mended = self.io.blocking(move || {
            // Through the page cache: a range begins and ends anywhere.
            let failed = |e| file_error("mending", &file, e);
            let to = fs::OpenOptions::new().write(true).open(&file);
            let to = to.map_err(|e| opening_error("mending", &file, e))?;
            let at = front_bytes(length(&file, &to)?) as u64 + offset;
            to.write_all_at(&bytes, at).and_then(|()| sync_file(&to)).map_err(failed)
        });
        mended.await.map_err(|e| self.named(e, key))
    }

    /// Deletes an object, durably.
    pub(super) async fn delete(self: &Arc<Self>, key: &Key) -> Result<()> {
        let place = self.layout.place(key)?;
        let _held = self.lock_key(key).await;
        self.check_sound()?;
        let member = self.clone();
        let gone = self.io.blocking(move || -> Result<()> {
            let failed = |e| file_error("deleting", &place.file, e);
            match fs::metadata(&place.file).and_then(|m| fs::remove_file(&place.file).map(|()| m)) {
                Ok(metadata) => member.count_bytes(occupied_by(&metadata), 0),
                // An earlier delete may have been cut short of its durability only by a failure, which is final,
                // or by a crash, after which the pool was synced: so absent means durably absent.
                Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
                Err(e) => return Err(failed(e)),
            }
            if planted::is("deletion-not-synced") { Ok(()) } else { member.sync_folder_now(&place.folder) }
        });
        let result = gone.await;
        self.handles.forget(key);
        result
    }
}

/// Creates a file of its full length at once: a full disk says so before anything is written.
fn create(member: &Member, temporary: Temporary, len: usize) -> Result<(Temporary, SharedFile)> {
    let failed = |e| file_error("writing", &temporary.path, e);
    let opened = member.open_options().write(true).create_new(true).open(&temporary.path);
    let file = opened.map_err(|e| opening_error("writing", &temporary.path, e))?;
    match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, len as u64) {
        Err(e) if !unsupported(e) => return Err(failed(e.into())),
        _ => {}
    }
    Ok((temporary, Arc::new(file)))
}

fn write_through_cache(temporary: Temporary, header: &Header, payload: &[u8]) -> Result<Temporary> {
    let front = front(header, payload);
    let opened = private::options().write(true).create_new(true).open(&temporary.path);
    let file = opened.map_err(|e| opening_error("writing", &temporary.path, e))?;
    let write = || {
        file.write_all_at(&front, 0)?;
        file.write_all_at(payload, front.len() as u64)?;
        if planted::is("object-not-synced") { Ok(()) } else { sync_file(&file) }
    };
    write().map_err(|e| file_error("writing", &temporary.path, e))?;
    Ok(temporary)
}

/// The header, and the payload too when it is a document's; both sound.
fn read_document(path: &Path) -> Result<(Header, Option<Bytes>)> {
    let failed = |e| file_error("reading", path, e);
    let file = File::open(path).map_err(|e| opening_error("reading", path, e))?;
    let len = length(path, &file)?;
    let is_document = len <= SUMMED_BYTES_MAX as u64;
    let whole = if is_document { front_bytes(len) + len as usize } else { header_bytes(len) };
    let mut bytes = AlignedBuf::zeroed(whole);
    file.read_exact_at(&mut bytes, 0).map_err(failed)?;
    let (header, _) = Header::decode(&bytes, len)?;
    let payload = is_document.then(|| bytes.freeze().slice(front_bytes(len)..));
    payload.iter().try_for_each(|payload| header.verify(payload))?;
    Ok((header, payload))
}

pub(super) fn not_found(key: &Key) -> Error {
    Error::new(Kind::NotFound, format!("object '{key}' does not exist"))
}
