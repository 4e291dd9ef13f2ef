//! Counts of tokens that can be added.

use std::iter::Sum;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use crate::wire::message::{ModelUsage, Usage};

/// Tokens, and the money that they cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct TokenUsage {
    /// Input tokens that neither came from the prompt cache nor were put into it.
    pub input: u64,
    /// Output tokens, thinking included.
    pub output: u64,
    /// Output tokens that were thinking, as far as the CLI tells.
    pub thinking: u64,
    /// Input tokens that came from the prompt cache.
    pub cache_read: u64,
    /// Input tokens that were put into the prompt cache.
    pub cache_creation: u64,
    /// Input tokens that were put into the prompt cache for an hour. They are part of `cache_creation`.
    pub cache_creation_1h: u64,
    /// Searches of the web on the API's side.
    pub web_searches: u64,
    /// Money in US dollars. 0 if it is not known.
    pub cost_usd: f64,
}

impl TokenUsage {
    /// All input tokens, cached or not.
    pub fn all_input(&self) -> u64 {
        self.input.saturating_add(self.cache_read).saturating_add(self.cache_creation)
    }

    fn each(&mut self) -> [&mut u64; 7] {
        [
            &mut self.input,
            &mut self.output,
            &mut self.thinking,
            &mut self.cache_read,
            &mut self.cache_creation,
            &mut self.cache_creation_1h,
            &mut self.web_searches,
        ]
    }

    fn with(mut self, mut other: Self, change: impl Fn(u64, u64) -> u64) -> Self {
        for (mine, other) in self.each().into_iter().zip(other.each()) {
            *mine = change(*mine, *other);
        }
        self
    }

    /// The larger of each count. The money stays.
    pub(super) fn max(self, other: Self) -> Self {
        self.with(other, u64::max)
    }

    /// Usage since these totals; all of it if the totals have started again.
    pub(super) fn since(self, before: Self) -> Self {
        let (mut now, mut then) = (self, before);
        let has_begun_again = self.cost_usd < before.cost_usd
            || now.each().iter().zip(then.each()).any(|(now, then)| **now < *then);
        if has_begun_again {
            return self;
        }
        Self { cost_usd: self.cost_usd - before.cost_usd, ..self.with(before, u64::saturating_sub) }
    }

    pub(super) fn is_nothing(&self) -> bool {
        self == &Self::default()
    }

    /// The price of these tokens in units of an input token, by the ratios of list prices. They differ between models, so this only
    /// splits a known sum.
    pub(super) fn weight(&self) -> f64 {
        let creation = self.cache_creation as f64 * 1.25 + self.cache_creation_1h as f64 * 0.75;
        self.input as f64 + self.output as f64 * 5.0 + self.cache_read as f64 * 0.1 + creation
    }

    /// The money for a unit of [`weight`](Self::weight), if there was any.
    pub(super) fn price(&self) -> Option<f64> {
        (self.cost_usd > 0.0 && self.weight() > 0.0).then(|| self.cost_usd / self.weight())
    }
}

impl AddAssign for TokenUsage {
    fn add_assign(&mut self, more: Self) {
        *self = Self { cost_usd: self.cost_usd + more.cost_usd, ..self.with(more, u64::saturating_add) };
    }
}

impl Sum for TokenUsage {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, more| {
            sum += more;
            sum
        })
    }
}

impl From<&ModelUsage> for TokenUsage {
    fn from(usage: &ModelUsage) -> Self {
        Self {
            input: usage.input_tokens,
            output: usage.output_tokens,
            thinking: usage.thinking_tokens,
            cache_read: usage.cache_read_input_tokens,
            cache_creation: usage.cache_creation_input_tokens,
            cache_creation_1h: usage.cache_creation_ephemeral_1h_input_tokens,
            web_searches: usage.web_search_requests,
            cost_usd: usage.cost_usd.unwrap_or_default(),
        }
    }
}

impl From<&Usage> for TokenUsage {
    fn from(usage: &Usage) -> Self {
        Self {
            input: usage.input_tokens,
            output: usage.output_tokens,
            thinking: usage.output_tokens_details.as_ref().map_or(0, |kinds| kinds.thinking_tokens),
            cache_read: usage.cache_read_input_tokens,
            cache_creation: usage.cache_creation_input_tokens,
            cache_creation_1h: usage.cache_creation.as_ref().map_or(0, |by| by.ephemeral_1h_input_tokens),
            web_searches: usage.server_tool_use.as_ref().map_or(0, |tools| tools.web_search_requests),
            cost_usd: 0.0,
        }
    }
}
