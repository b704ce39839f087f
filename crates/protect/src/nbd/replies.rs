//! What a server answers, and to whom. All numbers are big-endian.
//!
//! | a simple reply | bytes | | a chunk of a structured reply | bytes |
//! |---|---|---|---|---|
//! | magic 0x67446698 | 4 | | magic 0x668e33ef | 4 |
//! | error, 0 for none | 4 | | flags: 1 the last of this answer | 2 |
//! | cookie | 8 | | type | 2 |
//! | of a read, its data | | | cookie | 8 |
//! | | | | length of what follows | 4 |
//!
//! | type of a chunk | what follows |
//! |---|---|
//! | 0 none | |
//! | 1 data | offset (8), data |
//! | 2 a hole | offset (8), length (4) |
//! | 5 block status | number of the context (4), then for each run its length (4) and flags (4): of an allocation 1 a hole, 2 reads as zeros; of a bitmap 1 marked |
//! | from 32768 on an error | error (4), length of a text (2), text, and more |

use super::handshake::{Export, nonsense};
use super::{Read, Reader, Run, Told};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use stonefold_env::Env;
use stonefold_types::{Error, Kind, Result};
use tokio::io::AsyncReadExt;
use tokio::sync::oneshot;

const SIMPLE_MAGIC: u32 = 0x6744_6698;
const CHUNK_MAGIC: u32 = 0x668e_33ef;
const LAST: u16 = 1;
const NONE: u16 = 0;
const DATA: u16 = 1;
const HOLE: u16 = 2;
const STATUS: u16 = 5;
const ERROR: u16 = 1 << 15;
const READS_AS_ZEROS: u32 = 2;
const MARKED: u32 = 1;
/// The longest chunk that tells of an error, in bytes: its text has 4096 at most.
const ERROR_BYTES_MAX: u32 = 8 << 10;
/// The longest chunk that tells of runs, in bytes: a million of them, as nbdkit tells at most.
const STATUS_BYTES_MAX: u32 = (8 << 20) + 4;

/// What the task that reads has in common with those who wait.
pub(super) struct Shared {
    pub(super) waiting: Mutex<Waiting>,
    /// When the server last said anything, by the monotonic clock.
    pub(super) heard: Mutex<Duration>,
}

#[derive(Default)]
pub(super) struct Waiting {
    pub(super) next: u64,
    pub(super) asked: HashMap<u64, Asked>,
    /// Why nobody is answered any more.
    pub(super) gone: Option<Error>,
}

impl Shared {
    pub(super) fn why_gone(&self, sending: Option<std::io::Error>) -> Error {
        let why = self.waiting.lock().gone.clone();
        why.unwrap_or_else(|| match sending {
            Some(error) => gone(error),
            None => nonsense(),
        })
    }
}

/// A request that waits for its answer.
pub(super) struct Asked {
    pub(super) cookie: u64,
    pub(super) offset: u64,
    pub(super) len: u32,
    what: What,
    failed: Option<Error>,
    tell: oneshot::Sender<Result<Answer>>,
}

enum What {
    /// What has come, and which parts of it were told of: beginning and end.
    Read {
        bytes: Vec<u8>,
        sent: u64,
        told: Vec<(u64, u64)>,
    },
    Runs(Statuses),
}

/// What has come of each context: length and flags of runs, which together are no longer than what was asked for.
#[derive(Default)]
struct Statuses {
    allocation: Vec<(u64, u32)>,
    changed: Vec<(u64, u32)>,
}

pub(super) enum Answer {
    Read(Read),
    Runs(Vec<Run>),
}

impl Asked {
    pub(super) fn read(offset: u64, len: u32) -> (Asked, Told) {
        Asked::new(offset, len, What::Read { bytes: vec![0; len as usize], sent: 0, told: Vec::new() })
    }

    pub(super) fn runs(offset: u64, len: u32) -> (Asked, Told) {
        Asked::new(offset, len, What::Runs(Statuses::default()))
    }

    fn new(offset: u64, len: u32, what: What) -> (Asked, Told) {
        let (tell, told) = oneshot::channel();
        (Asked { cookie: 0, offset, len, what, failed: None, tell }, told)
    }

    /// The answer is over: tells what came. False where it was none.
    fn end(self, export: &Export) -> bool {
        let (is_whole, answer) = match (self.failed, self.what) {
            (Some(error), _) => (true, Err(error)),
            (None, What::Read { bytes, sent, mut told }) => {
                told.sort_unstable();
                let end = told.iter().try_fold(0, |end, part| (part.0 == end).then_some(part.1));
                (end == Some(u64::from(self.len)), Ok(Answer::Read(Read { bytes, sent })))
            }
            (None, What::Runs(told)) => {
                let runs = told.runs(export);
                (!runs.is_empty(), Ok(Answer::Runs(runs)))
            }
        };
        if is_whole {
            // Whoever asked may have given up.
            let _ = self.tell.send(answer);
        }
        is_whole
    }

