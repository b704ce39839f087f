//! TLS, option by option, and those who would misuse it.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use stonefold_nbd::TlsMode;
use stonefold_nbd::wire::Style;
use stonefold_nbd::wire::option::{code, encode, rep};
use stonefold_nbd::wire::request::Command;

use crate::certificates::Authority;
use crate::client::{Client, info, meta};
use crate::fixture::Fixture;
use crate::memory::MemoryDisk;

const SIZE: usize = 1 << 20;

fn fixture(authority: &Authority, mode: TlsMode) -> (Fixture, Arc<MemoryDisk>) {
    let fixture = Fixture::start_with(None, authority.tls(mode, None));
    let disk = fixture.exports.create("disk", SIZE);
    (fixture, disk)
}

fn kind(client: &mut Client<impl Read + Write>, option: u32, data: &[u8]) -> u32 {
    client.option(option, data).last().unwrap().kind
}

type TlsStream = rustls::StreamOwned<rustls::ClientConnection, UnixStream>;

/// Begins TLS on a connection that has said hello.
fn begin_tls(mut client: Client, authority: &Authority) -> Client<TlsStream> {
    assert_eq!(kind(&mut client, code::STARTTLS, &[]), rep::ACK);
    let name = "localhost".try_into().unwrap();
    let connection = rustls::ClientConnection::new(authority.client_config(), name).unwrap();
    let mut client = client.over(|stream| rustls::StreamOwned::new(connection, stream));
    client.style = Style::Simple;
    client
}

/// Where TLS is required, nothing is told before it: not even which exports there are.
#[test]
fn nothing_is_served_in_clear_where_tls_is_required() {
    let authority = Authority::new();
    let (fixture, _disk) = fixture(&authority, TlsMode::Require);
    for (option, data, expected) in [
        (code::LIST, vec![], rep::ERR_TLS_REQD),
        (code::INFO, info("disk", &[]), rep::ERR_TLS_REQD),
        (code::GO, info("disk", &[]), rep::ERR_TLS_REQD),
        (code::STRUCTURED_REPLY, vec![], rep::ERR_TLS_REQD),
        (code::EXTENDED_HEADERS, vec![], rep::ERR_TLS_REQD),
        (code::SET_META_CONTEXT, meta("disk", &[]), rep::ERR_TLS_REQD),
        (4, vec![], rep::ERR_TLS_REQD),
        (code::STARTTLS, vec![1], rep::ERR_INVALID),
    ] {
        let mut client = fixture.connect();
        let replies = client.option(option, &data);
        assert_eq!((replies.len(), replies[0].kind), (1, expected), "option {option}");
        // And it may still begin.
        let mut client = begin_tls(client, &authority);
        assert_eq!(kind(&mut client, code::GO, &info("disk", &[])), rep::ACK);
    }
    let mut client = fixture.connect();
    assert_eq!(kind(&mut client, code::ABORT, &[]), rep::ACK);
    assert!(client.is_closed());
    let mut client = fixture.connect();
    client.send(&encode(code::EXPORT_NAME, b"disk"));
    assert!(client.is_closed(), "the old way in has no way to say no");
}

#[test]
fn who_is_offered_tls_may_go_on_without() {
    let authority = Authority::new();
    let (fixture, disk) = fixture(&authority, TlsMode::Allow);
    Client::open(&fixture.socket(), "disk", Style::Extended).write(0, b"clear");
    let mut client = begin_tls(fixture.connect(), &authority);
    assert_eq!(kind(&mut client, code::GO, &info("disk", &[])), rep::ACK);
    client.write(5, b"hidden");
    assert_eq!(client.read(0, 11), b"clearhidden");
    client.start(Command::Disconnect, 0, 0, 0, &[]);
    assert!(client.is_closed());
    assert_eq!(&disk.contents()[..11], b"clearhidden");
    fixture.wait_for_connections(0);
}

/// Whoever sits between may send STARTTLS and options of his own in one packet; were they kept, they would count as the
/// client's, said under TLS.
#[test]
fn what_comes_in_clear_behind_starttls_is_never_taken() {
    let authority = Authority::new();
    for mode in [TlsMode::Allow, TlsMode::Require] {
        let (fixture, disk) = fixture(&authority, mode);
        let starttls_and_go = [encode(code::STARTTLS, &[]), encode(code::GO, &info("disk", &[]))].concat();
        // Read together, because the server's buffer is large from the option before: refused at once.
        let mut client = fixture.connect();
        client.option(4, &vec![0; 60_000]);
        client.send(&starttls_and_go);
        assert!(client.is_closed(), "without an answer");
        // Read or come one by one: what is behind is a broken TLS handshake, and no option.
        let mut client = fixture.connect();
        client.send(&starttls_and_go);
        let mut answer = Vec::new();
        // The server closes without having read it all, which may cut its last words off.
        let _ = client.stream.read_to_end(&mut answer);
        assert!(answer.len() <= 20 + 7 && answer.get(20).is_none_or(|byte| *byte == 0x15), "{answer:?}");
        let mut client = fixture.connect();
        assert_eq!(kind(&mut client, code::STARTTLS, &[]), rep::ACK);
        client.send(&encode(code::GO, &info("disk", &[])));
        let mut alert = client.take(7).unwrap();
        assert_eq!((alert.remove(0), alert.len()), (0x15, 6), "an alert of TLS");
        assert!(client.is_closed());
        fixture.wait_for_connections(0);
        assert_eq!(fixture.counts().handshakes_failed, 3);
        assert!(disk.contents().iter().all(|byte| *byte == 0));
    }
}

