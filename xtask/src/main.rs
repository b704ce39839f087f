//! Checks of the house itself: `cargo xtask layers`.

mod layers;

use anyhow::{Result, bail};

fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("layers") => layers::check(),
        Some(other) => bail!("'{other}' is no task; there is: layers"),
        None => bail!("name a task: layers"),
    }
}
