//! Guests that stand still for a run.

use super::Run;
use crate::catalog::{self, Entry};
use crate::points::{Consistency, Point};
use crate::standstills::{Standstill, Stood};
use crate::{Protection, Source, SourceOf};
use stonefold_types::{Error, Kind, Name, Result};

impl Protection {
    /// What is to stand still all the time that a run takes; nothing where the run has its guest do so at the instant that it copies.
    pub(super) async fn standstill_for(&self, source: &Name) -> Result<Option<Standstill>> {
        let source = self.check_guest_of(source).await?;
        match source.of.machine() {
            Some(machine) => self.standstill_of(&self.machine(machine).await?).map(Some),
            None => Ok(None),
        }
    }

    /// Fails where a source has no guest that could be asked to stand still.
    pub(crate) async fn check_guest_of(&self, source: &Name) -> Result<Source> {
        let source = self.source(source).await?;
        match &source.of {
            SourceOf::Machine(machine) => {
                self.machine(machine).await?.check_agent()?;
            }
            SourceOf::Qmp(guest) => {
                self.standstill_of_qemu(&source, guest)?;
            }
            // Its libvirt has the way to the agent, and says where there is none.
            SourceOf::Libvirt(_) => {}
            // It is by itself: by its own WAL.
            SourceOf::Postgres(_) => {}
            SourceOf::Nbd(_)
            | SourceOf::Image(_)
            | SourceOf::Dir(_)
            | SourceOf::Ssh(_)
            | SourceOf::Replica(_) => {
                let what = format!("source '{}' is copied from where no guest can be asked", source.name);
                return Err(Error::new(Kind::Unsupported, what)
                    .remedy("back it up as it would be after a loss of power (crash)"));
            }
        }
        Ok(source)
    }

    /// The same, once that is said of it and its point. A point is there, whatever becomes of that.
    pub(crate) async fn said_stood(&self, run: Run, stood: Stood) -> Run {
        let name = run.name.clone();
        match self.say_stood(run.clone(), stood).await {
            Ok(said) => said,
            Err(error) => {
                tracing::warn!("run '{name}': how its guest stood is not kept: {error}");
                run
            }
        }
    }

    /// Says of a run's point what the guest did meanwhile.
    async fn say_stood(&self, run: Run, stood: Stood) -> Result<Run> {
        let of_point = |broken: &String| format!("its point is as after a loss of power: {broken}");
        let of_guest = |asleep: &String| format!("the guest was not seen to go on: {asleep}");
        let mut notes: Vec<String> = run.note.iter().cloned().collect();
        notes.extend(stood.broken.as_ref().map(of_point));
        notes.extend(stood.asleep.as_ref().map(of_guest));
        self.change(async {
            if stood.broken.is_none() {
                let say = |point: &mut Point| {
                    point.consistency = Consistency::App;
                    Ok(())
                };
                catalog::change(&self.store, &run.key(), say).await?;
            }
            let say = |run: &mut Run| {
                run.note = (!notes.is_empty()).then(|| notes.join("; "));
                Ok(())
            };
            catalog::change(&self.store, &run.key(), say).await
        })
        .await
    }
}
