//! A bucket's objects below one prefix: put, got, listed and deleted, with the mark at the end of each.
//!
//! *Promises*: a put that returns has happened once, or not at all, whatever answers were lost: each is sent again only after a look whether it
//! is there. *Never*: knows what an object means.

mod reads;

use crate::clients::{client, is_keyless};
use crate::credentials;
use crate::errors::{error, may_pass};
use crate::lease::Standing;
use crate::options::Options;
use bytes::Bytes;
use futures::future::{Either, select};
use object_store::aws::AmazonS3;
use object_store::path::Path;
use object_store::{Error as Refusal, ObjectStore, ObjectStoreExt, PutMode, PutPayload, UpdateVersion};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use stonefold_engine::Version;
use stonefold_env::Env;
use stonefold_types::{Error, Kind, Result};
use tokio::runtime::Runtime;

/// Bytes at the end of each object that no other has.
const MARK_BYTES: usize = 16;
/// Up to this length a put has [`SHORT`] for an answer: documents. What is longer is written once, under a name that is never used again.
const SHORT_BYTES_MAX: usize = 2 << 20;
/// So that a document's put has landed or failed when another server may take the pool over ([`crate::lease`]).
const SHORT: Duration = Duration::from_secs(8);
const LONG: Duration = Duration::from_secs(120);
/// For how long nothing may come of what is read. Of a put nothing comes until all of it was sent.
const SILENCE: Duration = Duration::from_secs(15);
/// How often a put is sent, at most, and how long it waits before the second time; twice as long each time after.
const ATTEMPTS_MAX: u32 = 6;
const WAIT: Duration = Duration::from_millis(100);

/// What a put asks of the object that is there.
#[derive(Clone)]
pub(crate) enum Condition {
    /// There is none.
    Absent,
    /// It is this version.
    Is(Version),
}

impl Condition {
    fn mode(&self) -> PutMode {
        match self {
            Condition::Absent => PutMode::Create,
            Condition::Is(version) => {
                PutMode::Update(UpdateVersion { e_tag: Some(version.0.to_string()), version: None })
            }
        }
    }
}

/// Objects below one prefix. Names are given and told without it.
pub(crate) struct Bucket {
    pub(crate) place: String,
    /// The prefix, with a slash behind it if there is any.
    base: String,
    reads: AmazonS3,
    /// Puts, of which each is sent once.
    short: AmazonS3,
    long: AmazonS3,
    pub(crate) standing: Standing,
    /// Whether no keys were named, so that the machine's own role is asked for some.
    keyless: bool,
    /// Changes under the lease that are on their way.
    changing: AtomicUsize,
    pub(crate) env: Env,
    /// `None` when it is being dropped.
    runtime: Option<Runtime>,
}

struct UnderWay<'a>(&'a AtomicUsize);

impl<'a> UnderWay<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        UnderWay(count)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        // What is still asked for is asked for by nobody.
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

impl Bucket {
    pub(crate) fn new(options: &Options, env: Env) -> Result<Bucket> {
        // The second time it is refused, and the first one's is the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let keys = credentials::read(options)?;
        let client = |timeout, silence, retries| client(options, keys.as_ref(), timeout, silence, retries);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("s3")
            .enable_all()
            .build()
            .map_err(|e| Error::io("starting the threads of an object store", e))?;
        let base = if options.prefix.is_empty() { String::new() } else { format!("{}/", options.prefix) };
        Ok(Bucket {
            place: options.place(),
            base,
            reads: client(LONG, SILENCE, 5)?,
            short: client(SHORT, SHORT, 0)?,
            long: client(LONG, LONG, 0)?,
            standing: Standing::default(),
            keyless: is_keyless(keys.as_ref()),
            changing: AtomicUsize::new(0),
            env,
            runtime: Some(runtime),
        })
    }

