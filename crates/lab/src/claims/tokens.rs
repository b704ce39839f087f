//! Words and numbers of a text, each with its place.

use std::ops::Range;

/// A word, a number or a mark.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    pub kind: TokenKind,
    /// Bytes of the text.
    pub at: Range<usize>,
    /// Nothing stands between it and the one before.
    pub glued: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum TokenKind {
    /// In lower case.
    Word(String),
    /// With the digits behind its point.
    Number {
        value: f64,
        decimals: u32,
    },
    Mark(char),
}

impl Token {
    pub(super) fn word(&self) -> Option<&str> {
        match &self.kind {
            TokenKind::Word(word) => Some(word),
            _ => None,
        }
    }

    pub(super) fn number(&self) -> Option<f64> {
        match self.kind {
            TokenKind::Number { value, .. } => Some(value),
            _ => None,
        }
    }

    pub(super) fn is_mark(&self, mark: char) -> bool {
        self.kind == TokenKind::Mark(mark)
    }
}

/// The tokens of `text[at]`.
pub(super) fn tokens(text: &str, at: Range<usize>) -> Vec<Token> {
    let mut tokens: Vec<Token> = Vec::new();
    let mut place = at.start;
    while let Some(first) = text[place..at.end].chars().next() {
        let rest = &text[place..at.end];
        let (kind, length) = if first.is_ascii_digit() {
            number(rest)
        } else if is_letter(first) {
            let length = rest.find(|c: char| !is_letter(c) && c != '\'').unwrap_or(rest.len());
            (TokenKind::Word(rest[..length].to_lowercase()), length)
        } else if first.is_whitespace() || first == '*' || first == '_' {
            place += first.len_utf8();
            continue;
        } else {
            (TokenKind::Mark(first), first.len_utf8())
        };
        let glued = tokens.last().is_some_and(|before| before.at.end == place);
        tokens.push(Token { kind, at: place..place + length, glued });
        place += length;
    }
    tokens
}

fn is_letter(c: char) -> bool {
    c.is_alphabetic() || c == 'µ'
}

/// `12`, `1,234`, `4.33`: its value and length. A comma counts where three digits follow.
fn number(text: &str) -> (TokenKind, usize) {
    let bytes = text.as_bytes();
    let digits = |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut length = digits(0);
    let mut plain = text[..length].to_owned();
    while length < bytes.len() && bytes[length] == b',' && plain.len() <= 15 && digits(length + 1) == 3 {
        plain.push_str(&text[length + 1..length + 4]);
        length += 4;
    }
    let mut decimals = 0;
    if length + 1 < bytes.len() && bytes[length] == b'.' && digits(length + 1) > 0 {
        decimals = digits(length + 1);
        plain.push_str(&text[length..=length + decimals]);
        length += 1 + decimals;
    }
    (TokenKind::Number { value: plain.parse().unwrap_or(0.0), decimals: decimals as u32 }, length)
}

/// Words and numbers, single blanks between them and at both ends: what phrases are looked for in.
pub(super) fn plain(tokens: &[Token]) -> String {
    let mut plain = String::from(" ");
    for token in tokens {
        match &token.kind {
            TokenKind::Word(word) => plain.push_str(word),
            TokenKind::Number { value, .. } => plain.push_str(&value.to_string()),
            TokenKind::Mark(mark @ ('%' | '×' | '±' | '$' | '€' | '–')) => plain.push(*mark),
            TokenKind::Mark(_) => continue,
        }
        plain.push(' ');
    }
    plain
}

/// Whether any of the phrases is in a plain text. Each is of whole words; one that ends in `…` may go on.
pub(super) fn has(plain: &str, phrases: &[&str]) -> bool {
    phrases.iter().any(|phrase| match phrase.strip_suffix('…') {
        Some(beginning) => plain.contains(&format!(" {beginning}")),
        None => plain.contains(&format!(" {phrase} ")),
    })
}
