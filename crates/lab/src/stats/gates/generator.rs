//! Rules about what makes the load: whether a figure is that of the generator, or of the machine, rather than of the target.

use super::{Evidence, Gate, State, gate};
use crate::machine::Busy;

/// Share of what the generator can do, measured against a target that answers at once, above which it may be what was
/// measured.
pub const CEILING_SHARE_MAX: f64 = 0.70;
/// Share of its time that a thread of the generator may work, by the same measure: one that works for longer lets answers wait for it, however idle the
/// others are. It is the thread's *work*: an open loop's thread waits awake for moments that are near, and would be above this with nothing to do.
///
/// It warns, where the ceiling fails. What a thread of a real target works is in part the target's path in the kernel (file system, block layer,
/// sockets), which the rehearsal has not; and the more answers come the more of them are taken at once, so that a thread that works for 70% of its time
/// does well over 70% of what it can.
pub const WORK_SHARE_MAX: f64 = 0.70;
/// Of a bundle that does not tell work from waiting awake.
const BUSY_SHARE_MAX: f64 = 0.95;
/// Share of the machine's processors in use above which they may be what was measured. With less idle than a twentieth what is ready to run waits
/// for a processor, also where the target is another machine: then it is the generator that waits.
const PROCESSORS_MAX: f64 = 0.95;

pub(super) fn ceiling(evidence: &Evidence<'_>) -> Gate {
    let ios: u64 = evidence.streams.iter().map(|(_, _, record)| record.ios()).sum();
    let rate = ios as f64 / evidence.seconds;
    let Some(ceiling) = evidence.ceiling else {
        return gate("generator", State::Warn, "what the generator can do was not measured".into());
    };
    let share = rate / ceiling;
    let (busy, most, verb) = match &evidence.effort {
        Some(effort) => (effort.most / evidence.seconds, WORK_SHARE_MAX, "worked for"),
        None => (evidence.busy, BUSY_SHARE_MAX, "used"),
    };
    let why = format!(
        "{rate:.0}/s is {:.1}% of the {ceiling:.0}/s that the generator does here; its busiest thread {verb} {:.0}% of its time",
        share * 100.0,
        busy * 100.0
    );
    let state = match () {
        () if share > CEILING_SHARE_MAX => State::Fail,
        () if busy > most => State::Warn,
        () => State::Pass,
    };
    gate("generator", state, why)
}

/// Whether the machine that the load ran on was busy with it, or with anything else; nothing where that is not known.
pub(super) fn machine(busy: &Busy) -> Option<Gate> {
    let share = busy.share()?;
    let why = format!(
        "{:.0}% of the machine's {} processors were in use, by whomever",
        share * 100.0,
        busy.of.unwrap_or_default()
    );
    Some(processors(share, PROCESSORS_MAX, why))
}

/// Whether it may have been processors that were measured, of which this share was in use.
pub(crate) fn processors(busy: f64, most: f64, why: String) -> Gate {
    match busy > most {
        true => {
            let why = format!("{why}: this is a figure of the processors, not of the storage alone");
            gate("processors", State::Warn, why)
        }
        false => gate("processors", State::Pass, why),
    }
}
