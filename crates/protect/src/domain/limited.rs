//! What a domain may take of its host, in its description: libvirt keeps it to that.

use super::{Edits, child, parse};
use crate::hypervisor::Limits;
use stonefold_types::Result;

/// The description with these limits in the place of any that it has.
///
/// # Errors
/// [`stonefold_types::Kind::Invalid`] where it is no description.
pub(crate) fn limited(xml: &str, limits: &Limits) -> Result<String> {
    let document = parse(xml)?;
    let root = document.root_element();
    let mut edits = Edits::new(xml);
    let mut within = |name: &str, settings: &[(&str, &str, u64)]| {
        let one = |(name, unit, value): &(&str, &str, u64)| format!("<{name}{unit}>{value}</{name}>");
        let written: String = settings.iter().map(one).collect();
        match child(root, name) {
            None => edits.insert_into(root, format!("<{name}>{written}</{name}>")),
            Some(node) => {
                for (name, ..) in settings {
                    if let Some(old) = child(node, name) {
                        edits.replace(old.range(), String::new());
                    }
                }
                edits.insert_into(node, written);
            }
        }
    };
    if let Some(most) = limits.memory_bytes {
        within("memtune", &[("hard_limit", " unit='bytes'", most)]);
    }
    if let Some((quota, period)) = limits.quota_us() {
        within("cputune", &[("global_period", "", period), ("global_quota", "", quota)]);
    }
    Ok(edits.apply())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_s_own_limits_give_way_and_the_rest_stays() {
        let limits = Limits { memory_bytes: Some(1 << 30), processors_percent: Some(150) };
        let xml = "<domain><name>w</name><memtune><hard_limit unit='G'>9</hard_limit><soft_limit>1</soft_limit></memtune></domain>";
        let text = limited(xml, &limits).unwrap();
        assert_eq!(
            text,
            "<domain><cputune><global_period>100000</global_period><global_quota>150000</global_quota></cputune><name>w</name>\
             <memtune><hard_limit unit='bytes'>1073741824</hard_limit><soft_limit>1</soft_limit></memtune></domain>"
        );
        assert_eq!(limited(xml, &Limits::default()).unwrap(), xml);
    }
}
