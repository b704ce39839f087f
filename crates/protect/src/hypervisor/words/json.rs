//! Options that are written as JSON, in the form that QEMU reads, too: `kind,name=value,outer.inner=value`.

use serde_json::{Map, Value};

/// Options that may be written so, and what of each stands first in the other form.
const FORMS: &[(&str, &str)] = &[
    ("audiodev", "driver"),
    ("blockdev", "driver"),
    ("device", "driver"),
    ("netdev", "type"),
    ("object", "qom-type"),
];

/// The value in the other form; nothing where it is in that already, or cannot be.
pub(super) fn flat(option: &str, value: &str) -> Option<String> {
    let (_, kind) = FORMS.iter().find(|(name, _)| *name == option)?;
    let mut told: Map<String, Value> = serde_json::from_str(value).ok()?;
    let first = told.remove(*kind)?.as_str()?.to_owned();
    let mut parts = vec![first];
    for (name, value) in &told {
        put(&mut parts, option, name, value)?;
    }
    Some(parts.join(","))
}

fn put(parts: &mut Vec<String>, option: &str, name: &str, value: &Value) -> Option<()> {
    // A device has no more than one level, and a network lists what it forwards.
    let has_levels = ["blockdev", "object"].contains(&option);
    match value {
        Value::String(text) => parts.push(format!("{name}={}", text.replace(',', ",,"))),
        Value::Bool(is) => parts.push(format!("{name}={}", if *is { "on" } else { "off" })),
        Value::Number(number) => parts.push(format!("{name}={number}")),
        Value::Object(inner) if has_levels => {
            for (inside, value) in inner {
                put(parts, option, &format!("{name}.{inside}"), value)?;
            }
        }
        Value::Array(list) if has_levels => {
            for (at, value) in list.iter().enumerate() {
                put(parts, option, &format!("{name}.{at}"), value)?;
            }
        }
        Value::Array(list) if option == "netdev" => {
            for value in list {
                put(parts, option, name, value.get("str")?)?;
            }
        }
        Value::Null | Value::Array(_) | Value::Object(_) => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_json_is_written_as_the_rest() {
        for (option, json, wanted) in [
            (
                "device",
                r#"{"driver":"ide-hd","drive":"a","bootindex":1,"share-rw":true}"#,
                Some("ide-hd,bootindex=1,drive=a,share-rw=on"),
            ),
            (
                "blockdev",
                r#"{"driver":"qcow2","node-name":"r","file":{"driver":"file","filename":"/a,b"}}"#,
                Some("qcow2,file.driver=file,file.filename=/a,,b,node-name=r"),
            ),
            (
                "netdev",
                r#"{"type":"user","id":"n","hostfwd":[{"str":"tcp::1-:2"},{"str":"tcp::3-:4"}]}"#,
                Some("user,hostfwd=tcp::1-:2,hostfwd=tcp::3-:4,id=n"),
            ),
            ("device", r#"{"driver":"x","list":[1]}"#, None),
            ("device", "ide-hd,drive=a", None),
            ("smp", r#"{"driver":"x"}"#, None),
            ("device", "{", None),
        ] {
            assert_eq!(flat(option, json).as_deref(), wanted, "{json}");
        }
    }
}
