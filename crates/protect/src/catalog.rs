//! The documents of the catalog: each is JSON with a version, at a name below its family.
//!
//! `{"version": 1, …}`. A reader refuses a later version by name; fields that it does not know it keeps and writes again, so that an
//! older server loses nothing of a newer one's. What each says is drawn at its type; [`fixtures`](tests) has one of each as it is stored.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use stonefold_store::Store;
use stonefold_types::{Error, Kind, Result};

/// The version of every document's body.
const VERSION: u64 = 1;

/// Fields of a document that this version does not know.
pub(crate) type Unknown = Map<String, Value>;

/// A kind of document.
pub(crate) trait Entry: Serialize + DeserializeOwned {
    /// Below it lie all of a kind.
    const FAMILY: &'static str;
    /// For people: `machine`.
    const NOUN: &'static str;
    /// The command that lists them.
    const LISTED_BY: &'static str;

    /// Its name within its family; with a slash where it has two parts.
    fn key(&self) -> String;
}

fn path<E: Entry>(key: &str) -> String {
    format!("{}/{key}", E::FAMILY)
}

/// What is stored of a document.
pub(crate) fn written<E: Entry>(entry: &E) -> String {
    let mut value = serde_json::to_value(entry).expect("a document is plain JSON");
    value["version"] = VERSION.into();
    value.to_string()
}

/// Reads what is stored.
pub(crate) fn read<E: Entry>(text: &str) -> Result<E> {
    let damaged = |e: serde_json::Error| Error::new(Kind::Corrupt, format!("it cannot be read: {e}"));
    let mut value: Value = serde_json::from_str(text).map_err(damaged)?;
    let version = value.as_object_mut().and_then(|fields| fields.remove("version"));
    match version.as_ref().and_then(Value::as_u64) {
        Some(VERSION) => serde_json::from_value(value).map_err(damaged),
        Some(later) => Err(Error::new(Kind::Unsupported, format!("it has version {later}"))
            .remedy(format!("this build reads up to version {VERSION}: use a newer stonefold"))),
        None => Err(Error::new(Kind::Corrupt, "it has no version")),
    }
}

/// A document; nothing where there is none.
pub(crate) async fn find<E: Entry>(store: &Store, key: &str) -> Result<Option<E>> {
    let found = store.catalog_entry(&path::<E>(key)).await?;
    let named = |e: Error| e.context(format!("what is kept of {} '{}'", E::NOUN, shown(key)));
    found.map(|entry| read(&entry.text).map_err(named)).transpose()
}

/// A document that must be there.
pub(crate) async fn get<E: Entry>(store: &Store, key: &str) -> Result<E> {
    find(store, key).await?.ok_or_else(|| missing::<E>(key))
}

fn missing<E: Entry>(key: &str) -> Error {
    Error::new(Kind::NotFound, format!("{} '{}' does not exist", E::NOUN, shown(key)))
        .remedy(format!("'{}' shows those there are", E::LISTED_BY))
}

/// As people write it.
fn shown(key: &str) -> String {
    key.replace('/', "@")
}

/// The names of all documents of a kind, or of those below a part of a name, in their order.
pub(crate) async fn keys<E: Entry>(store: &Store, below: Option<&str>) -> Result<Vec<String>> {
    let listed = match below {
        None => store.catalog(E::FAMILY).await?,
        Some(below) => store.catalog(&path::<E>(below)).await?,
    };
    Ok(listed.iter().map(|path| path[E::FAMILY.len() + 1..].to_owned()).collect())
}

/// All documents of a kind, or those below a part of a name. What cannot be read is told in the log and left out: one that is damaged
/// must not hide the others. A check of the pool names it.
pub(crate) async fn all<E: Entry>(store: &Store, below: Option<&str>) -> Result<Vec<E>> {
    let mut found = Vec::new();
    for key in keys::<E>(store, below).await? {
        match find(store, &key).await {
            Ok(entry) => found.extend(entry),
            Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::Unsupported) => {
                tracing::warn!("left out: {error}");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// All documents of a kind, for whom one that he does not see would mislead: fails where one cannot be read.
pub(crate) async fn every<E: Entry>(store: &Store) -> Result<Vec<E>> {
    let mut found = Vec::new();
    for key in keys::<E>(store, None).await? {
        let entry = find(store, &key).await.map_err(|e| match e.remedy_text() {
            Some(_) => e,
            None => e.remedy("restore the object from another copy, or remove it"),
        })?;
        found.extend(entry);
    }
    Ok(found)
}

/// Stores a document where there is none.
pub(crate) async fn put_new<E: Entry>(store: &Store, entry: &E) -> Result<()> {
    let key = entry.key();
    match store.put_catalog_entry(&path::<E>(&key), &written(entry), None).await {
        Err(error) if error.kind() == Kind::Conflict => {
            let what = format!("{} '{}' exists already", E::NOUN, shown(&key));
            Err(Error::new(Kind::AlreadyExists, what).remedy("choose another name, or remove that one first"))
        }
        put => put.map(drop),
    }
}

/// Stores a document, in the place of another of its name.
pub(crate) async fn put<E: Entry>(store: &Store, entry: &E) -> Result<()> {
    let path = path::<E>(&entry.key());
    let anew = |_: Option<&str>| Ok(written(entry));
    match store.change_catalog_entry(&path, anew).await {
        Err(error) if error.kind() == Kind::Corrupt => {
            tracing::warn!("what was there before is replaced: {error}");
            store.remove_catalog_entry(&path).await?;
            store.change_catalog_entry(&path, anew).await.map(drop)
        }
        put => put.map(drop),
    }
}

/// Stores what `change` makes of a document that is there.
pub(crate) async fn change<E: Entry>(
    store: &Store,
    key: &str,
    change: impl Fn(&mut E) -> Result<()>,
) -> Result<E> {
    let changed = |text: Option<&str>| {
        let mut entry: E = read(text.ok_or_else(|| missing::<E>(key))?)?;
        change(&mut entry)?;
        Ok(written(&entry))
    };
    read(&store.change_catalog_entry(&path::<E>(key), changed).await?)
}

/// Removes a document; one that is not there is removed already.
pub(crate) async fn remove<E: Entry>(store: &Store, key: &str) -> Result<()> {
    store.remove_catalog_entry(&path::<E>(key)).await
}

#[cfg(test)]
mod tests;
