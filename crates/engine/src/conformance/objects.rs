//! Cases about one object at a time, and listings.

use super::{Place, key, kind, pattern};
use crate::{Engine, Key};
use bytes::Bytes;
use stonefold_types::Kind;

/// put_new makes an object once; a second put fails and changes nothing.
pub(super) async fn put_new_is_for_new_objects(engine: &dyn Engine) {
    let key = key("new");
    let version = engine.put_new(&key, Bytes::from_static(b"first")).await.unwrap();
    let second = engine.put_new(&key, Bytes::from_static(b"second")).await;
    assert_eq!(kind(second, "put_new over an object must fail"), Kind::AlreadyExists);
    let (bytes, found) = engine.get(&key).await.unwrap();
    assert_eq!(bytes, "first", "a refused put changes nothing");
    assert_eq!(found, version, "get tells the version that put returned");
    engine.delete(&key).await.unwrap();
    let empty = engine.put_new(&key, Bytes::new()).await.unwrap();
    assert_eq!(engine.get(&key).await.unwrap(), (Bytes::new(), empty), "an object may be empty");
    engine.delete(&key).await.unwrap();
}

/// get_range returns what is there of the range: all, some, none.
pub(super) async fn ranges_end_where_the_object_ends(engine: &dyn Engine) {
    let key = key("ranges");
    let bytes = pattern(100_001, 3);
    engine.put_new(&key, bytes.clone()).await.unwrap();
    let end = bytes.len();
    for (offset, len) in [
        (0, 0),
        (0, 1),
        (0, end),
        (0, end + 1),
        (0, usize::MAX),
        (1, 4096),
        (4095, 2),
        (4096, 4096),
        (8191, 8194),
        (end - 1, 1),
        (end - 1, 2),
        (98_304, 1_697),
        (98_303, 5_000),
        (end, 0),
        (end, 1),
        (end + 1, 1),
        (end + 10_000_000, 4096),
    ] {
        let found = engine.get_range(&key, offset as u64, len).await.unwrap();
        let expected = &bytes[offset.min(end)..offset.saturating_add(len).min(end)];
        assert!(found == expected, "range {offset}+{len} of {end} bytes: {} bytes came back", found.len());
    }
    let beyond = engine.get_range(&key, u64::MAX, usize::MAX).await.unwrap();
    assert!(beyond.is_empty(), "a range beyond any object is empty");
    engine.delete(&key).await.unwrap();
}

/// Every length is kept exactly, aligned in memory or not.
pub(super) async fn odd_lengths_come_back(engine: &dyn Engine) {
    let key = key("odd");
    let source = pattern(200_000, 5);
    for len in [1, 511, 512, 4095, 4096, 4097, 65_535, 65_536, 65_537, 131_072, 199_999] {
        for shift in [0, 1] {
            let bytes = source.slice(shift..shift + len);
            let version = engine.put_new(&key, bytes.clone()).await.unwrap();
            let (found, found_version) = engine.get(&key).await.unwrap();
            assert!(found == bytes, "{len} bytes from offset {shift} of a buffer come back");
            assert_eq!(found_version, version);
            engine.delete(&key).await.unwrap();
        }
    }
}

/// A segment of 32 MiB goes in and out, whole and in parts.
pub(super) async fn long_objects_come_back(engine: &dyn Engine) {
    let key = key("long");
    let bytes = pattern((32 << 20) + 12_345, 7);
    engine.put_new(&key, bytes.clone()).await.unwrap();
    assert!(engine.get(&key).await.unwrap().0 == bytes, "32 MiB come back");
    let (offset, len) = ((16 << 20) - 1000, 70_000);
    let found = engine.get_range(&key, offset as u64, len).await.unwrap();
    assert!(found == bytes[offset..offset + len], "a range across 16 MiB comes back");
    engine.delete(&key).await.unwrap();
}

