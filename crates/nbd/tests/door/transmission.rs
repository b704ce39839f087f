//! Requests and replies in every style.

use std::sync::atomic::Ordering::SeqCst;
use stonefold_nbd::wire::Style;
use stonefold_nbd::wire::option::{code, rep};
use stonefold_nbd::wire::request::{Command, flag};

use crate::client::{Client, Reply, info, meta};
use crate::fixture::Fixture;

const STYLES: [Style; 3] = [Style::Simple, Style::Structured, Style::Extended];
const SIZE: usize = 40 << 20;

const EPERM: u32 = 1;
const EIO: u32 = 5;
const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;
const EOVERFLOW: u32 = 75;

/// Every length from a byte to 32 MiB, at odd offsets, cached and not, reads as what is there.
#[test]
fn reads_of_every_size() {
    let (fixture, disk) = Fixture::with_disk(SIZE);
    disk.fill();
    let contents = disk.contents();
    for polls in [0, 3] {
        disk.polls_to_wait.store(polls, SeqCst);
        for style in STYLES {
            let mut client = Client::open(&fixture.socket(), "disk", style);
            for (offset, len) in [
                (0, 1),
                (1, 511),
                (4096, 4096),
                (12345, 16 << 10),
                (777, (16 << 10) + 1),
                (0, 64 << 10),
                (1, (64 << 10) + 1),
                ((256 << 10) - 1, 2),
                (100, 256 << 10),
                (3 << 20, 5 << 20),
                (4321, 32 << 20),
            ] {
                let read = client.read(offset, len);
                assert!(read == contents[offset as usize..][..len], "{style:?} {offset} {len} {polls}");
            }
            let reply = client.request(Command::Read, 0, 5, 0, &[]);
            assert_eq!(reply, Reply::default(), "nothing of nothing");
        }
    }
}

#[test]
fn writes_of_every_size() {
    let (fixture, disk) = Fixture::with_disk(SIZE);
    for polls in [0, 3] {
        disk.polls_to_wait.store(polls, SeqCst);
        for style in STYLES {
            let mut client = Client::open(&fixture.socket(), "disk", style);
            for (index, (offset, len)) in [
                (1, 1),
                (4096, 4096),
                (777, 64 << 10),
                (778, (64 << 10) + 1),
                (3 << 20, 5 << 20),
                (4321, 32 << 20),
            ]
            .into_iter()
            .enumerate()
            {
                let data: Vec<u8> = (0..len).map(|at| (at * 31 + index * 7 + polls as usize) as u8).collect();
                client.write(offset, &data);
                assert!(
                    disk.contents()[offset as usize..][..len] == data,
                    "{style:?} {offset} {len} {polls}"
                );
            }
            assert_eq!(client.request(Command::Write, 0, 5, 0, &[]).error, 0);
        }
    }
}

/// A large read of a disk with holes does not send the zeros; in one piece, and in the simple style, it does.
#[test]
fn zeros_are_not_sent() {
    let (fixture, disk) = Fixture::with_disk(SIZE);
    let mut client = Client::open(&fixture.socket(), "disk", Style::Structured);
    client.write(1 << 20, &[7; 1 << 20]);
    let reply = client.request(Command::Read, 0, 0, 4 << 20, &[]);
    assert!(reply.bytes(0, 4 << 20) == disk.contents()[..4 << 20]);
    assert_eq!(reply.holes, 12, "in parts of 256 KiB, of which four have data");
    let reply = client.request(Command::Read, flag::DF, 1 << 20, 256 << 10, &[]);
    assert_eq!((reply.data.len(), reply.holes), (1, 0));
    let reply = client.request(Command::Read, flag::DF, 0, 200 << 10, &[]);
    assert_eq!((reply.data.len(), reply.holes), (1, 0));
    let reply = client.request(Command::Read, flag::DF, 0, 1 << 20, &[]);
    assert_eq!(reply.error, EOVERFLOW);
}

#[test]
fn zeroes_trims_flushes_and_fua() {
    let (fixture, disk) = Fixture::with_disk(SIZE);
    for style in STYLES {
        disk.fill();
        disk.flushes.store(0, SeqCst);
        let mut client = Client::open(&fixture.socket(), "disk", style);
        let mut done = |command, flags, offset, len, payload: &[u8]| {
            let reply = client.request(command, flags, offset, len, payload);
            assert_eq!(reply, Reply::default(), "{command:?}");
            disk.flushes.swap(0, SeqCst)
        };
        assert_eq!(done(Command::WriteZeroes, 0, 100, 5 << 20, &[]), 0);
        assert_eq!(done(Command::WriteZeroes, flag::NO_HOLE | flag::FAST_ZERO | flag::FUA, 100, 50, &[]), 1);
        assert_eq!(done(Command::Trim, 0, 6 << 20, 1 << 20, &[]), 0);
        assert_eq!(done(Command::Trim, flag::FUA, 0, 0, &[]), 0);
        assert_eq!(done(Command::Cache, 0, 0, 40 << 20, &[]), 0);
        assert_eq!(done(Command::Flush, 0, 0, 0, &[]), 1);
        assert_eq!(done(Command::Write, flag::FUA, 0, 3, b"abc"), 1);
        assert_eq!(
            done(Command::Write, flag::FUA, 1 << 20, 2 << 20, &vec![3; 2 << 20]),
            1,
            "one flush for all parts"
        );
        assert!(disk.contents()[100..1 << 20].iter().all(|byte| *byte == 0));
        assert!(disk.contents()[6 << 20..7 << 20].iter().all(|byte| *byte == 0));
    }
}

