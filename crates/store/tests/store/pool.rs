//! Pools in memory: opening them, and what every theme does with disks.

use std::sync::Arc;
use stonefold_engine::Engine;
use stonefold_env::{Env, SystemWorld};
use stonefold_store::{Attachment, Keys, MasterKey, Options, Secret, Store};
use stonefold_types::{DiskSettings, Name, Result, SnapshotName};

pub(crate) use stonefold_dice::noise;

/// Bytes of a block.
pub(crate) const BLOCK: usize = 4096;

/// Bytes of a disk that [`create`] makes: more than a test writes, and what is not written costs nothing.
pub(crate) const DISK_BYTES: u64 = 1 << 30;

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub(crate) fn snap(text: &str) -> SnapshotName {
    text.parse().unwrap()
}

/// Runs a test on a thread of its own, with the real clock.
pub(crate) fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// The real world, with one worker.
pub(crate) fn env() -> Env {
    Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap())
}

/// So many MiB of cache and of journal, and otherwise what is usual.
pub(crate) fn options(cache_mib: u64, journal_mib: u64) -> Options {
    Options { cache_bytes: cache_mib << 20, journal_bytes_max: journal_mib << 20, ..Options::default() }
}

/// A master key of one byte over and over.
pub(crate) fn master(byte: u8) -> Keys {
    Keys { master: Some(MasterKey::Key(Secret::new(&[byte; 32]))), ..Keys::default() }
}

pub(crate) async fn try_open(engine: Arc<dyn Engine>, options: Options) -> Result<Arc<Store>> {
    Store::open(env(), engine, options).await
}

pub(crate) async fn open(engine: Arc<dyn Engine>, options: Options) -> Arc<Store> {
    try_open(engine, options).await.unwrap()
}

/// An open store whose first round of the fold and first pass of reclaim are over: nothing stirs by itself for a while, so that
/// what is made slow next is what the test does.
pub(crate) async fn settled(engine: &Arc<dyn Engine>) -> Arc<Store> {
    let store = open(engine.clone(), Options { keys: master(7), ..options(8, 16) }).await;
    store.reclaim().await.unwrap();
    store
}

pub(crate) async fn create(store: &Store, disk: &str) {
    create_sized(store, disk, DISK_BYTES).await;
}

pub(crate) async fn create_sized(store: &Store, disk: &str, bytes: u64) {
    store.create_disk(&name(disk), bytes, DiskSettings::default()).await.unwrap();
}

pub(crate) fn attach(store: &Arc<Store>, export: &str) -> Attachment {
    store.attach(&export.parse().unwrap()).unwrap()
}

pub(crate) async fn write(store: &Arc<Store>, disk: &str, offset: u64, data: &[u8]) {
    attach(store, disk).write(offset, data, false).await.unwrap();
}

pub(crate) async fn read(store: &Arc<Store>, export: &str, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xee; len];
    attach(store, export).read(offset, &mut bytes).await.unwrap();
    bytes
}

/// All of a disk or a snapshot; what the cache says of it is the same.
pub(crate) async fn contents(attachment: &Attachment) -> Vec<u8> {
    let mut bytes = vec![0xee; attachment.size_bytes() as usize];
    attachment.read(0, &mut bytes).await.unwrap();
    let mut again = vec![0xee; bytes.len()];
    if let Some(done) = attachment.read_cached(0, &mut again) {
        done.unwrap();
        assert!(bytes == again, "a cached read differs");
    }
    bytes
}

/// Bytes of all segments.
pub(crate) async fn segment_bytes(engine: &Arc<dyn Engine>) -> u64 {
    engine.list("segment/", None, 1 << 20).await.unwrap().iter().map(|one| one.bytes).sum()
}

/// One of the pool's counters.
pub(crate) async fn counter(store: &Store, name: &str) -> u64 {
    let counters = store.status().await.unwrap().counters;
    counters.iter().find(|(counter, _, _)| *counter == name).unwrap().2
}

/// A check finds nothing.
pub(crate) async fn sound(store: &Store) {
    let checked = store.check().await.unwrap();
    assert_eq!((&checked.problems[..], checked.lost_blocks), (&[][..], 0), "{checked:?}");
}
