//! The rules of an honest number, computed.
//!
//! Each rule is one file here, with the source of its method; what they say is put together in [`gates`]. *Never*: looks
//! at a clock or a target; all of it is a function of what was recorded, so that a report can be computed again from its
//! bundle.

pub mod compare;
pub mod fidelity;
pub mod gates;
pub mod require;
pub mod steady;

/// Arithmetic mean; 0 of none.
pub(crate) fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// The middle one, or what lies midway between the two that are; nothing of none.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

/// Standard deviation of a sample (with n - 1); 0 of fewer than two.
pub(crate) fn deviation(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let mean = mean(values);
    (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (values.len() - 1) as f64).sqrt()
}
