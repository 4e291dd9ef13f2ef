//! Tokens and cost.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::value::RawValue;

use super::read::{count, maybe, maybe_count};

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
    raw: Box<RawValue>,
}

impl Usage {
    /// All of it as JSON, with the fields that have no place here (`service_tier`, `server_tool_use`, …).
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
}
