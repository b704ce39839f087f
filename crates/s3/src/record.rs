//! The two small documents that this engine keeps for itself, both JSON, each with the number of its format.
//!
//! ```text
//! owner        {"format":1,"id":"…32 hex…","host":"…","machine":"BOOT PIDNS","process":123,"began":456,"released":false,"beat":7,"nonce":"…16 hex…"}
//! journals/ID  {"format":1,"closed":false,"low":0}
//! ```

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use stonefold_types::{Error, Kind, Result};

/// The newest format of either document that this version reads, and the one that it writes.
const FORMAT: u32 = 1;

/// Who serves the pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owner {
    format: u32,
    /// Drawn at random for each opening.
    pub(crate) id: String,
    /// Its machine's name, for people.
    pub(crate) host: String,
    /// Names one boot of one machine, and the namespace in which the process has its number.
    pub(crate) machine: String,
    /// The process.
    pub(crate) process: u32,
    /// When that began, in ticks since the boot: numbers of processes come again.
    pub(crate) began: u64,
    /// Whether it has let the pool go.
    pub(crate) released: bool,
    /// Raised each time the lease is renewed.
    pub(crate) beat: u64,
    /// Drawn at random each time: a copy of a machine that runs goes on with the same numbers, and is another owner.
    pub(crate) nonce: String,
}

impl Owner {
    /// This process, as an owner that nobody has seen yet.
    pub(crate) fn this_process(id: [u8; 16]) -> Owner {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let process = std::process::id();
        Owner {
            format: FORMAT,
            id: hex(&id),
            host: read("/proc/sys/kernel/hostname"),
            machine: format!("{} {}", read("/proc/sys/kernel/random/boot_id"), namespace.display()),
            process,
            began: began(process).unwrap_or(0),
            released: false,
            beat: 0,
            nonce: String::new(),
        }
    }

    /// The next record of the same opening.
    pub(crate) fn next(&self, nonce: [u8; 8], released: bool) -> Owner {
        Owner { beat: self.beat + 1, nonce: hex(&nonce), released, ..self.clone() }
    }

    /// Whether `self` was a process of this machine, seen from where `here` runs, that has ended.
    pub(crate) fn has_ended(&self, here: &Owner) -> bool {
        // Without either name nothing is known of the other, as in a sandbox that hides them.
        let known = !self.machine.starts_with(' ') && !self.machine.ends_with(' ');
        known && self.machine == here.machine && is_gone(self.process, self.began)
    }

    /// For people.
    pub(crate) fn name(&self) -> String {
        format!("process {} on '{}'", self.process, self.host)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Owner> {
        decode(bytes, "the record of the pool's owner", |owner: &Owner| owner.format)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        encode(self)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Whether a process of this machine has ended. What cannot be seen, as another user's where they are hidden, may live.
fn is_gone(process: u32, of: u64) -> bool {
    let Some(pid) = i32::try_from(process).ok().and_then(Pid::from_raw) else { return false };
    match (test_kill_process(pid), began(process)) {
        (Err(Errno::SRCH), _) => true,
        (_, Some(began)) => began != of,
        (_, None) => false,
    }
}

/// When a process began, in ticks since the boot: field 22 of proc(5)'s stat, counted behind the name, which may have spaces.
fn began(process: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// A journal that exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JournalRecord {
    format: u32,
    /// Nobody appends to it any more.
    pub(crate) closed: bool,
    /// The number of the first chunk that counts; those before it are going or gone.
    pub(crate) low: u64,
}

impl JournalRecord {
    pub(crate) fn new(closed: bool, low: u64) -> JournalRecord {
        JournalRecord { format: FORMAT, closed, low }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<JournalRecord> {
        decode(bytes, "a journal's record", |record: &JournalRecord| record.format)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        encode(self)
    }
}

fn encode(document: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(document).expect("numbers and texts can be written")
}

fn decode<T: DeserializeOwned>(bytes: &[u8], what: &str, format: impl Fn(&T) -> u32) -> Result<T> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let newer = |found: u32| {
        let what = format!("{what} is of format {found}, and this version reads {FORMAT}");
        Error::new(Kind::Unsupported, what).remedy("use the version that wrote it, or a newer one")
    };
    match serde_json::from_slice::<T>(bytes) {
        Ok(document) if format(&document) == FORMAT => Ok(document),
        Ok(document) => Err(newer(format(&document))),
        // A newer one may have other fields; its number is told all the same.
        Err(error) => match serde_json::from_slice::<Format>(bytes) {
            Ok(found) if found.format != FORMAT => Err(newer(found.format)),
            _ => Err(Error::new(Kind::Corrupt, format!("{what} cannot be read: {error}"))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_and_newer_ones_are_told() {
        let record = JournalRecord::new(true, 7);
        assert_eq!(record.encode(), br#"{"format":1,"closed":true,"low":7}"#);
        assert_eq!(JournalRecord::decode(&record.encode()).unwrap(), record);
        let owner = Owner::this_process([7; 16]);
        assert_eq!(Owner::decode(&owner.encode()).unwrap(), owner);
        let newer = JournalRecord::decode(br#"{"format":2,"fence":[]}"#).unwrap_err();
        assert_eq!(newer.kind(), Kind::Unsupported);
        let cut = JournalRecord::decode(br#"{"format":1,"clo"#).unwrap_err();
        assert_eq!(cut.kind(), Kind::Corrupt);
    }

    #[test]
    fn who_has_ended_is_known_on_one_machine_only() {
        let here = Owner::this_process([1; 16]);
        assert!(!here.has_ended(&here), "this process is alive");
        let child = std::process::Command::new("true").spawn().unwrap();
        let process = child.id();
        let _ = { child }.wait();
        let gone = Owner { process, ..here.clone() };
        assert!(gone.has_ended(&here), "a process that was waited for has ended");
        let again = Owner { began: here.began + 1, ..here.clone() };
        assert!(again.has_ended(&here), "another process has its number now");
        let elsewhere = Owner { machine: "another boot".into(), ..gone.clone() };
        assert!(!elsewhere.has_ended(&here), "nothing is known of other machines");
        let hidden = Owner { machine: " ".into(), ..gone };
        assert!(!hidden.has_ended(&Owner { machine: " ".into(), ..here }), "nor of those without a name");
    }
}
