//! What a transaction is about: drawn by the rules of clauses 2.4.1, 2.5.1, 2.6.1, 2.7.1 and 2.8.1 of the TPC-C specification.

use super::rules::{DISTRICTS, ITEMS, LINES, Uneven, between, last_name, percent};
use crate::chance::{Chance, Shares};

/// A kind of transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A customer orders 5 to 15 things; one in a hundred thinks better of it.
    NewOrder,
    /// A customer pays.
    Payment,
    /// What became of a customer's last order; reads only.
    OrderStatus,
    /// The oldest open order of each district is delivered.
    Delivery,
    /// How many of the things ordered last run short; reads only.
    StockLevel,
}

impl Kind {
    /// All, in the order in which they are recorded, with their shares in percent.
    pub const MIX: [(Kind, f64); 5] = [
        (Kind::NewOrder, 45.0),
        (Kind::Payment, 43.0),
        (Kind::OrderStatus, 4.0),
        (Kind::Delivery, 4.0),
        (Kind::StockLevel, 4.0),
    ];

    /// As it is called in figures and requirements.
    pub fn name(self) -> &'static str {
        match self {
            Kind::NewOrder => "new-order",
            Kind::Payment => "payment",
            Kind::OrderStatus => "order-status",
            Kind::Delivery => "delivery",
            Kind::StockLevel => "stock-level",
        }
    }

    /// Whether it changes nothing.
    pub fn is_read(self) -> bool {
        matches!(self, Kind::OrderStatus | Kind::StockLevel)
    }
}

/// A line of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub item: u32,
    pub supplier: u32,
    pub quantity: u32,
}

/// Who pays, or asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Customer {
    Number(u32),
    /// Of those with this last name, the middle one by first names.
    Name(String),
}

/// One transaction, before it is begun. A retry is of the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Input {
    NewOrder { warehouse: u32, district: u32, customer: u32, lines: Vec<Line> },
    Payment { warehouse: u32, district: u32, of: (u32, u32), customer: Customer, cents: u32 },
    OrderStatus { warehouse: u32, district: u32, customer: Customer },
    Delivery { warehouse: u32, carrier: u32 },
    StockLevel { warehouse: u32, district: u32, threshold: u32 },
}

impl Input {
    /// Lines of an order, and those of another warehouse; of a payment, 1 and whether its customer is of another.
    pub(super) fn remote(&self) -> (u64, u64) {
        match self {
            Input::NewOrder { warehouse, lines, .. } => {
                let remote = lines.iter().filter(|line| line.supplier != *warehouse).count();
                (lines.len() as u64, remote as u64)
            }
            Input::Payment { warehouse, of, .. } => (1, u64::from(of.0 != *warehouse)),
            _ => (0, 0),
        }
    }
}

/// Draws transactions for one user.
pub(super) struct Inputs {
    chance: Chance,
    mix: Shares<Kind>,
    uneven: Uneven,
    warehouses: u32,
}

impl Inputs {
    pub(super) fn new(seed: u64, uneven: Uneven, warehouses: u32) -> Self {
        Inputs { chance: Chance::new(seed), mix: Shares::new(&Kind::MIX), uneven, warehouses }
    }

    /// The next. Any warehouse may be its home: a user who stays in one would use a corner of the database, and few users a
    /// small one.
    pub(super) fn draw(&mut self) -> (Kind, Input) {
        let kind = self.mix.draw(&mut self.chance);
        let chance = &mut self.chance;
        let warehouse = between(chance, 1, self.warehouses);
        let district = between(chance, 1, DISTRICTS);
        let input = match kind {
            Kind::NewOrder => self.new_order(warehouse, district),
            Kind::Payment => self.payment(warehouse, district),
            Kind::OrderStatus => Input::OrderStatus { warehouse, district, customer: self.customer() },
            Kind::Delivery => Input::Delivery { warehouse, carrier: between(chance, 1, 10) },
            Kind::StockLevel => Input::StockLevel { warehouse, district, threshold: between(chance, 10, 20) },
        };
        (kind, input)
    }

    /// How long a user thinks who does so for a second on average: exponentially, ten seconds at most (clause 5.2.5.4).
    pub(super) fn thought(&mut self) -> f64 {
        self.chance.gap().min(10.0)
    }

