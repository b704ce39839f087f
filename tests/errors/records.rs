//! Records of the whole pool that are damaged: the pool's own, the domains', the tokens'.
//!
//! What is wrong, which object, what to do; and when it is put back, everything is there. Tokens alone may be given up.

use super::{objects, says};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::PathBuf;
use stonefold_e2e::gateway::{Place, in_a_place};

/// The file of a document that lies by itself.
fn document(place: &Place, name: &str) -> Result<PathBuf> {
    let all = objects(place, "+")?;
    all.into_iter().find(|path| path.ends_with(name)).with_context(|| format!("'{name}' is there"))
}

#[test]
fn a_damaged_record_is_refused_by_name_and_costs_nothing_when_it_is_back() {
    in_a_place(|place| {
        let gateway = place.start(&[])?;
        place.ok("domain create tenant")?;
        place.ok("disk create web --size 8M --domain tenant")?;
        place.connect("web")?.write(5000, b"mine")?;
        place.ok("token create --role admin --name me")?;
        gateway.stop()?;
        for name in ["pool", "domains", "tokens"] {
            let file = document(place, name)?;
            let sound = fs::read(&file)?;
            // All of it, so that nothing mends it; or cut short, or other bytes where it should lie.
            for damaged in [vec![0xa5; sound.len()], sound[..100].to_vec(), Vec::new()] {
                fs::write(&file, &damaged)?;
                let (error, status) = place.refused(&[])?;
                says(&error, &[name])?;
                ensure!(status == 1, "'{name}': status {status}");
                ensure!(fs::read(&file)? == damaged, "'{name}' is left alone");
                let offline = format!("pool check --pool file://{}", place.pool().display());
                if name != "tokens" {
                    says(&place.fails(&offline, 1)?, &[name])?;
                }
            }
            fs::write(&file, &sound)?;
        }
        fs::write(document(place, "tokens")?, b"nothing")?;
        let gateway = place.start(&["--forget-tokens"])?;
        ensure!(place.connect("web")?.read(5000, 4)? == b"mine", "the disk is there");
        ensure!(place.ok("domain ls")?.contains("tenant"), "and its domain");
        gateway.stop()
    });
}
