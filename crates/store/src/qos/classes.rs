//! The classes of a pool: kept in one small document, changed by compare-and-swap, in force from before a change returns.
//!
//! *Promises*: what a call that returned has changed survives the loss of power; no disk is left in a class that is gone.
//! A failed change may have happened: what is stored is read back to tell.

use super::Qos;
use crate::documents;
use crate::store::Store;
use stonefold_engine::{Engine, Key, Version};
use stonefold_format::qos::{CLASSES_MAX, QosClass, QosClasses};
use stonefold_types::{Error, Kind, Name, QOS_BACKGROUND, QOS_PREDEFINED, QosFigures, Result};

/// How often a change is tried again after another came first. Classes are changed by people, so once is rare.
const TRIES_MAX: usize = 16;

/// A class and who has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QosInfo {
    /// Unique in the pool.
    pub name: Name,
    /// What it says of each disk in it.
    pub figures: QosFigures,
    /// Every pool has it, and it cannot be removed.
    pub predefined: bool,
    /// Of the pool's own work; no disk can have it.
    pub background: bool,
    /// The disks in it, by name.
    pub disks: Vec<Name>,
}

fn key() -> Key {
    Key::new("qos")
}

fn is_background(name: &str) -> bool {
    QOS_BACKGROUND.iter().any(|(other, _)| *other == name)
}

fn is_predefined(name: &str) -> bool {
    QOS_PREDEFINED.iter().any(|(other, _)| *other == name) || is_background(name)
}

/// As stored, and the version to swap.
pub(crate) async fn load(engine: &dyn Engine) -> Result<(QosClasses, Option<Version>)> {
    let stored =
        documents::stored(engine, &key()).await.map_err(|e| e.context("reading the classes of service"))?;
    Ok(match stored {
        Some((bytes, version)) => (QosClasses::decode(&bytes)?, Some(version)),
        None => (QosClasses::default(), None),
    })
}

/// The classes with which a pool is opened. One that cannot be read must not keep a pool from its disks.
pub(crate) async fn open(engine: &dyn Engine) -> Result<QosClasses> {
    match load(engine).await {
        Ok((classes, _)) => Ok(classes),
        Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::Io) => {
            tracing::warn!(
                "every class of service is as in a new pool until they can be read or are changed: {error}"
            );
            Ok(QosClasses::default())
        }
        Err(error) => Err(error),
    }
}

impl Qos {
    /// Fails unless a disk can have the class.
    pub(crate) fn check_class(&self, name: &Name) -> Result<()> {
        if is_background(name.as_str()) {
            let what = format!("'{name}' is the class of the pool's own work, and no disk can have it");
            return Err(Error::new(Kind::Invalid, what).remedy("'stonefold qos ls' shows the others"));
        }
        if self.classes.lock().get(name.as_str()).is_none() {
            return Err(missing(name));
        }
        Ok(())
    }
}

impl Store {
    /// All classes, in the order in which they are stored.
    pub fn qos_classes(&self) -> Vec<QosInfo> {
        let classes = self.qos.classes.lock().clone();
        classes.0.into_iter().map(|class| self.qos_info(class)).collect()
    }

    /// One class.
    pub fn qos_class(&self, name: &Name) -> Result<QosInfo> {
        let found = self.qos.classes.lock().get(name.as_str()).cloned();
        Ok(self.qos_info(found.ok_or_else(|| missing(name))?))
    }

    /// Makes a class.
    pub async fn create_qos(&self, name: &Name, figures: QosFigures) -> Result<QosInfo> {
        figures.check().map_err(|e| e.context(format!("class '{name}'")))?;
        let _alone = self.qos.changing.lock().await;
        self.change_qos(|classes| {
            if classes.get(name.as_str()).is_some() {
                let what = format!("the class of service '{name}' exists already");
                return Err(Error::new(Kind::AlreadyExists, what)
                    .remedy("choose another name, or change that one with 'stonefold qos set'"));
            }
            if classes.0.len() >= CLASSES_MAX {
                let what = format!(
                    "the pool has {CLASSES_MAX} classes of service, and that is the most it can have"
                );
                return Err(Error::new(Kind::Invalid, what).remedy("remove those that nobody uses"));
            }
            classes.0.push(QosClass { name: name.clone(), figures });
            Ok(())
        })
        .await?;
        self.qos_class(name)
    }

