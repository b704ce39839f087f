//! Who may ask the API for what: the tokens as they were last stored, in memory, so that looking at one costs no I/O.
//!
//! *Promises*: a change counts from before it is answered, also when whoever asked for it has gone; an API that other
//! machines reach is never left without a token. *Owns*: the copy of the tokens; the store has them for good. One server
//! has a pool, so nobody else changes them meanwhile.

use axum::http::Method;
use parking_lot::RwLock;
use std::sync::Arc;
use stonefold_api::paths;
use stonefold_store::{Store, Token, Tokens};
use stonefold_types::{Error, Kind, Name, Result, Role};

/// See the module.
pub(crate) struct Access {
    tokens: RwLock<Tokens>,
    /// Held over a change and its adoption, so that two are not adopted in the wrong order.
    changing: tokio::sync::Mutex<()>,
    /// Whether other machines reach the API.
    networked: bool,
}

impl Access {
    /// Refuses what would be open to everybody.
    pub(crate) fn new(tokens: Tokens, networked: bool) -> Result<Arc<Self>> {
        if networked && tokens.0.is_empty() {
            return Err(Error::new(
                Kind::Invalid,
                "the API would be open to every machine that reaches it: there is no token yet",
            )
            .remedy(
                "serve it on loopback or a Unix socket first, make one with 'stonefold token create --role admin', \
                 and then serve it on the network",
            ));
        }
        Ok(Arc::new(Access {
            tokens: RwLock::new(tokens),
            changing: tokio::sync::Mutex::default(),
            networked,
        }))
    }

    /// All tokens.
    pub(crate) fn tokens(&self) -> Vec<Token> {
        self.tokens.read().0.clone()
    }

    /// Whether a request may be carried out; `secret` is what it shows.
    pub(crate) fn check(&self, method: &Method, path: &str, secret: Option<&str>) -> Result<()> {
        if path == paths::HEALTH { Ok(()) } else { self.check_role(needed(method, path), secret) }
    }

    /// The same of one that takes a role, by what stands in its body.
    pub(crate) fn check_role(&self, needed: Role, secret: Option<&str>) -> Result<()> {
        let tokens = self.tokens.read();
        if tokens.0.is_empty() {
            return Ok(());
        }
        let Some(token) = secret.and_then(|secret| tokens.of_secret(secret)) else {
            let what = match secret {
                None => "this API wants a token, and the request has none",
                Some(_) => "the request's token is not one of this pool's",
            };
            return Err(Error::new(Kind::NoToken, what).remedy(
                "name the file that has it with --token-file, or set STONEFOLD_TOKEN; an admin makes one with \
                 'stonefold token create'",
            ));
        };
        if token.role >= needed {
            return Ok(());
        }
        let what = format!("token '{}' is of the role {}, and this takes {needed}", token.name, token.role);
        Err(Error::new(Kind::Denied, what).remedy("use another token"))
    }

    /// Makes a token. To be called where the store's I/O is done.
    pub(crate) async fn create(
        &self,
        store: &Store,
        name: Option<Name>,
        role: Role,
    ) -> Result<(Token, String)> {
        let _one_at_a_time = self.changing.lock().await;
        let (tokens, secret) = store.create_token(name, role).await?;
        let made = tokens.0.last().expect("the new one is the last").clone();
        *self.tokens.write() = tokens;
        Ok((made, secret))
    }

    /// Removes a token. To be called where the store's I/O is done.
    pub(crate) async fn remove(&self, store: &Store, name: &Name) -> Result<()> {
        let _one_at_a_time = self.changing.lock().await;
        if self.networked && self.tokens.read().0.iter().all(|token| token.name == *name) {
            let what =
                format!("token '{name}' is the last, and without one the API would be open to the network");
            return Err(Error::new(Kind::Busy, what)
                .remedy("make another admin's first, or serve the API on loopback"));
        }
        let tokens = store.remove_token(name).await?;
        *self.tokens.write() = tokens;
        Ok(())
    }
}

