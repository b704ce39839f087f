//! An NBD client: what is backed up of other people's storage is read through it.
//!
//! *Promises*: many requests at once over one connection; an answer is whole, each byte of it told once, or an error; a server that is silent, goes
//! or speaks nonsense ends in an error that says so. *Never*: believes a length before it is bounded, waits for ever, writes. *Owns*: the
//! socket, and a task that reads from it for as long as this lives.
//!
//! The lab has a client of its own: it measures, so it has threads, buffers that are never copied, simple replies only, and no use for
//! what a server says of holes. What they have in common is three numbers of the protocol (<https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>).
//!
//! | a request | bytes |
//! |---|---|
//! | magic 0x25609513 | 4 |
//! | flags | 2 |
//! | type: 0 read, 2 disconnect, 7 block status | 2 |
//! | cookie | 8 |
//! | offset | 8 |
//! | length | 4 |

mod address;
mod handshake;
mod replies;
mod secret;
#[cfg(test)]
mod tests;

pub(crate) use address::{Address, Place};
pub(crate) use handshake::{Export, Offer};
use replies::{Answer, Asked, Ears, Shared, Waiting};

use parking_lot::Mutex;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use stonefold_env::Env;
use stonefold_tls::{Connector, Files};
use stonefold_types::{Error, Kind, Result};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;

const REQUEST_MAGIC: u32 = 0x2560_9513;
const READ: u16 = 0;
const DISCONNECT: u16 = 2;
const BLOCK_STATUS: u16 = 7;
/// What is read from the socket at once at least, in bytes; longer payloads go where they belong without a detour.
const READ_BYTES: usize = 64 << 10;

type Reader = BufReader<Box<dyn AsyncRead + Send + Unpin>>;
type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// Both ends of a fresh connection.
pub(crate) struct Wire {
    reader: Reader,
    writer: Writer,
}

/// A connection to an export.
pub(crate) struct Client {
    env: Env,
    export: Export,
    /// That there is no bitmap, where one was asked for.
    lost: Option<Error>,
    writer: tokio::sync::Mutex<Writer>,
    /// Requests that are to be sent.
    unsent: Mutex<Vec<u8>>,
    shared: Arc<Shared>,
    /// How long a server may be silent that owes an answer.
    patience: Duration,
    /// Ends the task that reads.
    _end: oneshot::Sender<()>,
}

/// What was read.
pub(crate) struct Read {
    pub(crate) bytes: Vec<u8>,
    /// How many of these came over the wire; the rest was told to be holes.
    pub(crate) sent: u64,
}

/// A run of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) bytes: u64,
    /// It reads as zeros.
    pub(crate) zero: bool,
    /// The bitmap that was asked for says that it has changed; always so without one.
    pub(crate) changed: bool,
}

impl Wire {
    pub(crate) fn unix(stream: UnixStream) -> Wire {
        let (reader, writer) = stream.into_split();
        Wire { reader: BufReader::with_capacity(READ_BYTES, Box::new(reader)), writer: Box::new(writer) }
    }

    fn tcp(stream: TcpStream) -> Wire {
        let (reader, writer) = stream.into_split();
        Wire { reader: BufReader::with_capacity(READ_BYTES, Box::new(reader)), writer: Box::new(writer) }
    }

    async fn open(place: &Place) -> Result<Wire> {
        let remedy = "start the server, or correct the address";
        match place {
            Place::Tcp(host, port) | Place::Tls(host, port, _) => {
                let stream = TcpStream::connect((host.as_str(), *port)).await.and_then(|stream| {
                    stream.set_nodelay(true)?;
                    Ok(stream)
                });
                let at =
                    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
                stream
                    .map(Wire::tcp)
                    .map_err(|e| Error::io(format!("connecting to the NBD server at {at}"), e).remedy(remedy))
            }
            Place::Unix(path) => Ok(Wire::unix(connect_unix(path).await.map_err(|e| {
                Error::io(format!("connecting to the NBD server at '{}'", path.display()), e).remedy(remedy)
            })?)),
        }
    }
}

