//! The rows that are there before the first transaction: clause 4.3.3 of the TPC-C specification, as text for COPY.
//!
//! *Promises*: a seed makes the same rows, in the same order, whoever loads which warehouse.

use super::rules::{
    CUSTOMERS, DISTRICTS, ITEMS, LINES, OPEN_FROM, ORDERS, Uneven, between, data, digits, last_name, letters,
    percent, permutation,
};
use crate::chance::Chance;
use std::io::{self, Write};

/// When everything that is loaded took place: fixed, so that a seed makes the same rows.
const THEN: &str = "2000-01-01 00:00:00";

/// Who loads what: a stream of chance for each warehouse, and one for the items.
pub(super) struct Population {
    seed: u64,
    names: Uneven,
}

/// The orders of a warehouse, in three tables at once.
#[derive(Default)]
pub(super) struct Orders {
    pub orders: Vec<u8>,
    pub lines: Vec<u8>,
    pub open: Vec<u8>,
}

/// Fields of one row.
struct Row(Vec<u8>);

impl Row {
    fn new() -> Self {
        Row(Vec::with_capacity(1024))
    }

    fn number(&mut self, number: impl std::fmt::Display) -> &mut Self {
        self.field(|into| write!(into, "{number}").expect("a vector takes all"))
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.field(|into| into.extend_from_slice(text.as_bytes()))
    }

    fn letters(&mut self, chance: &mut Chance, low: u32, high: u32) -> &mut Self {
        self.field(|into| letters(chance, into, low, high))
    }

    /// With two digits after the point.
    fn cents(&mut self, cents: u32) -> &mut Self {
        self.number(format_args!("{}.{:02}", cents / 100, cents % 100))
    }

    /// A share with four.
    fn share(&mut self, ten_thousandths: u32) -> &mut Self {
        self.number(format_args!("0.{ten_thousandths:04}"))
    }

    fn field(&mut self, add: impl FnOnce(&mut Vec<u8>)) -> &mut Self {
        add(&mut self.0);
        self.0.push(b'\t');
        self
    }

    /// Streets, city, state and code (clause 4.3.2.7).
    fn address(&mut self, chance: &mut Chance) -> &mut Self {
        self.letters(chance, 10, 20).letters(chance, 10, 20).letters(chance, 10, 20).letters(chance, 2, 2);
        self.field(|into| {
            digits(chance, into, 4);
            into.extend_from_slice(b"11111");
        })
    }

    fn end(&mut self, out: &mut impl Write) -> io::Result<()> {
        *self.0.last_mut().expect("a row has fields") = b'\n';
        out.write_all(&self.0)?;
        self.0.clear();
        Ok(())
    }
}

impl Population {
    pub(super) fn new(seed: u64, names: Uneven) -> Self {
        Population { seed, names }
    }

    /// Each table of each warehouse draws by itself.
    fn chance(&self, warehouse: u32, table: u64) -> Chance {
        Chance::new(crate::payload::mix(self.seed ^ ((u64::from(warehouse) << 8) | table)))
    }

    pub(super) fn items(&self, out: &mut impl Write) -> io::Result<()> {
        let (mut chance, mut row) = (self.chance(0, 0), Row::new());
        for item in 1..=ITEMS {
            row.number(item).number(between(&mut chance, 1, 10_000)).letters(&mut chance, 14, 24);
            row.cents(between(&mut chance, 100, 10_000)).field(|into| data(&mut chance, into));
            row.end(out)?;
        }
        Ok(())
    }

    pub(super) fn warehouse(&self, number: u32, out: &mut impl Write) -> io::Result<()> {
        let (mut chance, mut row) = (self.chance(number, 1), Row::new());
        row.number(number).letters(&mut chance, 6, 10).address(&mut chance);
        row.share(between(&mut chance, 0, 2_000)).cents(30_000_000).end(out)
    }

    pub(super) fn districts(&self, warehouse: u32, out: &mut impl Write) -> io::Result<()> {
        let (mut chance, mut row) = (self.chance(warehouse, 2), Row::new());
        for district in 1..=DISTRICTS {
            row.number(district).number(warehouse).letters(&mut chance, 6, 10).address(&mut chance);
            row.share(between(&mut chance, 0, 2_000)).cents(3_000_000).number(ORDERS + 1).end(out)?;
        }
        Ok(())
    }

    pub(super) fn stock(&self, warehouse: u32, out: &mut impl Write) -> io::Result<()> {
        let (mut chance, mut row) = (self.chance(warehouse, 3), Row::new());
        for item in 1..=ITEMS {
            row.number(item).number(warehouse).number(between(&mut chance, 10, 100));
            for _ in 0..DISTRICTS {
                row.letters(&mut chance, 24, 24);
            }
            row.number(0).number(0).number(0).field(|into| data(&mut chance, into)).end(out)?;
        }
        Ok(())
    }

