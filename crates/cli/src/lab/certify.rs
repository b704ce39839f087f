//! `stonefold lab certify`.

use crate::context::Context;
use crate::environment::environment;
use crate::failure::Failure;
use crate::table::facts;
use clap::Args;
use std::path::{Path, PathBuf};
use stonefold_api::Time;
use stonefold_lab::certificate::{Certificate, Key, PUBLIC_KEY_HEX, Price, Signed, Statement, check_date};
use stonefold_lab::trial::{self, Trial};
use stonefold_lab::{bundle, verdict};
use stonefold_types::{Error, Kind};

/// Make a signed certificate of a run, in the layout of audited results; or verify one
///
/// The run's files are held against their hashes, and its figures computed again. A run that is INVALID, modified, quick or cut
/// short is refused, or stamped as that in large letters.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    stonefold lab certify --new-key auditor.key\n  \
    stonefold lab certify runs/poltp-1 --sponsor 'Maker Ltd' --auditor 'House of Audits' --available 2026-12-01 \\\n    \
      --price price.toml --key auditor.key --out certificate\n  \
    stonefold lab certify --verify certificate/certificate.json --public-key 3d40…660c\n  \
    stonefold lab certify --verify certificate/certificate.json runs/poltp-1")]
pub(crate) struct Certify {
    /// The folder of a run; with --verify: that the certificate must be of
    #[arg(required_unless_present_any = ["verify", "new_key"])]
    dir: Option<PathBuf>,
    /// Who asks for the certificate
    #[arg(long, value_name = "NAME", required_unless_present_any = ["verify", "new_key"])]
    sponsor: Option<String>,
    /// Who vouches for it
    #[arg(long, value_name = "NAME", required_unless_present_any = ["verify", "new_key"])]
    auditor: Option<String>,
    /// The day from which what was tested can be bought, as in 2026-12-01
    #[arg(long, value_name = "DATE", required_unless_present_any = ["verify", "new_key"])]
    available: Option<String>,
    /// What it costs: a TOML file of price lines
    #[arg(long, value_name = "FILE")]
    price: Option<PathBuf>,
    /// The key that signs
    #[arg(long, value_name = "FILE", required_unless_present_any = ["verify", "new_key"])]
    key: Option<PathBuf>,
    /// Where the certificate goes: a folder that is empty or does not exist yet
    #[arg(long, value_name = "DIR", required_unless_present_any = ["verify", "new_key"])]
    out: Option<PathBuf>,
    /// The certificate's number [default: made of the day and the run's hash]
    #[arg(long, value_name = "TEXT")]
    identifier: Option<String>,
    /// Certify even what is no result, and say so in large letters
    #[arg(long)]
    stamped: bool,
    /// Hold a certificate against its signature, and what is printed beside it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["sponsor", "auditor", "key", "out", "price", "new_key"])]
    verify: Option<PathBuf>,
    /// Who must have signed it, with --verify: the key's 64 digits
    #[arg(long, value_name = "HEX", requires = "verify")]
    public_key: Option<String>,
    /// Make a key that signs, which only its owner may read
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dir", "sponsor", "auditor", "key", "out", "price"])]
    new_key: Option<PathBuf>,
}

impl Certify {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        match (&self.new_key, &self.verify) {
            (Some(path), _) => new_key(context, path),
            (None, Some(path)) => self.verify(context, path),
            (None, None) => self.make(context),
        }
    }

    fn make(self, context: &Context) -> Result<(), Failure> {
        let (Some(dir), Some(out), Some(key)) = (&self.dir, &self.out, &self.key) else {
            unreachable!("clap asks for them")
        };
        bundle::check_free(out)?;
        let key = Key::load(key)?;
        let available = self.available.unwrap_or_default();
        check_day(&available)?;
        let price = self.price.as_deref().map(price_file).transpose()?;
        refuse_comparison(dir)?;
        let bundle = bundle::load(dir)?;
        let summary = verdict::summarise(&bundle)?;
        let (_runtime, env) = environment()?;
        let statement = Statement {
            sponsor: self.sponsor.unwrap_or_default(),
            auditor: self.auditor.unwrap_or_default(),
            tested: day(bundle.run.began * 1_000_000_000),
            available,
            certified: day(env.wall()),
            identifier: self.identifier,
            price,
            stamped: self.stamped,
        };
        let signed = Certificate::of(&bundle, &summary, &statement)?.sign(&key)?;
        std::fs::create_dir_all(out).map_err(|e| Error::io(format!("making '{}'", out.display()), e))?;
        for (name, content) in signed.files()? {
            let path = out.join(name);
            std::fs::write(&path, content)
                .map_err(|e| Error::io(format!("writing '{}'", path.display()), e))?;
        }
        context.answer(&signed, || told(&signed, &out.display().to_string()))
    }

    fn verify(&self, context: &Context, path: &Path) -> Result<(), Failure> {
        let expected = self.public_key.as_ref().map(|key| key.trim().to_ascii_lowercase());
        let is_key =
            |key: &String| key.len() == PUBLIC_KEY_HEX && key.bytes().all(|byte| byte.is_ascii_hexdigit());
        if let Some(key) = expected.as_ref().filter(|key| !is_key(key)) {
            let error = Error::new(Kind::Invalid, format!("'{key}' is no public key"));
            return Err(Failure::Misuse(
                error.remedy("give its 64 digits of hex, as the certificate and --new-key print it"),
            ));
        }
        let signed = Signed::verify(path)?;
        if expected.is_some_and(|key| key != signed.public_key) {
            let what = format!("'{}' is sound, but another signed it: {}", path.display(), signed.public_key);
            return Err(Error::new(Kind::Denied, what)
                .remedy("ask the auditor for the key that is his")
                .into());
        }
        if let Some(dir) = &self.dir {
            let bundle = bundle::load(dir)?;
            if bundle.hash != signed.certificate.bundle {
                let what =
                    format!("'{}' is sound, but not of the run in '{}'", path.display(), dir.display());
                return Err(Error::new(Kind::Corrupt, what)
                    .remedy("name the folder of the run that it is of")
                    .into());
            }
        }
        context.answer(&signed, || told(&signed, "sound"))
    }
}

