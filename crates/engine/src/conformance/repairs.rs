//! Cases about repairing an object, and giving parts of it back.

use super::{key, kind, pattern};
use crate::Engine;
use stonefold_types::Kind;

/// A repair judges by its asker's word, and changes nothing where all is well or nothing is.
pub(super) async fn a_repair_gives_sound_bytes_or_none(engine: &dyn Engine) {
    let key = key("repair");
    let absent = engine.repair(&key, 0, 10, &|_| true).await;
    assert_eq!(kind(absent, "an absent object is not repaired"), Kind::NotFound);
    let bytes = pattern(3 << 20, 9);
    engine.put_new(&key, bytes.clone()).await.unwrap();
    let (offset, len) = (70_001, 33_000);
    let expected = &bytes[offset..offset + len];
    let repaired = engine.repair(&key, offset as u64, len, &|found| found == expected).await.unwrap();
    let repaired = repaired.expect("a sound copy is found");
    assert!(repaired.bytes == expected, "the range comes back");
    assert!(repaired.copies >= 1 && repaired.healed == 0, "nothing was to heal: {repaired:?}");
    let none = engine.repair(&key, offset as u64, len, &|_| false).await.unwrap();
    assert_eq!(none, None, "no copy is sound");
    assert!(engine.get(&key).await.unwrap().0 == bytes, "and nothing was changed");
    engine.delete(&key).await.unwrap();
}

/// What is given back is no more than the whole pages asked for, and what lies around it is as it was.
pub(super) async fn parts_are_given_back(engine: &dyn Engine) {
    for len in [100_000, (2 << 20) + 5] {
        let key = key("punch");
        let bytes = pattern(len, 4);
        let version = engine.put_new(&key, bytes.clone()).await.unwrap();
        let used = engine.room().await.unwrap().used_bytes;
        // Less than a page; three pages and bits of two others; up to the end and beyond.
        let ranges = [10..4000, 8191..20_481, 90_000..u64::MAX];
        let given = match engine.punch(&key, &ranges).await {
            Ok(given) => given,
            Err(error) => {
                assert_eq!(error.kind(), Kind::Unsupported, "{error}");
                engine.delete(&key).await.unwrap();
                continue;
            }
        };
        assert!(given > 0 && given % 512 == 0, "{given} bytes were given back");
        let room = engine.room().await.unwrap();
        assert_eq!(room.used_bytes + given, used, "what is given back is not used any more");
        assert_eq!(engine.punch(&key, &ranges).await.unwrap(), 0, "repeating is harmless");
        for range in [0..8192, 20_480..90_000] {
            let found = engine.get_range(&key, range.start as u64, range.len()).await.unwrap();
            assert!(found == bytes[range], "what was not given back is as it was");
        }
        let (found, found_version) = engine.get(&key).await.unwrap();
        assert_eq!((found.len(), found_version), (len, version), "it is the same object");
        engine.delete(&key).await.unwrap();
        let absent = engine.punch(&key, &ranges).await;
        assert_eq!(kind(absent, "parts of an absent object"), Kind::NotFound);
    }
}
