//! `stonefold completions`.

use crate::context::Context;
use crate::failure::Failure;
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use serde_json::json;

/// Print what makes a shell complete these commands
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    stonefold completions bash > /etc/bash_completion.d/stonefold\n  \
    stonefold completions zsh > ~/.zfunc/_stonefold\n  \
    stonefold completions fish > ~/.config/fish/completions/stonefold.fish")]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut crate::Cli::command(), "stonefold", &mut script);
        let script = String::from_utf8_lossy(&script);
        context.answer(&json!({ "shell": self.shell.to_string(), "script": script }), || script.to_string())
    }
}
