//! Changing bytes by dice.

use stonefold_dice::Dice;

/// Numbers at which readers stumble.
const EDGES: [u64; 12] =
    [0, 1, 2, 7, 8, 0x7f, 0x80, 0xff, 0xffff, 0x7fff_ffff, 0xffff_ffff, 0xffff_ffff_ffff_ffff];
/// Inputs grow up to this many bytes.
const BYTES_MAX: usize = 64 << 10;

/// One of the seeds, changed in some places; now and then noise.
pub fn input(dice: &mut Dice, seeds: &[Vec<u8>]) -> Vec<u8> {
    if seeds.is_empty() || dice.index(16) == 0 {
        return (0..dice.index(300)).map(|_| dice.number() as u8).collect();
    }
    let mut bytes = seeds[dice.index(seeds.len())].clone();
    for _ in 0..1 + dice.index(6) {
        change(dice, &mut bytes, seeds);
    }
    bytes.truncate(BYTES_MAX);
    bytes
}

fn change(dice: &mut Dice, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
    if bytes.is_empty() {
        bytes.push(dice.number() as u8);
    }
    let at = dice.index(bytes.len());
    let to = at + dice.index((bytes.len() - at).min(64)) + 1;
    match dice.index(8) {
        0 => bytes[at] ^= 1 << dice.index(8),
        1 => bytes[at] = dice.number() as u8,
        2 => bytes.truncate(at),
        3 => drop(bytes.drain(at..to)),
        4 => {
            let again = bytes[at..to].to_vec();
            bytes.splice(at..at, again);
        }
        5 => {
            let other = &seeds[dice.index(seeds.len())];
            let from = dice.index(other.len().max(1)).min(other.len());
            bytes.truncate(at);
            bytes.extend_from_slice(&other[from..]);
        }
        _ => put_edge(dice, bytes, at),
    }
}

/// A number at an edge, give or take one, of one to eight bytes in either order.
fn put_edge(dice: &mut Dice, bytes: &mut [u8], at: usize) {
    let edge = EDGES[dice.index(EDGES.len())];
    let number = edge.wrapping_add(dice.index(3) as u64).wrapping_sub(1);
    let width = (1 << dice.index(4)).min(bytes.len() - at);
    let field = match dice.index(2) {
        0 => number.to_le_bytes()[..width].to_vec(),
        _ => number.to_be_bytes()[8 - width..].to_vec(),
    };
    bytes[at..at + width].copy_from_slice(&field);
}
