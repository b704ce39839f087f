//! A conversation with the script that runs on the other machine ([remote.sh](remote.sh)), over the system's own `ssh`.
//!
//! *Promises*: many requests at once, answered in their order; an answer is whole, or an error that says why in words of ssh's or of the other
//! machine's; when this goes, the script's input ends, and it takes away what it made. *Never*: asks anybody for a password; believes a length before it is bounded.
//!
//! ```text
//! what ssh runs:   exec sh -c '… eval "$(dd bs=1 count=N)"'      as root, by `sudo -n` where the user is not
//! to it:           the script's N bytes, then requests, a line each (`sums` has more): VERB WORD...
//! from it:         whatever the user's shell says, then a line `stonefold 1`, then for each request in turn
//!                      = NUMBER BYTES     and so many bytes; or
//!                      ! NUMBER WORDS     and the end
//! ```

use super::SshMachine;
use super::complaint::complaint;
use crate::qmp::within;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use stonefold_env::Env;
use stonefold_types::{Error, Kind, Result};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::oneshot;

/// How long a connection may take to be made, in seconds.
const CONNECT_SECONDS: u32 = 20;
/// That one which is gone is noticed: ssh asks every so many seconds, and gives up after so many without an answer.
const ALIVE_SECONDS: u32 = 15;
const ALIVE_COUNT: u32 = 4;
/// How long an answer may take: that of a sum over all of a partition on a slow disk, say.
const ANSWER_MAX: Duration = Duration::from_secs(3600);
/// How long the script may take to remove its snapshots.
const LEAVE_MAX: Duration = Duration::from_secs(120);
/// The longest answer, in bytes: what a machine with thousands of volumes tells.
const ANSWER_BYTES_MAX: u64 = 16 << 20;
/// What a user's shell may say before the script begins, in bytes; and the longest line of an answer's beginning.
const GREETING_BYTES_MAX: usize = 64 << 10;
const LINE_BYTES_MAX: usize = 4 << 10;
/// What is kept of what ssh and the other machine complain of, in bytes.
const SAID_BYTES_MAX: usize = 16 << 10;
const SCRIPT: &str = include_str!("remote.sh");
const BEGINS: &str = "stonefold 1";

/// See the module.
pub(super) struct Session {
    env: Env,
    /// Requests are sent and waited for in one order; nothing once it is to end.
    input: tokio::sync::Mutex<Option<ChildStdin>>,
    shared: Arc<Shared>,
    child: tokio::sync::Mutex<Child>,
}

/// What the session has in common with who listens.
struct Shared {
    waiting: Mutex<Waiting>,
    /// What was complained of.
    said: Mutex<Vec<u8>>,
    /// Where it leads, for people.
    to: SshMachine,
}

#[derive(Default)]
struct Waiting {
    asked: VecDeque<oneshot::Sender<Result<Vec<u8>>>>,
    /// Why nobody is answered any more.
    gone: Option<Error>,
}

