//! Payment (clause 2.5.2).

use super::{Done, Result};
use postgres::{Client, Statement, Transaction};

pub(super) struct Statements {
    customer: Statement,
    book: Statement,
}

impl Statements {
    pub(super) fn new(client: &mut Client) -> Result<Self> {
        Ok(Statements {
            // Customers with bad credit carry the last payments in front of their data.
            customer: client.prepare(
                "UPDATE customer SET c_balance = c_balance - $4::int8::numeric / 100, \
                 c_ytd_payment = c_ytd_payment + $4::int8::numeric / 100, c_payment_cnt = c_payment_cnt + 1, \
                 c_data = CASE WHEN c_credit = 'BC' THEN left(concat_ws(' ', c_id, c_d_id, c_w_id, $5::int, $6::int, \
                 $4::int8::numeric / 100, '') || c_data, 500) ELSE c_data END \
                 WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3 \
                 RETURNING c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip, c_phone, c_credit, \
                 c_balance::float8, CASE WHEN c_credit = 'BC' THEN left(c_data, 200) END",
            )?,
            // The rows on which all meet come last, so that they are locked for the shortest time; and always the district first,
            // which the warehouse's update is made to wait for: left to the planner, the order of two such parts of one statement
            // changes from plan to plan, and users lock each other out.
            book: client.prepare(
                "WITH d AS (UPDATE district SET d_ytd = d_ytd + $6::int8::numeric / 100 WHERE d_w_id = $4 AND d_id = $5 \
                 RETURNING d_name, d_street_1, d_street_2, d_city, d_state, d_zip), \
                 w AS (UPDATE warehouse SET w_ytd = w_ytd + $6::int8::numeric / 100 FROM d WHERE w_id = $4 \
                 RETURNING d_name, w_name, w_street_1, w_street_2, w_city, w_state, w_zip) \
                 INSERT INTO history SELECT $3::int, $2::int, $1::int, $5::int, $4::int, localtimestamp, $6::int8::numeric / 100, \
                 w_name || '    ' || d_name FROM w RETURNING h_data",
            )?,
        })
    }

    /// `at` is where it is paid, `of` whose payment it is: warehouse, district, number.
    pub(super) fn run(
        &self,
        mut transaction: Transaction<'_>,
        at: (i32, i32),
        of: (i32, i32, i32),
        cents: u32,
    ) -> Result<Done> {
        let amount = i64::from(cents);
        transaction.query_one(&self.customer, &[&of.0, &of.1, &of.2, &amount, &at.1, &at.0])?;
        transaction.query_one(&self.book, &[&of.0, &of.1, &of.2, &at.0, &at.1, &amount])?;
        transaction.commit()?;
        Ok(Done::Paid(cents))
    }
}
