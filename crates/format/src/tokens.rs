//! The tokens of the API, object `tokens`. Absent while there has been none.
//!
//! Body, version 1: `count (2)`, then for each, in the order in which they were made:
//!
//! ```text
//!  0      1                 9            41
//!  +------+-----------------+------------+-----------------+
//!  | role | created, ns     | hash       | name: length (2)|
//!  |      | since 1970      | of secret  | and text        |
//!  +------+-----------------+------------+-----------------+
//! ```
//! Roles: 1 viewer, 2 operator, 3 admin. Of a secret only its BLAKE3 hash is kept. It is 256 bits of chance, so there is
//! nothing to guess, and neither salt nor a slow hash would add to it; the context keeps it apart from all other hashes.

use crate::document::{self, DocumentKind};
use crate::wire::{Reader, Writer};
use stonefold_types::{Name, Result, Role};

const VERSION: u16 = 1;
/// Tokens of one pool: a host full of people and programs; the document stays near 200 KiB, and looking through it short.
pub const TOKENS_MAX: usize = 1000;

/// What is known of a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecretHash(blake3::Hash);

impl SecretHash {
    /// Of the text that its holder shows. Comparing two takes the same time wherever they differ.
    pub fn of(secret: &str) -> Self {
        SecretHash(blake3::Hash::from_bytes(blake3::derive_key(
            "stonefold 2026 API token",
            secret.as_bytes(),
        )))
    }
}

/// One token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Unique in the pool.
    pub name: Name,
    /// What its holder may do.
    pub role: Role,
    /// Nanoseconds since 1970.
    pub created: u64,
    /// Of its secret.
    pub hash: SecretHash,
}

/// The document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens(pub Vec<Token>);

impl Tokens {
    /// The document's bytes.
    ///
    /// # Panics
    /// When there are more than [`TOKENS_MAX`].
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.0.len() <= TOKENS_MAX, "a pool has at most {TOKENS_MAX} tokens");
        let mut body = Vec::new();
        body.u16(self.0.len() as u16);
        for token in &self.0 {
            body.u8(match token.role {
                Role::Viewer => 1,
                Role::Operator => 2,
                Role::Admin => 3,
            });
            body.u64(token.created);
            body.put(token.hash.0.as_bytes());
            body.text(token.name.as_str());
        }
        document::seal(DocumentKind::Tokens, VERSION, &body)
    }

    /// Reads the document.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (_, body) = document::open(bytes, DocumentKind::Tokens, VERSION)?;
        let mut reader = Reader::new(body, "the record of tokens");
        let count = usize::from(reader.u16()?);
        if count > TOKENS_MAX {
            return Err(reader.malformed("it has too many"));
        }
        let mut tokens: Vec<Token> = Vec::new();
        for _ in 0..count {
            let role = match reader.u8()? {
                1 => Role::Viewer,
                2 => Role::Operator,
                3 => Role::Admin,
                _ => return Err(reader.malformed("it has an unknown role")),
            };
            let created = reader.u64()?;
            let hash = reader.bytes(32)?.try_into().expect("as many bytes as asked for");
            let name = Name::new(reader.text()?)?;
            if tokens.iter().any(|token| token.name == name) {
                return Err(reader.malformed("it has a name twice"));
            }
            tokens.push(Token { name, role, created, hash: SecretHash(blake3::Hash::from_bytes(hash)) });
        }
        reader.end()?;
        Ok(Tokens(tokens))
    }

    /// The token with this secret.
    pub fn of_secret(&self, secret: &str) -> Option<&Token> {
        let hash = SecretHash::of(secret);
        self.0.iter().find(|token| token.hash == hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn token(name: &str, role: Role) -> Token {
        Token { name: name.parse().unwrap(), role, created: 5, hash: SecretHash::of(name) }
    }

    #[test]
    fn comes_back_and_finds_who_has_a_secret() {
        let tokens =
            Tokens(vec![token("a", Role::Admin), token("b", Role::Viewer), token("c", Role::Operator)]);
        assert_eq!(Tokens::decode(&tokens.encode()).unwrap(), tokens);
        assert_eq!(tokens.of_secret("b").unwrap().name.as_str(), "b");
        assert!(tokens.of_secret("").is_none() && tokens.of_secret("d").is_none());
        assert!(!tokens.encode().windows(32).any(|bytes| bytes == [0; 32]));
    }

    #[test]
    fn a_name_twice_is_refused() {
        let tokens = Tokens(vec![token("a", Role::Admin), token("a", Role::Viewer)]);
        assert!(Tokens::decode(&tokens.encode()).is_err());
    }

    proptest! {
        #[test]
        fn noise_is_survived(body in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Tokens::decode(&body);
            let _ = Tokens::decode(&document::seal(DocumentKind::Tokens, VERSION, &body));
        }
    }
}