/// Each row: a request that cannot be done, and the error. The connection goes on.
#[test]
fn bad_requests_are_refused_and_the_connection_goes_on() {
    let (fixture, disk) = Fixture::with_disk(SIZE);
    disk.fill();
    let before = disk.contents();
    let end = SIZE as u64;
    let long = 33 << 20;
    let rows: &[(Command, u16, u64, u64, usize, u32)] = &[
        (Command::Read, 0, end, 1, 0, EINVAL),
        (Command::Read, 0, end - 1, 2, 0, EINVAL),
        (Command::Read, 0, u64::MAX, 4096, 0, EINVAL),
        (Command::Read, 0, 0, long, 0, EINVAL),
        (Command::Read, flag::REQ_ONE, 0, 1, 0, EINVAL),
        (Command::Read, flag::PAYLOAD_LEN << 1, 0, 1, 0, EINVAL),
        (Command::Write, 0, end, 1, 1, ENOSPC),
        (Command::Write, 0, end - 4096, 1 << 20, 1 << 20, ENOSPC),
        (Command::Write, 0, u64::MAX - 5, 100, 100, ENOSPC),
        (Command::Write, flag::DF, 0, 100, 100, EINVAL),
        (Command::Write, 0, 0, long, long as usize, EINVAL),
        (Command::WriteZeroes, 0, end - 1, 2, 0, ENOSPC),
        (Command::Trim, 0, end - 1, 2, 0, EINVAL),
        (Command::Cache, 0, end - 1, 2, 0, EINVAL),
        (Command::Unknown(99), 0, 0, 0, 0, EINVAL),
        (Command::BlockStatus, 0, 0, 0, 0, EINVAL),
        (Command::BlockStatus, 0, end, 1, 0, EINVAL),
    ];
    for style in STYLES {
        let mut client = Client::open(&fixture.socket(), "disk", style);
        for (command, flags, offset, len, payload, errno) in rows {
            let reply = client.request(*command, *flags, *offset, *len, &vec![9; *payload]);
            assert_eq!(reply.error, *errno, "{style:?} {command:?} {offset} {len}");
            assert_eq!(reply.message.is_empty(), style == Style::Simple);
            assert!(client.read(0, 512) == before[..512]);
        }
    }
    assert!(disk.contents() == before);
    let counts = fixture.counts();
    assert_eq!(counts.exports[0].1.errors, 3 * rows.len() as u64);
}

#[test]
fn a_snapshot_is_read_only() {
    let (fixture, disk) = Fixture::with_disk(1 << 20);
    disk.fill();
    disk.snapshot("s");
    for style in STYLES {
        let mut client = Client::open(&fixture.socket(), "disk@s", style);
        for (command, payload) in
            [(Command::Write, vec![1; 4096]), (Command::Trim, vec![]), (Command::WriteZeroes, vec![])]
        {
            assert_eq!(client.request(command, 0, 0, 4096, &payload).error, EPERM);
        }
        assert_eq!(client.request(Command::Flush, 0, 0, 0, &[]).error, 0);
        assert!(client.read(0, 1 << 20) == disk.contents());
    }
}

/// A damaged block fails the reads that touch it, with the store's words; a large one among them still answers once.
#[test]
fn errors_of_the_store_reach_the_client() {
    let (fixture, disk) = Fixture::with_disk(SIZE);
    disk.fill();
    disk.bad_offset.store(3 << 20, SeqCst);
    for polls in [0, 2] {
        disk.polls_to_wait.store(polls, SeqCst);
        for style in STYLES {
            let mut client = Client::open(&fixture.socket(), "disk", style);
            for (offset, len) in [(3 << 20, 4096), (1 << 20, 8 << 20), (3 << 20, 100 << 10)] {
                let reply = client.request(Command::Read, 0, offset, len, &[]);
                assert_eq!(reply.error, EIO, "{style:?} {offset} {len} {polls}");
                if style != Style::Simple {
                    assert_eq!(reply.message, "offset 3145728 of 'test' is damaged");
                }
                let reply = client.request(Command::Write, flag::FUA, offset, len, &vec![1; len as usize]);
                assert_eq!(reply.error, EIO);
            }
            assert_eq!(client.read(0, 10).len(), 10);
        }
    }
}

