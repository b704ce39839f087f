//! Sources: what is protected.

use crate::catalog::{self, Entry, Unknown};
use crate::machines::Machine;
use crate::{Protection, runs::Run};
use serde::{Deserialize, Serialize};
use stonefold_env::WallNanos;
use stonefold_types::{Error, Kind, Name, Result};

/// The document of a source, `sources/NAME`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Unique in the pool.
    pub name: Name,
    /// What it is.
    pub of: SourceOf,
    /// Trusted time, nanoseconds since 1970.
    pub added: WallNanos,
    #[serde(flatten)]
    pub(crate) unknown: Unknown,
}

/// What is protected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceOf {
    /// A machine whose disks are ours.
    Machine(Name),
}

impl SourceOf {
    /// The machine.
    pub fn machine(&self) -> &Name {
        let SourceOf::Machine(machine) = self;
        machine
    }
}

impl Entry for Source {
    const FAMILY: &'static str = "sources";
    const NOUN: &'static str = "source";
    const LISTED_BY: &'static str = "stonefold source ls";

    fn key(&self) -> String {
        self.name.to_string()
    }
}

impl Protection {
    /// All sources, by name.
    pub async fn sources(&self) -> Result<Vec<Source>> {
        self.settle().await;
        catalog::all(&self.store, None).await
    }

    /// One source.
    pub async fn source(&self, name: &Name) -> Result<Source> {
        self.settle().await;
        catalog::get(&self.store, name.as_str()).await
    }

    /// Adds a source.
    pub async fn add_source(&self, name: Name, of: SourceOf) -> Result<Source> {
        self.change(async {
            self.machine(of.machine()).await?;
            let added = self.store.time().trusted;
            let source = Source { name, of, added, unknown: Unknown::new() };
            catalog::put_new(&self.store, &source).await?;
            Ok(source)
        })
        .await
    }

    /// Removes a source; its points and the history of its runs stay. Returns how many points that are.
    pub async fn remove_source(&self, name: &Name) -> Result<usize> {
        self.change(async {
            self.source(name).await?;
            self.check_no_run(name).await?;
            self.check_no_policy(name).await?;
            catalog::remove::<Source>(&self.store, name.as_str()).await?;
            Ok(catalog::keys::<crate::Point>(&self.store, Some(name.as_str())).await?.len())
        })
        .await
    }

    /// Fails while a source is of this machine.
    pub(crate) async fn check_no_source(&self, machine: &Machine) -> Result<()> {
        let sources = catalog::every::<Source>(&self.store).await?;
        let Some(source) = sources.iter().find(|source| *source.of.machine() == machine.name) else {
            return Ok(());
        };
        let what = format!("machine '{}' is protected as source '{}'", machine.name, source.name);
        let remedy = format!("remove that first: stonefold source rm {}; its points stay", source.name);
        Err(Error::new(Kind::Busy, what).remedy(remedy))
    }

    /// Fails while a run of a source is under way, or could not be ended yet.
    pub(crate) async fn check_no_run(&self, source: &Name) -> Result<()> {
        let newest = catalog::keys::<Run>(&self.store, Some(source.as_str())).await?.pop();
        let Some(key) = newest else { return Ok(()) };
        match self.readable::<Run>(&key).await? {
            Some(run) if run.is_under_way() => {
                let what = format!("run '{}' could not be ended yet", run.name);
                Err(Error::new(Kind::Busy, what).remedy("the log says why; try again when that is mended"))
            }
            _ => Ok(()),
        }
    }
}
