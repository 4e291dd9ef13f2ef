//! Effort and thinking of the model.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::wire::words::words;

words! {
    /// Effort of the model.
    ///
    /// CLI 2.1.328 was seen to warn of an unknown word and to use its default.
    pub enum Effort {
        /// The least thinking, the fastest answer.
        Low = "low",
        /// Between `low` and `high`.
        Medium = "medium",
        /// Deep reasoning.
        High = "high",
        /// More than `high`, for models that support it.
        Xhigh = "xhigh",
        /// As much as the model supports.
        Max = "max",
    }

    /// The part of the model's thinking that messages show.
    pub enum ThinkingDisplay {
        /// A summary.
        Summarized = "summarized",
        /// Nothing.
        Omitted = "omitted",
        /// A short title for each stretch of thinking. Not for every model, nor every provider.
        Highlights = "highlights",
    }
}

/// Whether and how much the model thinks before it answers.
///
/// The effect depends on the model: a model with built-in adaptive thinking still thinks under [`Thinking::Disabled`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Thinking {
    /// The model decides (`--thinking=adaptive`).
    Adaptive {
        /// The part of the thinking that is shown (`--thinking-display`). Default: the CLI's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        display: Option<ThinkingDisplay>,
    },
    /// Thinking with a budget, for models that take one (`--max-thinking-tokens`); without a budget, as `Adaptive`.
    Enabled {
        /// The most tokens of thinking, at least 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        budget_tokens: Option<u32>,
        /// The part of the thinking that is shown (`--thinking-display`). Default: the CLI's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        display: Option<ThinkingDisplay>,
    },
    /// No thinking (`--thinking=disabled`).
    Disabled,
}

impl Thinking {
    /// Thinking with a budget in tokens.
    pub fn budget(tokens: u32) -> Self {
        Self::Enabled { budget_tokens: Some(tokens), display: None }
    }

    /// The part of the thinking that is shown.
    pub fn display(&self) -> Option<&ThinkingDisplay> {
        match self {
            Thinking::Adaptive { display } | Thinking::Enabled { display, .. } => display.as_ref(),
            Thinking::Disabled => None,
        }
    }

    pub(crate) fn validate(&self) -> Result<()> {
        match self {
            Thinking::Enabled { budget_tokens: Some(0), .. } => {
                Err(Error::invalid_option("option `thinking` has a budget of 0 tokens")
                    .with_help("use `disabled`, or a budget of at least 1"))
            }
            _ => Ok(()),
        }
    }
}
