//! What lets an object's only copy survive the loss of pages: a checksum for each of them, and parity.
//!
//! The pages of a payload are dealt out to stripes in turn; a stripe has one page of parity, the XOR of its pages (a short last
//! page counts as if zeros followed). A page that is lost is known by its checksum, and is the XOR of the others of its stripe:
//! so one page of each stripe may be lost, and as many in a row as there are stripes. Up to [`MIRRORED_PAGES`] pages there are
//! as many stripes as pages, and parity is a second copy; of a long object it is one page for [`STRIPE_PAGES_MAX`], some 1.6%.
//!
//! *Promises*: what is mended has the checksum that was put, or it is not changed.

use stonefold_env::give_way;
use stonefold_types::AlignedBuf;
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of a page: what direct I/O reads and writes, and no less than media lose at once.
pub(super) const PAGE: usize = AlignedBuf::ALIGN;
/// An object of no more pages is kept twice.
const MIRRORED_PAGES: usize = 16;
/// Pages in a stripe, at most.
const STRIPE_PAGES_MAX: usize = 64;

/// Pages of a payload of so many bytes; the last may be short.
pub(super) fn pages(len: u64) -> usize {
    len.div_ceil(PAGE as u64) as usize
}

/// Pages of parity for a payload of so many bytes: how many stripes it has. Never falls as the length grows.
pub(super) fn parity_pages(len: u64) -> usize {
    let pages = pages(len);
    pages.min(MIRRORED_PAGES).max(pages.div_ceil(STRIPE_PAGES_MAX))
}

/// The parity of a payload.
pub(super) fn parity_of(payload: &[u8]) -> AlignedBuf {
    let mut parity = AlignedBuf::zeroed(parity_pages(payload.len() as u64) * PAGE);
    // Row by row: what is added to is as long as the row, and stays in the processor's cache.
    for row in payload.chunks(parity.len().max(1)) {
        give_way();
        add(&mut parity[..row.len()], row);
    }
    parity
}

/// The checksums of the pages of a payload, then of its parity.
pub(super) fn sums_of(payload: &[u8], parity: &[u8]) -> Vec<u32> {
    let runs = payload.chunks(16 * PAGE).chain(parity.chunks(16 * PAGE));
    let pages = runs.flat_map(|run| {
        give_way();
        run.chunks(PAGE)
    });
    pages.map(sum_of).collect()
}

fn sum_of(page: &[u8]) -> u32 {
    xxh3_64(page) as u32
}

fn add(to: &mut [u8], what: &[u8]) {
    to.iter_mut().zip(what).for_each(|(to, what)| *to ^= what);
}

/// A payload and its parity as they were read, and the checksums that were put with them.
pub(super) struct Guarded<'a> {
    pub(super) payload: &'a mut [u8],
    pub(super) parity: &'a mut [u8],
    /// See [`sums_of`].
    pub(super) sums: &'a [u32],
}

/// What was damaged: pages, counted through payload and parity.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Damage {
    /// These are sound again.
    pub(super) mended: Vec<usize>,
    /// These are as they were found.
    pub(super) lost: Vec<usize>,
}

