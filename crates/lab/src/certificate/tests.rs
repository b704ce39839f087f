use super::*;
use crate::bundle::Run;
use crate::measure::{Point, PointLoad};
use crate::record::StreamRecord;
use crate::verdict;

const PROFILE: &str = r#"
title = "t"
about = "a"
[[volume]]
name = "v"
size = "1M"
quick = "1M"
[[stream]]
name = "mail"
volume = "v"
read = 50
random = 100
sizes = { "4K" = 100 }
outstanding = 1
"#;

const PRICE: &str = r#"
currency = "USD"
date = "2016-03-31"
terms = "without <taxes>"
total = "225000.00"
vms = 480
capacity = [{ kind = "usable", tb = "7.2" }]
[[line]]
item = "array, 24 × 480 GB"
number = "T5060"
quantity = 1
unit = "250000"
discount = "20%"
source = "list of the maker"
[[line]]
item = "support"
quantity = 36
unit = "694.444"
discount = "0%"
source = "list of the maker"
date = "2016-02-29"
maintenance = "36 months, next day"
total = "24999.98"
[[line]]
item = "rounding"
quantity = 2
unit = "0.01"
source = "agreed"
"#;

/// A point of 2,000 reads of 4 ms and 1,000 writes of 30 ms in ten seconds, steady, with nothing against it.
fn bundle() -> Bundle {
    let mut record = StreamRecord::default();
    for (side, ios, nanos) in [(&mut record.read, 2000, 4_000_000), (&mut record.write, 1000, 30_000_000)] {
        (side.ios, side.bytes) = (ios, ios * 4096);
        (0..ios).for_each(|_| {
            side.response.record(nanos);
            side.service.record(nanos);
        });
    }
    record.sizes = [(4096, 3000)].into();
    let point = Point {
        step: "hold".into(),
        label: String::new(),
        loads: vec![PointLoad {
            stream: 0,
            name: "mail".into(),
            outstanding: Some(1),
            rate: None,
            arrivals: None,
        }],
        footprint: 1.0,
        seconds: 10.0,
        streams: vec![record],
        series: Vec::new(),
        before: Vec::new(),
        verification: Default::default(),
        busy: 0.1,
        effort: None,
        machine_cpu: Default::default(),
        database: None,
        ceiling: 1e6,
        clocks_apart: 0.0,
        reduced: Vec::new(),
        reconciled: None,
        uncounted: None,
        unsettled: crate::measure::Unsettled::default(),
        written: None,
        cut_short: false,
        workers: Vec::new(),
        outage: None,
        task: None,
        probe: None,
    };
    let run = Run {
        format: Run::FORMAT,
        version: "0".into(),
        profile: "p".into(),
        locked: true,
        quick: false,
        targets: vec!["file:/srv/<x>".into()],
        seed: 1,
        threads: 1,
        verified: true,
        bytes: 1 << 20,
        require: String::new(),
        began: 0,
        reproduce: "stonefold lab run p".into(),
        machine: [("memory".to_owned(), "8 GiB".to_owned())].into(),
        cut_short: false,
        ..Run::default()
    };
    Bundle { run, profile: PROFILE.into(), points: vec![point], hash: "ab".repeat(32) }
}

/// As if every gate had passed.
fn summary(bundle: &Bundle) -> Summary {
    let mut summary = verdict::summarise(bundle).unwrap();
    summary.verdict = Verdict::Pass;
    summary.points[0].gates.clear();
    summary
}

fn statement() -> Statement {
    Statement {
        sponsor: "Somebody & Sons".into(),
        auditor: "Another".into(),
        tested: "2026-11-20".into(),
        available: "2026-12-01".into(),
        certified: "2026-11-22".into(),
        identifier: None,
        price: Some(PRICE.into()),
        stamped: false,
    }
}

fn certificate() -> Certificate {
    let bundle = bundle();
    Certificate::of(&bundle, &summary(&bundle), &statement()).unwrap()
}

#[test]
fn what_it_costs_is_added_up_exactly() {
    let price = certificate().price.unwrap();
    assert_eq!((price.total.as_str(), price.list.as_str()), ("225000.00", "275000.00"));
    assert_eq!(price.lines[0].total, "200000.00");
    assert_eq!(
        price.per,
        [
            "468.75 USD per VM, of 480 (told, not measured), at the prices of 2016-03-31",
            "750.0000 USD per IOPS, of 300.00 in 'hold', at the prices of 2016-03-31",
            "31250.00 USD per TB (10^12 bytes) usable, of 7.2, at the prices of 2016-03-31",
        ]
    );
}

