//! Tokens and cost.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::value::RawValue;

use crate::wire::brief::show;
use crate::wire::lenient::{by_json, or_default};
use crate::wire::objects::objects;

/// Tokens of API requests, as the Messages API counts them. A missing count is 0.
#[derive(Clone, Deserialize)]
#[serde(remote = "Self")]
#[allow(missing_docs, reason = "fields are named as on the wire")]
#[non_exhaustive]
pub struct Usage {
    /// Input tokens that neither came from the prompt cache nor were put into it.
    #[serde(default, deserialize_with = "or_default")]
    pub input_tokens: u64,
    #[serde(default, deserialize_with = "or_default")]
    pub output_tokens: u64,
    /// Input tokens that were put into the prompt cache.
    #[serde(default, deserialize_with = "or_default")]
    pub cache_creation_input_tokens: u64,
    /// Input tokens that came from the prompt cache.
    #[serde(default, deserialize_with = "or_default")]
    pub cache_read_input_tokens: u64,
    /// Tokens put into the prompt cache, by how long they stay there.
    #[serde(default, deserialize_with = "or_default")]
    pub cache_creation: Option<CacheCreation>,
    /// Tool calls on the API's side.
    #[serde(default, deserialize_with = "or_default")]
    pub server_tool_use: Option<ServerToolUsage>,
    #[serde(default, deserialize_with = "or_default")]
    pub output_tokens_details: Option<OutputTokensDetails>,
    /// How the API served the requests, such as `standard`.
    #[serde(default, deserialize_with = "or_default")]
    pub service_tier: Option<String>,
    #[serde(skip)]
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

impl<'de> Deserialize<'de> for Usage {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let fields = Self::deserialize(&mut serde_json::Deserializer::from_str(raw.get()));
        Ok(Usage { raw, ..fields.map_err(de::Error::custom)? })
    }
}

/// Writes [`Usage::raw`].
impl Serialize for Usage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.raw.serialize(serializer)
    }
}

/// Usage and cost of one model since the start of the conversation, resumed parts included. A missing count is 0.
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
