//! The handshake, option by option.

use std::io::Read;
use stonefold_nbd::wire::option::{code, encode, info as item, rep};
use stonefold_nbd::wire::request::Command;
use stonefold_nbd::wire::{Style, export_flag as flag};

use crate::client::{Client, OptionReply, info, meta};
use crate::fixture::Fixture;

const SIZE: usize = 1 << 20;

fn kinds(replies: &[OptionReply]) -> Vec<u32> {
    replies.iter().map(|reply| reply.kind).collect()
}

/// What was asked before, the option, its data, and the kinds of the replies.
type Row<'a> = (&'a [u32], u32, Vec<u8>, Vec<u32>);

#[test]
fn options_are_answered_as_the_protocol_says() {
    let (fixture, disk) = Fixture::with_disk(SIZE);
    disk.snapshot("monday");
    let structured: &[u32] = &[code::STRUCTURED_REPLY];
    let extended: &[u32] = &[code::EXTENDED_HEADERS];
    let many = vec!["base:allocation"; 17];
    let rows: Vec<Row<'_>> = vec![
        (&[], code::LIST, vec![], vec![rep::SERVER, rep::SERVER, rep::ACK]),
        (&[], code::LIST, vec![1], vec![rep::ERR_INVALID]),
        (&[], code::STARTTLS, vec![], vec![rep::ERR_UNSUP]),
        (&[], 4, vec![], vec![rep::ERR_UNSUP]),
        (&[], 0xffff_ffff, vec![0; 65536], vec![rep::ERR_UNSUP]),
        (&[], code::STRUCTURED_REPLY, vec![], vec![rep::ACK]),
        (&[], code::STRUCTURED_REPLY, vec![0], vec![rep::ERR_INVALID]),
        (structured, code::STRUCTURED_REPLY, vec![], vec![rep::ERR_INVALID]),
        (structured, code::EXTENDED_HEADERS, vec![], vec![rep::ACK]),
        (extended, code::EXTENDED_HEADERS, vec![], vec![rep::ERR_INVALID]),
        (extended, code::STRUCTURED_REPLY, vec![], vec![rep::ERR_EXT_HEADER_REQD]),
        (&[], code::INFO, info("disk", &[]), vec![rep::INFO, rep::ACK]),
        (
            &[],
            code::INFO,
            info("disk", &[1, 2, 3, 99]),
            vec![rep::INFO; 4].into_iter().chain([rep::ACK]).collect(),
        ),
        (&[], code::INFO, info("disk@monday", &[]), vec![rep::INFO, rep::ACK]),
        (&[], code::INFO, info("", &[]), vec![rep::ERR_UNKNOWN]),
        (&[], code::INFO, info("nope", &[]), vec![rep::ERR_UNKNOWN]),
        (&[], code::INFO, info("disk@nope", &[]), vec![rep::ERR_UNKNOWN]),
        (&[], code::INFO, info("../disk", &[]), vec![rep::ERR_UNKNOWN]),
        (&[], code::INFO, vec![0; 3], vec![rep::ERR_INVALID]),
        (&[], code::GO, info("nope", &[]), vec![rep::ERR_UNKNOWN]),
        (&[], code::LIST_META_CONTEXT, meta("disk", &[]), vec![rep::ERR_INVALID]),
        (&[], code::SET_META_CONTEXT, meta("disk", &["base:allocation"]), vec![rep::ERR_INVALID]),
        (
            structured,
            code::LIST_META_CONTEXT,
            meta("disk", &[]),
            vec![rep::META_CONTEXT, rep::META_CONTEXT, rep::ACK],
        ),
        (
            structured,
            code::LIST_META_CONTEXT,
            meta("disk", &["stonefold:"]),
            vec![rep::META_CONTEXT, rep::ACK],
        ),
        (structured, code::LIST_META_CONTEXT, meta("disk", &["qemu:"]), vec![rep::ACK]),
        (structured, code::LIST_META_CONTEXT, meta("nope", &[]), vec![rep::ERR_UNKNOWN]),
        (structured, code::LIST_META_CONTEXT, meta("disk", &many), vec![rep::ERR_TOO_BIG]),
        (structured, code::LIST_META_CONTEXT, vec![0, 0, 0, 9, b'd'], vec![rep::ERR_INVALID]),
        (structured, code::SET_META_CONTEXT, meta("disk", &[]), vec![rep::ACK]),
        (structured, code::SET_META_CONTEXT, meta("disk", &["base:", "x:y"]), vec![rep::ACK]),
        (extended, code::SET_META_CONTEXT, meta("disk", &many), vec![rep::META_CONTEXT, rep::ACK]),
        (
            structured,
            code::SET_META_CONTEXT,
            meta(
                "disk",
                &["base:allocation", "stonefold:changed-since/monday", "stonefold:changed-since/nope"],
            ),
            vec![rep::META_CONTEXT, rep::META_CONTEXT, rep::ACK],
        ),
        (&[], code::ABORT, vec![], vec![rep::ACK]),
    ];
    for (before, option, data, expected) in rows {
        let mut client = fixture.connect();
        before.iter().for_each(|code| assert_eq!(kinds(&client.option(*code, &[])), [rep::ACK]));
        let replies = client.option(option, &data);
        assert_eq!(kinds(&replies), expected, "option {option} with {data:?}: {replies:?}");
        if option == code::ABORT {
            assert!(client.is_closed());
        } else {
            assert_eq!(
                kinds(&client.option(code::GO, &info("disk", &[]))),
                [rep::INFO, rep::ACK],
                "and goes on"
            );
        }
    }
}

