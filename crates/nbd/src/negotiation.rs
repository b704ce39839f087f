//! What is settled in a handshake: a pure state machine from options to replies.
//!
//! *Promises*: whatever a client sends, it is answered as the protocol says or the connection ends; nothing that was said
//! in clear counts once TLS has begun. *Never*: waits or touches a socket; [`crate::handshake`] does that around it.

use crate::fault::Fault;
use crate::limits::{
    CONTEXTS_MAX, LIST_MAX, OPTIONS_MAX, REQUEST_BYTES_MAX, REQUEST_BYTES_MIN, REQUEST_BYTES_PREFERRED,
};
use crate::meta::MetaContext;
use crate::target::{Exports, Target};
use crate::tls::Secrecy;
use crate::wire::option::{self, EXPORT_NAME_PADDING_BYTES, InfoRequest, MetaRequest, code, info, rep};
use crate::wire::{Style, export_flag, handshake_flag};
use std::sync::Arc;
use stonefold_types::{Error, ExportName, Kind, Name, Result as StoreResult};

/// An export opened by a client, and how to talk about it.
#[derive(Debug)]
pub(crate) struct Opened<T> {
    pub(crate) target: T,
    pub(crate) name: String,
    pub(crate) style: Style,
    pub(crate) contexts: Vec<MetaContext>,
}

/// What follows an option.
#[derive(Debug)]
pub(crate) enum Next<T> {
    /// Another option.
    Option,
    /// The transmission phase.
    Transmission(Opened<T>),
    /// TLS, and options under it.
    StartTls,
    /// Nothing: the client wanted to leave, or cannot be told why it cannot stay.
    Close,
}

/// One client's handshake.
pub(crate) struct Negotiation<'a, E> {
    exports: &'a E,
    /// Who it is with, for people.
    peer: &'a Arc<str>,
    secrecy: Secrecy,
    fixed: bool,
    no_zeroes: bool,
    style: Style,
    /// The contexts last selected, and for which export.
    contexts: Option<(String, Vec<MetaContext>)>,
    options: usize,
}

/// Flags of the greeting.
pub(crate) const SERVER_FLAGS: u16 = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;

impl<'a, E: Exports> Negotiation<'a, E> {
    pub(crate) fn new(exports: &'a E, peer: &'a Arc<str>, secrecy: Secrecy) -> Self {
        Negotiation {
            exports,
            peer,
            secrecy,
            fixed: false,
            no_zeroes: false,
            style: Style::Simple,
            contexts: None,
            options: 0,
        }
    }

    /// Takes the client's answer to the greeting.
    pub(crate) fn client_flags(&mut self, flags: u32) -> Result<(), Fault> {
        if flags & !u32::from(SERVER_FLAGS) != 0 {
            return Err(Fault::Protocol(format!("client flags {flags:#x} are unknown")));
        }
        self.fixed = flags & u32::from(handshake_flag::FIXED_NEWSTYLE) != 0;
        self.no_zeroes = flags & u32::from(handshake_flag::NO_ZEROES) != 0;
        Ok(())
    }

