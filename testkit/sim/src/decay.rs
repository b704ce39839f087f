//! Looking at what has rotted: with a sound copy beside it nobody may notice, without one it must be told.

use crate::clients::Stop;
use crate::opening::places;
use crate::rot::is_immutable;
use crate::story::Story;
use crate::weather::Weather;
use crate::world::World;
use parking_lot::Mutex;
use std::sync::Arc;
use stonefold_engine::{Engine, Key};
use stonefold_store::{Options, Store};
use stonefold_types::{Error, Kind};

/// Bits of an only copy that flip, at most.
const BITS_MAX: u64 = 24;
/// Read at one time, in bytes.
const PIECE: usize = 12 << 10;

/// In fair weather with two copies: scrub mends all that is in use, so that either copy alone will do.
pub(crate) async fn scrub(world: &World, store: &Arc<Store>, weather: &Weather) -> Result<(), Stop> {
    if weather.copies().count() == 1 || world.with_dice(|dice| dice.one_in(2)) {
        return Ok(());
    }
    // What is mended would rot again while the rest is.
    weather.set_rot(false);
    let scrubbed = store.scrub().await.map_err(|e| wrong("scrubbing", &e))?;
    // That a head is hidden is told, too.
    let hidden = store.damaged_disks().len();
    if let Some(problem) = scrubbed.problems.get(hidden) {
        return Err(Stop::Wrong(format!("the scrub finds, and there is a sound copy: {problem}")));
    }
    for copy in 0..weather.copies().count() {
        weather.copies().read_only_from(Some(copy));
        store.drop_cache();
        let checked = store.check().await.map_err(|e| wrong("checking one copy", &e))?;
        if checked.problems.len() > hidden || checked.met > 0 {
            return Err(Stop::Wrong(format!("after a scrub copy {copy} is damaged: {checked:?}")));
        }
    }
    weather.copies().read_only_from(None);
    weather.set_rot(true);
    Ok(())
}

fn wrong(doing: &str, error: &Error) -> Stop {
    Stop::Wrong(format!("{doing}: {error:?}"))
}

/// Bits of an only copy flip. Whatever is read then is what was written, or an error that says what is damaged; and the check finds
/// it.
pub(crate) async fn rot_and_look(
    world: &World,
    weather: Weather,
    story: &Mutex<Story>,
    options: Options,
) -> Result<(), String> {
    rot(world, &weather).await?;
    let opened = Store::open(world.env(), Arc::new(weather), options).await;
    let store = opened.map_err(|e| format!("opening: {e:?}"))?;
    let damaged = look_at_all(&store, story).await?;
    let checked = store.check().await.map_err(|e| format!("checking: {e:?}"))?;
    if damaged > 0 && checked.problems.is_empty() {
        return Err(format!("{damaged} reads failed, and the check finds nothing"));
    }
    salvage(&store, story, damaged).await
}

/// Damaged maps are salvaged: whatever of it fails is told of that disk alone, and what was there reads as before, also once reclaim has
/// counted the new disks.
async fn salvage(store: &Arc<Store>, story: &Mutex<Story>, damaged: u64) -> Result<(), String> {
    let salvage = store.salvage().await.map_err(|e| format!("salvaging: {e:?}"))?;
    let made: Vec<_> = salvage.salvaged.iter().filter_map(|one| one.disk.as_ref().ok()).collect();
    if damaged == 0 && made.is_empty() {
        return Ok(());
    }
    for round in 0..2 {
        store.drop_cache();
        let now = look_at_all(store, story).await?;
        if now > damaged {
            return Err(format!("{damaged} reads failed before a salvage, and {now} after it"));
        }
        for disk in &made {
            store.disk(disk).map_err(|e| format!("a salvaged disk: {e:?}"))?;
        }
        if round == 0 {
            // What cannot be counted may keep it from its end.
            let _ = store.reclaim().await;
        }
    }
    Ok(())
}

/// Reads every disk and snapshot; returns how many pieces could not be read.
async fn look_at_all(store: &Arc<Store>, story: &Mutex<Story>) -> Result<u64, String> {
    let mut damaged = 0;
    for (at, (disk, base, bytes)) in places(story).into_iter().enumerate() {
        let attachment =
            store.attach(&disk.parse().expect("a name")).map_err(|e| format!("attaching: {e:?}"))?;
        let expected = {
            let story = story.lock();
            let now = story.regions[at].model.now();
            now.read(0, now.size as usize)
        };
        debug_assert!(expected.len() as u64 <= bytes);
        damaged += look(&attachment, &disk, base, &expected).await?;
    }
    let snapshots: Vec<String> = story.lock().snapshots.keys().cloned().collect();
    for name in snapshots {
        let Ok(attachment) = store.attach(&name.parse().expect("a name")) else { continue };
        let held: Vec<(u64, Vec<u8>)> = {
            let story = story.lock();
            let taken = &story.snapshots[&name];
            let seen = taken.seen.iter().flatten();
            let regions = taken.bounds.iter().map(|(at, _, _)| story.regions[*at].base);
            regions.zip(seen).map(|(base, image)| (base, image.read(0, image.size as usize))).collect()
        };
        for (base, expected) in held {
            damaged += look(&attachment, &name, base, &expected).await?;
        }
    }
    Ok(damaged)
}

/// Flips some bits of objects that are there.
async fn rot(world: &World, weather: &Weather) -> Result<(), String> {
    let listed = weather.list("", None, usize::MAX).await.map_err(|e| format!("listing: {e:?}"))?;
    // A segment's form beside which an earlier one still lies is spared: what is read from that one now is lost, and rightly, once
    // the leftover is swept away.
    let earlier = |key: &Key| {
        let form = key.as_str().rsplit_once('.').map(|(segment, _)| segment.to_owned());
        form.is_some_and(|segment| {
            listed.iter().any(|one| one.key < *key && one.key.as_str().starts_with(&segment))
        })
    };
    let may_rot = listed.iter().filter(|one| is_immutable(&one.key) && !earlier(&one.key));
    let objects: Vec<(Key, u64)> = may_rot.map(|one| (one.key.clone(), one.bytes)).collect();
    if objects.is_empty() {
        return Ok(());
    }
    world.with_dice(|dice| {
        for _ in 0..1 + dice.below(BITS_MAX) {
            let (key, bytes) = &objects[dice.below(objects.len() as u64) as usize];
            weather.copies().rot(key, *bytes, dice);
        }
    });
    Ok(())
}

/// Reads piece by piece; returns how many could not be read.
async fn look(
    attachment: &stonefold_store::Attachment,
    name: &str,
    base: u64,
    expected: &[u8],
) -> Result<u64, String> {
    let mut damaged = 0;
    for (at, piece) in expected.chunks(PIECE).enumerate() {
        let offset = base + (at * PIECE) as u64;
        let mut buf = vec![0xee; piece.len()];
        match attachment.read(offset, &mut buf).await {
            Ok(()) if buf == piece => {}
            Ok(()) => return Err(format!("'{name}' reads at {offset} what was never written there")),
            Err(error) if error.kind() != Kind::Corrupt => {
                return Err(format!("'{name}' at {offset}: damage is told as {error:?}"));
            }
            Err(error) if !error.to_string().contains(name) => {
                return Err(format!("damage of '{name}' is told without its name: {error}"));
            }
            Err(_) => damaged += 1,
        }
    }
    Ok(damaged)
}
