use super::*;
use crate::conformance::{self, Place};
use rustix::process::getpid;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;
use stonefold_env::SystemWorld;
use stonefold_format::chunk;
use stonefold_needs::{Need, is_there};
use stonefold_types::Kind;

mod changes;
mod directed;
mod full;
mod left;
mod membership;
mod model;
mod power;
mod several;
mod worlds;

fn env() -> Env {
    Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap())
}

/// A directory, opened in one way.
struct Dir {
    env: Env,
    options: Options,
}

#[async_trait]
impl Place for Dir {
    async fn open(&self) -> Arc<dyn Engine> {
        Arc::new(FileEngine::open(self.env.clone(), self.options.clone()).await.unwrap())
    }
}

/// As fixtures are kept.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Beside the sources rather than in /tmp, which may lie in memory.
fn tempdir() -> tempfile::TempDir {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target");
    tempfile::tempdir_in(beside).or_else(|_| tempfile::tempdir()).unwrap()
}

async fn open(options: &Options) -> Result<FileEngine> {
    FileEngine::open(env(), options.clone()).await
}

/// The same once the life before is over: a thread may still be about something for it.
async fn open_after(env: Env, options: &Options) -> Result<FileEngine> {
    loop {
        match FileEngine::open(env.clone(), options.clone()).await {
            Err(error) if error.kind() == Kind::Busy => env.sleep(Duration::from_millis(2)).await,
            other => return other,
        }
    }
}

/// The member of a pool on one directory.
fn only(engine: &FileEngine) -> Arc<member::Member> {
    engine.members.view().member(0).clone()
}

#[tokio::test]
async fn conforms_by_threads() {
    let dir = tempdir();
    conformance::run(&Dir { env: env(), options: Options::new(dir.path()) }).await;
}

#[tokio::test]
async fn conforms_by_ring() {
    let dir = tempdir();
    let lacking = uring::install().err().map(|error| error.to_string());
    if !is_there(Need::IoUring, "the file engine by io_uring", lacking) {
        return;
    }
    conformance::run(&Dir { env: env(), options: Options::new(dir.path()) }).await;
    assert!(uring::installed());
}

#[tokio::test]
async fn conforms_through_the_page_cache() {
    let dir = tempdir();
    let options = Options { direct: Direct::Never, ..Options::new(dir.path()) };
    conformance::run(&Dir { env: env(), options }).await;
}

#[tokio::test]
async fn conforms_with_few_descriptors_and_short_journal_files() {
    let dir = tempdir();
    let (handles_max, journal_file_bytes_max) = (Some(2), 64 << 10);
    let options = Options { handles_max, journal_file_bytes_max, ..Options::new(dir.path()) };
    conformance::run(&Dir { env: env(), options }).await;
}

/// A pool is served by one process at a time; the second is told by whom.
#[tokio::test]
async fn a_second_opener_is_told_who_has_it() {
    let dir = tempdir();
    let options = Options::new(dir.path());
    let first = open(&options).await.unwrap();
    let refused = open(&options).await.err().unwrap();
    assert_eq!(refused.kind(), Kind::Busy);
    let says = refused.to_string();
    assert!(says.contains(&format!("process {}", getpid().as_raw_nonzero())), "{says}");
    assert!(says.contains("stop that process"), "{says}");
    drop(first);
    open(&options).await.unwrap();
}

/// Files that are kept for the next journal go when nobody is going to use the pool, and are made again when somebody does.
#[tokio::test]
async fn what_is_kept_only_to_be_fast_is_given_back_at_rest() {
    let dir = tempdir();
    let engine = open(&Options::new(dir.path())).await.unwrap();
    let spares = || fs::read_dir(dir.path().join("spares")).unwrap().count();
    let used = || async { engine.room().await.unwrap().used_bytes };
    let before = used().await;
    for life in 0..2 {
        let id = JournalId([life; 16]);
        let journal = engine.journal_create(id).await.unwrap();
        for seq in 0..3 {
            journal.append(chunk::encode(id.0, seq, 1, &vec![7; 3 << 20]).freeze()).await.unwrap();
        }
        journal.sync().await.unwrap();
        drop(journal);
        engine.journal_remove(id).await.unwrap();
        assert!(spares() > 0 && used().await > before + (4 << 20));
        engine.rest().await;
        assert_eq!((spares(), used().await), (0, before));
    }
}

