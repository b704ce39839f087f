//! The certificate: a result in the layout in which audited results are published, signed by who vouches for it.
//!
//! *Promises*: what it says comes from a bundle that was held against its hashes and computed again; sums of money are exact;
//! its signature covers the bundle's hash and every word of both printed forms. *Never*: certifies a run that is no result
//! without saying so in large letters; holds a figure as a binary fraction, so that what is signed can be written again letter
//! by letter. *May be used by*: the command line.
//!
//! Three files come of one: `certificate.json` for programs, `certificate.html` for a browser and for paper,
//! `certificate.txt` for a terminal. What is signed are the bytes
//!
//! ```text
//! stonefold certificate 1\n
//! the certificate's JSON, in one line, its fields in the order of the types below\n
//! BLAKE3 of certificate.txt up to its signature, in hex\n
//! BLAKE3 of certificate.html up to its signature, in hex\n
//! ```

mod decimal;
mod keys;
mod price;
mod print;
mod results;

pub use keys::{Key, PUBLIC_KEY_HEX};
pub use price::{Price, PriceLine};
pub use results::{Application, Measured};

use crate::bundle::Bundle;
use crate::oltp::figures::ramp;
use crate::system::System;
use crate::verdict::{Summary, Verdict};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use stonefold_types::{Error, Kind, Result};

/// The layout that is written.
const FORMAT: u32 = 1;
/// What is signed begins with this, so that a signature of something else is none of a certificate.
const DOMAIN: &str = "stonefold certificate 1\n";

/// What its maker says, beside the bundle.
pub struct Statement {
    /// Who asks for it and pays.
    pub sponsor: String,
    /// Who vouches for it.
    pub auditor: String,
    /// Day of the test: `2026-11-22`.
    pub tested: String,
    /// Day from which what was tested can be bought.
    pub available: String,
    /// Day of the certificate.
    pub certified: String,
    /// Its number; nothing for one made of day and hash.
    pub identifier: Option<String>,
    /// The price file's text.
    pub price: Option<String>,
    /// A run that is no result may be certified, as what it is.
    pub stamped: bool,
}

/// A certificate. Numbers are decimal text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// Layout of the document: 1.
    pub format: u32,
    /// Its number.
    pub identifier: String,
    /// Why it is no result, in large letters; empty where it is one.
    pub stamps: Vec<String>,
    /// Who asks for it and pays.
    pub sponsor: String,
    /// Who vouches for it.
    pub auditor: String,
    /// Day of the test, by UTC.
    pub tested: String,
    /// Day from which what was tested can be bought.
    pub available: String,
    /// Day of the certificate, by UTC.
    pub certified: String,
    /// The verdict, and what was required.
    pub verdict: String,
    /// Each requirement, with what came of it.
    pub requirements: Vec<String>,
    /// The profile's name.
    pub profile: String,
    /// What was tested and on what, by names.
    pub configuration: BTreeMap<String, String>,
    /// What it costs.
    pub price: Option<Price>,
    /// Each point that was measured.
    pub results: Vec<Measured>,
    /// The hash of the raw data (BLAKE3).
    pub bundle: String,
    /// The command that does the same.
    pub reproduce: String,
}

/// A certificate with its signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signed {
    /// What is certified.
    pub certificate: Certificate,
    /// BLAKE3 of `certificate.txt` up to its signature.
    pub text: String,
    /// BLAKE3 of `certificate.html` up to its signature.
    pub html: String,
    /// Who signed: an Ed25519 key (RFC 8032), in hex.
    pub public_key: String,
    /// Of the bytes that this module's page draws, in hex.
    pub signature: String,
}

