//! Labels of sessions and prompts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Labels of a session or of a prompt: small texts by which your service finds it again, such as `ticket` = `881`. They mean nothing to
/// the fleet, and only equality is indexed.
///
/// At most [`MOST`](Self::MOST) labels; a key has 1 to [`KEY_BYTES`](Self::KEY_BYTES) bytes, and a value up to
/// [`VALUE_BYTES`](Self::VALUE_BYTES). Other labels are refused.
///
/// ```
/// use greenroom_fleet::Labels;
///
/// let labels = Labels::new().with("plan", "pro").with("region", "eu");
/// assert_eq!(labels.get("plan"), Some("pro"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Labels(BTreeMap<String, String>);

impl Labels {
    /// The number of labels that a session or a prompt can have.
    pub const MOST: usize = 16;
    /// The length of the longest key, in bytes.
    pub const KEY_BYTES: usize = 64;
    /// The length of the longest value, in bytes.
    pub const VALUE_BYTES: usize = 256;

    /// No labels.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a label. A later value of a key replaces an earlier one.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.insert(key.into(), value.into());
        self
    }

    /// The value of a label.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// True without a label.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The keys and values, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// The reason why these labels cannot be kept.
    pub(crate) fn misfit(&self) -> Option<String> {
        if self.0.len() > Self::MOST {
            return Some(format!("there are {} labels, and {} may be set", self.0.len(), Self::MOST));
        }
        let (key, value) = self.0.iter().find(|(key, value)| {
            !(1..=Self::KEY_BYTES).contains(&key.len()) || value.len() > Self::VALUE_BYTES
        })?;
        Some(format!(
            "a label has a key of 1 to {} bytes and a value of up to {}, and one has {} and {}: shorten it",
            Self::KEY_BYTES,
            Self::VALUE_BYTES,
            key.len(),
            value.len(),
        ))
    }
}
