//! Comparisons, by the binary: what arms are asked for.

use serde_json::Value;
use std::process::Command;

/// A closed loop finds what each arm can do, and an open one is given a share of it.
const PROFILE: &str = "title = 't'\nabout = 'a'\n[[volume]]\nname = 'v'\nsize = '16M'\nquick = '16M'\n\
    [[stream]]\nname = 's'\nvolume = 'v'\nread = 100\nrandom = 100\nsizes = { '4K' = 100 }\noutstanding = 1\n\
    [[step]]\nname = 'depth'\noutstanding = [1]\n[[step]]\nname = 'latency'\nloads = [20]\n\
    [time]\nprecondition = '0s'\nsample = '1s'\npoint = '1s'\nquick_precondition = '0s'\nquick_sample = '1s'\nquick_point = '1s'\n";

/// Goal: open loops of all arms have one rate, a share of what the arm that does least can do, so that they are compared; the answer says so.
#[test]
fn open_loops_of_all_arms_are_asked_for_the_same() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let profile = dir.path().join("p.toml");
    std::fs::write(&profile, PROFILE).unwrap();
    let target = |name: &str| format!("file:{}/{name}.img", dir.path().display());
    let output = Command::new(env!("CARGO_BIN_EXE_stonefold"))
        .args(["lab", "compare", profile.to_str().unwrap(), "--a", &target("a"), "--b", &target("b")])
        .args(["--pairs", "1", "--quick", "--json", "--out"])
        .arg(dir.path().join("out"))
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {told}"));
    assert!(told.contains("each arm is run once for what it can do"), "{told}");
    let shared = &answer["trial"]["shared"][0];
    let arms: Vec<f64> =
        shared["arms"].as_array().unwrap().iter().map(|rate| rate.as_f64().unwrap()).collect();
    let least = arms.iter().copied().fold(f64::MAX, f64::min);
    assert!(
        arms.len() == 2 && least > 0.0 && arms[shared["least"].as_u64().unwrap() as usize] == least,
        "{shared}"
    );
    assert_eq!(shared["streams"], serde_json::json!(["s"]));
    assert_eq!(answer["findings"]["left_out"], serde_json::json!([]), "{answer}");
    let compared = answer["findings"]["contrasts"].as_array().unwrap();
    assert!(compared.iter().any(|one| one["point"] == "latency, 20% of capacity" && one["figure"] == "mean"));
    let text = Command::new(env!("CARGO_BIN_EXE_stonefold"))
        .args(["lab", "verify"])
        .arg(dir.path().join("out"))
        .output()
        .unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("shares of a capacity: of what '"), "{text}");
}