/// A directory with anything else in it is left exactly as it was.
#[tokio::test]
async fn a_strange_directory_is_left_alone() {
    let dir = tempdir();
    fs::write(dir.path().join("thesis.txt"), "years of work").unwrap();
    let refused = open(&Options::new(dir.path())).await.err().unwrap();
    assert_eq!(refused.kind(), Kind::Invalid);
    assert!(refused.to_string().contains("thesis.txt"), "{refused}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    let absent = Options { create: false, ..Options::new(dir.path().join("absent")) };
    assert_eq!(open(&absent).await.err().unwrap().kind(), Kind::NotFound);
    assert!(!dir.path().join("absent").exists());
    let newer = dir.path().join("newer");
    fs::create_dir(&newer).unwrap();
    fs::write(newer.join("pool"), "stonefold pool, layout 9\n").unwrap();
    assert_eq!(open(&Options::new(&newer)).await.err().unwrap().kind(), Kind::Unsupported);
}

/// Nobody but the owner can enter or read what is made, even where the umask would let them.
#[tokio::test]
async fn what_is_made_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    fn look(path: &std::path::Path, found: &mut Vec<(PathBuf, u32)>) {
        // What is temporary may be gone.
        let Ok(meta) = fs::metadata(path) else { return };
        let mode = meta.permissions().mode() & 0o777;
        let allowed = if path.is_dir() { 0o700 } else { 0o600 };
        found.extend((mode != allowed).then(|| (path.to_path_buf(), mode)));
        if path.is_dir() {
            fs::read_dir(path).unwrap().flatten().for_each(|entry| look(&entry.path(), found));
        }
    }
    let mut found = Vec::new();
    for direct in [Direct::Auto, Direct::Never] {
        let dir = tempdir();
        let (one, two) = (dir.path().join("deep/one"), dir.path().join("two"));
        let options =
            Options { dirs: vec![one.clone(), two.clone()], copies: Some(2), direct, ..Options::new(&one) };
        let engine = open(&options).await.unwrap();
        engine.put_new(&Key::new("segment/1"), Bytes::from(vec![1; 3 << 20])).await.unwrap();
        engine.put_new(&Key::new("head/1"), Bytes::from_static(b"small")).await.unwrap();
        let id = JournalId([7; 16]);
        let journal = engine.journal_create(id).await.unwrap();
        journal.append(chunk::encode(id.0, 0, 1, &[1; 100]).freeze()).await.unwrap();
        // While it is open: what it makes in the background is looked at, too.
        [dir.path().join("deep"), two].iter().for_each(|path| look(path, &mut found));
    }
    assert_eq!(found, []);
}

/// What a crash left half done is gone after opening; a pool half made is made.
#[tokio::test]
async fn leftovers_of_a_crash_are_removed() {
    let dir = tempdir();
    let options = Options::new(dir.path());
    fs::create_dir_all(dir.path().join("objects")).unwrap();
    fs::create_dir_all(dir.path().join("temporary/17")).unwrap();
    fs::write(dir.path().join("temporary/17/00000000"), "a journal being removed").unwrap();
    fs::write(dir.path().join("temporary/3"), "half an object").unwrap();
    let engine = open(&options).await.unwrap();
    assert_eq!(fs::read_dir(dir.path().join("temporary")).unwrap().count(), 0);
    engine.put_new(&Key::new("a/b"), Bytes::from_static(b"c")).await.unwrap();
    assert_eq!(fs::read_dir(dir.path().join("temporary")).unwrap().count(), 0, "a put leaves nothing");
}

/// However many objects are read, few are open; each read is right.
#[tokio::test]
async fn open_objects_are_bounded() {
    let dir = tempdir();
    let engine = open(&Options { handles_max: Some(4), ..Options::new(dir.path()) }).await.unwrap();
    let key = |n: u8| Key::new(format!("seg/{n}"));
    for n in 0..20 {
        engine.put_new(&key(n), vec![n; 5000].into()).await.unwrap();
    }
    for n in (0..20).chain([0, 1, 0, 1, 2, 19, 3]) {
        assert_eq!(engine.get_range(&key(n), 4090, 20).await.unwrap()[..], [n; 20]);
        assert!(only(&engine).handles.len() <= 4);
    }
}