    fn fail(&mut self, code: u32, text: &str) {
        let what = match self.what {
            What::Read { .. } => "read",
            What::Runs(_) => "tell of",
        };
        let text = if text.is_empty() { String::new() } else { format!(": {}", text.escape_debug()) };
        let (len, offset) = (self.len, self.offset);
        let what = format!(
            "the NBD server could not {what} {len} bytes at {offset}: {} ({code}){text}",
            words_of(code)
        );
        self.failed.get_or_insert(Error::new(Kind::Io, what).remedy("look at what it logs"));
    }
}

impl Statuses {
    /// As far as all contexts of the export have told.
    fn runs(self, export: &Export) -> Vec<Run> {
        let whole = |number: Option<u32>, told: Vec<(u64, u32)>, flags: u32| match number {
            Some(_) => told,
            None => vec![(u64::MAX, flags)],
        };
        let mut allocation = whole(export.allocation, self.allocation, 0).into_iter();
        let mut changed = whole(export.changed, self.changed, MARKED).into_iter();
        let (mut of_one, mut of_other) = (allocation.next(), changed.next());
        let mut runs = Vec::new();
        while let (Some((one, zero)), Some((other, marked))) = (of_one, of_other) {
            let bytes = one.min(other);
            runs.push(Run { bytes, zero: zero & READS_AS_ZEROS != 0, changed: marked & MARKED != 0 });
            of_one = if one > bytes { Some((one - bytes, zero)) } else { allocation.next() };
            of_other = if other > bytes { Some((other - bytes, marked)) } else { changed.next() };
        }
        runs
    }
}

fn words_of(code: u32) -> &'static str {
    match code {
        1 => "not permitted",
        5 => "an error of its medium",
        12 => "it has no memory",
        22 => "it takes the request for a wrong one",
        28 => "it has no space",
        75 => "the request is too long for it",
        95 => "it cannot do that",
        108 => "it is about to stop",
        _ => "an error",
    }
}

fn gone(error: std::io::Error) -> Error {
    Error::new(Kind::Io, format!("the NBD server has gone: {error}"))
        .remedy("look at what it logs, start it again, and run the backup again")
}

/// Takes answers from the server until it goes or nobody wants them any more.
pub(super) struct Ears {
    pub(super) env: Env,
    pub(super) reader: Reader,
    pub(super) shared: Arc<Shared>,
    pub(super) export: Export,
}

impl Ears {
    pub(super) async fn listen(mut self, mut ended: oneshot::Receiver<()>) {
        let shared = self.shared.clone();
        let listening = async {
            loop {
                if let Err(error) = self.answer().await {
                    return error;
                }
            }
        };
        let why = tokio::select! {
            why = listening => why,
            _ = &mut ended => return,
        };
        shared.waiting.lock().end(why);
    }

