//! The tokens of the API. The store keeps them and says who is who; what a role may do is for the API to say.
//!
//! *Promises*: a secret leaves this place once, when it is made; what a call that returned has changed survives the loss of
//! power; two changes at once are made one after the other, by compare-and-swap. A failed change may have happened: what
//! is stored is read back to tell.

use crate::documents;
use crate::store::Store;
use stonefold_engine::{Key, Version};
use stonefold_format::tokens::{SecretHash, TOKENS_MAX, Token, Tokens};
use stonefold_types::{Error, Kind, Name, Result, Role};

/// How often a change is tried again after another came first. Tokens are made by people, so once is rare.
const TRIES_MAX: usize = 16;

fn key() -> Key {
    Key::new("tokens")
}

impl Store {
    /// All tokens, in the order in which they were made.
    pub async fn tokens(&self) -> Result<Tokens> {
        Ok(self.stored_tokens().await?.0)
    }

    /// Makes a token and returns all, the new one last, with its secret. The first must be an admin's: nobody could
    /// make or remove another one.
    pub async fn create_token(&self, name: Option<Name>, role: Role) -> Result<(Tokens, String)> {
        let secret = format!("stonefold_{}", hex(self.env.random::<32>()));
        let default = format!("{role}-{}", hex(self.env.random::<4>()));
        let name = name.unwrap_or_else(|| default.parse().expect("letters, digits and dashes make a name"));
        let token = Token { name, role, created: self.env.wall(), hash: SecretHash::of(&secret) };
        let tokens = self.change_tokens(|tokens| add(tokens, token.clone())).await?;
        Ok((tokens, secret))
    }

    /// Removes a token and returns the rest. The last admin's goes only when all others are gone.
    pub async fn remove_token(&self, name: &Name) -> Result<Tokens> {
        self.change_tokens(|tokens| remove(tokens, name)).await
    }

    /// Removes all tokens: for whoever has lost the last admin's.
    pub async fn forget_tokens(&self) -> Result<()> {
        self.engine.delete(&key()).await.map_err(|e| e.context("forgetting the tokens"))
    }

    async fn stored_tokens(&self) -> Result<(Tokens, Option<Version>)> {
        let stored =
            documents::stored(&*self.engine, &key()).await.map_err(|e| e.context("reading the tokens"))?;
        Ok(match stored {
            Some((bytes, version)) => (Tokens::decode(&bytes)?, Some(version)),
            None => (Tokens::default(), None),
        })
    }

    async fn change_tokens(&self, change: impl Fn(&mut Tokens) -> Result<()>) -> Result<Tokens> {
        for _ in 0..TRIES_MAX {
            let (mut tokens, version) = self.stored_tokens().await?;
            change(&mut tokens)?;
            let put = documents::swap(&*self.engine, &key(), tokens.encode().into(), version.as_ref()).await;
            if put.map_err(|e| e.context("storing the tokens"))?.is_some() {
                return Ok(tokens);
            }
        }
        Err(Error::new(Kind::Conflict, "the tokens are changed by others all the time").remedy("try again"))
    }
}

fn add(tokens: &mut Tokens, token: Token) -> Result<()> {
    let Tokens(all) = tokens;
    if all.iter().any(|one| one.name == token.name) {
        let what = format!("token '{}' exists already", token.name);
        return Err(Error::new(Kind::AlreadyExists, what).remedy("choose another name, or remove that one"));
    }
    if all.is_empty() && token.role != Role::Admin {
        let what =
            format!("the first token cannot be {}'s: nobody could make another one", article(token.role));
        return Err(Error::new(Kind::Invalid, what).remedy("make one with --role admin first"));
    }
    if all.len() >= TOKENS_MAX {
        let what = format!("the pool has {TOKENS_MAX} tokens, and that is the most it can have");
        return Err(Error::new(Kind::Invalid, what).remedy("remove those that nobody uses"));
    }
    all.push(token);
    Ok(())
}

fn remove(tokens: &mut Tokens, name: &Name) -> Result<()> {
    let Tokens(all) = tokens;
    let Some(at) = all.iter().position(|token| token.name == *name) else {
        return Err(Error::new(Kind::NotFound, format!("token '{name}' does not exist"))
            .remedy("'stonefold token ls' shows those there are"));
    };
    let removed = all.remove(at);
    let admins = all.iter().filter(|token| token.role == Role::Admin).count();
    if removed.role == Role::Admin && admins == 0 && !all.is_empty() {
        let what = format!("token '{name}' is the last admin's, and there are others still");
        return Err(Error::new(Kind::Busy, what).remedy("make another admin's first, or remove the others"));
    }
    Ok(())
}

fn article(role: Role) -> &'static str {
    match role {
        Role::Viewer => "a viewer",
        Role::Operator => "an operator",
        Role::Admin => "an admin",
    }
}

fn hex<const N: usize>(bytes: [u8; N]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
