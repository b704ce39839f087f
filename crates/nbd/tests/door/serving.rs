//! Coming and going: disconnects, shutdown, several clients, counters.

use std::net::Shutdown;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};
use stonefold_nbd::wire::Style;
use stonefold_nbd::wire::request::Command;

use crate::client::Client;
use crate::fixture::Fixture;

/// Time for a server to do what it must not: too short on a slow machine, it lets a bug pass and fails nothing.
const TEMPTATION: Duration = Duration::from_millis(20);

/// `DISC` waits for what is in flight, and so does a client that only stops sending.
#[test]
fn leaving_waits_for_requests_in_flight() {
    let (fixture, disk) = Fixture::with_disk(1 << 20);
    for polite in [true, false] {
        disk.hold();
        let mut client = Client::open(&fixture.socket(), "disk", Style::Structured);
        let write = client.start(Command::Write, 0, 0, 4096, &[7; 4096]);
        if polite {
            client.start(Command::Disconnect, 0, 0, 0, &[]);
            client.start(Command::Read, 0, 0, 4096, &[]);
        } else {
            client.stream.shutdown(Shutdown::Write).unwrap();
        }
        std::thread::sleep(TEMPTATION);
        disk.release();
        assert_eq!(client.reply(0).unwrap().0, write);
        assert!(client.is_closed(), "and what came after is not answered");
        assert_eq!(disk.contents()[..4096], [7; 4096]);
    }
    fixture.wait_for_connections(0);
}

/// However many CACHE requests there are and however long they take, memory for them is bounded, and all are answered.
///
/// Past bug: each held a buffer that was charged to nobody.
#[test]
fn cache_requests_are_charged_for() {
    let (fixture, disk) = Fixture::with_disk(64 << 20);
    disk.polls_to_wait.store(200, SeqCst);
    let mut client = Client::open(&fixture.socket(), "disk", Style::Structured);
    for _ in 0..300 {
        client.start(Command::Cache, 0, 0, 64 << 20, &[]);
    }
    for _ in 0..300 {
        assert_eq!(client.reply(0).unwrap().1.error, 0);
    }
    let most = disk.prefetching_most.load(SeqCst);
    assert!((2..=32).contains(&most), "{most} at one time, of 1 MiB each, on one connection");
}

/// More in flight than one turn handles.
#[test]
fn leaving_waits_for_many_requests_in_flight() {
    let (fixture, disk) = Fixture::with_disk(1 << 20);
    for polls in [1, 5, 100] {
        disk.polls_to_wait.store(polls, SeqCst);
        let mut client = Client::open(&fixture.socket(), "disk", Style::Structured);
        for index in 0..500 {
            client.start(Command::Read, 0, index * 512, 512, &[]);
        }
        client.start(Command::Disconnect, 0, 0, 0, &[]);
        for _ in 0..500 {
            assert_eq!(client.reply(512).unwrap().1.error, 0);
        }
        assert!(client.is_closed());
    }
}

#[test]
fn a_stopping_server_finishes_what_is_in_flight() {
    let (mut fixture, disk) = Fixture::with_disk(1 << 20);
    disk.hold();
    let mut idle = Client::open(&fixture.socket(), "disk", Style::Simple);
    let mut haggling = fixture.connect();
    let mut busy = Client::open(&fixture.socket(), "disk", Style::Structured);
    let write = busy.start(Command::Write, 0, 0, 4096, &[7; 4096]);
    disk.wait_for_requests(1);
    fixture.tell_to_stop();
    std::thread::sleep(TEMPTATION);
    disk.release();
    assert_eq!(busy.reply(0).unwrap().0, write);
    assert!(busy.is_closed() && idle.is_closed() && haggling.is_closed());
    fixture.stop();
    assert!(!fixture.socket().exists());
    assert_eq!(disk.contents()[..4096], [7; 4096]);
}

/// A client that is killed takes no answer, but what the store has begun is done, and done whole.
#[test]
fn what_was_begun_is_finished_without_the_client() {
    let (fixture, disk) = Fixture::with_disk(1 << 20);
    disk.hold();
    let mut client = Client::open(&fixture.socket(), "disk", Style::Structured);
    client.start(Command::Write, 0, 0, 4096, &[7; 4096]);
    disk.wait_for_requests(1);
    // Not a request: the server ends the connection at once.
    client.send(&[0xff; 28]);
    assert!(client.is_closed());
    disk.release();
    fixture.wait_for_connections(0);
    assert_eq!(disk.contents()[..4096], [7; 4096]);
}

/// What never finishes does not keep the server from stopping.
#[test]
fn stopping_is_bounded() {
    let (mut fixture, disk) = Fixture::with_disk(1 << 20);
    disk.hold();
    let mut client = Client::open(&fixture.socket(), "disk", Style::Simple);
    client.start(Command::Write, 0, 0, 4096, &[7; 4096]);
    let start = Instant::now();
    fixture.stop();
    assert!(start.elapsed() < Duration::from_secs(5));
    assert!(client.is_closed());
}

#[test]
fn what_happens_is_counted() {
    let (fixture, _disk) = Fixture::with_disk(1 << 20);
    let mut client = Client::open(&fixture.socket(), "disk", Style::Structured);
    client.write(0, &[1; 4096]);
    client.read(0, 512);
    client.read(0, 512);
    client.request(Command::Flush, 0, 0, 0, &[]);
    client.request(Command::Read, 0, 1 << 20, 512, &[]);
    client.request(Command::Trim, 0, 0, 512, &[]);
    let counts = fixture.counts();
    let (name, export) = &counts.exports[0];
    assert_eq!((counts.connections, name.as_str(), export.connections), (1, "disk", 1));
    assert_eq!(export.requests, [3, 1, 1, 1, 0, 0, 0, 0]);
    assert_eq!((export.errors, export.read_bytes, export.written_bytes), (1, 1024, 4096));
    drop(client);
    fixture.wait_for_connections(0);
    assert_eq!(fixture.counts().exports[0].1.connections, 0);
}

/// What one connection has written another reads, and a flush on one covers both.
#[test]
fn several_connections_see_one_disk() {
    let (fixture, disk) = Fixture::with_disk(1 << 20);
    let mut clients: Vec<Client> =
        (0..8).map(|_| Client::open(&fixture.socket(), "disk", Style::Structured)).collect();
    for index in 0..8usize {
        clients[index].write(index as u64 * 4096, &[index as u8 + 1; 4096]);
        assert_eq!(clients[(index + 1) % 8].read(index as u64 * 4096, 4096), [index as u8 + 1; 4096]);
    }
    clients[3].request(Command::Flush, 0, 0, 0, &[]);
    assert_eq!(disk.flushes.load(SeqCst), 1);
}

#[test]
fn tcp_serves_as_well() {
    let fixture = Fixture::start(Some("tcp://127.0.0.1:0".parse().unwrap()));
    let disk = fixture.exports.create("disk", 1 << 20);
    disk.fill();
    let address = fixture.address.to_string();
    let port = address.rsplit_once(':').unwrap().1;
    let out = std::process::Command::new("nbdinfo")
        .args(["--size", &format!("nbd://127.0.0.1:{port}/disk")])
        .output()
        .expect("nbdinfo runs; install the package libnbd-bin");
    assert_eq!(String::from_utf8_lossy(&out.stdout).trim(), "1048576");
}
