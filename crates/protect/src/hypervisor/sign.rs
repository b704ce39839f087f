//! A sign of life that a machine is waited for.
//!
//! `agent`: the guest's agent answers. `port:N`: what listens on TCP port N of the guest answers with a byte at least; the guest needs an address from
//! QEMU's DHCP. `console:REGEX`: a text on the first serial port. `cmd:COMMAND`: a command run in the guest by its agent ends with 0.

use super::agent::Agent;
use super::qemu::{Folder, is_running};
use crate::qmp::within;
use regex::bytes::Regex;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use stonefold_env::Env;
use stonefold_types::{Error, Kind, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How often it is looked for.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long one look may take: a guest that boots answers nothing.
pub(super) const LOOK_MAX: Duration = Duration::from_secs(3);
/// What is kept of a console, in bytes: the end of it.
const CONSOLE_BYTES_MAX: u64 = 1 << 20;
/// What is shown of it where nothing was found.
const LAST_LINES: usize = 3;
/// The most of an answer that goes into a record, in characters.
const SAID_CHARS_MAX: usize = 200;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Sign {
    /// The guest's agent answers.
    Agent,
    /// What listens on this TCP port answers.
    Port(u16),
    /// A text on the console, as a regular expression.
    Console(String),
    /// A command in the guest ends with 0.
    Command(String),
}

impl Sign {
    /// Fails where it is none that libvirt can tell of a domain.
    pub(crate) fn check_of_domain(&self) -> Result<()> {
        match self {
            Sign::Agent | Sign::Command(_) => Ok(()),
            Sign::Port(_) | Sign::Console(_) => {
                let what = format!("of a domain of libvirt's no '{self}' can be waited for");
                Err(Error::new(Kind::Unsupported, what)
                    .remedy("wait for agent or cmd:COMMAND, or start it by qemu"))
            }
        }
    }
}

impl FromStr for Sign {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let wrong =
            || format!("'{text}' is no sign of life: write agent, port:N, console:REGEX or cmd:COMMAND");
        match text.split_once(':') {
            None if text == "agent" => Ok(Sign::Agent),
            Some(("port", port)) => {
                port.parse().ok().filter(|port| *port > 0).map(Sign::Port).ok_or_else(wrong)
            }
            Some(("console", pattern)) if !pattern.is_empty() => match Regex::new(pattern) {
                Ok(_) => Ok(Sign::Console(pattern.to_owned())),
                Err(error) => Err(format!("'{pattern}' is no regular expression: {error}")),
            },
            Some(("cmd", command)) if !command.trim().is_empty() => Ok(Sign::Command(command.to_owned())),
            _ => Err(wrong()),
        }
    }
}

impl TryFrom<String> for Sign {
    type Error = String;
    fn try_from(text: String) -> std::result::Result<Self, String> {
        text.parse()
    }
}

impl From<Sign> for String {
    fn from(sign: Sign) -> String {
        sign.to_string()
    }
}

impl fmt::Display for Sign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sign::Agent => f.write_str("agent"),
            Sign::Port(port) => write!(f, "port:{port}"),
            Sign::Console(pattern) => write!(f, "console:{pattern}"),
            Sign::Command(command) => write!(f, "cmd:{command}"),
        }
    }
}

/// A machine that is looked at.
pub(crate) struct Watched<'a> {
    pub(crate) env: &'a Env,
    pub(crate) folder: &'a Folder,
    /// The host's port that leads to the guest's, where one is waited for.
    pub(crate) forwarded: Option<u16>,
}

