//! Keys in a file, as the tools of AWS keep them.

use crate::options::Options;
use std::path::Path;
use stonefold_types::{Error, Kind, Result};

/// What is asked with.
#[derive(PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) id: String,
    pub(crate) secret: String,
    /// Of a session that ends.
    pub(crate) token: Option<String>,
}

/// The keys that a pool's URL names a file for.
pub(crate) fn read(options: &Options) -> Result<Option<Keys>> {
    let Some(path) = &options.credentials else { return Ok(None) };
    let text = std::fs::read_to_string(path).map_err(|e| {
        Error::io(format!("the file of credentials '{}' cannot be read", path.display()), e)
            .remedy("name a file that the server may read after credentials=")
    })?;
    parse(&text, &options.profile, path).map(Some)
}

fn parse(text: &str, profile: &str, path: &Path) -> Result<Keys> {
    let (mut id, mut secret, mut token) = (None, None, None);
    // What stands before any section counts for all.
    let mut ours = true;
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
        if let Some(section) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            ours = section.trim() == profile;
        } else if let Some((name, value)) = line.split_once('=').filter(|_| ours) {
            let value = Some(value.trim().to_owned());
            match name.trim() {
                "aws_access_key_id" => id = value,
                "aws_secret_access_key" => secret = value,
                "aws_session_token" => token = value,
                _ => {}
            }
        }
    }
    match (id, secret) {
        (Some(id), Some(secret)) => Ok(Keys { id, secret, token }),
        _ => {
            let what = format!("the file of credentials '{}' has no keys for '{profile}'", path.display());
            Err(Error::new(Kind::Invalid, what).remedy(format!(
                "write '[{profile}]', 'aws_access_key_id = …' and 'aws_secret_access_key = …' into it, or name another section: profile=NAME"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# of the lab\n[default]\naws_access_key_id = one\naws_secret_access_key=first=\n\n[other]\n\
                        aws_access_key_id = two\naws_secret_access_key = second\naws_session_token = t\n[half]\naws_access_key_id = x\n";

    #[test]
    fn a_section_is_read_as_it_stands() {
        let keys = |profile| parse(FILE, profile, Path::new("/keys")).map_err(|e| e.to_string());
        let default = keys("default").ok().unwrap();
        assert_eq!((default.id.as_str(), default.secret.as_str(), default.token), ("one", "first=", None));
        let other = keys("other").ok().unwrap();
        assert_eq!((other.id.as_str(), other.token.as_deref()), ("two", Some("t")));
        for absent in ["half", "none"] {
            let error = keys(absent).err().unwrap();
            assert!(error.contains("/keys") && error.contains(absent), "{error}");
        }
    }
}
