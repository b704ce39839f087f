//! Parts of a disk, and where each is read.

/// A part of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::ssh) struct Piece {
    pub(in crate::ssh) at: u64,
    pub(in crate::ssh) bytes: u64,
    pub(in crate::ssh) from: Place,
}

/// Where it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::ssh) enum Place {
    Zeros,
    /// A device or a file, and where in it.
    Device(String, u64),
    /// A copy, by its number, of a place that is kept before the snapshots are made, and where in that.
    Kept(usize, u64),
}

/// Puts a piece over what was there, as far as it lies within.
pub(super) fn put(pieces: &mut Vec<Piece>, piece: Piece, end: u64) {
    let piece = Piece { bytes: piece.bytes.min(end.saturating_sub(piece.at)), ..piece };
    if piece.bytes == 0 {
        return;
    }
    let (from, until) = (piece.at, piece.at + piece.bytes);
    let mut kept = Vec::with_capacity(pieces.len() + 2);
    for old in pieces.drain(..) {
        let before = part_of(&old, old.at, from);
        let behind = part_of(&old, until, old.at + old.bytes);
        kept.extend(before.into_iter().chain(behind));
    }
    kept.push(piece);
    kept.sort_unstable_by_key(|piece| piece.at);
    *pieces = kept;
}

/// What of a piece lies in a range; nothing where that is empty.
pub(in crate::ssh) fn part_of(piece: &Piece, from: u64, until: u64) -> Option<Piece> {
    let (from, until) = (from.max(piece.at), until.min(piece.at + piece.bytes));
    if from >= until {
        return None;
    }
    let skipped = from - piece.at;
    let place = match &piece.from {
        Place::Zeros => Place::Zeros,
        Place::Device(path, at) => Place::Device(path.clone(), at + skipped),
        Place::Kept(number, at) => Place::Kept(*number, at + skipped),
    };
    Some(Piece { at: from, bytes: until - from, from: place })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_put_over_others() {
        let place = |path: &str, at| Place::Device(path.to_owned(), at);
        let mut pieces = vec![Piece { at: 0, bytes: 100, from: place("a", 1000) }];
        put(&mut pieces, Piece { at: 10, bytes: 20, from: Place::Zeros }, 100);
        put(&mut pieces, Piece { at: 20, bytes: 20, from: place("b", 5) }, 100);
        put(&mut pieces, Piece { at: 90, bytes: 50, from: Place::Zeros }, 100);
        put(&mut pieces, Piece { at: 200, bytes: 50, from: Place::Zeros }, 100);
        let all: Vec<(u64, u64, Place)> =
            pieces.into_iter().map(|piece| (piece.at, piece.bytes, piece.from)).collect();
        assert_eq!(
            all,
            [
                (0, 10, place("a", 1000)),
                (10, 10, Place::Zeros),
                (20, 20, place("b", 5)),
                (40, 50, place("a", 1040)),
                (90, 10, Place::Zeros)
            ]
        );
    }
}
