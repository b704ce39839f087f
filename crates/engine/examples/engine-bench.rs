//! What the file engine costs over the bare device: random reads and journal commits, to be held against fio in the
//! same directory. Figures belong into `bench/` together with the machine and the commit; see `--help`.

use bytes::Bytes;
use futures::stream::{FuturesUnordered, StreamExt};
use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::time::Duration;
use stonefold_engine::{Engine, FileEngine, FileOptions, JournalId, Key, uring};
use stonefold_env::{Env, SystemWorld};
use stonefold_format::chunk;
use stonefold_types::{AlignedBuf, Result};

const HELP: &str =
    "engine-bench DIR read|journal|put [--depth N] [--seconds N] [--bytes N] [--count N] [--no-ring]
  read     4 KiB random reads over 64 objects of 16 MiB          --depth 32
  journal  append a chunk and sync, one after the other          --bytes 8192
  many     --count small objects put, then listed by pages of 1000 and opened again
  put      put objects of --bytes, --depth at a time             --bytes 16777216 --depth 2
DIR must be absent, empty, or a pool; a job's objects are left in it for the next run. It may be a URL instead:
'file:///d1?also=/d2&copies=2'.";

const OBJECTS: usize = 64;
const OBJECT_BYTES: usize = 16 << 20;

struct Job {
    env: Env,
    engine: Arc<FileEngine>,
    depth: usize,
    seconds: u64,
    bytes: usize,
}

fn options(place: &str) -> Result<FileOptions> {
    if place.starts_with("file:") { FileOptions::parse(place) } else { Ok(FileOptions::new(place)) }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, what, ..] = &arguments[..] else {
        eprintln!("{HELP}");
        std::process::exit(2);
    };
    let number = |name: &str, default: usize| {
        let at = arguments.iter().position(|a| a == name);
        at.and_then(|at| arguments.get(at + 1)?.parse().ok()).unwrap_or(default)
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        if !arguments.iter().any(|a| a == "--no-ring") {
            uring::install()?;
        }
        let world = SystemWorld::new(tokio::runtime::Handle::current(), 1).expect("worker threads");
        let env = Env::new(world);
        let engine = Arc::new(FileEngine::open(env.clone(), options(dir)?).await?);
        println!("{}", engine.describe());
        let (depth, bytes) = match what.as_str() {
            "read" => (32, 4096),
            "put" => (2, OBJECT_BYTES),
            _ => (1, 8192),
        };
        let job = Job {
            env,
            engine,
            depth: number("--depth", depth),
            seconds: number("--seconds", 5) as u64,
            bytes: number("--bytes", bytes),
        };
        match what.as_str() {
            "read" => job.read().await,
            "journal" => job.journal().await,
            "put" => job.put().await,
            "many" => many(job, dir, number("--count", 128 << 10)).await,
            other => panic!("unknown job '{other}'\n{HELP}"),
        }
    })
}

async fn many(job: Job, dir: &str, count: usize) -> Result<()> {
    let Job { env, engine, .. } = job;
    let there = engine.list("many/", None, usize::MAX).await?.len();
    let mut puts = futures::stream::iter(there..count)
        .map(|n| {
            let (engine, key) = (&engine, Key::new(format!("many/{n:08x}")));
            async move { engine.put_new(&key, Bytes::from_static(b"x")).await }
        })
        .buffer_unordered(64);
    while let Some(put) = puts.next().await {
        put?;
    }
    drop(puts);
    let began = env.monotonic();
    let (mut last, mut listed) = (None, 0);
    loop {
        let page = engine.list("many/", last.as_ref(), 1000).await?;
        listed += page.len();
        let Some(one) = page.last() else { break };
        last = Some(one.key.clone());
    }
    println!("listed {listed} by pages of 1000 in {:?}", env.monotonic() - began);
    let began = env.monotonic();
    let listed = engine.list("many/", None, usize::MAX).await?.len();
    println!("listed {listed} at once in {:?}", env.monotonic() - began);
    drop(engine);
    let began = env.monotonic();
    FileEngine::open(env.clone(), FileOptions::new(dir)).await?;
    println!("opened again in {:?}", env.monotonic() - began);
    Ok(())
}

