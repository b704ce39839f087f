//! Objects as files: put, get, delete.
//!
//! A put writes a file of no name, makes it durable, gives it its name, makes the name durable: in that order, so
//! that a name never leads to half an object. Whoever reads the key meanwhile waits for the key's lock, so that
//! nothing is shown that a loss of power could still take back.

use super::durable::{rename_new, unsupported};
use super::handles::Handle;
use super::header::{HEADER_BYTES, Header, SUMMED_BYTES_MAX};
use super::layout::Place;
use super::member::{Member, SharedFile, Temporary, file_error, occupied_by};
use crate::io::buffers;
use crate::{Key, Version};
use bytes::Bytes;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use stonefold_types::{AlignedBuf, Error, Kind, Result};

/// Objects longer than this are written and read around the page cache; shorter ones, the documents, through it:
/// one system call does it, and they are read again soon.
const DIRECT_FROM_BYTES: usize = 64 << 10;
/// Bytes copied at once where the caller's buffer is not aligned.
const COPY_BYTES: usize = 1 << 20;

impl Member {
    /// Puts an object: a new one, or over the version `expected`.
    pub(super) async fn put(
        self: &Arc<Self>,
        key: &Key,
        bytes: Bytes,
        expected: Option<&Version>,
    ) -> Result<Version> {
        let place = self.layout.place(key)?;
        let _held = self.lock_key(key).await;
        self.check_sound()?;
        let count = self.check_expected(key, &place, expected).await? + 1;
        let header = Header::of(&bytes, count, self.env.random());
        let temporary = self.write_or_make_room(&header, bytes).await?;
        self.ensure_folder(&place).await?;

        let _settling = self.settling.read().await;
        let member = self.clone();
        let replaces = expected.is_some();
        let named = self.io.blocking(move || -> Result<()> {
            // Moved in whole: a closure would take its flag alone.
            let mut temporary = temporary;
            let failed = |e| file_error("putting", &place.file, e);
            let before_bytes = if replaces {
                let before = fs::metadata(&place.file).map_err(failed)?;
                fs::rename(&temporary.path, &place.file).map_err(failed)?;
                occupied_by(&before)
            } else {
                rename_new(&temporary.path, &place.file).map_err(failed)?;
                0
            };
            temporary.kept = true;
            let after = fs::metadata(&place.file).map_err(failed)?;
            member.count_bytes(before_bytes, occupied_by(&after));
            member.sync_folder_now(&place.folder)
        });
        let result = named.await;
        self.handles.forget(key);
        result?;
        Ok(header.version())
    }

    /// The number of the put that made what is there now; 0 for nothing.
    async fn check_expected(&self, key: &Key, place: &Place, expected: Option<&Version>) -> Result<u64> {
        let path = place.file.clone();
        let Some(expected) = expected else {
            let there = self.io.blocking(move || path.try_exists()).await;
            return match there {
                Ok(false) => Ok(0),
                Ok(true) => Err(Error::new(Kind::AlreadyExists, format!("object '{key}' exists already"))),
                Err(e) => Err(file_error("looking for", &place.file, e)),
            };
        };
        let found = self.io.blocking(move || read_header(&path)).await;
        let found = found.map_err(|e| named(e, key))?;
        let version = found.version();
        if version != *expected {
            let why = format!("object '{key}' is version {}, not {}", version.0, expected.0);
            return Err(Error::new(Kind::Conflict, why).remedy("read it again"));
        }
        Ok(found.count)
    }

    /// Writes a durable file without its name; where the disk is full, spare journal files give way.
    async fn write_or_make_room(self: &Arc<Self>, header: &Header, bytes: Bytes) -> Result<Temporary> {
        match self.write(header, bytes.clone()).await {
            Err(error) if error.kind() == Kind::NoSpace => {
                let member = self.clone();
                let released = self.io.blocking(move || member.spares.release()).await;
                self.count_bytes(released, 0);
                if released == 0 { Err(error) } else { self.write(header, bytes).await }
            }
            other => other,
        }
    }