/// What was settled in clear may have been settled by somebody else.
#[test]
fn tls_begins_with_nothing_settled() {
    let authority = Authority::new();
    let (fixture, _disk) = fixture(&authority, TlsMode::Allow);
    let mut client = fixture.connect();
    assert_eq!(kind(&mut client, code::EXTENDED_HEADERS, &[]), rep::ACK);
    assert_eq!(kind(&mut client, code::SET_META_CONTEXT, &meta("disk", &["base:allocation"])), rep::ACK);
    let mut client = begin_tls(client, &authority);
    assert_eq!(kind(&mut client, code::STARTTLS, &[]), rep::ERR_INVALID, "there is one TLS");
    assert_eq!(kind(&mut client, code::STRUCTURED_REPLY, &[]), rep::ACK, "as if never asked for");
    assert_eq!(kind(&mut client, code::GO, &info("disk", &[])), rep::ACK);
    client.style = Style::Structured;
    let reply = client.request(Command::BlockStatus, 0, 0, 4096, &[]);
    assert_eq!((reply.error, reply.message.as_str()), (22, "no meta context was selected"));
}

/// Requests of every size, in every style, come through as they do in clear.
#[test]
fn data_come_through_in_every_style() {
    let authority = Authority::new();
    let (fixture, disk) = fixture(&authority, TlsMode::Require);
    disk.fill();
    for (option, style) in [
        (None, Style::Simple),
        (Some(code::STRUCTURED_REPLY), Style::Structured),
        (Some(code::EXTENDED_HEADERS), Style::Extended),
    ] {
        for polls in [0, 2] {
            disk.polls_to_wait.store(polls, std::sync::atomic::Ordering::SeqCst);
            let mut client = begin_tls(fixture.connect(), &authority);
            if let Some(option) = option {
                assert_eq!(kind(&mut client, option, &[]), rep::ACK);
            }
            assert_eq!(kind(&mut client, code::GO, &info("disk", &[])), rep::ACK);
            client.style = style;
            for (at, len) in [(0, 1), (100, 5000), (4096, 65_536), (3, 300_000), (0, SIZE)] {
                assert!(client.read(at, len) == disk.contents()[at as usize..][..len], "{len} at {at}");
            }
            let data: Vec<u8> = (0..400_000).map(|i| (i % 249) as u8).collect();
            client.write(77, &data);
            assert!(disk.contents()[77..][..data.len()] == data);
        }
    }
}

/// A client that breaks off, or never could, costs its own connection.
#[test]
fn broken_tls_costs_only_its_own_connection() {
    let authority = Authority::new();
    let (fixture, _disk) = fixture(&authority, TlsMode::Require);
    let mut witness = begin_tls(fixture.connect(), &authority);
    assert_eq!(kind(&mut witness, code::GO, &info("disk", &[])), rep::ACK);
    let begun = || {
        let mut client = fixture.connect();
        assert_eq!(kind(&mut client, code::STARTTLS, &[]), rep::ACK);
        client
    };
    for seed in 1..40u32 {
        let mut client = begun();
        // A record's header that promises more than comes, and noise.
        let mut bytes = if seed % 2 == 0 { vec![0x16, 3, 1, 0x3f, 0xff] } else { vec![] };
        bytes.extend((0..seed * 97).map(|i| (i.wrapping_mul(seed) >> 3) as u8));
        // The server may have hung up before all was sent.
        let _ = client.stream.write_all(&bytes);
    }
    drop(begun());
    // An authority that the client does not trust: it is the client who breaks off.
    let mut distrustful = begin_tls(fixture.connect(), &Authority::new());
    assert!(distrustful.stream.write_all(b"x").is_err());
    // Under TLS, and cut off without a word.
    let mut cut = begin_tls(fixture.connect(), &authority);
    assert_eq!(kind(&mut cut, code::GO, &info("disk", &[])), rep::ACK);
    cut.start(Command::Write, 0, 0, 4096, &[]);
    drop(cut);
    // Under TLS, and then no longer.
    let mut bare = begin_tls(fixture.connect(), &authority);
    assert_eq!(kind(&mut bare, code::GO, &info("disk", &[])), rep::ACK);
    bare.stream.sock.write_all(&[0x17; 4096]).unwrap();
    witness.write(0, b"here");
    assert_eq!(witness.read(0, 4), b"here");
    drop((distrustful, bare));
    fixture.wait_for_connections(1);
    assert_eq!(fixture.counts().panics, 0);
}
