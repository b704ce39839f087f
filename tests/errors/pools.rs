//! Pools and addresses that another server has, and a pool that a newer one has written.

use super::{objects, says};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use stonefold_e2e::gateway::{Place, in_a_place};
use stonefold_e2e::tools::run;
use stonefold_guest::time::Deadline;
use xxhash_rust::xxh3::xxh3_64;

#[test]
fn a_pool_or_an_address_in_use_is_left_to_who_has_it() {
    in_a_place(|place| {
        let gateway = place.start(&[])?;
        place.ok("disk create web --size 8M")?;
        place.connect("web")?.write(0, b"mine")?;

        let second = Place::new()?.with_pool(place.pool());
        let (error, status) = second.refused(&[])?;
        says(&error, &["in use", &gateway.pid().to_string(), &place.pool().to_string_lossy()])?;
        ensure!(status == 1, "status {status}");

        let taken = format!("unix://{}", place.nbd().display());
        let (error, status) = Place::new()?.refused(&["--nbd", &taken])?;
        says(&error, &["address in use", &taken])?;
        ensure!(status == 1, "status {status}");

        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        let taken = format!("tcp://{}", listener.local_addr()?);
        let (error, status) = Place::new()?.refused(&["--nbd", &taken])?;
        says(&error, &["in use", &taken])?;
        ensure!(status == 1, "status {status}");

        ensure!(place.connect("web")?.read(0, 4)? == b"mine", "the first server was disturbed");
        gateway.stop()
    });
}

/// *Past bug*: signals were caught, and not looked at before the pool was open, however long that took.
/// *Method*: a pipe that nobody writes to in place of a file of the pool's is opened for ever.
#[test]
fn a_server_that_is_starting_can_be_stopped() {
    in_a_place(|place| {
        let gateway = place.start(&[])?;
        place.ok("disk create web --size 8M")?;
        place.connect("web")?.write(0, b"mine")?;
        gateway.stop()?;
        let (mark, aside) = (place.pool().join("pool"), place.path("aside"));
        fs::rename(&mark, &aside)?;
        run("mkfifo", &[&mark.to_string_lossy()])?;
        let starting = place.begin(&[])?;
        let deadline = Deadline::after(Duration::from_secs(20));
        // The last of the log is what the second server has said.
        while place.log().matches("opening the pool").count() < 2 {
            ensure!(!deadline.passed(), "{}", place.last_words());
            std::thread::sleep(Duration::from_millis(20));
        }
        std::thread::sleep(Duration::from_millis(200));
        starting.stop()?;
        ensure!(!place.path("api.sock").exists(), "its socket is left behind");
        fs::rename(aside, mark)?;
        let gateway = place.start(&[])?;
        ensure!(place.connect("web")?.read(0, 4)? == b"mine", "the pool was changed");
        gateway.stop()
    });
}

#[test]
fn a_pool_of_a_newer_version_is_refused_and_untouched() {
    in_a_place(|place| {
        let gateway = place.start(&[])?;
        place.ok("disk create web --size 8M")?;
        place.connect("web")?.write(5000, b"old")?;
        gateway.stop()?;

        let documents = objects(place, "+")?;
        let record =
            documents.into_iter().find(|path| path.ends_with("pool")).context("the pool has a record")?;
        let old = fs::read(&record)?;
        fs::write(&record, newer(&old))?;
        let before = tree(place.pool())?;
        let (error, status) = place.refused(&[])?;
        says(&error, &["version", "newer stonefold"])?;
        ensure!(status == 1, "status {status}");
        ensure!(before == tree(place.pool())?, "a refused pool was changed");

        fs::write(&record, old)?;
        let mark = place.pool().join("pool");
        let old = fs::read(&mark)?;
        fs::write(&mark, "stonefold pool, layout 99\n")?;
        let (error, status) = place.refused(&[])?;
        says(&error, &["layout 99", "newer stonefold", &place.pool().to_string_lossy()])?;
        ensure!(status == 1, "status {status}");

        fs::write(&mark, old)?;
        let gateway = place.start(&[])?;
        ensure!(place.connect("web")?.read(5000, 3)? == b"old", "the pool was changed");
        gateway.stop()
    });
}

/// The pool's record with a version that is not yet, and every checksum right (`engine/src/file/header.rs`,
/// `format/src/document.rs`): a header, the document's second copy, the header again, the document.
fn newer(file: &[u8]) -> Vec<u8> {
    let (mut header, mut document) = (file[..4096].to_vec(), file[3 * 4096..].to_vec());
    document[18..20].copy_from_slice(&999u16.to_le_bytes());
    let check = xxh3_64(&document[8..]);
    document[..8].copy_from_slice(&check.to_le_bytes());
    let mut copy = document.clone();
    copy.resize(4096, 0);
    header[24..32].copy_from_slice(&xxh3_64(&document).to_le_bytes());
    header[56..60].copy_from_slice(&(xxh3_64(&document) as u32).to_le_bytes());
    header[60..64].copy_from_slice(&(xxh3_64(&copy) as u32).to_le_bytes());
    let check = xxh3_64(&header[8..64]);
    header[..8].copy_from_slice(&check.to_le_bytes());
    [header.clone(), copy, header, document].concat()
}

/// Every file below a folder but the lock, with what it holds.
fn tree(folder: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(tree(&path)?);
        } else if !path.ends_with("lock") {
            files.insert(path.clone(), fs::read(&path)?);
        }
    }
    Ok(files)
}