    pub(super) fn customers(&self, warehouse: u32, out: &mut impl Write) -> io::Result<()> {
        let (mut chance, mut row) = (self.chance(warehouse, 4), Row::new());
        for district in 1..=DISTRICTS {
            for customer in 1..=CUSTOMERS {
                // The first thousand have every name once.
                let name = match customer {
                    1..=1000 => customer - 1,
                    _ => self.names.name(&mut chance),
                };
                row.number(customer).number(district).number(warehouse).letters(&mut chance, 8, 16);
                row.text("OE").text(&last_name(name)).address(&mut chance);
                row.field(|into| digits(&mut chance, into, 16)).text(THEN);
                row.text(if percent(&mut chance, 10) { "BC" } else { "GC" }).cents(5_000_000);
                row.share(between(&mut chance, 0, 5_000)).text("-10.00").cents(1_000);
                row.number(1).number(0).letters(&mut chance, 300, 500).end(out)?;
            }
        }
        Ok(())
    }

    pub(super) fn history(&self, warehouse: u32, out: &mut impl Write) -> io::Result<()> {
        let (mut chance, mut row) = (self.chance(warehouse, 5), Row::new());
        for district in 1..=DISTRICTS {
            for customer in 1..=CUSTOMERS {
                row.number(customer).number(district).number(warehouse).number(district).number(warehouse);
                row.text(THEN).cents(1_000).letters(&mut chance, 12, 24).end(out)?;
            }
        }
        Ok(())
    }

    pub(super) fn orders(&self, warehouse: u32) -> io::Result<Orders> {
        let (mut chance, mut row, mut orders) = (self.chance(warehouse, 6), Row::new(), Orders::default());
        for district in 1..=DISTRICTS {
            for (order, customer) in (1..=ORDERS).zip(permutation(&mut chance, CUSTOMERS)) {
                let open = order >= OPEN_FROM;
                let many = between(&mut chance, LINES.0, LINES.1);
                row.number(order).number(district).number(warehouse).number(customer).text(THEN);
                match open {
                    true => row.text("\\N"),
                    false => row.number(between(&mut chance, 1, 10)),
                };
                row.number(many).number(1).end(&mut orders.orders)?;
                if open {
                    row.number(order).number(district).number(warehouse).end(&mut orders.open)?;
                }
                for line in 1..=many {
                    row.number(order).number(district).number(warehouse).number(line);
                    row.number(between(&mut chance, 1, ITEMS)).number(warehouse);
                    row.text(if open { "\\N" } else { THEN }).number(5);
                    row.cents(if open { between(&mut chance, 1, 999_999) } else { 0 });
                    row.letters(&mut chance, 24, 24).end(&mut orders.lines)?;
                }
            }
        }
        Ok(orders)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn population() -> Population {
        Population::new(7, Uneven::pair(&mut Chance::new(7)).0)
    }

    fn rows(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> Vec<Vec<String>> {
        let mut text = Vec::new();
        write(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
    }

    /// Clause 4.3.3.1, by count.
    #[test]
    fn a_warehouse_has_the_rows_that_the_specification_wants() {
        let population = population();
        let items = rows(|out| population.items(out));
        assert_eq!(items.len(), 100_000);
        let original = items.iter().filter(|row| row[4].contains("ORIGINAL")).count();
        assert!((9_600..10_400).contains(&original), "{original} of the items");
        assert_eq!(rows(|out| population.warehouse(1, out)).len(), 1);
        assert_eq!(rows(|out| population.districts(1, out)).len(), 10);
        let stock = rows(|out| population.stock(1, out));
        assert!(stock.len() == 100_000 && stock.iter().all(|row| row.len() == 17));
        let customers = rows(|out| population.customers(1, out));
        assert!(customers.len() == 30_000 && customers.iter().all(|row| row.len() == 21));
        let bad = customers.iter().filter(|row| row[13] == "BC").count();
        assert!((2_800..3_200).contains(&bad), "{bad} customers with bad credit");
        let named = customers.iter().filter(|row| row[1] == "3" && row[5] == "BARBARBAR").count();
        assert!(named >= 1, "each name is in each district");
        assert_eq!(rows(|out| population.history(1, out)).len(), 30_000);
    }

    #[test]
    fn a_third_of_the_orders_is_open() {
        let orders = population().orders(2).unwrap();
        let rows = |text: &[u8]| rows(|out| out.write_all(text));
        let (all, lines, open) = (rows(&orders.orders), rows(&orders.lines), rows(&orders.open));
        assert_eq!((all.len(), open.len()), (30_000, 9_000));
        assert_eq!(all.iter().filter(|row| row[5] == "\\N").count(), 9_000);
        let counted: usize = all.iter().map(|row| row[6].parse::<usize>().unwrap()).sum();
        assert_eq!(counted, lines.len(), "o_ol_cnt is the number of lines");
        assert!((298_000..302_000).contains(&lines.len()), "{}", lines.len());
        assert!(lines.iter().all(|row| (row[6] == "\\N") != (row[8] == "0.00")));
    }

    #[test]
    fn a_seed_makes_the_same_rows() {
        let twice = [population(), population()].map(|population| rows(|out| population.customers(3, out)));
        assert_eq!(twice[0], twice[1]);
        assert_ne!(twice[0], rows(|out| population().customers(4, out)));
    }
}
