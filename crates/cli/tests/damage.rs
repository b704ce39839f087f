//! Goal: whoever looks after a pool is told, in whatever way he looks, that a disk's head is damaged and what to do; everything else
//! goes on; and the disk can be given up. Method: the binary, run as people run it, over a pool in a directory one of whose heads
//! was overwritten with junk.

mod over_a_folder;

use over_a_folder::{error, json, run, serve, text};
use serde_json::Value;
use std::path::{Path, PathBuf};
use stonefold_server::Running;

fn head(folder: &Path, disk: &str) -> PathBuf {
    let buckets = std::fs::read_dir(folder.join("pool/objects/head")).unwrap();
    let mut files = buckets.map(|bucket| bucket.unwrap().path().join(disk));
    files.find(|file| file.exists()).unwrap()
}

#[test]
fn a_damaged_head_is_told_everywhere_and_given_up_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let running = serve(folder);
    for disk in ["bad", "good"] {
        text(&running, &format!("disk create {disk} --size 1G"));
    }
    text(&running, "snapshot create bad --name s");
    text(&running, "clone bad@s copy");
    running.stop().unwrap();
    let file = head(folder, "bad");
    std::fs::write(&file, vec![0x5a; std::fs::metadata(&file).unwrap().len() as usize]).unwrap();

    let running = serve(folder);
    let listed = text(&running, "disk ls");
    assert!(listed.lines().any(|line| line.split_whitespace().eq(["bad", "damaged"])), "{listed}");
    let shown = text(&running, "disk show bad");
    assert!(
        shown.contains("cannot be read") && shown.contains("head/bad") && shown.contains("--damaged"),
        "{shown}"
    );
    let disks = json(&running, "disk ls");
    assert_eq!((&disks[0]["name"], &disks[0]["damaged"]["disk"]), (&"bad".into(), &"bad".into()), "{disks}");
    assert_eq!((&disks[0]["domain"], &disks[1]["damaged"]), (&Value::Null, &Value::Null));
    let status = text(&running, "pool status");
    assert!(status.contains("DAMAGED") && status.contains("'bad'"), "{status}");
    assert_eq!(json(&running, "pool status")["damaged"][0]["disk"], "bad");
    let metrics = page(&running, "/metrics");
    assert!(metrics.contains("stonefold_damaged_disks 1"), "{metrics}");
    for refused in [
        "disk create bad --size 1G",
        "disk rm bad",
        "disk set bad --dedupe off",
        "pool reclaim",
        "snapshot create bad",
    ] {
        let told = error(&running, refused);
        assert!(told.contains("'bad'"), "{refused}: {told}");
    }
    text(&running, "snapshot create good --name s");
    assert!(error(&running, "disk rm good --damaged").contains("is not damaged"));
    assert!(error(&running, "disk rm none --damaged").contains("does not exist"));
    run(&running, "disk rm bad --damaged --snapshots", 2);

    let given_up = text(&running, "disk rm bad --damaged");
    assert!(given_up.contains("counted anew"), "{given_up}");
    text(&running, "pool reclaim");
    text(&running, "pool check");
    text(&running, "disk create bad --size 2G");
    assert_eq!(json(&running, "disk ls").as_array().unwrap().len(), 3);
    assert!(!text(&running, "pool status").contains("DAMAGED"));
    running.stop().unwrap();
}

/// A page of the API, asked for by hand.
fn page(running: &Running, path: &str) -> String {
    use std::io::{Read, Write};
    let address = running.ready().api[0].strip_prefix("http://").unwrap();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
