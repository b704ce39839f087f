//! New-Order (clause 2.4.2).

use super::super::input::Line;
use super::{Done, Result};
use postgres::{Client, Statement, Transaction};
use std::collections::BTreeMap;

pub(super) struct Statements {
    customer: Statement,
    number: Statement,
    order: Statement,
    items: Statement,
    stock: Statement,
    take: Statement,
    lines: Statement,
}

/// What becomes of one item's stock. Several lines of an order may take of it, one after the other.
struct Taken {
    quantity: i32,
    sold: i32,
    lines: i32,
    remote: i32,
    dist_info: String,
}

/// The columns of an order's lines.
#[derive(Default)]
struct Columns {
    items: Vec<i32>,
    suppliers: Vec<i32>,
    quantities: Vec<i32>,
    cents: Vec<i64>,
    dist_infos: Vec<String>,
}

impl Statements {
    pub(super) fn new(client: &mut Client) -> Result<Self> {
        Ok(Statements {
            customer: client.prepare(
                "SELECT c_discount::float8, c_last, c_credit, w_tax::float8 FROM customer, warehouse \
                 WHERE w_id = $1 AND c_w_id = w_id AND c_d_id = $2 AND c_id = $3",
            )?,
            // The row stays locked to the end: this is where orders of one district queue.
            number: client.prepare(
                "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = $1 AND d_id = $2 \
                 RETURNING d_next_o_id - 1, d_tax::float8",
            )?,
            order: client.prepare(
                "WITH made AS (INSERT INTO orders VALUES ($3, $2, $1, $4, localtimestamp, NULL, $5, $6) \
                 RETURNING o_id, o_d_id, o_w_id) INSERT INTO new_order SELECT * FROM made",
            )?,
            items: client.prepare(
                "SELECT i_id, (i_price * 100)::int8, i_name, i_data FROM item WHERE i_id = ANY ($1)",
            )?,
            // In the order of the key, so that no two orders wait for each other.
            stock: client.prepare(
                "SELECT s_w_id, s_i_id, s_quantity, \
                 (ARRAY[s_dist_01, s_dist_02, s_dist_03, s_dist_04, s_dist_05, s_dist_06, s_dist_07, s_dist_08, s_dist_09, \
                 s_dist_10])[$3]::text, s_data FROM stock JOIN unnest($1::int[], $2::int[]) AS wanted (w, i) \
                 ON s_w_id = w AND s_i_id = i ORDER BY s_w_id, s_i_id FOR UPDATE OF stock",
            )?,
            take: client.prepare(
                "UPDATE stock SET s_quantity = q, s_ytd = s_ytd + sold, s_order_cnt = s_order_cnt + lines, \
                 s_remote_cnt = s_remote_cnt + remote \
                 FROM unnest($1::int[], $2::int[], $3::int[], $4::int[], $5::int[], $6::int[]) \
                 AS taken (w, i, q, sold, lines, remote) WHERE s_w_id = w AND s_i_id = i",
            )?,
            lines: client.prepare(
                "INSERT INTO order_line SELECT $3::int, $2::int, $1::int, n, i, w, NULL, q, c::numeric / 100, d \
                 FROM unnest($4::int[], $5::int[], $6::int[], $7::int8[], $8::text[]) \
                 WITH ORDINALITY AS line (i, w, q, c, d, n)",
            )?,
        })
    }

    pub(super) fn run(
        &self,
        mut transaction: Transaction<'_>,
        warehouse: i32,
        district: i32,
        customer: i32,
        lines: &[Line],
    ) -> Result<Done> {
        let t = &mut transaction;
        t.query_one(&self.customer, &[&warehouse, &district, &customer])?;
        let order: i32 = t.query_one(&self.number, &[&warehouse, &district])?.get(0);
        let local = i32::from(lines.iter().all(|line| line.supplier as i32 == warehouse));
        t.execute(&self.order, &[&warehouse, &district, &order, &customer, &(lines.len() as i32), &local])?;
        let mut wanted: Vec<i32> = lines.iter().map(|line| line.item as i32).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let prices: BTreeMap<i32, i64> =
            t.query(&self.items, &[&wanted])?.iter().map(|row| (row.get(0), row.get(1))).collect();
        if prices.len() < wanted.len() {
            // The item that no one has: the user's mistake, on purpose (clause 2.4.1.4).
            transaction.rollback()?;
            return Ok(Done::Regretted);
        }
        let taken = self.take(t, warehouse, district, lines)?;
        let mut columns = Columns::default();
        for line in lines {
            let of = &taken[&(line.supplier as i32, line.item as i32)];
            columns.items.push(line.item as i32);
            columns.suppliers.push(line.supplier as i32);
            columns.quantities.push(line.quantity as i32);
            columns.cents.push(prices[&(line.item as i32)] * i64::from(line.quantity));
            columns.dist_infos.push(of.dist_info.clone());
        }
        let Columns { items, suppliers, quantities, cents, dist_infos } = &columns;
        t.execute(
            &self.lines,
            &[&warehouse, &district, &order, items, suppliers, quantities, cents, dist_infos],
        )?;
        transaction.commit()?;
        Ok(Done::Ordered((warehouse, district, order)))
    }

    /// Locks the stock of all lines, and takes what they order of it; 91 come in where fewer than ten would be left.
    fn take(
        &self,
        t: &mut Transaction<'_>,
        warehouse: i32,
        district: i32,
        lines: &[Line],
    ) -> Result<BTreeMap<(i32, i32), Taken>> {
        let mut keys: Vec<(i32, i32)> =
            lines.iter().map(|line| (line.supplier as i32, line.item as i32)).collect();
        keys.sort_unstable();
        keys.dedup();
        let (suppliers, items): (Vec<i32>, Vec<i32>) = keys.into_iter().unzip();
        let mut taken = BTreeMap::new();
        for row in t.query(&self.stock, &[&suppliers, &items, &district])? {
            let of = Taken { quantity: row.get(2), sold: 0, lines: 0, remote: 0, dist_info: row.get(3) };
            taken.insert((row.get(0), row.get(1)), of);
        }
        for line in lines {
            let (supplier, quantity) = (line.supplier as i32, line.quantity as i32);
            let Some(of) = taken.get_mut(&(supplier, line.item as i32)) else { continue };
            of.quantity += if of.quantity >= quantity + 10 { -quantity } else { 91 - quantity };
            of.sold += quantity;
            of.lines += 1;
            of.remote += i32::from(supplier != warehouse);
        }
        let column = |value: fn(&Taken) -> i32| taken.values().map(value).collect::<Vec<i32>>();
        let (quantities, sold) = (column(|of| of.quantity), column(|of| of.sold));
        let (many, remote) = (column(|of| of.lines), column(|of| of.remote));
        t.execute(&self.take, &[&suppliers, &items, &quantities, &sold, &many, &remote])?;
        Ok(taken)
    }
}
