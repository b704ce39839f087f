//! `stonefold token …`.

use crate::context::Context;
use crate::failure::Failure;
use crate::table::Table;
use clap::Subcommand;
use serde_json::json;
use stonefold_api::TokenCreate;
use stonefold_types::{Name, Role};

/// Say who may use the API: from the first token on, every request needs one
#[derive(Subcommand)]
pub(crate) enum Token {
    /// Make a token and print its secret, this once
    #[command(after_help = "Examples:\n  \
        (umask 077; stonefold token create --role admin --name me > ~/.stonefold-token)\n  \
        stonefold token create --role viewer --name monitoring --token-file ~/.stonefold-token\n\n\
        viewer looks; operator also changes disks, snapshots, classes of service and the cache; admin also \
        sees and changes tokens, makes and removes domains, uses their keys, changes the pool's directories, \
        confirms its time and gives up damaged disks. The first is an admin's.")]
    Create {
        /// What its holder may do: admin, operator or viewer
        #[arg(long)]
        role: Role,
        /// Its name [default: made up]
        #[arg(long)]
        name: Option<Name>,
    },
    /// List all tokens, without their secrets
    Ls,
    /// Remove a token: from then on it counts no more
    Rm {
        /// Its name
        name: Name,
    },
}

impl Token {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        match self {
            Token::Create { role, name } => {
                let made = client.create_token(&TokenCreate { role, name })?;
                if !context.json {
                    // Not on stdout, which so can be kept as it is.
                    eprintln!(
                        "token '{}' of the role {} is made; its secret is told only now:",
                        made.token.name, role
                    );
                }
                context.answer(&made, || format!("{}\n", made.secret))
            }
            Token::Ls => {
                let tokens = client.tokens()?;
                context.answer(&tokens, || {
                    let mut table = Table::new(&["NAME", "ROLE", "CREATED"]);
                    for token in &tokens {
                        table.row([
                            token.name.to_string(),
                            token.role.to_string(),
                            token.created.to_seconds_text(),
                        ]);
                    }
                    table.or("no tokens: whoever reaches the API may do everything")
                })
            }
            Token::Rm { name } => {
                client.remove_token(&name)?;
                context.answer(&json!({ "removed": [name] }), || format!("removed token '{name}'\n"))
            }
        }
    }
}