impl Watched<'_> {
    /// Waits until the sign is there; returns what there was of it, in words.
    ///
    /// # Errors
    /// [`Kind::Io`] where it is not there within `patience`, or the machine ends before.
    pub(crate) async fn wait_for(&self, sign: &Sign, patience: Duration) -> Result<String> {
        let until = self.env.monotonic() + patience;
        loop {
            let left = until.saturating_sub(self.env.monotonic());
            let ended = !is_running(self.folder);
            let found = self.look_for(sign, left.min(LOOK_MAX), left).await;
            match found {
                Ok(said) => return Ok(shortened(&said)),
                Err(error) if left.is_zero() || ended => {
                    let why = if ended {
                        "the machine ended before".to_owned()
                    } else {
                        format!("not within {} s", patience.as_secs())
                    };
                    let what = format!("no sign of life ({sign}): {why}: {error}{}", self.last_lines());
                    return Err(Error::new(Kind::Io, what)
                        .remedy("look at its screen and console; give it more time with --timeout"));
                }
                Err(_) => self.env.sleep(LOOK_EVERY).await,
            }
        }
    }

    async fn look_for(&self, sign: &Sign, look_max: Duration, left: Duration) -> Result<String> {
        match sign {
            Sign::Agent => {
                Agent::greet(self.env, &self.folder.agent(), look_max).await?;
                Ok("the guest agent answers".to_owned())
            }
            Sign::Console(pattern) => {
                let text = self.console();
                let regex = Regex::new(pattern).map_err(|e| Error::new(Kind::Invalid, e.to_string()))?;
                let found = regex
                    .find(&text)
                    .ok_or_else(|| Error::new(Kind::NotFound, "the console does not say it"))?;
                Ok(String::from_utf8_lossy(found.as_bytes()).into_owned())
            }
            Sign::Port(port) => self.answer_of(*port, look_max).await,
            Sign::Command(command) => {
                let mut agent = Agent::greet(self.env, &self.folder.agent(), look_max).await?;
                agent.run(command, left.max(LOOK_MAX)).await?.said()
            }
        }
    }

    /// QEMU takes the connection for the guest, whether anybody listens there or not: a byte has to come back.
    async fn answer_of(&self, port: u16, look_max: Duration) -> Result<String> {
        let host = self.forwarded.ok_or_else(|| Error::new(Kind::Invalid, "no port leads to the guest"))?;
        let asked = async {
            let mut stream = TcpStream::connect(("127.0.0.1", host)).await?;
            let mut byte = [0; 64];
            // Many speak first. Others are asked what they answer whatever they are.
            let heard = tokio::select! {
                biased;
                heard = stream.read(&mut byte) => heard?,
                () = self.env.sleep(look_max / 3) => {
                    stream.write_all(question(port)).await?;
                    stream.read(&mut byte).await?
                }
            };
            Ok::<_, std::io::Error>(byte[..heard].to_vec())
        };
        let heard = within(self.env, look_max, asked).await;
        let heard = heard.transpose().map_err(|e| Error::io(format!("port {port}"), e))?.unwrap_or_default();
        match heard.is_empty() {
            false => Ok(format!("port {port} answers")),
            true => Err(Error::new(Kind::NotFound, format!("port {port} answers nothing"))),
        }
    }

    fn console(&self) -> Vec<u8> {
        use std::io::{Read, Seek, SeekFrom};
        let read = || {
            let mut file = std::fs::File::open(self.folder.console())?;
            let bytes = file.metadata()?.len();
            file.seek(SeekFrom::Start(bytes.saturating_sub(CONSOLE_BYTES_MAX)))?;
            let mut text = Vec::new();
            file.take(CONSOLE_BYTES_MAX).read_to_end(&mut text)?;
            Ok::<_, std::io::Error>(text)
        };
        // A machine that has said nothing yet has no console.
        read().unwrap_or_default()
    }

    fn last_lines(&self) -> String {
        let text = self.console();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        match lines.is_empty() {
            true => "; its console is silent".to_owned(),
            false => format!(
                "; its console says last: {}",
                shortened(&lines[lines.len().saturating_sub(LAST_LINES)..].join(" / "))
            ),
        }
    }
}

/// What a server answers, whatever it thinks of it: PostgreSQL's one letter to a wish for TLS, others' complaint of HTTP.
fn question(port: u16) -> &'static [u8] {
    const POSTGRESQL: u16 = 5432;
    match port {
        // SSLRequest: its length and its code, big-endian.
        POSTGRESQL => b"\x00\x00\x00\x08\x04\xd2\x16\x2f",
        _ => b"GET / HTTP/1.0\r\n\r\n",
    }
}

/// Without what moves a terminal, and no longer than a line.
pub(super) fn shortened(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SAID_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use stonefold_env::SystemWorld;
    use tokio::net::TcpListener;

    #[test]
    fn signs_are_read_as_they_are_written() {
        for text in ["agent", "port:22", "console:login: *$", "cmd:systemctl is-system-running"] {
            assert_eq!(text.parse::<Sign>().unwrap().to_string(), text);
        }
        for wrong in ["", "port:0", "port:x", "console:", "console:(", "cmd: ", "ping"] {
            assert!(wrong.parse::<Sign>().is_err(), "{wrong}");
        }
    }

    /// What a guest has behind a port.
    #[derive(Clone, Copy)]
    enum Behind {
        /// It speaks first, as SSH does.
        Greets,
        /// It answers what it is asked, as HTTP and PostgreSQL do.
        Answers(&'static [u8]),
        /// QEMU has taken the connection, and nobody listens in the guest.
        Nobody,
    }

    async fn serve(listener: TcpListener, behind: Behind) {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut asked = [0; 64];
            match behind {
                Behind::Greets => stream.write_all(b"SSH-2.0-x\r\n").await.unwrap(),
                Behind::Answers(question) => {
                    let heard = stream.read(&mut asked).await.unwrap();
                    assert_eq!(&asked[..heard], question);
                    stream.write_all(b"N").await.unwrap();
                }
                Behind::Nobody => drop(stream.read(&mut asked).await),
            }
        }
    }

    /// Goal: a port is a sign of life only where a byte comes back, whoever speaks first.
    #[tokio::test]
    async fn a_port_is_a_sign_where_something_comes_back() {
        let env = Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap());
        let folder = Folder("/nowhere".into());
        let http = Behind::Answers(b"GET / HTTP/1.0\r\n\r\n");
        let postgresql = Behind::Answers(question(5432));
        for (port, behind, is_sign) in [
            (22, Behind::Greets, true),
            (80, http, true),
            (5432, postgresql, true),
            (22, Behind::Nobody, false),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let forwarded = Some(listener.local_addr().unwrap().port());
            env.spawn("guest", serve(listener, behind));
            let watched = Watched { env: &env, folder: &folder, forwarded };
            let told = watched.look_for(&Sign::Port(port), LOOK_MAX, LOOK_MAX).await;
            match told {
                Ok(said) => assert!(is_sign && said == format!("port {port} answers"), "{said}"),
                Err(error) => assert!(!is_sign && error.kind() == Kind::NotFound, "{error}"),
            }
        }
        let watched = Watched { env: &env, folder: &folder, forwarded: None };
        let none = watched.look_for(&Sign::Port(22), LOOK_MAX, LOOK_MAX).await.unwrap_err();
        assert!(none.to_string().contains("no port leads to the guest"), "{none}");
    }
}
