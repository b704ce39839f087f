//! What a run leaves behind: everything from which its report can be computed again.
//!
//! A folder with these files, JSON or text that people can read:
//!
//! | file | what |
//! |---|---|
//! | `run.json` | what was run, where, when, and with what; see [`Run`] |
//! | `profile.toml` | the profile, as it was run |
//! | `points.json.zst` | each load that was measured, with its histograms and its series, packed by zstd (RFC 8878); see [`Point`] |
//! | `manifest.json` | the BLAKE3 hash of each of those, and of all together; of the points as they are unpacked |
//!
//! The manifest is written last: a folder without one was not finished. [`load`] refuses files that are not what the manifest
//! says. While a run goes on, what it has measured so far is such a bundle in a folder below, `unfinished`: it stays where nobody
//! brings the run to its end.

use crate::measure::Point;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use stonefold_types::{Error, Kind, Result};
use utoipa::ToSchema;

/// The layout that is written.
const FORMAT: u32 = 1;
/// Among the facts of [`Run::machine`] the one that says what ended a run before its time, beside somebody who wished so.
pub const ENDED_BY: &str = "ended by";
/// What the manifest names, by what it is unpacked.
const FILES: [&str; 3] = ["run.json", "profile.toml", POINTS];
const POINTS: &str = "points.json";
const MANIFEST: &str = "manifest.json";
/// Below the folder of a run that goes on, or was cut off: what it has, what is to be that when it is whole, and what was it before.
const UNFINISHED: [&str; 3] = ["unfinished", "unfinished.next", "unfinished.last"];
/// In bytes, as much as a run leaves at least: a full file system that has a place for a name may have none for more.
const PROBE_BYTES: usize = 64 << 10;
/// Histograms are long and say little a byte: at this level twenty megabytes take half a second and a sixth of the room.
const PACKED_LEVEL: i32 = 9;
/// More than any run has: what somebody else packed does not take all memory.
const UNPACKED_MAX: u64 = 4 << 30;

/// What was run, where, when and with what.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Run {
    /// Layout of the bundle.
    pub format: u32,
    /// Version of the lab, with the commit that it was built from where that is known.
    pub version: String,
    /// The profile's name.
    pub profile: String,
    /// It is the one that is shipped under this name, and nothing of it was changed.
    pub locked: bool,
    /// At its quick size and times.
    pub quick: bool,
    /// As they were named.
    pub targets: Vec<String>,
    /// Of everything that was drawn.
    pub seed: u64,
    /// Threads of the load.
    pub threads: usize,
    /// What was read was looked at.
    pub verified: bool,
    /// Bytes of all volumes.
    pub bytes: u64,
    /// Requirements, as they were asked.
    pub require: String,
    /// When it began: seconds since 1970.
    pub began: u64,
    /// The command that does the same.
    pub reproduce: String,
    /// What it ran on.
    pub machine: BTreeMap<String, String>,
    /// It was ended before its time.
    pub cut_short: bool,
    /// Of a replay: what was replayed; its `profile.toml` is a remark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<crate::replay::Replayed>,
    /// What was done to the targets in mid-run, and what they promise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outages: Option<crate::chaos::Outages>,
    /// How many times the profile's sizes the volumes had, where they took the target's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<f64>,
    /// Bytes of the cache for which the volumes were made, where that was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<u64>,
    /// How many seconds each load was measured at least, where that is longer than the profile says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_seconds: Option<f64>,
    /// The steps that were chosen, where not all of the profile's were run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<String>,
    /// What is behind the targets, as it was declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<crate::system::System>,
    /// What each target took when the run was over, as it said; empty where none was asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub occupied: Vec<crate::space::Occupied>,
    /// Of tiles: what was replayed at each number of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tiles: Option<crate::tiles::Tiled>,
    /// Of a database whose disk was moved: how that went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migration: Option<crate::oltp::MigrationRecord>,
    /// Of a database that was recovered from points: how that went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<crate::oltp::ChainRecord>,
}

