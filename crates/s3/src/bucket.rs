//! A bucket's objects below one prefix: put, got, listed and deleted, with the mark at the end of each.
//!
//! *Promises*: a put that returns has happened once, or not at all, whatever answers were lost: each is sent again only after a look whether it
//! is there. *Never*: knows what an object means.

use crate::credentials::{self, Keys};
use crate::errors::{error, may_pass};
use crate::lease::Standing;
use crate::options::Options;
use bytes::Bytes;
use futures::StreamExt;
use futures::future::{Either, select};
use object_store::aws::{AmazonS3, AmazonS3Builder, S3ConditionalPut};
use object_store::path::Path;
use object_store::{
    Certificate, ClientOptions, Error as Refusal, GetOptions, GetRange, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMode, PutPayload, RetryConfig, UpdateVersion,
};
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
const CONNECT: Duration = Duration::from_secs(5);
/// How often a put is sent, at most, and how long it waits before the second time; twice as long each time after.
const ATTEMPTS_MAX: u32 = 6;
const WAIT: Duration = Duration::from_millis(100);
/// An offset beyond any object: 48.8 TiB is the most that any store takes.
const OFFSET_MAX: u64 = 1 << 46;

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
            keyless: keys.is_none() && FROM_ENVIRONMENT.iter().all(|name| std::env::var_os(name).is_none()),
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

    /// Sends one change, of which nothing is on its way any more when this returns. With `held`, only while the lease on the pool is: looked
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

    /// The mark at an object's end, and its version.
    async fn mark(&self, name: &str) -> Result<(Bytes, Version)> {
        let options =
            GetOptions { range: Some(GetRange::Suffix(MARK_BYTES as u64)), ..GetOptions::default() };
        self.read(name, options).await.map(|(bytes, _, version)| (bytes, version))
    }

    /// An object's bytes, or those of a range, as they lie there with the mark; its length without that; its version.
    async fn read(&self, name: &str, options: GetOptions) -> Result<(Bytes, u64, Version)> {
        let refused = |refusal| error(self.what(name, "read"), &refusal);
        let got = self.reads.get_opts(&self.path(name), options).await.map_err(refused)?;
        let (len, version) = self.known(name, &got.meta)?;
        let bytes = got.bytes().await.map_err(refused)?;
        Ok((bytes, len, version))
    }

    fn known(&self, name: &str, meta: &ObjectMeta) -> Result<(u64, Version)> {
        let len = meta.size.checked_sub(MARK_BYTES as u64).ok_or_else(|| {
            Error::new(
                Kind::Corrupt,
                format!("{}: object '{name}' has {} bytes, and not even its mark", self.place, meta.size),
            )
        })?;
        let version = version(meta.e_tag.clone()).ok_or_else(|| self.without_etag(name))?;
        Ok((len, version))
    }

    fn without_etag(&self, name: &str) -> Error {
        let what = format!("{}: the store tells no ETag for object '{name}'", self.place);
        Error::new(Kind::Unsupported, what).remedy("use a store with conditional puts (If-Match)")
    }

    /// The whole of an object, and its version.
    pub(crate) async fn get(&self, name: &str) -> Result<(Bytes, Version)> {
        let (mut bytes, len, version) = self.read(name, GetOptions::default()).await?;
        bytes.truncate(usize::try_from(len).unwrap_or(usize::MAX));
        Ok((bytes, version))
    }

    /// `len` bytes from `offset`; fewer only where the object ends.
    pub(crate) async fn get_range(&self, name: &str, offset: u64, len: usize) -> Result<Bytes> {
        if len == 0 || offset >= OFFSET_MAX {
            return self.len(name).await.map(|_| Bytes::new());
        }
        let range = match offset.saturating_add(len as u64) {
            end if end >= OFFSET_MAX => GetRange::Offset(offset),
            end => GetRange::Bounded(offset..end),
        };
        match self.read(name, GetOptions { range: Some(range), ..GetOptions::default() }).await {
            Ok((mut bytes, whole, _)) => {
                bytes.truncate(usize::try_from(whole.saturating_sub(offset)).unwrap_or(usize::MAX));
                Ok(bytes)
            }
            // A range that begins behind the end is refused by the store, each in words of its own.
            Err(error) => match self.len(name).await {
                Ok(whole) if whole <= offset => Ok(Bytes::new()),
                _ => Err(error),
            },
        }
    }

    /// An object's length in bytes.
    pub(crate) async fn len(&self, name: &str) -> Result<u64> {
        self.known_of(name).await.map(|(len, _)| len)
    }

    /// An object's length in bytes, and its version.
    pub(crate) async fn known_of(&self, name: &str) -> Result<(u64, Version)> {
        let head = self.reads.head(&self.path(name)).await;
        let meta = head.map_err(|refusal| error(self.what(name, "looked at"), &refusal))?;
        self.known(name, &meta)
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

    /// Up to `limit` names that begin with `prefix`, in their order, behind `after`; with the objects' lengths in bytes.
    pub(crate) async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, u64)>> {
        let folder = self.base.clone() + prefix.rsplit_once('/').map_or("", |(folder, _)| folder);
        let folder = folder.trim_end_matches('/');
        let folder = (!folder.is_empty()).then(|| Path::parse(folder).expect("keys are paths"));
        // A listing begins behind a name, and the prefix itself may be one. The name without its last letter is before it, and close.
        let before = || {
            prefix
                .get(..prefix.len().saturating_sub(1))
                .filter(|text| !text.is_empty() && !text.ends_with('/') && !prefix.ends_with('/'))
        };
        let offset = after.filter(|after| *after >= prefix).or_else(before);
        let offset = offset.and_then(|name| Path::parse(format!("{}{name}", self.base)).ok());
        let mut listing = match &offset {
            Some(offset) => self.reads.list_with_offset(folder.as_ref(), offset),
            None => self.reads.list(folder.as_ref()),
        };
        let mut found = Vec::new();
        while found.len() < limit {
            let Some(next) = listing.next().await else { break };
            let meta = next.map_err(|refusal| self.not_listed(&refusal))?;
            let Some(name) = meta.location.as_ref().strip_prefix(&*self.base) else { continue };
            match name.starts_with(prefix) {
                true => found.push((name.to_owned(), meta.size.saturating_sub(MARK_BYTES as u64))),
                false if name > prefix => break,
                false => {}
            }
        }
        Ok(found)
    }

    /// Bytes of all objects.
    pub(crate) async fn bytes(&self) -> Result<u64> {
        let folder = self.base.trim_end_matches('/');
        let folder = (!folder.is_empty()).then(|| Path::parse(folder).expect("prefixes are paths"));
        let mut listing = self.reads.list(folder.as_ref());
        let mut bytes = 0;
        while let Some(next) = listing.next().await {
            bytes +=
                next.map_err(|refusal| self.not_listed(&refusal))?.size.saturating_sub(MARK_BYTES as u64);
        }
        Ok(bytes)
    }

    fn not_listed(&self, refusal: &Refusal) -> Error {
        let error = error(format!("{} could not be listed", self.place), refusal);
        match error.kind() == Kind::NotFound || error.what().contains("NoSuchBucket") {
            true => error.with_kind(Kind::NotFound).remedy("make the bucket first, or correct its name"),
            false if self.keyless => error.remedy(
                "no keys were named, so the role of this machine was asked for some; name a file with keys in the URL: credentials=FILE, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for the server",
            ),
            false => error,
        }
    }
}