impl Certificate {
    /// Of a bundle that was loaded, and so held against its hashes, and of what it says.
    ///
    /// # Errors
    /// [`Kind::Invalid`] where the run is no result and `stamped` was not said, where a date or the price file is wrong.
    pub fn of(bundle: &Bundle, summary: &Summary, statement: &Statement) -> Result<Self> {
        if !ramp(&bundle.points).is_empty() {
            let what = "the run is of a database's transactions, and a certificate tells I/Os";
            return Err(Error::new(Kind::Unsupported, what)
                .remedy("publish its report: stonefold lab report DIR --html FILE"));
        }
        let stamps = stamps(bundle, summary);
        if !stamps.is_empty() && !statement.stamped {
            let what = format!("the run is no result: {}", stamps.join("; "));
            return Err(Error::new(Kind::Invalid, what).remedy(
                "run the profile in full, or say --stamped: then the certificate says so in large letters",
            ));
        }
        for (what, date) in [("availability", &statement.available), ("the test", &statement.tested)] {
            check_date(date).map_err(|e| e.context(format!("the date of {what}")))?;
        }
        let run = &bundle.run;
        let results = results::of(bundle, summary);
        let headline = results::headline(summary, &results);
        let vms = crate::tiles::vms_of(bundle)?;
        let price = statement.price.as_deref().map(|text| match vms {
            Some(vms) => Price::of_vms(text, vms),
            None if run.tiles.is_some() => Price::of_none(text, headline),
            None => Price::parse(text, headline),
        });
        let price = price.transpose()?;
        let identifier = statement.identifier.clone().unwrap_or_else(|| {
            format!(
                "SF-{}-{}",
                statement.certified.replace('-', ""),
                &bundle.hash[..bundle.hash.len().min(12)]
            )
        });
        let required = summary.required.iter().map(|required| {
            let met = match required.met.met {
                Some(true) => "met",
                Some(false) => "NOT MET",
                None => "cannot be said",
            };
            format!("{}: {met}: {}", required.met.requirement, required.met.told)
        });
        Ok(Certificate {
            format: FORMAT,
            identifier,
            stamps,
            sponsor: statement.sponsor.clone(),
            auditor: statement.auditor.clone(),
            tested: statement.tested.clone(),
            available: statement.available.clone(),
            certified: statement.certified.clone(),
            verdict: verdict(summary),
            requirements: required.collect(),
            profile: run.profile.clone(),
            configuration: configuration(bundle),
            price,
            results,
            bundle: bundle.hash.clone(),
            reproduce: run.reproduce.clone(),
        })
    }

    /// Signs it.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn sign(self, key: &Key) -> Result<Signed> {
        let hash = |text: String| blake3::hash(text.as_bytes()).to_hex().to_string();
        let (text, html) = (hash(print::text(&self)), hash(print::html(&self)));
        let signature = key.sign(&message(&self, &text, &html)?);
        Ok(Signed { certificate: self, text, html, public_key: key.public(), signature })
    }
}

impl Signed {
    /// The name, and the content, of each of the three files.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn files(&self) -> Result<[(&'static str, String); 3]> {
        let json = serde_json::to_string_pretty(self).map_err(failed)? + "\n";
        let text = print::text(&self.certificate) + &print::text_signature(self);
        let html = print::html(&self.certificate) + &print::html_signature(self);
        Ok([("certificate.json", json), ("certificate.txt", text), ("certificate.html", html)])
    }

    /// Reads `certificate.json` and holds it against its signature, and the printed forms beside it against it.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] where anything differs from what was signed; [`Kind::Unsupported`] where a newer lab wrote it.
    pub fn verify(path: &Path) -> Result<Self> {
        let read = |path: &Path| {
            std::fs::read_to_string(path).map_err(|e| Error::io(format!("reading '{}'", path.display()), e))
        };
        let corrupt = |what: String| {
            Error::new(Kind::Corrupt, format!("'{}' {what}", path.display()))
                .remedy("take the certificate from who signed it")
        };
        let signed: Signed =
            serde_json::from_str(&read(path)?).map_err(|e| corrupt(format!("is no certificate: {e}")))?;
        if signed.certificate.format > FORMAT {
            let what = format!("'{}' was written by a newer version", path.display());
            return Err(Error::new(Kind::Unsupported, what).remedy("verify it with that"));
        }
        let message = message(&signed.certificate, &signed.text, &signed.html)?;
        if !keys::is_signed(&signed.public_key, &message, &signed.signature) {
            return Err(corrupt("is not what was signed".into()));
        }
        for (name, signature, kept) in [
            ("certificate.txt", print::text_signature(&signed), &signed.text),
            ("certificate.html", print::html_signature(&signed), &signed.html),
        ] {
            let beside = path.with_file_name(name);
            if !beside.exists() {
                continue;
            }
            let content = read(&beside)?;
            let body = content
                .strip_suffix(&signature)
                .map(|body| blake3::hash(body.as_bytes()).to_hex().to_string());
            if body.as_ref() != Some(kept) {
                return Err(corrupt(format!(
                    "is sound, but '{}' beside it is not what was signed",
                    beside.display()
                )));
            }
        }
        Ok(signed)
    }
}

