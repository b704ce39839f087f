//! What an opened pool must have: the disks, made the first time, and later everything that was promised, and nothing else.

use crate::clients::{Stop, read_regions};
use crate::life::{DISK_BYTES, keys};
use crate::story::Story;
use crate::world::World;
use parking_lot::Mutex;
use std::sync::Arc;
use stonefold_store::{DomainPolicy, Store};
use stonefold_types::{DiskSettings, Durability, ExportName, Kind, Name};

/// A sealed domain, made the first time; its key, or the master key's wrapping of it, is changed now and then.
async fn sealed_domain(world: &World, store: &Store) -> stonefold_types::Result<Name> {
    let name = Name::new("vault").expect("letters make a name");
    if store.domain(&name).is_err() {
        store.create_domain(&name, DomainPolicy::default(), true).await?;
    }
    match world.with_dice(|dice| dice.below(8)) {
        // Refused once there are as many keys as there may be; a life more or less does not matter.
        0 if store.domain(&name)?.key.is_some_and(|(version, _)| version < 20) => {
            store.rotate_domain(&name).await?;
        }
        1 => store.rewrap_domains(keys().master.expect("there is one")).await?,
        _ => {}
    }
    Ok(name)
}

/// Makes the disks the first time; later checks that everything is there that must be, and nothing else.
pub(crate) async fn find_everything(
    world: &World,
    store: &Arc<Store>,
    story: &Mutex<Story>,
    stormy: bool,
) -> Result<(), Stop> {
    let sort = |doing: &str, error: stonefold_types::Error| match error.kind() {
        Kind::Io if stormy => Stop::Weather(error),
        _ => Stop::Wrong(format!("{doing}: {error:?}")),
    };
    let domain = sealed_domain(world, store).await.map_err(|e| sort("the sealed domain", e))?;
    let mut disks: Vec<String> = story.lock().regions.iter().map(|region| region.disk.clone()).collect();
    disks.dedup();
    let hidden = story.lock().hidden.clone();
    check_hidden(store, hidden.as_deref())?;
    for disk in disks.iter().filter(|disk| Some(*disk) != hidden.as_ref()) {
        let name = Name::new(disk).expect("disks have names");
        if store.disk(&name).is_err() {
            if story.lock().regions.iter().any(|region| region.disk == *disk && region.model.flush_line() > 0)
            {
                return Err(Stop::Wrong(format!("disk {disk} is gone")));
            }
            let settings = DiskSettings { durability: durability(world), ..DiskSettings::default() };
            let bytes = first_size(story, disk);
            let made = match world.with_dice(|dice| dice.one_in(2)) {
                true => store.create_disk_in(&domain, &name, bytes, settings).await,
                false => store.create_disk(&name, bytes, settings).await,
            };
            made.map_err(|e| sort("creating", e))?;
        } else if world.with_dice(|dice| dice.one_in(8)) {
            let settings = store.disk(&name).map_err(|e| sort("looking", e))?.settings;
            let settings = DiskSettings { durability: durability(world), ..settings };
            store.set_disk(&name, |_| settings).await.map_err(|e| sort("setting", e))?;
        }
        let now = store.disk(&name).map_err(|e| sort("looking", e))?.settings.durability;
        let mut story = story.lock();
        story.regions.iter_mut().filter(|r| r.disk == *disk).for_each(|r| r.ack = now == Durability::Ack);
    }
    let mut contents = Vec::new();
    for (disk, base, bytes) in places(story) {
        if Some(&disk) == hidden.as_ref() {
            contents.push(None);
            continue;
        }
        let export = ExportName::Disk(Name::new(&disk).expect("disks have names"));
        let attachment = store.attach(&export).map_err(|e| sort("attaching", e))?;
        let mut buf = vec![0xee; bytes.min(attachment.size_bytes() - base) as usize];
        attachment.read(base, &mut buf).await.map_err(|e| sort("reading after a crash", e))?;
        contents.push(Some(buf));
    }
    story.lock().check_after_crash(&contents).map_err(Stop::Wrong)?;
    find_snapshots(store, story, &sort).await?;
    for disk in store.disks().into_iter().filter(|disk| disk.name.as_str().starts_with('c')) {
        crate::family::remove(store, &disk.name).await.map_err(|e| sort("removing a left clone", e))?;
    }
    Ok(())
}

/// A disk whose head has rotted is refused, told by name, and the only one of which that is so.
fn check_hidden(store: &Arc<Store>, hidden: Option<&str>) -> Result<(), Stop> {
    let told: Vec<String> = store.damaged_disks().iter().map(|disk| disk.name.to_string()).collect();
    if told.iter().map(String::as_str).ne(hidden) {
        return Err(Stop::Wrong(format!("heads of {hidden:?} have rotted, and {told:?} are told")));
    }
    let Some(hidden) = hidden else { return Ok(()) };
    match store.attach(&hidden.parse().expect("a name")) {
        Err(error) if error.kind() == Kind::Corrupt && error.what().contains(hidden) => Ok(()),
        other => {
            Err(Stop::Wrong(format!("the head of {hidden} has rotted, and attaching: {:?}", other.err())))
        }
    }
}

fn durability(world: &World) -> Durability {
    if world.with_dice(|dice| dice.one_in(3)) { Durability::Ack } else { Durability::Flush }
}

/// The size with which a disk begins, in bytes.
fn first_size(story: &Mutex<Story>, disk: &str) -> u64 {
    let story = story.lock();
    let resized = story.regions.iter().find(|region| region.disk == disk && region.resizes);
    resized.map_or(DISK_BYTES, |region| region.model.after(0).size)
}

pub(crate) fn places(story: &Mutex<Story>) -> Vec<(String, u64, u64)> {
    story.lock().regions.iter().map(|region| (region.disk.clone(), region.base, region.bytes)).collect()
}

async fn find_snapshots(
    store: &Arc<Store>,
    story: &Mutex<Story>,
    sort: &impl Fn(&str, stonefold_types::Error) -> Stop,
) -> Result<(), Stop> {
    let there: Vec<String> =
        store.snapshots(None).map_err(|e| sort("listing", e))?.iter().map(|s| s.name.to_string()).collect();
    // Of clones that were left over nobody knows what they hold.
    let there: Vec<String> = there.into_iter().filter(|name| name.starts_with('d')).collect();
    if let Some(stranger) = there.iter().find(|name| !story.lock().snapshots.contains_key(*name)) {
        return Err(Stop::Wrong(format!("snapshot {stranger} was removed, or never taken")));
    }
    let hidden = story.lock().hidden.clone();
    let is_hidden = |name: &str| name.split('@').next() == hidden.as_deref();
    let known: Vec<String> = story.lock().snapshots.keys().filter(|name| !is_hidden(name)).cloned().collect();
    for name in known {
        if there.contains(&name) {
            let attachment =
                store.attach(&name.parse().expect("a name")).map_err(|e| sort("attaching", e))?;
            let contents =
                read_regions(story, &attachment, &name).await.map_err(|e| sort("reading a snapshot", e))?;
            let mut story = story.lock();
            story.check_snapshot(&name, &contents).map_err(Stop::Wrong)?;
            let taken = story.snapshots.get_mut(&name).expect("it is known");
            (taken.acked, taken.leaving) = (true, false);
        } else {
            let taken = story.lock().snapshots.remove(&name).expect("it is known");
            if taken.acked && !taken.leaving {
                return Err(Stop::Wrong(format!("snapshot {name} is gone")));
            }
        }
    }
    Ok(())
}