fn version(etag: Option<String>) -> Option<Version> {
    etag.filter(|etag| !etag.is_empty()).map(|etag| Version(etag.into()))
}

/// What the environment may say: who asks. Where and how is the URL's to say.
const FROM_ENVIRONMENT: [&str; 11] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_ENDPOINT_URL_STS",
    "AWS_METADATA_ENDPOINT",
];

fn client(
    options: &Options,
    keys: Option<&Keys>,
    timeout: Duration,
    silence: Duration,
    retries: usize,
) -> Result<AmazonS3> {
    let secure = options.endpoint.as_ref().is_none_or(|endpoint| endpoint.starts_with("https:"));
    let http = http(options)?
        .with_timeout(timeout)
        .with_read_timeout(silence)
        .with_connect_timeout(CONNECT)
        .with_allow_http(!secure);
    let retry = RetryConfig {
        max_retries: retries,
        retry_timeout: Duration::from_secs(20),
        ..RetryConfig::default()
    };
    let mut builder = signed(options, keys)
        .with_bucket_name(&options.bucket)
        .with_virtual_hosted_style_request(options.virtual_host)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .with_disable_bulk_delete(true)
        // TLS vouches for what is under way; without it the signature has to.
        .with_unsigned_payload(secure)
        .with_client_options(http)
        .with_retry(retry);
    if let Some(endpoint) = options.address() {
        builder = builder.with_endpoint(endpoint);
    }
    builder.build().map_err(|refusal| error(format!("pool URL '{}'", options.place()), &refusal))
}

fn http(options: &Options) -> Result<ClientOptions> {
    let mut http = ClientOptions::new();
    let Some(path) = &options.ca else { return Ok(http) };
    let named =
        |e: String| Error::new(Kind::Invalid, format!("certificate authority '{}': {e}", path.display()));
    let pem = std::fs::read(path).map_err(|e| named(e.to_string()))?;
    for certificate in Certificate::from_pem_bundle(&pem).map_err(|e| named(e.to_string()))? {
        http = http.with_root_certificate(certificate);
    }
    Ok(http)
}

/// By a file's keys, or what the environment says; and the region.
fn signed(options: &Options, keys: Option<&Keys>) -> AmazonS3Builder {
    let mut builder = AmazonS3Builder::new();
    match keys {
        Some(keys) => {
            builder = builder.with_access_key_id(&keys.id).with_secret_access_key(&keys.secret);
            if let Some(token) = &keys.token {
                builder = builder.with_token(token);
            }
        }
        None => {
            for name in FROM_ENVIRONMENT {
                if let (Ok(value), Ok(key)) = (std::env::var(name), name.to_ascii_lowercase().parse()) {
                    builder = builder.with_config(key, value);
                }
            }
        }
    }
    let region = ["AWS_REGION", "AWS_DEFAULT_REGION"].iter().find_map(|name| std::env::var(name).ok());
    match options.region.clone().or(region) {
        Some(region) => builder.with_region(region),
        None => builder,
    }
}
