//! Tokens, cost, and the context window.

use serde_json::Value;

use crate::message::{ContextKind, SessionUsage};
use crate::wire::objects::objects;
use crate::wire::words::words;

objects! {
    /// Contents of the context window, in tokens.
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
        grid_rows: Vec<Vec<ContextSquare>> = "gridRows",
        model: String,
        memory_files: Vec<MemoryFileContext> = "memoryFiles",
        mcp_tools: Vec<McpToolContext> = "mcpTools",
        /// Instructions of MCP servers; estimated per server.
        mcp_instructions: Vec<McpServerContext> = "mcpInstructions",
        /// Built-in tools that the model loads when it searches for them.
        deferred_builtin_tools: Vec<DeferredToolContext> = "deferredBuiltinTools",
        /// Built-in tools.
        system_tools: Vec<NamedTokens> = "systemTools",
        system_prompt_sections: Vec<NamedTokens> = "systemPromptSections",
        /// Kinds of subagents.
        agents: Vec<AgentContext>,
        slash_commands: Option<CommandContext> = "slashCommands",
        skills: Option<SkillsContext>,
        /// Tokens at which the CLI compacts the conversation.
        auto_compact_threshold: Option<u64> = "autoCompactThreshold",
        is_auto_compact_enabled: bool = "isAutoCompactEnabled",
        /// The source of the threshold, such as `model-default`.
        autocompact_source: Option<String> = "autocompactSource",
        message_breakdown: Option<MessageBreakdown> = "messageBreakdown",
        /// Usage of the last API request; `None` before the first.
        api_usage: Option<ApiUsage> = "apiUsage",
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

    /// A square of the picture, in a [`ContextUsage`].
    answer ContextSquare {
        /// A colour, by the CLI's own name.
        color: String,
        is_filled: bool = "isFilled",
        category_name: String = "categoryName",
        /// Tokens of the category.
        tokens: u64,
        /// Share of the category in the window, 0 to 100.
        percentage: f64,
        /// 0 to 1.
        square_fullness: f64 = "squareFullness",
    }

    /// Tokens of a memory file, in a [`ContextUsage`].
    answer MemoryFileContext {
        path: String,
        /// The kind of file, such as `Project`.
        kind: String = "type",
        tokens: u64,
    }

    /// Tokens of an MCP tool, in a [`ContextUsage`].
    answer McpToolContext {
        /// The full name, `mcp__SERVER__TOOL`.
        name: String,
        /// The server, as spelled in the full name.
        server_name: String = "serverName",
        tokens: u64,
        /// False if the model would have to search for the tool.
        is_loaded: Option<bool> = "isLoaded",
    }

    /// Tokens of an MCP server's instructions, in a [`ContextUsage`].
    answer McpServerContext {
        server_name: String = "serverName",
        tokens: u64,
    }

    /// Tokens of a built-in tool that the model loads on demand, in a [`ContextUsage`].
    answer DeferredToolContext {
        name: String,
        tokens: u64,
        is_loaded: bool = "isLoaded",
    }

    /// Tokens of a named part, in a [`ContextUsage`].
    answer NamedTokens {
        name: String,
        tokens: u64,
    }

    /// Tokens of a kind of subagent, in a [`ContextUsage`].
    answer AgentContext {
        agent_type: String = "agentType",
        source: String,
        plugin_id: Option<String> = "pluginId",
        path: Option<String>,
        tokens: u64,
    }

    /// Tokens of the slash commands, in a [`ContextUsage`].
    answer CommandContext {
        total_commands: u64 = "totalCommands",
        /// Commands that the model knows about.
        included_commands: u64 = "includedCommands",
        tokens: u64,
    }

    /// Tokens of the skills, in a [`ContextUsage`].
    answer SkillsContext {
        total_skills: u64 = "totalSkills",
        /// Skills that the model knows about.
        included_skills: u64 = "includedSkills",
        tokens: u64,
        skills: Vec<SkillContext> = "skillFrontmatter",
    }

    /// Tokens of a skill, in a [`SkillsContext`].
    answer SkillContext {
        name: String,
        source: String,
        plugin_name: Option<String> = "pluginName",
        plugin_id: Option<String> = "pluginId",
        path: Option<String>,
        tokens: u64,
    }

    /// Tokens of the messages, by kind, in a [`ContextUsage`].
    answer MessageBreakdown {
        tool_call_tokens: u64 = "toolCallTokens",
        tool_result_tokens: u64 = "toolResultTokens",
        attachment_tokens: u64 = "attachmentTokens",
        assistant_message_tokens: u64 = "assistantMessageTokens",
        user_message_tokens: u64 = "userMessageTokens",
        redirected_context_tokens: u64 = "redirectedContextTokens",
        /// All other tokens.
        unattributed_tokens: u64 = "unattributedTokens",
        tool_calls_by_type: Vec<ToolCallTokens> = "toolCallsByType",
        attachments_by_type: Vec<NamedTokens> = "attachmentsByType",
    }

    /// Tokens of a tool's calls and results, in a [`MessageBreakdown`].
    answer ToolCallTokens {
        name: String,
        call_tokens: u64 = "callTokens",
        result_tokens: u64 = "resultTokens",
    }

    /// Tokens of one API request, as the Messages API counts them.
    answer ApiUsage {
        /// Input tokens that neither came from the prompt cache nor were put into it.
        input_tokens: u64,
        output_tokens: u64,
        /// Input tokens that were put into the prompt cache.
        cache_creation_input_tokens: u64,
        /// Input tokens that came from the prompt cache.
        cache_read_input_tokens: u64,
    }

    /// Cost of the session, and use of the plan's limits. The CLI calls this experimental: the shape may change.
    answer UsageReport {
        session: SessionUsage,
        /// The plan, such as `max`; `None` for an API key.
        subscription_type: Option<String>,
        rate_limits_available: bool,
        rate_limits: Option<RateLimits>,
        /// Causes of the usage in the last day and the last week, from the transcripts on this machine. Only with a
        /// login of claude.ai.
        behaviors: Option<Value>,
    }

    /// Use of a plan's limits, in a [`UsageReport`].
    answer RateLimits {
        five_hour: Option<RateLimitWindow>,
        seven_day: Option<RateLimitWindow>,
        /// For applications that log in by OAuth.
        seven_day_oauth_apps: Option<RateLimitWindow>,
        seven_day_opus: Option<RateLimitWindow>,
        seven_day_sonnet: Option<RateLimitWindow>,
        /// Seven-day limits of single models.
        model_scoped: Vec<RateLimitWindow>,
        /// Paid use beyond the plan: `is_enabled`, `monthly_limit`, `used_credits` and others.
        extra_usage: Option<Value>,
    }

    /// A limit over a period of time, in [`RateLimits`].
    answer RateLimitWindow {
        /// 0 to 100.
        utilization: Option<f64>,
        /// When the period starts again (ISO 8601).
        resets_at: Option<String>,
        /// The model of a limit for a single model, for people.
        display_name: Option<String>,
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
