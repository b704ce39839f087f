//! Which profiles there are, and what is in them.

use crate::context::Context;
use crate::failure::Failure;
use crate::table::Table;
use serde::Serialize;
use serde_json::json;
use std::path::Path;
use std::time::Duration;
use stonefold_lab::oltp;
use stonefold_lab::profile::{Profile, shipped};
use stonefold_lab::tiles;
use stonefold_types::{Error, Result, Size};

const TARGETS: &str = "\
Targets:
  file:PATH                            a file, made where there is none, around the page cache
  dev:/dev/NAME                        a block device that nothing uses
  dir:PATH                             a folder, for databases: the profile oltp
  nbd://HOST[:PORT]/EXPORT             an export of any NBD server
  nbd+unix:///EXPORT?socket=PATH       the same through a socket
  stonefold:DISK                       a disk of the server that --api names
  null:                                answers at once: what the load generator itself can do
";

/// A profile of any kind, as it is listed.
#[derive(Serialize)]
struct Listed {
    name: String,
    title: String,
    source: String,
    seconds: u64,
    quick_seconds: u64,
    bytes: u64,
    quick_bytes: u64,
}

fn listed() -> Vec<Listed> {
    let load = |profile: Profile| Listed {
        seconds: profile.duration(false).as_secs(),
        quick_seconds: profile.duration(true).as_secs(),
        bytes: profile.bytes(false),
        quick_bytes: profile.bytes(true),
        name: profile.name,
        title: profile.title,
        source: profile.source,
    };
    let database = |profile: oltp::Profile| Listed {
        seconds: profile.duration(false).as_secs(),
        quick_seconds: profile.duration(true).as_secs(),
        bytes: profile.scale(false).bytes(),
        quick_bytes: profile.scale(true).bytes(),
        name: profile.name,
        title: profile.title,
        source: profile.source,
    };
    // Of one tile; how many follow is not known before.
    let tile = |profile: tiles::Profile| Listed {
        seconds: profile.sample(false).as_secs(),
        quick_seconds: profile.sample(true).as_secs(),
        bytes: profile.tile_bytes(profile.scale(false)),
        quick_bytes: profile.tile_bytes(profile.scale(true)),
        name: profile.name,
        title: profile.title,
        source: profile.source,
    };
    let loads = shipped::all().map(load);
    loads.chain(oltp::Profile::shipped().map(database)).chain(tiles::Profile::shipped().map(tile)).collect()
}

pub(super) fn ls(context: &Context) -> std::result::Result<(), Failure> {
    let profiles = listed();
    context.answer(&profiles, || {
        let mut table = Table::new(&["PROFILE", "TAKES>", "SIZE>", "QUICK>", "SIZE>", "WHAT"]);
        for one in &profiles {
            table.row([
                one.name.clone(),
                length(Duration::from_secs(one.seconds)),
                Size(one.bytes).to_string(),
                length(Duration::from_secs(one.quick_seconds)),
                Size(one.quick_bytes).to_string(),
                one.title.clone(),
            ]);
        }
        format!("{}\n{TARGETS}", table.text())
    })
}

pub(super) fn show(context: &Context, name: &str) -> std::result::Result<(), Failure> {
    let (name, text) = match find(name)?.0 {
        Found::Load(profile) => (profile.name, profile.text),
        Found::Database(profile) => (profile.name, profile.text),
        Found::Tiles(profile) => (profile.name, profile.text),
    };
    context.answer(&json!({ "name": name, "text": text }), || text.clone())
}

/// A profile of any kind.
pub(super) enum Found {
    /// Volumes and streams.
    Load(Box<Profile>),
    /// A database.
    Database(Box<oltp::Profile>),
    /// Tiles of virtual machines.
    Tiles(Box<tiles::Profile>),
}

/// A profile by its name or in a file; true where it is one of the lab's own. One that there is not, or that cannot be run, is misuse; a
/// file that cannot be read is not.
pub(super) fn find(name: &str) -> std::result::Result<(Found, bool), Failure> {
    if let Some(database) = oltp::Profile::shipped().find(|database| database.name == name) {
        return Ok((Found::Database(Box::new(database)), true));
    }
    if let Some(tile) = tiles::Profile::shipped().find(|tile| tile.name == name) {
        return Ok((Found::Tiles(Box::new(tile)), true));
    }
    if !name.ends_with(".toml") {
        let profile = shipped::find(name).map_err(Failure::Misuse)?;
        return Ok((Found::Load(Box::new(profile)), true));
    }
    let path = Path::new(name);
    let text = std::fs::read_to_string(path)
        .map_err(|e| Error::io(format!("reading the profile '{name}'"), e).remedy("name a readable file"))?;
    let stem = path.file_stem().map_or_else(|| name.to_owned(), |stem| stem.to_string_lossy().into_owned());
    read(stem, text).map_err(Failure::Misuse)
}

/// Of a file's name and its text.
fn read(stem: String, text: String) -> Result<(Found, bool)> {
    if oltp::Profile::is_one(&text) {
        let locked = oltp::Profile::shipped().any(|shipped| (&shipped.name, &shipped.text) == (&stem, &text));
        return Ok((Found::Database(Box::new(oltp::Profile::parse(&stem, &text)?)), locked));
    }
    if tiles::Profile::is_one(&text) {
        let locked =
            tiles::Profile::shipped().any(|shipped| (&shipped.name, &shipped.text) == (&stem, &text));
        return Ok((Found::Tiles(Box::new(tiles::Profile::parse(&stem, &text)?)), locked));
    }
    // A file that is word for word a profile of the lab is that.
    let locked = shipped::find(&stem).is_ok_and(|profile| profile.text == text);
    Profile::parse(&stem, &text).map(|profile| (Found::Load(Box::new(profile)), locked))
}

/// `3 min`, `1.5 h`.
pub(super) fn length(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{:.1} h", seconds as f64 / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a word that is wrong is misuse, as every flag's is; a file that cannot be read is a failure.
    #[test]
    fn a_profile_that_is_none_is_misuse() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        std::fs::write(path("bad.toml"), "title = ").unwrap();
        std::fs::write(path("database.toml"), "[database]\nusers = 'many'").unwrap();
        for name in ["nonsense".to_owned(), path("bad.toml"), path("database.toml")] {
            assert!(matches!(find(&name), Err(Failure::Misuse(_))), "{name}");
        }
        assert!(matches!(find(&path("none.toml")), Err(Failure::Failed(_))));
        assert!(find("ab").is_ok_and(|(_, shipped)| shipped));
    }
}
