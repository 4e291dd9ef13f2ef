//! Tokens and cost.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::value::RawValue;

use super::read::{count, maybe, maybe_count};
use super::view::{loose, view};

/// Tokens, as the Messages API counts them. A count that was not sent is 0.
///
/// ```
/// let usage: greenroom::Usage = serde_json::from_str(
///     r#"{"input_tokens": 10, "output_tokens": 9, "service_tier": "standard"}"#)?;
/// assert_eq!((usage.input_tokens, usage.output_tokens, usage.cache_read_input_tokens), (10, 9, 0));
/// assert!(usage.raw().get().contains("service_tier"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Usage {
    /// Tokens read that came from no cache.
    pub input_tokens: u64,
    /// Tokens written by the model.
    pub output_tokens: u64,
    /// Tokens read and put into the prompt cache.
    pub cache_creation_input_tokens: u64,
    /// Tokens read from the prompt cache.
    pub cache_read_input_tokens: u64,
    /// Those put into the prompt cache, by how long they stay in it.
    pub cache_creation: Option<CacheCreation>,
    /// What was done on the API's side.
    pub server_tool_use: Option<ServerToolUsage>,
    /// More about what was written.
    pub output_tokens_details: Option<OutputTokensDetails>,
    /// How the requests were served, such as `standard`.
    pub service_tier: Option<String>,
    raw: Box<RawValue>,
}

view! {
    /// Tokens put into the prompt cache, in a [`Usage`].
    part CacheCreation: r#"{"ephemeral_5m_input_tokens": 7, "ephemeral_1h_input_tokens": 0}"#
        => r#"view.ephemeral_5m_input_tokens == 7"#
    {
        /// For five minutes.
        ephemeral_5m_input_tokens: u64,
        /// For an hour.
        ephemeral_1h_input_tokens: u64,
    }

    /// What was done on the API's side, in a [`Usage`].
    part ServerToolUsage: r#"{"web_search_requests": 1}"# => r#"view.web_search_requests == 1"# {
        /// Web searches.
        web_search_requests: u64,
        /// Web pages that were fetched.
        web_fetch_requests: u64,
    }

    /// More about what was written, in a [`Usage`].
    part OutputTokensDetails: r#"{"thinking_tokens": 5}"# => r#"view.thinking_tokens == 5"# {
        /// How much of it was thinking.
        thinking_tokens: u64,
    }
}

loose!(Usage, ModelUsage);

impl Usage {
    /// All of it as JSON, with the fields that have no place here (`inference_geo`, `iterations`, …).
    pub fn raw(&self) -> &RawValue {
        &self.raw
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct UsageFields {
    #[serde(deserialize_with = "count")]
    input_tokens: u64,
    #[serde(deserialize_with = "count")]
    output_tokens: u64,
    #[serde(deserialize_with = "count")]
    cache_creation_input_tokens: u64,
    #[serde(deserialize_with = "count")]
    cache_read_input_tokens: u64,
    #[serde(deserialize_with = "maybe")]
    cache_creation: Option<CacheCreation>,
    #[serde(deserialize_with = "maybe")]
    server_tool_use: Option<ServerToolUsage>,
    #[serde(deserialize_with = "maybe")]
    output_tokens_details: Option<OutputTokensDetails>,
    #[serde(deserialize_with = "maybe")]
    service_tier: Option<String>,
}

impl<'de> Deserialize<'de> for Usage {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let fields: UsageFields = serde_json::from_str(raw.get()).map_err(de::Error::custom)?;
        Ok(Usage {
            input_tokens: fields.input_tokens,
            output_tokens: fields.output_tokens,
            cache_creation_input_tokens: fields.cache_creation_input_tokens,
            cache_read_input_tokens: fields.cache_read_input_tokens,
            cache_creation: fields.cache_creation,
            server_tool_use: fields.server_tool_use,
            output_tokens_details: fields.output_tokens_details,
            service_tier: fields.service_tier,
            raw,
        })
    }
}

/// Writes [`Usage::raw`].
impl Serialize for Usage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.raw.serialize(serializer)
    }
}

/// What one model used and cost, from the beginning of the conversation (a resumed one included).
///
/// A count that was not sent is 0.
///
/// ```
/// let usage: greenroom::ModelUsage = serde_json::from_str(
///     r#"{"inputTokens": 10, "outputTokens": 9, "costUSD": 0.00022, "contextWindow": 200000}"#)?;
/// assert_eq!((usage.output_tokens, usage.context_window), (9, Some(200_000)));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct ModelUsage {
    /// Tokens read that came from no cache.
    #[serde(deserialize_with = "count")]
    pub input_tokens: u64,
    /// Tokens written by the model.
    #[serde(deserialize_with = "count")]
    pub output_tokens: u64,
    /// How many of those written were thinking.
    #[serde(deserialize_with = "count")]
    pub thinking_tokens: u64,
    /// Tokens read from the prompt cache.
    #[serde(deserialize_with = "count")]
    pub cache_read_input_tokens: u64,
    /// Tokens read and put into the prompt cache.
    #[serde(deserialize_with = "count")]
    pub cache_creation_input_tokens: u64,
    /// Those put into it for five minutes.
    #[serde(rename = "cacheCreationEphemeral5mInputTokens", deserialize_with = "count")]
    pub cache_creation_ephemeral_5m_input_tokens: u64,
    /// Those put into it for an hour.
    #[serde(rename = "cacheCreationEphemeral1hInputTokens", deserialize_with = "count")]
    pub cache_creation_ephemeral_1h_input_tokens: u64,
    /// Web searches made.
    #[serde(deserialize_with = "count")]
    pub web_search_requests: u64,
    /// The cost in US dollars, as the CLI reckons it.
    #[serde(rename = "costUSD", deserialize_with = "maybe")]
    pub cost_usd: Option<f64>,
    /// The size of the model's context window in tokens.
    #[serde(deserialize_with = "maybe_count")]
    pub context_window: Option<u64>,
    /// The most tokens that the model may write in one message.
    #[serde(deserialize_with = "maybe_count")]
    pub max_output_tokens: Option<u64>,
    /// The model's name without aliases.
    #[serde(deserialize_with = "maybe")]
    pub canonical_model: Option<String>,
    /// Who served it, such as `firstParty`.
    #[serde(deserialize_with = "maybe")]
    pub provider: Option<String>,
    /// What the cost was reckoned with, such as `list` prices.
    #[serde(deserialize_with = "maybe")]
    pub cost_basis: Option<String>,
}
