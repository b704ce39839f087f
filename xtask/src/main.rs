//! Checks of the house itself: `cargo xtask layers` and `cargo xtask licences`.

mod layers;
mod licences;
mod metadata;

use anyhow::{Result, bail};

fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("layers") => layers::check(),
        Some("licences") => licences::check(),
        Some(other) => bail!("'{other}' is no task; there are: layers, licences"),
        None => bail!("name a task: layers, licences"),
    }
}
