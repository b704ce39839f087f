//! `stonefold serve`.

use crate::context::Context;
use crate::failure::Failure;
use crate::keys::KeyFlags;
use clap::Args;
use std::path::PathBuf;
use stonefold_server::{Accelerator, ApiAddress, NbdAddress, Settings, TlsMode};
use stonefold_types::{Durability, Error, Kind, Size};

/// Serve a pool: open its doors until told to stop
///
/// Makes the pool if the place is empty. When every door is open it prints one line on stdout,
/// `ready pool=… nbd=… api=…`; the log goes to stderr. SIGTERM or Ctrl-C stops it without losing anything.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    stonefold serve --pool file:///srv/pool\n  \
    stonefold serve --pool file:///srv/pool --nbd unix:///run/stonefold.sock --cache 4G\n  \
    stonefold serve --pool file:///srv/pool --nbd tcp://0.0.0.0:10809 --tls-cert cert.pem --tls-key key.pem\n  \
    stonefold serve --config /etc/stonefold.toml\n\n\
    A configuration file has the names of the flags; flags win over it:\n  \
    pool = \"file:///srv/pool\"\n  \
    nbd = [\"tcp://127.0.0.1:10809\", \"unix:///run/stonefold.sock\"]\n  \
    api = [\"127.0.0.1:7770\"]\n  \
    cache = \"4G\"\n  \
    durability = \"flush\"")]
pub(crate) struct Serve {
    /// Where everything durable lives: file:///DIRECTORY, file:///D1?also=/D2&copies=2, or s3://BUCKET/PREFIX?endpoint=URL
    #[arg(long, value_name = "URL")]
    pool: Option<String>,
    /// Go on without directories of the pool that are missing: what only they hold is lost then
    #[arg(long)]
    degraded: bool,
    /// Where NBD listens: tcp://HOST:PORT or unix:///PATH; may be given again [default: tcp://127.0.0.1:10809]
    #[arg(long, value_name = "ADDRESS")]
    nbd: Vec<NbdAddress>,
    /// The server's certificate, PEM, with those that lead to its authority behind it: NBD over TCP then has TLS
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// The certificate's private key, PEM
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Let in only NBD clients with a certificate that an authority in this PEM file has signed
    #[arg(long, value_name = "FILE")]
    tls_client_ca: Option<PathBuf>,
    /// Whether NBD clients on TCP must use TLS (require) or may (allow) [default: require]
    #[arg(long, value_name = "MODE")]
    tls: Option<TlsMode>,
    /// TLS for the API on loopback, too; where other machines reach it, it has TLS wherever there is a certificate
    #[arg(long)]
    api_tls: bool,
    /// Remove all tokens of the API at start: for whoever has lost the last admin's
    #[arg(long)]
    forget_tokens: bool,
    #[command(flatten)]
    keys: KeyFlags,
    /// Memory for the cache [default: 1G]
    #[arg(long, value_name = "SIZE")]
    cache: Option<Size>,
    /// Memory for what is acknowledged and not yet folded, on top of the cache [default: 192M]
    #[arg(long, value_name = "SIZE")]
    journal: Option<Size>,
    /// When writes to new disks are acknowledged: flush (at once; durable after a flush) or ack (when durable)
    /// [default: ack where NBD listens beyond loopback, else flush]
    #[arg(long, value_name = "WHEN")]
    durability: Option<Durability>,
    /// In how many days every copy of all segments is read once in the background and healed; 0 for never [default: 30]
    #[arg(long, value_name = "DAYS")]
    scrub_days: Option<u32>,
    /// How many bytes a second backups and what is sent to other pools may move, all together, as in 100M [default: all they can]
    #[arg(long, value_name = "SIZE")]
    copy_bandwidth: Option<Size>,
    /// Where folders of machines are made that 'recover' and 'verify' start [default: /run/stonefold/machines, or the user's]
    #[arg(long, value_name = "DIR")]
    machines: Option<PathBuf>,
    /// What runs their processors: kvm, tcg (emulation), or auto (kvm where firmware runs under it) [default: auto]
    #[arg(long, value_name = "HOW")]
    accelerator: Option<Accelerator>,
    /// A program that is told when a run of a policy fails, and when the next one makes a point again: JSON on its stdin, and STONEFOLD_* variables
    #[arg(long, value_name = "PATH")]
    notify_command: Option<PathBuf>,
    /// A configuration file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// What is logged: error, warn, info, debug, trace, or module=level,… [default: info] [env: RUST_LOG]
    #[arg(long, value_name = "LEVEL")]
    log: Option<String>,
}

impl Serve {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let file = match &self.config {
            Some(path) => Settings::read(path).map_err(Failure::Misuse)?,
            None => Settings::default(),
        };
        let settings = self.settings(context)?.over(file);
        stonefold_server::start_log(settings.log.as_deref()).map_err(Failure::Misuse)?;
        let config = settings.resolve().map_err(Failure::Misuse)?;
        Ok(stonefold_server::serve(config, context.json)?)
    }

    fn settings(self, context: &Context) -> Result<Settings, Failure> {
        let address = |text: &String| {
            text.parse::<ApiAddress>()
                .map_err(|why| Failure::Misuse(Error::new(Kind::Invalid, format!("--api: {why}"))))
        };
        let keys = self.keys.source();
        Ok(Settings {
            pool: self.pool,
            degraded: self.degraded,
            own: false,
            nbd: self.nbd,
            api: context.api.iter().map(address).collect::<Result<_, _>>()?,
            tls_cert: self.tls_cert,
            tls_key: self.tls_key,
            tls_client_ca: self.tls_client_ca,
            tls: self.tls,
            api_tls: self.api_tls.then_some(true),
            forget_tokens: self.forget_tokens,
            key_file: keys.key_file,
            passphrase_file: keys.passphrase_file,
            key_command: keys.key_command,
            recovery_keys: keys.recovery_keys,
            cache: self.cache,
            journal: self.journal,
            durability: self.durability,
            scrub_days: self.scrub_days,
            copy_bandwidth: self.copy_bandwidth,
            machines: self.machines,
            accelerator: self.accelerator,
            notify_command: self.notify_command,
            log: self.log,
        })
    }
}