/// What TLS is spoken by, of a folder that has it as libnbd and QEMU have it.
fn connector(env: &Env, folder: &Path) -> Result<Connector> {
    let at = |name: &str| folder.join(name);
    let own = Files { certificate: at("client-cert.pem"), key: at("client-key.pem") };
    let own = own.certificate.exists().then_some(own);
    Connector::new(&at("ca-cert.pem"), own.as_ref(), env)
}

/// Connects to a socket.
pub(crate) async fn connect_unix(path: &Path) -> std::io::Result<UnixStream> {
    UnixStream::connect(path).await
}

/// A connection over which both have greeted each other.
async fn greeted(env: &Env, address: &Address) -> Result<Wire> {
    let mut wire = Wire::open(&address.place).await?;
    handshake::greet(&mut wire).await?;
    match &address.place {
        Place::Tls(host, _, folder) => secret::begin(wire, &connector(env, folder)?, host).await,
        Place::Tcp(..) | Place::Unix(_) => Ok(wire),
    }
}

/// What a server says of an export, to somebody who does not take it; nothing, where it is too old to say. One that is silent for as long as
/// `patience` is given up.
pub(crate) async fn look(env: &Env, address: &Address, patience: Duration) -> Result<Option<Offer>> {
    within(env, patience, async {
        let mut wire = greeted(env, address).await?;
        handshake::look(&mut wire, &address.export).await
    })
    .await
}

impl Client {
    /// Connects, and asks for the export, with a bitmap of QEMU's that says what has changed where one is named; a server that is silent for as long as
    /// `patience` is given up, now and later. A bitmap that the server has not is [`lost`](Client::lost): the connection is good without, and some
    /// servers take no second one.
    pub(crate) async fn connect(
        env: &Env,
        address: &Address,
        bitmap: Option<&str>,
        patience: Duration,
    ) -> Result<Client> {
        let wire = within(env, patience, greeted(env, address)).await?;
        Client::chosen(env, wire, (&address.export, bitmap), patience).await
    }

    /// The same over a connection that is there; the export's name, and the bitmap's.
    pub(crate) async fn over(
        env: &Env,
        mut wire: Wire,
        of: (&str, Option<&str>),
        patience: Duration,
    ) -> Result<Client> {
        within(env, patience, handshake::greet(&mut wire)).await?;
        Client::chosen(env, wire, of, patience).await
    }

    /// The same where both have greeted each other.
    async fn chosen(
        env: &Env,
        mut wire: Wire,
        (export, bitmap): (&str, Option<&str>),
        patience: Duration,
    ) -> Result<Client> {
        let name = export;
        let export = within(env, patience, handshake::go(&mut wire, name, bitmap)).await?;
        let lost = bitmap.filter(|_| export.changed.is_none()).map(|of| handshake::no_bitmap(name, of));
        let (end, ended) = oneshot::channel();
        let shared = Arc::new(Shared { waiting: Mutex::default(), heard: Mutex::new(env.monotonic()) });
        let ears = Ears { env: env.clone(), reader: wire.reader, shared: shared.clone(), export };
        env.spawn("nbd client", ears.listen(ended));
        let writer = tokio::sync::Mutex::new(wire.writer);
        let unsent = Mutex::default();
        Ok(Client { env: env.clone(), export, lost, writer, unsent, shared, patience, _end: end })
    }

    /// That the bitmap that was asked for is not offered.
    pub(crate) fn lost(&self) -> Option<&Error> {
        self.lost.as_ref()
    }

    /// The same client; fails where the bitmap that was asked for is not offered.
    pub(crate) fn with_its_bitmap(mut self) -> Result<Client> {
        self.lost.take().map_or(Ok(self), Err)
    }

    /// What the server says of the export.
    pub(crate) fn export(&self) -> &Export {
        &self.export
    }

    /// Reads a range that lies in the export, in whole blocks of it, and is no longer than one request may be.
    pub(crate) async fn read(&self, offset: u64, len: u32) -> Result<Read> {
        match self.request(READ, Asked::read(offset, len)).await? {
            Answer::Read(read) => Ok(read),
            Answer::Runs(_) => Err(handshake::nonsense()),
        }
    }

