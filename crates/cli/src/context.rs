//! What every command is given: the server to ask, and how to answer.

use crate::failure::Failure;
use clap::Args;
use serde::Serialize;
use std::cell::Cell;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::rc::Rc;
use stonefold_api::{Access, Client};
use stonefold_types::{Error, Kind, Result};

/// What every command takes.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Everywhere")]
pub(crate) struct Global {
    /// The API: where `serve` listens, and where everything else asks: http://HOST:PORT, https://HOST:PORT
    /// or unix:///PATH
    /// [default: http://127.0.0.1:7770] [env, but for `serve`: STONEFOLD_API]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) api: Vec<String>,
    /// A file with the token to show, where the server wants one [env: STONEFOLD_TOKEN has the token itself]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// A PEM file with the authority that vouches for a server at https:// [env: STONEFOLD_API_CA]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) api_ca: Option<PathBuf>,
    /// Print one JSON document instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// The environment variable that names the server.
const API_VARIABLE: &str = "STONEFOLD_API";

/// The environment variable that holds the token.
const TOKEN_VARIABLE: &str = "STONEFOLD_TOKEN";
/// The environment variable that names the authority's file.
const API_CA_VARIABLE: &str = "STONEFOLD_API_CA";

/// The server to ask, and how to answer.
pub(crate) struct Context {
    /// What `--api` said, as written.
    pub(crate) api: Vec<String>,
    /// Whether to answer in JSON.
    pub(crate) json: bool,
    token_file: Option<PathBuf>,
    api_ca: Option<PathBuf>,
    /// Shared by those made of this one.
    answered: Rc<Cell<bool>>,
}

impl Context {
    pub(crate) fn new(global: Global) -> Self {
        let Global { api, json, token_file, api_ca } = global;
        Context { api, json, token_file, api_ca, answered: Rc::default() }
    }

    /// The same, but asking the server at `url`, which wants no token.
    pub(crate) fn asking(&self, url: String) -> Context {
        let answered = self.answered.clone();
        Context { api: vec![url], json: self.json, token_file: None, api_ca: None, answered }
    }

    /// A client of the server that flags or environment name.
    pub(crate) fn client(&self) -> std::result::Result<Client, Failure> {
        let url = match self.api.as_slice() {
            [] => from_env(API_VARIABLE).unwrap_or_else(|| stonefold_api::DEFAULT_URL.to_owned()),
            [url] => url.clone(),
            _ => {
                let error = Error::new(Kind::Invalid, "--api is given more than once");
                return Err(Failure::Misuse(error.remedy("name the one server to ask")));
            }
        };
        // `serve` takes its address without a scheme; whoever copies it here means the same.
        let url = if url.contains("://") { url } else { format!("http://{url}") };
        let authority = self.api_ca.clone().or_else(|| from_env(API_CA_VARIABLE).map(PathBuf::from));
        let access = Access { token: self.token()?, authority };
        Client::with(&url, access).map_err(Failure::Misuse)
    }

    /// The server that flags or environment name, as written; nothing where that is the one that is asked anyway.
    pub(crate) fn other_server(&self) -> Option<String> {
        let named = self.api.first().cloned().or_else(|| from_env(API_VARIABLE));
        named.filter(|url| url != stonefold_api::DEFAULT_URL)
    }

    /// A file that is not there, or holds something else, is a failure and no misuse of flags, as a key's is.
    fn token(&self) -> Result<Option<String>> {
        let Some(path) = &self.token_file else { return Ok(from_env(TOKEN_VARIABLE)) };
        let what = format!("the token's file '{}'", path.display());
        let unreadable = |e| Error::io(format!("{what} cannot be read"), e).remedy("name a readable file");
        let file = std::fs::File::open(path).map_err(unreadable)?;
        let meta = file.metadata().map_err(unreadable)?;
        if meta.is_file() && meta.permissions().mode() & 0o077 != 0 {
            eprintln!(
                "warning: file '{}' holds a token, and others may read it: chmod 600 it",
                path.display()
            );
        }
        let text = std::io::read_to_string(file).map_err(unreadable)?;
        let token = text.trim();
        // Checked here, because no server could be asked with it.
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            let error = Error::new(Kind::Invalid, format!("{what} does not hold one token"));
            return Err(error.remedy("put in it what 'stonefold token create' printed"));
        }
        Ok(Some(token.to_owned()))
    }

    /// Answers: the value as JSON, or the text.
    pub(crate) fn answer<T: Serialize + ?Sized>(
        &self,
        value: &T,
        text: impl FnOnce() -> String,
    ) -> std::result::Result<(), Failure> {
        let text = if self.json { as_json(value)? } else { text() };
        self.answered.set(true);
        print(&text)
    }

    /// Whether it has answered, so that with `--json` there is a document on stdout.
    pub(crate) fn has_answered(&self) -> bool {
        self.answered.get()
    }
}

fn from_env(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|value| !value.is_empty())
}

fn as_json<T: Serialize + ?Sized>(value: &T) -> Result<String> {
    let text = serde_json::to_string_pretty(value);
    text.map(|text| text + "\n").map_err(|e| Error::new(Kind::Io, format!("writing the answer as JSON: {e}")))
}

/// Writes to stdout as it is.
pub(crate) fn print(text: &str) -> std::result::Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(|e| match e.kind() {
        std::io::ErrorKind::BrokenPipe => Failure::Unread,
        _ => Error::io("writing the answer to stdout", e).into(),
    })
}
