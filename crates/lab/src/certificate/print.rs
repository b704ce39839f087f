//! A certificate on paper: as a page that a browser prints, and as text.

use super::results::{Application, Measured};
use super::{Certificate, Price, PriceLine, Signed};
use std::fmt::Write;

const STYLE: &str = include_str!("../report/page.css");
const OWN_STYLE: &str = include_str!("page.css");

/// What is not there.
const NONE: &str = "–";

/// Parts of both forms: titles, and rows of names and values.
fn head(certificate: &Certificate) -> Vec<(&'static str, &str)> {
    vec![
        ("identifier", &certificate.identifier),
        ("sponsor", &certificate.sponsor),
        ("auditor", &certificate.auditor),
        ("tested", &certificate.tested),
        ("available", &certificate.available),
        ("certified", &certificate.certified),
        ("profile", &certificate.profile),
        ("verdict", &certificate.verdict),
    ]
}

const PRICE_HEADS: [&str; 8] =
    ["Item", "Number", "Quantity>", "Unit>", "Discount>", "Total>", "Source, date", "Maintenance"];
const RESULT_HEADS: [&str; 9] =
    ["Application", "I/Os>", "IOPS>", "Mean>", "Reads>", "Writes>", "p99>", "Max>", "≤20 ms>"];

fn price_row(line: &PriceLine) -> [String; 8] {
    [
        line.item.clone(),
        line.number.clone(),
        line.quantity.to_string(),
        line.unit.clone(),
        format!("{}%", line.discount),
        line.total.clone(),
        format!("{}, {}", line.source, line.date),
        line.maintenance.clone(),
    ]
}

fn result_row(application: &Application) -> [String; 9] {
    let or_none = |value: &Option<String>| value.clone().unwrap_or_else(|| NONE.into());
    [
        application.name.clone(),
        application.ios.to_string(),
        application.iops.clone(),
        application.mean.clone(),
        or_none(&application.read_mean),
        or_none(&application.write_mean),
        or_none(&application.p99),
        application.max.clone(),
        format!("{}%", application.within_20_ms),
    ]
}

fn result_told(result: &Measured) -> String {
    format!(
        "{}: {} IOPS, {} MB/s (10^6 bytes) over {} s, trust {}; {}",
        result.point, result.iops, result.mb_per_second, result.seconds, result.grade, result.load
    )
}

fn sums(price: &Price) -> String {
    format!("total {} {}, by the lists {} {}", price.total, price.currency, price.list, price.currency)
}

const RESPONSE: &str =
    "Times are milliseconds of the response time, from the moment an I/O was meant to be issued.";

/// Without its signature.
pub(super) fn text(certificate: &Certificate) -> String {
    let mut text = String::from("CERTIFICATE OF A STORAGE MEASUREMENT\n\n");
    for stamp in &certificate.stamps {
        let line = "#".repeat(stamp.chars().count() + 8);
        add(&mut text, format_args!("{line}\n##  {stamp}  ##\n{line}\n\n"));
    }
    facts(&mut text, &head(certificate));
    certificate.requirements.iter().for_each(|one| add(&mut text, format_args!("  {one}\n")));
    text.push_str("\nConfiguration\n");
    let configuration: Vec<(&str, &str)> =
        certificate.configuration.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    facts(&mut text, &configuration);
    if let Some(price) = &certificate.price {
        add(&mut text, format_args!("\nPrice, in {} at {}\n", price.currency, price.date));
        table(&mut text, &PRICE_HEADS, &price.lines.iter().map(price_row).collect::<Vec<_>>());
        add(&mut text, format_args!("{}\n", sums(price)));
        price.per.iter().for_each(|per| add(&mut text, format_args!("{per}\n")));
        if !price.terms.is_empty() {
            add(&mut text, format_args!("terms: {}\n", price.terms));
        }
    }
    add(&mut text, format_args!("\nResults. {RESPONSE}\n"));
    for result in &certificate.results {
        add(&mut text, format_args!("\n{}\n", result_told(result)));
        result.against.iter().for_each(|why| add(&mut text, format_args!("  against it: {why}\n")));
        table(&mut text, &RESULT_HEADS, &result.applications.iter().map(result_row).collect::<Vec<_>>());
    }
    add(&mut text, format_args!("\nraw data   BLAKE3 {}\n", certificate.bundle));
    add(&mut text, format_args!("the same again   {}\n", certificate.reproduce));
    text
}

pub(super) fn text_signature(signed: &Signed) -> String {
    let what = "Ed25519, over the hash of the raw data and all that is printed above";
    format!("\nsigned ({what})\n  by   {}\n  with {}\n", signed.public_key, signed.signature)
}

