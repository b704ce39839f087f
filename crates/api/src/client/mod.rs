//! A blocking client.

mod access;
mod protect;
mod unix;
mod webhook;

pub use access::Access;
pub use webhook::Webhook;

use crate::{
    Cache, CacheResize, CacheWarm, CacheWarmed, Checked, CloneCreate, Diff, DirectoryChange,
    DirectoryReplace, Disk, DiskCreate, DiskResize, DiskSet, DiskUsage, Domain, DomainCreate, DomainKey,
    DomainSet, DomainShred, ErrorBody, MasterKeyChange, Pool, PoolTime, QosClass, QosCreate, QosSet,
    Reclaimed, Rollback, Server, Snapshot, SnapshotCreate, SnapshotLock, Token, TokenCreate, TokenCreated,
    Trace, TraceStart, paths,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::Read;
use std::time::Duration;
use stonefold_types::{Error, ExportName, Kind, Name, Result, SnapshotName};
use ureq::{Agent, Body, RequestBuilder, http};

/// How long a server that is there may take to accept: one that is not there should be told of soon.
const CONNECT_SECONDS_MAX: Duration = Duration::from_secs(5);
/// Snapshots asked for at one time: an answer of a megabyte or two.
const SNAPSHOTS_ABREAST: usize = 5000;
/// The longest answer, in bytes: a list of 100,000 snapshots takes some 30 MB.
const ANSWER_BYTES_MAX: u64 = 1 << 30;

/// Speaks to one server. Cheap to clone; connections are kept between calls.
#[derive(Clone)]
pub struct Client {
    /// As the user names it.
    url: String,
    /// What paths are added to.
    base: String,
    agent: Agent,
    /// What it shows, if it has one.
    token: Option<String>,
}

impl Client {
    /// A client of the server at `url`: `http://127.0.0.1:7770`, or `unix:///path`. Connects with the first call.
    pub fn new(url: &str) -> Result<Self> {
        Client::with(url, Access::default())
    }

    /// The same with a token; and, for `https://host:port`, with whom to trust.
    pub fn with(url: &str, access: Access) -> Result<Self> {
        let wrong = |why: &str| {
            Error::new(Kind::Invalid, format!("'{url}' is not the URL of an API: {why}"))
                .remedy(format!("write it as {} or unix:///path", crate::DEFAULT_URL))
        };
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT_SECONDS_MAX))
            // A proxy is for the world; a store's API is never out there.
            .proxy(None)
            .user_agent(concat!("stonefold/", env!("CARGO_PKG_VERSION")));
        let base = url.trim_end_matches('/');
        if let Some(path) = base.strip_prefix("unix://") {
            if !path.starts_with('/') {
                return Err(wrong("the socket's path does not begin with a slash"));
            }
            let agent = unix::agent(config.build(), path.into());
            let base_url = "http://localhost".to_owned();
            return Ok(Client { url: base.to_owned(), base: base_url, agent, token: access.token });
        }
        let parsed: http::Uri = base.parse().map_err(|e| wrong(&format!("{e}")))?;
        let config = match parsed.scheme_str() {
            Some("http") => config,
            Some("https") => config.https_only(true).tls_config(access.tls(base)?),
            Some(other) => return Err(wrong(&format!("{other}:// is none of http://, https://, unix://"))),
            None => return Err(wrong("it does not begin with http://, https:// or unix://")),
        };
        if !matches!(parsed.path(), "" | "/") || parsed.query().is_some() {
            return Err(wrong("it has a path; the API's own are added to it"));
        }
        let agent = config.build().new_agent();
        Ok(Client { url: base.to_owned(), base: base.to_owned(), agent, token: access.token })
    }

    /// The URL it was made with.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The server: version, doors.
    pub fn server(&self) -> Result<Server> {
        self.get(paths::SERVER)
    }

    /// The pool's state.
    pub fn pool(&self) -> Result<Pool> {
        self.get(paths::POOL)
    }

    /// Gives back what nothing refers to; returns when that is done.
    pub fn reclaim(&self) -> Result<Reclaimed> {
        self.command(paths::POOL_RECLAIM)
    }

    /// Reads everything in use and verifies it.
    pub fn check_pool(&self) -> Result<Checked> {
        self.command(paths::POOL_CHECK)
    }

    /// The same, and makes new disks of what is damaged for good.
    pub fn salvage_pool(&self) -> Result<Checked> {
        self.command(paths::POOL_SALVAGE)
    }

    /// The same of every copy; heals what is damaged.
    pub fn scrub_pool(&self) -> Result<Checked> {
        self.command(paths::POOL_SCRUB)
    }

    /// Takes the server's clock for right.
    pub fn confirm_time(&self) -> Result<PoolTime> {
        self.command(paths::POOL_CONFIRM_TIME)
    }

    /// Begins to use a directory.
    pub fn add_directory(&self, dir: &str) -> Result<Pool> {
        self.post(paths::POOL_DIRECTORIES, &DirectoryChange { dir: dir.to_owned() })
    }

    /// Begins to bring elsewhere what lies in a directory.
    pub fn drain_directory(&self, dir: &str) -> Result<Pool> {
        self.post(paths::POOL_DIRECTORIES_DRAIN, &DirectoryChange { dir: dir.to_owned() })
    }

    /// Begins to use a directory in the place of another.
    pub fn replace_directory(&self, old: &str, new: &str) -> Result<Pool> {
        let change = DirectoryReplace { old: old.to_owned(), new: new.to_owned() };
        self.post(paths::POOL_DIRECTORIES_REPLACE, &change)
    }

    /// Takes the change of directories under way back.
    pub fn cancel_directories(&self) -> Result<Pool> {
        self.command(paths::POOL_DIRECTORIES_CANCEL)
    }

    /// The OpenAPI document.
    pub fn openapi(&self) -> Result<serde_json::Value> {
        self.get(paths::OPENAPI)
    }

    /// The cache's state.
    pub fn cache(&self) -> Result<Cache> {
        self.get(paths::CACHE)
    }

    /// Changes the cache's size, until the server stops.
    pub fn resize_cache(&self, max_bytes: u64) -> Result<Cache> {
        self.patch(paths::CACHE, &CacheResize { max_bytes })
    }

    /// Empties the cache.
    pub fn drop_cache(&self) -> Result<Cache> {
        self.command(paths::CACHE_DROP)
    }

    /// Brings one range into the cache.
    pub fn warm_cache(&self, export: &ExportName, offset: u64, bytes: u64) -> Result<CacheWarmed> {
        self.post(paths::CACHE_WARM, &CacheWarm { export: export.to_string(), offset, bytes })
    }

    /// All disks, by name.
    pub fn disks(&self) -> Result<Vec<Disk>> {
        self.get(paths::DISKS)
    }

    /// One disk.
    pub fn disk(&self, name: &Name) -> Result<Disk> {
        self.get(&paths::of_disk(paths::DISK, name))
    }

    /// Makes a disk.
    pub fn create_disk(&self, disk: &DiskCreate) -> Result<Disk> {
        self.post(paths::DISKS, disk)
    }

    /// Changes a disk's settings.
    pub fn set_disk(&self, name: &Name, settings: &DiskSet) -> Result<Disk> {
        self.patch(&paths::of_disk(paths::DISK, name), settings)
    }

    /// Changes a disk's size.
    pub fn resize_disk(&self, name: &Name, resize: &DiskResize) -> Result<Disk> {
        self.post(&paths::of_disk(paths::DISK_RESIZE, name), resize)
    }

    /// Counts what a disk takes of the pool; answers when that is done.
    pub fn disk_usage(&self, name: &Name) -> Result<DiskUsage> {
        self.command(&paths::of_disk(paths::DISK_USAGE, name))
    }

    /// Makes everything written to a disk so far durable, whoever wrote it.
    pub fn flush_disk(&self, name: &Name) -> Result<()> {
        self.post_empty(&paths::of_disk(paths::DISK_FLUSH, name))
    }

    /// Removes a disk; with its snapshots when asked, else refused while it has any, and while a machine, a recovery or a source needs it.
    pub fn remove_disk(&self, name: &Name, with_snapshots: bool) -> Result<()> {
        self.delete(&format!("{}?snapshots={with_snapshots}", paths::of_disk(paths::DISK, name)))
    }

    /// The same, also while a machine, a recovery or a source needs it.
    pub fn remove_needed_disk(&self, name: &Name, with_snapshots: bool) -> Result<()> {
        let path = paths::of_disk(paths::DISK, name);
        self.delete(&format!("{path}?snapshots={with_snapshots}&needed=true"))
    }

    /// Removes a disk whose head cannot be read, with all it held.
    pub fn give_up_disk(&self, name: &Name) -> Result<()> {
        self.post_empty(&paths::of_disk(paths::DISK_GIVE_UP, name))
    }

    /// Records what clients ask of a disk: a trace, which comes until somebody stops it.
    pub fn start_trace(&self, name: &Name, start: &TraceStart) -> Result<Box<dyn Read + Send>> {
        let path = paths::of_disk(paths::DISK_TRACE, name);
        let answer = self.check(self.shown(self.agent.post(self.at(&path))).send_json(start))?;
        Ok(Box::new(answer.into_body().into_reader()))
    }

    /// Ends the recording of a disk; returns what it came to.
    pub fn stop_trace(&self, name: &Name) -> Result<Trace> {
        self.read(self.shown(self.agent.delete(self.at(&paths::of_disk(paths::DISK_TRACE, name)))).call())
    }

    /// All traces that are being recorded.
    pub fn traces(&self) -> Result<Vec<Trace>> {
        self.get(paths::TRACES)
    }

    /// All snapshots, or those of one disk, asked for in parts.
    pub fn snapshots(&self, disk: Option<&Name>) -> Result<Vec<Snapshot>> {
        let of_disk = disk.map(|disk| format!("&disk={disk}")).unwrap_or_default();
        let mut all: Vec<Snapshot> = Vec::new();
        loop {
            let after = all.last().map(|s| format!("&after={}@{}", s.disk, s.number)).unwrap_or_default();
            let path = format!("{}?limit={SNAPSHOTS_ABREAST}{of_disk}{after}", paths::SNAPSHOTS);
            let part: Vec<Snapshot> = self.get(&path)?;
            let is_last = part.len() < SNAPSHOTS_ABREAST;
            all.extend(part);
            if is_last {
                return Ok(all);
            }
        }
    }

    /// One snapshot.
    pub fn snapshot(&self, name: &SnapshotName) -> Result<Snapshot> {
        self.get(&paths::of_snapshot(paths::SNAPSHOT, name))
    }

    /// Takes a snapshot of one disk or of several at one instant.
    pub fn create_snapshot(&self, snapshot: &SnapshotCreate) -> Result<Vec<Snapshot>> {
        self.post(paths::SNAPSHOTS, snapshot)
    }

    /// Removes a snapshot.
    pub fn remove_snapshot(&self, name: &SnapshotName) -> Result<()> {
        self.delete(&paths::of_snapshot(paths::SNAPSHOT, name))
    }

    /// What differs between a snapshot and another one, or a disk as it is now: the snapshot's own, if `to` is left out.
    pub fn diff(&self, from: &SnapshotName, to: Option<&ExportName>) -> Result<Diff> {
        let path = paths::of_snapshot(paths::SNAPSHOT_DIFF, from);
        match to {
            None => self.get(&path),
            Some(to) => self.get(&format!("{path}?to={to}")),
        }
    }

    /// Makes a disk from a snapshot.
    pub fn clone_snapshot(&self, from: &SnapshotName, new: &Name) -> Result<Disk> {
        let path = paths::of_snapshot(paths::SNAPSHOT_CLONE, from);
        self.post(&path, &CloneCreate { name: new.clone() })
    }

    /// Locks a snapshot until a date.
    pub fn lock_snapshot(&self, name: &SnapshotName, lock: &SnapshotLock) -> Result<Snapshot> {
        self.post(&paths::of_snapshot(paths::SNAPSHOT_LOCK, name), lock)
    }

    /// Brings a disk back to a snapshot.
    pub fn rollback(&self, to: &SnapshotName) -> Result<Rollback> {
        self.command(&paths::of_snapshot(paths::SNAPSHOT_ROLLBACK, to))
    }

    /// All domains, the predefined one first.
    pub fn domains(&self) -> Result<Vec<Domain>> {
        self.get(paths::DOMAINS)
    }

    /// One domain.
    pub fn domain(&self, name: &Name) -> Result<Domain> {
        self.get(&paths::of_domain(paths::DOMAIN, name))
    }

    /// Makes a domain.
    pub fn create_domain(&self, domain: &DomainCreate) -> Result<Domain> {
        self.post(paths::DOMAINS, domain)
    }

    /// Changes what new disks of a domain get.
    pub fn set_domain(&self, name: &Name, policy: &DomainSet) -> Result<Domain> {
        self.patch(&paths::of_domain(paths::DOMAIN, name), policy)
    }

    /// Removes a domain that nothing needs.
    pub fn remove_domain(&self, name: &Name) -> Result<()> {
        self.delete(&paths::of_domain(paths::DOMAIN, name))
    }

    /// Gives a domain a new key.
    pub fn rotate_domain(&self, name: &Name) -> Result<Domain> {
        self.command(&paths::of_domain(paths::DOMAIN_ROTATE, name))
    }

    /// Forgets a domain's keys, for good.
    pub fn shred_domain(&self, name: &Name) -> Result<Domain> {
        self.post(&paths::of_domain(paths::DOMAIN_SHRED, name), &DomainShred { confirm: name.clone() })
    }

    /// A domain's keys.
    pub fn export_domain_key(&self, name: &Name) -> Result<DomainKey> {
        self.command(&paths::of_domain(paths::DOMAIN_EXPORT_KEY, name))
    }

    /// Wraps all domains' keys under another master key.
    pub fn change_master_key(&self, new: &MasterKeyChange) -> Result<()> {
        self.check(self.shown(self.agent.post(self.at(paths::MASTER_KEY))).send_json(new)).map(drop)
    }

    /// All tokens, without their secrets.
    pub fn tokens(&self) -> Result<Vec<Token>> {
        self.get(paths::TOKENS)
    }

    /// Makes a token.
    pub fn create_token(&self, token: &TokenCreate) -> Result<TokenCreated> {
        self.post(paths::TOKENS, token)
    }

    /// Removes a token.
    pub fn remove_token(&self, name: &Name) -> Result<()> {
        self.delete(&paths::of_token(paths::TOKEN, name))
    }

    /// All classes of service.
    pub fn qos_classes(&self) -> Result<Vec<QosClass>> {
        self.get(paths::QOS)
    }

    /// Makes a class of service.
    pub fn create_qos(&self, class: &QosCreate) -> Result<QosClass> {
        self.post(paths::QOS, class)
    }

    /// Changes a class of service.
    pub fn set_qos(&self, name: &Name, change: &QosSet) -> Result<QosClass> {
        self.patch(&paths::of_class(paths::QOS_CLASS, name), change)
    }

    /// Removes a class of service.
    pub fn remove_qos(&self, name: &Name) -> Result<()> {
        self.delete(&paths::of_class(paths::QOS_CLASS, name))
    }

    fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.read(self.shown(self.agent.get(self.at(path))).call())
    }

    fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T> {
        self.read(self.shown(self.agent.post(self.at(path))).send_json(body))
    }

    /// A request without a body: one that the server does not read would cost the connection, when it comes after the answer.
    fn command<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.read(self.shown(self.agent.post(self.at(path))).send_empty())
    }

    fn post_empty(&self, path: &str) -> Result<()> {
        self.check(self.shown(self.agent.post(self.at(path))).send_empty()).map(drop)
    }

    fn patch<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T> {
        self.read(self.shown(self.agent.patch(self.at(path))).send_json(body))
    }

    fn delete(&self, path: &str) -> Result<()> {
        self.check(self.shown(self.agent.delete(self.at(path))).call()).map(drop)
    }

    fn shown<B>(&self, request: RequestBuilder<B>) -> RequestBuilder<B> {
        match &self.token {
            Some(token) => request.header("authorization", format!("Bearer {token}")),
            None => request,
        }
    }

    fn at(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    fn read<T: DeserializeOwned>(&self, answer: Answer) -> Result<T> {
        let mut response = self.check(answer)?;
        response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_json().map_err(|e| self.strange(e))
    }

    /// Turns a failure, of the connection or told by the server, into an error.
    fn check(&self, answer: Answer) -> Result<http::Response<Body>> {
        let mut response = answer.map_err(|e| self.unreachable(&e))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        match response.body_mut().read_json::<ErrorBody>() {
            Ok(body) => Err(body.into()),
            Err(_) => Err(self.strange(format!("HTTP status {status}"))),
        }
    }

    fn unreachable(&self, error: &ureq::Error) -> Error {
        let why = match error {
            ureq::Error::Io(error) => error.to_string(),
            other => other.to_string(),
        };
        let of_tls = match error {
            ureq::Error::Io(error) => error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()),
            other => matches!(other, ureq::Error::Rustls(_)),
        };
        let remedy = if of_tls {
            "name the authority that signed the server's certificate with --api-ca, and call the server by a name that \
             stands in it"
        } else if matches!(error, ureq::Error::Io(error) if error.kind() == std::io::ErrorKind::PermissionDenied)
        {
            "run this as the user who serves, or with sudo"
        } else if matches!(error, ureq::Error::Protocol(_)) && self.url.starts_with("http:") {
            "begin the URL with https: if the server has a certificate"
        } else {
            "start one with 'stonefold serve', or name the right one with --api URL or STONEFOLD_API"
        };
        Error::new(Kind::Io, format!("no Stonefold answers at {}: {why}", self.url)).remedy(remedy)
    }

    fn strange(&self, why: impl std::fmt::Display) -> Error {
        Error::new(
            Kind::Unsupported,
            format!("what answers at {} is no Stonefold of this version: {why}", self.url),
        )
        .remedy("compare 'stonefold version' on both sides, and the URL")
    }
}

type Answer = std::result::Result<http::Response<Body>, ureq::Error>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_cannot_work_is_refused_with_the_reason() {
        assert!(Client::new("http://127.0.0.1:7770/").is_ok());
        assert!(Client::new("unix:///run/stonefold-api.sock").is_ok());
        for bad in
            ["127.0.0.1:7770", "https://host", "ftp://host", "http://host/v1", "http://a b", "unix://a", ""]
        {
            let error = Client::new(bad).err().unwrap();
            assert_eq!(error.kind(), Kind::Invalid, "{bad}");
        }
    }

    #[test]
    fn a_server_that_is_not_there_is_told_in_the_users_words() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = Client::new(&format!("http://{free}")).unwrap().disks().unwrap_err();
        assert!(error.what().starts_with(&format!("no Stonefold answers at http://{free}")), "{error}");
        assert!(error.remedy_text().unwrap().contains("stonefold serve"));
    }
}
