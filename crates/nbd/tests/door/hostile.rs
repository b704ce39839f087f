//! Clients that are broken, slow or hostile: each costs only its own connection.

use std::io::Write;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use stonefold_dice::Dice;
use stonefold_nbd::wire::Style;
use stonefold_nbd::wire::option::{OPTION_MAGIC, code, encode, rep};
use stonefold_nbd::wire::request::{Command, Request, flag};

use crate::client::{Client, info};
use crate::fixture::Fixture;

/// A witness that is served throughout.
struct Witness(Client);

impl Witness {
    fn new(fixture: &Fixture) -> Self {
        Witness(Client::open(&fixture.socket(), "disk", Style::Structured))
    }

    fn is_served(&mut self) {
        self.0.write(0, b"here");
        assert_eq!(self.0.read(0, 4), b"here");
    }
}

#[test]
fn garbage_instead_of_a_handshake() {
    let (fixture, _disk) = Fixture::with_disk(1 << 20);
    let mut witness = Witness::new(&fixture);
    for seed in 1..60 {
        let mut dice = Dice::new(seed);
        let mut garbage = vec![0; dice.index(5000)];
        dice.fill(&mut garbage);
        let mut client = Client::connect_silently(&fixture.socket());
        // The server may have hung up before all was sent.
        let _ = client.stream.write_all(&garbage);
        drop(client);
    }
    witness.is_served();
    fixture.wait_for_connections(1);
}

#[test]
fn broken_options() {
    let (fixture, _disk) = Fixture::with_disk(1 << 20);
    let mut witness = Witness::new(&fixture);
    let mut too_long = OPTION_MAGIC.to_be_bytes().to_vec();
    too_long.extend(code::LIST.to_be_bytes());
    too_long.extend(u32::MAX.to_be_bytes());
    let mut bad_magic = encode(code::LIST, &[]);
    bad_magic[3] ^= 1;
    for bytes in [too_long, bad_magic, b"GET / HTTP/1.1\r\n\r\n".to_vec()] {
        let mut client = fixture.connect();
        client.send(&bytes);
        assert!(client.is_closed());
    }
    let mut client = Client::connect_silently(&fixture.socket());
    client.take(18).unwrap();
    client.send(&0xffff_ffffu32.to_be_bytes());
    assert!(client.is_closed(), "unknown client flags");
    let mut client = Client::connect_silently(&fixture.socket());
    client.take(18).unwrap();
    client.send(&0u32.to_be_bytes());
    client.send(&encode(code::LIST, &[]));
    assert!(client.is_closed(), "options need fixed newstyle");
    witness.is_served();
    fixture.wait_for_connections(1);
}

#[test]
fn haggling_has_an_end() {
    let (fixture, _disk) = Fixture::with_disk(1 << 20);
    let mut client = fixture.connect();
    let batch: Vec<u8> = (0..1000).flat_map(|_| encode(code::STARTTLS, &[])).collect();
    let reader = client.stream.try_clone().unwrap();
    let draining =
        std::thread::Builder::new().spawn(move || std::io::copy(&mut &reader, &mut std::io::sink())).unwrap();
    let stopped = (0..100).find(|_| client.stream.write_all(&batch).is_err());
    assert!(stopped.is_some(), "100,000 options were taken");
    let _ = draining.join();
    fixture.wait_for_connections(0);
}

/// Handshakes and requests cut off at every byte.
#[test]
fn truncated_everywhere() {
    let (fixture, _disk) = Fixture::with_disk(1 << 20);
    let mut witness = Witness::new(&fixture);
    let mut conversation = 3u32.to_be_bytes().to_vec();
    conversation.extend(encode(code::STRUCTURED_REPLY, &[]));
    conversation.extend(encode(code::GO, &info("disk", &[])));
    let write = Request { flags: 0, command: Command::Write, cookie: 1, offset: 0, length: 100 };
    conversation.extend(write.encode(Style::Structured));
    conversation.extend([1; 100]);
    for cut in 0..conversation.len() {
        let mut client = Client::connect_silently(&fixture.socket());
        client.send(&conversation[..cut]);
    }
    witness.is_served();
    fixture.wait_for_connections(1);
}