    fn new_order(&mut self, warehouse: u32, district: u32) -> Input {
        let customer = self.uneven.customer(&mut self.chance);
        let many = between(&mut self.chance, LINES.0, LINES.1);
        let regretted = percent(&mut self.chance, 1);
        let mut lines: Vec<Line> = (0..many)
            .map(|_| Line {
                item: self.uneven.item(&mut self.chance),
                supplier: match percent(&mut self.chance, 1) {
                    true => self.another(warehouse),
                    false => warehouse,
                },
                quantity: between(&mut self.chance, 1, 10),
            })
            .collect();
        if let (true, Some(last)) = (regretted, lines.last_mut()) {
            // A number that no item has.
            last.item = ITEMS + 1;
        }
        Input::NewOrder { warehouse, district, customer, lines }
    }

    fn payment(&mut self, warehouse: u32, district: u32) -> Input {
        let of = match percent(&mut self.chance, 15) {
            true => (self.another(warehouse), between(&mut self.chance, 1, DISTRICTS)),
            false => (warehouse, district),
        };
        let customer = self.customer();
        let cents = between(&mut self.chance, 100, 500_000);
        Input::Payment { warehouse, district, of, customer, cents }
    }

    fn customer(&mut self) -> Customer {
        match percent(&mut self.chance, 60) {
            true => Customer::Name(last_name(self.uneven.name(&mut self.chance))),
            false => Customer::Number(self.uneven.customer(&mut self.chance)),
        }
    }

    /// Any other warehouse; the same where it is alone.
    fn another(&mut self, warehouse: u32) -> u32 {
        if self.warehouses == 1 {
            return warehouse;
        }
        let other = between(&mut self.chance, 1, self.warehouses - 1);
        if other >= warehouse { other + 1 } else { other }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(warehouses: u32) -> Inputs {
        Inputs::new(5, Uneven::pair(&mut Chance::new(5)).1, warehouses)
    }

    /// The audit's bounds, of two hundred thousand transactions.
    #[test]
    fn the_mix_and_what_is_drawn_keep_the_audits_bounds() {
        let mut inputs = inputs(10);
        let (mut kinds, mut lines, mut remote, mut regretted) = ([0f64; 5], 0f64, 0f64, 0f64);
        let (mut remote_payments, mut by_name) = (0f64, 0f64);
        let draws = 200_000;
        for _ in 0..draws {
            let (kind, input) = inputs.draw();
            kinds[Kind::MIX.iter().position(|(one, _)| *one == kind).unwrap()] += 1.0;
            match input {
                Input::NewOrder { warehouse, lines: of, customer, .. } => {
                    assert!((5..=15).contains(&of.len()) && (1..=3000).contains(&customer));
                    lines += of.len() as f64;
                    remote += of.iter().filter(|line| line.supplier != warehouse).count() as f64;
                    let wrong = of.iter().position(|line| line.item > ITEMS);
                    assert!(wrong.is_none_or(|at| at + 1 == of.len()), "only the last is wrong");
                    regretted += f64::from(u32::from(wrong.is_some()));
                }
                Input::Payment { warehouse, of, customer, cents, .. } => {
                    remote_payments += f64::from(u32::from(of.0 != warehouse));
                    by_name += f64::from(u32::from(matches!(customer, Customer::Name(_))));
                    assert!((100..=500_000).contains(&cents) && (1..=10).contains(&of.0));
                }
                Input::StockLevel { threshold, .. } => assert!((10..=20).contains(&threshold)),
                _ => {}
            }
        }
        for (got, (kind, share)) in kinds.iter().zip(Kind::MIX) {
            assert!((got / f64::from(draws) * 100.0 - share).abs() < 0.5, "{kind:?}: {got}");
        }
        assert!((9.9..10.1).contains(&(lines / kinds[0])));
        assert!((0.0095..0.0105).contains(&(remote / lines)), "{}", remote / lines);
        assert!((0.009..0.011).contains(&(regretted / kinds[0])), "{}", regretted / kinds[0]);
        assert!((0.14..0.16).contains(&(remote_payments / kinds[1])));
        assert!((0.59..0.61).contains(&(by_name / kinds[1])));
    }

    #[test]
    fn a_warehouse_that_is_alone_supplies_itself() {
        let (mut alone, mut two) = (inputs(1), inputs(2));
        assert!((0..100).all(|_| alone.another(1) == 1));
        assert!((0..100).all(|_| two.another(1) == 2 && two.another(2) == 1));
    }

    #[test]
    fn a_seed_draws_the_same_transactions() {
        let (mut one, mut other) = (inputs(3), inputs(3));
        assert!((0..500).all(|_| one.draw() == other.draw()));
    }
}
