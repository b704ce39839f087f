//! What somebody has locked: domains of which the key is not there, and snapshots that are to stay.

use super::says;
use anyhow::{Result, ensure};
use std::fs;
use stonefold_e2e::gateway::{Place, in_a_place};

/// Writes a key, a passphrase; gives the path.
fn secret(place: &Place, name: &str, text: &str) -> Result<String> {
    fs::write(place.path(name), text)?;
    Ok(place.text(name))
}

/// *Goal*: whoever starts a server with another key, or another passphrase, or with what is none, is told so, the pool is as it was, and
/// the right one opens it. Without any the server serves what is not encrypted.
#[test]
fn a_wrong_key_is_refused_and_costs_nothing() {
    in_a_place(|place| {
        let right = secret(place, "right.key", &"5a".repeat(32))?;
        let wrong = secret(place, "wrong.key", &"5b".repeat(32))?;
        let short = secret(place, "short.key", "5a5a")?;
        let phrase = secret(place, "phrase", "correct horse\n")?;
        let other = secret(place, "other", "correct house\n")?;
        let gateway = place.start(&["--key-file", &right])?;
        place.ok("domain create vault --encrypt")?;
        place.ok("disk create safe --size 8M --domain vault")?;
        place.ok("disk create open --size 8M")?;
        for disk in ["safe", "open"] {
            place.connect(disk)?.write(5000, disk.as_bytes())?;
        }
        gateway.stop()?;
        let not_the_key: &[&str] = &["the master key is not the one", "start it with the right one"];
        let refused = |flag: &str, file: &str, words: &[&str]| {
            let (error, status) = place.refused(&[flag, file])?;
            says(&error, words)?;
            ensure!(status == 1, "{flag} {file}: status {status}");
            Ok(())
        };
        refused("--key-file", &wrong, not_the_key)?;
        // A passphrase is none of a pool that has a key.
        refused("--passphrase-file", &phrase, &["passphrase"])?;
        refused("--key-file", &short, &["short.key", "is no key", "32 bytes"])?;
        refused("--key-file", "/nowhere/key", &["/nowhere/key"])?;

        let gateway = place.start(&[])?;
        ensure!(place.connect("open")?.read(5000, 4)? == b"open", "without a key the others are served");
        let refused_door =
            format!("{:#}", place.connect("safe").err().map_or_else(Default::default, |e| format!("{e:#}")));
        ensure!(refused_door.contains("domain 'vault' is locked"), "{refused_door}");
        says(&place.fails("cache warm safe", 1)?, &["domain 'vault' is locked", "--key-file"])?;
        gateway.stop()?;

        let gateway = place.start(&["--key-file", &right])?;
        ensure!(place.connect("safe")?.read(5000, 4)? == b"safe", "it is there by the right key");
        place.ok(&format!("domain rewrap --new-passphrase-file {phrase}"))?;
        gateway.stop()?;
        refused("--passphrase-file", &other, not_the_key)?;
        refused("--key-file", &right, &["key"])?;
        let gateway = place.start(&["--passphrase-file", &phrase])?;
        ensure!(place.connect("safe")?.read(5000, 4)? == b"safe", "it is there by the passphrase");
        gateway.stop()
    });
}

/// *Goal*: no command takes away what is locked, or the lock, in whatever way; each says until when it holds. What is refused changes
/// nothing. *Past bug*: of several that were to be removed, those named before the locked one were gone.
#[test]
fn a_locked_snapshot_stays_whoever_asks() {
    in_a_place(|place| {
        let key = secret(place, "key", &"5a".repeat(32))?;
        let gateway = place.start(&["--key-file", &key])?;
        place.ok("domain create vault --encrypt")?;
        place.ok("disk create web --size 8M --domain vault")?;
        place.connect("web")?.write(5000, b"monday")?;
        place.ok("disk create db --size 8M")?;
        place.ok("snapshot create db --name monday")?;
        for name in ["monday", "tuesday"] {
            place.ok(&format!("snapshot create web --name {name}"))?;
        }
        place.ok("snapshot lock web@monday --until 2099-01-31")?;
        place.connect("web")?.write(5000, b"ransom")?;
        let before = (place.json("disk ls")?, place.json("snapshot ls")?);
        let holds: &[&str] = &["snapshot 'web@monday' is locked until 2099-01-31"];
        for (line, words) in [
            ("snapshot rm web@monday", holds),
            ("snapshot rm web@tuesday web@monday", holds),
            ("disk rm web --snapshots", holds),
            ("disk rm db web --snapshots", holds),
            ("domain shred vault --yes vault", holds),
            ("snapshot lock web@monday --until 2030-01-31", &["'web@monday'", "only be extended"]),
            ("snapshot lock web@none --until 2030-01-31", &["'web@none'"]),
        ] {
            says(&place.fails(line, 1)?, words).map_err(|e| e.context(line))?;
            let after = (place.json("disk ls")?, place.json("snapshot ls")?);
            ensure!(before == after, "{line} has changed something:\n{before:?}\n{after:?}");
        }
        gateway.kill();
        let gateway = place.start(&["--key-file", &key])?;
        says(&place.fails("snapshot rm web@monday", 1)?, holds)?;
        ensure!(place.connect("web@monday")?.read(5000, 6)? == b"monday", "the snapshot is what it was");
        place.ok("snapshot rm web@tuesday")?;
        gateway.stop()
    });
}
