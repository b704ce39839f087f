//! How long the door waits for whom, in simulated time.

use std::time::Duration;
use stonefold_env::{Env, SystemWorld};
use stonefold_nbd::wire::Style;
use stonefold_nbd::wire::option::{code, encode};
use stonefold_nbd::wire::request::{Command, Request};
use stonefold_nbd::{Server, TlsMode};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::Instant;

use crate::certificates::Authority;
use crate::client::info;
use crate::memory::MemoryExports;

fn hello() -> Vec<u8> {
    let mut bytes = 3u32.to_be_bytes().to_vec();
    bytes.extend(encode(code::GO, &info("disk", &[])));
    bytes
}

fn request(command: Command, length: u64) -> Vec<u8> {
    Request { flags: 0, command, cookie: 1, offset: 0, length }.encode(Style::Simple)
}

/// Runs on a clock that stands still while anything is left to do, and then jumps.
fn paused<T>(work: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(true).build().unwrap().block_on(work)
}

/// Sends `bytes`, then nothing, and reads nothing unless told; returns how long the server puts up with that, at most
/// `limit`.
fn patience_with(bytes: &[u8], limit: Duration) -> Duration {
    patience_of_a_door(None, bytes, limit)
}

/// The same of a door that may have TLS.
fn patience_of_a_door(authority: Option<&Authority>, bytes: &[u8], limit: Duration) -> Duration {
    paused(async {
        let env = Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap());
        let exports = MemoryExports::default();
        exports.create("disk", 1 << 20).fill();
        let tls = authority.and_then(|authority| authority.tls(TlsMode::Allow, None)(&env));
        let server = Server::new(env, exports);
        let (mut ours, theirs): (DuplexStream, DuplexStream) = tokio::io::duplex(4096);
        let start = Instant::now();
        let behave = async {
            ours.write_all(bytes).await.unwrap();
            tokio::time::sleep(limit).await;
            // Whatever it still has to say is read, so that it can end.
            drop(ours.read(&mut [0; 4096]).await);
        };
        tokio::select! {
            () = server.attend(theirs, tls.as_ref()) => start.elapsed(),
            () = behave => limit,
        }
    })
}

/// A client beyond the bound is turned away at once, and a place that is free again is given away.
#[test]
fn no_more_connect_than_may() {
    paused(async {
        let env = Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap());
        let server = Server::new(env, MemoryExports::default()).with_connections_max(1);
        let greeted = async |ours: &mut DuplexStream| ours.read(&mut [0; 64]).await.unwrap() > 0;
        for _ in 0..2 {
            let ((mut first, one), (mut second, two)) = (tokio::io::duplex(4096), tokio::io::duplex(4096));
            let behave = async {
                assert!(greeted(&mut first).await, "there is room for one");
                server.attend(two, None).await;
                assert!(!greeted(&mut second).await, "and not for two");
                drop(first);
            };
            tokio::join!(server.attend(one, None), behave);
        }
    });
}

const HOUR: Duration = Duration::from_secs(3600);
const STALL: std::ops::RangeInclusive<Duration> = Duration::from_secs(290)..=Duration::from_secs(320);

#[test]
fn a_handshake_has_thirty_seconds() {
    assert_eq!(patience_with(&[], HOUR).as_secs(), 30);
    assert_eq!(patience_with(&hello()[..20], HOUR).as_secs(), 30);
}

/// The thirty seconds are for both: TLS and what is said in it.
#[test]
fn tls_does_not_prolong_the_handshake() {
    let authority = Authority::new();
    let mut bytes = hello()[..4].to_vec();
    bytes.extend(encode(code::STARTTLS, &[]));
    assert_eq!(patience_of_a_door(Some(&authority), &bytes, HOUR).as_secs(), 30);
    // Half a record.
    bytes.extend([0x16, 3, 1, 2, 0, 1, 0]);
    assert_eq!(patience_of_a_door(Some(&authority), &bytes, HOUR).as_secs(), 30);
}

/// What TLS keeps because nobody reads is owed as well.
#[test]
fn a_reply_under_tls_that_nobody_reads_is_given_up_in_the_end() {
    let authority = Authority::new();
    // The second is small enough to leave the output at once, and too large for the pipe.
    for bytes in [100_000, 20_000] {
        let passed = after_tls(&authority, &request(Command::Read, bytes));
        assert!(STALL.contains(&passed), "{bytes}: {passed:?}");
    }
}

/// Opens an export under TLS, sends a request and reads no answer; returns how long the server puts up with that.
fn after_tls(authority: &Authority, request: &[u8]) -> Duration {
    paused(async {
        let env = Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap());
        let exports = MemoryExports::default();
        exports.create("disk", 1 << 20).fill();
        let tls = authority.tls(TlsMode::Require, None)(&env);
        let server = Server::new(env, exports);
        let (mut ours, theirs) = tokio::io::duplex(4096);
        let behave = async {
            let mut begin = 3u32.to_be_bytes().to_vec();
            begin.extend(encode(code::STARTTLS, &[]));
            ours.write_all(&begin).await.unwrap();
            ours.read_exact(&mut [0; 18 + 20]).await.unwrap();
            let connector = tokio_rustls::TlsConnector::from(authority.client_config());
            let mut secret = connector.connect("localhost".try_into().unwrap(), ours).await.unwrap();
            secret.write_all(&hello()[4..]).await.unwrap();
            secret.read_exact(&mut [0; 20 + 12 + 20]).await.unwrap();
            secret.write_all(request).await.unwrap();
            tokio::time::sleep(HOUR).await;
            secret
        };
        let start = Instant::now();
        tokio::select! {
            () = server.attend(theirs, tls.as_ref()) => start.elapsed(),
            _ = behave => HOUR,
        }
    })
}

#[test]
fn an_idle_client_may_stay() {
    assert_eq!(patience_with(&hello(), HOUR), HOUR);
}

#[test]
fn half_a_request_is_given_up_in_the_end() {
    let mut bytes = hello();
    bytes.extend(&request(Command::Write, 4096)[..10]);
    assert!(STALL.contains(&patience_with(&bytes, HOUR)));
    let mut bytes = hello();
    bytes.extend(request(Command::Write, 300_000));
    bytes.extend([0; 1000]);
    assert!(STALL.contains(&patience_with(&bytes, HOUR)));
    let mut bytes = hello();
    bytes.extend(request(Command::Write, 3 << 20));
    assert!(STALL.contains(&patience_with(&bytes, HOUR)), "of a refused payload, too");
}

#[test]
fn a_reply_that_nobody_reads_is_given_up_in_the_end() {
    let mut bytes = hello();
    bytes.extend(request(Command::Read, 100_000));
    assert!(STALL.contains(&patience_with(&bytes, HOUR)));
}
