//! The smallest NBD client that can ask a server for a few bytes of an export.
//!
//! It exists to measure: starting a process such as `qemu-io` takes longer than a recovered disk needs to answer its
//! first read. It speaks the fixed newstyle handshake with `NBD_OPT_GO` and simple replies, over a Unix socket:
//!
//! ```text
//! server  NBDMAGIC IHAVEOPT flags:u16             client  flags:u32
//! client  IHAVEOPT option:u32 length:u32 data     server  magic:u64 option:u32 type:u32 length:u32 data   (repeated)
//! client  magic:u32 flags:u16 type:u16 cookie:u64 offset:u64 length:u32
//! server  magic:u32 error:u32 cookie:u64 data
//! ```
//! All numbers are big-endian. One request is in flight at a time.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};

const MAGIC: &[u8; 8] = b"NBDMAGIC";
const OPTIONS_MAGIC: &[u8; 8] = b"IHAVEOPT";
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
const FIXED_NEWSTYLE: u16 = 1;
const NO_ZEROES: u16 = 2;
const OPT_GO: u32 = 7;
const REP_ACK: u32 = 1;
const REP_INFO: u32 = 3;
const REP_ERROR: u32 = 1 << 31;
const INFO_EXPORT: u16 = 0;
/// Asks for bytes.
pub const CMD_READ: u16 = 0;
/// Brings bytes, which follow the request.
pub const CMD_WRITE: u16 = 1;
/// Says good-bye; nothing answers it.
pub const CMD_DISCONNECT: u16 = 2;
/// Asks that what was answered be durable.
pub const CMD_FLUSH: u16 = 3;
/// No reply to an option is longer in an honest server; a longer one is not worth our memory.
const OPTION_REPLY_BYTES_MAX: u32 = 64 << 10;

/// A connection to one export.
#[derive(Debug)]
pub struct Client<S: Read + Write = UnixStream> {
    stream: S,
    size_bytes: u64,
    cookie: u64,
}

impl Client {
    /// Connects to an export behind a Unix socket; no single answer may take longer than `allowed`.
    ///
    /// # Errors
    /// When nobody listens there, the server speaks otherwise, or it has no such export (its words are in the error).
    pub fn connect(socket: &Path, export: &str, allowed: Duration) -> Result<Self> {
        let stream = UnixStream::connect(socket)
            .with_context(|| format!("no NBD server answers at {}", socket.display()))?;
        stream.set_read_timeout(Some(allowed))?;
        stream.set_write_timeout(Some(allowed))?;
        Self::handshake(stream, export)
            .with_context(|| format!("could not open the NBD export {export} at {}", socket.display()))
    }
}

impl<S: Read + Write> Client<S> {
    fn handshake(mut stream: S, export: &str) -> Result<Self> {
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        ensure!(
            &greeting[..8] == MAGIC && &greeting[8..16] == OPTIONS_MAGIC,
            "the server does not greet as newstyle NBD does"
        );
        let flags = u16::from_be_bytes([greeting[16], greeting[17]]);
        ensure!(flags & FIXED_NEWSTYLE != 0, "the server does not offer the fixed newstyle handshake");
        stream.write_all(&u32::from(flags & (FIXED_NEWSTYLE | NO_ZEROES)).to_be_bytes())?;
        stream.write_all(&go_option(export)?)?;
        let mut size_bytes = None;
        loop {
            match option_reply(&mut stream)? {
                (REP_ACK, _) => break,
                (REP_INFO, data) => size_bytes = export_size(&data).or(size_bytes),
                (kind, data) if kind & REP_ERROR != 0 => {
                    bail!(
                        "the server refused (error {}): {}",
                        kind & !REP_ERROR,
                        String::from_utf8_lossy(&data)
                    )
                }
                (kind, _) => bail!("the server answered with an unknown reply of type {kind}"),
            }
        }
        let size_bytes = size_bytes.context("the server did not tell the export's size")?;
        Ok(Self { stream, size_bytes, cookie: 0 })
    }