#[test]
fn garbage_instead_of_requests() {
    let (fixture, _disk) = Fixture::with_disk(1 << 20);
    let mut witness = Witness::new(&fixture);
    for style in [Style::Simple, Style::Structured, Style::Extended] {
        let mut client = Client::open(&fixture.socket(), "disk", style);
        client.send(&[0x5a; 64]);
        assert!(client.is_closed());
        // Of the other kind of header.
        let mut client = Client::open(&fixture.socket(), "disk", style);
        let other = if style == Style::Extended { Style::Simple } else { Style::Extended };
        let request = Request { flags: 0, command: Command::Flush, cookie: 1, offset: 0, length: 0 };
        let mut bytes = request.encode(other);
        bytes.extend([0; 8]);
        client.send(&bytes);
        assert!(client.is_closed());
    }
    witness.is_served();
    fixture.wait_for_connections(1);
}

/// Valid headers with everything else at random: each is answered, or ends only this connection.
#[test]
fn random_requests() {
    let (fixture, _disk) = Fixture::with_disk(1 << 20);
    let mut witness = Witness::new(&fixture);
    for seed in 1..150 {
        let mut dice = Dice::new(seed);
        let style = [Style::Simple, Style::Structured, Style::Extended][seed as usize % 3];
        let mut client = Client::open(&fixture.socket(), "disk", style);
        client.stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        for _ in 0..dice.below(50) {
            let mut bits = |max: u64| dice.number() >> dice.below(max) >> (64 - max);
            let request = Request {
                flags: bits(16) as u16,
                command: [Command::Read, Command::Write, Command::BlockStatus, Command::Trim, Command::Cache]
                    [bits(16) as usize % 5],
                cookie: 7,
                offset: bits(64),
                length: bits(26),
            };
            let payload = vec![0xa5; bits(17) as usize];
            let _ = client.stream.write_all(&request.encode(style));
            let _ = client.stream.write_all(&payload);
        }
    }
    witness.is_served();
    fixture.wait_for_connections(1);
    assert_eq!(fixture.counts().panics, 0);
}

#[test]
fn a_payload_beyond_reason_ends_the_connection() {
    let (fixture, _disk) = Fixture::with_disk(1 << 20);
    let mut client = Client::open(&fixture.socket(), "disk", Style::Extended);
    let huge =
        Request { flags: flag::PAYLOAD_LEN, command: Command::Write, cookie: 1, offset: 0, length: u64::MAX };
    client.send(&huge.encode(Style::Extended));
    assert!(client.is_closed());
    let mut client = Client::open(&fixture.socket(), "disk", Style::Simple);
    client.start(Command::Write, 0, 0, u64::from(u32::MAX), &[]);
    assert!(client.is_closed());
}

/// A client that asks for much and reads nothing holds a bounded amount, and is not read from any more.
#[test]
fn a_client_that_does_not_read_is_not_read_from() {
    let (fixture, disk) = Fixture::with_disk(40 << 20);
    disk.fill();
    let mut witness = Witness::new(&fixture);
    let mut greedy = Client::open(&fixture.socket(), "disk", Style::Structured);
    greedy.stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let request = Request { flags: 0, command: Command::Read, cookie: 1, offset: 0, length: 32 << 20 };
    let batch: Vec<u8> = (0..1000).flat_map(|_| request.encode(Style::Structured)).collect();
    let stopped = (0..1000).find(|_| greedy.stream.write_all(&batch).is_err());
    assert!(stopped.is_some(), "a million requests of 32 MiB were taken");
    assert!(fixture.counts().exports[0].1.read_bytes < 64 << 20);
    witness.is_served();
    drop(greedy);
    fixture.wait_for_connections(1);
}

