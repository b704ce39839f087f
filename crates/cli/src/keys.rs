//! Flags that name keys.

use clap::Args;
use std::fmt::Write;
use std::path::PathBuf;
use stonefold_api::MasterKeyChange;
use stonefold_server::{KeySource, MasterKey};
use stonefold_types::{Error, Kind, Result};

/// What opens encrypted domains
#[derive(Args, Clone, Default)]
pub(crate) struct KeyFlags {
    /// A file with the master key of encrypted domains: 32 bytes as they are, in hex or in base64
    #[arg(long, value_name = "FILE", group = "master")]
    key_file: Option<PathBuf>,
    /// A file with a passphrase, from which the master key is made
    #[arg(long, value_name = "FILE", group = "master")]
    passphrase_file: Option<PathBuf>,
    /// A command that prints the master key, asking a key service for it; a shell runs it
    #[arg(long, value_name = "COMMAND", group = "master")]
    key_command: Option<String>,
    /// A file with a domain's keys from 'domain export-key': opens it without the master key, or, beside a new master key, gives it
    /// that one; may be given again
    #[arg(long, value_name = "FILE")]
    recovery_key: Vec<PathBuf>,
}

impl KeyFlags {
    pub(crate) fn source(self) -> KeySource {
        let KeyFlags { key_file, passphrase_file, key_command, recovery_key } = self;
        KeySource { key_file, passphrase_file, key_command, recovery_keys: recovery_key }
    }
}

/// Another master key
#[derive(Args)]
#[group(required = true, multiple = false)]
pub(crate) struct NewKey {
    /// A file with the new master key: 32 bytes as they are, in hex or in base64
    #[arg(long, value_name = "FILE")]
    new_key_file: Option<PathBuf>,
    /// A file with the new passphrase
    #[arg(long, value_name = "FILE")]
    new_passphrase_file: Option<PathBuf>,
    /// A command that prints the new master key
    #[arg(long, value_name = "COMMAND")]
    new_key_command: Option<String>,
}

impl NewKey {
    /// Reads it here, where the file is, and says it as the API takes it.
    pub(crate) fn read(self) -> Result<MasterKeyChange> {
        let NewKey { new_key_file, new_passphrase_file, new_key_command } = self;
        let source = KeySource {
            key_file: new_key_file,
            passphrase_file: new_passphrase_file,
            key_command: new_key_command,
            recovery_keys: Vec::new(),
        };
        match source.master()? {
            Some(MasterKey::Key(key)) => {
                let mut hex = String::with_capacity(64);
                key.expose().iter().for_each(|byte| {
                    let _ = write!(hex, "{byte:02x}");
                });
                Ok(MasterKeyChange { key: Some(hex), passphrase: None })
            }
            Some(MasterKey::Passphrase(text)) => {
                let text = std::str::from_utf8(&text)
                    .map_err(|_| Error::new(Kind::Invalid, "the new passphrase is not UTF-8"))?;
                Ok(MasterKeyChange { key: None, passphrase: Some(text.to_owned()) })
            }
            None => Err(Error::new(Kind::Invalid, "no new master key is named")),
        }
    }
}