/// Damage to a document beyond what its parity mends, or an object cut short, is told and never served.
#[tokio::test]
async fn damage_is_told() {
    let dir = tempdir();
    let engine = open(&Options::new(dir.path())).await.unwrap();
    let key = Key::new("head/x");
    engine.put_new(&key, vec![7; 10_000].into()).await.unwrap();
    let path = only(&engine).layout.place(&key).unwrap().file;
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    let sound = fs::read(&path).unwrap();
    // A header, three pages of parity, the header again, and three pages of payload.
    let whole = 5 * 4096 + 10_000;
    assert_eq!(sound.len(), whole);
    let damages: [(&[usize], usize); 5] = [
        (&[2 * 4096 + 5, 6 * 4096 + 5], whole),
        (&[20, 4 * 4096 + 20], whole),
        (&[], whole - 1),
        (&[], 9_000),
        (&[], 100),
    ];
    for (bytes, length) in damages {
        file.set_len(length as u64).unwrap();
        for at in bytes {
            file.write_all_at(&[sound[*at] ^ 1], *at as u64).unwrap();
        }
        let error = engine.get(&key).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{error}");
        assert!(error.to_string().contains("head/x"), "{error}");
        file.write_all_at(&sound, 0).unwrap();
    }
    assert!(engine.get(&key).await.is_ok());
    engine.get_range(&key, 0, 1).await.unwrap();
    file.set_len(9_000).unwrap();
    assert_eq!(engine.get_range(&key, 0, 10_000).await.unwrap_err().kind(), Kind::Corrupt);
}

/// Goal: the only copy of an object survives the loss of any page of its file, and of as many in a row as it has stripes, and is as it was
/// afterwards.
///
/// Method: each page in turn is overwritten with junk; a document is got, of a longer object the part that lies there is repaired, and
/// a repair of the whole, as a scrub makes it, finds what no part shows.
#[tokio::test]
async fn any_page_of_an_only_copy_can_be_lost() {
    let dir = tempdir();
    let engine = open(&Options::new(dir.path())).await.unwrap();
    for bytes in [1, 4096, 10_000, 65_536, 65_537, 1 << 20, (3 << 20) + 77] {
        let payload: Vec<u8> = (0..bytes).map(|at| (at / 4096 * 31 + at % 251) as u8).collect();
        let key = Key::new(format!("seg/{bytes}"));
        engine.put_new(&key, payload.clone().into()).await.unwrap();
        let path = only(&engine).layout.place(&key).unwrap().file;
        let before = fs::read(&path).unwrap();
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        let (pages, front) = (before.len().div_ceil(4096), before.len() - bytes);
        let stripes = parity::parity_pages(bytes as u64);
        let repair = async |from: usize, to: usize| {
            let sound = |found: &[u8]| found == &payload[from..to];
            engine.repair(&key, from as u64, to - from, &sound).await.unwrap().unwrap().healed
        };
        for page in (0..pages).step_by(1 + pages / 50) {
            let lost = [1, 2.min(stripes), stripes][page % 3];
            let run = page * 4096..before.len().min((page + lost) * 4096);
            let junk = || file.write_all_at(&vec![0xa5; run.len()], run.start as u64).unwrap();
            junk();
            let of_payload = run.start.saturating_sub(front)..run.end.saturating_sub(front);
            if bytes <= 1 << 20 {
                assert!(engine.get(&key).await.unwrap().0 == payload, "page {page} of {bytes} bytes");
            } else if !of_payload.is_empty() {
                assert_eq!(repair(of_payload.start, of_payload.end).await, 1, "page {page} of {bytes} bytes");
            }
            // What a read of the payload does not show.
            repair(0, bytes).await;
            assert!(fs::read(&path).unwrap() == before, "page {page} of {bytes} bytes is as it was");
            junk();
            assert_eq!(repair(0, bytes).await, 1, "page {page} of {bytes} bytes");
            assert!(fs::read(&path).unwrap() == before);
            assert_eq!(repair(0, bytes).await, 0);
        }
    }
}

/// A journal ends before the first chunk that is damaged, wherever the damage lies, and recycled files
/// never bring old chunks back.
#[tokio::test]
async fn a_torn_journal_ends_before_the_tear() {
    let dir = tempdir();
    let engine =
        open(&Options { journal_file_bytes_max: 64 << 10, ..Options::new(dir.path()) }).await.unwrap();
    for (round, torn) in [(0u8, 0u64), (1, 3), (2, 20), (3, 39)] {
        let id = JournalId([round + 1; 16]);
        let journal = engine.journal_create(id).await.unwrap();
        for seq in 0..40 {
            journal.append(chunk::encode(id.0, seq, 1, &[seq as u8; 6000]).freeze()).await.unwrap();
        }
        drop(journal);
        // Eight chunks of 8 KiB lie in each file of 64 KiB.
        let path = only(&engine).layout.journal(id).join(format!("{:08}-{}", torn / 8, torn / 8 * 8));
        let file = fs::OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(b"torn", torn % 8 * 8192 + 5000).unwrap();
        let mut reader = engine.journal_open(id).await.unwrap();
        for _ in 0..torn {
            assert!(reader.next().await.unwrap().is_some());
        }
        assert!(reader.next().await.unwrap().is_none(), "chunk {torn} is torn");
        drop(reader);
        engine.journal_remove(id).await.unwrap();
    }
}

