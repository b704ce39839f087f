//! The URL of a pool in an object store.

use std::path::PathBuf;
use stonefold_types::{Error, Kind, Result, Size};
use url::Url;

/// How a pool in an object store is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The bucket.
    pub bucket: String,
    /// What all its objects' keys begin with, without a slash at either end; empty for the whole bucket.
    pub prefix: String,
    /// Where the store answers; `None` for AWS.
    pub endpoint: Option<String>,
    /// The store's region; `None` for what `AWS_REGION` says, or us-east-1.
    pub region: Option<String>,
    /// A file with the keys, as `~/.aws/credentials` has them; `None` for the environment, or the machine's own role.
    pub credentials: Option<PathBuf>,
    /// Which section of that file.
    pub profile: String,
    /// A certificate authority to trust, beside the system's.
    pub ca: Option<PathBuf>,
    /// Whether the bucket is named in the host (`bucket.host`) and not in the path.
    pub virtual_host: bool,
    /// The most bytes that the pool may take; an object store tells no end of its own.
    pub size_bytes: Option<u64>,
    /// Whether to make the pool where there is none.
    pub create: bool,
}

const FORM: &str = "write it as s3://bucket/prefix, or s3://bucket/prefix?endpoint=https://host:port";
const KNOWN: &str = "known: endpoint, region, credentials, profile, ca, style, size";

impl Options {
    /// Reads `s3://bucket/prefix?endpoint=https://host:9000&region=eu-central-1&credentials=/etc/stonefold/s3`.
    pub fn parse(text: &str) -> Result<Options> {
        let wrong =
            |why: String| Error::new(Kind::Invalid, format!("pool URL '{}': {why}", told(text))).remedy(FORM);
        let url = Url::parse(text).map_err(|e| wrong(e.to_string()))?;
        if url.scheme() != "s3" {
            return Err(wrong("it does not begin with s3://".into()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("keys do not belong into a URL, which everybody sees".into())
                .remedy("put them into a file, and name it: credentials=FILE"));
        }
        let bucket = url.host_str().filter(|bucket| !bucket.is_empty());
        let mut options = Options {
            bucket: bucket.ok_or_else(|| wrong("it names no bucket".into()))?.to_owned(),
            prefix: prefix(url.path()).ok_or_else(|| wrong("its prefix is no path of plain names".into()))?,
            endpoint: None,
            region: None,
            credentials: None,
            profile: "default".into(),
            ca: None,
            virtual_host: false,
            size_bytes: None,
            create: true,
        };
        for (name, value) in url.query_pairs() {
            options.set(&name, value.into_owned()).map_err(wrong)?;
        }
        Ok(options)
    }

    fn set(&mut self, name: &str, value: String) -> std::result::Result<(), String> {
        let absolute = |value: &str| match value.starts_with('/') {
            true => Ok(PathBuf::from(value)),
            false => Err(format!("{name}={value} is not an absolute path")),
        };
        match name {
            "endpoint" => {
                let url = Url::parse(&value).map_err(|e| format!("endpoint={value}: {e}"))?;
                if !matches!(url.scheme(), "http" | "https") {
                    return Err(format!("endpoint={value} begins with neither http:// nor https://"));
                }
                self.endpoint = Some(value.trim_end_matches('/').to_owned());
            }
            "region" => self.region = Some(value),
            "credentials" => self.credentials = Some(absolute(&value)?),
            "profile" => self.profile = value,
            "ca" => self.ca = Some(absolute(&value)?),
            "style" => {
                self.virtual_host = match value.as_str() {
                    "path" => false,
                    "host" => true,
                    _ => return Err(format!("style={value} is neither path nor host")),
                };
            }
            "size" => {
                let size: Size = value.parse().map_err(|e| format!("size={value}: {e}"))?;
                self.size_bytes = Some(size.0);
            }
            _ => return Err(format!("unknown parameter '{name}' ({KNOWN})")),
        }
        Ok(())
    }

    /// Where the store is asked; `None` for AWS.
    pub(crate) fn address(&self) -> Option<String> {
        let endpoint = self.endpoint.clone()?;
        match endpoint.split_once("://").filter(|_| self.virtual_host) {
            Some((scheme, host)) => Some(format!("{scheme}://{}.{host}", self.bucket)),
            None => Some(endpoint),
        }
    }

    /// The place, for people: without how it is reached.
    pub(crate) fn place(&self) -> String {
        match self.prefix.as_str() {
            "" => format!("s3://{}", self.bucket),
            prefix => format!("s3://{}/{prefix}", self.bucket),
        }
    }
}

/// A URL without what nobody is to read.
fn told(url: &str) -> String {
    match url.split_once("://") {
        Some((scheme, rest)) => {
            let (before, after) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
            let host = before.rsplit_once('@').map_or(before, |(_, host)| host);
            format!("{scheme}://{host}{after}")
        }
        None => url.to_owned(),
    }
}

/// A URL's path as what keys begin with. Names are those that every store takes as they are.
fn prefix(path: &str) -> Option<String> {
    let path = path.trim_matches('/');
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    let good = |part: &str| !part.is_empty() && part.bytes().all(plain) && !part.bytes().all(|b| b == b'.');
    (path.is_empty() || path.split('/').all(good)).then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_and_how() {
        let url = "s3://backups/lab/one/?endpoint=http://127.0.0.1:9000/&region=eu&credentials=/etc/s3&style=host&size=2T";
        let options = Options::parse(url).unwrap();
        assert_eq!((options.bucket.as_str(), options.prefix.as_str()), ("backups", "lab/one"));
        assert_eq!(options.endpoint.as_deref(), Some("http://127.0.0.1:9000"));
        assert_eq!(options.credentials, Some("/etc/s3".into()));
        assert_eq!((options.virtual_host, options.size_bytes), (true, Some(2 << 40)));
        assert_eq!(options.place(), "s3://backups/lab/one");
        assert_eq!(options.address().as_deref(), Some("http://backups.127.0.0.1:9000"));
        let plain = Options::parse("s3://backups").unwrap();
        assert_eq!((plain.prefix.as_str(), plain.place().as_str()), ("", "s3://backups"));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (url, why) in [
            ("s3://", "names no bucket"),
            ("s3:///prefix", "names no bucket"),
            ("file:///srv", "does not begin with s3://"),
            ("s3://me:secret@bucket/x", "keys do not belong into a URL"),
            ("s3://bucket/a//b", "no path of plain names"),
            ("s3://bucket/a%20b", "no path of plain names"),
            ("s3://bucket?endpoint=ftp://x", "neither http:// nor https://"),
            ("s3://bucket?credentials=keys", "not an absolute path"),
            ("s3://bucket?size=lots", "size=lots"),
            ("s3://bucket?colour=red", "unknown parameter 'colour'"),
        ] {
            let error = Options::parse(url).map(drop).unwrap_err();
            assert!(error.to_string().contains(why), "{url}: {error}");
            assert!(error.remedy_text().is_some(), "{url}: what to do is said");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
