//! The disk as an NBD export, to one client at a time: fixed newstyle negotiation and simple replies, whose
//! bytes are drawn in [`stonefold_nbd::wire`].

use crate::device::{Device, Ended, Kind};
use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use stonefold_nbd::wire::option::{OPTION_HEADER_BYTES, OptionHeader, code, greeting, info, rep, reply};
use stonefold_nbd::wire::request::{Command, Request, header_bytes};
use stonefold_nbd::wire::{self, Style, export_flag, handshake_flag, reply::simple};

/// What a request may carry, in bytes.
pub(crate) const LARGEST: usize = 1 << 20;
/// How long it sleeps between two looks at the device while that has something to do: there is no interrupt to wait for.
const GLANCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000 };

/// Data of an option: a name, and what is wanted of it. No client says more.
const OPTION_BYTES_MAX: usize = 8 << 10;
const STYLE: Style = Style::Simple;

/// A request that is with the device: what its client knows it by, and how many bytes it is answered with.
pub(crate) struct Asked {
    cookie: u64,
    answer_bytes: usize,
}

/// Until the client has chosen the one export there is, by whatever name; whether it has.
///
/// # Errors
///
/// When the client goes, or says what is no option.
pub(crate) fn negotiate(client: &mut UnixStream, size: u64) -> Result<bool> {
    client.write_all(&greeting(handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES))?;
    client.read_exact(&mut [0; 4])?;
    loop {
        let mut head = [0; OPTION_HEADER_BYTES];
        client.read_exact(&mut head)?;
        let option = OptionHeader::parse(&head).context("the client says what is no option")?;
        let data_bytes = option.data_bytes as usize;
        if data_bytes > OPTION_BYTES_MAX {
            bail!("the client says {data_bytes} bytes of an option");
        }
        client.read_exact(&mut vec![0; data_bytes])?;
        let mut answers = Vec::new();
        match option.code {
            code::ABORT => reply(&mut answers, code::ABORT, rep::ACK, &[]),
            code::GO | code::INFO => tell_of_export(&mut answers, option.code, size),
            unknown => reply(&mut answers, unknown, rep::ERR_UNSUP, &[]),
        }
        client.write_all(&answers)?;
        match option.code {
            code::ABORT => return Ok(false),
            code::GO => return Ok(true),
            _ => (),
        }
    }
}

/// How large it is, that it can be flushed, and the sizes of requests that suit it.
fn tell_of_export(answers: &mut Vec<u8>, option: u32, size: u64) {
    let flags = export_flag::HAS_FLAGS | export_flag::SEND_FLUSH;
    let export = [&info::EXPORT.to_be_bytes()[..], &size.to_be_bytes(), &flags.to_be_bytes()];
    reply(answers, option, rep::INFO, &export);
    let sizes = [512, 4096, LARGEST as u32].map(u32::to_be_bytes).concat();
    reply(answers, option, rep::INFO, &[&info::BLOCK_SIZE.to_be_bytes(), &sizes]);
    reply(answers, option, rep::ACK, &[]);
}

/// A client that has chosen the export.
pub(crate) struct Session<'a> {
    client: UnixStream,
    device: &'a mut Device<Asked>,
    /// What it has said and nobody has taken yet.
    said: Vec<u8>,
    /// How much of that was taken since the last time it was moved up.
    taken: usize,
    answers: Vec<u8>,
    has_gone: bool,
}

impl<'a> Session<'a> {
    /// One that has negotiated.
    pub(crate) fn new(client: UnixStream, device: &'a mut Device<Asked>) -> Self {
        Self { client, device, said: Vec::new(), taken: 0, answers: Vec::new(), has_gone: false }
    }

    /// Until the client has gone and nothing of it is with the device.
    ///
    /// # Errors
    ///
    /// When QEMU has gone.
    pub(crate) fn serve(mut self) -> Result<()> {
        while !self.has_gone || self.device.is_asked() {
            self.listen()?;
            while !self.has_gone && self.take() {}
            self.said.drain(..std::mem::take(&mut self.taken));
            self.device.ring()?;
            self.device.hear()?;
            while let Some(ended) = self.device.ended()? {
                self.answer(&ended);
            }
            let answers = std::mem::take(&mut self.answers);
            self.has_gone |= self.client.write_all(&answers).is_err();
        }
        Ok(())
    }

    /// What the client says; sleeps until it does, or may have.
    fn listen(&mut self) -> Result<()> {
        let patience = self.device.is_asked().then_some(&GLANCE);
        let flags = if self.has_gone || !self.device.has_room() { PollFlags::empty() } else { PollFlags::IN };
        let mut waited = [PollFd::new(&self.client, flags)];
        match poll(&mut waited, patience) {
            Ok(_) | Err(Errno::INTR) => (),
            Err(error) => return Err(error).context("waiting for the client"),
        }
        if !waited[0].revents().contains(PollFlags::IN) {
            return Ok(());
        }
        let mut part = [0; 64 << 10];
        match recv(&self.client, &mut part, RecvFlags::DONTWAIT) {
            Ok((count @ 1.., _)) => self.said.extend_from_slice(&part[..count]),
            Err(Errno::AGAIN | Errno::INTR) => (),
            Ok(_) | Err(_) => self.has_gone = true,
        }
        Ok(())
    }

    /// One request of what was said, to the device; whether there was a whole one, and a place for it.
    fn take(&mut self) -> bool {
        let said = &self.said[self.taken..];
        let request = match Request::parse(said, STYLE) {
            Ok(Some(request)) => request,
            Ok(None) => return false,
            Err(_) => return self.give_up(),
        };
        let (head, len) = (header_bytes(STYLE), request.length as usize);
        let (kind, len, carried, answer_bytes) = match request.command {
            Command::Disconnect => return self.give_up(),
            Command::Write if len > LARGEST => return self.give_up(),
            Command::Read if (1..=LARGEST).contains(&len) => (Kind::Read, len, 0, len),
            Command::Write if len > 0 => (Kind::Write, len, len, 0),
            Command::Flush => (Kind::Flush, 0, 0, 0),
            _ => {
                self.answers.extend_from_slice(&simple(request.cookie, wire::Errno::Inval as u32));
                self.taken += head;
                return true;
            }
        };
        let Some(data) = said.get(head..head + carried) else { return false };
        let Some(slot) = self.device.free() else { return false };
        self.device.data_mut(slot, carried).copy_from_slice(data);
        self.device.submit(slot, kind, request.offset, len, Asked { cookie: request.cookie, answer_bytes });
        self.taken += head + carried;
        true
    }

    /// What comes now cannot be followed, or nothing does.
    fn give_up(&mut self) -> bool {
        self.has_gone = true;
        false
    }

    fn answer(&mut self, ended: &Ended<Asked>) {
        let Asked { cookie, answer_bytes } = ended.token;
        let error = if ended.is_good { 0 } else { wire::Errno::Io as u32 };
        self.answers.extend_from_slice(&simple(cookie, error));
        if ended.is_good {
            self.answers.extend_from_slice(self.device.data(ended.slot, answer_bytes));
        }
        self.device.give_back(ended.slot);
    }
}