impl Session {
    /// Begins one. Whether it was let in is told by the first answer.
    ///
    /// # Errors
    /// [`Kind::NotFound`] where ssh is not installed.
    pub(super) async fn begin(env: &Env, to: &SshMachine) -> Result<Session> {
        let mut command = Command::new("ssh");
        command.args(arguments(to)?).env("LC_ALL", "C").current_dir("/");
        // In a group of its own: a terminal's Ctrl-C does not reach it, so that things stop in their order.
        command.process_group(0).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|e| match e.kind() {
            ErrorKind::NotFound => Error::new(Kind::NotFound, "ssh is not installed where the server runs")
                .remedy("install it: apt install openssh-client"),
            _ => Error::io("running ssh", e),
        })?;
        let lost = || Error::new(Kind::Io, "ssh has no pipes");
        let mut input = child.stdin.take().ok_or_else(lost)?;
        let (output, said) = (child.stdout.take().ok_or_else(lost)?, child.stderr.take().ok_or_else(lost)?);
        let waiting = Mutex::default();
        let shared = Arc::new(Shared { waiting, said: Mutex::default(), to: to.clone() });
        let (all_said, complained) = oneshot::channel();
        env.spawn("ssh complaints", hear(said, shared.clone(), all_said));
        env.spawn("ssh answers", listen(env.clone(), output, shared.clone(), complained));
        // One that is refused does not read it, and says why.
        let _ = input.write_all(SCRIPT.as_bytes()).await;
        let input = tokio::sync::Mutex::new(Some(input));
        Ok(Session { env: env.clone(), input, shared, child: tokio::sync::Mutex::new(child) })
    }

    /// What is answered to a request: a line, or several.
    pub(super) async fn ask(&self, request: &str) -> Result<Vec<u8>> {
        let (tell, told) = oneshot::channel();
        {
            let mut input = self.input.lock().await;
            let Some(input) = input.as_mut() else {
                return Err(Error::new(Kind::Closed, "the connection was closed"));
            };
            {
                let mut waiting = self.shared.waiting.lock();
                if let Some(why) = &waiting.gone {
                    return Err(why.clone());
                }
                waiting.asked.push_back(tell);
            }
            // Why it cannot be sent is found by who listens; he tells.
            let _ = input.write_all(request.as_bytes()).await;
            let _ = input.write_all(b"\n").await;
        }
        let told = within(&self.env, ANSWER_MAX, told).await.ok_or_else(|| {
            let what =
                format!("the other machine does not answer '{}'", request.lines().next().unwrap_or_default());
            Error::new(Kind::Io, what).remedy("look whether its disks answer")
        })?;
        told.unwrap_or_else(|_| Err(self.shared.why_gone()))
    }

    /// The same as text.
    pub(super) async fn ask_text(&self, request: &str) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.ask(request).await?).into_owned())
    }

    /// Ends it, and waits until the other machine has taken away what was made there. Returns what it complained of.
    pub(super) async fn end(&self) -> Option<String> {
        drop(self.input.lock().await.take());
        let mut child = self.child.lock().await;
        if within(&self.env, LEAVE_MAX, child.wait()).await.is_none() {
            let _ = child.start_kill();
            return Some("it does not end: what was made there goes at the next run".to_owned());
        }
        let said = self.shared.said.lock();
        let said = String::from_utf8_lossy(&said);
        let stays: Vec<&str> = said.lines().filter(|line| line.starts_with("the snapshot ")).collect();
        (!stays.is_empty()).then(|| stays.join("; "))
    }
}

/// What ssh is started with.
fn arguments(to: &SshMachine) -> Result<Vec<String>> {
    let place = to.place()?;
    let mut words: Vec<String> = vec!["-T".into()];
    for option in [
        "BatchMode=yes".to_owned(),
        "ClearAllForwardings=yes".to_owned(),
        "ForwardAgent=no".to_owned(),
        "ForwardX11=no".to_owned(),
        format!("ConnectTimeout={CONNECT_SECONDS}"),
        format!("ServerAliveInterval={ALIVE_SECONDS}"),
        format!("ServerAliveCountMax={ALIVE_COUNT}"),
    ] {
        words.extend(["-o".to_owned(), option]);
    }
    if let Some(port) = place.port {
        words.extend(["-p".to_owned(), port.to_string()]);
    }
    if let Some(user) = place.user {
        words.extend(["-l".to_owned(), user]);
    }
    if let Some(file) = &to.identity {
        words.extend(["-i".to_owned(), file.to_string_lossy().into_owned()]);
    }
    words.extend(["--".to_owned(), place.host, command()]);
    Ok(words)
}

/// What runs there: one line that any shell reads alike. The script comes behind it and not in it, so that neither a list of processes nor sudo's log is full of it;
/// it is read byte by byte, because what follows is not the shell's.
fn command() -> String {
    let bytes = SCRIPT.len();
    format!(
        r#"exec sh -c 's=; [ "$(id -u)" = 0 ] || s="sudo -n"; exec $s sh -c "eval \"\$(dd bs=1 count={bytes} 2>/dev/null)\"" stonefold'"#
    )
}

impl Shared {
    fn why_gone(&self) -> Error {
        let gone = self.waiting.lock().gone.clone();
        gone.unwrap_or_else(|| Error::new(Kind::Io, "the connection to the other machine ended"))
    }
}

/// Keeps what is complained of, the beginning of it.
async fn hear(mut said: impl AsyncRead + Unpin, shared: Arc<Shared>, done: oneshot::Sender<()>) {
    let mut bytes = [0; 1024];
    while let Ok(count @ 1..) = said.read(&mut bytes).await {
        let mut kept = shared.said.lock();
        let room = SAID_BYTES_MAX.saturating_sub(kept.len());
        kept.extend_from_slice(&bytes[..count.min(room)]);
    }
    // Whoever waits for it may have gone.
    let _ = done.send(());
}

