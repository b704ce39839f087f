//! What must hold of the database when the users have gone: the consistency conditions 1 to 4 of the TPC-C specification
//! (clause 3.3.2), and that what was acknowledged is there.

use super::loading::failed;
use super::record::Check;
use super::rules::{DISTRICTS, ORDERS};
use super::users::Acknowledged;
use postgres::Client;
use stonefold_types::Result;

/// A year's payments of a warehouse as loaded, in cents.
const LOADED_CENTS: i64 = 30_000_000;
/// Orders looked for at once.
const ORDERS_AT_ONCE: usize = 10_000;

/// Each condition with a query for where it does not hold, in words.
const CONDITIONS: [(&str, &str); 4] = [
    (
        "consistency 1: W_YTD = sum(D_YTD)",
        "SELECT format('warehouse %s has %s, its districts %s', w_id, w_ytd, s) FROM warehouse JOIN \
         (SELECT d_w_id, sum(d_ytd) AS s FROM district GROUP BY 1) AS d ON d_w_id = w_id WHERE w_ytd <> s",
    ),
    (
        "consistency 2: D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID)",
        "SELECT format('district %s of warehouse %s: %s, %s, %s', d_id, d_w_id, d_next_o_id - 1, o, n) FROM district \
         LEFT JOIN (SELECT o_w_id, o_d_id, max(o_id) AS o FROM orders GROUP BY 1, 2) AS o \
         ON o_w_id = d_w_id AND o_d_id = d_id \
         LEFT JOIN (SELECT no_w_id, no_d_id, max(no_o_id) AS n FROM new_order GROUP BY 1, 2) AS n \
         ON no_w_id = d_w_id AND no_d_id = d_id \
         WHERE o IS DISTINCT FROM d_next_o_id - 1 OR n <> d_next_o_id - 1",
    ),
    (
        "consistency 3: max(NO_O_ID) - min(NO_O_ID) + 1 = rows of NEW-ORDER",
        "SELECT format('district %s of warehouse %s: %s to %s, %s rows', no_d_id, no_w_id, min(no_o_id), max(no_o_id), \
         count(*)) FROM new_order GROUP BY no_w_id, no_d_id HAVING max(no_o_id) - min(no_o_id) + 1 <> count(*)",
    ),
    (
        "consistency 4: sum(O_OL_CNT) = rows of ORDER-LINE",
        "SELECT format('district %s of warehouse %s: %s, %s rows', d_id, d_w_id, o, l) FROM district \
         LEFT JOIN (SELECT o_w_id, o_d_id, sum(o_ol_cnt) AS o FROM orders GROUP BY 1, 2) AS o \
         ON o_w_id = d_w_id AND o_d_id = d_id \
         LEFT JOIN (SELECT ol_w_id, ol_d_id, count(*) AS l FROM order_line GROUP BY 1, 2) AS l \
         ON ol_w_id = d_w_id AND ol_d_id = d_id WHERE o IS DISTINCT FROM l",
    ),
];

/// Checks everything. `users` is what each was told to be committed since the database was restored.
///
/// # Errors
/// When PostgreSQL does not answer a question.
pub(super) fn check(client: &mut Client, warehouses: u32, users: &[Acknowledged]) -> Result<Vec<Check>> {
    let mut checks =
        CONDITIONS.iter().map(|(name, query)| condition(client, name, query)).collect::<Result<Vec<_>>>()?;
    checks.push(orders(client, warehouses, users)?);
    checks.push(payments(client, warehouses, users)?);
    checks.push(pages(client)?);
    Ok(checks)
}

fn condition(client: &mut Client, name: &str, query: &str) -> Result<Check> {
    let asked = format!("SELECT count(*), min(place) FROM ({query}) AS violation (place)");
    let row = client.query_one(&asked, &[]).map_err(|e| failed(name, &e))?;
    let (violations, first): (i64, Option<String>) = (row.get(0), row.get(1));
    Ok(Check {
        name: name.into(),
        violations: violations as u64,
        why: first.unwrap_or_else(|| "holds everywhere".into()),
    })
}

/// Every order that a user was told to be committed is there, and no other.
fn orders(client: &mut Client, warehouses: u32, users: &[Acknowledged]) -> Result<Check> {
    let name = "acknowledged orders";
    let asked = "SELECT count(*) FROM unnest($1::int[], $2::int[], $3::int[]) AS told (w, d, o) \
                 WHERE EXISTS (SELECT FROM orders WHERE o_w_id = w AND o_d_id = d AND o_id = o)";
    let asked = client.prepare(asked).map_err(|e| failed(name, &e))?;
    let (mut acknowledged, mut missing, mut losers) = (0u64, 0u64, Vec::new());
    for (number, user) in users.iter().enumerate() {
        let mut found = 0;
        for keys in user.orders.chunks(ORDERS_AT_ONCE) {
            let column = |value: fn(&(i32, i32, i32)) -> i32| keys.iter().map(value).collect::<Vec<i32>>();
            let (w, d, o) = (column(|key| key.0), column(|key| key.1), column(|key| key.2));
            let row = client.query_one(&asked, &[&w, &d, &o]).map_err(|e| failed(name, &e))?;
            found += row.get::<_, i64>(0) as u64;
        }
        let of_user = user.orders.len() as u64;
        acknowledged += of_user;
        if found < of_user {
            missing += of_user - found;
            losers.push(format!("user {} has {found} of {of_user}", number + 1));
        }
    }
    let row = client.query_one("SELECT count(*) FROM orders", &[]).map_err(|e| failed(name, &e))?;
    let there = row.get::<_, i64>(0) as u64;
    let loaded = u64::from(warehouses) * u64::from(DISTRICTS) * u64::from(ORDERS);
    let apart = there.abs_diff(loaded + acknowledged);
    let why = match (missing, apart) {
        (0, 0) => format!("all {acknowledged} are there, and no other"),
        (0, _) => format!("{there} orders are there, {loaded} were loaded and {acknowledged} acknowledged"),
        _ => losers.join(", "),
    };
    Ok(Check { name: name.into(), violations: missing.max(apart), why })
}

/// Every payment that was told to be committed is booked once.
fn payments(client: &mut Client, warehouses: u32, users: &[Acknowledged]) -> Result<Check> {
    let name = "acknowledged payments";
    let asked = "SELECT (coalesce(sum(w_ytd), 0) * 100)::int8 FROM warehouse";
    let there: i64 = client.query_one(asked, &[]).map_err(|e| failed(name, &e))?.get(0);
    let paid: i64 = users.iter().map(|user| user.paid_cents).sum();
    let expected = i64::from(warehouses) * LOADED_CENTS + paid;
    let money = |cents: i64| format!("{}.{:02}", cents / 100, cents % 100);
    let why = match there == expected {
        true => format!("{} was paid and is booked", money(paid)),
        false => format!("{} is booked, {} was loaded and paid", money(there), money(expected)),
    };
    Ok(Check { name: name.into(), violations: u64::from(there != expected), why })
}

/// Pages that failed PostgreSQL's own checksums since the cluster was made.
fn pages(client: &mut Client) -> Result<Check> {
    let name = "page checksums";
    let asked = "SELECT coalesce(sum(checksum_failures), 0)::int8 FROM pg_stat_database";
    let failures: i64 = client.query_one(asked, &[]).map_err(|e| failed(name, &e))?.get(0);
    let why = match failures {
        0 => "every page that was read passed".into(),
        many => format!("{many} pages failed"),
    };
    Ok(Check { name: name.into(), violations: failures as u64, why })
}