    /// Runs a task where connections live, and goes on with it when its caller does not.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        task: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let runtime =
            self.runtime.as_ref().expect("it is taken out only when nobody has the bucket any more");
        match runtime.spawn(task).await {
            Ok(result) => result,
            Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
            Err(_) => Err(Error::new(Kind::Closed, format!("{} has been closed", self.place))),
        }
    }

    /// Begins a task there that nobody waits for.
    pub(crate) fn begin(&self, task: impl Future<Output = ()> + Send + 'static) {
        let runtime =
            self.runtime.as_ref().expect("it is taken out only when nobody has the bucket any more");
        drop(runtime.spawn(task));
    }

    fn path(&self, name: &str) -> Path {
        Path::parse(format!("{}{name}", self.base)).expect("keys are paths")
    }

    fn what(&self, name: &str, verb: &str) -> String {
        format!("{}: object '{name}' could not be {verb}", self.place)
    }

    /// Whether something that changes the place under the lease is on its way.
    pub(crate) fn is_changing(&self) -> bool {
        self.changing.load(Ordering::SeqCst) > 0
    }

    /// Sends one change, of which this side has nothing on its way any more when it returns. With `held`, only while the lease on the pool is: looked
    /// at when it is sent, and what it needs before that (keys of a machine's role, a connection) counts into its time.
    async fn send<T>(
        &self,
        held: bool,
        limit: Duration,
        change: impl Future<Output = std::result::Result<T, Refusal>>,
    ) -> Result<std::result::Result<T, Refusal>> {
        let _under_way = held.then(|| UnderWay::begin(&self.changing));
        if held {
            self.standing.check(&self.env, &self.place)?;
        }
        let silent = || Refusal::Generic {
            store: "S3",
            source: format!("no answer within {} s", limit.as_secs()).into(),
        };
        match select(pin!(change), self.env.sleep(limit)).await {
            Either::Left((answer, _)) => Ok(answer),
            Either::Right(_) => Ok(Err(silent())),
        }
    }

    /// Puts an object. To be run by [`run`](Self::run).
    pub(crate) async fn put(
        &self,
        name: &str,
        bytes: Bytes,
        condition: Condition,
        held: bool,
    ) -> Result<Version> {
        let mark: [u8; MARK_BYTES] = self.env.random();
        let (store, limit) =
            if bytes.len() <= SHORT_BYTES_MAX { (&self.short, SHORT) } else { (&self.long, LONG) };
        let payload = PutPayload::from_iter([bytes, Bytes::copy_from_slice(&mark)]);
        let path = self.path(name);
        let (mut wait, mut attempt) = (WAIT, 1);
        loop {
            let put = store.put_opts(&path, payload.clone(), condition.mode().into());
            let refusal = match self.send(held, limit, put).await? {
                Ok(put) => return version(put.e_tag).ok_or_else(|| self.without_etag(name)),
                Err(refusal) => refusal,
            };
            // The first try was refused for the object that is there, and a swap needs no look at it. A 409, which asks to try again, is told as
            // AlreadyExists for a swap, too.
            if attempt == 1 && matches!(refusal, Refusal::Precondition { .. }) {
                return Err(error(self.what(name, "put"), &refusal));
            }
            let refused = matches!(refusal, Refusal::Precondition { .. } | Refusal::AlreadyExists { .. });
            if refused || attempt > 1 {
                if let Some(settled) = self.settle(name, &mark, &condition, refused).await? {
                    return settled;
                }
            }
            if attempt == ATTEMPTS_MAX || !(refused || may_pass(&refusal)) {
                let error = error(self.what(name, "put"), &refusal);
                return Err(match (&condition, error.kind()) {
                    (Condition::Is(_), Kind::AlreadyExists) => error.with_kind(Kind::Conflict),
                    _ => error,
                });
            }
            self.env.sleep(wait).await;
            (wait, attempt) = (wait * 2, attempt + 1);
        }
    }

    /// What has become of a put, by what is there now; `None` where it has to be sent again.
    async fn settle(
        &self,
        name: &str,
        mark: &[u8],
        condition: &Condition,
        refused: bool,
    ) -> Result<Option<Result<Version>>> {
        let there = match self.mark(name).await {
            Ok(there) => Some(there),
            Err(error) if error.kind() == Kind::NotFound => None,
            // Nothing is known of an object in an outage that goes on; the next try tells more.
            Err(_) if !refused => return Ok(None),
            Err(error) => return Err(error),
        };
        let lost = |kind, what: &str| {
            Ok(Some(Err(Error::new(kind, format!("{}: object '{name}' {what}", self.place)))))
        };
        match (there, condition) {
            (Some((found, version)), _) if found[..] == *mark => Ok(Some(Ok(version))),
            (Some(_), Condition::Absent) => lost(Kind::AlreadyExists, "exists already"),
            (Some((_, version)), Condition::Is(expected)) if version != *expected => {
                lost(Kind::Conflict, &format!("is version {}, not {}", version.0, expected.0))
            }
            (None, Condition::Is(_)) => lost(Kind::Conflict, "is not there any more"),
            (None, Condition::Absent) | (Some(_), Condition::Is(_)) => Ok(None),
        }
    }

    /// Deletes an object; an absent one is no error, nor one that is not the version any more that was named: that has been deleted, and another put.
    pub(crate) async fn delete(&self, name: &str, version: Option<Version>, held: bool) -> Result<()> {
        let (mut wait, mut attempt) = (WAIT, 1);
        loop {
            let path = self.path(name);
            match self.send(held, SHORT, self.short.delete(&path)).await? {
                Ok(()) | Err(Refusal::NotFound { .. }) => return Ok(()),
                Err(refusal) if attempt == ATTEMPTS_MAX || !may_pass(&refusal) => {
                    return Err(error(self.what(name, "deleted"), &refusal));
                }
                Err(_) => self.env.sleep(wait).await,
            }
            if let Some(version) = &version {
                match self.known_of(name).await {
                    Ok((_, found)) if found != *version => return Ok(()),
                    Err(error) if error.kind() == Kind::NotFound => return Ok(()),
                    // Sent again as it was.
                    Ok(_) | Err(_) => {}
                }
            }
            (wait, attempt) = (wait * 2, attempt + 1);
        }
    }
}

fn version(etag: Option<String>) -> Option<Version> {
    etag.filter(|etag| !etag.is_empty()).map(|etag| Version(etag.into()))
}
