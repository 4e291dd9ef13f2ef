//! Tokens, cost, and the context window.

use std::collections::BTreeMap;

use serde_json::Value;

use super::read::{answers, words};
use crate::wire::ModelUsage;

answers! {
    /// What fills the context window.
    ///
    /// ```
    /// async fn show(session: &greenroom::Session) -> greenroom::Result<()> {
    ///     use greenroom::requests::{ContextDetail, ContextKind};
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
    pub struct ContextUsage {
        /// Its rows.
        pub categories: Vec<ContextCategory> = "categories",
        /// The tokens in use.
        pub total_tokens: u64 = "totalTokens",
        /// The tokens that there is room for.
        pub max_tokens: u64 = "maxTokens",
        /// The size of the model's window.
        pub raw_max_tokens: u64 = "rawMaxTokens",
        /// How much of it is in use, 0 to 100.
        pub percentage: f64 = "percentage",
        /// A picture of it, in rows of squares.
        pub grid_rows: Vec<Vec<ContextSquare>> = "gridRows",
        /// The model.
        pub model: String = "model",
        /// The memory files.
        pub memory_files: Vec<MemoryFileContext> = "memoryFiles",
        /// The tools of MCP servers.
        pub mcp_tools: Vec<McpToolContext> = "mcpTools",
        /// The instructions of MCP servers; each server's part is estimated.
        pub mcp_instructions: Vec<McpServerContext> = "mcpInstructions",
        /// The built-in tools that are loaded when the model looks for them.
        pub deferred_builtin_tools: Vec<DeferredToolContext> = "deferredBuiltinTools",
        /// The built-in tools.
        pub system_tools: Vec<NamedTokens> = "systemTools",
        /// The parts of the system prompt.
        pub system_prompt_sections: Vec<NamedTokens> = "systemPromptSections",
        /// The kinds of subagents.
        pub agents: Vec<AgentContext> = "agents",
        /// The slash commands.
        pub slash_commands: Option<CommandContext> = "slashCommands",
        /// The skills.
        pub skills: Option<SkillsContext> = "skills",
        /// The tokens at which the conversation is compacted.
        pub auto_compact_threshold: Option<u64> = "autoCompactThreshold",
        /// Whether it is compacted by itself.
        pub is_auto_compact_enabled: bool = "isAutoCompactEnabled",
        /// Who says when, such as `model-default`.
        pub autocompact_source: Option<String> = "autocompactSource",
        /// What the messages consist of.
        pub message_breakdown: Option<MessageBreakdown> = "messageBreakdown",
        /// What the model's last answer counted; `None` before the first.
        pub api_usage: Option<ApiUsage> = "apiUsage",
    }

    /// A row of the context window.
    ///
    /// ```
    /// let row: greenroom::requests::ContextCategory =
    ///     serde_json::from_str(r#"{"id": "skills", "name": "Skills", "tokens": 2067, "kind": "used"}"#)?;
    /// assert_eq!((row.id.as_deref(), row.tokens), (Some("skills"), 2067));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct ContextCategory {
        /// What the row is, in a word that stays the same: `system_prompt`, `messages`, `free_space` and others.
        pub id: Option<String> = "id",
        /// The same, for people.
        pub name: String = "name",
        /// Its tokens.
        pub tokens: u64 = "tokens",
        /// A colour, in the CLI's own name.
        pub color: String = "color",
        /// Whether it stands outside of the window.
        pub is_deferred: Option<bool> = "isDeferred",
        /// What its tokens do.
        pub kind: ContextKind = "kind",
    }

    /// A square of the picture of the context window.
    ///
    /// ```
    /// let square: greenroom::requests::ContextSquare =
    ///     serde_json::from_str(r#"{"categoryName": "Skills", "isFilled": true, "squareFullness": 0.5}"#)?;
    /// assert!(square.is_filled);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct ContextSquare {
        /// Its colour, in the CLI's own name.
        pub color: String = "color",
        /// Whether it is in use.
        pub is_filled: bool = "isFilled",
        /// The name of its row.
        pub category_name: String = "categoryName",
        /// The tokens of its row.
        pub tokens: u64 = "tokens",
        /// The part of its row in the whole, 0 to 100.
        pub percentage: f64 = "percentage",
        /// How full it is, 0 to 1.
        pub square_fullness: f64 = "squareFullness",
    }

    /// A memory file in the context window.
    ///
    /// ```
    /// let file: greenroom::requests::MemoryFileContext =
    ///     serde_json::from_str(r#"{"path": "/srv/CLAUDE.md", "type": "Project", "tokens": 120}"#)?;
    /// assert_eq!(file.kind, "Project");
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct MemoryFileContext {
        /// Its path.
        pub path: String = "path",
        /// What it is, such as `Project`.
        pub kind: String = "type",
        /// Its tokens.
        pub tokens: u64 = "tokens",
    }

    /// A tool of an MCP server in the context window.
    ///
    /// ```
    /// let tool: greenroom::requests::McpToolContext =
    ///     serde_json::from_str(r#"{"name": "mcp__calc__add", "serverName": "calc", "tokens": 57, "isLoaded": true}"#)?;
    /// assert_eq!(tool.is_loaded, Some(true));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct McpToolContext {
        /// Its name to the model.
        pub name: String = "name",
        /// Its server, as it stands in that name.
        pub server_name: String = "serverName",
        /// Its tokens.
        pub tokens: u64 = "tokens",
        /// Whether the model has it, or would have to look for it.
        pub is_loaded: Option<bool> = "isLoaded",
    }

    /// The instructions of an MCP server in the context window.
    ///
    /// ```
    /// let server: greenroom::requests::McpServerContext =
    ///     serde_json::from_str(r#"{"serverName": "calc", "tokens": 10}"#)?;
    /// assert_eq!(server.server_name, "calc");
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct McpServerContext {
        /// The server.
        pub server_name: String = "serverName",
        /// Its tokens.
        pub tokens: u64 = "tokens",
    }

    /// A built-in tool that is loaded when the model looks for it.
    ///
    /// ```
    /// let tool: greenroom::requests::DeferredToolContext =
    ///     serde_json::from_str(r#"{"name": "WebFetch", "tokens": 900, "isLoaded": false}"#)?;
    /// assert!(!tool.is_loaded);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct DeferredToolContext {
        /// Its name.
        pub name: String = "name",
        /// Its tokens.
        pub tokens: u64 = "tokens",
        /// Whether the model has it.
        pub is_loaded: bool = "isLoaded",
    }

    /// Something with a name, and its tokens.
    ///
    /// ```
    /// let tool: greenroom::requests::NamedTokens = serde_json::from_str(r#"{"name": "Read", "tokens": 500}"#)?;
    /// assert_eq!(tool.tokens, 500);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct NamedTokens {
        /// Its name.
        pub name: String = "name",
        /// Its tokens.
        pub tokens: u64 = "tokens",
    }

    /// A kind of subagent in the context window.
    ///
    /// ```
    /// let agent: greenroom::requests::AgentContext =
    ///     serde_json::from_str(r#"{"agentType": "reviewer", "source": "projectSettings", "tokens": 40}"#)?;
    /// assert_eq!(agent.agent_type, "reviewer");
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct AgentContext {
        /// Its name.
        pub agent_type: String = "agentType",
        /// Where it comes from.
        pub source: String = "source",
        /// The plugin that it is of.
        pub plugin_id: Option<String> = "pluginId",
        /// Its file.
        pub path: Option<String> = "path",
        /// Its tokens.
        pub tokens: u64 = "tokens",
    }

    /// The slash commands in the context window.
    ///
    /// ```
    /// let commands: greenroom::requests::CommandContext =
    ///     serde_json::from_str(r#"{"totalCommands": 13, "includedCommands": 13, "tokens": 1102}"#)?;
    /// assert_eq!(commands.included_commands, 13);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct CommandContext {
        /// How many there are.
        pub total_commands: u64 = "totalCommands",
        /// How many the model is told of.
        pub included_commands: u64 = "includedCommands",
        /// Their tokens.
        pub tokens: u64 = "tokens",
    }

    /// The skills in the context window.
    ///
    /// ```
    /// let skills: greenroom::requests::SkillsContext =
    ///     serde_json::from_str(r#"{"totalSkills": 1, "includedSkills": 1, "tokens": 482}"#)?;
    /// assert!(skills.skills.is_empty());
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct SkillsContext {
        /// How many there are.
        pub total_skills: u64 = "totalSkills",
        /// How many the model is told of.
        pub included_skills: u64 = "includedSkills",
        /// Their tokens.
        pub tokens: u64 = "tokens",
        /// Each of them.
        pub skills: Vec<SkillContext> = "skillFrontmatter",
    }

    /// A skill in the context window.
    ///
    /// ```
    /// let skill: greenroom::requests::SkillContext =
    ///     serde_json::from_str(r#"{"name": "dataviz", "source": "built-in", "tokens": 482}"#)?;
    /// assert_eq!(skill.source, "built-in");
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct SkillContext {
        /// Its name.
        pub name: String = "name",
        /// Where it comes from.
        pub source: String = "source",
        /// The name of the plugin that it is of.
        pub plugin_name: Option<String> = "pluginName",
        /// The id of the plugin that it is of.
        pub plugin_id: Option<String> = "pluginId",
        /// Its file.
        pub path: Option<String> = "path",
        /// Its tokens.
        pub tokens: u64 = "tokens",
    }

    /// What the messages in the context window consist of, in tokens.
    ///
    /// ```
    /// let parts: greenroom::requests::MessageBreakdown =
    ///     serde_json::from_str(r#"{"toolCallTokens": 32, "toolCallsByType": [{"name": "Write", "callTokens": 32}]}"#)?;
    /// assert_eq!(parts.tool_calls_by_type[0].name, "Write");
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct MessageBreakdown {
        /// Tool calls.
        pub tool_call_tokens: u64 = "toolCallTokens",
        /// Their results.
        pub tool_result_tokens: u64 = "toolResultTokens",
        /// Attachments.
        pub attachment_tokens: u64 = "attachmentTokens",
        /// What the model said.
        pub assistant_message_tokens: u64 = "assistantMessageTokens",
        /// What the user said.
        pub user_message_tokens: u64 = "userMessageTokens",
        /// Context that was redirected.
        pub redirected_context_tokens: u64 = "redirectedContextTokens",
        /// The rest.
        pub unattributed_tokens: u64 = "unattributedTokens",
        /// Calls and results by tool.
        pub tool_calls_by_type: Vec<ToolCallTokens> = "toolCallsByType",
        /// Attachments by kind.
        pub attachments_by_type: Vec<NamedTokens> = "attachmentsByType",
    }

    /// The calls of one tool in the context window.
    ///
    /// ```
    /// let calls: greenroom::requests::ToolCallTokens =
    ///     serde_json::from_str(r#"{"name": "Write", "callTokens": 32, "resultTokens": 48}"#)?;
    /// assert_eq!(calls.result_tokens, 48);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct ToolCallTokens {
        /// The tool.
        pub name: String = "name",
        /// The calls.
        pub call_tokens: u64 = "callTokens",
        /// Their results.
        pub result_tokens: u64 = "resultTokens",
    }

    /// What the Messages API counted for one answer.
    ///
    /// ```
    /// let usage: greenroom::requests::ApiUsage = serde_json::from_str(r#"{"input_tokens": 10, "output_tokens": 9}"#)?;
    /// assert_eq!(usage.output_tokens, 9);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct ApiUsage {
        /// Tokens read that came from no cache.
        pub input_tokens: u64 = "input_tokens",
        /// Tokens written.
        pub output_tokens: u64 = "output_tokens",
        /// Tokens put into the prompt cache.
        pub cache_creation_input_tokens: u64 = "cache_creation_input_tokens",
        /// Tokens read from it.
        pub cache_read_input_tokens: u64 = "cache_read_input_tokens",
    }

    /// What the session cost, and how much of the plan's limits is used. The CLI calls this experimental: the shape may
    /// change.
    ///
    /// ```
    /// async fn cost(session: &greenroom::Session) -> greenroom::Result<f64> {
    ///     Ok(session.usage(false).await?.session.total_cost_usd)
    /// }
    /// # let _ = cost;
    /// ```
    pub struct UsageReport {
        /// The session.
        pub session: SessionUsage = "session",
        /// The plan, such as `max`; `None` for an API key.
        pub subscription_type: Option<String> = "subscription_type",
        /// Whether the plan has limits.
        pub rate_limits_available: bool = "rate_limits_available",
        /// Those limits.
        pub rate_limits: Option<RateLimits> = "rate_limits",
        /// What uses them up, from the transcripts on this machine, for the last day and the last week. For a login of
        /// claude.ai only.
        pub behaviors: Option<Value> = "behaviors",
    }

    /// What a session came to.
    ///
    /// ```
    /// let usage: greenroom::requests::SessionUsage = serde_json::from_str(
    ///     r#"{"total_cost_usd": 0.5, "total_duration_ms": 502, "model_usage": {"m": {"inputTokens": 10}}}"#)?;
    /// assert_eq!(usage.model_usage["m"].input_tokens, 10);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct SessionUsage {
        /// The cost in US dollars, as the CLI reckons it.
        pub total_cost_usd: f64 = "total_cost_usd",
        /// The time that the API took, in milliseconds.
        pub total_api_duration_ms: u64 = "total_api_duration_ms",
        /// The time since the CLI was started, in milliseconds.
        pub total_duration_ms: u64 = "total_duration_ms",
        /// Lines of code added.
        pub total_lines_added: u64 = "total_lines_added",
        /// Lines of code removed.
        pub total_lines_removed: u64 = "total_lines_removed",
        /// By model.
        pub model_usage: BTreeMap<String, ModelUsage> = "model_usage",
    }

    /// How much of a plan's limits is used.
    ///
    /// ```
    /// let limits: greenroom::requests::RateLimits =
    ///     serde_json::from_str(r#"{"five_hour": {"utilization": 20, "resets_at": null}}"#)?;
    /// assert_eq!(limits.five_hour.unwrap().utilization, Some(20.0));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct RateLimits {
        /// Of five hours.
        pub five_hour: Option<RateLimitWindow> = "five_hour",
        /// Of seven days.
        pub seven_day: Option<RateLimitWindow> = "seven_day",
        /// Of seven days, for applications that log in by OAuth.
        pub seven_day_oauth_apps: Option<RateLimitWindow> = "seven_day_oauth_apps",
        /// Of seven days, for Opus.
        pub seven_day_opus: Option<RateLimitWindow> = "seven_day_opus",
        /// Of seven days, for Sonnet.
        pub seven_day_sonnet: Option<RateLimitWindow> = "seven_day_sonnet",
        /// Of seven days, for single models.
        pub model_scoped: Vec<RateLimitWindow> = "model_scoped",
        /// What is paid for beyond the plan: `is_enabled`, `monthly_limit`, `used_credits` and others.
        pub extra_usage: Option<Value> = "extra_usage",
    }

    /// A window of time with a limit.
    ///
    /// ```
    /// let window: greenroom::requests::RateLimitWindow =
    ///     serde_json::from_str(r#"{"utilization": 20, "resets_at": "2026-11-20T12:00:00Z"}"#)?;
    /// assert!(window.resets_at.is_some());
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct RateLimitWindow {
        /// How much of it is used, 0 to 100.
        pub utilization: Option<f64> = "utilization",
        /// When it begins anew (ISO 8601).
        pub resets_at: Option<String> = "resets_at",
        /// The model that it is for, for people.
        pub display_name: Option<String> = "display_name",
    }

    /// What the session cost, as a text for people.
    ///
    /// ```
    /// let cost: greenroom::requests::SessionCost = serde_json::from_str(r#"{"text": "Estimated cost: $0.0000"}"#)?;
    /// assert!(cost.text.contains("cost"));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct SessionCost {
        /// The text, of several lines.
        pub text: String = "text",
    }
}

words! {
    /// What tokens of the context window do.
    ///
    /// ```
    /// assert_eq!(greenroom::requests::ContextKind::from("free").as_str(), "free");
    /// ```
    pub enum ContextKind {
        /// They are in use.
        Used = "used",
        /// There is room for them.
        Free = "free",
        /// They are kept free for compaction.
        Buffer = "buffer",
        /// They stand outside of the window: tools that are loaded when the model looks for them.
        Deferred = "deferred",
    }

    /// How exactly the context window is measured.
    ///
    /// ```
    /// assert_eq!(greenroom::requests::ContextDetail::Full.as_str(), "full");
    /// ```
    pub enum ContextDetail {
        /// From the usage of the last answer and estimates, without asking the API.
        Summary = "summary",
        /// Each row counted by the API.
        Full = "full",
    }
}