    /// Takes an option and appends the replies.
    pub(crate) fn option(
        &mut self,
        option: u32,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Next<E::Target>, Fault> {
        self.options += 1;
        if self.options > OPTIONS_MAX {
            return Err(Fault::Protocol(format!("more than {OPTIONS_MAX} options")));
        }
        let barred = self.secrecy == Secrecy::Required && !matches!(option, code::ABORT | code::STARTTLS);
        if option == code::EXPORT_NAME {
            if barred {
                return Err(Fault::Protocol("an export was asked for in clear; here TLS is required".into()));
            }
            return Ok(self.export_name(data, out));
        }
        if !self.fixed {
            return Err(Fault::Protocol(format!("option {option} without fixed newstyle")));
        }
        let mut reply = Reply { option, out };
        if barred {
            reply.error(rep::ERR_TLS_REQD, "this server requires TLS: begin with STARTTLS");
            return Ok(Next::Option);
        }
        match option {
            code::ABORT => {
                reply.ack();
                return Ok(Next::Close);
            }
            code::LIST => self.list(data, &mut reply),
            code::STRUCTURED_REPLY => self.raise_style(Style::Structured, data, &mut reply),
            code::EXTENDED_HEADERS => self.raise_style(Style::Extended, data, &mut reply),
            code::LIST_META_CONTEXT => self.list_contexts(data, &mut reply),
            code::SET_META_CONTEXT => self.set_contexts(data, &mut reply),
            code::INFO | code::GO => return Ok(self.info_or_go(data, &mut reply)),
            code::STARTTLS => return Ok(self.start_tls(data, &mut reply)),
            _ => reply.error(rep::ERR_UNSUP, "unknown option"),
        }
        Ok(Next::Option)
    }

    fn start_tls(&self, data: &[u8], reply: &mut Reply<'_>) -> Next<E::Target> {
        match self.secrecy {
            Secrecy::Unavailable => reply.error(rep::ERR_UNSUP, "this server has no TLS"),
            Secrecy::Established => reply.error(rep::ERR_INVALID, "this connection has TLS already"),
            Secrecy::Offered | Secrecy::Required if !data.is_empty() => {
                reply.error(rep::ERR_INVALID, "this option takes no data");
            }
            Secrecy::Offered | Secrecy::Required => {
                reply.ack();
                return Next::StartTls;
            }
        }
        Next::Option
    }

    /// TLS has begun. What was settled before may have been said by whoever sat between, and is forgotten; only the
    /// number of options counts on, and the flags, which are not said again.
    pub(crate) fn secured(&mut self) {
        self.secrecy = Secrecy::Established;
        self.style = Style::Simple;
        self.contexts = None;
    }

    fn open(&self, name: &str) -> StoreResult<E::Target> {
        if name.is_empty() {
            return Err(Error::new(Kind::NotFound, "no export was named")
                .remedy("ask for a disk, or for disk@snapshot; a list tells their names"));
        }
        self.exports.attach(&name.parse::<ExportName>()?, self.peer)
    }

    fn opened(&mut self, target: E::Target, name: &str) -> Opened<E::Target> {
        let contexts = match self.contexts.take() {
            Some((of, contexts)) if of == name => contexts,
            _ => Vec::new(),
        };
        Opened { target, name: name.to_owned(), style: self.style, contexts }
    }

    /// The old way in, which has no way to say no.
    fn export_name(&mut self, data: &[u8], out: &mut Vec<u8>) -> Next<E::Target> {
        let Ok(name) = std::str::from_utf8(data) else { return Next::Close };
        let target = match self.open(name) {
            Ok(target) => target,
            Err(error) => {
                tracing::info!(export = name, %error, "a client asked for an export it cannot have");
                return Next::Close;
            }
        };
        let size_bytes = target.size_bytes();
        let opened = self.opened(target, name);
        out.extend_from_slice(&size_bytes.to_be_bytes());
        out.extend_from_slice(&export_flags(&opened).to_be_bytes());
        if !self.no_zeroes {
            out.extend_from_slice(&[0; EXPORT_NAME_PADDING_BYTES]);
        }
        Next::Transmission(opened)
    }

    fn list(&self, data: &[u8], reply: &mut Reply<'_>) {
        if !data.is_empty() {
            return reply.error(rep::ERR_INVALID, "a list takes no data");
        }
        for (name, description) in self.exports.list(LIST_MAX) {
            let name = name.to_string();
            let name_bytes = (name.len() as u32).to_be_bytes();
            reply.send(rep::SERVER, &[&name_bytes, name.as_bytes(), description.as_bytes()]);
        }
        reply.ack();
    }

    fn raise_style(&mut self, wanted: Style, data: &[u8], reply: &mut Reply<'_>) {
        if !data.is_empty() {
            reply.error(rep::ERR_INVALID, "this option takes no data");
        } else if self.style == Style::Extended && wanted == Style::Structured {
            reply.error(rep::ERR_EXT_HEADER_REQD, "extended headers are on already");
        } else if self.style >= wanted {
            reply.error(rep::ERR_INVALID, "this option is on already");
        } else {
            self.style = wanted;
            reply.ack();
        }
    }

    /// The parsed request and the snapshots of the disk it is about; replies when there is none.
    fn meta_request<'d>(
        &self,
        data: &'d [u8],
        reply: &mut Reply<'_>,
    ) -> Option<(MetaRequest<'d>, Vec<Name>)> {
        if self.style == Style::Simple {
            reply.error(rep::ERR_INVALID, "ask for structured replies first");
            return None;
        }
        let Some(request) = MetaRequest::parse(data) else {
            reply.error(rep::ERR_INVALID, "malformed query");
            return None;
        };
        let snapshots = match self.open(request.name).and_then(|_exists| {
            let export: ExportName = request.name.parse()?;
            self.exports.snapshots(export.disk())
        }) {
            Ok(snapshots) => snapshots,
            Err(error) => {
                reply.refuse(&error);
                return None;
            }
        };
        Some((request, snapshots))
    }

    fn list_contexts(&self, data: &[u8], reply: &mut Reply<'_>) {
        let Some((request, snapshots)) = self.meta_request(data, reply) else { return };
        let found: Vec<MetaContext> = if request.queries.is_empty() {
            MetaContext::matching(None, &snapshots)
        } else if request.queries.len() > CONTEXTS_MAX {
            return reply.error(rep::ERR_TOO_BIG, "too many queries");
        } else {
            request.queries.iter().flat_map(|query| MetaContext::matching(Some(query), &snapshots)).collect()
        };
        for context in found.iter().take(LIST_MAX) {
            reply.send(rep::META_CONTEXT, &[&[0; 4], context.to_string().as_bytes()]);
        }
        reply.ack();
    }

