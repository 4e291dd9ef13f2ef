//! How full the context is, and what the session used: what the CLI may say beside an assistant message.

use std::collections::BTreeMap;

use serde_json::Value;

use super::usage::ModelUsage;
use super::view::{view, words};

view! {
    /// How full the context is.
    part ContextUsage:
        r#"{"model": "m", "total_tokens": 20000, "raw_max_tokens": 200000, "percentage": 10}"#
        => r#"view.total_tokens == 20_000 && view.percentage == 10.0"#
    {
        /// The model whose context it is.
        model: String,
        /// Tokens in it.
        total_tokens: u64,
        /// Tokens that fit into it.
        raw_max_tokens: u64,
        /// How full it is, in per cent.
        percentage: f64,
        /// By how much it is too full.
        over_limit: Option<ContextOverLimit>,
        /// What takes the place.
        categories: Vec<ContextCategory>,
        /// Tools of MCP servers.
        mcp_tools: Vec<ContextItem>,
        /// Files that the model is told at the beginning.
        memory_files: Vec<ContextItem>,
        /// Subagents.
        agents: Vec<ContextItem>,
        /// Skills.
        skills: Vec<ContextItem>,
    }

    /// By how much a context is too full, in a [`ContextUsage`].
    part ContextOverLimit: r#"{"tokens_over": 12, "kind": "hard_limit"}"# => r#"view.tokens_over == 12"# {
        /// Tokens.
        tokens_over: u64,
        /// Of which limit: `hard_limit` or `compaction_window`.
        kind: String,
    }

    /// What takes place in a context, in a [`ContextUsage`].
    part ContextCategory: r#"{"name": "System prompt", "tokens": 3000, "kind": "used"}"#
        => r#"view.kind == greenroom::message::ContextKind::Used"#
    {
        /// For people.
        name: String,
        /// How much, in tokens.
        tokens: u64,
        /// What kind of place it is.
        kind: ContextKind,
    }

    /// One thing that takes place in a context, in a [`ContextUsage`].
    part ContextItem: r#"{"name": "add", "server_name": "calc", "tokens": 90}"# => r#"view.tokens == 90"# {
        /// Its name (tools and skills).
        name: Option<String>,
        /// The MCP server (tools).
        server_name: Option<String>,
        /// The file (memory files).
        path: Option<String>,
        /// What kind of file it is (memory files).
        kind: Option<String> = "type",
        /// What kind of subagent it is (subagents).
        agent_type: Option<String>,
        /// Where it comes from (subagents and skills).
        source: Option<String>,
        /// The plugin (skills).
        plugin_name: Option<String>,
        /// How much, in tokens.
        tokens: u64,
    }

    /// What the session used, and what is left of the quotas.
    part UsageReport: r#"{"session": {"total_cost_usd": 0.5, "total_lines_added": 3}, "rate_limits": null}"#
        => r#"view.session.total_lines_added == 3 && view.rate_limits.is_none()"#
    {
        /// The session.
        session: SessionUsage,
        /// The quotas: `limits` and `extra_usage`. `None` if they are not known.
        rate_limits: Option<Value>,
    }

    /// What the session used, in a [`UsageReport`].
    part SessionUsage: r#"{"total_cost_usd": 0.5, "total_duration_ms": 900}"# => r#"view.total_cost_usd == 0.5"# {
        /// The cost in US dollars.
        total_cost_usd: f64,
        /// How long it waited for the API, in milliseconds.
        total_api_duration_ms: u64,
        /// How long it took, in milliseconds.
        total_duration_ms: u64,
        /// Lines that were added to files.
        total_lines_added: u64,
        /// Lines that were taken out of files.
        total_lines_removed: u64,
        /// Tokens and cost, by model.
        model_usage: BTreeMap<String, ModelUsage>,
    }
}

words! {
    /// What kind of place something takes in a context, in a [`ContextCategory`].
    ContextKind {
        /// It is taken.
        Used = "used",
        /// It is free.
        Free = "free",
        /// It is kept free.
        Buffer = "buffer",
        /// It is not taken yet: what the model finds when it searches.
        Deferred = "deferred",
    }
}
