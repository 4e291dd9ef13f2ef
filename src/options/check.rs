//! Helpers for validating options.

use crate::error::{Error, Result};

/// The error for an option, with what to do about it.
pub(super) fn refuse(text: impl Into<String>, help: &str) -> Result<()> {
    Err(Error::invalid_option(text).with_help(help))
}

/// Refuses the first row whose condition holds.
pub(super) fn refuse_first<const N: usize>(rows: [(bool, &str, &str); N]) -> Result<()> {
    match rows.into_iter().find(|(bad, ..)| *bad) {
        Some((_, text, help)) => refuse(text, help),
        None => Ok(()),
    }
}

/// Validates the key of a map.
pub(super) fn check_name(option: &str, name: &str) -> Result<()> {
    if name.trim().is_empty() {
        return refuse(
            format!("option `{option}` has an entry without a name"),
            "name the entry, or remove it",
        );
    }
    Ok(())
}
