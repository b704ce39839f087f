//! What a test needs of the machine, and what becomes of it where that is lacking.
//!
//! *Promises*: a test never passes because it could not be run: where something is lacking it fails and says what, and how to run it. Only
//! where the environment says that this machine has not got it (`STONEFOLD_TEST_WITHOUT=loop`, several by commas) it is left out, and told:
//! on stderr, past what the test runner keeps to itself, and in the file that `STONEFOLD_TEST_LEFT_OUT` names, from which `./test` tells it at
//! its end. *Never*: leaves out what nobody said to be lacking. *May be used by*: tests and test kits, and nobody else.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

/// Says what this machine lacks.
const WITHOUT: &str = "STONEFOLD_TEST_WITHOUT";
/// The file in which tests that were left out are told, one a line.
const LEFT_OUT: &str = "STONEFOLD_TEST_LEFT_OUT";

/// Something that a machine has or has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Loop devices and mounts, for which a process must be root.
    Loop,
    /// io_uring, which containers often forbid.
    IoUring,
    /// Control groups of processors and memory that a process may make, which containers often forbid.
    Groups,
    /// Chromium, or a browser that is made of it.
    Browser,
}

impl Need {
    const ALL: [Need; 4] = [Need::Loop, Need::IoUring, Need::Groups, Need::Browser];

    /// As the environment names it.
    fn word(self) -> &'static str {
        match self {
            Need::Loop => "loop",
            Need::IoUring => "io_uring",
            Need::Groups => "groups",
            Need::Browser => "browser",
        }
    }

    fn how_to_have_it(self) -> &'static str {
        match self {
            Need::Loop => {
                "run the tests as root (sudo -E ./test), on a machine or in a container that has /dev/loop-control and may mount"
            }
            Need::IoUring => "run the tests where the kernel and its sandbox allow io_uring",
            Need::Groups => "run the tests as root (sudo -E ./test), where /sys/fs/cgroup may be written to",
            Need::Browser => "install the package chromium",
        }
    }

    /// Why this process cannot have it, as far as that can be told beforehand.
    fn lacking(self) -> Option<String> {
        match self {
            Need::Loop if !rustix::process::geteuid().is_root() => Some("this process is not root".into()),
            Need::Loop if !Path::new("/dev/loop-control").exists() => {
                Some("/dev/loop-control is not there".into())
            }
            Need::Loop | Need::IoUring | Need::Groups | Need::Browser => None,
        }
    }
}

/// What becomes of a test.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    GoOn,
    LeaveOut(String),
    Fail(String),
}

/// Whether a test that needs this can be run; `what` says what it is about.
///
/// # Panics
/// When it lacks what nobody said to be lacking.
#[must_use = "a test that is left out ends"]
pub fn there_is(need: Need, what: &str) -> bool {
    is_there(need, what, need.lacking())
}

/// The same of what was tried; `lacking` is why it failed.
///
/// # Panics
/// When it is lacking and nobody said so.
#[must_use = "a test that is left out ends"]
pub fn is_there(need: Need, what: &str, lacking: Option<String>) -> bool {
    let without = std::env::var(WITHOUT).unwrap_or_default();
    match verdict(need, what, lacking, &without) {
        Verdict::GoOn => true,
        Verdict::LeaveOut(line) => {
            tell(&line);
            false
        }
        Verdict::Fail(why) => panic!("{why}"),
    }
}

/// What is said to be lacking is left out even if it is there: so that a run is the same every time.
fn verdict(need: Need, what: &str, lacking: Option<String>, without: &str) -> Verdict {
    let mut said_so = false;
    for word in without.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let Some(known) = Need::ALL.into_iter().find(|known| known.word() == word) else {
            let all = Need::ALL.map(Need::word).join(", ");
            return Verdict::Fail(format!("{WITHOUT} names '{word}', which is none of: {all}"));
        };
        said_so |= known == need;
    }
    match lacking {
        _ if said_so => Verdict::LeaveOut(format!("{what} ({WITHOUT}={without})")),
        None => Verdict::GoOn,
        Some(why) => {
            let mut words = format!("{what}: cannot be tried here, and so proves nothing: {why}\n");
            let (how, word) = (need.how_to_have_it(), need.word());
            let _ =
                write!(words, "  what to do: {how}; or say {WITHOUT}={word}, and it is left out and told");
            Verdict::Fail(words)
        }
    }
}

/// To stderr itself: what goes through `eprintln` is kept by the test runner.
fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "left out: {line}");
    if let Some(file) = std::env::var_os(LEFT_OUT) {
        let opened = OpenOptions::new().create(true).append(true).open(&file);
        // One write, so that lines of tests that run at one time stay whole.
        let written = opened.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
        written.unwrap_or_else(|e| panic!("{file:?}, named by {LEFT_OUT}: {e}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// *Past bug*: tests that lacked root or loop devices printed so where nobody saw it, and passed.
    #[test]
    fn what_is_lacking_fails_unless_it_was_said() {
        let of = |lacking: Option<&str>, without: &str| {
            verdict(Need::Loop, "a full place", lacking.map(str::to_owned), without)
        };
        assert_eq!(of(None, ""), Verdict::GoOn);
        assert_eq!(of(None, "io_uring"), Verdict::GoOn);
        for without in ["loop", "io_uring, loop"] {
            for lacking in [None, Some("this process is not root")] {
                let left_out = format!("a full place (STONEFOLD_TEST_WITHOUT={without})");
                assert_eq!(of(lacking, without), Verdict::LeaveOut(left_out));
            }
        }
        for without in ["", "io_uring"] {
            let Verdict::Fail(words) = of(Some("this process is not root"), without) else {
                panic!("'{without}' excuses a lack of loop devices");
            };
            for word in ["a full place", "not root", "sudo -E ./test", "STONEFOLD_TEST_WITHOUT=loop"] {
                assert!(words.contains(word), "{words}");
            }
        }
    }

    #[test]
    fn a_slip_of_what_is_lacking_is_told() {
        let Verdict::Fail(words) = verdict(Need::Loop, "x", None, "loops") else { panic!("'loops' is read") };
        assert!(words.contains("'loops'") && words.contains("loop, io_uring"), "{words}");
    }
}