/// The least role that may do this.
fn needed(method: &Method, path: &str) -> Role {
    let tokens =
        path.strip_prefix(paths::TOKENS).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let keys =
        path == paths::MASTER_KEY || path.starts_with(paths::DOMAINS) && !matches!(*method, Method::PATCH);
    match *method {
        _ if tokens || path == paths::POOL_CONFIRM_TIME || path.starts_with(paths::POOL_DIRECTORIES) => {
            Role::Admin
        }
        Method::GET | Method::HEAD | Method::OPTIONS => Role::Viewer,
        // Whoever starts a machine of whose description another wrote has that done which stands there.
        Method::POST
            if path.starts_with(paths::RECOVERIES) && path.ends_with("/start")
                || path.starts_with(paths::POINTS) && path.ends_with("/proof")
                || path.starts_with(paths::POLICIES) && path.ends_with("/verify")
                // It writes where the server may.
                || path.starts_with(paths::POLICIES) && (path.ends_with("/replica") || path.ends_with("/archive"))
                || path == paths::MIGRATIONS =>
        {
            Role::Admin
        }
        // It takes locked snapshots with it.
        _ if keys
            || (path.starts_with(paths::DISKS) && path.ends_with("/give-up") && *method == Method::POST) =>
        {
            Role::Admin
        }
        _ => Role::Operator,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_takes_a_viewer_changing_an_operator_and_tokens_an_admin() {
        for (method, path, role) in [
            (Method::GET, paths::DISKS, Role::Viewer),
            (Method::HEAD, paths::METRICS, Role::Viewer),
            (Method::POST, paths::DISKS, Role::Operator),
            (Method::POST, paths::POOL_CONFIRM_TIME, Role::Admin),
            (Method::POST, paths::POOL_DIRECTORIES, Role::Admin),
            (Method::POST, paths::POOL_DIRECTORIES_DRAIN, Role::Admin),
            (Method::DELETE, "/v1/disks/web", Role::Operator),
            (Method::POST, "/v1/disks/web/flush", Role::Operator),
            (Method::POST, "/v1/disks/web/give-up", Role::Admin),
            (Method::DELETE, "/v1/disks/give-up", Role::Operator),
            (Method::POST, "/v1/disks/web/trace", Role::Operator),
            (Method::GET, paths::TRACES, Role::Viewer),
            (Method::PATCH, paths::CACHE, Role::Operator),
            (Method::GET, paths::DOMAINS, Role::Viewer),
            (Method::PATCH, "/v1/domains/bank", Role::Operator),
            (Method::POST, paths::DOMAINS, Role::Admin),
            (Method::DELETE, "/v1/domains/bank", Role::Admin),
            (Method::POST, "/v1/domains/bank/export-key", Role::Admin),
            (Method::POST, "/v1/domains/bank/shred", Role::Admin),
            (Method::POST, paths::MASTER_KEY, Role::Admin),
            (Method::GET, paths::POINTS, Role::Viewer),
            (Method::POST, paths::MACHINES, Role::Operator),
            (Method::PATCH, "/v1/machines/web", Role::Operator),
            (Method::POST, "/v1/machines/desk-1/sync", Role::Operator),
            (Method::GET, "/v1/machines/web/stats", Role::Viewer),
            (Method::POST, "/v1/machines/web/usage", Role::Operator),
            (Method::DELETE, "/v1/points/web/20261123T184005Z", Role::Operator),
            (Method::PATCH, "/v1/policies/nightly", Role::Operator),
            (Method::POST, paths::RECOVERIES, Role::Operator),
            (Method::POST, "/v1/recoveries/again/start", Role::Admin),
            (Method::DELETE, "/v1/recoveries/again", Role::Operator),
            (Method::POST, "/v1/recoveries/again/keep", Role::Operator),
            (Method::POST, "/v1/policies/nightly/verify", Role::Admin),
            (Method::POST, "/v1/policies/nightly/archive", Role::Admin),
            (Method::POST, "/v1/policies/nightly/replica", Role::Admin),
            (Method::POST, "/v1/policies/nightly/replicate", Role::Operator),
            (Method::POST, paths::MIGRATIONS, Role::Admin),
            (Method::POST, "/v1/migrations/again/cancel", Role::Operator),
            (Method::POST, "/v1/runs/web/20261123T184005Z/pause", Role::Operator),
            (Method::POST, "/v1/points/web/20261123T184005Z/proof", Role::Admin),
            (Method::GET, "/v1/points/web/20261123T184005Z/proof", Role::Viewer),
            (Method::GET, paths::QOS, Role::Viewer),
            (Method::PATCH, "/v1/qos/test", Role::Operator),
            (Method::GET, paths::TOKENS, Role::Admin),
            (Method::DELETE, "/v1/tokens/a", Role::Admin),
            (Method::PUT, "/v1/what-is-to-come", Role::Operator),
        ] {
            assert_eq!(needed(&method, path), role, "{method} {path}");
        }
    }
}
