//! Checks of the house itself: `cargo xtask layers`, `cargo xtask licences` and `cargo xtask oldest`; and `cargo xtask test`, which runs all others.

mod layers;
mod licences;
mod metadata;
mod oldest;
mod test;

use anyhow::{Result, bail};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(2).collect();
    match std::env::args().nth(1).as_deref() {
        Some("layers") => layers::check(),
        Some("licences") => licences::check(),
        Some("oldest") => oldest::check(),
        Some("test") => test::run(&arguments),
        Some(other) => bail!("'{other}' is no task; there are: layers, licences, oldest, test"),
        None => bail!("name a task: layers, licences, oldest, test"),
    }
}