/// A request sent a byte at a time is a request.
#[test]
fn a_slow_client_is_served() {
    let (fixture, _disk) = Fixture::with_disk(1 << 20);
    let mut client = Client::connect_silently(&fixture.socket());
    client.take(18).unwrap();
    let mut conversation = 3u32.to_be_bytes().to_vec();
    conversation.extend(encode(code::GO, &info("disk", &[])));
    let write = Request { flags: 0, command: Command::Write, cookie: 5, offset: 10, length: 3 };
    conversation.extend(write.encode(Style::Simple));
    conversation.extend(b"abc");
    for byte in conversation {
        client.send(&[byte]);
        std::thread::yield_now();
    }
    client.take(20 + 12 + 20).unwrap();
    assert_eq!(client.reply(0).unwrap().0, 5);
    assert_eq!(client.read(9, 5), b"\0abc\0");
}

/// A bug that panics costs the connection it happened on.
#[test]
fn a_panic_ends_one_connection() {
    let (fixture, disk) = Fixture::with_disk(1 << 20);
    fixture.exports.create("healthy", 1 << 20);
    let mut healthy = Client::open(&fixture.socket(), "healthy", Style::Structured);
    for polls in [0, 2] {
        let mut client = Client::open(&fixture.socket(), "disk", Style::Structured);
        disk.polls_to_wait.store(polls, SeqCst);
        disk.panics.store(true, SeqCst);
        client.start(Command::Read, 0, 0, 512, &[]);
        assert!(client.is_closed());
        disk.panics.store(false, SeqCst);
    }
    healthy.write(0, b"fine");
    assert_eq!(healthy.read(0, 4), b"fine");
    fixture.wait_for_connections(1);
    assert_eq!(fixture.counts().panics, 2);
    assert_eq!(Client::open(&fixture.socket(), "disk", Style::Simple).read(0, 1), [0]);
}

/// While one connection has the server read as fast as it can, another is answered soon.
#[test]
fn a_busy_connection_does_not_starve_another() {
    let (fixture, disk) = Fixture::with_disk(40 << 20);
    disk.fill();
    let mut busy = Client::open(&fixture.socket(), "disk", Style::Structured);
    let reader = busy.stream.try_clone().unwrap();
    let draining =
        std::thread::Builder::new().spawn(move || std::io::copy(&mut &reader, &mut std::io::sink())).unwrap();
    let request = Request { flags: 0, command: Command::Read, cookie: 1, offset: 0, length: 4096 };
    let batch: Vec<u8> = (0..20_000).flat_map(|_| request.encode(Style::Structured)).collect();
    let sending = std::thread::Builder::new()
        .spawn(move || {
            busy.stream.write_all(&batch)?;
            busy.stream.shutdown(std::net::Shutdown::Write)
        })
        .unwrap();
    let mut witness = Witness::new(&fixture);
    let start = std::time::Instant::now();
    for _ in 0..20 {
        witness.is_served();
    }
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    sending.join().unwrap().unwrap();
    let _ = draining.join();
}

#[test]
fn options_after_an_error_go_on() {
    let (fixture, _disk) = Fixture::with_disk(1 << 20);
    let mut client = fixture.connect();
    for _ in 0..1000 {
        assert_eq!(client.option(code::GO, &info("nope", &[]))[0].kind, rep::ERR_UNKNOWN);
    }
    assert_eq!(client.option(code::GO, &info("disk", &[])).last().unwrap().kind, rep::ACK);
}

/// Byte streams without end into the state machines, with no socket between, so that many can be tried: raw, behind a valid
/// handshake, and made of valid headers with random fields. `STONEFOLD_FUZZ_CASES` makes it longer.
mod streams {
    use super::*;
    use crate::memory::MemoryExports;
    use proptest::prelude::*;
    use stonefold_env::{Env, SystemWorld};
    use stonefold_nbd::Server;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn cases() -> u32 {
        let asked = std::env::var("STONEFOLD_FUZZ_CASES").ok();
        asked.map_or(200, |cases| cases.parse().expect("STONEFOLD_FUZZ_CASES is a number"))
    }

