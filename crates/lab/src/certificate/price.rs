//! What a configuration costs: a price file, added up.

use super::check_date;
use super::decimal::Decimal;
use serde::{Deserialize, Serialize};
use stonefold_types::{Error, Kind, Result};

/// Places of an amount of money.
const CENTS: u32 = 2;
/// Price lines of a certificate at most.
const LINES_MAX: usize = 1000;

/// The file, as people write it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PriceFile {
    currency: String,
    date: String,
    #[serde(default)]
    terms: String,
    total: Option<String>,
    vms: Option<u64>,
    /// The run has shown that many.
    #[serde(skip)]
    are_shown: bool,
    #[serde(default)]
    capacity: Vec<CapacityWords>,
    line: Vec<LineWords>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CapacityWords {
    kind: CapacityKind,
    tb: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CapacityKind {
    Raw,
    Usable,
    Physical,
    Written,
    Logical,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LineWords {
    item: String,
    #[serde(default)]
    number: String,
    quantity: u64,
    unit: String,
    #[serde(default)]
    discount: String,
    source: String,
    date: Option<String>,
    #[serde(default)]
    maintenance: String,
    total: Option<String>,
}

/// What it costs. Amounts are decimal text with two places.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// ISO 4217.
    pub currency: String,
    /// Day of the prices.
    pub date: String,
    /// What holds for all lines: taxes, delivery, what discounts depend on.
    pub terms: String,
    /// Each of what is paid for.
    pub lines: Vec<PriceLine>,
    /// Of all lines, before discounts.
    pub list: String,
    /// Of all lines.
    pub total: String,
    /// `468.75 USD per VM`: each with what it is divided by.
    pub per: Vec<String>,
}

/// One thing that is paid for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceLine {
    /// What.
    pub item: String,
    /// Its number in the list.
    pub number: String,
    /// How many.
    pub quantity: u64,
    /// What one costs by the list.
    pub unit: String,
    /// Percent; `0` without any.
    pub discount: String,
    /// Quantity times unit, without the discount.
    pub total: String,
    /// The list that the price is from.
    pub source: String,
    /// Day of that list.
    pub date: String,
    /// Maintenance that is in it, and for how long.
    pub maintenance: String,
}

impl Price {
    /// Reads a price file and adds it up; `iops` are those that it is divided by, with the point that they are of.
    ///
    /// # Errors
    /// [`Kind::Invalid`] where the file cannot be read, or a total in it is not what its figures give.
    pub(super) fn parse(text: &str, iops: Option<(&str, &str)>) -> Result<Self> {
        PriceFile::read(text)?.add_up(iops).map_err(|e| e.context("the price file"))
    }

    /// The same of a run that has shown how many virtual machines it is the price of.
    ///
    /// # Errors
    /// See [`Price::parse`]; also where the file has another number of them.
    pub(crate) fn of_vms(text: &str, vms: u64) -> Result<Self> {
        let mut file = PriceFile::read(text)?;
        if let Some(told) = file.vms.filter(|told| *told != vms) {
            let what =
                format!("the price file: it is of {told} virtual machines, and the run has shown {vms}");
            return Err(invalid(what).remedy("leave vms out: the run tells it"));
        }
        (file.vms, file.are_shown) = (Some(vms), true);
        file.add_up(None).map_err(|e| e.context("the price file"))
    }

    /// The same of a run that was to show how many, and has shown none.
    ///
    /// # Errors
    /// See [`Price::parse`]; also where the file has a number of them.
    pub(super) fn of_none(text: &str, iops: Option<(&str, &str)>) -> Result<Self> {
        if let Some(told) = PriceFile::read(text)?.vms {
            let what =
                format!("the price file: it is of {told} virtual machines, and the run has shown none");
            return Err(invalid(what).remedy("leave vms out: the run tells it"));
        }
        Price::parse(text, iops)
    }

    /// Reads a price file, adds it up and forgets it: before hours are spent on what it is the price of.
    ///
    /// # Errors
    /// See [`Price::parse`].
    pub fn check(text: &str) -> Result<()> {
        Price::parse(text, None).map(drop)
    }
}