impl Guarded<'_> {
    /// Mends what can be. `unreadable` pages hold nothing that was read, and are to be written whatever they hold.
    pub(super) fn mend(&mut self, unreadable: &[usize]) -> Damage {
        let (pages, stripes) = (pages(self.payload.len() as u64), self.parity.len() / PAGE);
        let mut damage = Damage::default();
        let mut of_stripe = vec![Vec::new(); stripes];
        for page in 0..pages + stripes {
            if unreadable.contains(&page) || sum_of(self.page(page)) != self.sums[page] {
                let stripe = if page < pages { page % stripes } else { page - pages };
                of_stripe[stripe].push(page);
            }
        }
        for (stripe, bad) in of_stripe.into_iter().enumerate() {
            match bad[..] {
                [only] if self.restore(stripe, only) => damage.mended.push(only),
                _ => damage.lost.extend(bad),
            }
        }
        damage
    }

    /// Makes a page what the others of its stripe say that it was, if its checksum agrees.
    fn restore(&mut self, stripe: usize, lost: usize) -> bool {
        let (pages, stripes) = (pages(self.payload.len() as u64), self.parity.len() / PAGE);
        let mut was = [0; PAGE];
        for page in (stripe..pages).step_by(stripes).chain([pages + stripe]).filter(|page| *page != lost) {
            let page = self.page(page);
            add(&mut was[..page.len()], page);
        }
        let expected = self.sums[lost];
        let page = self.page_mut(lost);
        let was = &was[..page.len()];
        let is_sound = sum_of(was) == expected;
        if is_sound {
            page.copy_from_slice(was);
        }
        is_sound
    }

    /// A page of the payload, or behind these of the parity.
    pub(super) fn page(&self, page: usize) -> &[u8] {
        let pages = pages(self.payload.len() as u64);
        match page.checked_sub(pages) {
            None => &self.payload[page * PAGE..self.payload.len().min((page + 1) * PAGE)],
            Some(parity) => &self.parity[parity * PAGE..][..PAGE],
        }
    }

    fn page_mut(&mut self, page: usize) -> &mut [u8] {
        let (pages, len) = (pages(self.payload.len() as u64), self.payload.len());
        match page.checked_sub(pages) {
            None => &mut self.payload[page * PAGE..len.min((page + 1) * PAGE)],
            Some(parity) => &mut self.parity[parity * PAGE..][..PAGE],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTHS: [usize; 9] =
        [1, 56, PAGE, PAGE + 1, 3 * PAGE - 1, 16 * PAGE, 17 * PAGE + 9, 200 * PAGE, 1100 * PAGE + 77];

    struct Object {
        payload: Vec<u8>,
        parity: Vec<u8>,
        sums: Vec<u32>,
    }

    impl Object {
        fn new(len: usize) -> Object {
            let payload: Vec<u8> = (0..len).map(|at| (at * 7 + at / PAGE * 13 + at / 251) as u8).collect();
            let parity = parity_of(&payload).to_vec();
            let sums = sums_of(&payload, &parity);
            Object { payload, parity, sums }
        }

        /// Loses these pages and mends; the object is as it was wherever the damage says that it is.
        fn lose(&self, lost: &[usize], unreadable: bool) -> Damage {
            let (mut payload, mut parity) = (self.payload.clone(), self.parity.clone());
            let mut guarded = Guarded { payload: &mut payload, parity: &mut parity, sums: &self.sums };
            for page in lost {
                guarded.page_mut(*page).iter_mut().for_each(|b| *b = if unreadable { 0 } else { *b ^ 0x5a });
            }
            let damage = guarded.mend(if unreadable { lost } else { &[] });
            if damage.lost.is_empty() {
                assert!(payload == self.payload && parity == self.parity, "all is as it was");
            }
            damage
        }
    }

    #[test]
    fn one_page_anywhere_can_be_lost() {
        for len in LENGTHS {
            let object = Object::new(len);
            assert_eq!(object.lose(&[], false), Damage::default());
            for page in (0..object.sums.len()).step_by(1 + len / PAGE / 40) {
                for unreadable in [false, true] {
                    let damage = object.lose(&[page], unreadable);
                    assert_eq!(damage, Damage { mended: vec![page], lost: vec![] }, "{len} bytes");
                }
            }
        }
    }

    #[test]
    fn a_run_as_long_as_there_are_stripes_can_be_lost() {
        for len in LENGTHS {
            let object = Object::new(len);
            let (pages, stripes) = (pages(len as u64), parity_pages(len as u64));
            for from in
                [0, 1, 5, stripes / 2, pages - stripes].into_iter().filter(|from| from + stripes <= pages)
            {
                let run: Vec<usize> = (from..from + stripes).collect();
                assert_eq!(object.lose(&run, false).lost, [], "{len} bytes from page {from}");
                assert_eq!(object.lose(&run, true).lost, []);
            }
        }
    }

    #[test]
    fn two_of_a_stripe_are_lost_and_the_others_are_mended() {
        let object = Object::new(200 * PAGE);
        for unreadable in [false, true] {
            let damage = object.lose(&[3, 3 + 16, 70, 200 + 9], unreadable);
            assert_eq!(damage, Damage { lost: vec![3, 19], mended: vec![70, 209] });
        }
        assert_eq!(object.lose(&[5, 205], false).lost, [5, 205], "a page and its parity");
    }

    #[test]
    fn the_more_is_put_the_more_parity_it_has() {
        let counts: Vec<usize> = (0..3000u64).map(|pages| parity_pages(pages * PAGE as u64)).collect();
        assert!(counts.is_sorted());
        assert_eq!((counts[0], counts[1], counts[16], counts[1024], counts[1025]), (0, 1, 16, 16, 17));
    }
}
