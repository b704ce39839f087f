//! Makes plain text of what a console prints: a program that searches for `login:` must not stumble over colours.

/// Removes terminal control sequences and carriage returns from a stream of bytes that arrives in any pieces.
#[derive(Debug, Default)]
pub(crate) struct Plain {
    state: State,
    /// The bytes of a character whose rest has not arrived yet (at most three).
    unfinished: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Text,
    /// After ESC.
    Escape,
    /// After ESC and an intermediate byte such as `(`: one more byte belongs to it.
    Charset,
    /// After ESC [ : parameters, then one final byte from `@` to `~`.
    Control,
    /// After ESC ] (or P, X, ^, _): a string that BEL or ESC \ ends.
    Words,
    /// ESC inside such a string.
    WordsEscape,
}

impl Plain {
    /// The text of these bytes, as far as it is complete.
    pub(crate) fn text_of(&mut self, bytes: &[u8]) -> String {
        for &byte in bytes {
            self.state = self.step(byte);
        }
        let complete = complete_prefix(&self.unfinished);
        let text = String::from_utf8_lossy(&self.unfinished[..complete]).into_owned();
        self.unfinished.drain(..complete);
        text
    }

    fn step(&mut self, byte: u8) -> State {
        match (self.state, byte) {
            (State::Words, 0x07) | (State::WordsEscape, b'\\') => State::Text,
            (State::Words, 0x1b) => State::WordsEscape,
            (State::Words | State::WordsEscape, _) => State::Words,
            (_, 0x1b) => State::Escape,
            (State::Escape, b'[') => State::Control,
            (State::Escape, b']' | b'P' | b'X' | b'^' | b'_') => State::Words,
            (State::Escape, 0x20..=0x2f) => State::Charset,
            (State::Escape | State::Charset, _) => State::Text,
            (State::Control, 0x40..=0x7e) => State::Text,
            (State::Control, _) => State::Control,
            (State::Text, b'\n' | b'\t' | 0x20..=0x7e | 0x80..) => {
                self.unfinished.push(byte);
                State::Text
            }
            (State::Text, _) => State::Text,
        }
    }
}

/// How many of these bytes can be shown now: all but the beginning of a character that may still be completed.
fn complete_prefix(bytes: &[u8]) -> usize {
    let mut rest_start = 0;
    loop {
        match std::str::from_utf8(&bytes[rest_start..]) {
            Ok(_) => return bytes.len(),
            Err(error) => match error.error_len() {
                Some(bad) => rest_start += error.valid_up_to() + bad,
                None => return rest_start + error.valid_up_to(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same text comes out however the bytes are cut.
    fn plain(bytes: &[u8]) -> String {
        let whole = Plain::default().text_of(bytes);
        let mut cut = Plain::default();
        let pieces: String = bytes.iter().map(|byte| cut.text_of(&[*byte])).collect();
        assert_eq!(whole, pieces);
        whole
    }

    #[test]
    fn colours_cursor_moves_and_carriage_returns_go() {
        assert_eq!(
            plain(b"[\x1b[0;32m  OK  \x1b[0m] Reached \x1b[0;1;39mlogin\x1b[0m\r\n"),
            "[  OK  ] Reached login\n"
        );
        assert_eq!(plain(b"\x1b[?2004hroot@guest:~# \x1b[?2004l\r"), "root@guest:~# ");
    }

    #[test]
    fn titles_character_sets_and_resets_go() {
        assert_eq!(plain(b"\x1b]0;a title\x07a\x1b]2;b\x1b\\b\x1b(Bc\x1bcd"), "abcd");
    }

    #[test]
    fn characters_of_several_bytes_survive_and_broken_ones_do_not_stop_it() {
        assert_eq!(plain("mmap…lice – é".as_bytes()), "mmap…lice – é");
        assert_eq!(plain(b"a\xffb"), "a\u{fffd}b");
    }

    #[test]
    fn bells_and_zero_bytes_go() {
        assert_eq!(plain(b"a\x07\0b\tc\n"), "ab\tc\n");
    }
}
