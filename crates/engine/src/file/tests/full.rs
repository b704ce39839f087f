//! A full file system: a small ext4 in a file, which root may mount.

use super::*;
use std::process::Command;
use stonefold_needs::{Need, there_is};

/// A small file system, unmounted at the end.
struct Small {
    dir: tempfile::TempDir,
}

impl Small {
    fn mount(bytes: u64) -> std::result::Result<Small, String> {
        let dir = tempdir();
        let (image, at) = (dir.path().join("image"), dir.path().join("mounted"));
        fs::create_dir(&at).unwrap();
        fs::File::create(&image).unwrap().set_len(bytes).unwrap();
        let run = |command: &mut Command| match command.output() {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_string()),
            Err(error) => Err(error.to_string()),
        };
        run(Command::new("mkfs.ext4").args(["-q", "-m", "0"]).arg(&image))?;
        run(Command::new("mount").args(["-o", "loop"]).args([&image, &at]))?;
        Ok(Small { dir })
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("mounted")
    }

    /// Puts objects until the first is refused for want of room, by name; returns how many went in.
    async fn fill(&self, engine: &FileEngine, key: impl Fn(u64) -> Key) -> u64 {
        let mut count = 0;
        let refused = loop {
            match engine.put_new(&key(count), vec![count as u8; 3 << 20].into()).await {
                Ok(_) => count += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), Kind::NoSpace, "{refused}");
        assert!(refused.to_string().contains(self.path().to_str().unwrap()), "{refused}");
        assert!(count > 10, "{count} objects of 3 MiB fit into 64 MiB");
        count
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.path()).status();
    }
}

/// On a full disk puts fail and leave nothing, reads go on, an open journal goes on within its file, and what is
/// deleted can be written again.
#[tokio::test]
async fn a_full_disk_refuses_loses_nothing_and_recovers() {
    if !there_is(Need::Loop, "the file engine on a full file system") {
        return;
    }
    let small = Small::mount(64 << 20).unwrap();
    let engine = open(&Options::new(small.path())).await.unwrap();
    let id = JournalId([1; 16]);
    let journal = engine.journal_create(id).await.unwrap();
    let chunk = |seq: u64, bytes: usize| chunk::encode(id.0, seq, 1, &vec![seq as u8; bytes]).freeze();
    journal.append(chunk(0, 10_000)).await.unwrap();
    let key = |n: u64| Key::new(format!("seg/{n}"));
    let count = small.fill(&engine, key).await;
    // The last bytes, too, by documents.
    let mut documents = 0;
    while engine.put_new(&Key::new(format!("doc/{documents}")), vec![1; 20_000].into()).await.is_ok() {
        documents += 1;
    }
    assert_eq!(fs::read_dir(small.path().join("temporary")).unwrap().count(), 0, "nothing is left behind");
    assert_eq!(engine.get(&key(count)).await.unwrap_err().kind(), Kind::NotFound);
    for n in 0..count {
        assert_eq!(engine.get_range(&key(n), 1 << 20, 1).await.unwrap()[0], n as u8, "reads go on");
    }
    assert_eq!(engine.journal_create(JournalId([2; 16])).await.err().unwrap().kind(), Kind::NoSpace);
    assert_eq!(engine.journal_list().await.unwrap(), [id], "a journal that was refused is not there");
    journal.append(chunk(1, 10_000)).await.unwrap();
    let refused = journal.append(chunk(2, 10 << 20)).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::NoSpace);
    journal.sync().await.unwrap();
    for n in 0..5 {
        engine.delete(&key(n)).await.unwrap();
    }
    journal.append(chunk(2, 10 << 20)).await.unwrap();
    journal.sync().await.unwrap();
    drop(journal);
    engine.put_new(&key(count), vec![9; 1 << 20].into()).await.unwrap();
    let mut reader = engine.journal_open(id).await.unwrap();
    for _ in 0..3 {
        assert!(reader.next().await.unwrap().is_some());
    }
    assert!(reader.next().await.unwrap().is_none());
}

/// Where one of two directories is full, a put fails and leaves nothing in the other, and neither is dropped.
#[tokio::test]
async fn one_full_directory_of_two_refuses_and_is_kept() {
    if !there_is(Need::Loop, "the file engine where one of two file systems is full") {
        return;
    }
    let small = Small::mount(64 << 20).unwrap();
    let large = tempdir();
    let dirs = vec![large.path().join("large"), small.path()];
    let options = Options { dirs: dirs.clone(), copies: Some(2), ..Options::new(small.path()) };
    let engine = open(&options).await.unwrap();
    let key = |n: u64| Key::new(format!("segment/{n}"));
    let room = engine.room().await.unwrap();
    assert!(room.free_bytes < 64 << 20, "the lesser room counts: {room:?}");
    let count = small.fill(&engine, key).await;
    assert_eq!(engine.list("segment/", None, 1000).await.unwrap().len() as u64, count);
    assert_eq!(engine.get(&key(count)).await.unwrap_err().kind(), Kind::NotFound);
    for dir in &dirs {
        assert_eq!(fs::read_dir(dir.join("temporary")).unwrap().count(), 0, "nothing is left behind");
    }
    assert!(!engine.describe().contains("DEGRADED"));
    engine.delete(&key(0)).await.unwrap();
    engine.put_new(&key(count), vec![9; 3 << 20].into()).await.unwrap();
}
