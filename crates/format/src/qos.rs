//! The classes of service, object `qos`. Absent while nobody has changed any.
//!
//! Body, version 1: `count (2)`, then for each:
//!
//! ```text
//!  0          8           16         24          32      36
//!  +----------+-----------+----------+-----------+-------+-----------------+
//!  | min IOPS | min bytes | max IOPS | max bytes | share | name: length (2)|
//!  | 8        | 8         | 8        | 8         | 4     | and text        |
//!  +----------+-----------+----------+-----------+-------+-----------------+
//! ```
//! All rates are per second, and 0 is none. The order is that in which they are shown: the predefined ones first, highest
//! first; then the pool's own work; then those that were made. All of the first two kinds are always there.

use crate::document::{self, DocumentKind};
use crate::wire::{Reader, Writer};
use stonefold_types::{Name, QOS_BACKGROUND, QOS_PREDEFINED, QosFigures, Result};

const VERSION: u16 = 1;
/// Classes of one pool: more than anybody can keep apart, and looking one up stays short.
pub const CLASSES_MAX: usize = 200;

/// One class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QosClass {
    /// Unique in the pool.
    pub name: Name,
    /// What it says of each disk in it.
    pub figures: QosFigures,
}

/// The document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QosClasses(pub Vec<QosClass>);

impl Default for QosClasses {
    fn default() -> Self {
        let class = |(name, figures): &(&str, QosFigures)| QosClass {
            name: Name::new(name).expect("letters and dashes make a name"),
            figures: *figures,
        };
        QosClasses(QOS_PREDEFINED.iter().chain(&QOS_BACKGROUND).map(class).collect())
    }
}

impl QosClasses {
    /// By name.
    pub fn get(&self, name: &str) -> Option<&QosClass> {
        self.0.iter().find(|class| class.name.as_str() == name)
    }

    /// The document's bytes.
    ///
    /// # Panics
    /// When there are more than [`CLASSES_MAX`].
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.0.len() <= CLASSES_MAX, "a pool has at most {CLASSES_MAX} classes of service");
        let mut body = Vec::new();
        body.u16(self.0.len() as u16);
        for QosClass { name, figures } in &self.0 {
            body.u64(figures.min_iops);
            body.u64(figures.min_bytes);
            body.u64(figures.max_iops.unwrap_or(0));
            body.u64(figures.max_bytes.unwrap_or(0));
            body.u32(figures.share);
            body.text(name.as_str());
        }
        document::seal(DocumentKind::Qos, VERSION, &body)
    }

    /// Reads the document.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (_, body) = document::open(bytes, DocumentKind::Qos, VERSION)?;
        let mut reader = Reader::new(body, "the record of classes of service");
        let count = usize::from(reader.u16()?);
        if count > CLASSES_MAX {
            return Err(reader.malformed("it has too many"));
        }
        let mut classes = QosClasses(Vec::new());
        for _ in 0..count {
            let limit = |value: u64| (value > 0).then_some(value);
            let figures = QosFigures {
                min_iops: reader.u64()?,
                min_bytes: reader.u64()?,
                max_iops: limit(reader.u64()?),
                max_bytes: limit(reader.u64()?),
                share: reader.u32()?,
            };
            figures.check().map_err(|wrong| reader.malformed(&wrong.what()))?;
            let name = Name::new(reader.text()?)?;
            if classes.get(name.as_str()).is_some() {
                return Err(reader.malformed("it has a name twice"));
            }
            classes.0.push(QosClass { name, figures });
        }
        let mut always = QOS_PREDEFINED.iter().chain(&QOS_BACKGROUND);
        if !always.all(|(name, _)| classes.get(name).is_some()) {
            return Err(reader.malformed("it lacks a class that every pool has"));
        }
        reader.end()?;
        Ok(classes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn comes_back() {
        let mut classes = QosClasses::default();
        let figures = QosFigures { min_iops: 1, min_bytes: 2, max_iops: Some(3), max_bytes: None, share: 4 };
        classes.0.push(QosClass { name: Name::new("gold").unwrap(), figures });
        assert_eq!(QosClasses::decode(&classes.encode()).unwrap(), classes);
        assert_eq!(classes.get("gold").unwrap().figures, figures);
        assert_eq!(classes.get("critical").unwrap().figures.share, 800);
    }

    #[test]
    fn a_name_twice_and_a_missing_one_are_refused() {
        let mut classes = QosClasses::default();
        classes.0.push(classes.0[1].clone());
        assert!(QosClasses::decode(&classes.encode()).is_err());
        classes.0.truncate(5);
        assert!(QosClasses::decode(&classes.encode()).is_err());
    }

    proptest! {
        #[test]
        fn noise_is_survived(body in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = QosClasses::decode(&body);
            let _ = QosClasses::decode(&document::seal(DocumentKind::Qos, VERSION, &body));
        }
    }
}
