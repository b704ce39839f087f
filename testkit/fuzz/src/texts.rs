//! Texts: what people write on a command line, in a URL, in a body of the API, in an exported key.

use crate::Target;
use stonefold_api::{
    CacheResize, CacheWarm, CloneCreate, DiskCreate, DiskResize, DiskSet, DomainCreate, DomainSet,
    DomainShred, MasterKeyChange, QosCreate, QosSet, Rollback, SnapshotCreate, TokenCreate,
};
use stonefold_engine::FileOptions;
use stonefold_format::export::{self, ExportedKey};
use stonefold_format::seal::{DataKey, Secret};
use stonefold_types::{Compression, Durability, ExportName, Name, PointName, Role, Size, SnapshotName};
use xxhash_rust::xxh3::xxh3_64;

/// The readers.
pub fn targets() -> Vec<Target> {
    let target = |name, seeds, read| Target { name, seeds, read, bytes_max: 256 << 10 };
    vec![
        target(
            "sizes",
            || texts(&["20G", "512M", "16T", "4096", "1.5G", "18446744073709551615", "1KiB"]),
            read_size,
        ),
        target("names", || texts(&["web", "web@monday", "a.b_c-d", "x@y@z", "@"]), read_names),
        target(
            "words",
            || texts(&["flush", "ack", "lz4", "zstd:19", "zstd", "none", "admin", "viewer"]),
            read_words,
        ),
        target("pool URLs", pool_urls, read_pool_url),
        target("API bodies", bodies, read_bodies),
        target("exported keys", keys, read_keys),
    ]
}

fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn read_size(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    // The last before the largest number are shown rounded up to what is none.
    if let Some(size) = text.parse::<Size>().ok().filter(|size| size.0 <= u64::MAX / 2) {
        assert!(size.to_string().parse::<Size>().is_ok(), "{size} is not understood again");
    }
}

fn read_names(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(name) = text.parse::<Name>() {
        assert_eq!(name.as_str(), text);
    }
    if let Ok(name) = text.parse::<SnapshotName>() {
        assert_eq!(name.to_string(), text);
    }
    if let Ok(name) = text.parse::<ExportName>() {
        assert_eq!(name.to_string(), text);
    }
    if let Ok(name) = text.parse::<PointName>() {
        assert_eq!(name.to_string(), text);
    }
}

fn read_words(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(compression) = text.parse::<Compression>() {
        assert_eq!(compression.to_string().parse(), Ok(compression));
    }
    let _ = (text.parse::<Durability>(), text.parse::<Role>());
}

fn pool_urls() -> Vec<Vec<u8>> {
    texts(&[
        "file:///srv/pool",
        "file:///d1?also=/d2&copies=2",
        "file:///srv/a%20b?direct=never",
        "file://host/path?copies=99999999999999999999",
        "file:///d1?also=/d1&also=",
    ])
}

fn read_pool_url(bytes: &[u8]) {
    let _ = FileOptions::parse(&String::from_utf8_lossy(bytes));
}

fn bodies() -> Vec<Vec<u8>> {
    texts(&[
        r#"{"name":"web","size_bytes":21474836480,"durability":"ack","compression":"zstd:3","dedupe":false}"#,
        r#"{"size_bytes":1,"qos":"critical"}"#,
        r#"{"disks":["a","b"],"name":"monday"}"#,
        r#"{"snapshot":"web@monday","name":"copy"}"#,
        r#"{"name":"gold","min_iops":1,"max_iops":18446744073709551615,"min_bytes":-1,"share":4294967296}"#,
        r#"{"name":"vault","encrypt":true,"compression":"lz4"}"#,
        r#"{"name":"ci","role":"operator"}"#,
        r#"{"confirm":"vault","bytes":1e400}"#,
        "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    ])
}

fn read_bodies(bytes: &[u8]) {
    macro_rules! read {
        ($($body:ty),*) => { $(let _ = serde_json::from_slice::<$body>(bytes);)* };
    }
    read!(
        DiskCreate,
        DiskSet,
        DiskResize,
        DomainCreate,
        DomainSet,
        DomainShred,
        MasterKeyChange,
        CacheResize
    );
    read!(CacheWarm, QosCreate, QosSet, SnapshotCreate, CloneCreate, Rollback, TokenCreate);
}

fn keys() -> Vec<Vec<u8>> {
    let key = |version| ExportedKey {
        pool: [0xab; 16],
        domain: 7,
        key: DataKey { version, secret: Secret::new(&[version as u8; 32]) },
    };
    vec![export::encode(&[key(1), key(2)]).as_bytes().to_vec()]
}

/// As it is, and with each line's check made right again.
fn read_keys(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let _ = export::decode(&text);
    let checked = |line: &str| {
        let told = line.rsplit_once(' ').map_or(line, |(told, _)| told);
        format!("{told} {:016x}\n", xxh3_64(told.as_bytes()))
    };
    let text: String = text.lines().map(checked).collect();
    if let Ok(found) = export::decode(&text) {
        assert_eq!(export::decode(&export::encode(&found)).expect("again"), found);
    }
}
