//! What every command that measures is given: a profile, its size and payload, threads and seed.

use super::catalogue::{Found, find};
use crate::context::Context;
use crate::failure::Failure;
use clap::Args;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use stonefold_api::{Client, Disk};
use stonefold_env::Env;
use stonefold_lab::bundle::{self, Run as Record};
use stonefold_lab::counters::{self, Counters, Counts};
use stonefold_lab::oltp;
use stonefold_lab::payload::Reduction;
use stonefold_lab::preflight::Others;
use stonefold_lab::profile::Profile;
use stonefold_lab::rig::RigOptions;
use stonefold_lab::tiles;
use stonefold_lab::{TargetSpec, machine};
use stonefold_types::{BLOCK_BYTES, Error, Kind, Name, Size};

#[derive(Args)]
pub(super) struct Load {
    /// A profile's name ('stonefold lab ls' lists them), or a file that ends in .toml
    profile: String,
    /// Smaller and shorter; the report says so
    #[arg(long)]
    pub(super) quick: bool,
    /// Where the raw data go: a folder that is empty or does not exist yet [default: nothing is kept]
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// The size of each volume, in place of the profile's
    #[arg(long)]
    pub(super) size: Option<Size>,
    /// The size of the cache that is measured, of a profile that is about one: its volumes are so many times as large as it says
    #[arg(long, conflicts_with = "size")]
    pub(super) cache: Option<Size>,
    /// How far what is written reduces, in place of what the profile says: DEDUPE:COMPRESSION, as in 1.2:2
    #[arg(long, value_name = "D:C", value_parser = reduction)]
    pub(super) payload: Option<Reduction>,
    /// Measure each load for so long at least, where the profile says less, as in 60s: on a machine that is shared or small what is short never becomes steady
    #[arg(long, value_name = "TIME", value_parser = stonefold_lab::profile::read_time)]
    pub(super) point: Option<Duration>,
    /// Of its steps this one alone, or those of several such words: 'lab show PROFILE' names them. What is left is a modified profile
    #[arg(long = "step", value_name = "NAME")]
    pub(super) only: Vec<String>,
    /// Threads of the load [default: half of the processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(super) threads: Option<u16>,
    /// Of everything that is drawn [default: drawn, and told]
    #[arg(long)]
    pub(super) seed: Option<u64>,
    /// Do not look at what is read: faster, and one warning
    #[arg(long)]
    pub(super) no_verify: bool,
    /// The target may hold data of others: it goes
    #[arg(long)]
    pub(super) destroy_data: bool,
    /// Where it went that could not go where it was to, and why.
    #[arg(skip)]
    pub(super) elsewhere: OnceLock<(Option<PathBuf>, Error)>,
}

fn reduction(text: &str) -> Result<Reduction, String> {
    let wrong = || "write two ratios from 1 up, as in 1.2:2".to_owned();
    let (dedupe, compression) = text.split_once(':').ok_or_else(wrong)?;
    let ratio = |text: &str| text.parse::<f64>().ok().filter(|ratio| *ratio >= 1.0).ok_or_else(wrong);
    Ok(Reduction { dedupe: ratio(dedupe)?, compression: ratio(compression)? })
}

impl Load {
    /// A shipped profile, with nothing chosen that need not be.
    pub(super) fn plain(
        profile: &str,
        quick: bool,
        out: Option<PathBuf>,
        size: Option<Size>,
        destroy_data: bool,
    ) -> Load {
        let profile = profile.to_owned();
        Load {
            profile,
            quick,
            out,
            size,
            cache: None,
            payload: None,
            point: None,
            only: Vec::new(),
            threads: None,
            seed: None,
            no_verify: false,
            destroy_data,
            elsewhere: OnceLock::new(),
        }
    }

    /// The profile as it is to be run, and whether it is one of the lab's own, unchanged. Refuses an `--out` that holds something.
    /// `machines` are those that make the load.
    pub(super) fn profile(&self, machines: usize) -> Result<(Profile, bool), Failure> {
        let (profile, shipped) = match find(&self.profile)? {
            (Found::Load(profile), shipped) => (*profile, shipped),
            (Found::Database(profile), _) => {
                return Err(other_kind(&format!("'{}' runs a database", profile.name)));
            }
            (Found::Tiles(profile), _) => {
                return Err(other_kind(&format!("'{}' replays tiles", profile.name)));
            }
        };
        let size = self.size.map(|size| size.0);
        if size.is_some_and(|size| size == 0 || size % BLOCK_BYTES as u64 != 0) {
            let error = Error::new(
                Kind::Invalid,
                format!("--size {} is no size of a volume", self.size.unwrap_or_default()),
            );
            return Err(Failure::Misuse(error.remedy("choose a multiple of 4K")));
        }
        // Each machine has volumes of its own, and all of them together are what a cache is about.
        let of_cache = self.cache.map(|cache| profile.volume_for_cache(cache.0 / machines.max(1) as u64));
        let size = size.or(of_cache.transpose().map_err(Failure::Misuse)?);
        let profile = profile.changed(size, self.payload)?;
        let mut profile = profile.with_steps(&self.only, self.quick).map_err(Failure::Misuse)?;
        let locked = shipped && self.size.is_none() && self.payload.is_none() && profile.only.is_empty();
        profile.cache = self.cache.map(|cache| cache.0);
        if let Some(least) = self.point {
            profile = profile.with_points(least, self.quick).map_err(Failure::Misuse)?;
        }
        if let Some(dir) = &self.out {
            bundle::check_free(dir)?;
        }
        Ok((profile, locked))
    }