fn payload(len: usize, seed: u64) -> Bytes {
    let mut buf = AlignedBuf::zeroed(len);
    let mut state = seed | 1;
    for piece in buf.chunks_exact_mut(8) {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        piece.copy_from_slice(&state.to_le_bytes());
    }
    buf.freeze()
}

#[expect(clippy::disallowed_methods, reason = "a bench measures processor time")]
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

impl Job {
    fn report(
        &self,
        what: &str,
        began: Duration,
        cpu_began: Duration,
        mut latencies: Vec<Duration>,
        bytes: usize,
    ) {
        let took = (self.env.monotonic() - began).as_secs_f64();
        let count = latencies.len().max(1);
        latencies.sort_unstable();
        let at = |part: f64| latencies[((count as f64 * part) as usize).min(count - 1)].as_micros();
        println!(
            "{what}: {:.0}/s, {:.1} MiB/s, cpu {:.1} us each, p50 {} us, p99 {} us, max {} us",
            count as f64 / took,
            (count * bytes) as f64 / took / f64::from(1 << 20),
            (cpu() - cpu_began).as_secs_f64() * 1e6 / count as f64,
            at(0.5),
            at(0.99),
            at(1.0),
        );
    }

    async fn read(&self) -> Result<()> {
        let keys: Vec<Key> = (0..OBJECTS).map(|n| Key::new(format!("bench/{n}"))).collect();
        for (n, key) in keys.iter().enumerate() {
            if self.engine.get_range(key, 0, 1).await.is_err() {
                self.engine.put_new(key, payload(OBJECT_BYTES, n as u64)).await?;
            }
        }
        let mut state = u64::from_le_bytes(self.env.random());
        let mut one = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let key = &keys[(state % OBJECTS as u64) as usize];
            let at = (state >> 20) % (OBJECT_BYTES / self.bytes) as u64 * self.bytes as u64;
            let (engine, env, len) = (&self.engine, &self.env, self.bytes);
            async move {
                let began = env.monotonic();
                engine.get_range(key, at, len).await.map(|_| env.monotonic() - began)
            }
        };
        let (began, cpu_began) = (self.env.monotonic(), cpu());
        let mut latencies = Vec::new();
        let mut flying: FuturesUnordered<_> = (0..self.depth).map(|_| one()).collect();
        while let Some(latency) = flying.next().await {
            latencies.push(latency?);
            if (self.env.monotonic() - began).as_secs() < self.seconds {
                flying.push(one());
            }
        }
        self.report("read", began, cpu_began, latencies, self.bytes);
        Ok(())
    }

    async fn journal(&self) -> Result<()> {
        let id = JournalId(self.env.random());
        let journal = self.engine.journal_create(id).await?;
        let (began, cpu_began) = (self.env.monotonic(), cpu());
        let mut latencies = Vec::new();
        for seq in 0.. {
            let at = self.env.monotonic();
            if (at - began).as_secs() >= self.seconds {
                break;
            }
            let filled = payload(self.bytes - chunk::CHUNK_HEADER, seq);
            journal.append(chunk::encode(id.0, seq, 1, &filled).freeze()).await?;
            journal.sync().await?;
            if seq % 1000 == 999 {
                journal.trim(seq).await?;
            }
            latencies.push(self.env.monotonic() - at);
        }
        self.report("append+sync", began, cpu_began, latencies, self.bytes);
        self.engine.journal_remove(id).await
    }

    async fn put(&self) -> Result<()> {
        let (began, cpu_began) = (self.env.monotonic(), cpu());
        let bytes = payload(self.bytes, 1);
        let mut number = 0;
        let mut one = || {
            number += 1;
            let (key, bytes) = (Key::new(format!("bench-put/{number}")), bytes.clone());
            async move {
                self.engine.delete(&key).await?;
                let began = self.env.monotonic();
                self.engine.put_new(&key, bytes).await.map(|_| self.env.monotonic() - began)
            }
        };
        let mut latencies = Vec::new();
        let mut flying: FuturesUnordered<_> = (0..self.depth).map(|_| one()).collect();
        while let Some(latency) = flying.next().await {
            latencies.push(latency?);
            if (self.env.monotonic() - began).as_secs() < self.seconds {
                flying.push(one());
            }
        }
        self.report("put", began, cpu_began, latencies, self.bytes);
        for listed in self.engine.list("bench-put/", None, usize::MAX).await? {
            self.engine.delete(&listed.key).await?;
        }
        Ok(())
    }
}