fn message(certificate: &Certificate, text: &str, html: &str) -> Result<Vec<u8>> {
    let json = serde_json::to_string(certificate).map_err(failed)?;
    Ok(format!("{DOMAIN}{json}\n{text}\n{html}\n").into_bytes())
}

fn failed(error: serde_json::Error) -> Error {
    Error::new(Kind::Io, format!("writing a certificate as JSON: {error}"))
}

/// What keeps a run from being a result.
fn stamps(bundle: &Bundle, summary: &Summary) -> Vec<String> {
    let run = &bundle.run;
    let marks = [
        (summary.verdict == Verdict::Invalid, "INVALID: nothing can be concluded from it"),
        (run.cut_short, "ENDED BEFORE ITS TIME"),
        (!run.locked, "MODIFIED: not the profile of this name"),
        (run.quick, "QUICK: a sketch, and no result"),
    ];
    marks.iter().filter(|(is, _)| *is).map(|(_, why)| (*why).to_owned()).collect()
}

fn verdict(summary: &Summary) -> String {
    match (summary.verdict, summary.required.is_empty()) {
        (Verdict::Pass, true) => "VALID".into(),
        (Verdict::Pass, false) => "PASS".into(),
        (Verdict::Fail, _) => "FAIL".into(),
        (Verdict::Invalid, _) => "INVALID".into(),
        (Verdict::Inconclusive, _) => "INCONCLUSIVE".into(),
    }
}

fn configuration(bundle: &Bundle) -> BTreeMap<String, String> {
    let run = &bundle.run;
    let mut all: BTreeMap<String, String> =
        run.machine.iter().map(|(name, value)| (format!("load generator: {name}"), value.clone())).collect();
    // What is certified is what is behind the target.
    all.extend(
        run.system.iter().flat_map(System::facts).map(|(name, what)| (format!("storage: {name}"), what)),
    );
    all.insert("target".into(), run.targets.join(", "));
    all.insert("logical bytes, each written before".into(), run.bytes.to_string());
    all.insert("threads of the load".into(), run.threads.to_string());
    all.insert("seed".into(), run.seed.to_string());
    let longer = run.least_seconds.map(|least| format!("{least} s, longer than the profile says"));
    all.extend(longer.map(|least| ("each load measured for at least".into(), least)));
    let steps = Some(run.only.join("; ")).filter(|steps| !steps.is_empty());
    all.extend(steps.map(|steps| ("of its steps only".into(), steps)));
    let verified = if run.verified { "every sector that was read" } else { "nothing" };
    all.insert("verified".into(), verified.into());
    all.insert("version of the lab".into(), run.version.clone());
    all
}

/// `2026-11-22`, a day that there is.
///
/// # Errors
/// [`Kind::Invalid`] of any other.
pub fn check_date(text: &str) -> Result<()> {
    let wrong =
        || Error::new(Kind::Invalid, format!("'{text}' is no day")).remedy("write it as in 2026-11-22");
    let parts: Vec<u32> = text.split('-').filter_map(|part| part.parse().ok()).collect();
    let [year, month, day] = parts[..] else { return Err(wrong()) };
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => 31,
    };
    let is_day = (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=days).contains(&day);
    let digits_only = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    if is_day && text.len() == 10 && digits_only { Ok(()) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests;
