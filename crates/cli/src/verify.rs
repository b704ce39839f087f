//! `stonefold verify`.

use crate::context::Context;
use crate::failure::{Beside, Failure};
use crate::recover::{patience, sign_of_life};
use crate::table::{facts, micros};
use crate::waiting::wait_for;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use clap::Args;
use std::path::PathBuf;
use stonefold_api::{Proof, VerifyCreate};
use stonefold_types::{Error, Kind, PointName};

/// Prove that a point boots
///
/// It is booted on the server's host by QEMU, from clones that go again, without a network, or with nothing of one but the port that is waited
/// for. What came of it, with a picture of the screen, is kept with the point, signed. Exit status 1 when it does not boot.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    stonefold verify web-nightly@20261123T184005Z\n  \
    stonefold verify web-nightly@20261123T184005Z --wait port:22 --timeout 10m\n  \
    stonefold verify db-nightly@20261123T184005Z --wait 'console:login:' --screenshot db.png\n  \
    stonefold verify db-nightly@20261123T184005Z --wait 'cmd:pg_isready'")]
pub(crate) struct Verify {
    /// The point
    #[arg(value_name = "SOURCE@TIME")]
    point: PointName,
    /// The sign of life: agent (the guest agent answers), port:N (what listens on TCP port N of the guest answers), console:REGEX (a
    /// text on the first serial port), cmd:COMMAND (a command that the agent runs in the guest ends with 0)
    #[arg(long, value_name = "SIGN", default_value = "agent", value_parser = sign_of_life)]
    wait: String,
    /// How long it is waited for: 90s, 5m, 1h
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = patience)]
    timeout: u64,
    /// Write the picture of the screen to this file, a PNG
    #[arg(long, value_name = "FILE")]
    screenshot: Option<PathBuf>,
}

impl Verify {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        // A boot takes its minutes.
        let folder =
            self.screenshot.as_ref().and_then(|file| file.parent()).filter(|at| !at.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            let error = Error::new(Kind::NotFound, format!("there is no folder '{}'", folder.display()));
            return Err(Failure::Misuse(error.remedy("make it, or name another file for the picture")));
        }
        let client = context.client()?;
        let asked = VerifyCreate { wait: self.wait, timeout_seconds: self.timeout };
        let point = self.point.clone();
        let proof = wait_for(&client, "verify", move |client| client.verify_point(&point, &asked))?;
        let saved = self.screenshot.as_ref().map_or(Ok(()), |file| save(&proof, file));
        let failed = match (proof.boots, saved) {
            (true, saved) => saved.err(),
            (false, saved) => {
                saved.err().iter().for_each(|error| eprintln!("error: {error}"));
                Some(silent(&proof))
            }
        };
        context.answer(&Beside::new(&proof, failed.as_ref()), || shown(&proof))?;
        failed.map_or(Ok(()), |error| Err(error.into()))
    }
}

fn silent(proof: &Proof) -> Error {
    Error::new(Kind::Io, format!("point '{}' does not boot: {}", proof.point, proof.said)).remedy(
        "see its screen with --screenshot FILE; recover it and look: recover … --to qemu --network isolated",
    )
}

fn save(proof: &Proof, file: &PathBuf) -> Result<(), Error> {
    let none = || {
        Error::new(Kind::NotFound, "there is no picture of the screen").remedy("the server's log says why")
    };
    let picture = proof.screenshot.as_ref().and_then(|text| BASE64.decode(text).ok()).ok_or_else(none)?;
    std::fs::write(file, picture).map_err(|e| Error::io(format!("writing '{}'", file.display()), e))
}

/// A proof, in lines.
pub(crate) fn shown(proof: &Proof) -> String {
    let stage =
        |stage: &stonefold_api::ProofStage| format!("{} after {}", stage.what, micros(stage.after_us));
    let verdict = if proof.boots { "boots" } else { "DOES NOT BOOT" };
    facts([
        ("point", format!("{} {verdict}", proof.point)),
        ("waited for", proof.wait.clone()),
        ("seen", proof.said.clone()),
        ("begun", format!("{} UTC", proof.begun.to_seconds_text())),
        ("stages", proof.stages.iter().map(stage).collect::<Vec<_>>().join("\n")),
        ("signed by", proof.public_key.clone()),
    ])
}
