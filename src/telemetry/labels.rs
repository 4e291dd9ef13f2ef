//! Values of a label, bounded in number.

use std::collections::BTreeSet;
use std::sync::Mutex;

use crate::lock::lock;

/// The value that stands for all further ones.
pub const OTHER: &str = "other";

/// Bounds the values of a label: a backend of metrics keeps a time series for each of them.
///
/// ```
/// use greenroom::telemetry::LabelValues;
///
/// let tenants = LabelValues::new(2);
/// let labels = ["acme", "initech", "acme", "hooli"].map(|tenant| tenants.bounded(tenant));
/// assert_eq!(labels, ["acme", "initech", "acme", "other"]);
/// ```
#[derive(Debug)]
pub struct LabelValues {
    most: usize,
    known: Mutex<BTreeSet<String>>,
}

impl LabelValues {
    /// A label with at most this number of values, and `other`.
    pub const fn new(most: usize) -> Self {
        Self { most, known: Mutex::new(BTreeSet::new()) }
    }

    /// The value itself, or `other` if there are enough values.
    pub fn bounded(&self, value: &str) -> String {
        let mut known = lock(&self.known);
        if known.contains(value) {
            return value.to_owned();
        }
        if known.len() >= self.most {
            return OTHER.to_owned();
        }
        known.insert(value.to_owned());
        value.to_owned()
    }
}
