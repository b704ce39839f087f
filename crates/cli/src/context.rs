//! What every command is given: the server to ask, and how to answer.

use crate::failure::Failure;
use clap::Args;
use serde::Serialize;
use std::io::Write;
use stonefold_api::Client;
use stonefold_types::{Error, Kind, Result};

/// What every command takes.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Everywhere")]
pub(crate) struct Global {
    /// The API: where `serve` listens, and where everything else asks: http://HOST:PORT or unix:///PATH
    /// [default: http://127.0.0.1:7770] [env, but for `serve`: STONEFOLD_API]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) api: Vec<String>,
    /// Print one JSON document instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// The environment variable that names the server.
const API_VARIABLE: &str = "STONEFOLD_API";

/// The server to ask, and how to answer.
pub(crate) struct Context {
    /// What `--api` said, as written.
    pub(crate) api: Vec<String>,
    /// Whether to answer in JSON.
    pub(crate) json: bool,
}

impl Context {
    pub(crate) fn new(global: Global) -> Self {
        Context { api: global.api, json: global.json }
    }

    /// A client of the server that flags or environment name.
    pub(crate) fn client(&self) -> std::result::Result<Client, Failure> {
        let from_env = || std::env::var(API_VARIABLE).ok().filter(|url| !url.is_empty());
        let url = match self.api.as_slice() {
            [] => from_env().unwrap_or_else(|| stonefold_api::DEFAULT_URL.to_owned()),
            [url] => url.clone(),
            _ => {
                let error = Error::new(Kind::Invalid, "--api is given more than once");
                return Err(Failure::Misuse(error.remedy("name the one server to ask")));
            }
        };
        // `serve` takes its address without a scheme; whoever copies it here means the same.
        let url = if url.contains("://") { url } else { format!("http://{url}") };
        Client::new(&url).map_err(Failure::Misuse)
    }

    /// Answers: the value as JSON, or the text.
    pub(crate) fn answer<T: Serialize + ?Sized>(
        &self,
        value: &T,
        text: impl FnOnce() -> String,
    ) -> std::result::Result<(), Failure> {
        let text = if self.json { as_json(value)? } else { text() };
        print(&text)
    }
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
