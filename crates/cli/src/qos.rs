//! `stonefold qos …`.

use crate::context::Context;
use crate::failure::Failure;
use crate::table::Table;
use clap::{Args, Subcommand};
use serde_json::json;
use stonefold_api::{QosClass, QosCreate, QosSet};
use stonefold_types::{Name, Size};

/// Say what disks get when they compete, and what they never exceed
///
/// A class's figures hold for each disk in it: ten disks with --max-iops 500 may do 5000 together. An operation is a request of up
/// to 64K; a longer one counts once for each 64K.
#[derive(Subcommand)]
pub(crate) enum Qos {
    /// List all classes
    Ls,
    /// Make a class
    #[command(after_help = "Examples:\n  \
        stonefold qos create gold --min-iops 1000 --share 500\n  \
        stonefold qos create capped --max-iops 500 --max-bytes 50M\n  \
        stonefold disk set web --qos gold")]
    Create {
        /// Its name: 1 to 128 letters, digits, '.', '_' or '-'
        #[arg(value_name = "CLASS")]
        name: Name,
        #[command(flatten)]
        figures: Figures,
    },
    /// Change a class, at once for every disk in it; what is not named stays
    #[command(after_help = "Examples:\n  stonefold qos set test --max-iops 2000\n  \
        stonefold qos set test --max-iops none\n  stonefold qos set reclaim --share 10")]
    Set {
        /// The class
        #[arg(value_name = "CLASS")]
        name: Name,
        #[command(flatten)]
        change: Change,
    },
    /// Remove a class that no disk has
    Rm {
        /// The class
        #[arg(value_name = "CLASS")]
        name: Name,
    },
}

/// What a class says of each disk in it
#[derive(Args)]
pub(crate) struct Figures {
    /// Operations a second kept for it, whoever else competes [default: none]
    #[arg(long, value_name = "N", value_parser = minimum_operations)]
    min_iops: Option<u64>,
    /// Bytes a second kept for it, whoever else competes [default: none]
    #[arg(long, value_name = "SIZE", value_parser = minimum_bytes)]
    min_bytes: Option<u64>,
    /// Operations a second that it never exceeds [default: none]
    #[arg(long, value_name = "N", value_parser = limit_operations)]
    max_iops: Option<Limit>,
    /// Bytes a second that it never exceeds [default: none]
    #[arg(long, value_name = "SIZE", value_parser = limit_bytes)]
    max_bytes: Option<Limit>,
    /// Its part of what is left, in proportion to the shares of those who compete: 1 to 1000 [default: 100]
    #[arg(long, value_name = "N")]
    share: Option<u32>,
}

/// What can be changed of a class: at least one of it
#[derive(Args)]
#[group(required = true, multiple = true)]
pub(crate) struct Change {
    /// Operations a second kept for it, or none
    #[arg(long, value_name = "N", value_parser = minimum_operations)]
    min_iops: Option<u64>,
    /// Bytes a second kept for it, or none
    #[arg(long, value_name = "SIZE", value_parser = minimum_bytes)]
    min_bytes: Option<u64>,
    /// Operations a second that it never exceeds, or none
    #[arg(long, value_name = "N", value_parser = limit_operations)]
    max_iops: Option<Limit>,
    /// Bytes a second that it never exceeds, or none
    #[arg(long, value_name = "SIZE", value_parser = limit_bytes)]
    max_bytes: Option<Limit>,
    /// Its part of what is left, in proportion to the shares of those who compete: 1 to 1000
    #[arg(long, value_name = "N")]
    share: Option<u32>,
}

/// A limit, or `none`.
#[derive(Clone, Copy, Debug)]
struct Limit(Option<u64>);

fn limit_bytes(text: &str) -> Result<Limit, String> {
    match text {
        "none" => Ok(Limit(None)),
        _ => text.parse::<Size>().map(|size| Limit(Some(size.0))).map_err(|e| format!("{e}, or none")),
    }
}

fn minimum_bytes(text: &str) -> Result<u64, String> {
    limit_bytes(text).map(|limit| limit.0.unwrap_or(0))
}

fn limit_operations(text: &str) -> Result<Limit, String> {
    match text {
        "none" => Ok(Limit(None)),
        _ => text
            .parse()
            .map(|n| Limit(Some(n)))
            .map_err(|_| "write operations a second, as 2000, or none".into()),
    }
}

fn minimum_operations(text: &str) -> Result<u64, String> {
    limit_operations(text).map(|limit| limit.0.unwrap_or(0))
}

impl Qos {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        match self {
            Qos::Ls => {
                let classes = client.qos_classes()?;
                context.answer(&classes, || table(&classes))
            }
            Qos::Create { name, figures } => {
                let made = client.create_qos(&QosCreate {
                    name,
                    min_iops: figures.min_iops.unwrap_or(0),
                    min_bytes: figures.min_bytes.unwrap_or(0),
                    max_iops: figures.max_iops.and_then(|limit| limit.0),
                    max_bytes: figures.max_bytes.and_then(|limit| limit.0),
                    share: figures.share,
                })?;
                context.answer(&made, || table(std::slice::from_ref(&made)))
            }
            Qos::Set { name, change } => {
                let change = QosSet {
                    min_iops: change.min_iops,
                    min_bytes: change.min_bytes,
                    max_iops: change.max_iops.map(|limit| limit.0),
                    max_bytes: change.max_bytes.map(|limit| limit.0),
                    share: change.share,
                };
                let set = client.set_qos(&name, &change)?;
                context.answer(&set, || table(std::slice::from_ref(&set)))
            }
            Qos::Rm { name } => {
                client.remove_qos(&name)?;
                context.answer(&json!({ "removed": [name] }), || format!("removed class '{name}'\n"))
            }
        }
    }
}

fn table(classes: &[QosClass]) -> String {
    let heads = ["CLASS", "MIN IOPS>", "MIN/S>", "MAX IOPS>", "MAX/S>", "SHARE>", "DISKS>", "FOR"];
    let mut table = Table::new(&heads);
    let dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    for class in classes {
        let some = |value: u64| (value > 0).then_some(value);
        table.row([
            class.name.to_string(),
            dash(some(class.min_iops).map(|n| n.to_string())),
            dash(some(class.min_bytes).map(|n| Size(n).to_string())),
            dash(class.max_iops.map(|n| n.to_string())),
            dash(class.max_bytes.map(|n| Size(n).to_string())),
            class.share.to_string(),
            if class.background { "-".to_owned() } else { class.disks.len().to_string() },
            if class.background { "the pool's own work" } else { "each disk" }.to_owned(),
        ]);
    }
    table.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_no_sizes() {
        assert_eq!(limit_operations("2000").unwrap().0, Some(2000));
        assert_eq!(limit_operations("none").unwrap().0, None);
        assert!(limit_operations("10x").unwrap_err().contains("operations"));
        assert_eq!(limit_bytes("50M").unwrap().0, Some(50 << 20));
    }
}