    #[derive(Clone, Debug)]
    enum Piece {
        Noise(Vec<u8>),
        Option(u32, Vec<u8>),
        Info(u32, String),
        Request { other_style: bool, flags: u16, command: u16, offset: u64, length: u64, payload: usize },
    }

    fn magnitude(max: u32) -> impl Strategy<Value = u64> {
        (0..=max, any::<u64>()).prop_map(|(bits, value)| if bits == 0 { 0 } else { value >> (64 - bits) })
    }

    fn piece() -> impl Strategy<Value = Piece> {
        let other_style = prop::bool::weighted(0.02);
        let request = (other_style, magnitude(8), 0u16..9, magnitude(64), magnitude(27), magnitude(18))
            .prop_map(|(other_style, flags, command, offset, length, payload)| Piece::Request {
                other_style,
                flags: flags as u16,
                command,
                offset,
                length,
                payload: payload as usize,
            });
        prop_oneof![
            1 => prop::collection::vec(any::<u8>(), 0..100).prop_map(Piece::Noise),
            1 => (0u32..13, prop::collection::vec(any::<u8>(), 0..40)).prop_map(|(c, d)| Piece::Option(c, d)),
            1 => (6u32..11, "(disk)?[@a-z]{0,4}").prop_map(|(c, n)| Piece::Info(c, n)),
            30 => request,
        ]
    }

    impl Piece {
        fn bytes(&self, extended: bool) -> Vec<u8> {
            match self {
                Piece::Noise(bytes) => bytes.clone(),
                Piece::Option(code, data) => encode(*code, data),
                Piece::Info(code, name) => encode(*code, &info(name, &[3])),
                Piece::Request { other_style, flags, command, offset, length, payload } => {
                    let header = Request {
                        flags: *flags,
                        command: Command::Flush,
                        cookie: 9,
                        offset: *offset,
                        length: *length,
                    };
                    let mut bytes = header.encode(if extended != *other_style {
                        Style::Extended
                    } else {
                        Style::Structured
                    });
                    bytes[6..8].copy_from_slice(&command.to_be_bytes());
                    // Often the payload that was announced, so that what follows is seen as a request.
                    let payload = if payload % 2 == 0 { (*length).min(1 << 20) as usize } else { *payload };
                    bytes.resize(bytes.len() + if *command == 1 { payload } else { 0 }, 0x5a);
                    bytes
                }
            }
        }
    }

    fn feed(handshake: &[u32], pieces: &[Piece]) {
        let mut bytes = 3u32.to_be_bytes().to_vec();
        for code in handshake {
            bytes.extend(encode(*code, &if *code == code::GO { info("disk", &[]) } else { vec![] }));
        }
        let extended = handshake.contains(&code::EXTENDED_HEADERS);
        pieces.iter().for_each(|piece| bytes.extend(piece.bytes(extended)));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let env = Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap());
            let exports = MemoryExports::default();
            exports.create("disk", 3 << 20).polls_to_wait.store(bytes.len() as u64 % 3, SeqCst);
            let server = Server::new(env, exports);
            let (ours, theirs) = tokio::io::duplex(10_000);
            let (mut reader, mut writer) = tokio::io::split(ours);
            let sending = async {
                let _ = writer.write_all(&bytes).await;
                let _ = writer.shutdown().await;
            };
            let reading = async {
                let mut sink = vec![0; 1 << 16];
                while reader.read(&mut sink).await.is_ok_and(|read| read > 0) {}
            };
            tokio::join!(sending, reading, server.attend(theirs, None));
            let counts = server.metrics().read();
            assert_eq!((counts.panics, counts.connections), (0, 0));
        });
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

        #[test]
        fn any_stream_is_survived(style in 0usize..4, pieces in prop::collection::vec(piece(), 0..30)) {
            let handshake: &[u32] = match style {
                0 => &[],
                1 => &[code::GO],
                2 => &[code::STRUCTURED_REPLY, code::GO],
                _ => &[code::EXTENDED_HEADERS, code::GO],
            };
            feed(handshake, &pieces);
        }
    }
}
