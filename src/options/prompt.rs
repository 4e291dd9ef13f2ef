//! The system prompt.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The system prompt of a session. All but a file travels in `initialize`, never as an argument.
///
/// ```
/// use greenroom::SystemPrompt;
///
/// let prompt = SystemPrompt::Append("Answer in one line.".into());
/// // What is said before the boundary is the same in many sessions, and is cached for all of them.
/// let cached = SystemPrompt::Blocks(vec![
///     "You are a release bot.".into(),
///     SystemPrompt::DYNAMIC_BOUNDARY.into(),
///     "This is release 7.".into(),
/// ]);
/// # let _ = (prompt, cached);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SystemPrompt {
    /// No system prompt.
    #[default]
    Empty,
    /// This text instead of any other.
    Text(String),
    /// These texts instead of any other, with [`DYNAMIC_BOUNDARY`](SystemPrompt::DYNAMIC_BOUNDARY) at most once between
    /// them: what comes before it may be cached across sessions, what comes after it not.
    Blocks(Vec<String>),
    /// Claude Code's own.
    ClaudeCode,
    /// Claude Code's own, with this text after it.
    Append(String),
    /// What is in this file, instead of any other (`--system-prompt-file`).
    File(PathBuf),
}

impl SystemPrompt {
    /// The block that divides [`Blocks`](SystemPrompt::Blocks). It is not shown to the model.
    pub const DYNAMIC_BOUNDARY: &'static str = "__SYSTEM_PROMPT_DYNAMIC_BOUNDARY__";
}