#[test]
fn a_price_file_that_does_not_add_up_is_refused() {
    let bundle = bundle();
    for (from, to, says) in [
        (
            "total = \"24999.98\"",
            "total = \"25000.00\"",
            "line 'support': its total is 25000.00, and its figures give 24999.98",
        ),
        ("total = \"225000.00\"", "total = \"1\"", "figures give 225000.00"),
        ("discount = \"20%\"", "discount = \"120%\"", "discount of 120%"),
        ("date = \"2016-02-29\"", "date = \"2015-02-29\"", "'2015-02-29' is no day"),
        ("currency = \"USD\"", "currency = \"dollars\"", "currency 'dollars'"),
        ("unit = \"0.01\"", "unit = \"0,01\"", "'0,01' is no decimal"),
        ("quantity = 36", "quantity = 36\nprice = 3", "price"),
    ] {
        assert!(PRICE.contains(from), "{from}");
        let statement = Statement { price: Some(PRICE.replacen(from, to, 1)), ..statement() };
        let error = Certificate::of(&bundle, &summary(&bundle), &statement).unwrap_err().to_string();
        assert!(error.contains(says), "{from} → {to}: {error}");
    }
}

#[test]
fn each_application_has_its_times() {
    let certificate = certificate();
    let result = &certificate.results[0];
    assert_eq!((result.iops.as_str(), result.applications.len()), ("300.00", 1));
    let mail = &result.applications[0];
    assert_eq!((mail.ios, mail.within_20_ms.as_str()), (3000, "66.67"));
    let millis = |text: &Option<String>| text.as_ref().unwrap().parse::<f64>().unwrap();
    assert!((millis(&mail.read_mean) - 4.0).abs() < 0.01 && (millis(&mail.write_mean) - 30.0).abs() < 0.03);
    assert_eq!(certificate.identifier, "SF-20261122-abababababab");
}

#[test]
fn what_is_no_result_is_refused_or_stamped() {
    for (change, stamp) in [
        ((|run: &mut Run| run.quick = true) as fn(&mut Run), "QUICK"),
        (|run| run.locked = false, "MODIFIED"),
        (|run| run.cut_short = true, "ENDED"),
    ] {
        let mut bundle = bundle();
        change(&mut bundle.run);
        let refused = Certificate::of(&bundle, &summary(&bundle), &statement()).unwrap_err();
        assert!(
            refused.to_string().contains(stamp) && refused.to_string().contains("--stamped"),
            "{refused}"
        );
        let stamped = Statement { stamped: true, ..statement() };
        let certificate = Certificate::of(&bundle, &summary(&bundle), &stamped).unwrap();
        assert!(print::html(&certificate).contains(&format!("<p class=\"stamp\">{stamp}")));
        assert!(print::text(&certificate).contains(&format!("##  {stamp}")));
    }
    let bundle = bundle();
    let invalid = Summary { verdict: Verdict::Invalid, ..summary(&bundle) };
    assert!(Certificate::of(&bundle, &invalid, &statement()).unwrap_err().to_string().contains("INVALID"));
}

/// Every letter of every file counts: one changed anywhere is found.
#[test]
fn the_signature_covers_all_that_is_printed() {
    let dir = tempfile::tempdir().unwrap();
    let key = Key::make(&dir.path().join("key"), [5; 32]).unwrap();
    let files = certificate().sign(&key).unwrap().files().unwrap();
    let write = |files: &[(&str, String); 3]| {
        files.iter().for_each(|(name, content)| std::fs::write(dir.path().join(name), content).unwrap());
    };
    let path = dir.path().join("certificate.json");
    write(&files);
    let signed = Signed::verify(&path).unwrap();
    assert_eq!((signed.public_key, signed.certificate), (key.public(), certificate()));
    for number in 0..3 {
        let mut changed = files.clone();
        changed[number].1 = changed[number].1.replacen("Somebody", "Nobody", 1);
        assert_ne!(changed[number].1, files[number].1);
        write(&changed);
        assert_eq!(Signed::verify(&path).unwrap_err().kind(), Kind::Corrupt, "{}", files[number].0);
    }
    let mut more = files.clone();
    more[0].1 = more[0].1.replacen("\"format\": 1,", "\"format\": 1, \"also\": 1,", 1);
    write(&more);
    assert_eq!(Signed::verify(&path).unwrap_err().kind(), Kind::Corrupt, "a field that nobody signed");
    let other = Key::make(&dir.path().join("other"), [6; 32]).unwrap();
    let mut claimed = files.clone();
    claimed[0].1 = claimed[0].1.replace(&key.public(), &other.public());
    write(&claimed);
    assert_eq!(Signed::verify(&path).unwrap_err().kind(), Kind::Corrupt, "another's name");
}

#[test]
fn no_word_is_a_tag() {
    let page = print::html(&certificate());
    assert!(
        page.contains("Somebody &amp; Sons")
            && page.contains("file:/srv/&lt;x&gt;")
            && page.contains("&lt;taxes&gt;")
    );
    assert!(!page.contains("<x>") && !page.contains("<taxes>") && !page.contains("<script"));
}

#[test]
fn what_is_certified_is_the_storage_that_was_declared() {
    let mut bundle = bundle();
    bundle.run.system = Some(System::parse("array", "hardware = \"24 SSDs\"\ncores = 40\n").unwrap());
    let told = configuration(&bundle);
    let of = |name: &str| told.get(name).map(String::as_str);
    assert_eq!((of("storage: hardware"), of("storage: cores")), (Some("24 SSDs"), Some("40")));
}
