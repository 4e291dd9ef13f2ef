//! Tokens and cost of the model's answers, in the shapes of the CLI.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Tokens and cost of one answer of the model, for [`ModelTurn::usage`](crate::ModelTurn::usage).
///
/// ```
/// use greenroom_testkit::{ModelTurn, Usage};
///
/// let turn = ModelTurn::new().text("Done.").usage(Usage { cost_usd: 0.25, output_tokens: 7, ..Usage::default() });
/// assert_eq!(turn.usage.map(|usage| usage.input_tokens), Some(0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Usage {
    /// The CLI's estimate, in US dollars.
    pub cost_usd: f64,
    /// Input tokens that neither came from the prompt cache nor were put into it.
    pub input_tokens: u64,
    /// Output tokens, thinking included.
    pub output_tokens: u64,
    /// Input tokens that came from the prompt cache.
    pub cache_read_input_tokens: u64,
    /// Input tokens that were put into the prompt cache.
    pub cache_creation_input_tokens: u64,
}

impl Usage {
    /// No tokens, no cost.
    pub(crate) const NOTHING: Self = Self { input_tokens: 0, output_tokens: 0, ..Self::UNSAID };

    /// The usage of an answer whose script says nothing of it.
    pub(super) const UNSAID: Self = Self {
        cost_usd: 0.0,
        input_tokens: 1,
        output_tokens: 1,
        cache_read_input_tokens: 0,
        cache_creation_input_tokens: 0,
    };

    /// The tokens, as the Messages API writes them.
    pub(crate) fn tokens(&self) -> Value {
        json!({
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cache_read_input_tokens": self.cache_read_input_tokens,
            "cache_creation_input_tokens": self.cache_creation_input_tokens,
        })
    }

    /// By model, as the CLI writes it.
    pub(super) fn by_model(&self) -> Value {
        json!({ "scripted": {
            "inputTokens": self.input_tokens,
            "outputTokens": self.output_tokens,
            "cacheReadInputTokens": self.cache_read_input_tokens,
            "cacheCreationInputTokens": self.cache_creation_input_tokens,
            "webSearchRequests": 0,
            "costUSD": self.cost_usd,
            "contextWindow": 200_000,
            "maxOutputTokens": 32_000,
        } })
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.cost_usd += other.cost_usd;
        self.input_tokens += other.input_tokens;
        self.output_tokens += other.output_tokens;
        self.cache_read_input_tokens += other.cache_read_input_tokens;
        self.cache_creation_input_tokens += other.cache_creation_input_tokens;
    }
}