impl PriceFile {
    fn read(text: &str) -> Result<Self> {
        toml::from_str(text)
            .map_err(|e| Error::new(Kind::Invalid, format!("the price file: {}", e.to_string().trim_end())))
    }

    fn add_up(&self, iops: Option<(&str, &str)>) -> Result<Price> {
        check_date(&self.date)?;
        if self.currency.len() != 3 || !self.currency.bytes().all(|byte| byte.is_ascii_uppercase()) {
            return Err(
                invalid(format!("currency '{}' is none", self.currency)).remedy("write its code, as in USD")
            );
        }
        if self.line.is_empty() || self.line.len() > LINES_MAX {
            return Err(invalid(format!("it needs from 1 to {LINES_MAX} lines")));
        }
        let (mut list, mut total) = (Decimal::ZERO, Decimal::ZERO);
        let mut lines = Vec::new();
        for words in &self.line {
            let (of_list, paid, line) =
                words.add_up(&self.date).map_err(|e| e.context(format!("line '{}'", words.item)))?;
            (list, total) = (list.plus(of_list), total.plus(paid));
            lines.push(line);
        }
        check_total(self.total.as_deref(), total)?;
        Ok(Price {
            currency: self.currency.clone(),
            date: self.date.clone(),
            terms: self.terms.clone(),
            lines,
            list: list.rounded(CENTS).to_string(),
            total: total.rounded(CENTS).to_string(),
            per: self.per(total, iops)?,
        })
    }

    /// The total, divided by what there is.
    fn per(&self, total: Decimal, iops: Option<(&str, &str)>) -> Result<Vec<String>> {
        let mut per = Vec::new();
        let mut tell = |by: Decimal, places: u32, of: String| {
            if !by.is_zero() {
                let each = total.per(by, places);
                per.push(format!("{each} {} per {of}, at the prices of {}", self.currency, self.date));
            }
        };
        if let Some(vms) = self.vms {
            let shown = if self.are_shown { "" } else { " (told, not measured)" };
            tell(Decimal::whole(vms), CENTS, format!("VM, of {vms}{shown}"));
        }
        if let Some((point, iops)) = iops {
            tell(iops.parse()?, 4, format!("IOPS, of {iops} in '{point}'"));
        }
        for capacity in &self.capacity {
            let kind = format!("{:?}", capacity.kind).to_lowercase();
            tell(capacity.tb.parse()?, CENTS, format!("TB (10^12 bytes) {kind}, of {}", capacity.tb));
        }
        Ok(per)
    }
}

impl LineWords {
    /// By the list, with the discount, and the line.
    fn add_up(&self, date: &str) -> Result<(Decimal, Decimal, PriceLine)> {
        let date = self.date.as_deref().unwrap_or(date);
        check_date(date)?;
        let unit: Decimal = self.unit.parse()?;
        let written = self.discount.trim_end_matches('%').trim();
        let discount: Decimal = if written.is_empty() { Decimal::ZERO } else { written.parse()? };
        if above_100(discount) {
            return Err(
                invalid(format!("a discount of {discount}% is none")).remedy("write it from 0% to 100%")
            );
        }
        let list = Decimal::whole(self.quantity).times(unit);
        let paid = list.less_percent(discount).rounded(CENTS);
        check_total(self.total.as_deref(), paid)?;
        let line = PriceLine {
            item: self.item.clone(),
            number: self.number.clone(),
            quantity: self.quantity,
            unit: unit.to_string(),
            discount: discount.to_string(),
            total: paid.to_string(),
            source: self.source.clone(),
            date: date.to_owned(),
            maintenance: self.maintenance.clone(),
        };
        Ok((list, paid, line))
    }
}

fn above_100(percent: Decimal) -> bool {
    Decimal::whole(1).less_percent(percent).to_string().starts_with('-')
}

fn check_total(told: Option<&str>, computed: Decimal) -> Result<()> {
    let Some(told) = told else { return Ok(()) };
    match told.parse::<Decimal>()?.same(computed) {
        true => Ok(()),
        false => {
            Err(invalid(format!("its total is {told}, and its figures give {}", computed.rounded(CENTS)))
                .remedy("correct the one or the other"))
        }
    }
}

fn invalid(what: String) -> Error {
    Error::new(Kind::Invalid, what)
}
