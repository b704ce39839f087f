//! What a pool of files is opened with, and the URL that says it.

use super::layout::Layout;
use super::tombstone::{self, Mark};
use std::path::PathBuf;
use stonefold_types::{Error, Kind, Result};

/// How a pool of files is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Its directories, absolute paths.
    pub dirs: Vec<PathBuf>,
    /// On how many of them each object and journal lies. `None`: as many as the pool has; a new one has 1.
    pub copies: Option<usize>,
    /// Whether to go around the page cache.
    pub direct: Direct,
    /// Whether to go on without directories that are missing, although they may hold what the others do not, and
    /// without filling again those that were dropped.
    pub degraded: bool,
    /// Empty directories that take the place of dropped members. Never unasked: an empty mount point looks the same.
    pub replace: Vec<PathBuf>,
    /// Whether to make the pool when the directories are empty or absent.
    pub create: bool,
    /// Objects kept open for reading, at most. `None`: half of the descriptors the process may have, and 4096 at
    /// most, which at 16 MiB each covers 64 GiB; an object beyond costs one more open.
    pub handles_max: Option<usize>,
    /// The longest file of a journal, in bytes. Files start shorter and grow up to this, so that a small pool
    /// stays small; longer ones make trimming coarser, shorter ones change files more often.
    pub journal_file_bytes_max: u64,
}

/// Whether files are read and written around the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direct {
    /// Where the file system allows.
    #[default]
    Auto,
    /// Never.
    Never,
}

impl Options {
    /// One directory, and defaults for the rest.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Options {
            dirs: vec![dir.into()],
            copies: None,
            direct: Direct::Auto,
            degraded: false,
            replace: Vec::new(),
            create: true,
            handles_max: None,
            journal_file_bytes_max: 64 << 20,
        }
    }

    /// Reads `file:///d1?also=/d2&copies=2&direct=never`.
    pub fn parse(url: &str) -> Result<Options> {
        let wrong = |why: String| {
            Error::new(Kind::Invalid, format!("pool URL '{url}': {why}"))
                .remedy("write it as file:///srv/pool or file:///d1?also=/d2&copies=2")
        };
        let rest =
            url.strip_prefix("file://").ok_or_else(|| wrong("it does not begin with file://".into()))?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut options = Options::new(decode(path).map_err(wrong)?);
        for parameter in query.split('&').filter(|p| !p.is_empty()) {
            let (name, value) = parameter
                .split_once('=')
                .ok_or_else(|| wrong(format!("parameter '{parameter}' has no value")))?;
            let value = decode(value).map_err(wrong)?;
            match (name, value.as_str()) {
                ("also", _) => options.dirs.push(value.into()),
                ("copies", _) => {
                    let copies =
                        value.parse().map_err(|_| wrong(format!("copies={value} is not a number")))?;
                    options.copies = Some(copies);
                }
                ("replace", _) => options.replace.push(value.into()),
                ("degraded", "yes") => options.degraded = true,
                ("degraded", "no") => options.degraded = false,
                ("degraded", _) => return Err(wrong(format!("degraded={value} is neither yes nor no"))),
                ("direct", "auto") => options.direct = Direct::Auto,
                ("direct", "never") => options.direct = Direct::Never,
                ("direct", _) => return Err(wrong(format!("direct={value} is neither auto nor never"))),
                _ => {
                    return Err(wrong(format!(
                        "unknown parameter '{name}' (known: also, copies, degraded, direct, replace)"
                    )));
                }
            }
        }
        options.check().map_err(|e| e.context(format!("pool URL '{url}'")))?;
        Ok(options)
    }

    /// The URL of a pool in these directories that is reached in the same way.
    pub(super) fn url(&self, dirs: &[&PathBuf], copies: usize) -> String {
        let mut url = String::from("file://");
        for (index, dir) in dirs.iter().enumerate() {
            url.push_str(match index {
                0 => "",
                1 => "?also=",
                _ => "&also=",
            });
            url.push_str(&encode(&dir.to_string_lossy()));
        }
        let mut parameter = |text: String| {
            url.push(if url.contains('?') { '&' } else { '?' });
            url.push_str(&text);
        };
        if copies != 1 {
            parameter(format!("copies={copies}"));
        }
        if self.direct == Direct::Never {
            parameter("direct=never".into());
        }
        url
    }

    /// Whether any of the directories is a pool's already, or was; touches nothing, and promises nothing of the pool.
    pub fn is_made(&self) -> bool {
        let is_made = |dir: &PathBuf| {
            let layout = Layout { root: dir.clone() };
            !matches!((layout.inspect(true), tombstone::read(&layout)), (Ok(false), Ok(Mark::Absent)))
        };
        self.dirs.iter().any(is_made)
    }

    /// Refuses what makes no sense.
    pub(super) fn check(&self) -> Result<()> {
        let wrong = |why: String, fix: &str| Err(Error::new(Kind::Invalid, why).remedy(fix));
        if self.dirs.is_empty() {
            return wrong("it names no directory".into(), "name at least one");
        }
        for (index, dir) in self.dirs.iter().enumerate() {
            if !dir.is_absolute() {
                let why = format!("'{}' is not an absolute path", dir.display());
                return wrong(why, "begin it with a slash: file:///srv/pool");
            }
            if self.dirs[..index].contains(dir) {
                return wrong(format!("'{}' is named twice", dir.display()), "name each directory once");
            }
        }
        if let Some(dir) = self.replace.iter().find(|dir| !self.dirs.contains(dir)) {
            let why = format!("'{}' is to replace, and is not named itself", dir.display());
            return wrong(why, "name it with also=, too");
        }
        if self.copies == Some(0) {
            return wrong("copies=0 keeps nothing".into(), "ask for at least one copy");
        }
        Ok(())
    }

    /// The copies of a pool that is to be made.
    pub(super) fn copies_to_make(&self) -> Result<usize> {
        let copies = self.copies.unwrap_or(1);
        if copies > self.dirs.len() {
            let why = format!("{copies} copies need as many directories, but {} are named", self.dirs.len());
            return Err(
                Error::new(Kind::Invalid, why).remedy("add directories with also=, or ask for fewer copies")
            );
        }
        Ok(copies)
    }
}

