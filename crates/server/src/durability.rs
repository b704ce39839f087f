//! When a write is acknowledged, where nobody has said it: by who can reach the NBD doors.
//!
//! A client on another machine can outlive this one's memory, and with it what was acknowledged and not flushed. For such clients a write is
//! to be acknowledged only when it is durable (P1), unless the operator chose otherwise.

use crate::config::is_local;
use std::net::IpAddr;
use stonefold_nbd::Address;
use stonefold_store::DiskInfo;
use stonefold_types::{Durability, Name};

/// How many disks are named; of more their number is told.
const NAMED_MAX: usize = 10;

/// What new disks get behind these doors.
pub(crate) fn durability_for(doors: &[Address]) -> Durability {
    if doors.iter().any(is_open_to_the_network) { Durability::Ack } else { Durability::Flush }
}

/// Whether clients of other machines may reach an NBD door.
pub(crate) fn is_open_to_the_network(door: &Address) -> bool {
    let local = |host: &str| host == "localhost" || host.parse::<IpAddr>().is_ok_and(is_local);
    matches!(door, Address::Tcp { host, .. } if !local(host))
}

/// Warns of disks that were made when no other machine could reach them, and that acknowledge what is not durable, now that some can.
/// Whoever serves with `--durability flush` has chosen so, and is told nothing.
pub(crate) fn warn_of_disks(doors: &[Address], chosen: Durability, disks: &[DiskInfo]) {
    let of_flush = |disk: &&DiskInfo| disk.settings.durability == Durability::Flush;
    let names: Vec<&Name> = disks.iter().filter(of_flush).map(|disk| &disk.name).collect();
    if let Some(words) = warning(doors, chosen, &names) {
        tracing::warn!("{words}");
    }
}

/// What is to be said of these disks, which have `flush`.
fn warning(doors: &[Address], chosen: Durability, names: &[&Name]) -> Option<String> {
    let door = doors.iter().find(|door| is_open_to_the_network(door))?;
    if names.is_empty() || chosen == Durability::Flush {
        return None;
    }
    let mut named: Vec<String> = names.iter().take(NAMED_MAX).map(|name| format!("'{name}'")).collect();
    if let more @ 1.. = names.len().saturating_sub(NAMED_MAX) {
        named.push(format!("{more} more"));
    }
    Some(format!(
        "other machines reach {door}, and writes are acknowledged before they are durable on: {}. A client on another machine that \
         goes on after this one has lost its power misses what it had not flushed; 'stonefold disk set NAME --durability ack' \
         changes that for each, and --durability flush says that it is meant so",
        named.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doors(list: &[&str]) -> Vec<Address> {
        list.iter().map(|text| text.parse().unwrap()).collect()
    }

    const LOCAL: [&str; 5] = [
        "tcp://127.0.0.1:10809",
        "tcp://127.9.9.9:1",
        "tcp://localhost:10809",
        "tcp://[::1]:10809",
        "unix:///run/nbd.sock",
    ];
    /// Of a name nobody knows what it will mean to whom.
    const NETWORKED: [&str; 5] = [
        "tcp://0.0.0.0:10809",
        "tcp://[::]:10809",
        "tcp://10.0.0.5:10809",
        "tcp://[2001:db8::1]:1",
        "tcp://storage.example:10809",
    ];

    /// *Goal*: a write is acknowledged only when it is durable as soon as one door, whichever, is open to other machines.
    #[test]
    fn new_disks_wait_for_the_medium_where_other_machines_reach_them() {
        assert_eq!(durability_for(&doors(&LOCAL)), Durability::Flush);
        for local in LOCAL {
            assert_eq!(durability_for(&doors(&[local])), Durability::Flush, "{local}");
        }
        for networked in NETWORKED {
            assert_eq!(durability_for(&doors(&[networked])), Durability::Ack, "{networked}");
            assert_eq!(durability_for(&doors(&[LOCAL[4], networked])), Durability::Ack, "{networked}");
            assert_eq!(durability_for(&doors(&[networked, LOCAL[0]])), Durability::Ack, "{networked}");
        }
    }

    #[test]
    fn disks_that_are_not_safe_behind_a_door_are_named_unless_it_is_meant_so() {
        let names: Vec<Name> = (0..13).map(|n| format!("d{n}").parse().unwrap()).collect();
        let names: Vec<&Name> = names.iter().collect();
        let open = doors(&[LOCAL[4], "tcp://0.0.0.0:10809"]);
        let said = |doors: &[Address], chosen, some: usize| warning(doors, chosen, &names[..some]);
        let words = said(&open, Durability::Ack, 2).unwrap();
        for word in ["tcp://0.0.0.0:10809", "on: 'd0', 'd1'.", "stonefold disk set NAME --durability ack"] {
            assert!(words.contains(word), "{words}");
        }
        let words = said(&open, Durability::Ack, 13).unwrap();
        assert!(words.contains("'d9', 3 more.") && !words.contains("d10"), "{words}");
        assert!(!said(&open, Durability::Ack, 10).unwrap().contains("more."));
        assert_eq!(said(&open, Durability::Ack, 0), None);
        assert_eq!(said(&open, Durability::Flush, 2), None);
        assert_eq!(said(&doors(&LOCAL), Durability::Ack, 2), None);
    }
}
