//! Sections, options and what a job inherits.

use super::super::{Place, read, wrong};
use super::at;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use stonefold_types::Result;

/// How deep files include one another at most.
const INCLUDES_MAX: usize = 16;

/// One option of a job.
#[derive(Clone, Debug)]
pub(super) struct Opt {
    pub value: String,
    pub place: Place,
}

/// A job with all that it inherits. Who maps an option takes it; what is left was not mapped.
#[derive(Debug)]
pub(super) struct Job {
    pub name: String,
    pub place: Place,
    pub options: BTreeMap<String, Opt>,
    /// It says how long it runs.
    pub timed: bool,
}

impl Job {
    pub(super) fn take(&mut self, name: &str) -> Option<Opt> {
        self.options.remove(name)
    }

    /// Of an option that is on or off; without a value it is on.
    pub(super) fn flag(&mut self, name: &str) -> bool {
        self.take(name).is_some_and(|option| option.value.is_empty() || option.value == "1")
    }
}

/// The jobs of a file, in order.
pub(super) fn jobs(path: &Path, text: &str) -> Result<Vec<Job>> {
    let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut reader = Reader {
        globals: BTreeMap::new(),
        jobs: Vec::new(),
        in_global: true,
        dir: path.parent().map(Path::to_owned),
    };
    reader.read(&file, text, 0)?;
    Ok(reader.jobs)
}

struct Reader {
    globals: BTreeMap<String, Opt>,
    jobs: Vec<Job>,
    in_global: bool,
    dir: Option<PathBuf>,
}

impl Reader {
    fn read(&mut self, file: &str, text: &str, depth: usize) -> Result<()> {
        for (number, line) in text.lines().enumerate() {
            let place = at(file, number + 1);
            // fio ends a line at either mark, wherever it stands.
            let line = line.split([';', '#']).next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            if let Some(section) = line.strip_prefix('[') {
                let name = section.split(']').next().unwrap_or_default().trim();
                self.section(name, place);
            } else if let Some(included) = line.strip_prefix("include ") {
                self.include(included.trim(), &place, depth)?;
            } else {
                self.option(line, place)?;
            }
        }
        Ok(())
    }

    fn section(&mut self, name: &str, place: Place) {
        self.in_global = name == "global";
        if !self.in_global {
            let options = self.globals.clone();
            self.jobs.push(Job { name: name.to_owned(), place, options, timed: false });
        }
    }

    fn include(&mut self, name: &str, place: &Place, depth: usize) -> Result<()> {
        if depth >= INCLUDES_MAX {
            return Err(wrong(place, format!("more than {INCLUDES_MAX} files include one another")));
        }
        let beside = self.dir.as_ref().map(|dir| dir.join(name)).filter(|path| path.exists());
        let path = beside.unwrap_or_else(|| PathBuf::from(name));
        let text = read(&path).map_err(|e| e.context(format!("{}:{}", place.file, place.line)))?;
        self.read(name, &text, depth + 1)
    }

    fn option(&mut self, line: &str, place: Place) -> Result<()> {
        let (name, value) =
            line.split_once('=').map_or((line, ""), |(name, value)| (name.trim(), value.trim()));
        let value = macros(value).map_err(|why| wrong(&place, format!("'{line}': {why}")))?;
        let options = match (self.in_global, self.jobs.last_mut()) {
            (false, Some(job)) => &mut job.options,
            _ => &mut self.globals,
        };
        options.insert(known_as(name).to_owned(), Opt { value, place });
        Ok(())
    }
}

/// The one name of an option that has several.
fn known_as(name: &str) -> &str {
    match name {
        "readwrite" => "rw",
        "blocksize" => "bs",
        "blocksize_range" => "bsrange",
        "ba" => "blockalign",
        "perc_rand" => "percentage_random",
        "wait_for_previous" => "stonewall",
        "timeout" => "runtime",
        "io_limit" => "io_size",
        "blocksize_unaligned" => "bs_unaligned",
        "dedupe_mode" => "dedupe_mode",
        name => name,
    }
}

/// With `${NAME}` from the environment, and fio's words for this machine.
fn macros(value: &str) -> std::result::Result<String, String> {
    let mut text = String::new();
    let mut rest = value;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, after) = after.split_once('}').ok_or("a ${ has no }")?;
        let value = std::env::var(name)
            .map_err(|_| format!("{name} is not set; set it in the environment, as for fio"))?;
        text.push_str(before);
        text.push_str(&value);
        rest = after;
    }
    text.push_str(rest);
    let cores = crate::machine::cores().to_string();
    Ok(text.replace("$pagesize", "4096").replace("$ncpus", &cores))
}
