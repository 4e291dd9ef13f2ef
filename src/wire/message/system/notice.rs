//! What the user may want to know.

use serde_json::Value;

use crate::wire::message::reason::ApiErrorKind;
use crate::wire::message::view::{view, words};

view! {
    /// A failed request to the API is tried again (`system` / `api_retry`).
    message ApiRetry: r#"{"attempt": 1, "max_retries": 10, "retry_delay_ms": 512.5, "error": "overloaded"}"#
        => r#"view.error == greenroom::message::ApiErrorKind::Overloaded && view.retry_delay_ms == 513"#
    {
        /// Which attempt failed, from 1.
        attempt: u64,
        /// How often it is tried again at most.
        max_retries: u64,
        /// How long the CLI waits before, in milliseconds.
        retry_delay_ms: u64,
        /// The HTTP status; `None` if the API could not be reached.
        error_status: Option<u16>,
        /// Why it failed.
        error: ApiErrorKind,
        /// If the API did not answer: how long the CLI waited.
        no_response: Option<NoResponse>,
    }

    /// How long the CLI waited for an API that did not answer, in an [`ApiRetry`].
    part NoResponse: r#"{"waited_ms": 60000, "retry_wait_ms": 120000}"# => r#"view.waited_ms == 60_000"# {
        /// How long it waited, in milliseconds.
        waited_ms: u64,
        /// How long it will wait the next time, in milliseconds.
        retry_wait_ms: u64,
    }

    /// A control request of the host takes its time (`system` / `control_request_progress`).
    message ControlRequestProgress: r#"{"request_id": "r1", "status": "started"}"# => r#"view.request_id == "r1""# {
        /// The request.
        request_id: String,
        /// `started`, or `api_retry`.
        status: String,
        /// Which attempt failed, from 1.
        attempt: Option<u64>,
        /// How often it is tried again at most.
        max_retries: Option<u64>,
        /// How long the CLI waits before, in milliseconds.
        retry_delay_ms: Option<u64>,
        /// The HTTP status.
        error_status: Option<u16>,
    }

    /// The model refused, and another one goes on (`system` / `model_refusal_fallback`).
    message ModelRefusalFallback:
        r#"{"original_model": "a", "fallback_model": "b", "retracted_message_uuids": ["u1"]}"#
        => r#"view.fallback_model == "b" && view.retracted_message_uuids == ["u1"]"#
    {
        /// Why: `refusal`.
        trigger: String,
        /// `retry`: the other model answers now. `revert`: back to the original one. `sticky`: the other one stays.
        direction: String,
        /// How far it goes: `session` or `local`.
        scope: Option<String>,
        /// The model that refused.
        original_model: String,
        /// The model that goes on.
        fallback_model: String,
        /// The request to the API.
        request_id: Option<String>,
        /// Why the API refused, as a word.
        api_refusal_category: Option<String>,
        /// Why the API refused, in words.
        api_refusal_explanation: Option<String>,
        /// Messages that should no longer be shown: see [`Message::supersedes`](crate::Message::supersedes).
        retracted_message_uuids: Vec<String>,
        /// The prompt that was refused.
        refused_user_message_uuid: Option<String>,
        /// What to tell the user.
        content: String,
    }

    /// The model refused, and no other one goes on (`system` / `model_refusal_no_fallback`).
    message ModelRefusalNoFallback: r#"{"original_model": "a", "content": "refused"}"# => r#"view.content == "refused""# {
        /// The model that refused.
        original_model: String,
        /// The request to the API.
        request_id: Option<String>,
        /// Why the API refused, as a word.
        api_refusal_category: Option<String>,
        /// Why the API refused, in words.
        api_refusal_explanation: Option<String>,
        /// The prompt that was refused.
        refused_user_message_uuid: Option<String>,
        /// What to tell the user.
        content: String,
    }

    /// What a slash command wrote (`system` / `local_command_output`).
    message LocalCommandOutput: r#"{"content": "done"}"# => r#"view.content == "done""# {
        /// The text.
        content: String,
    }

    /// A line for the user (`system` / `informational`).
    message Informational: r#"{"content": "hm", "level": "notice"}"#
        => r#"view.level == greenroom::message::NoticeLevel::Notice"#
    {
        /// The text.
        content: String,
        /// How important it is.
        level: NoticeLevel,
        /// The tool call that it is about.
        tool_use_id: Option<String>,
        /// Whether the turn ends with it.
        prevent_continuation: Option<bool>,
        /// What it is about, as a word.
        tag: Option<String>,
    }

    /// A short notice that goes away by itself (`system` / `notification`).
    message Notification: r#"{"key": "k", "text": "t", "priority": "low", "timeout_ms": 5000}"#
        => r#"view.priority == greenroom::message::Priority::Low && view.timeout_ms == Some(5000)"#
    {
        /// A later one with the same key replaces it.
        key: String,
        /// The text.
        text: String,
        /// How urgent it is.
        priority: Priority,
        /// A colour, by name.
        color: Option<String>,
        /// How long to show it, in milliseconds.
        timeout_ms: Option<u64>,
    }

    /// A plugin is installed (`system` / `plugin_install`).
    message PluginInstall: r#"{"status": "installed", "name": "notes"}"#
        => r#"view.status == greenroom::message::PluginInstallStatus::Installed"#
    {
        /// How far it is.
        status: PluginInstallStatus,
        /// The plugin.
        name: Option<String>,
        /// Why it failed.
        error: Option<String>,
    }

    /// The slash commands there are now (`system` / `commands_changed`). It replaces what was said before.
    message CommandsChanged: r#"{"commands": [{"name": "compact", "argumentHint": ""}]}"#
        => r#"view.commands[0].name == "compact""#
    {
        /// The commands.
        commands: Vec<SlashCommand>,
    }

    /// A slash command in a [`CommandsChanged`].
    part SlashCommand: r#"{"name": "compact", "description": "Shorten", "argumentHint": "[what]"}"#
        => r#"view.argument_hint == "[what]""#
    {
        /// Its name, without the slash.
        name: String,
        /// What it does.
        description: String,
        /// What stands behind it.
        argument_hint: String = "argumentHint",
        /// Other names of it.
        aliases: Vec<String>,
        /// Whether it is part of the CLI.
        builtin: Option<bool>,
    }

    /// Files were stored (`system` / `files_persisted`).
    message FilesPersisted: r#"{"files": [{"filename": "a", "file_id": "f"}], "processed_at": "2026-01-02"}"#
        => r#"view.files[0].file_id == "f""#
    {
        /// Those that were.
        files: Vec<PersistedFile>,
        /// Those that were not.
        failed: Vec<FailedFile>,
        /// When (RFC 3339).
        processed_at: String,
    }

    /// A file that was stored, in a [`FilesPersisted`].
    part PersistedFile: r#"{"filename": "a", "file_id": "f"}"# => r#"view.filename == "a""# {
        /// The file.
        filename: String,
        /// Its id.
        file_id: String,
    }

    /// A file that was not stored, in a [`FilesPersisted`].
    part FailedFile: r#"{"filename": "a", "error": "too large"}"# => r#"view.error == "too large""# {
        /// The file.
        filename: String,
        /// Why not.
        error: String,
    }

    /// The CLI remembered something (`system` / `memory_recall`).
    message MemoryRecall: r#"{"mode": "select", "memories": [{"path": "m", "scope": "personal"}]}"#
        => r#"view.memories[0].scope == "personal""#
    {
        /// `select`: files as they are. `synthesize`: what they come to.
        mode: String,
        /// What it remembered.
        memories: Vec<Memory>,
    }

    /// Something that the CLI remembered, in a [`MemoryRecall`].
    part Memory: r#"{"path": "m", "scope": "team"}"# => r#"view.path == "m""# {
        /// The file.
        path: String,
        /// Whose it is: `personal`, `team`, `organization`.
        scope: String,
        /// What it says.
        content: Option<String>,
    }

    /// A question of an MCP server that was answered elsewhere is done (`system` / `elicitation_complete`).
    message ElicitationComplete: r#"{"mcp_server_name": "calc", "elicitation_id": "e1"}"#
        => r#"view.elicitation_id == "e1""#
    {
        /// The server.
        mcp_server_name: String,
        /// The question.
        elicitation_id: String,
    }

    /// A tool call was not allowed (`system` / `permission_denied`). The authoritative list is
    /// [`ResultMessage::permission_denials`](crate::ResultMessage::permission_denials).
    message PermissionDenied: r#"{"tool_name": "Bash", "tool_use_id": "toolu_1", "message": "no"}"#
        => r#"view.tool_name == "Bash""#
    {
        /// The tool.
        tool_name: String,
        /// The call.
        tool_use_id: String,
        /// The subagent that made it.
        agent_id: Option<String>,
        /// What kind of reason it is, as a word: `rule`, `mode`, `hook` and others.
        decision_reason_type: Option<String>,
        /// The reason, in words.
        decision_reason: Option<String>,
        /// What the model reads.
        message: String,
    }

    /// The user allowed a call too late, and it was not run (`system` / `late_allow_not_run`; the SDKs do not declare
    /// it).
    message LateAllowNotRun: r#"{"request_id": "r1", "tool_use_id": "toolu_1"}"# => r#"view.request_id == "r1""# {
        /// The request for the permission.
        request_id: String,
        /// The call.
        tool_use_id: Option<String>,
        /// Why it was not run.
        reason: Option<Value>,
    }
}

words! {
    /// How important a line for the user is, in an [`Informational`].
    NoticeLevel {
        /// It may be passed over.
        Info = "info",
        /// It is worth reading.
        Notice = "notice",
        /// It suggests something.
        Suggestion = "suggestion",
        /// It warns.
        Warning = "warning",
    }

    /// How urgent a [`Notification`] is.
    Priority {
        /// It can wait.
        Low = "low",
        /// It is to be seen.
        Medium = "medium",
        /// It is to be seen soon.
        High = "high",
        /// It is to be seen at once.
        Immediate = "immediate",
    }

    /// How far the installation of a plugin is, in a [`PluginInstall`].
    PluginInstallStatus {
        /// It has begun.
        Started = "started",
        /// This plugin is there.
        Installed = "installed",
        /// This plugin could not be installed.
        Failed = "failed",
        /// All are done.
        Completed = "completed",
    }
}