/// Without its signature.
pub(super) fn html(certificate: &Certificate) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, \
         initial-scale=1\">\n<title>Certificate {}</title>\n<style>{STYLE}{OWN_STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>Certificate of a storage measurement</h1>\n",
        escaped(&certificate.identifier)
    );
    let p = |text: &str| format!("<p>{}</p>\n", escaped(text));
    for stamp in &certificate.stamps {
        add(&mut page, format_args!("<p class=\"stamp\">{}</p>\n", escaped(stamp)));
    }
    html_facts(&mut page, head(certificate).into_iter());
    certificate.requirements.iter().for_each(|one| page.push_str(&p(one)));
    page.push_str("<h2>Configuration</h2>\n");
    html_facts(
        &mut page,
        certificate.configuration.iter().map(|(name, value)| (name.as_str(), value.as_str())),
    );
    if let Some(price) = &certificate.price {
        add(
            &mut page,
            format_args!("<h2>Price, in {} at {}</h2>\n", escaped(&price.currency), escaped(&price.date)),
        );
        html_table(&mut page, &PRICE_HEADS, &price.lines.iter().map(price_row).collect::<Vec<_>>());
        add(&mut page, format_args!("<p><strong>{}</strong></p>\n", escaped(&sums(price))));
        price.per.iter().for_each(|per| page.push_str(&p(per)));
        if !price.terms.is_empty() {
            page.push_str(&p(&format!("Terms: {}", price.terms)));
        }
    }
    add(&mut page, format_args!("<h2>Results</h2>\n<p class=\"soft\">{}</p>\n", escaped(RESPONSE)));
    for result in &certificate.results {
        add(&mut page, format_args!("<h3>{}</h3>\n", escaped(&result_told(result))));
        result.against.iter().for_each(|why| page.push_str(&p(&format!("Against it: {why}"))));
        html_table(&mut page, &RESULT_HEADS, &result.applications.iter().map(result_row).collect::<Vec<_>>());
    }
    page.push_str("<h2>Raw data</h2>\n");
    let raw = [("BLAKE3", certificate.bundle.as_str()), ("the same again", certificate.reproduce.as_str())];
    html_facts(&mut page, raw.into_iter());
    page
}

pub(super) fn html_signature(signed: &Signed) -> String {
    let mut page = String::from("<h2>Signature</h2>\n");
    page.push_str("<p>Ed25519, over the hash of the raw data and all that is printed above.</p>\n");
    html_facts(
        &mut page,
        [("by", signed.public_key.as_str()), ("with", signed.signature.as_str())].into_iter(),
    );
    page + "</main>\n</body>\n</html>\n"
}

fn add(text: &mut String, words: std::fmt::Arguments<'_>) {
    text.write_fmt(words).expect("a string takes all");
}

fn facts(text: &mut String, rows: &[(&str, &str)]) {
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    rows.iter().for_each(|(name, value)| add(text, format_args!("{name:<width$}  {value}\n")));
}

/// Heads that end in `>` are of numbers.
fn table<const N: usize>(text: &mut String, heads: &[&str; N], rows: &[[String; N]]) {
    let head = heads.map(|head| head.trim_end_matches('>').to_owned());
    let all: Vec<&[String; N]> = [&head].into_iter().chain(rows).collect();
    let widths: Vec<usize> =
        (0..N).map(|column| all.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)).collect();
    for row in all {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            match heads[column].ends_with('>') {
                true => add(&mut line, format_args!("{cell:>width$}  ")),
                false => add(&mut line, format_args!("{cell:<width$}  ")),
            }
        }
        add(text, format_args!("{}\n", line.trim_end()));
    }
}

fn html_facts<'a>(page: &mut String, rows: impl Iterator<Item = (&'a str, &'a str)>) {
    page.push_str("<table class=\"facts\">\n");
    for (name, value) in rows {
        add(page, format_args!("<tr><th>{}</th><td>{}</td></tr>\n", escaped(name), escaped(value)));
    }
    page.push_str("</table>\n");
}

fn html_table<const N: usize>(page: &mut String, heads: &[&str; N], rows: &[[String; N]]) {
    let class = |column: usize| if heads[column].ends_with('>') { " class=\"number\"" } else { "" };
    page.push_str("<div class=\"wide\"><table>\n<tr>");
    for (column, head) in heads.iter().enumerate() {
        add(page, format_args!("<th{}>{}</th>", class(column), escaped(head.trim_end_matches('>'))));
    }
    page.push_str("</tr>\n");
    for row in rows {
        page.push_str("<tr>");
        row.iter().enumerate().for_each(|(column, cell)| {
            add(page, format_args!("<td{}>{}</td>", class(column), escaped(cell)));
        });
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div>\n");
}

/// So that no word of a certificate is a tag.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
