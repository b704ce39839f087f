//! What admission costs a read of 4 KiB that is in memory, in nanoseconds: nothing waits, so what differs between the lines is
//! admission. Run by `bench/qos/run`.

use std::sync::Arc;
use std::time::Duration;
use stonefold_engine::MemoryEngine;
use stonefold_env::{Env, SystemWorld};
use stonefold_store::{Attachment, Options, Store};
use stonefold_types::{DiskSettings, Error, Name, QosFigures, Result};

const READS: u32 = 1_000_000;
const ROUNDS: usize = 5;
const DISK_BYTES: u64 = 1 << 20;

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime is made").block_on(measure())
}

async fn measure() -> Result<()> {
    let world = SystemWorld::new(tokio::runtime::Handle::current(), 1);
    let env = Env::new(world.map_err(|e| Error::io("starting the workers", e))?);
    let options = Options { cache_bytes: 64 << 20, ..Options::default() };
    let store = Store::open(env.clone(), Arc::new(MemoryEngine::default()), options).await?;
    let limited = Name::new("limited")?;
    store.create_qos(&limited, QosFigures { max_iops: Some(1 << 40), ..QosFigures::default() }).await?;
    let free = disk(&store, "free", DiskSettings::default()).await?;
    let limited = disk(&store, "limited", DiskSettings { qos: limited, ..DiskSettings::default() }).await?;
    let mut buf = vec![0; 4096];
    for _ in 0..ROUNDS {
        let since = env.monotonic();
        for _ in 0..READS {
            free.read_cached(0, &mut buf).expect("it is in memory")?;
        }
        tell(&env, since, "without a limit, at once from memory: the limit is asked for");
        let since = env.monotonic();
        for _ in 0..READS {
            free.read(0, &mut buf).await?;
        }
        tell(&env, since, "without a limit, the way that can wait: a place is taken and given back");
        let since = env.monotonic();
        for _ in 0..READS {
            limited.read(0, &mut buf).await?;
        }
        tell(&env, since, "with a limit that is open: let through, then from memory");
    }
    Ok(())
}

async fn disk(store: &Arc<Store>, name: &str, settings: DiskSettings) -> Result<Attachment> {
    store.create_disk(&Name::new(name)?, DISK_BYTES, settings).await?;
    let disk = store.attach(&name.parse()?)?;
    disk.write(0, &[7; 4096], false).await?;
    Ok(disk)
}

fn tell(env: &Env, since: Duration, what: &str) {
    println!("{:7.1} ns  {what}", (env.monotonic() - since).as_nanos() as f64 / f64::from(READS));
}
