//! `stonefold version`.

use crate::context::Context;
use crate::failure::Failure;
use serde::Serialize;
use stonefold_api::Server;
use stonefold_server::VERSION;

#[derive(Serialize)]
struct Versions {
    version: &'static str,
    /// The server that answers, where one does.
    server: Option<Server>,
}

pub(crate) fn run(context: &Context) -> Result<(), Failure> {
    let client = context.client()?;
    // No server is no failure here: the question was about this program first.
    let server = client.server().ok();
    let versions = Versions { version: VERSION, server };
    context.answer(&versions, || match &versions.server {
        Some(server) => format!("stonefold {VERSION}\nserver {} at {}\n", server.version, client.url()),
        None => format!("stonefold {VERSION}\nno server answers at {}\n", client.url()),
    })
}
