//! Proofs: a point is booted where it reaches nothing and nobody reaches it, and what came of it is kept with the point, signed.
//!
//! *Order*: a recovery that says what it is for; its machine; the sign of life; a picture of the screen; machine and recovery go; the record is
//! signed and put. A recovery of a proof that is found at a start goes, and its machine. *Never*: a record without a boot: where none could be
//! tried, that is an error and no proof. *Never*: anything of a proof stays but its record.
//!
//! What is signed, by whom, and how it is looked at: [`ProofRecord`], [`Proof::check`].

pub mod due;
mod key;

use crate::catalog::{self, Entry, Unknown};
use crate::clones::hexadecimal;
use crate::domain::{Network, Reach};
use crate::hypervisor::{ANSWER_MAX, Folder, Host, Limits, Sign, Where};
use crate::points::Point;
use crate::recoveries::Recovery;
use crate::starts::{Begun, StartRequest, StopRequest};
use crate::{Protection, RecoverRequest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::time::Duration;
use stonefold_env::WallNanos;
use stonefold_types::{Error, Kind, Name, PointName, Result};

/// The largest picture that is kept, in bytes: a screen of text has some 10 KiB, and documents of the pool are to stay below 1 MiB.
const SCREENSHOT_BYTES_MAX: usize = 512 << 10;

/// The document of a proof, `proofs/SOURCE/TIME`: the newest of a point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// The point.
    pub point: PointName,
    /// What is signed: a [`ProofRecord`] as JSON, to the byte.
    pub record: String,
    /// Who signed: an Ed25519 key (RFC 8032), in hex.
    pub public_key: String,
    /// Over the bytes of `record`, in hex.
    pub signature: String,
    /// The screen at the end: a PNG, in base64 (RFC 4648); absent where there was none to be had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub screenshot: Option<String>,
    #[serde(flatten)]
    pub(crate) unknown: Unknown,
}

/// What came of booting a point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProofRecord {
    /// The point.
    pub point: PointName,
    /// Of each of its disks the snapshot that was booted: `disk@snapshot`, its number, and when it was taken, nanoseconds since 1970.
    pub snapshots: Vec<(String, u64, WallNanos)>,
    /// Whether the sign of life was seen.
    pub boots: bool,
    /// What was waited for.
    pub sign: Sign,
    /// What there was of it, or why not, in words.
    pub said: String,
    /// When it was begun, by trusted time, nanoseconds since 1970.
    pub begun: WallNanos,
    /// How long it took from then to each stage, in order.
    pub stages: Vec<Stage>,
    /// The hash (BLAKE3) of the picture of the screen, in hex; absent where there is none.
    pub screenshot_hash: Option<String>,
}

/// A stage of a proof.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// Which.
    pub what: String,
    /// From the beginning, in microseconds.
    pub after_us: u64,
}

/// A point to be proven.
#[derive(Clone, Debug)]
pub struct VerifyRequest {
    /// The point.
    pub point: PointName,
    /// Where its machine finds its disks.
    pub reach: Reach,
    /// What to wait for.
    pub sign: Sign,
    /// How long.
    pub patience: Duration,
}

impl Entry for Proof {
    const FAMILY: &'static str = "proofs";
    const NOUN: &'static str = "proof";
    const LISTED_BY: &'static str = "stonefold point ls";

    fn key(&self) -> String {
        crate::runs::key(&self.point)
    }
}

impl Proof {
    /// Looks whether it is what was signed, and returns what that says.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] where the record, the picture or the signature was changed.
    pub fn check(&self) -> Result<ProofRecord> {
        let wrong = |what: &str| {
            Error::new(
                Kind::Corrupt,
                format!("the proof of point '{}' is not what was signed: {what}", self.point),
            )
            .remedy(format!("prove it again: stonefold verify {}", self.point))
        };
        if !key::is_signed(&self.public_key, self.record.as_bytes(), &self.signature) {
            return Err(wrong("its signature does not fit"));
        }
        let record: ProofRecord = serde_json::from_str(&self.record).map_err(|e| wrong(&e.to_string()))?;
        if record.point != self.point {
            return Err(wrong("it is another point's"));
        }
        let picture = self.screenshot.as_ref().and_then(|text| BASE64.decode(text).ok());
        match picture.as_deref().map(hash) == record.screenshot_hash {
            true => Ok(record),
            false => Err(wrong("its picture is another")),
        }
    }
}