    /// The export's size.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Reads `length` bytes at `offset`.
    ///
    /// # Errors
    /// When the server reports an error, answers out of protocol, or not in time.
    pub fn read(&mut self, offset: u64, length: u32) -> Result<Vec<u8>> {
        self.cookie += 1;
        self.stream.write_all(&request(CMD_READ, self.cookie, offset, length))?;
        let mut header = [0; 16];
        self.stream
            .read_exact(&mut header)
            .with_context(|| format!("no answer to a read of {length} bytes at {offset}"))?;
        let answered = reply_to(&header)
            .with_context(|| format!("the server could not read {length} bytes at {offset}"))?;
        ensure!(answered == self.cookie, "the server answered a read out of protocol");
        let mut data = vec![0; length as usize];
        self.stream.read_exact(&mut data)?;
        Ok(data)
    }

    /// The connection itself, behind the handshake, for whoever has more than one request under way.
    pub fn into_stream(self) -> S {
        self.stream
    }

    /// Says good-bye, so that the server logs no broken connection.
    pub fn disconnect(mut self) {
        // Nobody can do anything about a good-bye that does not arrive.
        let _ = self.stream.write_all(&request(CMD_DISCONNECT, 0, 0, 0));
    }
}

fn go_option(export: &str) -> Result<Vec<u8>> {
    let name_len = u32::try_from(export.len()).context("the export's name is too long")?;
    let mut bytes = Vec::with_capacity(22 + export.len());
    bytes.extend_from_slice(OPTIONS_MAGIC);
    bytes.extend_from_slice(&OPT_GO.to_be_bytes());
    bytes.extend_from_slice(&(4 + name_len + 2).to_be_bytes());
    bytes.extend_from_slice(&name_len.to_be_bytes());
    bytes.extend_from_slice(export.as_bytes());
    // No information is asked for by name: the size is always sent.
    bytes.extend_from_slice(&0u16.to_be_bytes());
    Ok(bytes)
}

fn option_reply(stream: &mut impl Read) -> Result<(u32, Vec<u8>)> {
    let mut header = [0; 20];
    stream.read_exact(&mut header)?;
    ensure!(be64(&header[0..8]) == OPTION_REPLY_MAGIC, "the server answered an option out of protocol");
    let (kind, length) = (be32(&header[12..16]), be32(&header[16..20]));
    ensure!(length <= OPTION_REPLY_BYTES_MAX, "the server answered an option with {length} bytes");
    let mut data = vec![0; length as usize];
    stream.read_exact(&mut data)?;
    Ok((kind, data))
}

fn export_size(info: &[u8]) -> Option<u64> {
    (info.len() == 12 && info[..2] == INFO_EXPORT.to_be_bytes()).then(|| be64(&info[2..10]))
}

/// The cookie of the request that a reply answers.
///
/// # Errors
/// When it is no reply, or says that the request failed.
pub fn reply_to(header: &[u8; 16]) -> Result<u64> {
    let (magic, error, cookie) = (be32(&header[0..4]), be32(&header[4..8]), be64(&header[8..16]));
    ensure!(magic == REPLY_MAGIC, "the server answered out of protocol");
    ensure!(
        error == 0,
        "the server answered: {}",
        std::io::Error::from_raw_os_error(i32::try_from(error).unwrap_or(i32::MAX))
    );
    Ok(cookie)
}

