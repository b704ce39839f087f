//! The five transactions as PostgreSQL runs them: statements that are prepared once for each user, and few of them, so that the
//! storage is waited for and not the way to the server.
//!
//! *Promises*: what a transaction returns after its commit was acknowledged, and not before. Each locks rows in the same order
//! as all others of its kind. *Isolation*: read committed; a row that is changed by what was read of it is locked before it
//! is read, so that no update is lost.

mod delivery;
mod new_order;
mod payment;
mod queries;

use super::input::{Customer, Input};
use postgres::{Client, Statement, Transaction};

type Result<T> = std::result::Result<T, postgres::Error>;

/// An order's key: warehouse, district, number.
pub(super) type OrderKey = (i32, i32, i32);

/// What a transaction came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    /// Committed.
    Ordered(OrderKey),
    /// Rolled back, as the customer thought better of it.
    Regretted,
    /// Committed, so many cents.
    Paid(u32),
    /// Committed.
    Other,
}

/// One user's connection with its statements.
pub(super) struct Session {
    client: Client,
    by_name: Statement,
    new_order: new_order::Statements,
    payment: payment::Statements,
    delivery: delivery::Statements,
    queries: queries::Statements,
}

impl Session {
    pub(super) fn new(mut client: Client) -> Result<Self> {
        Ok(Session {
            by_name: client.prepare(
                "SELECT c_id FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_last = $3 ORDER BY c_first",
            )?,
            new_order: new_order::Statements::new(&mut client)?,
            payment: payment::Statements::new(&mut client)?,
            delivery: delivery::Statements::new(&mut client)?,
            queries: queries::Statements::new(&mut client)?,
            client,
        })
    }

    /// Runs one to its end. An error has rolled it back.
    pub(super) fn run(&mut self, input: &Input) -> Result<Done> {
        let mut transaction = self.client.transaction()?;
        match input {
            Input::NewOrder { warehouse, district, customer, lines } => {
                self.new_order.run(transaction, *warehouse as i32, *district as i32, *customer as i32, lines)
            }
            Input::Payment { warehouse, district, of, customer, cents } => {
                let of = (of.0 as i32, of.1 as i32);
                let who = find(&mut transaction, &self.by_name, of, customer)?;
                self.payment.run(
                    transaction,
                    (*warehouse as i32, *district as i32),
                    (of.0, of.1, who),
                    *cents,
                )
            }
            Input::OrderStatus { warehouse, district, customer } => {
                let of = (*warehouse as i32, *district as i32);
                let who = find(&mut transaction, &self.by_name, of, customer)?;
                self.queries.order_status(transaction, (of.0, of.1, who))
            }
            Input::Delivery { warehouse, carrier } => {
                self.delivery.run(transaction, *warehouse as i32, *carrier as i32)
            }
            Input::StockLevel { warehouse, district, threshold } => self.queries.stock_level(
                transaction,
                (*warehouse as i32, *district as i32),
                *threshold as i32,
            ),
        }
    }
}

/// A customer's number. Each name that is asked for is in every district, as the load gives every name to one of it.
fn find(
    transaction: &mut Transaction<'_>,
    by_name: &Statement,
    (warehouse, district): (i32, i32),
    customer: &Customer,
) -> Result<i32> {
    match customer {
        Customer::Number(number) => Ok(*number as i32),
        Customer::Name(name) => {
            let rows = transaction.query(by_name, &[&warehouse, &district, name])?;
            // The middle one, rounded up (clause 2.5.2.2); a name that is not there is number 0, which nobody has.
            Ok(rows.get(rows.len().div_ceil(2).saturating_sub(1)).map_or(0, |row| row.get(0)))
        }
    }
}
