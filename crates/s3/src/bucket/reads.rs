//! What is read of a bucket: objects, parts of them, their marks; listings.

use super::{Bucket, MARK_BYTES, version};
use crate::errors::error;
use bytes::Bytes;
use futures::StreamExt;
use object_store::path::Path;
use object_store::{Error as Refusal, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt};
use stonefold_engine::Version;
use stonefold_types::{Error, Kind, Result};

/// An offset beyond any object: 48.8 TiB is the most that any store takes.
const OFFSET_MAX: u64 = 1 << 46;

impl Bucket {
    /// The mark at an object's end, and its version.
    pub(super) async fn mark(&self, name: &str) -> Result<(Bytes, Version)> {
        let options =
            GetOptions { range: Some(GetRange::Suffix(MARK_BYTES as u64)), ..GetOptions::default() };
        self.read(name, options).await.map(|(bytes, _, version)| (bytes, version))
    }

    /// An object's bytes, or those of a range, as they lie there with the mark; its length without that; its version.
    async fn read(&self, name: &str, options: GetOptions) -> Result<(Bytes, u64, Version)> {
        let refused = |refusal| error(self.what(name, "read"), &refusal);
        let got = self.reads.get_opts(&self.path(name), options).await.map_err(refused)?;
        let (len, version) = self.known(name, &got.meta)?;
        let bytes = got.bytes().await.map_err(refused)?;
        Ok((bytes, len, version))
    }

    fn known(&self, name: &str, meta: &ObjectMeta) -> Result<(u64, Version)> {
        let len = meta.size.checked_sub(MARK_BYTES as u64).ok_or_else(|| {
            Error::new(
                Kind::Corrupt,
                format!("{}: object '{name}' has {} bytes, and not even its mark", self.place, meta.size),
            )
        })?;
        let version = version(meta.e_tag.clone()).ok_or_else(|| self.without_etag(name))?;
        Ok((len, version))
    }

    pub(super) fn without_etag(&self, name: &str) -> Error {
        let what = format!("{}: the store tells no ETag for object '{name}'", self.place);
        Error::new(Kind::Unsupported, what).remedy("use a store with conditional puts (If-Match)")
    }

    /// The whole of an object, and its version.
    pub(crate) async fn get(&self, name: &str) -> Result<(Bytes, Version)> {
        let (mut bytes, len, version) = self.read(name, GetOptions::default()).await?;
        bytes.truncate(usize::try_from(len).unwrap_or(usize::MAX));
        Ok((bytes, version))
    }

    /// `len` bytes from `offset`; fewer only where the object ends.
    pub(crate) async fn get_range(&self, name: &str, offset: u64, len: usize) -> Result<Bytes> {
        if len == 0 || offset >= OFFSET_MAX {
            return self.len(name).await.map(|_| Bytes::new());
        }
        let range = match offset.saturating_add(len as u64) {
            end if end >= OFFSET_MAX => GetRange::Offset(offset),
            end => GetRange::Bounded(offset..end),
        };
        match self.read(name, GetOptions { range: Some(range), ..GetOptions::default() }).await {
            Ok((mut bytes, whole, _)) => {
                bytes.truncate(usize::try_from(whole.saturating_sub(offset)).unwrap_or(usize::MAX));
                Ok(bytes)
            }
            // A range that begins behind the end is refused by the store, each in words of its own.
            Err(error) => match self.len(name).await {
                Ok(whole) if whole <= offset => Ok(Bytes::new()),
                _ => Err(error),
            },
        }
    }

    /// An object's length in bytes.
    pub(crate) async fn len(&self, name: &str) -> Result<u64> {
        self.known_of(name).await.map(|(len, _)| len)
    }

    /// An object's length in bytes, and its version.
    pub(crate) async fn known_of(&self, name: &str) -> Result<(u64, Version)> {
        let head = self.reads.head(&self.path(name)).await;
        let meta = head.map_err(|refusal| error(self.what(name, "looked at"), &refusal))?;
        self.known(name, &meta)
    }

    /// Up to `limit` names that begin with `prefix`, in their order, behind `after`; with the objects' lengths in bytes.
    pub(crate) async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, u64)>> {
        let folder = self.base.clone() + prefix.rsplit_once('/').map_or("", |(folder, _)| folder);
        let folder = folder.trim_end_matches('/');
        let folder = (!folder.is_empty()).then(|| Path::parse(folder).expect("keys are paths"));
        // A listing begins behind a name, and the prefix itself may be one. The name without its last letter is before it, and close.
        let before = || {
            prefix
                .get(..prefix.len().saturating_sub(1))
                .filter(|text| !text.is_empty() && !text.ends_with('/') && !prefix.ends_with('/'))
        };
        let offset = after.filter(|after| *after >= prefix).or_else(before);
        let offset = offset.and_then(|name| Path::parse(format!("{}{name}", self.base)).ok());
        let mut listing = match &offset {
            Some(offset) => self.reads.list_with_offset(folder.as_ref(), offset),
            None => self.reads.list(folder.as_ref()),
        };
        let mut found = Vec::new();
        while found.len() < limit {
            let Some(next) = listing.next().await else { break };
            let meta = next.map_err(|refusal| self.not_listed(&refusal))?;
            let Some(name) = meta.location.as_ref().strip_prefix(&*self.base) else { continue };
            match name.starts_with(prefix) {
                true => found.push((name.to_owned(), meta.size.saturating_sub(MARK_BYTES as u64))),
                false if name > prefix => break,
                false => {}
            }
        }
        Ok(found)
    }

    /// Bytes of all objects.
    pub(crate) async fn bytes(&self) -> Result<u64> {
        let folder = self.base.trim_end_matches('/');
        let folder = (!folder.is_empty()).then(|| Path::parse(folder).expect("prefixes are paths"));
        let mut listing = self.reads.list(folder.as_ref());
        let mut bytes = 0;
        while let Some(next) = listing.next().await {
            bytes +=
                next.map_err(|refusal| self.not_listed(&refusal))?.size.saturating_sub(MARK_BYTES as u64);
        }
        Ok(bytes)
    }

    fn not_listed(&self, refusal: &Refusal) -> Error {
        let error = error(format!("{} could not be listed", self.place), refusal);
        match error.kind() == Kind::NotFound || error.what().contains("NoSuchBucket") {
            true => error.with_kind(Kind::NotFound).remedy("make the bucket first, or correct its name"),
            false if self.keyless => error.remedy(
                "no keys were named, so the role of this machine was asked for some; name a file with keys in the URL: credentials=FILE, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for the server",
            ),
            false => error,
        }
    }
}
