//! An NBD connection that goes on by TLS: `NBD_OPT_STARTTLS`, then the handshake of TLS, then the options that are left.
//!
//! *Never*: takes for the server's what came before TLS began: whoever could write into that connection could then answer in its name.

use super::handshake::ask;
use super::{READ_BYTES, Wire};
use stonefold_tls::Connector;
use stonefold_types::{Error, Kind, Result};
use tokio::io::BufReader;

const OPT_STARTTLS: u32 = 5;
const REP_ACK: u32 = 1;

/// Of a connection whose ends have greeted each other.
pub(super) async fn begin(mut wire: Wire, connector: &Connector, host: &str) -> Result<Wire> {
    let (end, _) = ask(&mut wire, OPT_STARTTLS, &[]).await?;
    if end != REP_ACK {
        let what = format!("the NBD server '{host}' does not begin TLS (reply {end:#x})");
        return Err(Error::new(Kind::Unsupported, what)
            .remedy("have it served with TLS, or name it by nbd:// where nobody else can listen"));
    }
    if !wire.reader.buffer().is_empty() {
        let what = "the server, or somebody between, says more before TLS begins than it was asked";
        return Err(Error::new(Kind::Io, what).remedy("look at what lies between the two machines"));
    }
    let stream = connector.connect(tokio::io::join(wire.reader, wire.writer), host).await.map_err(|e| {
        Error::io(format!("beginning TLS with the NBD server '{host}'"), e).remedy(
            "look whether its certificate is of that name, and the authority in the folder has signed it",
        )
    })?;
    let (reader, writer) = tokio::io::split(stream);
    Ok(Wire { reader: BufReader::with_capacity(READ_BYTES, Box::new(reader)), writer: Box::new(writer) })
}
