//! Tokens and cost.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::value::RawValue;

use crate::wire::brief::show;
use crate::wire::lenient::{by_json, or_default};
use crate::wire::objects::objects;

/// Tokens of API requests, as the Messages API counts them. A missing count is 0.
///
/// ```
/// let usage: greenroom::message::Usage = serde_json::from_str(
///     r#"{"input_tokens": 10, "output_tokens": 9, "service_tier": "standard"}"#)?;
/// assert_eq!((usage.input_tokens, usage.output_tokens, usage.cache_read_input_tokens), (10, 9, 0));
/// assert!(usage.raw().get().contains("service_tier"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone)]
#[allow(missing_docs, reason = "fields are named as on the wire")]
#[non_exhaustive]
pub struct Usage {
    /// Input tokens that neither came from the prompt cache nor were put into it.
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// Input tokens that were put into the prompt cache.
    pub cache_creation_input_tokens: u64,
    /// Input tokens that came from the prompt cache.
    pub cache_read_input_tokens: u64,
    /// Tokens put into the prompt cache, by how long they stay there.
    pub cache_creation: Option<CacheCreation>,
    /// Tool calls on the API's side.
    pub server_tool_use: Option<ServerToolUsage>,
    pub output_tokens_details: Option<OutputTokensDetails>,
    /// How the API served the requests, such as `standard`.
    pub service_tier: Option<String>,
    raw: Box<RawValue>,
}

objects! {
    /// Tokens put into the prompt cache, in a [`Usage`].
    part CacheCreation {
        /// For five minutes.
        ephemeral_5m_input_tokens: u64,
        /// For an hour.
        ephemeral_1h_input_tokens: u64,
    }

    /// Tool calls on the API's side, in a [`Usage`].
    part ServerToolUsage {
        web_search_requests: u64,
        web_fetch_requests: u64,
    }

    /// Kinds of output tokens, in a [`Usage`].
    part OutputTokensDetails {
        thinking_tokens: u64,
    }
}

by_json!(Usage, ModelUsage);

impl Usage {
    /// The whole object, with the fields that this type does not declare (`inference_geo`, `iterations`, …).
    pub fn raw(&self) -> &RawValue {
        &self.raw
    }
}

impl fmt::Debug for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Usage");
        shown.field("input_tokens", &self.input_tokens).field("output_tokens", &self.output_tokens);
        show(&mut shown, "cache_creation_input_tokens", &self.cache_creation_input_tokens);
        show(&mut shown, "cache_read_input_tokens", &self.cache_read_input_tokens);
        show(&mut shown, "server_tool_use", &self.server_tool_use);
        show(&mut shown, "output_tokens_details", &self.output_tokens_details);
        show(&mut shown, "service_tier", &self.service_tier);
        shown.finish()
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct UsageFields {
    #[serde(deserialize_with = "or_default")]
    input_tokens: u64,
    #[serde(deserialize_with = "or_default")]
    output_tokens: u64,
    #[serde(deserialize_with = "or_default")]
    cache_creation_input_tokens: u64,
    #[serde(deserialize_with = "or_default")]
    cache_read_input_tokens: u64,
    #[serde(deserialize_with = "or_default")]
    cache_creation: Option<CacheCreation>,
    #[serde(deserialize_with = "or_default")]
    server_tool_use: Option<ServerToolUsage>,
    #[serde(deserialize_with = "or_default")]
    output_tokens_details: Option<OutputTokensDetails>,
    #[serde(deserialize_with = "or_default")]
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

/// Usage and cost of one model since the start of the conversation, resumed parts included. A missing count is 0.
///
/// ```
/// let usage: greenroom::message::ModelUsage = serde_json::from_str(
///     r#"{"inputTokens": 10, "outputTokens": 9, "costUSD": 0.00022, "contextWindow": 200000}"#)?;
/// assert_eq!((usage.output_tokens, usage.context_window), (9, Some(200_000)));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[allow(missing_docs, reason = "fields are named as on the wire")]
#[non_exhaustive]
pub struct ModelUsage {
    /// Input tokens that neither came from the prompt cache nor were put into it.
    #[serde(deserialize_with = "or_default")]
    pub input_tokens: u64,
    #[serde(deserialize_with = "or_default")]
    pub output_tokens: u64,
    /// Output tokens that were thinking.
    #[serde(deserialize_with = "or_default")]
    pub thinking_tokens: u64,
    /// Input tokens that came from the prompt cache.
    #[serde(deserialize_with = "or_default")]
    pub cache_read_input_tokens: u64,
    /// Input tokens that were put into the prompt cache.
    #[serde(deserialize_with = "or_default")]
    pub cache_creation_input_tokens: u64,
    /// Tokens put into the prompt cache for five minutes.
    #[serde(rename = "cacheCreationEphemeral5mInputTokens", deserialize_with = "or_default")]
    pub cache_creation_ephemeral_5m_input_tokens: u64,
    /// Tokens put into the prompt cache for an hour.
    #[serde(rename = "cacheCreationEphemeral1hInputTokens", deserialize_with = "or_default")]
    pub cache_creation_ephemeral_1h_input_tokens: u64,
    #[serde(deserialize_with = "or_default")]
    pub web_search_requests: u64,
    /// An estimate of the CLI, in US dollars.
    #[serde(rename = "costUSD", deserialize_with = "or_default")]
    pub cost_usd: Option<f64>,
    /// Size of the context window in tokens.
    #[serde(deserialize_with = "or_default")]
    pub context_window: Option<u64>,
    /// Limit of output tokens per message.
    #[serde(deserialize_with = "or_default")]
    pub max_output_tokens: Option<u64>,
    /// The model's name without aliases.
    #[serde(deserialize_with = "or_default")]
    pub canonical_model: Option<String>,
    /// Who served the model, such as `firstParty`.
    #[serde(deserialize_with = "or_default")]
    pub provider: Option<String>,
    /// The prices behind the cost, such as `list`.
    #[serde(deserialize_with = "or_default")]
    pub cost_basis: Option<String>,
}
