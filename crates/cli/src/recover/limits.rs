//! What a machine may take of its host, as it is written and shown.

use std::str::FromStr;
use stonefold_api::MachineLimits;
use stonefold_types::Size;

/// How many processors, in hundredths of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Processors(u32);

impl FromStr for Processors {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let count: f64 =
            text.parse().map_err(|_| format!("'{text}' is no number of processors; write 2 or 0.5"))?;
        match (0.05..=4096.0).contains(&count) {
            true => Ok(Processors((count * 100.0).round() as u32)),
            false => Err(format!("'{text}' processors are none that a machine could have; write 2 or 0.5")),
        }
    }
}

/// As the API has them.
pub(super) fn limits(memory_max: Option<Size>, processors: Option<Processors>) -> MachineLimits {
    MachineLimits {
        memory_bytes: memory_max.map(|size| size.0),
        processors_percent: processors.map(|processors| processors.0),
    }
}

/// As people read them.
pub(super) fn limits_text(limits: &MachineLimits) -> String {
    let memory = limits.memory_bytes.map(|bytes| format!("{} of memory", Size(bytes)));
    let processors = limits.processors_percent.map(|percent| match percent {
        100 => "1 processor".to_owned(),
        _ => format!("{} processors", f64::from(percent) / 100.0),
    });
    memory.into_iter().chain(processors).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_read_and_are_shown() {
        for (text, percent, shown) in
            [("2", 200, "2 processors"), ("0.5", 50, "0.5 processors"), ("1", 100, "1 processor")]
        {
            assert_eq!(text.parse(), Ok(Processors(percent)));
            assert_eq!(limits_text(&limits(None, Some(Processors(percent)))), shown);
        }
        for wrong in ["", "0", "-1", "NaN", "two", "99999"] {
            assert!(wrong.parse::<Processors>().is_err(), "{wrong}");
        }
        let both = limits(Some(Size(3 << 30)), Some(Processors(150)));
        assert_eq!(limits_text(&both), "3G of memory, 1.5 processors");
    }
}