    /// The profile where it is one of tiles, and whether it is the lab's own. Refuses an `--out` that holds something.
    pub(super) fn tiles(&self) -> Result<Option<(tiles::Profile, bool)>, Failure> {
        let (Found::Tiles(profile), shipped) = find(&self.profile)? else { return Ok(None) };
        if let Some(dir) = &self.out {
            bundle::check_free(dir)?;
        }
        Ok(Some((*profile, shipped)))
    }

    /// The profile where it is one that runs a database, and whether it is the lab's own. Refuses an `--out` that holds something.
    pub(super) fn database(&self) -> Result<Option<(oltp::Profile, bool)>, Failure> {
        let (Found::Database(profile), shipped) = find(&self.profile)? else { return Ok(None) };
        if let Some(dir) = &self.out {
            bundle::check_free(dir)?;
        }
        Ok(Some((*profile, shipped)))
    }

    pub(super) fn options(&self, env: &Env) -> RigOptions {
        let seed = self.seed.unwrap_or_else(|| u64::from_le_bytes(env.random()) >> 16);
        let threads = self.threads.map_or_else(|| machine::cores().div_ceil(2), usize::from);
        RigOptions { threads, verify: !self.no_verify, seed, destroy_data: self.destroy_data, lasting: false }
    }

    /// The flags by which the same can be done again; where it goes and what it may destroy is chosen anew.
    pub(super) fn words(&self, options: &RigOptions) -> String {
        let flag = |name: &str, set: bool| set.then(|| name.to_owned());
        let mut words: Vec<String> = flag("--quick", self.quick).into_iter().collect();
        words.extend(self.size.map(|size| format!("--size {}", size.0)));
        words.extend(self.cache.map(|cache| format!("--cache {}", cache.0)));
        words.extend(
            self.payload.map(|payload| format!("--payload {}:{}", payload.dedupe, payload.compression)),
        );
        words.extend(self.point.map(|least| format!("--point {}s", least.as_secs_f64())));
        words.extend(self.only.iter().map(|name| format!("--step {}", quoted(name))));
        words.extend(flag("--no-verify", self.no_verify));
        words.push(format!("--threads {} --seed {}", options.threads, options.seed));
        words.join(" ")
    }

    /// The same, of a profile that runs a database.
    pub(super) fn words_of_database(&self, seed: u64) -> String {
        format!("{}--seed {seed}", if self.quick { "--quick " } else { "" })
    }

    /// The profile, as it was named.
    pub(super) fn named(&self) -> String {
        quoted(&self.profile)
    }
}

fn other_kind(what: &str) -> Failure {
    let what = format!("the profile {what}, which this command does not");
    Failure::Misuse(Error::new(Kind::Unsupported, what).remedy("run it by 'stonefold lab run'"))
}

/// What a record has under this name: how warm caches of the target are.
pub(super) const CACHES: &str = "caches of the target";

/// How warm they are in the samples of a profile.
pub(super) fn caches(profile: &Profile) -> String {
    let written = if profile.fills_itself() { "its own phases" } else { "writing every block once" };
    format!("warm: as {written} and the load before each sample have left them; nothing was dropped")
}

/// What is told of any load on volumes, before it is measured.
pub(super) fn record(profile: &Profile, targets: &[TargetSpec], options: &RigOptions) -> Record {
    let mut machine = machine::describe();
    machine.insert(CACHES.into(), caches(profile));
    Record {
        format: Record::FORMAT,
        version: super::VERSION.into(),
        profile: profile.name.clone(),
        targets: targets.iter().map(ToString::to_string).collect(),
        seed: options.seed,
        threads: options.threads,
        verified: options.verify && !targets.contains(&TargetSpec::Null),
        machine,
        scale: profile.scale,
        cache: profile.cache,
        least_seconds: profile.least.map(|least| least.as_secs_f64()),
        only: profile.only.clone(),
        ..Record::default()
    }
}

