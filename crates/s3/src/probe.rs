//! What a place has to be able to do, tried out before anything is stored there.

use crate::bucket::{Bucket, Condition};
use bytes::Bytes;
use futures::future::join_all;
use std::sync::Arc;
use stonefold_types::{Error, Kind, Result};

/// Swaps of one version at one time, of which one may win; and how often that is tried.
const RIVALS: usize = 8;
const RACES: usize = 4;

/// Fails, by what it did, where the place does not honour conditional puts, or forgets what it was told.
pub(crate) async fn probe(bucket: &Arc<Bucket>) -> Result<()> {
    let name = format!("probe/{}", bucket.env.random::<8>().map(|b| format!("{b:02x}")).concat());
    let tried = try_all(bucket, &name).await;
    let removed = bucket.delete(&name, None, false).await;
    tried?;
    removed
}

async fn try_all(bucket: &Arc<Bucket>, name: &str) -> Result<()> {
    let put = |text: &'static str, condition| {
        bucket.put(name, Bytes::from_static(text.as_bytes()), condition, false)
    };
    let first = put("first", Condition::Absent).await?;
    match put("second", Condition::Absent).await {
        Err(error) if error.kind() == Kind::AlreadyExists => {}
        Err(error) => return Err(error),
        Ok(_) => {
            return Err(unfit(
                bucket,
                "it puts an object over another that must not be there (If-None-Match)",
            ));
        }
    }
    let second = put("second", Condition::Is(first.clone())).await?;
    match put("third", Condition::Is(first)).await {
        Err(error) if error.kind() == Kind::Conflict => {}
        Err(error) => return Err(error),
        Ok(_) => {
            return Err(unfit(
                bucket,
                "it changes an object of another version than the one named (If-Match)",
            ));
        }
    }
    if bucket.get(name).await? != (Bytes::from_static(b"second"), second.clone()) {
        return Err(unfit(bucket, "it does not give back what was just put"));
    }
    if bucket.get_range(name, 2, 3).await? != "con" {
        return Err(unfit(bucket, "it does not give back a range of an object"));
    }
    if !bucket
        .list("probe/", None, usize::MAX)
        .await?
        .iter()
        .any(|(listed, bytes)| listed == name && *bytes == 6)
    {
        return Err(unfit(bucket, "it does not list what was just put"));
    }
    race(bucket, name, second).await
}

/// Honoured by one at a time is not honoured: the look and the put have to be one step.
async fn race(bucket: &Arc<Bucket>, name: &str, mut version: stonefold_engine::Version) -> Result<()> {
    for _ in 0..RACES {
        let swaps = (0..RIVALS).map(|rival| {
            let body = Bytes::from(format!("rival {rival}"));
            let (bucket, name, condition) = (bucket.clone(), name.to_owned(), Condition::Is(version.clone()));
            // Each in a task of its own, so that they are under way at one time.
            async move {
                let of = bucket.clone();
                of.run(async move { bucket.put(&name, body, condition, false).await }).await
            }
        });
        let mut won = Vec::new();
        for swapped in join_all(swaps).await {
            match swapped {
                Ok(version) => won.push(version),
                Err(error) if error.kind() == Kind::Conflict => {}
                Err(error) => return Err(error),
            }
        }
        let count = won.len();
        match won.pop() {
            Some(winner) if count == 1 => version = winner,
            _ => {
                let why =
                    format!("of {RIVALS} swaps of one version at one time {count} succeeded (If-Match)");
                return Err(unfit(bucket, &why));
            }
        }
    }
    Ok(())
}

fn unfit(bucket: &Bucket, why: &str) -> Error {
    Error::new(Kind::Unsupported, format!("{} cannot hold a pool: {why}", bucket.place)).remedy(
        "use a store whose conditional puts are honoured; two servers could destroy each other's work here",
    )
}