/// put_if changes exactly the version it names.
pub(super) async fn documents_change_by_version(engine: &dyn Engine) {
    let key = key("document");
    let one = engine.put_new(&key, pattern(300, 1)).await.unwrap();
    let two = engine.put_if(&key, pattern(70_000, 2), &one).await.unwrap();
    assert_ne!(one, two, "every put makes another version");
    let stale = engine.put_if(&key, pattern(10, 3), &one).await;
    assert_eq!(kind(stale, "put_if over another version must fail"), Kind::Conflict);
    let same = engine.put_if(&key, pattern(70_000, 2), &two).await.unwrap();
    assert_ne!(two, same, "the same bytes put again are another version");
    let (bytes, found) = engine.get(&key).await.unwrap();
    assert!(bytes == pattern(70_000, 2) && found == same, "get sees the newest version");
    let range = engine.get_range(&key, 10, 20).await.unwrap();
    let three = engine.put_if(&key, pattern(1 << 20, 4), &same).await.unwrap();
    assert_eq!(range, pattern(70_000, 2)[10..30]);
    let range = engine.get_range(&key, 10, 20).await.unwrap();
    assert_eq!(range, pattern(1 << 20, 4)[10..30], "a range is read from the newest version");
    assert_eq!(engine.get(&key).await.unwrap().1, three);
    engine.delete(&key).await.unwrap();
    let absent = engine.put_if(&key, pattern(10, 5), &three).await;
    assert!(
        matches!(kind(absent, "put_if of an absent object must fail"), Kind::NotFound | Kind::Conflict),
        "an absent object is not found, or conflicts"
    );
    assert_eq!(kind(engine.get(&key).await, "a failed put_if makes nothing"), Kind::NotFound);
}

/// An object deleted and put again, with the same bytes, has another version: no ABA.
pub(super) async fn a_version_never_comes_back(engine: &dyn Engine) {
    let key = key("aba");
    let before = engine.put_new(&key, pattern(100, 1)).await.unwrap();
    engine.delete(&key).await.unwrap();
    let after = engine.put_new(&key, pattern(100, 1)).await.unwrap();
    assert_ne!(before, after, "a version is equal only for the same write");
    let stale = engine.put_if(&key, pattern(5, 2), &before).await;
    assert_eq!(kind(stale, "a version from before a delete must not match"), Kind::Conflict);
    engine.delete(&key).await.unwrap();
}

pub(super) async fn deleting_twice_is_no_error(engine: &dyn Engine) {
    let key = key("twice");
    engine.put_new(&key, pattern(100, 1)).await.unwrap();
    engine.get_range(&key, 0, 10).await.unwrap();
    engine.delete(&key).await.unwrap();
    let range = engine.get_range(&key, 0, 10).await;
    assert_eq!(kind(range, "a range of a deleted object must fail"), Kind::NotFound);
    engine.delete(&key).await.unwrap();
    engine.put_new(&key, pattern(50, 2)).await.unwrap();
    assert_eq!(engine.get_range(&key, 0, 100).await.unwrap(), pattern(50, 2), "the new object is read");
    engine.delete(&key).await.unwrap();
}

pub(super) async fn absent_objects_are_not_found(engine: &dyn Engine) {
    let key = key("absent");
    assert_eq!(kind(engine.get(&key).await, "get of an absent object must fail"), Kind::NotFound);
    assert_eq!(kind(engine.get_range(&key, 0, 0).await, "so must an empty range"), Kind::NotFound);
    assert_eq!(kind(engine.get_range(&key, 7, 7).await, "so must a range"), Kind::NotFound);
    engine.delete(&key).await.unwrap();
}

