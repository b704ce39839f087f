//! Order-Status and Stock-Level (clauses 2.6.2 and 2.8.2), which read only.

use super::{Done, OrderKey, Result};
use postgres::{Client, Statement, Transaction};

pub(super) struct Statements {
    customer: Statement,
    last: Statement,
    lines: Statement,
    next: Statement,
    short: Statement,
}

impl Statements {
    pub(super) fn new(client: &mut Client) -> Result<Self> {
        Ok(Statements {
            customer: client.prepare(
                "SELECT c_balance::float8, c_first, c_middle, c_last FROM customer \
                 WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
            )?,
            last: client.prepare(
                "SELECT o_id, o_entry_d::text, o_carrier_id FROM orders \
                 WHERE o_w_id = $1 AND o_d_id = $2 AND o_c_id = $3 ORDER BY o_id DESC LIMIT 1",
            )?,
            lines: client.prepare(
                "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount::float8, ol_delivery_d::text FROM order_line \
                 WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3",
            )?,
            next: client.prepare("SELECT d_next_o_id FROM district WHERE d_w_id = $1 AND d_id = $2")?,
            short: client.prepare(
                "SELECT count(DISTINCT s_i_id) FROM order_line JOIN stock ON s_w_id = ol_w_id AND s_i_id = ol_i_id \
                 WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id >= $3 - 20 AND ol_o_id < $3 AND s_quantity < $4",
            )?,
        })
    }

    /// `of` are warehouse, district and customer.
    pub(super) fn order_status(&self, mut transaction: Transaction<'_>, of: OrderKey) -> Result<Done> {
        transaction.query_one(&self.customer, &[&of.0, &of.1, &of.2])?;
        if let Some(order) = transaction.query_opt(&self.last, &[&of.0, &of.1, &of.2])? {
            transaction.query(&self.lines, &[&of.0, &of.1, &order.get::<_, i32>(0)])?;
        }
        transaction.commit()?;
        Ok(Done::Other)
    }

    pub(super) fn stock_level(
        &self,
        mut transaction: Transaction<'_>,
        of: (i32, i32),
        threshold: i32,
    ) -> Result<Done> {
        let next: i32 = transaction.query_one(&self.next, &[&of.0, &of.1])?.get(0);
        transaction.query_one(&self.short, &[&of.0, &of.1, &next, &threshold])?;
        transaction.commit()?;
        Ok(Done::Other)
    }
}