    /// What of a range reads as zeros, and what has changed, from its beginning on: at least one run, and no more than the range. Only of an
    /// export that has [`Export::allocation`] or [`Export::changed`].
    pub(crate) async fn runs(&self, offset: u64, len: u32) -> Result<Vec<Run>> {
        match self.request(BLOCK_STATUS, Asked::runs(offset, len)).await? {
            Answer::Runs(runs) => Ok(runs),
            Answer::Read(_) => Err(handshake::nonsense()),
        }
    }

    async fn request(&self, kind: u16, (mut asked, told): (Asked, Told)) -> Result<Answer> {
        let cookie = {
            let mut waiting = self.shared.waiting.lock();
            if let Some(why) = &waiting.gone {
                return Err(why.clone());
            }
            waiting.next += 1;
            let cookie = waiting.next;
            asked.cookie = cookie;
            self.unsent.lock().extend(encode(kind, cookie, asked.offset, asked.len));
            waiting.asked.insert(cookie, asked);
            cookie
        };
        let answered = async {
            // What others ask for meanwhile goes along: one call of the kernel's, and one waking of the server, for all of it.
            self.env.yield_now().await;
            let sent = self.send().await;
            // Why it cannot be sent is found by who reads, too; he tells.
            let told = told.await;
            told.unwrap_or_else(|_| Err(self.shared.why_gone(sent.err())))
        };
        let answer = self.unless_silent(answered).await;
        self.shared.waiting.lock().asked.remove(&cookie);
        answer
    }

    /// Sends what is to be sent.
    async fn send(&self) -> std::io::Result<()> {
        let mut writer = self.writer.lock().await;
        let unsent = std::mem::take(&mut *self.unsent.lock());
        if unsent.is_empty() {
            return Ok(());
        }
        writer.write_all(&unsent).await?;
        // TLS may have kept some of it.
        writer.flush().await
    }

    /// What comes of something, unless the server says nothing at all for too long meanwhile.
    async fn unless_silent<T>(&self, what: impl Future<Output = Result<T>>) -> Result<T> {
        let mut what = std::pin::pin!(what);
        let asked = self.env.monotonic();
        loop {
            let since = asked.max(*self.shared.heard.lock());
            let left = self.patience.saturating_sub(self.env.monotonic().saturating_sub(since));
            if left.is_zero() {
                let error = silent(self.patience);
                self.shared.waiting.lock().end(error.clone());
                return Err(error);
            }
            tokio::select! {
                biased;
                done = &mut what => return done,
                () = self.env.sleep(left) => {}
            }
        }
    }
}

type Told = oneshot::Receiver<Result<Answer>>;

impl Drop for Client {
    fn drop(&mut self) {
        // A courtesy: whoever does not read it sees the end of the stream.
        if let Ok(mut writer) = self.writer.try_lock() {
            use futures::FutureExt;
            let _ = writer.write_all(&encode(DISCONNECT, 0, 0, 0)).now_or_never();
        }
        self.shared.waiting.lock().end(Error::new(Kind::Closed, "the connection was closed"));
    }
}

impl Waiting {
    /// Nobody is answered from here on, and whoever waits is told why.
    fn end(&mut self, why: Error) {
        self.gone.get_or_insert(why);
        self.asked.clear();
    }
}

fn encode(kind: u16, cookie: u64, offset: u64, len: u32) -> [u8; 28] {
    let mut bytes = [0; 28];
    bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
    bytes[6..8].copy_from_slice(&kind.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..24].copy_from_slice(&offset.to_be_bytes());
    bytes[24..].copy_from_slice(&len.to_be_bytes());
    bytes
}

fn silent(patience: Duration) -> Error {
    let what = format!("the NBD server has said nothing for {:.0} s", patience.as_secs_f64());
    Error::new(Kind::Io, what).remedy("look whether it and the network live, and run it again")
}

async fn within<T>(env: &Env, patience: Duration, what: impl Future<Output = Result<T>>) -> Result<T> {
    crate::qmp::within(env, patience, what).await.unwrap_or_else(|| Err(silent(patience)))
}
