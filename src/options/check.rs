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

/// The rule for names of tools and of their servers: MCP's for tools (2025-11-25, "Tool Names").
pub(crate) const NAME_RULE: &str =
    "a name is 1 to 128 characters of A-Z a-z 0-9 _ . - (the rule of MCP for names of tools)";

/// Whether a name keeps [`NAME_RULE`].
pub(crate) fn keeps_rule(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    !name.is_empty() && name.len() <= 128 && name.chars().all(allowed)
}

/// The nearest name that keeps [`NAME_RULE`], as advice.
pub(crate) fn name_like(name: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    let like: String = name.trim().chars().take(128).map(|c| if allowed(c) { c } else { '_' }).collect();
    if like.is_empty() { "give it a name".into() } else { format!("call it '{like}', for example") }
}

/// Refuses the name of an MCP server with which the names of its tools would break [`NAME_RULE`].
pub(crate) fn check_server_name(name: &str) -> Result<()> {
    if keeps_rule(name) {
        return Ok(());
    }
    let text =
        format!("the MCP server '{name}': {NAME_RULE}, and the model sees a tool as `mcp__SERVER__TOOL`");
    Err(Error::invalid_option(text).with_help(name_like(name)))
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
