//! Tokens and cost.

use std::collections::BTreeMap;

use crate::wire::objects::objects;
use crate::wire::words::words;

objects! {
    /// Usage of the session since its CLI was started.
    part SessionUsage {
        /// An estimate of the CLI, in US dollars.
        total_cost_usd: f64,
        /// Time spent waiting for the API.
        total_api_duration_ms: u64,
        total_duration_ms: u64,
        /// Lines of code.
        total_lines_added: u64,
        /// Lines of code.
        total_lines_removed: u64,
        model_usage: BTreeMap<String, ModelUsage>,
    }

    /// Tokens of API requests, as the Messages API counts them. A missing count is 0.
    part Usage {
        /// Input tokens that neither came from the prompt cache nor were put into it.
        input_tokens: u64,
        output_tokens: u64,
        /// Input tokens that were put into the prompt cache.
        cache_creation_input_tokens: u64,
        /// Input tokens that came from the prompt cache.
        cache_read_input_tokens: u64,
        /// Tokens put into the prompt cache, by how long they stay there.
        cache_creation: Option<CacheCreation>,
        /// Tool calls on the API's side.
        server_tool_use: Option<ServerToolUsage>,
        output_tokens_details: Option<OutputTokensDetails>,
        /// How the API served the requests, such as `standard`.
        service_tier: Option<String>,
    }

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

    /// Usage and cost of one model since the start of the conversation, resumed parts included. A missing count is 0.
    part ModelUsage {
        /// Input tokens that neither came from the prompt cache nor were put into it.
        input_tokens: u64 = "inputTokens",
        output_tokens: u64 = "outputTokens",
        /// Output tokens that were thinking.
        thinking_tokens: u64 = "thinkingTokens",
        /// Input tokens that came from the prompt cache.
        cache_read_input_tokens: u64 = "cacheReadInputTokens",
        /// Input tokens that were put into the prompt cache.
        cache_creation_input_tokens: u64 = "cacheCreationInputTokens",
        /// Tokens put into the prompt cache for five minutes.
        cache_creation_ephemeral_5m_input_tokens: u64 = "cacheCreationEphemeral5mInputTokens",
        /// Tokens put into the prompt cache for an hour.
        cache_creation_ephemeral_1h_input_tokens: u64 = "cacheCreationEphemeral1hInputTokens",
        web_search_requests: u64 = "webSearchRequests",
        /// An estimate of the CLI, in US dollars.
        cost_usd: Option<f64> = "costUSD",
        /// Size of the context window in tokens.
        context_window: Option<u64> = "contextWindow",
        /// Limit of output tokens per message.
        max_output_tokens: Option<u64> = "maxOutputTokens",
        /// The model's name without aliases.
        canonical_model: Option<String> = "canonicalModel",
        /// Who served the model, such as `firstParty`.
        provider: Option<String>,
        /// The prices behind the cost, such as `list`.
        cost_basis: Option<String> = "costBasis",
    }
}

words! {
    /// Use of a category of tokens in the context window.
    pub enum ContextKind or "" {
        Used = "used",
        Free = "free",
        /// Kept free for a compaction.
        Buffer = "buffer",
        /// Outside of the window: tools that the model loads when it searches for them.
        Deferred = "deferred",
    }
}
