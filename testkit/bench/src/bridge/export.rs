//! The disk as an NBD export, to one client at a time: fixed newstyle negotiation and simple replies (NetworkBlockDevice/nbd, doc/proto.md).

use crate::device::{Device, Ended, Kind};
use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

/// What a request may carry, in bytes.
pub(crate) const LARGEST: usize = 1 << 20;
/// How long it sleeps between two looks at the device while that has something to do: there is no interrupt to wait for.
const GLANCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000 };

const GREETING: &[u8] = b"NBDMAGICIHAVEOPT\0\x03";
const REPLY: u64 = 0x3_E889_0455_65A9;
const REQUEST: u32 = 0x2560_9513;
const ANSWER: u32 = 0x6744_6698;
const ABORT: u32 = 2;
const INFO: u32 = 6;
const GO: u32 = 7;
const ACK: u32 = 1;
const REP_INFO: u32 = 3;
const UNSUPPORTED: u32 = (1 << 31) + 1;
/// There are flags, and it can be flushed.
const FLAGS: u16 = 1 | 4;
const EIO: u32 = 5;
const EINVAL: u32 = 22;
const DISCONNECT: u16 = 2;
const HEAD: usize = 28;

/// A request that is with the device: what its client knows it by, and how many bytes it is answered with.
pub(crate) struct Asked {
    cookie: u64,
    answer_bytes: usize,
}

/// Until the client has chosen the one export there is, by whatever name; whether it has.
///
/// # Errors
///
/// When the client goes.
pub(crate) fn negotiate(client: &mut UnixStream, size: u64) -> Result<bool> {
    client.write_all(GREETING)?;
    client.read_exact(&mut [0; 4])?;
    loop {
        let mut head = [0; 16];
        client.read_exact(&mut head)?;
        let option = u32::from_be_bytes(head[8..12].try_into()?);
        let mut data = vec![0; usize::try_from(u32::from_be_bytes(head[12..].try_into()?))?];
        client.read_exact(&mut data)?;
        let mut answer = |kind: u32, data: &[u8]| {
            let head = [
                &REPLY.to_be_bytes()[..],
                &option.to_be_bytes(),
                &kind.to_be_bytes(),
                &(data.len() as u32).to_be_bytes(),
            ];
            client.write_all(&[head.concat(), data.to_vec()].concat())
        };
        match option {
            ABORT => {
                answer(ACK, &[])?;
                return Ok(false);
            }
            GO | INFO => {
                // What there is, and the sizes that suit it.
                answer(REP_INFO, &[&[0, 0], &size.to_be_bytes()[..], &FLAGS.to_be_bytes()].concat())?;
                let sizes = [512u32, 4096, LARGEST as u32].map(u32::to_be_bytes).concat();
                answer(REP_INFO, &[&[0, 3], &sizes[..]].concat())?;
                answer(ACK, &[])?;
                if option == GO {
                    return Ok(true);
                }
            }
            _ => answer(UNSUPPORTED, &[])?,
        }
    }
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
        let Some(head) = said.get(..HEAD) else { return false };
        let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("four bytes"));
        let long = |at: usize| u64::from_be_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        let (cookie, offset, len) = (long(8), long(16), word(24) as usize);
        let kind = match word(4) as u16 {
            0 => Some(Kind::Read),
            1 => Some(Kind::Write),
            3 => Some(Kind::Flush),
            _ => None,
        };
        let carried = if kind == Some(Kind::Write) { len } else { 0 };
        if word(0) != REQUEST || word(4) as u16 == DISCONNECT || carried > LARGEST {
            self.has_gone = true;
            return false;
        }
        let Some(data) = said.get(HEAD..HEAD + carried) else { return false };
        match kind {
            Some(kind) if kind == Kind::Flush || (1..=LARGEST).contains(&len) => {
                let Some(slot) = self.device.free() else { return false };
                let len = if kind == Kind::Flush { 0 } else { len };
                let answer_bytes = if kind == Kind::Read { len } else { 0 };
                self.device.data_mut(slot, carried).copy_from_slice(data);
                self.device.submit(slot, kind, offset, len, Asked { cookie, answer_bytes });
            }
            _ => put_head(&mut self.answers, EINVAL, cookie),
        }
        self.taken += HEAD + carried;
        true
    }

    fn answer(&mut self, ended: &Ended<Asked>) {
        let Asked { cookie, answer_bytes } = ended.token;
        put_head(&mut self.answers, if ended.is_good { 0 } else { EIO }, cookie);
        if ended.is_good {
            self.answers.extend_from_slice(self.device.data(ended.slot, answer_bytes));
        }
        self.device.give_back(ended.slot);
    }
}

fn put_head(answers: &mut Vec<u8>, error: u32, cookie: u64) {
    answers.extend_from_slice(&ANSWER.to_be_bytes());
    answers.extend_from_slice(&error.to_be_bytes());
    answers.extend_from_slice(&cookie.to_be_bytes());
}