/// Percent-encodes what would end a path in a URL, and what is not plain text.
fn encode(path: &str) -> String {
    let plain =
        |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'%' | b'?' | b'&' | b'#' | b'\'' | b'"');
    path.bytes().fold(String::new(), |mut text, byte| {
        match plain(byte) {
            true => text.push(byte.into()),
            false => text.push_str(&format!("%{byte:02x}")),
        }
        text
    })
}

/// Undoes percent-encoding.
fn decode(text: &str) -> std::result::Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = rest.get(..2).and_then(|d| std::str::from_utf8(d).ok());
        let byte = digits.and_then(|d| u8::from_str_radix(d, 16).ok());
        bytes.push(byte.ok_or_else(|| format!("'{text}' has a % that two hex digits do not follow"))?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).map_err(|_| format!("'{text}' is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_urls() {
        let one = Options::parse("file:///srv/my%20pool").unwrap();
        assert_eq!((one.dirs, one.copies), (vec![PathBuf::from("/srv/my pool")], None));
        let two = Options::parse("file:///d1?also=/d2&copies=2&direct=never").unwrap();
        assert_eq!(two.dirs, [PathBuf::from("/d1"), "/d2".into()]);
        assert_eq!((two.copies, two.direct), (Some(2), Direct::Never));
    }

    #[test]
    fn what_is_told_as_url_reads_back() {
        let dirs: Vec<PathBuf> = ["/srv/my pool", "/d&2?also=x", "/plain", "/ünd%20"].map(Into::into).into();
        for (count, copies, direct) in [(1, 1, Direct::Auto), (4, 1, Direct::Never), (3, 2, Direct::Auto)] {
            let options = Options { direct, ..Options::new("/") };
            let url = options.url(&dirs.iter().take(count).collect::<Vec<_>>(), copies);
            let read = Options::parse(&url).unwrap();
            let asked = (copies > 1).then_some(copies);
            assert_eq!((&read.dirs[..], read.copies, read.direct), (&dirs[..count], asked, direct), "{url}");
        }
    }

    #[test]
    fn refuses_with_the_reason() {
        for (url, says) in [
            ("/srv/pool", "does not begin with file://"),
            ("file://srv/pool", "not an absolute path"),
            ("file:///d?copies=0", "copies=0"),
            ("file:///d?copies=x", "not a number"),
            ("file:///d?also=e", "'e' is not an absolute path"),
            ("file:///d?also=/d", "named twice"),
            ("file:///d?colour=red", "unknown parameter 'colour'"),
            ("file:///d?also", "has no value"),
            ("file:///d?direct=maybe", "neither auto nor never"),
            ("file:///d?replace=/e", "not named itself"),
            ("file:///d?degraded=1", "neither yes nor no"),
            ("file:///%zz", "two hex digits"),
        ] {
            let error = Options::parse(url).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid, "{url}");
            assert!(error.to_string().contains(says), "{url}: {error}");
            assert!(error.remedy_text().is_some(), "{url}");
        }
    }
}