fn check_day(available: &str) -> Result<(), Failure> {
    check_date(available).map_err(|e| Failure::Misuse(e.context("the date of availability")))
}

/// The text of a price file that adds up.
fn price_file(path: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| Error::io(format!("reading the price file '{}'", path.display()), e))?;
    Price::check(&text).map_err(Failure::Misuse)?;
    Ok(text)
}

/// A comparison holds a run of each round and arm, and any of these can be certified.
fn refuse_comparison(dir: &Path) -> Result<(), Failure> {
    if !Trial::is_in(dir) {
        return Ok(());
    }
    let runs = trial::load(dir)?.0.runs;
    let error = Error::new(
        Kind::Unsupported,
        format!("'{}' is a comparison, and certificates are of runs", dir.display()),
    );
    Err(Failure::Misuse(match runs.first() {
        Some((turn, _)) => error.remedy(format!(
            "name the folder of one of its runs, as in '{}'",
            dir.join(trial::run_folder(turn)).display()
        )),
        None => error.remedy("run the profile by 'lab run', and name the folder of that"),
    }))
}

fn new_key(context: &Context, path: &Path) -> Result<(), Failure> {
    let (_runtime, env) = environment()?;
    let key = Key::make(path, env.random())?;
    let document = serde_json::json!({ "key": path, "public_key": key.public() });
    context.answer(&document, || facts([("key", path.display().to_string()), ("public key", key.public())]))
}

/// By UTC.
fn day(nanos: u64) -> String {
    Time::from_nanos(nanos).to_string()[..10].to_owned()
}

fn told(signed: &Signed, certificate: &str) -> String {
    let of = &signed.certificate;
    let price =
        of.price.as_ref().map(|price| format!("{} {}", price.total, price.currency)).unwrap_or_default();
    facts([
        ("certificate", certificate.to_owned()),
        ("identifier", of.identifier.clone()),
        ("stamped", of.stamps.join("; ")),
        ("profile", of.profile.clone()),
        ("verdict", of.verdict.clone()),
        ("sponsor", of.sponsor.clone()),
        ("auditor", of.auditor.clone()),
        ("price", price),
        ("raw data", of.bundle.clone()),
        ("signed by", signed.public_key.clone()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a day that there is not and a price file that does not add up are misuse; one that is not there is a failure.
    #[test]
    fn what_is_wrong_in_form_is_misuse() {
        assert!(check_day("2026-12-01").is_ok());
        assert!(matches!(check_day("2026-13-41"), Err(Failure::Misuse(_))));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("price.toml");
        assert!(matches!(price_file(&path), Err(Failure::Failed(_))));
        std::fs::write(&path, "currency = 'euros'").unwrap();
        assert!(matches!(price_file(&path), Err(Failure::Misuse(_))));
    }

    #[test]
    fn a_comparison_is_told_as_that() {
        let dir = tempfile::tempdir().unwrap();
        refuse_comparison(dir.path()).unwrap();
        trial::save(dir.path(), &Trial::default()).unwrap();
        let Err(Failure::Misuse(error)) = refuse_comparison(dir.path()) else { panic!("it is one") };
        assert!(error.to_string().contains("is a comparison"), "{error}");
    }
}
