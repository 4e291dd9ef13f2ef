//! Tokens, cost, and the context window.

use serde_json::Value;

use crate::message::{ContextKind, SessionUsage};
use crate::wire::objects::objects;
use crate::wire::words::words;

objects! {
    /// Contents of the context window, in tokens. The lists and objects besides the categories are in the CLI's shape.
    ///
    /// ```
    /// async fn show(session: &greenroom::Session) -> greenroom::Result<()> {
    ///     use greenroom::message::ContextKind;
    ///     use greenroom::requests::ContextDetail;
    ///
    ///     let usage = session.context_usage(ContextDetail::Summary).await?;
    ///     println!("{} of {} tokens", usage.total_tokens, usage.max_tokens);
    ///     for row in usage.categories.iter().filter(|row| row.kind == ContextKind::Used) {
    ///         println!("{}: {}", row.name, row.tokens);
    ///     }
    ///     Ok(())
    /// }
    /// # let _ = show;
    /// ```
    answer ContextUsage {
        categories: Vec<ContextCategory>,
        /// Tokens in use.
        total_tokens: u64 = "totalTokens",
        /// Usable tokens.
        max_tokens: u64 = "maxTokens",
        /// Size of the model's context window.
        raw_max_tokens: u64 = "rawMaxTokens",
        /// 0 to 100.
        percentage: f64,
        /// A picture of the context window, in rows of squares.
        grid_rows: Vec<Value> = "gridRows",
        model: String,
        memory_files: Vec<Value> = "memoryFiles",
        mcp_tools: Vec<Value> = "mcpTools",
        /// Instructions of MCP servers; estimated per server.
        mcp_instructions: Vec<Value> = "mcpInstructions",
        /// Built-in tools that the model loads when it searches for them.
        deferred_builtin_tools: Vec<Value> = "deferredBuiltinTools",
        /// Built-in tools.
        system_tools: Vec<Value> = "systemTools",
        system_prompt_sections: Vec<Value> = "systemPromptSections",
        /// Kinds of subagents.
        agents: Vec<Value>,
        slash_commands: Option<Value> = "slashCommands",
        skills: Option<Value>,
        /// Tokens at which the CLI compacts the conversation.
        auto_compact_threshold: Option<u64> = "autoCompactThreshold",
        is_auto_compact_enabled: bool = "isAutoCompactEnabled",
        message_breakdown: Option<Value> = "messageBreakdown",
        /// Usage of the last API request; `None` before the first.
        api_usage: Option<Value> = "apiUsage",
    }

    /// Tokens of one category, in a [`ContextUsage`].
    answer ContextCategory {
        /// Stable name: `system_prompt`, `messages`, `free_space` and others.
        id: Option<String>,
        /// Name for people.
        name: String,
        tokens: u64,
        /// A colour, by the CLI's own name.
        color: String,
        /// The tokens are outside of the context window.
        is_deferred: Option<bool> = "isDeferred",
        kind: ContextKind,
    }

    /// Cost of the session, and use of the plan's limits. The CLI calls this experimental: the shape may change.
    answer UsageReport {
        session: SessionUsage,
        /// The plan, such as `max`; `None` for an API key.
        subscription_type: Option<String>,
        rate_limits_available: bool,
        /// Use of the plan's limits: `five_hour`, `seven_day` and others, each with `utilization` (0 to 100) and `resets_at`.
        rate_limits: Option<Value>,
        /// Causes of the usage in the last day and the last week, from the transcripts on this machine. Only with a
        /// login of claude.ai.
        behaviors: Option<Value>,
    }
}

words! {
    /// Accuracy of [`Session::context_usage`](crate::Session::context_usage). The default is `Full`, as in the CLI.
    pub enum ContextDetail or "full" {
        /// Estimated from the usage of the last answer, without an API request.
        Summary = "summary",
        /// Each category counted by the API.
        Full = "full",
    }
}