impl Run {
    /// The layout that this build writes.
    pub const FORMAT: u32 = FORMAT;
}

#[derive(Serialize, Deserialize)]
struct Manifest {
    format: u32,
    files: BTreeMap<String, String>,
    /// Of the lines `name hash`, in the order of the names.
    bundle: String,
}

/// A bundle, read and found whole.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// What was run.
    pub run: Run,
    /// The profile's text.
    pub profile: String,
    /// What was measured.
    pub points: Vec<Point>,
    /// The hash of all of it.
    pub hash: String,
}

/// Refuses a folder that is there and holds anything, or that cannot be written to, before hours are spent on what goes into it.
///
/// # Errors
/// [`Kind::AlreadyExists`], or what the file system says.
pub fn check_free(dir: &Path) -> Result<()> {
    let cut_off = UNFINISHED.map(|name| dir.join(name));
    let is_there = match fs::read_dir(dir).map(|mut entries| entries.next().is_some()) {
        Ok(true) => {
            let error = Error::new(Kind::AlreadyExists, format!("'{}' holds something", dir.display()));
            return Err(match cut_off.iter().find(|path| path.join(MANIFEST).exists()) {
                Some(path) => error.remedy(format!(
                    "'stonefold lab report {}' shows what a run had measured that was cut off; name another folder",
                    path.display()
                )),
                None => error.remedy("name a folder that is empty or does not exist yet"),
            });
        }
        Ok(false) => true,
        Err(e) if e.kind() == ErrorKind::NotFound => false,
        Err(e) => return Err(failed("looking into", dir, e)),
    };
    fs::create_dir_all(dir).map_err(|e| failed("making", dir, e))?;
    let probe = dir.join(".probe");
    let probed = fs::write(&probe, vec![b' '; PROBE_BYTES]).and_then(|()| fs::File::open(&probe)?.sync_all());
    let _ = fs::remove_file(&probe);
    if !is_there {
        let _ = fs::remove_dir(dir);
    }
    probed.map_err(|e| failed("trying whether anything can be kept in", dir, e))
}

/// Writes a bundle into a folder, which is made. Returns its hash.
///
/// # Errors
/// What the file system says.
pub fn save(dir: &Path, run: &Run, profile: &str, points: &[Point]) -> Result<String> {
    fs::create_dir_all(dir).map_err(|e| failed("making", dir, e))?;
    let contents = [json(run)?, profile.to_owned(), json(&points)?];
    let mut files = BTreeMap::new();
    for (name, content) in FILES.iter().zip(contents) {
        files.insert((*name).to_owned(), hash(content.as_bytes()));
        write(&place(dir, name), &content)?;
    }
    let bundle = of_all(&files);
    write(&dir.join(MANIFEST), &json(&Manifest { format: FORMAT, files, bundle: bundle.clone() })?)?;
    // What was kept from point to point goes only when all of it is there for good.
    sync(dir)?;
    for unfinished in UNFINISHED {
        let _ = fs::remove_dir_all(dir.join(unfinished));
    }
    Ok(bundle)
}

/// Writes what a run has measured so far below the folder that all of it will be in, where [`save`] finds it and takes it away. One is whole at every
/// moment, the last or this one, also over a loss of power.
///
/// # Errors
/// What the file system says.
pub fn save_unfinished(dir: &Path, run: &Run, profile: &str, points: &[Point]) -> Result<()> {
    let [now, next, last] = UNFINISHED.map(|name| dir.join(name));
    let renamed = |from: &Path, to: &Path| fs::rename(from, to).map_err(|e| failed("renaming", from, e));
    let cleared = |path: &Path| match fs::remove_dir_all(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(failed("removing", path, e)),
        _ => Ok(()),
    };
    cleared(&next)?;
    save(&next, run, profile, points)?;
    if now.exists() {
        cleared(&last)?;
        renamed(&now, &last)?;
    }
    renamed(&next, &now)?;
    fs::File::open(dir).and_then(|dir| dir.sync_all()).map_err(|e| failed("syncing", dir, e))?;
    cleared(&last)
}

