//! What is drawn, and how unevenly: the rules of chance of the TPC-C specification (revision 5.11), clauses 2.1.6 and 4.3.2.

use crate::chance::Chance;

/// Rows of `item`.
pub(super) const ITEMS: u32 = 100_000;
/// Districts of a warehouse.
pub(super) const DISTRICTS: u32 = 10;
/// Customers of a district.
pub(super) const CUSTOMERS: u32 = 3_000;
/// Orders of a district when it is loaded; one for each customer.
pub(super) const ORDERS: u32 = CUSTOMERS;
/// The first of them that is not delivered yet.
pub(super) const OPEN_FROM: u32 = 2_101;
/// Lines of an order, from and to.
pub(super) const LINES: (u32, u32) = (5, 15);
/// Last names that there are.
const NAMES: u32 = 1_000;
/// Of which a customer's last name is three (clause 4.3.2.3).
const SYLLABLES: [&str; 10] =
    ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
/// Letters and digits, two of them twice so that six bits draw one.
const LETTERS: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyzAB";
const LETTER_BITS: u32 = 6;

/// From `low` to `high`, both included, all alike.
pub(super) fn between(chance: &mut Chance, low: u32, high: u32) -> u32 {
    low + chance.below(u64::from(high - low) + 1) as u32
}

/// True in so many of a hundred.
pub(super) fn percent(chance: &mut Chance, share: u32) -> bool {
    chance.below(100) < u64::from(share)
}

/// From `low` to `high` with hot spots: NURand(`a`, `low`, `high`) with the constant `c` (clause 2.1.6).
pub(super) fn uneven(chance: &mut Chance, a: u32, c: u32, low: u32, high: u32) -> u32 {
    let either = between(chance, 0, a) | between(chance, low, high);
    (either + c) % (high - low + 1) + low
}

/// The constants of the uneven draws, one for each column. They lie in the hands of whoever runs the load, and are the
/// same for all of its users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Uneven {
    name: u32,
    customer: u32,
    item: u32,
}

impl Uneven {
    /// Those by which names are loaded, and those of the run, which are as far from them as clause 2.1.6.1 wants.
    pub(super) fn pair(chance: &mut Chance) -> (Self, Self) {
        let mut draw = || Uneven {
            name: between(chance, 0, 255),
            customer: between(chance, 0, 1023),
            item: between(chance, 0, 8191),
        };
        let load = draw();
        loop {
            let run = draw();
            let apart = load.name.abs_diff(run.name);
            if (65..=119).contains(&apart) && apart != 96 && apart != 112 {
                return (load, run);
            }
        }
    }

    /// The number of a last name.
    pub(super) fn name(&self, chance: &mut Chance) -> u32 {
        uneven(chance, 255, self.name, 0, NAMES - 1)
    }

    /// A customer's number in its district.
    pub(super) fn customer(&self, chance: &mut Chance) -> u32 {
        uneven(chance, 1023, self.customer, 1, CUSTOMERS)
    }

    /// An item's number.
    pub(super) fn item(&self, chance: &mut Chance) -> u32 {
        uneven(chance, 8191, self.item, 1, ITEMS)
    }
}

/// The last name with a number below 1000: a syllable for each digit.
pub(super) fn last_name(number: u32) -> String {
    [number / 100 % 10, number / 10 % 10, number % 10].map(|digit| SYLLABLES[digit as usize]).concat()
}

/// Adds letters and digits, as many as lie between `low` and `high`.
pub(super) fn letters(chance: &mut Chance, into: &mut Vec<u8>, low: u32, high: u32) {
    let mut left = between(chance, low, high);
    while left > 0 {
        let mut bits = chance.number();
        for _ in 0..left.min(u64::BITS / LETTER_BITS) {
            into.push(LETTERS[(bits & 63) as usize]);
            bits >>= LETTER_BITS;
            left -= 1;
        }
    }
}

/// Adds so many digits.
pub(super) fn digits(chance: &mut Chance, into: &mut Vec<u8>, many: u32) {
    into.extend((0..many).map(|_| b'0' + chance.below(10) as u8));
}

/// Adds what `i_data` and `s_data` hold: 26 to 50 letters, of which in a tenth of cases eight are "ORIGINAL".
pub(super) fn data(chance: &mut Chance, into: &mut Vec<u8>) {
    let begin = into.len();
    letters(chance, into, 26, 50);
    if percent(chance, 10) {
        let word = b"ORIGINAL";
        let at = begin + chance.below((into.len() - begin - word.len() + 1) as u64) as usize;
        into[at..at + word.len()].copy_from_slice(word);
    }
}