#[test]
fn status_tells_what_is_stored_and_what_changed() {
    let (fixture, disk) = Fixture::with_disk(1 << 20);
    let mut writer = Client::open(&fixture.socket(), "disk", Style::Simple);
    writer.write(0, &[1; 8192]);
    writer.write(64 << 10, &[1; 4096]);
    disk.snapshot("s");
    writer.write(4096, &[2; 4096]);
    writer.write(128 << 10, &[2; 4096]);
    let kib = |n: u64| n << 10;
    let stored = vec![(kib(8), 0), (kib(56), 3), (kib(4), 0), (kib(60), 3), (kib(4), 0), (kib(892), 3)];
    let changed = vec![(kib(4), 0), (kib(4), 1), (kib(120), 0), (kib(4), 1), (kib(892), 0)];
    for style in [Style::Structured, Style::Extended] {
        let mut client = fixture.connect();
        client.style = style;
        let option = if style == Style::Extended { code::EXTENDED_HEADERS } else { code::STRUCTURED_REPLY };
        client.option(option, &[]);
        client
            .option(code::SET_META_CONTEXT, &meta("disk", &["base:allocation", "stonefold:changed-since/s"]));
        assert_eq!(client.option(code::GO, &info("disk", &[])).last().unwrap().kind, rep::ACK);
        let reply = client.request(Command::BlockStatus, 0, 0, 1 << 20, &[]);
        assert_eq!(reply.status[&1], stored);
        assert_eq!(reply.status[&2], changed);
        let reply = client.request(Command::BlockStatus, flag::REQ_ONE, kib(6), kib(100), &[]);
        assert_eq!(reply.status[&1], [(kib(2), 0)]);
        assert_eq!(reply.status[&2], [(kib(2), 1)]);
        if style == Style::Extended {
            check_status_payload(&mut client, &changed);
        }
    }
}

fn check_status_payload(client: &mut Client, changed: &[(u64, u32)]) {
    let mut ask = |length: u64, ids: &[u32]| {
        let mut payload = length.to_be_bytes().to_vec();
        ids.iter().for_each(|id| payload.extend(id.to_be_bytes()));
        client.request(Command::BlockStatus, 0, 0, payload.len() as u64, &payload)
    };
    let reply = ask(1 << 20, &[2]);
    assert_eq!((reply.status.len(), &reply.status[&2][..]), (1, changed));
    for (length, ids) in
        [(1u64 << 20, &[3][..]), (1 << 20, &[]), (1 << 20, &[1, 1]), (0, &[1]), (2 << 20, &[1])]
    {
        assert_eq!(ask(length, ids).error, EINVAL, "{length} {ids:?}");
    }
    assert_eq!(ask(1 << 20, &[1; 100]).error, EINVAL, "too long");
    assert_eq!(ask(1 << 20, &[1, 2]).status.len(), 2, "and the connection goes on");
}

/// More extents than a reply holds: the client asks again from where it ended.
#[test]
fn long_maps_come_in_pieces() {
    let (fixture, _disk) = Fixture::with_disk(160 << 20);
    let mut client = Client::open(&fixture.socket(), "disk", Style::Structured);
    for block in (0..20_000u64).step_by(2) {
        client.write(block * 4096, &[1; 1]);
    }
    let (mut at, mut extents, mut replies) = (0, 0, 0);
    while at < 160 << 20 {
        let reply = client.request(Command::BlockStatus, 0, at, (160 << 20) - at, &[]);
        at += reply.status[&1].iter().map(|(len, _)| len).sum::<u64>();
        extents += reply.status[&1].len();
        replies += 1;
    }
    assert_eq!((at, extents, replies), (160 << 20, 20_000, 3));
}

/// Requests are answered as they finish, not in order, and every one of many in flight is answered.
#[test]
fn many_in_flight() {
    let (fixture, disk) = Fixture::with_disk(SIZE);
    disk.fill();
    disk.polls_to_wait.store(2, SeqCst);
    let mut client = Client::open(&fixture.socket(), "disk", Style::Structured);
    let mut sender = client.twin();
    const COUNT: u64 = 3000;
    let sending = std::thread::Builder::new()
        .spawn(move || {
            for index in 0..COUNT {
                sender.start(Command::Read, 0, index * 4096, 4096, &[]);
            }
        })
        .unwrap();
    let mut answered = std::collections::BTreeSet::new();
    for _ in 0..COUNT {
        let (cookie, reply) = client.reply(4096).unwrap();
        assert_eq!((reply.error, reply.data.len()), (0, 1));
        assert!(answered.insert(cookie));
    }
    sending.join().unwrap();
    assert_eq!(answered.len() as u64, COUNT);
}
