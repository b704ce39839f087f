//! The wire codec: whatever comes in, no panic and no allocation beyond the input; what goes out comes back.

use proptest::prelude::*;
use stonefold_nbd::wire::option::{InfoRequest, MetaRequest, OPTION_HEADER_BYTES, OptionHeader, encode};
use stonefold_nbd::wire::reply::Answer;
use stonefold_nbd::wire::request::{Command, Request, StatusPayload, header_bytes};
use stonefold_nbd::wire::{Errno, Style};

use crate::client::{info, meta};

const STYLES: [Style; 3] = [Style::Simple, Style::Structured, Style::Extended];

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        Just(Command::Read),
        Just(Command::Write),
        Just(Command::Disconnect),
        Just(Command::Flush),
        Just(Command::Trim),
        Just(Command::Cache),
        Just(Command::WriteZeroes),
        Just(Command::BlockStatus),
        (8u16..).prop_map(Command::Unknown),
    ]
}

proptest! {
    #[test]
    fn anything_parses_or_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        for style in STYLES {
            let _ = Request::parse(&bytes, style);
        }
        let _ = InfoRequest::parse(&bytes);
        let _ = MetaRequest::parse(&bytes);
        let _ = StatusPayload::parse(&bytes);
        if let Some(header) = bytes.first_chunk::<OPTION_HEADER_BYTES>() {
            let _ = OptionHeader::parse(header);
        }
    }

    /// Counts and lengths that promise more than there is are refused, not believed.
    #[test]
    fn counts_are_not_believed(count in any::<u32>(), tail in prop::collection::vec(any::<u8>(), 0..64)) {
        let mut data = 0u32.to_be_bytes().to_vec();
        data.extend(count.to_be_bytes());
        data.extend(&tail);
        if let Some(request) = MetaRequest::parse(&data) {
            prop_assert!(request.queries.len() * 4 <= tail.len());
        }
        let mut data = count.to_be_bytes().to_vec();
        data.extend(&tail);
        if let Some(request) = InfoRequest::parse(&data) {
            prop_assert!(request.wanted.len() * 2 <= tail.len());
        }
    }

    #[test]
    fn requests_read_back(
        command in command(), flags in any::<u16>(), cookie in any::<u64>(), offset in any::<u64>(),
        length in any::<u32>(), long in any::<u64>(),
    ) {
        for style in STYLES {
            let length = if style == Style::Extended { long } else { u64::from(length) };
            let request = Request { flags, command, cookie, offset, length };
            let bytes = request.encode(style);
            prop_assert_eq!(bytes.len(), header_bytes(style));
            prop_assert_eq!(Request::parse(&bytes, style), Ok(Some(request)));
            prop_assert_eq!(Request::parse(&bytes[..bytes.len() - 1], style), Ok(None));
        }
    }

    #[test]
    fn options_read_back(
        name in "[a-z@.]{0,40}",
        wanted in prop::collection::vec(any::<u16>(), 0..5),
        queries in prop::collection::vec("[a-z:/]{0,20}", 0..5),
        code in any::<u32>(),
    ) {
        let data = info(&name, &wanted);
        prop_assert_eq!(InfoRequest::parse(&data), Some(InfoRequest { name: &name, wanted }));
        prop_assert!(InfoRequest::parse(&data[..data.len() - 1]).is_none());
        let queries: Vec<&str> = queries.iter().map(String::as_str).collect();
        let data = meta(&name, &queries);
        prop_assert_eq!(MetaRequest::parse(&data), Some(MetaRequest { name: &name, queries }));
        let option = encode(code, &data);
        let header = OptionHeader::parse(option.first_chunk().unwrap()).unwrap();
        prop_assert_eq!((header.code, header.data_bytes as usize), (code, data.len()));
    }

    /// However long a message is, the reply stays within the protocol's limit and is valid UTF-8.
    #[test]
    fn messages_are_cut_at_characters(message in "\\PC{0,5000}") {
        let mut out = Vec::new();
        let answer = Answer { style: Style::Structured, cookie: 7, offset: 0 };
        answer.error(Errno::Io, &message, &mut out);
        let cut = std::str::from_utf8(&out[26..]).unwrap();
        prop_assert!(cut.len() <= 4096 && message.starts_with(cut));
        prop_assert!(message.len() - cut.len() < 4 || cut.len() > 4092);
    }
}
