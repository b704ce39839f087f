//! How a worker and whoever leads it speak: frames over TCP, each with a mark that only who knows the token can make.
//!
//! First each side sends 32 random bytes. From these and the token follow two keys, one for each direction (BLAKE3's key derivation),
//! so that nothing that was recorded can be said again. A frame, little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | length n of the text |
//! | 4..4 + n | text: JSON |
//! | 32 after it | BLAKE3 with that direction's key over the frame's number (8 bytes, from 0) and the text |
//!
//! What is said is not hidden: it is loads and figures. It cannot be changed, added to or left out without being noticed.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;
use stonefold_types::{Error, Kind, Result};

/// The port of workers.
const PORT: u16 = 7771;
/// The longest text, in bytes: a day's series of histograms is some 150 MB.
const TEXT_BYTES_MAX: u32 = 512 << 20;
/// And of the first one, which may come from anybody.
const FIRST_BYTES_MAX: u32 = 4 << 20;
/// Bytes of a token at least: fewer could be guessed.
const TOKEN_BYTES_MIN: usize = 16;
const NONCE_BYTES: usize = 32;
const MARK_BYTES: usize = 32;
const CONTEXT: &str = "stonefold lab worker 2026-11-23 frames";
/// How long a worker may be silent: it says twice a second that it is there.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// What both sides must know.
#[derive(Clone)]
pub struct Token(Vec<u8>);

impl Token {
    /// Of a file's text; white space around it does not count.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for one that could be guessed.
    pub fn new(text: &str) -> Result<Self> {
        let token = text.trim().as_bytes().to_vec();
        if token.len() < TOKEN_BYTES_MIN {
            return Err(Error::new(
                Kind::Invalid,
                format!("a token of {} characters can be guessed", token.len()),
            )
            .remedy(format!("write at least {TOKEN_BYTES_MIN} characters that nobody knows")));
        }
        Ok(Token(token))
    }

    /// A new one of these random bytes.
    pub fn of_random(bytes: [u8; 32]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// Where a worker listens: `HOST[:PORT]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerAddress(String);

impl FromStr for WorkerAddress {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bare = text.rsplit_once(':').is_none() || text.ends_with(']');
        let address = if bare { format!("{text}:{PORT}") } else { text.to_owned() };
        let port = address
            .rsplit_once(':')
            .and_then(|(host, port)| port.parse::<u16>().ok().filter(|_| !host.is_empty()));
        match port {
            Some(_) => Ok(WorkerAddress(address)),
            None => {
                Err(Error::new(Kind::Invalid, format!("'{text}' is no worker"))
                    .remedy("write HOST or HOST:PORT"))
            }
        }
    }
}

impl fmt::Display for WorkerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl WorkerAddress {
    pub(super) fn connect(&self) -> io::Result<TcpStream> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for address in self.0.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, Duration::from_secs(10)) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// Sends frames.
pub(super) struct Sender {
    stream: TcpStream,
    key: [u8; 32],
    number: u64,
}

/// Receives frames.
pub(super) struct Receiver {
    stream: TcpStream,
    key: [u8; 32],
    number: u64,
}

/// Which of the two one is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Leader,
    Worker,
}

/// Makes both ways of a connection. Nothing is proved yet: the first frame of each side does that.
pub(super) fn join(
    mut stream: TcpStream,
    side: Side,
    token: &Token,
    nonce: [u8; NONCE_BYTES],
) -> io::Result<(Sender, Receiver)> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    stream.set_write_timeout(Some(SILENCE_MAX))?;
    stream.write_all(&nonce)?;
    let mut other = [0; NONCE_BYTES];
    stream.read_exact(&mut other)?;
    let (leader, worker) = if side == Side::Leader { (nonce, other) } else { (other, nonce) };
    let key = |from: Side| {
        let from = if from == Side::Leader { b'L' } else { b'W' };
        let material = [&token.0[..], &leader, &worker, &[from]].concat();
        blake3::derive_key(CONTEXT, &material)
    };
    let (own, others) =
        if side == Side::Leader { (Side::Leader, Side::Worker) } else { (Side::Worker, Side::Leader) };
    let sender = Sender { stream: stream.try_clone()?, key: key(own), number: 0 };
    Ok((sender, Receiver { stream, key: key(others), number: 0 }))
}