/// Listings are in the order of keys, whole when followed page by page, and exact in prefix and length.
pub(super) async fn listings_are_ordered_and_paged(engine: &dyn Engine) {
    let mut keys: Vec<Key> = (0..40).map(|n| key(&format!("list/{n:02}"))).collect();
    keys.extend([key("list.x"), key("list/07.b"), key("list/07/a"), key("listing"), key("list/A-b_c")]);
    for (index, key) in keys.iter().enumerate() {
        engine.put_new(key, pattern(index * 1000, 1)).await.unwrap();
    }
    let expected = |prefix: &str| {
        let mut found: Vec<(Key, u64)> = keys
            .iter()
            .enumerate()
            .filter(|(_, key)| key.as_str().starts_with(prefix))
            .map(|(index, key)| (key.clone(), index as u64 * 1000))
            .collect();
        found.sort();
        found
    };
    for prefix in [
        "conformance/list",
        "conformance/list/",
        "conformance/list/07",
        "conformance/list/39",
        "conformance/li",
    ] {
        for limit in [1, 7, 40, 1000] {
            let mut found: Vec<(Key, u64)> = Vec::new();
            loop {
                let after = found.last().map(|(key, _)| key.clone());
                let page = engine.list(prefix, after.as_ref(), limit).await.unwrap();
                assert!(page.len() <= limit, "a page has at most {limit}");
                let last = page.len() < limit;
                found.extend(page.into_iter().map(|one| (one.key, one.bytes)));
                if last {
                    break;
                }
            }
            assert_eq!(found, expected(prefix), "listing '{prefix}' by {limit}");
        }
    }
    assert!(engine.list("conformance/none", None, 10).await.unwrap().is_empty());
    assert!(
        engine.list("conformance/list/", Some(&key("list0")), 10).await.unwrap().is_empty(),
        "behind the prefix"
    );
    let before = engine.list("conformance/list/", Some(&key("a")), 1).await.unwrap();
    assert_eq!(before[0].key, key("list/00"), "a key before the prefix begins at its beginning");
    assert!(
        engine.list("conformance/list/", None, 0).await.unwrap().is_empty(),
        "nothing asked, nothing told"
    );
    let all = engine.list("", None, 10_000).await.unwrap();
    assert!(keys.iter().all(|key| all.iter().any(|one| one.key == *key)), "an empty prefix lists all");
    for key in &keys {
        engine.delete(key).await.unwrap();
    }
    assert!(engine.list("conformance/list", None, 10).await.unwrap().is_empty(), "list after delete");
}

/// Room is told, and what is put is counted as used until it is deleted.
pub(super) async fn room_is_told(engine: &dyn Engine) {
    let key = key("room");
    let before = engine.room().await.unwrap();
    assert!(before.free_bytes <= before.total_bytes, "free is part of the total");
    engine.put_new(&key, pattern(1 << 20, 1)).await.unwrap();
    let between = engine.room().await.unwrap();
    assert!(between.used_bytes >= before.used_bytes + (1 << 20), "a put uses room: {before:?}, {between:?}");
    engine.delete(&key).await.unwrap();
    let after = engine.room().await.unwrap();
    assert!(
        after.used_bytes + (1 << 20) <= between.used_bytes,
        "a delete gives it back: {between:?}, {after:?}"
    );
}

pub(super) async fn objects_survive_reopening(place: &dyn Place) {
    let (object, document) = (key("kept"), key("kept-document"));
    let engine = place.open().await;
    engine.put_new(&object, pattern(3 << 20, 1)).await.unwrap();
    let one = engine.put_new(&document, pattern(100, 2)).await.unwrap();
    let two = engine.put_if(&document, pattern(200, 3), &one).await.unwrap();
    drop(engine);
    let engine = place.open().await;
    assert!(
        engine.get(&object).await.unwrap().0 == pattern(3 << 20, 1),
        "an object is there after reopening"
    );
    assert_eq!(engine.get(&document).await.unwrap(), (pattern(200, 3), two.clone()), "so is a document");
    let three = engine.put_if(&document, pattern(300, 4), &two).await.unwrap();
    assert_ne!(three, two, "versions go on after reopening");
    let listed = engine.list("conformance/kept", None, 10).await.unwrap();
    assert_eq!(listed.len(), 2, "a listing is the same after reopening");
    engine.delete(&object).await.unwrap();
    engine.delete(&document).await.unwrap();
    drop(engine);
    let engine = place.open().await;
    assert_eq!(kind(engine.get(&object).await, "a delete survives reopening"), Kind::NotFound);
}
