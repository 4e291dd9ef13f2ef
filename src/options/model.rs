//! How the model works: how hard it thinks, and how much of that is shown.

use serde::{Deserialize, Serialize};

use super::word::words;
use crate::error::{Error, Result};

words! {
    /// How hard the model works on an answer.
    ///
    /// CLI 2.1.328 was seen to warn of a word that it does not know, and to go on with its default.
    ///
    /// ```
    /// use greenroom::Effort;
    ///
    /// assert_eq!(Effort::from("xhigh"), Effort::Xhigh);
    /// assert_eq!(Effort::Max.as_str(), "max");
    /// ```
    pub enum Effort {
        /// The least thinking, the fastest answer.
        Low = "low",
        /// Between the two.
        Medium = "medium",
        /// Deep reasoning.
        High = "high",
        /// Deeper than high, for models that know it.
        Xhigh = "xhigh",
        /// As much as the model can.
        Max = "max",
    }
}

words! {
    /// How much of the model's thinking is told.
    ///
    /// ```
    /// assert_eq!(greenroom::options::ThinkingDisplay::Summarized.as_str(), "summarized");
    /// ```
    pub enum ThinkingDisplay {
        /// A summary of it.
        Summarized = "summarized",
        /// Nothing of it.
        Omitted = "omitted",
        /// One short title for each stretch. Not for every model, nor every provider.
        Highlights = "highlights",
    }
}

/// Whether and how much the model thinks before it answers. What it comes to depends on the model: one that thinks
/// adaptively by nature does not stop because of [`Thinking::Disabled`].
///
/// ```
/// use greenroom::Thinking;
///
/// let budget: Thinking = serde_json::from_str(r#"{ "type": "enabled", "budget_tokens": 8000 }"#)?;
/// assert_eq!(budget, Thinking::budget(8000));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Thinking {
    /// As the model sees fit (`--thinking=adaptive`).
    Adaptive {
        /// How much of it is told (`--thinking-display`). Default: the CLI's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        display: Option<ThinkingDisplay>,
    },
    /// With a budget, for models that take one (`--max-thinking-tokens`); without one, as adaptive.
    Enabled {
        /// The most tokens that it may think. At least 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        budget_tokens: Option<u32>,
        /// How much of it is told (`--thinking-display`). Default: the CLI's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        display: Option<ThinkingDisplay>,
    },
    /// Not at all (`--thinking=disabled`).
    Disabled,
}

impl Thinking {
    /// As the model sees fit.
    pub fn adaptive() -> Self {
        Self::Adaptive { display: None }
    }

    /// With a budget in tokens.
    pub fn budget(tokens: u32) -> Self {
        Self::Enabled { budget_tokens: Some(tokens), display: None }
    }

    /// How much of it is told.
    pub fn display(&self) -> Option<&ThinkingDisplay> {
        match self {
            Thinking::Adaptive { display } | Thinking::Enabled { display, .. } => display.as_ref(),
            Thinking::Disabled => None,
        }
    }

    pub(super) fn validate(&self) -> Result<()> {
        match self {
            Thinking::Enabled { budget_tokens: Some(0), .. } => {
                Err(Error::invalid_option("option `thinking` has a budget of 0 tokens")
                    .with_help("use `disabled`, or a budget of at least 1"))
            }
            _ => Ok(()),
        }
    }
}
