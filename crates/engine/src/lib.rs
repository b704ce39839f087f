//! Where a pool's objects live.
//!
//! *Promises*: what [`Engine`] says about atomicity, durability and order, the same for every engine; one
//! conformance suite ([`conformance`]) runs against each of them. *Never*: looks inside an object (the one
//! exception is the header of a journal chunk, which tells where the next one begins), retries, or caches.
//! *Owns*: files, rings, connections. *May be used by*: the store, and nobody else; doors never see an engine.

pub mod chunks;
pub mod conformance;
mod directories;
mod file;
mod io;
mod key;
mod medium;
mod memory;
pub mod wrap;

pub use directories::{Directories, Directory, DirectoryState, Moving, Step};
pub use file::{Direct, FileEngine, Options as FileOptions};
pub use io::uring;
pub use key::Key;
pub use memory::MemoryEngine;
pub use wrap::{FaultEngine, ThrottleEngine, TraceEngine};

use async_trait::async_trait;
use bytes::Bytes;
use std::fmt;
use std::sync::Arc;
use stonefold_types::{Kind, Result};

/// What a compare-and-swap compares: opaque, equal only for the same write of the same object.
///
/// A file engine counts; an object store gives its ETag, made unique by a nonce in the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version(pub Arc<str>);

/// One incarnation of a gateway's journal: never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JournalId(pub [u8; 16]);

impl fmt::Display for JournalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for JournalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JournalId({self})")
    }
}

/// One object in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its key.
    pub key: Key,
    /// Its length in bytes.
    pub bytes: u64,
}

/// Room in the place where the objects live, for objects: each counted once however many copies it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Bytes of the place itself, whatever lies there and however many copies are kept.
    pub raw_bytes: u64,
    /// Bytes the place can hold in all.
    pub total_bytes: u64,
    /// Bytes still free.
    pub free_bytes: u64,
    /// Bytes that this pool's objects and journals occupy, physically (a copy of each).
    pub used_bytes: u64,
}

/// Whether bytes are what was put, by the word of whoever knows what they mean.
///
/// A name for the type, because `async_trait` cannot read it inside a signature.
pub type Sound<'a> = dyn Fn(&[u8]) -> bool + Send + Sync + 'a;

/// What a repair found, and did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// The range, sound.
    pub bytes: Bytes,
    /// Copies that were looked at.
    pub copies: u32,
    /// Copies of these that were damaged or missing, and are sound again, durably.
    pub healed: u32,
}