/// The header of a request.
pub fn request(command: u16, cookie: u64, offset: u64, length: u32) -> [u8; 28] {
    let mut bytes = [0; 28];
    bytes[0..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
    bytes[6..8].copy_from_slice(&command.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..24].copy_from_slice(&offset.to_be_bytes());
    bytes[24..28].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// The slices' lengths are fixed where they are cut.
fn be32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

fn be64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::VecDeque, process::Command};

    /// A server whose words are written beforehand; what the client says is kept.
    #[derive(Debug)]
    struct Script {
        words: VecDeque<u8>,
        heard: Vec<u8>,
    }

    impl Read for Script {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            self.words.read(buffer)
        }
    }

    impl Write for Script {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.heard.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn reply(kind: u32, data: &[u8]) -> Vec<u8> {
        let length = u32::try_from(data.len()).unwrap();
        [
            &OPTION_REPLY_MAGIC.to_be_bytes()[..],
            &OPT_GO.to_be_bytes(),
            &kind.to_be_bytes(),
            &length.to_be_bytes(),
            data,
        ]
        .concat()
    }

    fn script(after_greeting: &[Vec<u8>]) -> Script {
        let greeting = [&MAGIC[..], OPTIONS_MAGIC, &[0, 3]].concat();
        Script { words: [greeting, after_greeting.concat()].concat().into(), heard: Vec::new() }
    }

    fn size_info(size: u64) -> Vec<u8> {
        reply(REP_INFO, &[&[0, 0][..], &size.to_be_bytes(), &[0, 1]].concat())
    }

    #[test]
    fn the_handshake_asks_for_the_export_and_learns_its_size() {
        let other_info = reply(REP_INFO, &[0, 3, 0, 0]);
        let client = Client::handshake(
            script(&[other_info, size_info(1 << 20), reply(REP_ACK, &[])]),
            "debian@before",
        )
        .unwrap();
        assert_eq!(client.size_bytes(), 1 << 20);
        assert_eq!(&client.stream.heard[..4], &[0, 0, 0, 3]);
        assert_eq!(&client.stream.heard[4..], go_option("debian@before").unwrap());
    }

    #[test]
    fn a_refusal_carries_the_servers_words() {
        let error = Client::handshake(script(&[reply(REP_ERROR | 6, b"no disk named x")]), "x")
            .unwrap_err()
            .to_string();
        assert!(error.contains("no disk named x") && error.contains("error 6"), "{error}");
    }

    #[test]
    fn a_read_gives_the_bytes_or_the_servers_error() {
        let good = [&REPLY_MAGIC.to_be_bytes()[..], &[0; 4], &1u64.to_be_bytes(), b"abcd"].concat();
        let bad = [&REPLY_MAGIC.to_be_bytes()[..], &5u32.to_be_bytes(), &2u64.to_be_bytes()].concat();
        let mut client =
            Client::handshake(script(&[size_info(4096), reply(REP_ACK, &[]), good, bad]), "x").unwrap();
        assert_eq!(client.read(0, 4).unwrap(), b"abcd");
        let refused = format!("{:#}", client.read(0, 4).unwrap_err());
        assert!(refused.contains("4 bytes at 0") && refused.contains("Input/output error"), "{refused}");
    }

    #[test]
    fn broken_servers_are_refused() {
        assert!(Client::handshake(script(&[reply(REP_ACK, &[])]), "x").is_err(), "no size");
        assert!(Client::handshake(script(&[reply(99, &[])]), "x").is_err(), "unknown reply");
        let endless = [
            &OPTION_REPLY_MAGIC.to_be_bytes()[..],
            &[0; 4],
            &REP_INFO.to_be_bytes(),
            &u32::MAX.to_be_bytes(),
        ]
        .concat();
        assert!(Client::handshake(script(&[endless]), "x").is_err(), "too long");
        assert!(
            Client::handshake(Script { words: vec![0; 18].into(), heard: Vec::new() }, "x").is_err(),
            "no NBD"
        );
        let wrong_cookie = [&REPLY_MAGIC.to_be_bytes()[..], &[0; 4], &7u64.to_be_bytes(), b"abcd"].concat();
        let mut client =
            Client::handshake(script(&[size_info(4096), reply(REP_ACK, &[]), wrong_cookie]), "x").unwrap();
        assert!(client.read(0, 4).is_err(), "wrong cookie");
    }

    /// The same against a foreign server, so that our reading of the protocol is not its own judge.
    #[test]
    fn a_foreign_server_is_understood() {
        let folder = tempfile::tempdir().unwrap();
        let (image, socket) = (folder.path().join("image"), folder.path().join("nbd.sock"));
        let content: Vec<u8> = (0..8192u32).map(|place| (place / 32).to_le_bytes()[0]).collect();
        std::fs::write(&image, &content).unwrap();
        let server = Command::new("qemu-nbd")
            .args(["-t", "-r", "-f", "raw", "-x", "image", "-k"])
            .arg(&socket)
            .arg(&image)
            .spawn();
        let mut server = server.expect("qemu-nbd runs; if it is missing, install the package qemu-utils");
        let deadline = crate::time::Deadline::after(Duration::from_secs(20));
        // The socket is there a moment before anybody listens.
        while UnixStream::connect(&socket).is_err() && !deadline.passed() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let unknown = Client::connect(&socket, "other", Duration::from_secs(10)).map(|_| ());
        let read = Client::connect(&socket, "image", Duration::from_secs(10)).and_then(|mut client| {
            let bytes = client.read(4096, 512)?;
            assert_eq!(client.size_bytes(), 8192);
            client.disconnect();
            Ok(bytes)
        });
        crate::process::stop(&mut server, Duration::from_secs(5));
        assert!(unknown.is_err());
        assert_eq!(read.unwrap(), content[4096..4608]);
    }
}