    fn set_contexts(&mut self, data: &[u8], reply: &mut Reply<'_>) {
        self.contexts = None;
        let Some((request, snapshots)) = self.meta_request(data, reply) else { return };
        let mut selected: Vec<MetaContext> = Vec::new();
        for query in request.queries {
            match MetaContext::select(query, &snapshots) {
                Some(context) if !selected.contains(&context) => selected.push(context),
                _ => {}
            }
            if selected.len() > CONTEXTS_MAX {
                return reply.error(rep::ERR_TOO_BIG, "too many contexts");
            }
        }
        for (index, context) in selected.iter().enumerate() {
            let id = context_id(index).to_be_bytes();
            reply.send(rep::META_CONTEXT, &[&id, context.to_string().as_bytes()]);
        }
        reply.ack();
        self.contexts = Some((request.name.to_owned(), selected));
    }

    fn info_or_go(&mut self, data: &[u8], reply: &mut Reply<'_>) -> Next<E::Target> {
        let Some(request) = InfoRequest::parse(data) else {
            reply.error(rep::ERR_INVALID, "malformed request");
            return Next::Option;
        };
        let target = match self.open(request.name) {
            Ok(target) => target,
            Err(error) => {
                reply.refuse(&error);
                return Next::Option;
            }
        };
        let contexts = self.contexts.clone();
        let opened = self.opened(target, request.name);
        describe(&opened, &request.wanted, reply);
        reply.ack();
        if reply.option == code::GO {
            return Next::Transmission(opened);
        }
        self.contexts = contexts;
        Next::Option
    }
}

/// The id of the context at `index` of a connection's list.
pub(crate) fn context_id(index: usize) -> u32 {
    index as u32 + 1
}

fn describe<T: Target>(opened: &Opened<T>, wanted: &[u16], reply: &mut Reply<'_>) {
    let target = &opened.target;
    let size = target.size_bytes().to_be_bytes();
    reply.send(rep::INFO, &[&info::EXPORT.to_be_bytes(), &size, &export_flags(opened).to_be_bytes()]);
    if wanted.contains(&info::NAME) {
        reply.send(rep::INFO, &[&info::NAME.to_be_bytes(), opened.name.as_bytes()]);
    }
    if wanted.contains(&info::DESCRIPTION) {
        reply.send(rep::INFO, &[&info::DESCRIPTION.to_be_bytes(), target.description().as_bytes()]);
    }
    if wanted.contains(&info::BLOCK_SIZE) {
        let sizes = [REQUEST_BYTES_MIN, REQUEST_BYTES_PREFERRED, REQUEST_BYTES_MAX].map(u32::to_be_bytes);
        reply.send(rep::INFO, &[&info::BLOCK_SIZE.to_be_bytes(), sizes.as_flattened()]);
    }
}

/// What the client may do with the export.
fn export_flags<T: Target>(opened: &Opened<T>) -> u16 {
    let mut flags = export_flag::HAS_FLAGS
        | export_flag::SEND_FLUSH
        | export_flag::SEND_FUA
        | export_flag::CAN_MULTI_CONN
        | export_flag::SEND_CACHE;
    flags |= if opened.target.read_only() {
        export_flag::READ_ONLY
    } else {
        export_flag::SEND_TRIM | export_flag::SEND_WRITE_ZEROES | export_flag::SEND_FAST_ZERO
    };
    if opened.style >= Style::Structured {
        flags |= export_flag::SEND_DF;
    }
    if opened.style == Style::Extended && !opened.contexts.is_empty() {
        flags |= export_flag::BLOCK_STATUS_PAYLOAD;
    }
    flags
}

/// Replies to one option.
struct Reply<'a> {
    option: u32,
    out: &'a mut Vec<u8>,
}

impl Reply<'_> {
    fn send(&mut self, kind: u32, parts: &[&[u8]]) {
        option::reply(self.out, self.option, kind, parts);
    }

    fn ack(&mut self) {
        self.send(rep::ACK, &[]);
    }

    fn error(&mut self, kind: u32, message: &str) {
        self.send(kind, &[message.as_bytes()]);
    }

    /// The store's reason why an export cannot be had.
    fn refuse(&mut self, error: &Error) {
        let kind = match error.kind() {
            Kind::NotFound | Kind::Invalid => rep::ERR_UNKNOWN,
            Kind::Closed | Kind::Fenced => rep::ERR_SHUTDOWN,
            _ => rep::ERR_POLICY,
        };
        self.error(kind, &error.to_string());
    }
}
