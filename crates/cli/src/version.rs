//! `stonefold version`.

use crate::context::Context;
use crate::failure::Failure;
use serde::Serialize;
use stonefold_api::Server;
use stonefold_server::VERSION;
use stonefold_types::Kind;

#[derive(Serialize)]
struct Versions {
    version: &'static str,
    /// The server that answers, where one does.
    server: Option<Server>,
    /// Why one that answers does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
}

pub(crate) fn run(context: &Context) -> Result<(), Failure> {
    let client = context.client()?;
    // No server is no failure here: the question was about this program first.
    let (server, refused) = match client.server() {
        Ok(server) => (Some(server), None),
        Err(error) if matches!(error.kind(), Kind::NoToken | Kind::Denied) => (None, Some(error.what())),
        Err(_) => (None, None),
    };
    let versions = Versions { version: VERSION, server, refused };
    context.answer(&versions, || match (&versions.server, &versions.refused) {
        (Some(server), _) => format!("stonefold {VERSION}\nserver {} at {}\n", server.version, client.url()),
        (None, Some(why)) => {
            format!(
                "stonefold {VERSION}\na server answers at {}, and does not tell its version: {why}\n",
                client.url()
            )
        }
        (None, None) => format!("stonefold {VERSION}\nno server answers at {}\n", client.url()),
    })
}
