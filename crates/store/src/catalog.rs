//! The catalog: documents of those who protect what the store holds. The store knows their names, and not what they say.
//!
//! *Promises*: a change is made whole or not at all, and survives the loss of power once it was told of; of two changes at once of one
//! entry one comes first, and the other is told. *Never*: keeps any of it in memory: there may be thousands.

use crate::documents;
use crate::store::Store;
use stonefold_engine::{Key, Version};
use stonefold_format::catalog::{decode, encode};
use stonefold_types::{Error, Kind, Result};

/// Below it lie all entries.
const ROOT: &str = "catalog/";
/// Names asked for at one time.
const LIST_LIMIT: usize = 100_000;
/// How often a change is tried again after another came first.
const TRIES_MAX: usize = 16;

/// An entry, and what to hold a change against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogEntry {
    /// What it says: JSON.
    pub text: String,
    /// Of what is stored.
    pub version: Version,
}

/// The key of an entry: its family and names within it, joined by `/`.
fn key(path: &str) -> Result<Key> {
    let text = format!("{ROOT}{path}");
    if !path.contains('/') || !Key::is_valid(&text) {
        return Err(Error::new(Kind::Invalid, format!("'{path}' is no name of the catalog")));
    }
    Ok(Key::new(text))
}

fn path_of(key: &Key) -> &str {
    &key.as_str()[ROOT.len()..]
}

impl Store {
    /// The names of all entries of a family, or below a name in it, in their order: `points` has `points/web/20261123T184005Z`.
    pub async fn catalog(&self, below: &str) -> Result<Vec<String>> {
        self.check_open()?;
        let keys = self.catalog_keys(&format!("{ROOT}{below}/")).await?;
        Ok(keys.iter().map(|key| path_of(key).to_owned()).collect())
    }

    async fn catalog_keys(&self, prefix: &str) -> Result<Vec<Key>> {
        let mut keys: Vec<Key> = Vec::new();
        loop {
            let listed = self.engine.list(prefix, keys.last(), LIST_LIMIT).await;
            let listed = listed.map_err(|e| e.context("listing the catalog"))?;
            if listed.is_empty() {
                return Ok(keys);
            }
            keys.extend(listed.into_iter().map(|one| one.key));
        }
    }

    /// An entry; nothing where there is none.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] where it is damaged; it can be put anew, or removed.
    pub async fn catalog_entry(&self, path: &str) -> Result<Option<CatalogEntry>> {
        self.check_open()?;
        let named = |e: Error| e.context(format!("the catalog's entry '{path}'"));
        let Some((bytes, version)) = documents::stored(&*self.engine, &key(path)?).await.map_err(named)?
        else {
            return Ok(None);
        };
        Ok(Some(CatalogEntry { text: decode(&bytes).map_err(named)?.to_owned(), version }))
    }

    /// Stores an entry: in place of `over`, or where there is none.
    ///
    /// # Errors
    /// [`Kind::Conflict`] where another change came first.
    pub async fn put_catalog_entry(&self, path: &str, text: &str, over: Option<&Version>) -> Result<Version> {
        self.check_open()?;
        let bytes = encode(text)?.into();
        let put = documents::swap(&*self.engine, &key(path)?, bytes, over).await;
        let put = put.map_err(|e| e.context(format!("storing the catalog's entry '{path}'")))?;
        put.ok_or_else(|| {
            Error::new(Kind::Conflict, format!("the catalog's entry '{path}' was changed by somebody else"))
                .remedy("look at it, and try again")
        })
    }

    /// Stores what `change` makes of an entry, or of none; it is called again when another change comes first. Returns what is stored
    /// then.
    ///
    /// # Errors
    /// What `change` says; [`Kind::Conflict`] where others change it all the time.
    pub async fn change_catalog_entry(
        &self,
        path: &str,
        mut change: impl FnMut(Option<&str>) -> Result<String>,
    ) -> Result<String> {
        for _ in 0..TRIES_MAX {
            let found = self.catalog_entry(path).await?;
            let text = change(found.as_ref().map(|entry| entry.text.as_str()))?;
            match self.put_catalog_entry(path, &text, found.as_ref().map(|entry| &entry.version)).await {
                Ok(_) => return Ok(text),
                Err(error) if error.kind() == Kind::Conflict => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(
            Kind::Conflict,
            format!("the catalog's entry '{path}' is changed by others all the time"),
        )
        .remedy("try again"))
    }

    /// Removes an entry; one that is not there is removed already.
    pub async fn remove_catalog_entry(&self, path: &str) -> Result<()> {
        self.check_open()?;
        let removed = self.engine.delete(&key(path)?).await;
        removed.map_err(|e| e.context(format!("removing the catalog's entry '{path}'")))
    }

    /// Reads every entry; returns what is wrong with which, in words.
    pub(crate) async fn check_catalog(&self) -> Result<Vec<String>> {
        let mut problems = Vec::new();
        for key in &self.catalog_keys(ROOT).await? {
            self.check_open()?;
            let path = path_of(key);
            match documents::stored(&*self.engine, key).await {
                // Removed meanwhile.
                Ok(None) => {}
                Ok(Some((bytes, _))) if decode(&bytes).is_ok() => {}
                Ok(Some(_)) => problems.push(format!("the catalog's entry '{path}' is damaged")),
                Err(error) => problems.push(format!("the catalog's entry '{path}' cannot be read: {error}")),
            }
        }
        Ok(problems)
    }
}
