//! Notices for the user: hooks, retries, refusals, plugins, commands, permissions. The CLI tells of the hooks of
//! `SessionStart` and `Setup` always, and of all others with `--include-hook-events`.

use crate::wire::message::types::reason::ApiErrorKind;
use crate::wire::objects::objects;

objects! {
    /// A hook was started (`system` / `hook_started`).
    message HookStarted {
        /// This run of the hook.
        hook_id: String,
        /// The event and the matcher, such as `PreToolUse:Bash`.
        hook_name: String,
        hook_event: String,
    }

    /// Output of a running hook (`system` / `hook_progress`). Each field holds all output so far; `output` is stdout
    /// and stderr together.
    message HookProgress {
        /// This run of the hook.
        hook_id: String,
        hook_name: String,
        hook_event: String,
        stdout: String,
        stderr: String,
        output: String,
    }

    /// A hook ended (`system` / `hook_response`).
    message HookResponse {
        /// This run of the hook.
        hook_id: String,
        hook_name: String,
        hook_event: String,
        stdout: String,
        stderr: String,
        /// The hook's answer.
        output: String,
        exit_code: Option<i64>,
        /// `success`, `error` or `cancelled`.
        outcome: String,
    }

    /// A failed API request will be sent again (`system` / `api_retry`).
    message ApiRetry {
        /// The attempt that failed, from 1.
        attempt: u64,
        max_retries: u64,
        retry_delay_ms: u64,
        /// The HTTP status; `None` if the API could not be reached.
        error_status: Option<u16>,
        error: ApiErrorKind,
        /// Set if the API did not answer.
        no_response: Option<NoResponse>,
    }

    /// Waiting time of the CLI for an API that did not answer, in an [`ApiRetry`].
    part NoResponse {
        waited_ms: u64,
        /// Next waiting time.
        retry_wait_ms: u64,
    }

    /// A control request of the host is still being worked on (`system` / `control_request_progress`).
    message ControlRequestProgress {
        request_id: String,
        /// `started` or `api_retry`; the other fields are set for `api_retry`.
        status: String,
        /// The attempt that failed, from 1.
        attempt: Option<u64>,
        max_retries: Option<u64>,
        retry_delay_ms: Option<u64>,
        error_status: Option<u16>,
    }

    /// The model refused, and the turn goes on with another model (`system` / `model_refusal_fallback`).
    message ModelRefusalFallback {
        /// `refusal`.
        trigger: String,
        /// `retry`: the other model answers now. `revert`: back to the original model. `sticky`: the other model stays.
        direction: String,
        /// How far the change reaches: `session` or `local`.
        scope: Option<String>,
        original_model: String,
        fallback_model: String,
        /// The request to the API.
        request_id: Option<String>,
        api_refusal_category: Option<String>,
        api_refusal_explanation: Option<String>,
        /// Uuids of messages that should no longer be shown.
        retracted_message_uuids: Vec<String>,
        refused_user_message_uuid: Option<String>,
        /// Text for the user.
        content: String,
    }

    /// The model refused, and there is no other model to go on with (`system` / `model_refusal_no_fallback`).
    message ModelRefusalNoFallback {
        original_model: String,
        /// The request to the API.
        request_id: Option<String>,
        api_refusal_category: Option<String>,
        api_refusal_explanation: Option<String>,
        refused_user_message_uuid: Option<String>,
        /// Text for the user.
        content: String,
    }

    /// Output of a slash command (`system` / `local_command_output`).
    message LocalCommandOutput {
        content: String,
    }

    /// A line for the user (`system` / `informational`).
    message Informational {
        content: String,
        /// `info`, `notice`, `suggestion` or `warning`.
        level: String,
        /// The tool call that the line is about.
        tool_use_id: Option<String>,
        /// The turn ends here.
        prevent_continuation: Option<bool>,
        /// The subject, as a word.
        tag: Option<String>,
    }

    /// A short notice that disappears by itself (`system` / `notification`).
    message Notification {
        /// A later notice with the same key replaces this notice.
        key: String,
        text: String,
        /// `low`, `medium`, `high` or `immediate`.
        priority: String,
        /// A colour, by name.
        color: Option<String>,
        /// Display time.
        timeout_ms: Option<u64>,
    }

    /// Progress of installing plugins (`system` / `plugin_install`).
    message PluginInstall {
        /// `started`; for a plugin `installed` or `failed`; `completed` when all are done.
        status: String,
        /// The plugin.
        name: Option<String>,
        error: Option<String>,
    }

    /// The list of slash commands has changed (`system` / `commands_changed`). This list replaces earlier ones.
    message CommandsChanged {
        commands: Vec<SlashCommand>,
    }

    /// A slash command or a skill.
    part SlashCommand {
        /// The name, without the slash.
        name: String,
        description: String,
        /// The arguments, for people, such as `[what]`.
        argument_hint: String = "argumentHint",
        aliases: Vec<String>,
        /// The command is part of the CLI.
        builtin: Option<bool>,
    }

    /// Files were stored (`system` / `files_persisted`).
    message FilesPersisted {
        files: Vec<PersistedFile>,
        /// Files that could not be stored.
        failed: Vec<FailedFile>,
        /// RFC 3339.
        processed_at: String,
    }

    /// A stored file, in a [`FilesPersisted`].
    part PersistedFile {
        filename: String,
        file_id: String,
    }

    /// A file that could not be stored, in a [`FilesPersisted`].
    part FailedFile {
        filename: String,
        error: String,
    }

    /// The CLI looked something up in its memory (`system` / `memory_recall`).
    message MemoryRecall {
        /// `select`: whole files. `synthesize`: a summary of them.
        mode: String,
        memories: Vec<Memory>,
    }

    /// A memory, in a [`MemoryRecall`].
    part Memory {
        /// The file.
        path: String,
        /// `personal`, `team` or `organization`.
        scope: String,
        content: Option<String>,
    }

    /// An elicitation of an MCP server that was answered elsewhere is complete (`system` / `elicitation_complete`).
    message ElicitationComplete {
        mcp_server_name: String,
        elicitation_id: String,
    }

    /// A tool call was denied (`system` / `permission_denied`). The authoritative list is
    /// [`ResultMessage::permission_denials`](crate::message::ResultMessage::permission_denials).
    message PermissionDenied {
        tool_name: String,
        tool_use_id: String,
        /// The subagent that made the call.
        agent_id: Option<String>,
        /// `rule`, `mode`, `hook` and others.
        decision_reason_type: Option<String>,
        decision_reason: Option<String>,
        /// Text for the model.
        message: String,
    }
}
