//! Delivery (clause 2.7.4): the oldest open order of each district of a warehouse, in one transaction.

use super::{Done, Result};
use postgres::{Client, Statement, Transaction};
use std::collections::BTreeMap;

pub(super) struct Statements {
    oldest: Statement,
    close: Statement,
    carry: Statement,
    lines: Statement,
    credit: Statement,
}

impl Statements {
    pub(super) fn new(client: &mut Client) -> Result<Self> {
        Ok(Statements {
            // Whoever delivers for the same warehouse waits here, and then finds the next ones.
            oldest: client.prepare(
                "SELECT no_d_id, no_o_id FROM generate_series(1, 10) AS d, LATERAL (SELECT no_d_id, no_o_id FROM new_order \
                 WHERE no_w_id = $1 AND no_d_id = d ORDER BY no_o_id LIMIT 1 FOR UPDATE) AS oldest",
            )?,
            close: client.prepare(
                "DELETE FROM new_order USING unnest($2::int[], $3::int[]) AS oldest (d, o) \
                 WHERE no_w_id = $1 AND no_d_id = d AND no_o_id = o",
            )?,
            carry: client.prepare(
                "UPDATE orders SET o_carrier_id = $4 FROM unnest($2::int[], $3::int[]) AS oldest (d, o) \
                 WHERE o_w_id = $1 AND o_d_id = d AND o_id = o RETURNING o_d_id, o_c_id",
            )?,
            lines: client.prepare(
                "UPDATE order_line SET ol_delivery_d = localtimestamp FROM unnest($2::int[], $3::int[]) AS oldest (d, o) \
                 WHERE ol_w_id = $1 AND ol_d_id = d AND ol_o_id = o RETURNING ol_d_id, (ol_amount * 100)::int8",
            )?,
            credit: client.prepare(
                "UPDATE customer SET c_balance = c_balance + cents::numeric / 100, c_delivery_cnt = c_delivery_cnt + 1 \
                 FROM unnest($2::int[], $3::int[], $4::int8[]) AS owed (d, c, cents) \
                 WHERE c_w_id = $1 AND c_d_id = d AND c_id = c",
            )?,
        })
    }

    pub(super) fn run(&self, mut transaction: Transaction<'_>, warehouse: i32, carrier: i32) -> Result<Done> {
        let t = &mut transaction;
        let oldest = t.query(&self.oldest, &[&warehouse])?;
        let (districts, orders): (Vec<i32>, Vec<i32>) =
            oldest.iter().map(|row| (row.get::<_, i32>(0), row.get::<_, i32>(1))).unzip();
        t.execute(&self.close, &[&warehouse, &districts, &orders])?;
        let mut owed: BTreeMap<i32, (i32, i64)> = t
            .query(&self.carry, &[&warehouse, &districts, &orders, &carrier])?
            .iter()
            .map(|row| (row.get(0), (row.get(1), 0)))
            .collect();
        for row in t.query(&self.lines, &[&warehouse, &districts, &orders])? {
            if let Some((_, cents)) = owed.get_mut(&row.get(0)) {
                *cents += row.get::<_, i64>(1);
            }
        }
        let districts: Vec<i32> = owed.keys().copied().collect();
        let (customers, cents): (Vec<i32>, Vec<i64>) = owed.values().copied().unzip();
        t.execute(&self.credit, &[&warehouse, &districts, &customers, &cents])?;
        transaction.commit()?;
        Ok(Done::Other)
    }
}
