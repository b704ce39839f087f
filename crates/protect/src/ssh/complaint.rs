//! What ssh, sudo and the other machine complain of, for people: what failed and what to do.

use super::SshMachine;
use crate::hypervisor::last_words;
use stonefold_types::{Error, Kind};

/// Why a connection ended, by what was said meanwhile.
pub(super) fn complaint(said: &[u8], to: &SshMachine) -> Error {
    let text = String::from_utf8_lossy(said);
    let has = |words: &[&str]| words.iter().any(|words| text.contains(words));
    let by_hand = to.by_hand();
    let line_with =
        |word: &str| text.lines().find(|line| line.contains(word)).map(|line| line.trim().to_owned());
    let (kind, what, remedy) = if has(&["REMOTE HOST IDENTIFICATION HAS CHANGED"]) {
        let what = "its host key is another than it was".to_owned();
        let remedy = format!(
            "find out why; where that is as it should be, remove the old one as the server's user: ssh-keygen -R {}",
            to.known_as()
        );
        (Kind::Denied, what, remedy)
    } else if has(&["Host key verification failed", "host key is known for"]) {
        let what = "its host key is not known to the server's user".to_owned();
        let remedy = format!(
            "as the server's user, run '{by_hand} true' once, and compare the fingerprint that it shows"
        );
        (Kind::Denied, what, remedy)
    } else if has(&["Permission denied ("]) {
        let what = line_with("Permission denied (").unwrap_or_default();
        let remedy = format!(
            "put the server user's public key into authorized_keys there; '{by_hand} true', as the server's user, must ask for nothing"
        );
        (Kind::Denied, what, remedy)
    } else if has(&["sudo:"]) {
        let what = format!("its user is not root, and {}", line_with("sudo:").unwrap_or_default());
        let remedy = "log in as root, or let the user run sh without a password, in /etc/sudoers.d: USER ALL=(root) NOPASSWD: /usr/bin/sh, /bin/sh";
        (Kind::Denied, what, remedy.to_owned())
    } else if has(&["has overflowed"]) {
        let what = line_with("has overflowed").unwrap_or_default();
        let remedy = "more was overwritten while it was read than it has room for: give it more (source add … --snapshot-size SIZE), or run it when less is written";
        (Kind::NoSpace, what, remedy.to_owned())
    } else if has(&[
        "Could not resolve hostname",
        "Connection refused",
        "timed out",
        "No route to host",
        "unreachable",
    ]) {
        let what = format!("it cannot be reached: {}", last_words(said));
        (Kind::Io, what, format!("see that it runs, and that '{by_hand} true' does, as the server's user"))
    } else if text.trim().is_empty() {
        let what = "the connection ended, and nobody said why".to_owned();
        (Kind::Io, what, format!("see that '{by_hand} true' works, as the server's user"))
    } else {
        (Kind::Io, last_words(said), "look at that machine, and run it again".to_owned())
    };
    Error::new(kind, what).remedy(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_says_what_to_do() {
        let to = SshMachine::new("ssh://keeper@web.example:2222".to_owned());
        let of = |said: &str| complaint(said.as_bytes(), &to).to_string();
        for (said, words) in [
            ("Host key verification failed.\r\n", "run 'ssh -p 2222 -l keeper web.example true' once"),
            (
                "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.\n",
                "ssh-keygen -R [web.example]:2222",
            ),
            ("keeper@web.example: Permission denied (publickey,password).\r\n", "authorized_keys"),
            ("sudo: a password is required\n", "NOPASSWD"),
            ("sh: 1: exec: sudo: not found\n", "log in as root"),
            (
                "ssh: Could not resolve hostname web.example: Name or service not known\r\n",
                "cannot be reached",
            ),
            ("ssh: connect to host web port 22: Connection refused\r\n", "cannot be reached"),
            (
                "dd: error reading '/dev/mapper/x': Input/output error\nthe snapshot 'vg/x' has overflowed\n",
                "--snapshot-size",
            ),
            ("dd: error reading '/dev/sda': Input/output error\n", "/dev/sda"),
            ("", "nobody said why"),
        ] {
            assert!(of(said).contains(words), "{said}: {}", of(said));
        }
    }
}
