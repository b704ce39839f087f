//! Folders of the other machine: each is made a file system in an image there, as [`tree`](crate::tree) makes one of a folder here, and read as a disk.
//!
//! *Promise*: where nothing has changed the image is the same, so that nothing but sums is sent; it goes with the session. *Never*: takes what other file
//! systems are mounted in a folder for the folder's own. *Bounds*: `/var/tmp` there needs as much room as what is in it.

use super::facts::{self, Facts, Is};
use super::session::Session;
use super::target;
use crate::tree::SCRATCH;
use crate::{Source, tree};
use std::path::Path;
use stonefold_types::{Error, Kind, Result};

/// Has an image made of each folder that was named, which then stands in its place. Returns whether nothing else was named.
pub(super) async fn make_images(session: &Session, source: &Source, facts: &mut Facts) -> Result<bool> {
    let mut made = 0;
    for number in 0..facts.named.len() {
        let Is::Folder(path) = &facts.named[number].is else { continue };
        let path = path.clone();
        check_alone(facts, &path)?;
        let (uuid, seconds) = (tree::uuid(source, &target(number)?), source.added / 1_000_000_000);
        let told = session.ask_text(&format!("tree {number} {uuid} {seconds} {path}")).await?;
        let (image, bytes) = told.trim().split_once(' ').unwrap_or_default();
        let bytes = bytes.parse().ok().filter(|_| facts::is_plain(image));
        let bytes = bytes.ok_or_else(|| Error::new(Kind::Io, "the other machine names no image"))?;
        facts.named[number].is = Is::Image(image.to_owned(), bytes);
        made += 1;
    }
    Ok(made > 0 && made == facts.named.len())
}

/// Fails where a folder cannot be named, its image would be made in it, or other file systems are mounted in it.
fn check_alone(facts: &Facts, path: &str) -> Result<()> {
    if !facts::is_plain(path) {
        let what = format!("the folder '{}' cannot be named there", path.escape_debug());
        return Err(Error::new(Kind::Invalid, what).remedy("name it by a link without blanks"));
    }
    if Path::new(SCRATCH).starts_with(path) {
        let what = format!("the image of '{path}' would be made in it, in {SCRATCH}");
        return Err(Error::new(Kind::Invalid, what).remedy("name the folders in it one by one, without that"));
    }
    let below = format!("{}/", path.trim_end_matches('/'));
    match facts
        .mounts
        .iter()
        .find(|mount| mount.folder.starts_with(&below) && mount.folder.len() > below.len())
    {
        None => Ok(()),
        Some(mount) => {
            let what = format!("something else is mounted in '{path}', at '{}'", mount.folder);
            Err(Error::new(Kind::Unsupported, what).remedy("name folders that have nothing mounted in them"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_would_hold_its_own_image_is_refused() {
        for path in ["/", "/var", "/var/tmp"] {
            let error = check_alone(&Facts::default(), path).unwrap_err();
            assert!(error.to_string().contains("would be made in it"), "{path}: {error}");
        }
        assert!(check_alone(&Facts::default(), "/srv/a b").unwrap_err().to_string().contains("named"));
        check_alone(&Facts::default(), "/var/tmpfiles").unwrap();
    }
}