    /// Writes a durable file without its name.
    async fn write(self: &Arc<Self>, header: &Header, bytes: Bytes) -> Result<Temporary> {
        let temporary = Temporary { path: self.temporary_path(), kept: false };
        let page = header.encode().freeze();
        if !self.is_direct() || bytes.len() <= DIRECT_FROM_BYTES {
            return self.io.blocking(move || write_through_cache(temporary, &page, &bytes)).await;
        }
        let (member, len) = (self.clone(), HEADER_BYTES + bytes.len());
        let created = self.io.blocking(move || create(&member, temporary, len)).await;
        let (temporary, file) = created?;
        let aligned = bytes.len() / AlignedBuf::ALIGN * AlignedBuf::ALIGN;
        let body = bytes.slice(..aligned);
        let failed = |e| file_error("writing", &temporary.path, e);
        futures::future::try_join(self.io.write_all_at(&file, page, 0), self.write_aligned(&file, body))
            .await
            .map_err(failed)?;
        let tail = bytes.slice(aligned..);
        if !tail.is_empty() {
            // Direct I/O cannot end inside a sector, and cutting a padded file costs the same page written once
            // more: so the last page alone goes through the cache.
            let (path, at) = (temporary.path.clone(), (HEADER_BYTES + aligned) as u64);
            let written = self
                .io
                .blocking(move || fs::OpenOptions::new().write(true).open(&path)?.write_all_at(&tail, at));
            written.await.map_err(failed)?;
        }
        self.io.datasync(&file).await.map_err(failed)?;
        Ok(temporary)
    }

    /// Writes whole pages behind the header; a buffer that is not page-aligned is copied piece by piece.
    async fn write_aligned(&self, file: &SharedFile, bytes: Bytes) -> std::io::Result<()> {
        if bytes.as_ptr().align_offset(AlignedBuf::ALIGN) == 0 {
            return self.io.write_all_at(file, bytes, HEADER_BYTES as u64).await;
        }
        for (index, piece) in bytes.chunks(COPY_BYTES).enumerate() {
            let at = (HEADER_BYTES + index * COPY_BYTES) as u64;
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
            fs::create_dir_all(&folder).map_err(|e| file_error("making folder", &folder, e))?;
            member.sync_folder_now(&kind)?;
            member.sync_folder_now(&member.layout.objects())
        });
        made.await?;
        known.insert(place.folder.clone());
        Ok(())
    }

    /// The whole of an object. A document is verified.
    pub(super) async fn get(self: &Arc<Self>, key: &Key) -> Result<(Bytes, Version)> {
        loop {
            let (header, document) = self.look(key).await?;
            let payload = match document {
                Some(payload) => payload,
                None => {
                    let payload = self.get_range(key, 0, usize::MAX).await?;
                    // Meanwhile another object may have come in its place.
                    if self.look(key).await?.0 != header {
                        continue;
                    }
                    payload
                }
            };
            header.verify(&payload).map_err(|e| named(e, key))?;
            return Ok((payload, header.version()));
        }
    }

    /// An object's header, and its payload too when it is a document's.
    async fn look(self: &Arc<Self>, key: &Key) -> Result<(Header, Option<Bytes>)> {
        let path = self.layout.place(key)?.file;
        let _held = self.lock_key(key).await;
        self.io.blocking(move || read_document(&path)).await.map_err(|e| named(e, key))
    }

    /// Part of an object.
    pub(super) async fn get_range(self: &Arc<Self>, key: &Key, offset: u64, len: usize) -> Result<Bytes> {
        let handle = match self.handles.find(key) {
            Some(handle) => handle,
            None => self.open_handle(key).await?,
        };
        let begin = offset.min(handle.len);
        let end = begin.saturating_add(len as u64).min(handle.len);
        if begin == end {
            return Ok(Bytes::new());
        }
        // Whole pages, which the header's page leaves aligned; a file's last page may be short.
        let align = AlignedBuf::ALIGN as u64;
        let first = begin / align * align;
        let span = (end.next_multiple_of(align) - first) as usize;
        let read = self.io.read_at(&handle.file, buffers::take(span), HEADER_BYTES as u64 + first).await;
        let read = read.map_err(|e| Error::io(format!("reading object '{key}' at {begin}"), e))?;
        if (read.len() as u64) < end - first {
            let why = format!(
                "object '{key}' ends at {} although it has {} bytes",
                first + read.len() as u64,
                handle.len
            );
            return Err(Error::new(Kind::Corrupt, why).remedy("run a scrub"));
        }
        Ok(buffers::freeze(read).slice((begin - first) as usize..(end - first) as usize))
    }

    /// Opens an object for reading, and keeps it open.
    async fn open_handle(self: &Arc<Self>, key: &Key) -> Result<Arc<Handle>> {
        let path = self.layout.place(key)?.file;
        let _held = self.lock_key(key).await;
        if let Some(handle) = self.handles.find(key) {
            return Ok(handle);
        }
        let member = self.clone();
        let opened = self.io.blocking(move || -> std::io::Result<(File, u64)> {
            let file = member.open_options().read(true).open(&path)?;
            let len = file.metadata()?.len();
            Ok((file, len))
        });
        let (file, len) = opened.await.map_err(|e| open_error(e, key))?;
        let Some(len) = len.checked_sub(HEADER_BYTES as u64) else {
            return Err(Error::new(Kind::Corrupt, format!("object '{key}' is shorter than its header")));
        };
        let handle = Handle::new(file, len);
        self.handles.keep(key, handle.clone());
        Ok(handle)
    }

    /// Deletes an object, durably.
    pub(super) async fn delete(self: &Arc<Self>, key: &Key) -> Result<()> {
        let place = self.layout.place(key)?;
        let _held = self.lock_key(key).await;
        self.check_sound()?;
        let _settling = self.settling.read().await;
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
            member.sync_folder_now(&place.folder)
        });
        let result = gone.await;
        self.handles.forget(key);
        result
    }
}

