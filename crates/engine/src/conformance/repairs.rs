//! Cases about repairing an object.

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