impl Sender {
    pub(super) fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        let length = u32::try_from(text.len()).ok().filter(|length| *length <= TEXT_BYTES_MAX);
        let length = length.ok_or_else(|| io::Error::other("more than a frame holds"))?;
        let mut frame = Vec::with_capacity(4 + text.len() + MARK_BYTES);
        frame.extend_from_slice(&length.to_le_bytes());
        frame.extend_from_slice(&text);
        frame.extend_from_slice(mark(&self.key, self.number, &text).as_bytes());
        self.number += 1;
        self.stream.write_all(&frame)
    }
}

impl Sender {
    /// Ends both ways; what was sent arrives.
    pub(super) fn hang_up(&self) {
        // It may have been ended by the other side.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

impl Receiver {
    /// The next message; nothing where the other side has left between two.
    pub(super) fn receive<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let mut length = [0; 4];
        match self.stream.read_exact(&mut length) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let length = u32::from_le_bytes(length);
        if length > if self.number == 0 { FIRST_BYTES_MAX } else { TEXT_BYTES_MAX } {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame that is too long"));
        }
        // Grows as bytes come, whatever length somebody claims.
        let mut text = Vec::new();
        let came = (&mut self.stream).take(u64::from(length)).read_to_end(&mut text)?;
        let mut told = [0; MARK_BYTES];
        self.stream.read_exact(&mut told)?;
        // blake3::Hash compares in constant time.
        if came != length as usize || mark(&self.key, self.number, &text) != blake3::Hash::from(told) {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the other side has another token"));
        }
        self.number += 1;
        Ok(Some(serde_json::from_slice(&text)?))
    }

    /// How long the next message is waited for; without, for ever.
    pub(super) fn patience(&self, patience: Option<Duration>) -> io::Result<()> {
        self.stream.set_read_timeout(patience)
    }
}

fn mark(key: &[u8; 32], number: u64, text: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(&number.to_le_bytes()).update(text);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair(leader: &str, worker: &str) -> ((Sender, Receiver), (Sender, Receiver)) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        let (leader, worker) = (Token::new(leader).unwrap(), Token::new(worker).unwrap());
        std::thread::scope(|scope| {
            let far = scope.spawn(|| join(far, Side::Worker, &worker, [2; 32]).unwrap());
            (join(near, Side::Leader, &leader, [1; 32]).unwrap(), far.join().unwrap())
        })
    }

    #[test]
    fn frames_come_in_order_and_what_was_changed_or_repeated_is_refused() {
        let ((mut near, _), (_, mut far)) = pair("0123456789abcdef", " 0123456789abcdef\n");
        near.send(&"one").unwrap();
        near.send(&2).unwrap();
        assert_eq!(far.receive::<String>().unwrap().as_deref(), Some("one"));
        assert_eq!(far.receive::<u32>().unwrap(), Some(2));
        near.number = 0;
        near.send(&"again").unwrap();
        assert_eq!(far.receive::<String>().unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        drop(near);
    }

    #[test]
    fn another_token_is_refused_and_no_length_is_believed() {
        let ((mut near, _), (_, mut far)) = pair("0123456789abcdef", "0123456789abcdeF");
        near.send(&"hello").unwrap();
        assert_eq!(far.receive::<String>().unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        let ((mut near, _), (_, mut far)) = pair("0123456789abcdef", "0123456789abcdef");
        near.stream.write_all(&u32::MAX.to_le_bytes()).unwrap();
        assert_eq!(far.receive::<String>().unwrap_err().kind(), io::ErrorKind::InvalidData);
        drop(near);
    }

    #[test]
    fn addresses_have_a_port_of_their_own() {
        let told = |text: &str| text.parse::<WorkerAddress>().map(|address| address.to_string());
        assert_eq!(told("host").unwrap(), "host:7771");
        assert_eq!(told("host:80").unwrap(), "host:80");
        assert_eq!(told("[::1]").unwrap(), "[::1]:7771");
        assert!(told("host:many").is_err() && told(":80").is_err());
        assert!(Token::new("short").is_err());
    }
}