/// Creates a file of its full length at once: a full disk says so before anything is written.
fn create(member: &Member, temporary: Temporary, len: usize) -> Result<(Temporary, SharedFile)> {
    let failed = |e| file_error("writing", &temporary.path, e);
    let file = member.open_options().write(true).create_new(true).open(&temporary.path).map_err(failed)?;
    match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, len as u64) {
        Err(e) if !unsupported(e) => return Err(failed(e.into())),
        _ => {}
    }
    Ok((temporary, Arc::new(file)))
}

fn write_through_cache(temporary: Temporary, page: &[u8], payload: &[u8]) -> Result<Temporary> {
    let write = || {
        let file = File::create_new(&temporary.path)?;
        file.write_all_at(page, 0)?;
        file.write_all_at(payload, HEADER_BYTES as u64)?;
        file.sync_data()
    };
    write().map_err(|e| file_error("writing", &temporary.path, e))?;
    Ok(temporary)
}

pub(super) fn read_header(path: &Path) -> Result<Header> {
    Header::decode(&read_beginning(path, HEADER_BYTES)?)
}

/// The header, and the payload too when it is a document's.
fn read_document(path: &Path) -> Result<(Header, Option<Bytes>)> {
    let bytes = read_beginning(path, HEADER_BYTES + SUMMED_BYTES_MAX)?;
    let header = Header::decode(&bytes)?;
    let payload = (header.len <= SUMMED_BYTES_MAX as u64).then(|| bytes.freeze().slice(HEADER_BYTES..));
    Ok((header, payload))
}

/// All of a file that is no longer than `whole_max`, the header's page of a longer one.
fn read_beginning(path: &Path, whole_max: usize) -> Result<AlignedBuf> {
    let failed = |e| Error::io(format!("reading '{}'", path.display()), e);
    let file = File::open(path).map_err(failed)?;
    let len = file.metadata().map_err(failed)?.len();
    if len < HEADER_BYTES as u64 {
        return Err(Error::new(Kind::Corrupt, "it is shorter than its header"));
    }
    let mut bytes = AlignedBuf::zeroed(if len > whole_max as u64 { HEADER_BYTES } else { len as usize });
    file.read_exact_at(&mut bytes, 0).map_err(failed)?;
    Ok(bytes)
}

/// The words of an error in terms of the object rather than of its file, where the caller knows better.
pub(super) fn named(error: Error, key: &Key) -> Error {
    match error.kind() {
        Kind::NotFound => not_found(key),
        Kind::Corrupt => error.context(format!("object '{key}'")).remedy("run a scrub, or restore it"),
        _ => error,
    }
}

fn open_error(error: std::io::Error, key: &Key) -> Error {
    match error.kind() {
        ErrorKind::NotFound => not_found(key),
        _ => Error::io(format!("opening object '{key}'"), error),
    }
}

fn not_found(key: &Key) -> Error {
    Error::new(Kind::NotFound, format!("object '{key}' does not exist"))
}