    /// Fills a buffer, however long that takes, and notes that the server lives.
    async fn fill(&mut self, buffer: &mut [u8]) -> Result<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.reader.read(&mut buffer[filled..]).await {
                Ok(0) => return Err(gone(std::io::Error::other("it has hung up"))),
                Ok(more) => filled += more,
                Err(error) => return Err(gone(error)),
            }
            *self.shared.heard.lock() = self.env.monotonic();
        }
        Ok(())
    }

    async fn number<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes).await?;
        Ok(bytes)
    }

    /// Takes a simple reply, or a chunk of a structured one.
    async fn answer(&mut self) -> Result<()> {
        match u32::from_be_bytes(self.number().await?) {
            SIMPLE_MAGIC => self.simple().await,
            CHUNK_MAGIC if self.export.structured => self.chunk().await,
            _ => Err(nonsense()),
        }
    }

    /// Whose answer it is. Put back where it goes on.
    fn take(&self, cookie: [u8; 8]) -> Result<Asked> {
        let taken = self.shared.waiting.lock().asked.remove(&u64::from_be_bytes(cookie));
        taken.ok_or_else(nonsense)
    }

    async fn simple(&mut self) -> Result<()> {
        let code = u32::from_be_bytes(self.number().await?);
        let cookie = self.number().await?;
        let mut asked = self.take(cookie)?;
        if code != 0 {
            asked.fail(code, "");
        } else {
            match &mut asked.what {
                What::Read { bytes, sent, told } if !self.export.structured => {
                    self.fill(bytes).await?;
                    *sent = bytes.len() as u64;
                    told.push((0, *sent));
                }
                _ => return Err(nonsense()),
            }
        }
        if asked.end(&self.export) { Ok(()) } else { Err(nonsense()) }
    }

    async fn chunk(&mut self) -> Result<()> {
        let head: [u8; 4] = self.number().await?;
        let (flags, kind) = (u16::from_be_bytes([head[0], head[1]]), u16::from_be_bytes([head[2], head[3]]));
        let cookie = self.number().await?;
        let mut asked = self.take(cookie)?;
        let bytes = u32::from_be_bytes(self.number().await?);
        match kind {
            NONE if bytes == 0 && flags & LAST != 0 => {}
            DATA => self.data(&mut asked, bytes).await?,
            HOLE if bytes == 12 => self.hole(&mut asked).await?,
            STATUS if bytes <= STATUS_BYTES_MAX => self.status(&mut asked, bytes).await?,
            kind if kind & ERROR != 0 && bytes <= ERROR_BYTES_MAX => self.error(&mut asked, bytes).await?,
            _ => return Err(nonsense()),
        }
        if flags & LAST == 0 {
            self.shared.waiting.lock().asked.insert(asked.cookie, asked);
            return Ok(());
        }
        if asked.end(&self.export) { Ok(()) } else { Err(nonsense()) }
    }

    async fn data(&mut self, asked: &mut Asked, chunk_bytes: u32) -> Result<()> {
        let from = u64::from_be_bytes(self.number().await?);
        let (offset, len) = (asked.offset, asked.len);
        let What::Read { bytes, sent, told } = &mut asked.what else { return Err(nonsense()) };
        let part = part(offset, len, from, chunk_bytes.checked_sub(8).ok_or_else(nonsense)?, told)?;
        self.fill(&mut bytes[part.0 as usize..part.1 as usize]).await?;
        *sent += part.1 - part.0;
        Ok(())
    }

    async fn hole(&mut self, asked: &mut Asked) -> Result<()> {
        let from = u64::from_be_bytes(self.number().await?);
        let hole = u32::from_be_bytes(self.number().await?);
        let (offset, len) = (asked.offset, asked.len);
        let What::Read { told, .. } = &mut asked.what else { return Err(nonsense()) };
        // What nothing was told of is zeros already.
        part(offset, len, from, hole, told).map(drop)
    }

    async fn status(&mut self, asked: &mut Asked, chunk_bytes: u32) -> Result<()> {
        let mut chunk = vec![0; chunk_bytes as usize];
        self.fill(&mut chunk).await?;
        let four = |at: &[u8]| u32::from_be_bytes(at.try_into().expect("four bytes"));
        let (What::Runs(all), Some((context, told))) = (&mut asked.what, chunk.split_first_chunk::<4>())
        else {
            return Err(nonsense());
        };
        let runs = match Some(u32::from_be_bytes(*context)) {
            context if context == self.export.allocation => &mut all.allocation,
            context if context == self.export.changed => &mut all.changed,
            _ => return Err(nonsense()),
        };
        if !runs.is_empty() || told.is_empty() || told.len() % 8 != 0 {
            return Err(nonsense());
        }
        let mut left = u64::from(asked.len);
        for run in told.chunks_exact(8) {
            // The last may go on beyond what was asked for.
            let bytes = u64::from(four(&run[..4])).min(left);
            if bytes == 0 {
                return Err(nonsense());
            }
            left -= bytes;
            runs.push((bytes, four(&run[4..])));
            if left == 0 {
                break;
            }
        }
        Ok(())
    }

    async fn error(&mut self, asked: &mut Asked, chunk_bytes: u32) -> Result<()> {
        let mut chunk = vec![0; chunk_bytes as usize];
        self.fill(&mut chunk).await?;
        let Some((head, rest)) = chunk.split_first_chunk::<6>() else { return Err(nonsense()) };
        let code = u32::from_be_bytes(head[..4].try_into().expect("four bytes"));
        let text_bytes = usize::from(u16::from_be_bytes([head[4], head[5]]));
        let text = rest.get(..text_bytes).ok_or_else(nonsense)?;
        asked.fail(code, &String::from_utf8_lossy(text));
        Ok(())
    }
}

/// A part of what was asked for, from its beginning on; noted as told. Fails where it is none, or too many were told of.
fn part(offset: u64, len: u32, from: u64, bytes: u32, told: &mut Vec<(u64, u64)>) -> Result<(u64, u64)> {
    let begin = from.checked_sub(offset).ok_or_else(nonsense)?;
    let end =
        begin.checked_add(u64::from(bytes)).filter(|end| *end <= u64::from(len)).ok_or_else(nonsense)?;
    // None is empty, so there are no more than bytes; and no server has reason to tell of less than a sector.
    if bytes == 0 || told.len() > len as usize / 512 {
        return Err(nonsense());
    }
    told.push((begin, end));
    Ok((begin, end))
}