/// All files of a folder, and then that they are in it.
fn sync(dir: &Path) -> Result<()> {
    let synced = || {
        for entry in fs::read_dir(dir)? {
            fs::File::open(entry?.path())?.sync_all()?;
        }
        fs::File::open(dir)?.sync_all()
    };
    synced().map_err(|e| failed("syncing", dir, e))
}

/// Whether a folder holds a run.
pub fn is_in(dir: &Path) -> bool {
    dir.join(MANIFEST).exists()
}

/// Whether a folder, by its name, is one in which a run keeps what it has until it ends.
pub fn is_unfinished(dir: &Path) -> bool {
    dir.file_name().is_some_and(|name| UNFINISHED.iter().any(|unfinished| name == *unfinished))
}

/// Reads a bundle, and holds every file against the manifest.
///
/// # Errors
/// [`Kind::NotFound`] where there is none, [`Kind::Corrupt`] where a file is not what was written, [`Kind::Unsupported`]
/// where a newer lab wrote it.
pub fn load(dir: &Path) -> Result<Bundle> {
    let manifest: Manifest = parse(
        &dir.join(MANIFEST),
        &read(&dir.join(MANIFEST))
            .map_err(|e| e.remedy("name the folder of a run that was finished; it holds a manifest.json"))?,
    )?;
    if manifest.format > FORMAT {
        return Err(Error::new(
            Kind::Unsupported,
            format!("'{}' was written by a newer version", dir.display()),
        )
        .remedy("read it with that"));
    }
    let mut contents = Vec::new();
    for name in FILES {
        let content = read(&place(dir, name)).map_err(|e| match e.kind() {
            Kind::NotFound => e.remedy(
                "take the bundle from where it is whole; the points of an earlier build are packed by: zstd points.json",
            ),
            _ => e,
        })?;
        let kept = manifest.files.get(name).is_some_and(|kept| *kept == hash(content.as_bytes()));
        if !kept {
            let what = format!(
                "'{}' is not what was written: its hash is not that of the manifest",
                place(dir, name).display()
            );
            return Err(Error::new(Kind::Corrupt, what).remedy("take the bundle from where it is whole"));
        }
        contents.push(content);
    }
    if of_all(&manifest.files) != manifest.bundle {
        return Err(Error::new(
            Kind::Corrupt,
            format!("the manifest of '{}' does not fit itself", dir.display()),
        ));
    }
    let run = parse(&dir.join(FILES[0]), &contents[0])?;
    let points = parse(&place(dir, POINTS), &contents[2])?;
    Ok(Bundle { run, profile: contents.swap_remove(1), points, hash: manifest.bundle })
}

fn hash(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

fn of_all(files: &BTreeMap<String, String>) -> String {
    hash(files.iter().map(|(name, hash)| format!("{name} {hash}\n")).collect::<String>().as_bytes())
}

fn json<T: Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value)
        .map(|text| text + "\n")
        .map_err(|e| Error::new(Kind::Io, format!("writing JSON: {e}")))
}

fn parse<T: for<'a> Deserialize<'a>>(path: &Path, text: &str) -> Result<T> {
    serde_json::from_str(text)
        .map_err(|e| Error::new(Kind::Corrupt, format!("'{}' cannot be read: {e}", path.display())))
}

/// Where a file of a bundle is kept.
fn place(dir: &Path, name: &str) -> PathBuf {
    dir.join(if name == POINTS { "points.json.zst" } else { name })
}

fn is_packed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "zst")
}

fn read(path: &Path) -> Result<String> {
    let failed = |e| failed("reading", path, e);
    if !is_packed(path) {
        return fs::read_to_string(path).map_err(failed);
    }
    let file = fs::File::open(path).map_err(failed)?;
    let mut text = String::new();
    zstd::Decoder::new(file)
        .and_then(|unpacked| unpacked.take(UNPACKED_MAX).read_to_string(&mut text))
        .map_err(|e| Error::new(Kind::Corrupt, format!("'{}' does not unpack: {e}", path.display())))?;
    Ok(text)
}