    /// Changes a class's figures, at once for all its disks and whoever is connected to them. `change` may be called again
    /// when another change comes first.
    pub async fn set_qos(&self, name: &Name, change: impl Fn(&mut QosFigures)) -> Result<QosInfo> {
        let _alone = self.qos.changing.lock().await;
        self.change_qos(|classes| {
            let class = classes.0.iter_mut().find(|class| class.name == *name);
            let class = class.ok_or_else(|| missing(name))?;
            change(&mut class.figures);
            check_background(name, &class.figures)?;
            class.figures.check().map_err(|e| e.context(format!("class '{name}'")))
        })
        .await?;
        self.qos_class(name)
    }

    /// Removes a class that no disk has.
    pub async fn remove_qos(&self, name: &Name) -> Result<()> {
        if is_predefined(name.as_str()) {
            let what = format!("the class of service '{name}' is one that every pool has");
            return Err(Error::new(Kind::Invalid, what).remedy("change it with 'stonefold qos set'"));
        }
        let _alone = self.qos.changing.lock().await;
        let disks = self.qos_class(name)?.disks;
        if !disks.is_empty() {
            let names: Vec<&str> = disks.iter().map(Name::as_str).collect();
            let what = format!("the class of service '{name}' is used by {}", names.join(", "));
            let remedy = "give them another with 'stonefold disk set NAME --qos CLASS'";
            return Err(Error::new(Kind::Busy, what).remedy(remedy));
        }
        self.change_qos(|classes| {
            let before = classes.0.len();
            classes.0.retain(|class| class.name != *name);
            if classes.0.len() < before { Ok(()) } else { Err(missing(name)) }
        })
        .await
    }

    fn qos_info(&self, class: QosClass) -> QosInfo {
        let QosClass { name, figures } = class;
        let (predefined, background) = (is_predefined(name.as_str()), is_background(name.as_str()));
        let disks = self.all_disks().into_iter().filter(|disk| disk.state.lock().settings.qos == name);
        QosInfo {
            disks: disks.map(|disk| disk.name.clone()).collect(),
            name,
            figures,
            predefined,
            background,
        }
    }

    /// Stores the classes as `change` changes them, then puts them in force.
    async fn change_qos(&self, change: impl Fn(&mut QosClasses) -> Result<()>) -> Result<()> {
        self.check_open()?;
        for _ in 0..TRIES_MAX {
            let (mut classes, version) = match load(&*self.engine).await {
                // Damaged: it is written anew from what is in force.
                Err(error) if error.kind() == Kind::Corrupt => {
                    let (_, version) = self.engine.get(&key()).await?;
                    (self.qos.classes.lock().clone(), Some(version))
                }
                loaded => loaded?,
            };
            change(&mut classes)?;
            let put = documents::swap(&*self.engine, &key(), classes.encode().into(), version.as_ref()).await;
            if put.map_err(|e| e.context("storing the classes of service"))?.is_none() {
                continue;
            }
            self.qos.adopt(classes);
            for disk in self.all_disks() {
                let class = disk.state.lock().settings.qos.clone();
                self.qos.assign(&disk.flow, class.as_str());
            }
            return Ok(());
        }
        let what = "the classes of service are changed by others all the time";
        Err(Error::new(Kind::Conflict, what).remedy("try again"))
    }
}

/// The fold is what makes room for writes: a limit of it would be one of everybody's. Operations are not what it does.
fn check_background(name: &Name, figures: &QosFigures) -> Result<()> {
    let of_fold = name.as_str() == "fold" && figures.is_limited();
    if of_fold || is_background(name.as_str()) && (figures.min_iops > 0 || figures.max_iops.is_some()) {
        let what = format!("the class '{name}' cannot have that: it is for the pool's own work");
        let remedy =
            if of_fold { "choose its share and its min-bytes" } else { "choose its share and bytes" };
        return Err(Error::new(Kind::Invalid, what).remedy(remedy));
    }
    Ok(())
}

fn missing(name: &Name) -> Error {
    Error::new(Kind::NotFound, format!("the class of service '{name}' does not exist"))
        .remedy("'stonefold qos ls' shows those there are")
}
