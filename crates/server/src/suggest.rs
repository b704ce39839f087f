//! The name that was meant.

/// The candidate nearest to what was written, when it is near enough to have been meant.
pub fn nearest<'a>(written: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // One slip in three letters, and no more than three: beyond that a suggestion only confuses.
    let slips_max = (written.chars().count() / 3).clamp(1, 3);
    candidates
        .into_iter()
        .map(|candidate| (slips(written, candidate), candidate))
        .filter(|(slips, candidate)| *slips <= slips_max && *candidate != written)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Letters to insert, drop, replace or swap with their neighbour to come from `a` to `b`, without regard to case.
fn slips(a: &str, b: &str) -> usize {
    let (a, b): (Vec<u8>, Vec<u8>) = (a.to_ascii_lowercase().into(), b.to_ascii_lowercase().into());
    let width = b.len() + 1;
    let mut table = vec![0usize; (a.len() + 1) * width];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            table[i * width + j] = if i == 0 || j == 0 {
                i + j
            } else {
                let same = usize::from(a[i - 1] != b[j - 1]);
                let mut least = (table[(i - 1) * width + j - 1] + same)
                    .min(table[(i - 1) * width + j] + 1)
                    .min(table[i * width + j - 1] + 1);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    least = least.min(table[(i - 2) * width + j - 2] + 1);
                }
                least
            };
        }
    }
    table[a.len() * width + b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_forgiven_and_a_stranger_is_not() {
        let disks = ["web", "web-data", "database"];
        assert_eq!(nearest("wbe", disks), Some("web"));
        assert_eq!(nearest("WEB", disks), Some("web"));
        assert_eq!(nearest("databsae", disks), Some("database"));
        assert_eq!(nearest("web-dat", disks), Some("web-data"));
        assert_eq!(nearest("mail", disks), None);
        assert_eq!(nearest("", disks), None);
    }
}