/// The numbers from 1 to `many` in an order by chance (Fisher and Yates, in Durstenfeld's form of 1964).
pub(super) fn permutation(chance: &mut Chance, many: u32) -> Vec<u32> {
    let mut numbers: Vec<u32> = (1..=many).collect();
    for place in (1..numbers.len()).rev() {
        numbers.swap(place, chance.below(place as u64 + 1) as usize);
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_syllables_of_their_digits() {
        assert_eq!(last_name(0), "BARBARBAR");
        assert_eq!(last_name(371), "PRICALLYOUGHT");
        assert_eq!(last_name(999), "EINGEINGEING");
        let names: std::collections::BTreeSet<String> = (0..NAMES).map(last_name).collect();
        assert_eq!(names.len(), NAMES as usize);
    }

    /// *Method*: 2^k - 1 or'd over a power of two's bits favours numbers with many ones; the share of the most
    /// frequent tenth is what a hundred million draws of the formula by another program gave for these constants.
    #[test]
    fn uneven_draws_keep_their_bounds_and_have_hot_spots() {
        let mut chance = Chance::new(1);
        let (load, run) = Uneven::pair(&mut chance);
        assert_ne!(load, run);
        let mut customers = vec![0u32; CUSTOMERS as usize + 1];
        let mut items = vec![0u32; ITEMS as usize + 1];
        let draws = 2_000_000;
        for _ in 0..draws {
            customers[run.customer(&mut chance) as usize] += 1;
            items[run.item(&mut chance) as usize] += 1;
            assert!(run.name(&mut chance) < NAMES);
        }
        assert_eq!((customers[0], items[0]), (0, 0), "numbers begin at 1");
        let hottest_tenth = |mut counts: Vec<u32>| {
            counts.sort_unstable_by(|a, b| b.cmp(a));
            let tenth = counts.len() / 10;
            counts[..tenth].iter().map(|count| f64::from(*count)).sum::<f64>() / f64::from(draws)
        };
        let (of_customers, of_items) = (hottest_tenth(customers), hottest_tenth(items));
        assert!((0.50..0.80).contains(&of_customers), "{of_customers}");
        assert!((0.50..0.80).contains(&of_items), "{of_items}");
    }

    #[test]
    fn the_formula_is_the_specifications() {
        // Both draws are sure when their ranges are single numbers: (0 | 7) + 5 in a range of one.
        assert_eq!(uneven(&mut Chance::new(1), 0, 5, 7, 7), 7);
        let (mut one, mut other) = (Chance::new(9), Chance::new(9));
        for c in [0, 1, 122] {
            let (a, b) = (between(&mut other, 0, 255), between(&mut other, 0, 999));
            assert_eq!(uneven(&mut one, 255, c, 0, 999), ((a | b) + c) % 1000);
        }
    }

    #[test]
    fn constants_of_load_and_run_are_apart_as_the_specification_wants() {
        for seed in 0..2_000 {
            let (load, run) = Uneven::pair(&mut Chance::new(seed));
            let apart = load.name.abs_diff(run.name);
            assert!((65..=119).contains(&apart) && ![96, 112].contains(&apart), "{load:?} {run:?}");
        }
    }

    #[test]
    fn texts_have_their_lengths_and_a_tenth_is_original() {
        let (mut chance, mut original) = (Chance::new(4), 0);
        for _ in 0..20_000 {
            let mut text = Vec::new();
            data(&mut chance, &mut text);
            assert!((26..=50).contains(&text.len()) && text.iter().all(u8::is_ascii_alphanumeric));
            original += u32::from(text.windows(8).any(|word| word == b"ORIGINAL"));
        }
        assert!((1_850..2_150).contains(&original), "{original} of 20,000");
        let mut text = Vec::new();
        digits(&mut chance, &mut text, 16);
        assert!(text.len() == 16 && text.iter().all(u8::is_ascii_digit));
    }

    #[test]
    fn a_permutation_holds_each_number_once() {
        let mut numbers = permutation(&mut Chance::new(2), CUSTOMERS);
        assert!(numbers.windows(2).any(|pair| pair[0] > pair[1]));
        numbers.sort_unstable();
        assert!(numbers.iter().copied().eq(1..=CUSTOMERS));
    }
}
