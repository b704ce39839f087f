//! Points on their way to another pool, of source `web` by policy `often`.

use crate::gateway::Place;
use anyhow::{Result, ensure};
use serde_json::Value;
use std::fs;
use std::time::Duration;
use stonefold_guest::time::Deadline;

/// A minute until the policy's next run, the lease of a server that was killed, and what other tests need.
pub const SENT_MAX: Duration = Duration::from_secs(240);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Waits until the other pool has all that it is to get of so many points or more; gives the policy.
///
/// # Errors
/// When it takes too long, with the server's last words.
pub fn wait_until_sent(place: &Place, points: usize) -> Result<Value> {
    until(place, "not sent", || {
        let policy = place.json("policy show often")?;
        let replica = &policy["replicas"][0];
        let made = names(&place.json("point ls web")?).len();
        let is_sent = made >= points && replica["behind"] == 0 && replica["newest"].is_string();
        Ok(if is_sent { Ok(policy) } else { Err(policy) })
    })
}

/// Looks again and again until it is so; what it looked at is told where it never was.
///
/// # Errors
/// When it takes too long, with the server's last words.
pub fn until<T, U: std::fmt::Display>(
    place: &Place,
    otherwise: &str,
    mut look: impl FnMut() -> Result<std::result::Result<T, U>>,
) -> Result<T> {
    let deadline = Deadline::after(SENT_MAX);
    loop {
        match look()? {
            Ok(found) => return Ok(found),
            Err(seen) => ensure!(!deadline.passed(), "{otherwise}: {seen}\n{}", place.last_words()),
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// The names of points in a listing.
pub fn names(list: &Value) -> Vec<String> {
    let all = list.as_array().into_iter().flatten();
    all.filter_map(|point| point["name"].as_str().map(str::to_owned)).collect()
}

/// What a disk of a server's holds.
///
/// # Errors
/// When it cannot be exported.
pub fn contents(place: &Place, disk: &str) -> Result<Vec<u8>> {
    place.ok(&format!("disk export {disk} {} --force", place.text("out.raw")))?;
    Ok(fs::read(place.path("out.raw"))?)
}