fn write(path: &Path, content: &str) -> Result<()> {
    let failed = |e| failed("writing", path, e);
    if !is_packed(path) {
        return fs::write(path, content).map_err(failed);
    }
    let packed = zstd::encode_all(content.as_bytes(), PACKED_LEVEL).map_err(failed)?;
    fs::write(path, packed).map_err(failed)
}

fn failed(doing: &str, path: &Path, error: std::io::Error) -> Error {
    Error::io(format!("{doing} '{}'", path.display()), error)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A bundle of points that were measured by a profile of one stream of 4K reads.
    pub(crate) fn bundle(points: Vec<Point>) -> Bundle {
        let profile = "title = 't'\nabout = 'a'\n[[volume]]\nname = 'v'\nsize = '1M'\nquick = '1M'\n[[stream]]\n\
            name = 's'\nvolume = 'v'\nread = 100\nrandom = 100\nsizes = { \"4K\" = 100 }\noutstanding = 8\n";
        Bundle { run: run(), profile: profile.into(), points, hash: String::new() }
    }

    fn run() -> Run {
        Run {
            format: FORMAT,
            version: "0".into(),
            profile: "p".into(),
            locked: true,
            quick: true,
            targets: vec!["null:".into()],
            seed: 1,
            threads: 1,
            verified: true,
            bytes: 4096,
            require: String::new(),
            began: 0,
            reproduce: "stonefold lab run p".into(),
            machine: BTreeMap::new(),
            cut_short: false,
            ..Run::default()
        }
    }

    #[test]
    fn a_bundle_comes_back_and_one_that_was_changed_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("a/b");
        check_free(&at).unwrap();
        let hash = save(&at, &run(), "title = 1", &[]).unwrap();
        let back = load(&at).unwrap();
        assert_eq!((back.run, back.profile.as_str(), back.hash), (run(), "title = 1", hash));
        assert_eq!(check_free(&at).unwrap_err().kind(), Kind::AlreadyExists);
        for (file, content) in [("points.json.zst", "cut"), ("profile.toml", "title = 2")] {
            let kept = fs::read(at.join(file)).unwrap();
            fs::write(at.join(file), content).unwrap();
            assert_eq!(load(&at).unwrap_err().kind(), Kind::Corrupt, "{file}");
            fs::write(at.join(file), kept).unwrap();
            load(&at).unwrap();
        }
        fs::remove_file(at.join(MANIFEST)).unwrap();
        assert_eq!(load(&at).unwrap_err().kind(), Kind::NotFound);
    }

    /// Goal: what was measured so far is whole at every moment, and goes when all of it is there; a folder that has such is not taken for an empty one.
    #[test]
    fn what_is_unfinished_is_kept_until_all_is() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("run");
        check_free(&at).unwrap();
        assert!(!at.exists(), "a look makes nothing");
        let points = [crate::measure::tests::point(1000), crate::measure::tests::point(2000)];
        for so_far in [1, 2] {
            save_unfinished(&at, &run(), "title = 1", &points[..so_far]).unwrap();
            assert_eq!(load(&at.join("unfinished")).unwrap().points.len(), so_far);
        }
        let refused = check_free(&at).unwrap_err();
        assert!(refused.remedy_text().unwrap().contains("unfinished"), "{refused}");
        // Cut off between the last one's going and the next one's coming: it is whole, and found.
        fs::rename(at.join("unfinished"), at.join("unfinished.last")).unwrap();
        assert!(check_free(&at).unwrap_err().remedy_text().unwrap().contains("unfinished.last"));
        save_unfinished(&at, &run(), "title = 1", &points[..1]).unwrap();
        save(&at, &run(), "title = 1", &points).unwrap();
        assert!(load(&at).unwrap().points.len() == 2 && !at.join("unfinished").exists());
    }

    #[test]
    fn a_folder_that_takes_nothing_is_refused_beforehand() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "x").unwrap();
        assert!(check_free(&file.join("run")).unwrap_err().to_string().contains("file"));
    }
}