fn flags_of(fixture: &Fixture, export: &str, style: Style) -> u16 {
    let mut client = fixture.connect();
    match style {
        Style::Simple => {}
        Style::Structured => drop(client.option(code::STRUCTURED_REPLY, &[])),
        Style::Extended => {
            client.option(code::EXTENDED_HEADERS, &[]);
            client.option(code::SET_META_CONTEXT, &meta(export, &["base:allocation"]));
        }
    }
    let reply = client.option(code::INFO, &info(export, &[])).remove(0);
    assert_eq!(reply.data[..2], item::EXPORT.to_be_bytes());
    assert_eq!(reply.data[2..10], (SIZE as u64).to_be_bytes());
    u16::from_be_bytes(reply.data[10..].try_into().unwrap())
}

#[test]
fn what_is_advertised_depends_on_the_export_and_the_style() {
    let (fixture, disk) = Fixture::with_disk(SIZE);
    disk.snapshot("s");
    let always =
        flag::HAS_FLAGS | flag::SEND_FLUSH | flag::SEND_FUA | flag::CAN_MULTI_CONN | flag::SEND_CACHE;
    let writes = flag::SEND_TRIM | flag::SEND_WRITE_ZEROES | flag::SEND_FAST_ZERO;
    assert_eq!(flags_of(&fixture, "disk", Style::Simple), always | writes);
    assert_eq!(flags_of(&fixture, "disk", Style::Structured), always | writes | flag::SEND_DF);
    assert_eq!(
        flags_of(&fixture, "disk", Style::Extended),
        always | writes | flag::SEND_DF | flag::BLOCK_STATUS_PAYLOAD
    );
    assert_eq!(flags_of(&fixture, "disk@s", Style::Structured), always | flag::READ_ONLY | flag::SEND_DF);
}

#[test]
fn information_is_what_was_asked_for() {
    let (fixture, _disk) = Fixture::with_disk(SIZE);
    let mut client = fixture.connect();
    let replies =
        client.option(code::INFO, &info("disk", &[item::NAME, item::DESCRIPTION, item::BLOCK_SIZE]));
    assert_eq!(replies[1].data, b"\0\x01disk");
    assert_eq!(replies[2].data, b"\0\x02bytes in memory");
    assert_eq!(replies[3].data, [0, 3, 0, 0, 0, 1, 0, 0, 0x10, 0, 2, 0, 0, 0]);
    let list = client.option(code::LIST, &[]);
    assert_eq!(list[0].data, b"\0\0\0\x04diskbytes in memory");
    let unknown = client.option(code::INFO, &info("nope", &[])).remove(0);
    assert_eq!(String::from_utf8(unknown.data).unwrap(), "'nope' does not exist; choose another");
}

/// `EXPORT_NAME` is the only option of the oldest clients, and has no reply but the export itself.
#[test]
fn the_old_way_in() {
    let (fixture, _disk) = Fixture::with_disk(SIZE);
    for (client_flags, padding) in [(0u32, 124), (1, 124), (2, 0), (3, 0)] {
        let mut client = Client::connect_silently(&fixture.socket());
        client.take(18).unwrap();
        client.send(&client_flags.to_be_bytes());
        client.send(&encode(code::EXPORT_NAME, b"disk"));
        let answer = client.take(10 + padding).unwrap();
        assert_eq!(answer[..8], (SIZE as u64).to_be_bytes());
        client.write(5, b"hello");
        assert_eq!(client.read(4, 7), b"\0hello\0");
    }
    let mut client = fixture.connect();
    client.send(&encode(code::EXPORT_NAME, b"nope"));
    assert!(client.is_closed(), "there is no way to say no");
}

/// Contexts belong to the export they were selected for.
#[test]
fn contexts_of_another_export_do_not_count() {
    let (fixture, _disk) = Fixture::with_disk(SIZE);
    fixture.exports.create("other", SIZE);
    let mut client = fixture.connect();
    client.option(code::STRUCTURED_REPLY, &[]);
    client.option(code::SET_META_CONTEXT, &meta("other", &["base:allocation"]));
    client.option(code::GO, &info("disk", &[]));
    client.style = Style::Structured;
    let reply = client.request(Command::BlockStatus, 0, 0, 4096, &[]);
    assert_eq!((reply.error, reply.message.as_str()), (22, "no meta context was selected"));
}

/// The last options and the first requests may come in one packet.
#[test]
fn requests_may_follow_at_once() {
    let (fixture, disk) = Fixture::with_disk(SIZE);
    disk.fill();
    let mut client = fixture.connect();
    let mut bytes = encode(code::GO, &info("disk", &[]));
    let read = stonefold_nbd::wire::request::Request {
        flags: 0,
        command: Command::Read,
        cookie: 99,
        offset: 0,
        length: 512,
    };
    bytes.extend(read.encode(Style::Simple));
    client.send(&bytes);
    let mut replies = vec![0; 20 + 12 + 20];
    client.stream.read_exact(&mut replies).unwrap();
    let (cookie, reply) = client.reply(512).unwrap();
    assert_eq!((cookie, reply.bytes(0, 512)), (99, disk.contents()[..512].to_vec()));
}