fn hash(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

/// How far a proof is.
struct Stages {
    begun: Duration,
    passed: Vec<Stage>,
}

impl Protection {
    /// Boots a point in isolation, waits for a sign of life, and keeps what came of it with the point. A point that does not boot is no error: the
    /// record says so, and why.
    pub async fn verify_point(&self, asked: VerifyRequest) -> Result<Proof> {
        let name = Name::new(&format!("verify-{}", hexadecimal(&self.env.random::<4>())))?;
        self.proving.lock().insert(name.clone());
        let proven = self.boot(&name, &asked).await;
        let cleared = self.clear(&name).await;
        self.proving.lock().remove(&name);
        if let Err(error) = &cleared {
            tracing::warn!(
                "what was booted to prove '{}' is still there, and goes at the next start: {error}",
                asked.point
            );
        }
        let (mut record, mut stages, screenshot) = proven?;
        if cleared.is_ok() {
            self.pass(&mut stages, "torn down");
        }
        record.stages = stages.passed;
        self.keep(record, screenshot).await
    }

    /// The newest proof of a point; nothing where there is none.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] where it was signed with another key than the pool's: anybody can make one that fits itself.
    pub async fn proof(&self, point: &PointName) -> Result<Option<Proof>> {
        self.settle().await;
        let Some(proof) = catalog::find::<Proof>(&self.store, &crate::runs::key(point)).await? else {
            return Ok(None);
        };
        if key::public_of_pool(self).await?.as_ref() != Some(&proof.public_key) {
            let what = format!("the proof of point '{point}' was signed by another key than this pool's");
            return Err(
                Error::new(Kind::Corrupt, what).remedy(format!("prove it again: stonefold verify {point}"))
            );
        }
        Ok(Some(proof))
    }

    fn pass(&self, stages: &mut Stages, what: &str) {
        stages.passed.push(Stage { what: what.to_owned(), after_us: self.since(stages.begun) });
    }

    async fn boot(
        &self,
        name: &Name,
        asked: &VerifyRequest,
    ) -> Result<(ProofRecord, Stages, Option<Vec<u8>>)> {
        let mut stages = Stages { begun: self.env.monotonic(), passed: Vec::new() };
        let begun = self.store.time().trusted;
        let point = self.point(&asked.point).await?.point;
        self.check_boots(&point).await?;
        let request = RecoverRequest {
            point: asked.point.clone(),
            name: name.clone(),
            qos: None,
            reach: asked.reach.clone(),
            network: Network::Isolated,
            dry_run: false,
        };
        self.bring_back(request, true).await?;
        self.pass(&mut stages, "disks ready");
        let port = if let Sign::Port(port) = asked.sign { Some((port, true)) } else { None };
        let start = StartRequest {
            name: name.clone(),
            to: Where::Qemu,
            reach: asked.reach.clone(),
            wait: None,
            limits: Limits::default(),
        };
        let machine = self.begin_machine(&start, port).await?;
        if let Some(first) = machine.recovery.started.as_ref().and_then(|started| started.first_block_us) {
            let before = machine.asked.saturating_sub(stages.begun).as_micros() as u64;
            stages.passed.push(Stage { what: "first block".to_owned(), after_us: before + first });
        }
        let seen = self.watch(&machine, &asked.sign, asked.patience).await;
        if seen.is_ok() {
            self.pass(&mut stages, "sign of life");
        }
        let screenshot = self.screenshot(&machine).await;
        let record = ProofRecord {
            snapshots: snapshots_of(&point),
            point: point.name,
            boots: seen.is_ok(),
            sign: asked.sign.clone(),
            said: seen.unwrap_or_else(|error| error.to_string()),
            begun,
            stages: Vec::new(),
            screenshot_hash: screenshot.as_deref().map(hash),
        };
        Ok((record, stages, screenshot))
    }

    /// A picture of a machine's screen; nothing where there is none to be had, which proves nothing.
    async fn screenshot(&self, machine: &Begun) -> Option<Vec<u8>> {
        let (qmp, started) = (machine.qmp.as_ref()?, machine.recovery.started.as_ref()?);
        let Host::Qemu { folder } = &started.host else { return None };
        let file = Folder(folder.clone()).screen();
        let how = json!({ "filename": file, "format": "png" });
        let taken = match qmp.execute("screendump", how, ANSWER_MAX).await {
            Ok(_) => std::fs::read(&file).map_err(|e| Error::io("reading the picture", e)),
            Err(error) => Err(error),
        };
        match taken {
            Ok(bytes) if bytes.len() <= SCREENSHOT_BYTES_MAX => Some(bytes),
            Ok(bytes) => {
                tracing::warn!(
                    "the picture of '{}' is not kept: it has {} bytes",
                    machine.recovery.name,
                    bytes.len()
                );
                None
            }
            Err(error) => {
                tracing::warn!("there is no picture of '{}': {error}", machine.recovery.name);
                None
            }
        }
    }

    /// Takes away what was booted; where nothing was made there is nothing to do.
    async fn clear(&self, name: &Name) -> Result<()> {
        match self.stop_recovery(name, StopRequest { discard: true, power_off: true }).await {
            Err(error) if error.kind() == Kind::NotFound => Ok(()),
            stopped => stopped.map(drop),
        }
    }

    /// Signs a record and puts it with its point, in the place of an older one.
    async fn keep(&self, record: ProofRecord, screenshot: Option<Vec<u8>>) -> Result<Proof> {
        let signing = key::of_pool(self).await?;
        let text = serde_json::to_string(&record).expect("a record is plain JSON");
        let proof = Proof {
            point: record.point,
            public_key: signing.public(),
            signature: signing.sign(text.as_bytes()),
            record: text,
            screenshot: screenshot.map(|bytes| BASE64.encode(bytes)),
            unknown: Unknown::new(),
        };
        self.change(async {
            // One that was removed meanwhile leaves nothing.
            let point: Point = catalog::get(&self.store, &proof.key()).await?;
            if point.removing {
                let what = format!("point '{}' was removed meanwhile", point.name);
                return Err(Error::new(Kind::NotFound, what).remedy("prove another point"));
            }
            catalog::put(&self.store, &proof).await?;
            Ok(proof.clone())
        })
        .await
    }

    /// Takes away what proofs of an earlier life had booted; one that cannot go keeps no other from it. Returns the first error.
    pub(crate) async fn end_proofs(&self) -> Result<()> {
        let of_proofs = |recovery: &Recovery| recovery.proof && !self.proving.lock().contains(&recovery.name);
        let mut ended = Ok(());
        for recovery in catalog::all::<Recovery>(&self.store, None).await?.into_iter().filter(of_proofs) {
            let done = self.end_proof(&recovery).await;
            ended = ended.and(done.map_err(|e| e.context(format!("ending the proof '{}'", recovery.name))));
        }
        ended
    }

    async fn end_proof(&self, recovery: &Recovery) -> Result<()> {
        if let Some(started) = &recovery.started {
            started.host.end(&self.env).await?;
            self.clients_gone(recovery).await;
        }
        self.go_on_discarding(recovery).await
    }
}

fn snapshots_of(point: &Point) -> Vec<(String, u64, WallNanos)> {
    let of = |disk| {
        let disk: &crate::PointDisk = disk;
        (point.snapshot_of(disk).to_string(), disk.number, disk.created)
    };
    point.disks.iter().map(of).collect()
}

#[cfg(test)]
mod tests;