/// Past bug: where a trimmed journal's first chunk was torn, what later chunks vouched for, all of it trimmed, was taken for lost.
#[tokio::test]
async fn a_trimmed_journal_may_begin_with_a_torn_chunk() {
    let dir = tempdir();
    let engine =
        open(&Options { journal_file_bytes_max: 64 << 10, ..Options::new(dir.path()) }).await.unwrap();
    for (round, durable_below, told) in [(0u8, 16, false), (1, 17, true)] {
        let id = JournalId([round + 1; 16]);
        let journal = engine.journal_create(id).await.unwrap();
        for seq in 0..24u64 {
            let chunk = chunk::encode_after(id.0, seq, 1, seq.min(durable_below), &[seq as u8; 6000]);
            journal.append(chunk.freeze()).await.unwrap();
        }
        journal.trim(16).await.unwrap();
        drop(journal);
        let path = only(&engine).layout.journal(id).join("00000002-16");
        let file = fs::OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(b"torn", 5000).unwrap();
        let end = engine.journal_open(id).await.unwrap().next().await;
        match end {
            Ok(end) => assert!(end.is_none() && !told),
            Err(error) => assert!(told && error.kind() == Kind::Corrupt, "{error}"),
        }
        engine.journal_remove(id).await.unwrap();
    }
}

/// Past bug: a chunk that had rotted was taken for the end, and what had been flushed behind it was lost in silence.
#[tokio::test]
async fn a_journal_that_lost_what_was_durable_is_refused() {
    let dir = tempdir();
    let engine =
        open(&Options { journal_file_bytes_max: 64 << 10, ..Options::new(dir.path()) }).await.unwrap();
    // Each chunk vouches for all but the last two before it.
    for (round, rotten, told) in
        [(0u8, 0u64, true), (1, 5, true), (2, 36, true), (3, 38, false), (4, 39, false)]
    {
        let id = JournalId([round + 1; 16]);
        let journal = engine.journal_create(id).await.unwrap();
        for seq in 0..40u64 {
            let chunk = chunk::encode_after(id.0, seq, 1, seq.saturating_sub(2), &[seq as u8; 6000]);
            journal.append(chunk.freeze()).await.unwrap();
        }
        drop(journal);
        let path = only(&engine).layout.journal(id).join(format!("{:08}-{}", rotten / 8, rotten / 8 * 8));
        let file = fs::OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(b"rot", rotten % 8 * 8192 + 5000).unwrap();
        let mut reader = engine.journal_open(id).await.unwrap();
        for _ in 0..rotten {
            assert!(reader.next().await.unwrap().is_some());
        }
        match reader.next().await {
            Ok(end) => assert!(end.is_none() && !told, "chunk {rotten}"),
            Err(error) => assert!(told && error.kind() == Kind::Corrupt, "chunk {rotten}: {error}"),
        }
        drop(reader);
        engine.journal_remove(id).await.unwrap();
    }
}

/// A journal that is trimmed as it grows goes round in the same files.
#[tokio::test]
async fn trimmed_files_are_used_again() {
    let dir = tempdir();
    let engine =
        open(&Options { journal_file_bytes_max: 1 << 20, ..Options::new(dir.path()) }).await.unwrap();
    let id = JournalId([5; 16]);
    let journal = engine.journal_create(id).await.unwrap();
    for seq in 0..300 {
        journal.append(chunk::encode(id.0, seq, 1, &[1; 100_000]).freeze()).await.unwrap();
        if seq % 10 == 0 {
            journal.trim(seq).await.unwrap();
        }
    }
    let used = engine.room().await.unwrap().used_bytes;
    assert!(used < 8 << 20, "30 MiB went through a journal that occupies {used} bytes");
}

/// The count of used bytes, kept as we go, is what the disk says after reopening.
#[tokio::test]
async fn used_bytes_are_counted_right() {
    let dir = tempdir();
    let options = Options::new(dir.path());
    let engine = open(&options).await.unwrap();
    let key = |n: usize| Key::new(format!("seg/{n}"));
    for n in 0..10 {
        engine.put_new(&key(n), vec![1; n * 50_000].into()).await.unwrap();
    }
    let version = engine.get(&key(1)).await.unwrap().1;
    engine.put_if(&key(1), vec![2; 90_000].into(), &version).await.unwrap();
    engine.delete(&key(9)).await.unwrap();
    let counted = engine.room().await.unwrap().used_bytes;
    drop(engine);
    let found = open(&options).await.unwrap().room().await.unwrap().used_bytes;
    assert!(counted.abs_diff(found) < 64 << 10, "{counted} bytes were counted, {found} found");
}
