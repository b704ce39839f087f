//! A clone, its snapshots, its own clone: written to, set back, and taken apart from either end.
//!
//! Nobody else knows these disks, so what they must read is known here, byte for byte.

use crate::clients::Client;
use stonefold_dice::Dice;
use stonefold_store::Store;
use stonefold_types::{Error, Kind, Name, SnapshotName};

/// What the family's disks are looked at: some blocks of the client's region and beyond.
const BYTES: usize = 40 << 10;

/// Plays through; the inner error says what was wrong, the outer one is the medium's.
pub(crate) async fn play(client: &Client, snapshot: &str) -> Result<Result<(), String>, Error> {
    let store = &client.store;
    let base = client.story.lock().regions[client.id].base;
    let fresh = |letter: &str| {
        let text = format!("c{letter}{:x}", client.throw(Dice::number));
        Name::new(&text).expect("digits make a name")
    };
    let (child, grandchild) = (fresh("c"), fresh("g"));
    let origin: SnapshotName = snapshot.parse().expect("it is a snapshot's name");
    store.clone_snapshot(&origin, &child).await?;
    let mut expected = read(store, child.as_str(), base).await?;
    write(client, &child, base, &mut expected).await?;
    let one = SnapshotName { disk: child.clone(), snapshot: Name::new("one").expect("a name") };
    store.snapshot(std::slice::from_ref(&child), Some(one.snapshot.clone())).await?;
    let at_one = expected.clone();
    write(client, &child, base, &mut expected).await?;
    if client.throw(|dice| dice.one_in(3)) {
        resize(client, &child, base, &mut expected).await?;
    }
    if client.throw(|dice| dice.one_in(2)) {
        let kept = store.rollback(&one).await?;
        if read(store, &kept.name.to_string(), base).await? != expected {
            return Ok(Err(format!("{} does not hold what was there before the rollback", kept.name)));
        }
        let size = store.attach(&one.to_string().parse()?)?.size_bytes();
        if store.disk(&child)?.size_bytes != size {
            return Ok(Err(format!("{child} did not get back the size of {one}")));
        }
        expected.clone_from(&at_one);
        write(client, &child, base, &mut expected).await?;
    }
    store.clone_snapshot(&one, &grandchild).await?;
    let mut grand_expected = at_one.clone();
    write(client, &grandchild, base, &mut grand_expected).await?;
    if client.throw(|dice| dice.one_in(2)) {
        crate::life::reclaim(store).await?;
    }
    if read(store, &one.to_string(), base).await? != at_one {
        return Ok(Err(format!("{one} does not hold what it held")));
    }
    let order =
        if client.throw(|dice| dice.one_in(2)) { [&child, &grandchild] } else { [&grandchild, &child] };
    if client.throw(|dice| dice.one_in(3)) {
        return late_clones(client, (&one, &at_one), &grandchild, base).await;
    }
    for (at, gone) in order.into_iter().enumerate() {
        remove(store, gone).await?;
        if client.throw(|dice| dice.one_in(2)) {
            crate::life::reclaim(store).await?;
            store.drop_cache();
        }
        let (left, holds) = if *gone == child { (&grandchild, &grand_expected) } else { (&child, &expected) };
        if at == 0 && read(store, left.as_str(), base).await? != *holds {
            return Ok(Err(format!("{left} changed when {gone} was removed")));
        }
    }
    Ok(Ok(()))
}

/// Clones are being made while the disk they begin as is removed, and what nobody holds is given back.
async fn late_clones(
    client: &Client,
    (one, at_one): (&SnapshotName, &[u8]),
    other: &Name,
    base: u64,
) -> Result<Result<(), String>, Error> {
    let store = &client.store;
    remove(store, other).await?;
    let late: Vec<Name> = (0..4)
        .map(|_| Name::new(&format!("cl{:x}", client.throw(Dice::number))).expect("digits make a name"))
        .collect();
    let cloning = futures::future::join_all(late.iter().map(|late| store.clone_snapshot(one, late)));
    let removing = async {
        let removed = remove(store, &one.disk).await;
        crate::life::reclaim(store).await?;
        Ok::<_, Error>(removed)
    };
    let (cloned, removed) = futures::join!(cloning, removing);
    let cloned: Vec<_> = cloned.into_iter().collect::<Result<_, _>>()?;
    match removed? {
        // As long as they were being made; no longer.
        Err(error) if error.kind() == Kind::Busy => remove(store, &one.disk).await?,
        done => done?,
    }
    crate::life::reclaim(store).await?;
    store.drop_cache();
    for late in cloned {
        if read(store, late.name.as_str(), base).await? != at_one {
            return Ok(Err(format!("{} does not hold what its snapshot {one} held", late.name)));
        }
        remove(store, &late.name).await?;
    }
    Ok(Ok(()))
}

/// Removes a disk with its snapshots. Of two calls that want to, one does.
pub(crate) async fn remove(store: &Store, disk: &Name) -> Result<(), Error> {
    for snapshot in store.snapshots(Some(disk))? {
        store.remove_snapshot(&snapshot.name).await?;
    }
    match futures::join!(store.remove_disk(disk), store.remove_disk(disk)) {
        (Ok(()), Err(late)) if late.kind() == Kind::NotFound => Ok(()),
        (Ok(()), Ok(())) => Err(Error::new(Kind::Conflict, format!("{disk} was removed twice"))),
        (Ok(()), Err(error)) | (Err(error), _) => Err(error),
    }
}

/// What is there; fewer bytes where the disk ends before.
async fn read(store: &std::sync::Arc<Store>, export: &str, base: u64) -> Result<Vec<u8>, Error> {
    let attachment = store.attach(&export.parse()?)?;
    let mut buf = vec![0xee; BYTES.min((attachment.size_bytes() - base) as usize)];
    attachment.read(base, &mut buf).await?;
    Ok(buf)
}

/// Cuts off the disk's end, and perhaps lets it grow again; a part of what is looked at is then zeros.
async fn resize(client: &Client, disk: &Name, base: u64, expected: &mut Vec<u8>) -> Result<(), Error> {
    let before = client.store.disk(disk)?.size_bytes;
    let cut = base.next_multiple_of(4096) + 4096 * client.throw(|dice| 1 + dice.below(8));
    client.store.resize_disk(disk, cut, true).await?;
    expected.truncate((cut - base) as usize);
    // What comes next writes to all that is looked at, unless it is set back.
    client.store.resize_disk(disk, before, true).await?;
    expected.resize(BYTES, 0);
    Ok(())
}

async fn write(client: &Client, disk: &Name, base: u64, expected: &mut [u8]) -> Result<(), Error> {
    let attachment = client.store.attach(&disk.as_str().parse()?)?;
    for _ in 0..1 + client.throw(|dice| dice.below(3)) {
        let (offset, len, tag) = client.throw(|dice| {
            let offset = dice.below(BYTES as u64 - 512);
            (offset as usize, 1 + dice.below(12 << 10) as usize, dice.below(4) as u8)
        });
        let len = len.min(BYTES - offset);
        expected[offset..offset + len].fill(tag);
        attachment.write(base + offset as u64, &vec![tag; len], false).await?;
    }
    Ok(())
}
