//! What a run reads: its source, opened.

use super::{Copying, Guest, Live, PATIENCE};
use crate::domain_backup::{Checkpoints, Pulled};
use crate::fleece::{self, Fleeced};
use crate::nbd::Client;
use crate::origin::Origin;
use crate::sources::{ImageFile, NbdExport, Source, SourceOf, copied_to, only_disk};
use crate::ssh::Reached;
use crate::tree::{Folder, Image};
use crate::{Database, Hardware, Point, Protection, image, tree};
use stonefold_env::Env;
use stonefold_types::{Error, Kind, Name, Result};

/// A source that can be read.
pub(super) struct Opened {
    pub(super) disks: Vec<Reading>,
    /// What a guest is made of besides.
    pub(super) hardware: Option<Hardware>,
    /// What its point has of a cluster.
    pub(super) database: Option<Database>,
    /// The guest that uses them meanwhile.
    pub(super) guest: Option<Guest>,
    kept: Kept,
}

/// A disk of it.
pub(crate) struct Reading {
    pub(crate) target: Name,
    pub(crate) from: Origin,
    /// Why it is not known what has changed since the last point, where that could have been.
    pub(crate) whole: Option<String>,
}

/// What it takes to read it.
enum Kept {
    Nothing,
    /// Ends with this.
    Image {
        seen: image::Seen,
        _served: image::Served,
    },
    /// They go with this.
    Folders(
        #[expect(dead_code, reason = "held for as long as they are read")] Vec<(image::Served, tree::Made)>,
    ),
    Guest(Box<Fleeced>),
    Domain(Box<Pulled>),
    Machine(Box<Reached>),
}

/// What a guest's bitmaps are kept by.
pub(super) enum Marks {
    Qemu(fleece::Marks),
    Libvirt(Checkpoints),
}

impl Marks {
    /// Once it is known whether there is a point.
    pub(super) async fn settle(&self, is_done: bool) {
        match self {
            Marks::Qemu(marks) => marks.settle(is_done).await,
            Marks::Libvirt(checkpoints) => checkpoints.settle(is_done).await,
        }
    }
}

impl Opened {
    /// Fails where what was read may not be of one instant.
    pub(super) async fn check_still(&self, env: &Env) -> Result<()> {
        match &self.kept {
            Kept::Domain(pulled) => pulled.check_still(env).await,
            Kept::Image { seen, .. } => seen.check().await,
            Kept::Machine(reached) => reached.check_still().await,
            Kept::Nothing | Kept::Folders(_) | Kept::Guest(_) => Ok(()),
        }
    }

    /// Why it cannot be read, as far as there is more to be known of it.
    pub(super) async fn blamed(&self, env: &Env, error: Error) -> Error {
        match &self.kept {
            Kept::Domain(pulled) => pulled.blamed(env, error).await,
            _ => error,
        }
    }

    /// Ends when it cannot be read on without harm, and tells why.
    pub(super) async fn in_danger(&self, env: &Env) -> Error {
        match &self.kept {
            Kept::Domain(pulled) => pulled.in_danger(env).await,
            _ => std::future::pending().await,
        }
    }
}

impl Protection {
    /// An export, with its bitmap where one was named and is still offered; where it is not, why all of it is to be read and compared.
    async fn export_opened(&self, live: &Live, export: &NbdExport) -> Result<(Client, Option<String>)> {
        let address = export.uri.parse()?;
        // What reads everything believes no bitmap.
        let bitmap = export.bitmap.as_deref().filter(|_| !live.full);
        let reached = Client::connect(&self.env, &address, bitmap, PATIENCE);
        let from = live.unless_stopped(reached).await?;
        let whole = from.lost().map(Error::what);
        Ok((from, whole))
    }