/// A store of objects and journals.
///
/// **Objects** are named by [`Key`] and come in two kinds. *Immutable* ones (segments) are put once with
/// [`put_new`](Engine::put_new) and never change. *Documents* (the pool's record, heads) are small, at most
/// 1 MiB, and change only by [`put_if`](Engine::put_if).
///
/// *Atomicity*: a put is seen whole or not at all, by every reader, after any crash. *Durability*: when a put or
/// a delete returns `Ok` it survives the loss of power. When it fails, or is dropped before it returns, it may
/// have happened or not, and whoever asked must read to learn which. *Order*: operations that overlap in time may
/// take effect in either order; one that begins after another returned sees its effect (read-after-write and
/// list-after-write consistency; an object store without them is refused). What a read or a listing has shown is
/// durable, even if the put behind it never returned.
///
/// **Places.** What each method is on the kinds of place that there are, or are meant to be; the trait is the same for all of them:
///
/// | | directories | an object store (S3) | RADOS |
/// |---|---|---|---|
/// | `put_new` | a file under a new name, synced, then linked | `PUT` with `If-None-Match: *` | a write operation that asserts absence |
/// | `put_if` | a swap under the directories' lock, by a counter | `PUT` with `If-Match: ETag`; a nonce in the object, so that equal bytes have different ETags | a write operation that asserts the object's version |
/// | `get_range` | a read of the file | `GET` with `Range` | a read |
/// | a put that may or may not have happened | read back after a crash | read back: the nonce tells whose it is | the same |
/// | `list` | the folder | `ListObjectsV2`, pages of a thousand | a listing of the pool's namespace |
/// | `repair` | every copy, or the file's own parity | the one copy: the place heals itself | the same |
/// | a journal's chunk | behind the last one in a file | an object under its number, `PUT` with `If-None-Match: *` | an append that asserts the epoch in the same operation |
/// | `append` returns | when the kernel has it | when the place has it, durably | when all replicas have it |
/// | `sync` | a flush of the files | has nothing left to do once every lower number is known to be there | the same |
///
/// A place is looked at when it is opened: one that does not do what is written here (an object store that takes `If-None-Match` for a remark; a listing that
/// comes late; a file system without a flush) is refused, by name and with the reason, before anything is stored there.
///
/// **Errors** carry a [`Kind`](stonefold_types::Kind): `NotFound`, `AlreadyExists` (put_new met an object),
/// `Conflict` (put_if met another version), `NoSpace` (nothing was changed), `Corrupt` (the engine's own check
/// failed and no good copy was left), `Io`.
#[async_trait]
pub trait Engine: Send + Sync + 'static {
    /// The pool's URL and how the engine reaches it ("file:///srv/pool, direct I/O through io_uring"), for people.
    fn describe(&self) -> String;

    /// Parts of the place that belong to it and are not used, by their names, so that what is kept has fewer copies
    /// than was asked for. Empty where all is well, and where the engine has no parts.
    fn missing(&self) -> Vec<String> {
        Vec::new()
    }

    /// The place's directories, where it has any that come and go.
    fn directories(&self) -> Option<&dyn Directories> {
        None
    }

    /// Copies that were found damaged or missing since the place was opened, and were made sound again: by a read, by
    /// [`repair`](Engine::repair), or by the engine itself. Never falls. 0 where a place heals by itself and does not tell.
    fn healed(&self) -> u64 {
        0
    }

    /// Puts an object that must not exist. `NoSpace` leaves nothing behind.
    /// A page-aligned buffer ([`AlignedBuf`](stonefold_types::AlignedBuf)) is written without a copy.
    async fn put_new(&self, key: &Key, bytes: Bytes) -> Result<Version>;

    /// Replaces a document whose version is `expected`; fails with `Conflict` when it is not.
    async fn put_if(&self, key: &Key, bytes: Bytes, expected: &Version) -> Result<Version>;

    /// The whole of an object, and its version.
    async fn get(&self, key: &Key) -> Result<(Bytes, Version)>;

    /// `len` bytes from `offset`; fewer only where the object ends. Fails with `NotFound` when the object is absent.
    async fn get_range(&self, key: &Key, offset: u64, len: usize) -> Result<Bytes>;

    /// Reads a range of an immutable object from every copy, gives back the first for which `sound` holds, and
    /// rewrites (durably) the copies for which it does not hold or that are missing. `None`: no copy is sound,
    /// nothing was changed.
    ///
    /// A copy that cannot be rewritten is counted in `copies` and not in `healed`; the bytes are sound all the same.
    async fn repair(
        &self,
        key: &Key,
        offset: u64,
        len: usize,
        sound: &Sound<'_>,
    ) -> Result<Option<Repaired>> {
        // Where the engine has one copy, or a place that heals by itself.
        match self.get_range(key, offset, len).await {
            Ok(bytes) if sound(&bytes) => Ok(Some(Repaired { bytes, copies: 1, healed: 0 })),
            Ok(_) => Ok(None),
            Err(error) if error.kind() == Kind::Corrupt => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Deletes an object; an absent one is no error.
    async fn delete(&self, key: &Key) -> Result<()>;

    /// Up to `limit` objects whose key begins with `prefix`, in the order of their keys, from the first key
    /// after `after`.
    async fn list(&self, prefix: &str, after: Option<&Key>, limit: usize) -> Result<Vec<Listed>>;

    /// Room left where the objects live.
    async fn room(&self) -> Result<Room>;

    /// Begins a journal that did not exist. Its first chunk has sequence number 0.
    async fn journal_create(&self, id: JournalId) -> Result<Arc<dyn Journal>>;

    /// The journals that exist.
    async fn journal_list(&self) -> Result<Vec<JournalId>>;

    /// Opens a journal for replay, and closes it for good: on return nobody can append to it any more. Everything the reader returns has
    /// been made durable before it returns it, in every copy, so that what is served from it cannot be lost by a later crash.
    ///
    /// *Who wrote it may still be alive* where several servers reach one place. On directories their lock shows that nobody is. On numbered
    /// objects the journal's record is swapped to say that it is closed (a trim needs the same swap, so none comes after), then the lowest number
    /// that is absent above its low-water mark is taken by a fence, put if absent, which is never deleted: an owner whose `append` meets it fails with
    /// `Conflict` and takes no more, and what lies beyond is void, as nothing counts as durable whose lower numbers are not known to be its own. An append
    /// that asserts an epoch is refused by the place itself.
    async fn journal_open(&self, id: JournalId) -> Result<Box<dyn JournalReader>>;

    /// Forgets a journal for good.
    async fn journal_remove(&self, id: JournalId) -> Result<()>;

    /// Nobody is going to use the place for a while: what is kept only to be fast, as files for the next journal to overwrite, is given back.
    /// Changes nothing of what is stored, and nothing for calls that come all the same; what could not be given back is tried again
    /// the next time.
    async fn rest(&self) {}
}

/// The writing end of one incarnation of a journal.
///
/// A journal is a sequence of *chunks*, each of which begins with the header that
/// [`stonefold_format::chunk`] draws: incarnation, sequence number, length, checksum. On a local file system
/// they lie one behind the other; on an object store each is an object under its sequence number, put if absent.
#[async_trait]
pub trait Journal: Send + Sync {
    /// Appends the next chunk. Calls are made one at a time, each after the last returned; sequence numbers are
    /// contiguous. On return the chunk outlives this process, but not the loss of power.
    ///
    /// On numbered objects a put whose answer was lost is read back: the chunk's header tells whether the number is its own. `Conflict`: somebody has
    /// [opened](Engine::journal_open) the journal, and it is nobody's to write.
    ///
    /// `NoSpace` changed nothing, and the same chunk can be tried again. After any other error, and after a call that was dropped before it
    /// returned, this journal takes no more chunks: what memory still holds goes into a new journal.
    async fn append(&self, chunk: Bytes) -> Result<()>;

    /// Makes every chunk durable whose `append` returned before this call began. May run beside `append`.
    ///
    /// An error is final: it is never repaired by calling again, because the kernel may have dropped what it
    /// could not write.
    async fn sync(&self) -> Result<()>;

    /// Allows chunks with a sequence number under `below` to be forgotten. They may still come back in a replay.
    async fn trim(&self, below: u64) -> Result<()>;
}

/// The reading end of a journal, for replay.
#[async_trait]
pub trait JournalReader: Send {
    /// The next chunk, whole and with a valid header checksum, from the oldest that was kept. `None` at the first
    /// that is missing, torn or of another incarnation: what lies beyond was never durable. Fails with `Corrupt` when a
    /// chunk beyond says that it was.
    async fn next(&mut self) -> Result<Option<Bytes>>;
}
