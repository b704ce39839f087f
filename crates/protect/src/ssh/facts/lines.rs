//! Single lines of what the other machine tells. One that is not understood is nothing.

use super::{BYTES_MAX, Block, Is, Logical, Mount, Named, Number, Physical, Row, SECTOR, is_plain};

pub(super) fn first_word(line: &str) -> Option<String> {
    line.split_whitespace().next().map(str::to_owned)
}

pub(super) fn named(line: &str) -> Option<Named> {
    let mut words = line.split('|');
    let asked = words.next()?.to_owned();
    let is = match (words.next()?, words.next(), words.next()) {
        ("block", Some(name), None) => Is::Block(name.replace('/', "!")),
        ("file", Some(path), Some(bytes)) => Is::File(path.to_owned(), self::bytes(bytes)?),
        ("folder", Some(path), None) => Is::Folder(path.to_owned()),
        _ => Is::Nothing,
    };
    Some(Named { asked, is })
}

fn number(text: &str) -> Option<Number> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// A count of bytes that can be reckoned with.
fn bytes(text: &str) -> Option<u64> {
    text.parse().ok().filter(|bytes| *bytes <= BYTES_MAX)
}

fn sectors(text: &str) -> Option<u64> {
    text.parse::<u64>().ok()?.checked_mul(SECTOR).filter(|bytes| *bytes <= BYTES_MAX)
}

pub(super) fn block(line: &str) -> Option<Block> {
    let words: Vec<&str> = line.split('|').collect();
    let [name, device, size, start, disk, mapped, slaves] = words.as_slice() else { return None };
    let part_of = match *disk {
        "-" => None,
        disk => Some((disk.to_owned(), sectors(start)?)),
    };
    let block = Block {
        name: (*name).to_owned(),
        number: number(device)?,
        bytes: sectors(size)?,
        part_of,
        mapped: Some(*mapped).filter(|name| *name != "-").map(str::to_owned),
        slaves: slaves.split_whitespace().filter(|name| *name != "*").map(str::to_owned).collect(),
    };
    is_plain(&block.path()).then_some(block)
}

/// A line of mountinfo (proc(5)): what follows the dash may stand behind any number of words.
pub(super) fn mount(line: &str) -> Option<Mount> {
    let (before, behind) = line.split_once(" - ")?;
    let words: Vec<&str> = before.split(' ').collect();
    let mut behind = behind.split(' ');
    let (kind, source, options) = (behind.next()?, behind.next()?, behind.next()?);
    Some(Mount {
        number: number(words.get(2)?)?,
        folder: (*words.get(4)?).to_owned(),
        kind: kind.to_owned(),
        source: source.to_owned(),
        written: options.split(',').any(|option| option == "rw"),
    })
}

/// A line of `lsblk -P`.
pub(super) fn kind(line: &str) -> Option<(String, String)> {
    let of = |key: &str| {
        let (_, rest) = line.split_once(&format!("{key}=\""))?;
        rest.split_once('"').map(|(value, _)| value.to_owned())
    };
    Some((of("KNAME")?, of("FSTYPE")?)).filter(|(_, kind)| !kind.is_empty())
}

pub(super) fn physical(line: &str) -> Option<Physical> {
    let words: Vec<&str> = line.split('|').map(str::trim).collect();
    let [device, group, begins, extent, extents, free] = words.as_slice() else { return None };
    let (begins, extent_bytes, extents) = (bytes(begins)?, bytes(extent)?, bytes(extents)?);
    extents.checked_mul(extent_bytes)?.checked_add(begins).filter(|end| *end <= BYTES_MAX)?;
    Some(Physical {
        device: (*device).to_owned(),
        group: (*group).to_owned(),
        begins,
        extent_bytes,
        extents,
        free_bytes: bytes(free)?,
        unused: Vec::new(),
    })
}

pub(super) fn logical(line: &str) -> Option<(Number, Logical)> {
    let words: Vec<&str> = line.split('|').map(str::trim).collect();
    let [group, name, major, minor, bytes, kind] = words.as_slice() else { return None };
    let volume = Logical {
        group: (*group).to_owned(),
        name: (*name).to_owned(),
        bytes: self::bytes(bytes)?,
        kind: (*kind).to_owned(),
    };
    // Of one that is not active there are none.
    let number = (major.parse().ok()?, minor.parse().ok()?);
    (is_plain(group) && is_plain(name)).then_some((number, volume))
}

/// A pool of thin volumes; one that is not active tells no percents, and its volumes cannot be read.
pub(super) fn pool(line: &str) -> Option<(String, f64)> {
    let words: Vec<&str> = line.split('|').map(str::trim).collect();
    let [group, data, metadata] = words.as_slice() else { return None };
    let (data, metadata): (f64, f64) = (data.parse().ok()?, metadata.parse().ok()?);
    Some(((*group).to_owned(), data.max(metadata)))
}

/// A line of `dmsetup table`, of whatever kind of map.
pub(super) fn row(line: &str) -> Option<(String, Row)> {
    let (name, rest) = line.split_once(": ")?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    let [at, length, kind, place @ ..] = words.as_slice() else { return None };
    let linear = match (*kind, place) {
        ("linear", [device, offset]) => Some((number(device)?, sectors(offset)?)),
        _ => None,
    };
    Some((name.to_owned(), Row { at: sectors(at)?, bytes: sectors(length)?, linear }))
}