    /// Opens a source. Whoever has it gives it back by [`close`](Self::close).
    pub(super) async fn open(&self, copying: &Copying, last: Option<&Point>) -> Result<Opened> {
        let live = &copying.live;
        let alone = |from, kept| {
            let disk = Reading { target: only_disk(), from: Origin::Export(from), whole: None };
            Ok(Opened { disks: vec![disk], hardware: None, database: None, guest: None, kept })
        };
        match &copying.source.of {
            SourceOf::Nbd(export) => {
                let (from, whole) = self.export_opened(live, export).await?;
                let disk = Reading { target: only_disk(), from: Origin::Export(from), whole };
                Ok(Opened {
                    disks: vec![disk],
                    hardware: None,
                    database: None,
                    guest: None,
                    kept: Kept::Nothing,
                })
            }
            SourceOf::Image(ImageFile { path, format }) => {
                let format = format.as_deref().unwrap_or("raw");
                let seen = image::Seen::now(path).await?;
                live.unless_stopped(image::check_chain(path, format)).await?;
                let (from, served) =
                    live.unless_stopped(image::connect(&self.env, path, format, PATIENCE)).await?;
                alone(from, Kept::Image { seen, _served: served })
            }
            SourceOf::Dir(folder) => {
                let of = self.folder_opened(&copying.source, folder);
                let (from, served, made) = live.unless_stopped(of).await?;
                alone(from, Kept::Folders(vec![(served, made)]))
            }
            SourceOf::Postgres(of) => {
                let dumped = live.unless_stopped(self.dump(copying, of, last)).await?;
                let (database, kept) = (Some(dumped.database), Kept::Folders(dumped.images));
                Ok(Opened { disks: dumped.disks, hardware: None, database, guest: None, kept })
            }
            SourceOf::Qmp(guest) => {
                let stamp = &copying.run.name.stamp;
                // Not dropped half done: what it has put into QEMU is taken out again.
                let mut fleeced = self.fleece(&copying.source, guest, (stamp, last), live).await?;
                let (disks, hardware) = (std::mem::take(&mut fleeced.disks), fleeced.hardware.clone());
                let hardware = kept_hardware(copying, hardware);
                Ok(Opened {
                    disks,
                    hardware,
                    database: None,
                    guest: Some(fleeced.guest()),
                    kept: Kept::Guest(Box::new(fleeced)),
                })
            }
            SourceOf::Libvirt(of) => {
                let stamp = &copying.run.name.stamp;
                // Likewise.
                let mut pulled = self.pull(&copying.source, of, (stamp, last), live).await?;
                let (disks, hardware) = (std::mem::take(&mut pulled.disks), pulled.hardware.clone());
                let hardware = kept_hardware(copying, hardware);
                Ok(Opened {
                    disks,
                    hardware,
                    database: None,
                    guest: pulled.guest(),
                    kept: Kept::Domain(Box::new(pulled)),
                })
            }
            SourceOf::Ssh(of) => {
                // Likewise.
                let mut reached = self.reach(copying, of).await?;
                let disks = std::mem::take(&mut reached.disks);
                let hardware = reached.hardware.take().and_then(|told| kept_hardware(copying, told));
                Ok(Opened {
                    disks,
                    hardware,
                    database: None,
                    guest: None,
                    kept: Kept::Machine(Box::new(reached)),
                })
            }
            SourceOf::Replica(_) => {
                let (disks, hardware) = self.open_sent(copying, last).await?;
                Ok(Opened { disks, hardware, database: None, guest: None, kept: Kept::Nothing })
            }
            SourceOf::Machine(name) => {
                Err(Error::new(Kind::Invalid, format!("of machine '{name}' there is nothing to copy")))
            }
        }
    }

    /// A folder, made an image that is no smaller than the last one.
    async fn folder_opened(
        &self,
        source: &Source,
        folder: &Folder,
    ) -> Result<(Client, image::Served, tree::Made)> {
        let target = only_disk();
        let made = folder.image(&self.image_of(source, &target, false)?).await?;
        let path = made.image.to_string_lossy();
        let (from, served) = image::connect(&self.env, &path, "raw", PATIENCE).await?;
        Ok((from, served, made))
    }

    /// An image that is to be as large as the disk that it is copied to, at least.
    pub(crate) fn image_of<'a>(
        &self,
        source: &'a Source,
        target: &'a Name,
        journal: bool,
    ) -> Result<Image<'a>> {
        let bytes_min = match source.number_of(target) {
            Some(_) => self.store.disk(&copied_to(&source.name, target)?).map_or(0, |disk| disk.size_bytes),
            None => 0,
        };
        Ok(Image { source, target, bytes_min, journal })
    }

    /// What is to be read once all is that was; nothing where that was all. Of it, what a bitmap marks differs from that.
    pub(super) async fn next_reading(&self, opened: &Opened, live: &Live) -> Result<Option<Vec<Reading>>> {
        match &opened.kept {
            // Not dropped half done, either.
            Kept::Guest(fleeced) => self.read_on(fleeced, live).await,
            _ => Ok(None),
        }
    }

    /// Ends what does harm to its guest, while others still read it.
    pub(super) async fn end_danger(&self, opened: &Opened) {
        if let Kept::Domain(pulled) = &opened.kept {
            self.end_pulling(pulled).await;
        }
    }

    /// Gives a source back; a guest's bitmaps are left, for whoever knows what became of the run.
    pub(super) async fn close(&self, copying: &Copying, opened: Opened) -> Option<Marks> {
        let Opened { disks, kept, .. } = opened;
        drop(disks);
        match kept {
            Kept::Nothing | Kept::Image { .. } | Kept::Folders(_) => None,
            Kept::Guest(fleeced) => Some(Marks::Qemu(self.unfleece(*fleeced).await)),
            Kept::Domain(pulled) => self.unpull(*pulled).await.map(Marks::Libvirt),
            Kept::Machine(reached) => {
                let stays = reached.end().await;
                stays.into_iter().for_each(|stays| copying.live.note(stays));
                None
            }
        }
    }
}

/// What a guest is made of, as far as it can be kept.
fn kept_hardware(copying: &Copying, told: Result<Hardware>) -> Option<Hardware> {
    let checked = told.and_then(|hardware| hardware.check().map(|_| hardware));
    let noted = |error: Error| copying.live.note(format!("what the guest is made of is not kept: {error}"));
    checked.map_err(noted).ok()
}
