use super::*;
use serde_json::json;
use stonefold_engine::MemoryEngine;
use stonefold_env::SystemWorld;
use stonefold_store::Options;

const MIB: usize = 1 << 20;

struct World {
    env: Env,
    store: Arc<Store>,
    folder: tempfile::TempDir,
}

impl World {
    /// A pool whose catalog has a migration that is to go to a file.
    async fn begin() -> World {
        let env = Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap());
        let options = Options { cache_bytes: 4 << 20, journal_bytes_max: 4 << 20, ..Options::default() };
        let store = Store::open(env.clone(), Arc::new(MemoryEngine::default()), options).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let migration = json!({
            "version": 1, "name": "again", "format": "raw", "floor_percent": 75, "state": "copying", "begun": 1,
            "disks": [{
                "target": "vda", "disk": "again.vda", "home": { "file": folder.path().join("home") },
                "total_bytes": 64 * MIB, "done_bytes": 0,
            }],
        });
        let migration: Migration = catalog::read(&migration.to_string()).unwrap();
        catalog::put_new(&store, &migration).await.unwrap();
        World { env, store, folder }
    }

    /// As a server finds it: the first, or another one.
    async fn found(&self, again: bool) -> (Files, MovedDisk) {
        let migration: Migration = catalog::get(&self.store, "again").await.unwrap();
        (Files::of(&self.env, &self.store, &migration, again), migration.disks[0].clone())
    }

    fn fill(&self, bytes: usize) {
        std::fs::write(self.folder.path().join("home"), vec![7; bytes]).unwrap();
    }

    fn is_there(&self) -> bool {
        self.folder.path().join("home").exists()
    }
}

/// Goal: what libvirt had copied when its server died is known to be ours, however soon that was, and goes.
#[tokio::test]
async fn a_file_that_was_copied_to_is_known_to_the_next_server() {
    let world = World::begin().await;
    let (files, disk) = world.found(false).await;
    files.make(0, &disk).await.unwrap();
    assert!(!files.was_copied_to(0, &disk));
    world.fill(17 * MIB);
    let (files, disk) = world.found(true).await;
    assert!(disk.made && files.was_copied_to(0, &disk));
    files.take_away(0, &disk).unwrap();
    assert!(!world.is_there());
    // By now somebody else took it.
    files.take_away(0, &disk).unwrap();
}

/// Goal: one that nothing was copied to is made anew, whether or not it was told of.
#[tokio::test]
async fn a_new_file_is_made_anew() {
    let world = World::begin().await;
    let (files, disk) = world.found(false).await;
    files.make(0, &disk).await.unwrap();
    for _ in 0..2 {
        let (files, disk) = world.found(true).await;
        assert!(!files.was_copied_to(0, &disk));
        files.make(0, &disk).await.unwrap();
    }
    assert_eq!(world.folder.path().join("home").metadata().unwrap().len(), 64 * MIB as u64);
}

/// Goal: a server that was killed between making a file and saying so is in nobody's way; nor is one that could not make it.
#[tokio::test]
async fn what_is_left_of_making_a_file_is_no_hindrance() {
    let world = World::begin().await;
    let home = world.folder.path().join("home");
    for format in [HomeFormat::Raw, HomeFormat::Qcow2] {
        let as_format = move |migration: &mut Migration| {
            (migration.format, migration.disks[0].made) = (format, false);
            Ok(())
        };
        catalog::change::<Migration>(&world.store, "again", as_format).await.unwrap();
        for is_whole in [false, true] {
            let _ = std::fs::remove_file(&home);
            match is_whole {
                true => make(&world.env, &home, format, 64 * MIB as u64).await.unwrap(),
                false => drop(File::create(&home).unwrap()),
            }
            let (files, disk) = world.found(true).await;
            files.make(0, &disk).await.unwrap();
            catalog::change::<Migration>(&world.store, "again", as_format).await.unwrap();
        }
        std::fs::remove_file(&home).unwrap();
        make(&world.env, &home, format, u64::MAX).await.unwrap_err();
        assert!(!world.is_there());
    }
}

/// *Never*: a file that was not made for the migration is written to or taken away, whoever finds it; nor one that a disk went to before.
#[tokio::test]
async fn a_file_of_somebody_else_stays() {
    let world = World::begin().await;
    for again in [false, true, true] {
        // However little it holds.
        world.fill(if again { MIB } else { 17 * MIB });
        let (files, disk) = world.found(again).await;
        assert!(!files.was_copied_to(0, &disk));
        let refused = files.make(0, &disk).await.unwrap_err();
        assert!(refused.to_string().contains("none is written over"), "{refused}");
        files.take_away(0, &disk).unwrap();
        assert!(world.is_there());
    }
    // Nor one that only leads elsewhere.
    let (home, elsewhere) = (world.folder.path().join("home"), world.folder.path().join("elsewhere"));
    std::fs::rename(&home, &elsewhere).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &home).unwrap();
    let (files, disk) = world.found(true).await;
    files.make(0, &disk).await.unwrap_err();
    std::fs::rename(&elsewhere, &home).unwrap();
    let went = |migration: &mut Migration| {
        (migration.disks[0].made, migration.disks[0].moved, migration.disks[0].done_bytes) = (true, true, 9);
        Ok(())
    };
    catalog::change::<Migration>(&world.store, "again", went).await.unwrap();
    let (files, disk) = world.found(true).await;
    files.take_away(0, &disk).unwrap();
    assert!(world.is_there());
}
