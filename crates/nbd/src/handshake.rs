//! The handshake over a stream: from the greeting to the option that ends it.
//!
//! *Promises*: an option is bounded before it is read, and answered whole before the next. *Never*: decides anything; the
//! [`Negotiation`] does. *May be used by*: a connection, which says how long it may take.

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::fault::Fault;
use crate::limits::OPTION_BYTES_MAX;
use crate::negotiation::{Negotiation, Next, SERVER_FLAGS};
use crate::target::Exports;
use crate::wire::option::{self, OPTION_HEADER_BYTES, OptionHeader};

/// The greeting and its answer.
pub(crate) async fn greet<S, E>(
    stream: &mut S,
    negotiation: &mut Negotiation<'_, E>,
    input: &mut BytesMut,
) -> Result<(), Fault>
where
    S: AsyncRead + AsyncWrite + Unpin,
    E: Exports,
{
    stream.write_all(&option::greeting(SERVER_FLAGS)).await?;
    let flags = take(stream, input, 4).await?;
    negotiation.client_flags(u32::from_be_bytes(flags[..].try_into().expect("4 bytes were taken")))
}

/// Answers options up to the one that ends them. `input` keeps what the client sent beyond it.
pub(crate) async fn negotiate<S, E>(
    stream: &mut S,
    negotiation: &mut Negotiation<'_, E>,
    input: &mut BytesMut,
) -> Result<Next<E::Target>, Fault>
where
    S: AsyncRead + AsyncWrite + Unpin,
    E: Exports,
{
    let mut out = Vec::new();
    loop {
        let header = take(stream, input, OPTION_HEADER_BYTES).await?;
        let header = header[..].try_into().expect("a header's bytes were taken");
        let header =
            OptionHeader::parse(header).ok_or_else(|| Fault::Protocol("not an option".to_owned()))?;
        if header.data_bytes > OPTION_BYTES_MAX {
            return Err(Fault::Protocol(format!(
                "option {} with {} bytes of data; at most {OPTION_BYTES_MAX} are taken",
                header.code, header.data_bytes
            )));
        }
        let data = take(stream, input, header.data_bytes as usize).await?;
        out.clear();
        let next = negotiation.option(header.code, &data, &mut out)?;
        // Whoever sits between could slip options in behind this one, to be taken for the client's under TLS.
        if matches!(next, Next::StartTls) && !input.is_empty() {
            return Err(Fault::Protocol("more in clear behind STARTTLS".to_owned()));
        }
        stream.write_all(&out).await?;
        // TLS keeps what the socket did not take; the client waits for all of it.
        stream.flush().await?;
        if !matches!(next, Next::Option) {
            return Ok(next);
        }
    }
}

/// The next `count` bytes of the stream.
async fn take<S: AsyncRead + Unpin>(
    stream: &mut S,
    input: &mut BytesMut,
    count: usize,
) -> Result<BytesMut, Fault> {
    input.reserve(count.saturating_sub(input.len()));
    while input.len() < count {
        if stream.read_buf(input).await? == 0 {
            return Err(Fault::Hangup);
        }
    }
    Ok(input.split_to(count))
}