/// Gives each answer to who waits for it; in the end tells all why there are no more.
async fn listen(env: Env, output: ChildStdout, shared: Arc<Shared>, complained: oneshot::Receiver<()>) {
    let mut output = BufReader::with_capacity(64 << 10, output);
    let mut heard = greeted(&mut output).await;
    while heard.is_ok() {
        heard = match answer(&mut output).await {
            Ok(answer) => {
                let first = shared.waiting.lock().asked.pop_front();
                let ended = answer.as_ref().map(|_| ()).map_err(Clone::clone);
                // Whoever asked may have gone.
                let _ = first.map(|first| first.send(answer));
                ended
            }
            Err(error) => Err(error),
        };
    }
    // What it said of it comes by another pipe.
    let _ = within(&env, Duration::from_secs(5), complained).await;
    let why = match heard {
        Err(error) if error.kind() != Kind::Closed => error,
        _ => complaint(&shared.said.lock(), &shared.to),
    };
    let mut waiting = shared.waiting.lock();
    waiting.gone.get_or_insert(why.clone());
    for asked in waiting.asked.drain(..) {
        let _ = asked.send(Err(why.clone()));
    }
}

/// Reads on to where the script begins.
async fn greeted(output: &mut (impl AsyncBufReadExt + Unpin)) -> Result<()> {
    let mut read = 0;
    loop {
        let line = line(output, GREETING_BYTES_MAX).await?;
        if line == BEGINS {
            return Ok(());
        }
        read += line.len() + 1;
        if read > GREETING_BYTES_MAX {
            return Err(nonsense("its shell says too much before it begins"));
        }
    }
}

/// A line without its end, no longer than that.
async fn line(output: &mut (impl AsyncBufReadExt + Unpin), bytes_max: usize) -> Result<String> {
    let mut line = Vec::new();
    let mut bounded = output.take(bytes_max as u64);
    bounded.read_until(b'\n', &mut line).await.map_err(|e| Error::io("reading what ssh says", e))?;
    match line.pop() {
        Some(b'\n') => Ok(String::from_utf8_lossy(&line).into_owned()),
        Some(_) if line.len() + 1 == bytes_max => Err(nonsense("a line of it has no end")),
        // Cut off, or over.
        _ => Err(Error::new(Kind::Closed, "the connection ended")),
    }
}

/// An answer, or what the script says why there is none; an error where it is over.
async fn answer(output: &mut (impl AsyncBufReadExt + Unpin)) -> Result<Result<Vec<u8>>> {
    let line = line(output, LINE_BYTES_MAX).await?;
    let mut words = line.splitn(3, ' ');
    match (words.next(), words.next(), words.next()) {
        (Some("="), Some(_), Some(bytes)) => {
            let bytes = bytes.parse().ok().filter(|bytes| *bytes <= ANSWER_BYTES_MAX);
            let bytes: u64 = bytes.ok_or_else(|| nonsense("an answer is too long"))?;
            let mut answer = vec![0; bytes as usize];
            // What is short was cut off: why is told elsewhere.
            let read = output.read_exact(&mut answer).await;
            read.map_err(|_| Error::new(Kind::Closed, "the connection ended"))?;
            Ok(Ok(answer))
        }
        (Some("!"), Some(_), Some(why)) => {
            Ok(Err(Error::new(Kind::Io, format!("the other machine says: {}", why.trim()))))
        }
        _ => Err(nonsense("an answer does not begin as one")),
    }
}

fn nonsense(why: &str) -> Error {
    let what = format!("the other machine answers otherwise than it was asked: {why}");
    Error::new(Kind::Io, what).remedy("see that its user's shell starts nothing that writes to its output")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn answers_are_read_to_their_ends() {
        let mut said: &[u8] = b"welcome\n\nstonefold 1\n= 1 5\nhello= 2 0\n! 3 no room\n= 4 9\nshort";
        greeted(&mut said).await.unwrap();
        assert_eq!(answer(&mut said).await.unwrap().unwrap(), b"hello");
        assert_eq!(answer(&mut said).await.unwrap().unwrap(), b"");
        let refused = answer(&mut said).await.unwrap().unwrap_err();
        assert!(refused.to_string().contains("says: no room"), "{refused}");
        assert_eq!(answer(&mut said).await.unwrap_err().kind(), Kind::Closed);
    }

    /// Goal: nothing that another machine says is more than a failed run.
    #[tokio::test]
    async fn nonsense_ends_it() {
        for said in ["", "= 1\n", "= 1 99999999999\n", "= 1 -1\n", "x\n", "= 1 18446744073709551616\n", "\n"]
        {
            assert!(answer(&mut said.as_bytes()).await.is_err(), "{said}");
        }
        let endless = vec![b'='; 2 * LINE_BYTES_MAX];
        assert!(answer(&mut &endless[..]).await.unwrap_err().to_string().contains("has no end"));
        let talk = b"ho\n".repeat(GREETING_BYTES_MAX);
        assert!(greeted(&mut &talk[..]).await.unwrap_err().to_string().contains("too much"));
    }
}