/// A target of its text; a disk of a server becomes the export by which it serves it.
pub(super) fn target(context: &Context, text: &str) -> Result<TargetSpec, Failure> {
    let spec = text.parse::<TargetSpec>().map_err(Failure::Misuse)?;
    let TargetSpec::Stonefold(name) = &spec else { return Ok(spec) };
    Ok(door(&context.client()?.disk(&name.parse().map_err(Failure::Misuse)?)?)?)
}

/// A command that does the same again, with the server to ask where one of its targets is a disk of another than the usual one.
pub(super) fn with_server<'a>(
    context: &Context,
    command: String,
    targets: impl IntoIterator<Item = &'a String>,
) -> String {
    let is_disk = targets.into_iter().any(|target| target.starts_with("stonefold:"));
    match context.other_server().filter(|_| is_disk) {
        Some(url) => format!("{command} --api {}", quoted(&url)),
        None => command,
    }
}

/// The export by which a server serves a disk.
pub(super) fn door(disk: &Disk) -> Result<TargetSpec, Error> {
    let uri = disk.uris.iter().find(|uri| uri.starts_with("nbd://") || uri.starts_with("nbd+unix://"));
    let uri = uri.ok_or_else(|| {
        let what = format!("disk '{}' has no door that can be reached in clear", disk.name);
        Error::new(Kind::Unsupported, what).remedy("serve with --nbd unix:///PATH, too")
    })?;
    uri.parse()
}

/// A disk of a server, as that counts it.
struct OfDisk {
    client: Client,
    name: Name,
}

/// Without the client, which has a secret.
impl fmt::Debug for OfDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OfDisk").field(&self.name).finish()
    }
}

impl Counters for OfDisk {
    fn counts(&self) -> Result<Counts, Error> {
        let io = self.client.disk(&self.name)?.io.ok_or_else(|| {
            Error::new(
                Kind::Unsupported,
                format!("the server does not tell what disk '{}' has done", self.name),
            )
        })?;
        Ok(Counts { read_bytes: io.read_bytes, written_bytes: io.written_bytes })
    }
}

/// Who says what the targets have done; nobody where one of them cannot say it.
pub(super) fn counters(context: &Context, targets: &[String]) -> Result<Vec<Arc<dyn Counters>>, Failure> {
    let mut all: Vec<Arc<dyn Counters>> = Vec::new();
    for text in targets {
        match text.parse::<TargetSpec>().map_err(Failure::Misuse)? {
            TargetSpec::Device(path) => all.push(Arc::new(counters::of_device(&path)?)),
            TargetSpec::Stonefold(name) => {
                let name = name.parse().map_err(Failure::Misuse)?;
                all.push(Arc::new(OfDisk { client: context.client()?, name }));
            }
            _ => return Ok(Vec::new()),
        }
    }
    Ok(all)
}

/// A run so long is worth being kept.
const WORTH_KEEPING: Duration = Duration::from_secs(600);

/// Says what to know before a run begins; gives what is to be told of the machine for it.
pub(super) fn tell_before(out: Option<&Path>, length: Duration) -> Option<(String, String)> {
    tell_unkept(out, length);
    tell_others()
}

/// Of a long run, when nothing of it will be kept.
pub(super) fn tell_unkept(out: Option<&Path>, length: Duration) {
    if out.is_none() && length > WORTH_KEEPING {
        eprintln!(
            "nothing of it will be kept but what is printed: with --out DIR there are the raw data, for 'lab report' and 'lab verify'"
        );
    }
}

/// Who else uses the machine.
pub(super) fn tell_others() -> Option<(String, String)> {
    let others = Others::look()?;
    if let Some(warning) = others.warning() {
        eprintln!("{warning}");
    }
    Some(("busy before".to_owned(), others.words()))
}

/// As a shell takes it.
pub(super) fn quoted(text: &str) -> String {
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:@".contains(c));
    if plain { text.to_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Global;

    /// Goal: what is printed as the way to do it again asks the same server.
    #[test]
    fn the_server_is_named_where_a_target_is_its_disk() {
        let global = Global { api: vec!["http://127.0.0.1:7999".into()], ..Global::default() };
        let context = Context::new(global);
        let words = |target: &str| with_server(&context, "again".into(), &[target.to_owned()]);
        assert_eq!(words("stonefold:web"), "again --api http://127.0.0.1:7999");
        assert_eq!(words("file:/t.img"), "again");
        let usual = context.asking(stonefold_api::DEFAULT_URL.to_owned());
        assert_eq!(with_server(&usual, "again".into(), &["stonefold:web".to_owned()]), "again");
    }
}
