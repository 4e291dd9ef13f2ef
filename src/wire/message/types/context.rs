//! Fill of the context window and usage of the session, as the CLI may attach them to an assistant message.
//!
//! [`Session::context_usage`](crate::Session::context_usage) and [`Requests::usage`](crate::session::Requests::usage)
//! ask for more.

use std::collections::BTreeMap;

use serde_json::Value;

use super::usage::ModelUsage;
use crate::wire::objects::objects;
use crate::wire::words::words;

objects! {
    /// Fill of the context window, in an [`AssistantMessage`](crate::message::AssistantMessage).
    part ContextSummary {
        model: String,
        /// Tokens in the context.
        total_tokens: u64,
        /// Size of the context window in tokens.
        raw_max_tokens: u64,
        /// 0 to 100.
        percentage: f64,
        /// Set if the context is too full.
        over_limit: Option<ContextOverLimit>,
        categories: Vec<ContextSummaryCategory>,
        mcp_tools: Vec<ContextItem>,
        memory_files: Vec<ContextItem>,
        /// Subagents.
        agents: Vec<ContextItem>,
        skills: Vec<ContextItem>,
    }

    /// Tokens beyond a limit, in a [`ContextSummary`].
    part ContextOverLimit {
        tokens_over: u64,
        /// The limit: `hard_limit` or `compaction_window`.
        kind: String,
    }

    /// Tokens of one category, in a [`ContextSummary`].
    part ContextSummaryCategory {
        /// The name, for people.
        name: String,
        tokens: u64,
        kind: ContextKind,
    }

    /// Tokens of one tool, memory file, subagent or skill, in a [`ContextSummary`].
    part ContextItem {
        /// Tools and skills.
        name: Option<String>,
        /// Tools: their MCP server.
        server_name: Option<String>,
        /// Memory files.
        path: Option<String>,
        /// Memory files: the kind of file.
        kind: Option<String> = "type",
        /// Subagents.
        agent_type: Option<String>,
        /// Subagents and skills.
        source: Option<String>,
        /// Skills.
        plugin_name: Option<String>,
        tokens: u64,
    }

    /// Usage of the session and its quotas, in an [`AssistantMessage`](crate::message::AssistantMessage).
    part UsageSummary {
        session: SessionUsage,
        /// `limits` and `extra_usage`; `None` if the quotas are unknown.
        rate_limits: Option<Value>,
    }

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
