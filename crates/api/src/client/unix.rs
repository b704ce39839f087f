//! HTTP over a Unix socket, as a transport of ureq's. That part of ureq does not promise to stay as it is from one of
//! its minor versions to the next; all that depends on it is here.

use std::fmt;
use std::io::{Error as IoError, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};
use ureq::{Agent, Error};

/// An agent whose every connection goes to one socket, whatever host a URL names.
pub(super) fn agent(config: Config, path: PathBuf) -> Agent {
    Agent::with_parts(config, Socket(path), Nowhere)
}

#[derive(Debug)]
struct Socket(PathBuf);

impl Connector for Socket {
    type Out = Connection;

    fn connect(&self, details: &ConnectionDetails<'_>, _: Option<()>) -> Result<Option<Connection>, Error> {
        let stream = UnixStream::connect(&self.0)?;
        let buffers =
            LazyBuffers::new(details.config.input_buffer_size(), details.config.output_buffer_size());
        Ok(Some(Connection { stream, buffers }))
    }
}

struct Connection {
    stream: UnixStream,
    buffers: LazyBuffers,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stream.fmt(f)
    }
}

/// No timeout is set on what this client asks: a server on this machine answers or ends, and either wakes the reader.
impl Transport for Connection {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, _: NextTimeout) -> Result<(), Error> {
        match self.stream.write_all(&self.buffers.output()[..amount]) {
            // A server that needs no more of a request may answer and close before it has all of it. Its answer lies
            // ready to be read; where there is none, reading tells.
            Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
            written => Ok(written?),
        }
    }

    fn await_input(&mut self, _: NextTimeout) -> Result<bool, Error> {
        let input = self.buffers.input_append_buf();
        let amount = loop {
            match self.stream.read(input) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    /// Whether the connection can take another request: nothing has come unasked, not even its end.
    fn is_open(&mut self) -> bool {
        let idle = |stream: &mut UnixStream| {
            stream.set_nonblocking(true)?;
            let read = stream.read(&mut [0]);
            stream.set_nonblocking(false)?;
            Ok::<bool, IoError>(read.is_err_and(|e| e.kind() == ErrorKind::WouldBlock))
        };
        idle(&mut self.stream).unwrap_or(false)
    }
}

/// There is no host to look up; ureq wants an address all the same.
#[derive(Debug)]
struct Nowhere;

impl Resolver for Nowhere {
    fn resolve(&self, _: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let mut addresses = self.empty();
        addresses.push(([0, 0, 0, 0], 0).into());
        Ok(addresses)
    }
}
