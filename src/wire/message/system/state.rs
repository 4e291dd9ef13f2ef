//! What the session does, and what becomes of the conversation.

use serde_json::Value;

use crate::wire::message::view::{view, words};

view! {
    /// What the session does now (`system` / `session_state_changed`).
    message SessionStateChanged: r#"{"state": "idle", "sdk_host_only": true}"#
        => r#"view.state == greenroom::SessionState::Idle && view.sdk_host_only"#
    {
        /// What it does.
        state: SessionState,
        /// Whether it is meant for the library and not for its user.
        sdk_host_only: bool,
    }

    /// What the CLI does at this moment (`system` / `status`).
    message SessionStatus: r#"{"status": null, "compact_result": "failed", "compact_error": "too_few_groups"}"#
        => r#"view.status.is_none() && view.compact_error.as_deref() == Some("too_few_groups")"#
    {
        /// `None`: nothing in particular.
        status: Option<Activity>,
        /// The permission mode, if that is what has changed.
        permission_mode: Option<String> = "permissionMode",
        /// How a compaction ended: `success` or `failed`.
        compact_result: Option<String>,
        /// Why it failed.
        compact_error: Option<String>,
        /// How long its summary is.
        compact_output_chars: Option<u64>,
    }

    /// The conversation before this message was replaced by a summary (`system` / `compact_boundary`).
    message CompactBoundary: r#"{"compact_metadata": {"trigger": "manual", "pre_tokens": 19}}"#
        => r#"view.compact_metadata.pre_tokens == 19"#
    {
        /// What was done.
        compact_metadata: CompactMetadata,
        /// The last message before it.
        logical_parent_uuid: Option<String>,
    }

    /// What a compaction did, in a [`CompactBoundary`].
    part CompactMetadata: r#"{"trigger": "auto", "pre_tokens": 752505, "post_tokens": 2593}"#
        => r#"view.trigger == greenroom::message::CompactTrigger::Auto && view.post_tokens == Some(2593)"#
    {
        /// Who wanted it.
        trigger: CompactTrigger,
        /// Tokens in the context before.
        pre_tokens: u64,
        /// Tokens in the context after.
        post_tokens: Option<u64>,
        /// Tokens that all compactions together took out of the context.
        cumulative_dropped_tokens: Option<u64>,
        /// How long it took, in milliseconds.
        duration_ms: Option<u64>,
        /// The messages that were kept as they are, as a range.
        preserved_segment: Option<PreservedSegment>,
        /// The messages that were kept as they are, one by one.
        preserved_messages: Option<PreservedMessages>,
    }

    /// A range of messages that a compaction kept, by their uuids.
    part PreservedSegment: r#"{"head_uuid": "u1", "anchor_uuid": "u0", "tail_uuid": "u2"}"#
        => r#"view.tail_uuid == "u2""#
    {
        /// The first.
        head_uuid: String,
        /// After which message they stand now.
        anchor_uuid: String,
        /// The last.
        tail_uuid: String,
    }

    /// Messages that a compaction kept, by their uuids.
    part PreservedMessages: r#"{"anchor_uuid": "u0", "uuids": ["u1", "u2"]}"# => r#"view.uuids.len() == 2"# {
        /// After which message they stand now.
        anchor_uuid: String,
        /// Those that are shown.
        uuids: Vec<String>,
        /// All of them (seen with CLI 2.1.328).
        all_uuids: Vec<String>,
    }

    /// How much the model has thought so far (`system` / `thinking_tokens`).
    message ThinkingTokens: r#"{"estimated_tokens": 5, "estimated_tokens_delta": 2}"#
        => r#"view.estimated_tokens == 5"#
    {
        /// Tokens since the message began, as an estimate.
        estimated_tokens: u64,
        /// How many of them are new.
        estimated_tokens_delta: u64,
    }

    /// The CLI is going to end (`system` / `worker_shutting_down`).
    message WorkerShuttingDown: r#"{"reason": "drain"}"# => r#"view.reason == "drain""# {
        /// Why.
        reason: String,
    }

    /// The disk is full: something was not written down (`system` / `session_writes_lost`). It comes after the last
    /// result.
    message SessionWritesLost: r#"{"error_code": "ENOSPC", "lost": ["transcript"]}"#
        => r#"view.error_code == "ENOSPC" && view.lost == ["transcript"]"#
    {
        /// `ENOSPC` or `EDQUOT`.
        error_code: String,
        /// What was lost: `transcript`, `global_config`.
        lost: Vec<String>,
        /// The conversations that are not written down whole.
        transcript_session_ids: Vec<String>,
    }

    /// A copy of the transcript could not be stored (`system` / `mirror_error`).
    message MirrorError: r#"{"error": "refused", "key": {"projectKey": "p", "sessionId": "s1"}}"#
        => r#"view.key.session_id == "s1""#
    {
        /// What went wrong.
        error: String,
        /// Which transcript.
        key: MirrorKey,
    }

    /// Which transcript could not be stored, in a [`MirrorError`].
    part MirrorKey: r#"{"projectKey": "p", "sessionId": "s1", "subpath": "subagents/a1"}"#
        => r#"view.subpath.as_deref() == Some("subagents/a1")"#
    {
        /// The project.
        project_key: String = "projectKey",
        /// The conversation.
        session_id: String = "sessionId",
        /// The part of it, such as a subagent.
        subpath: Option<String>,
    }

    /// What a turn came to, in a few words (`system` / `post_turn_summary`; the SDKs do not declare it).
    message PostTurnSummary: r#"{"summarizes_uuid": "u1", "status_category": "done", "needs_action": null}"#
        => r#"view.summarizes_uuid.as_deref() == Some("u1") && view.needs_action.is_none()"#
    {
        /// The last message that it covers.
        summarizes_uuid: Option<String>,
        /// How things stand, as a word.
        status_category: Option<String>,
        /// How things stand, in words.
        status_detail: Option<String>,
        /// What the user has to do.
        needs_action: Option<Value>,
    }

    /// What the session is about (`system` / `task_summary`; the SDKs do not declare it).
    message TaskSummary: r#"{"detail": "adds numbers"}"# => r#"view.detail.is_some()"# {
        /// In words, or `None` if there is nothing to say.
        detail: Option<Value>,
    }

    /// Something that is kept with the session (`system` / `session_metadata`; the SDKs do not declare it).
    message SessionMetadata: r#"{"metadata": {"artifacts": []}}"# => r#"view.metadata.is_some()"# {
        /// By name, such as `artifacts`.
        metadata: Option<Value>,
    }

    /// The session has another title (`system` / `session_title_changed`; the SDKs do not declare it).
    message SessionTitleChanged: r#"{"title": "Sums"}"# => r#"view.title.as_deref() == Some("Sums")"# {
        /// The title.
        title: Option<String>,
    }

    /// Something about the repository has changed (`system` / `vcs_state_changed`; the SDKs do not declare it).
    message VcsStateChanged: r#"{"kind": "branch", "branch": "main", "cwd": "/srv"}"#
        => r#"view.branch.as_deref() == Some("main")"#
    {
        /// What, as a word.
        kind: String,
        /// The branch.
        branch: Option<String>,
        /// Where.
        cwd: Option<String>,
    }

    /// An effort that was set for one turn begins or ends (`system` / `per_turn_effort_changed`; the SDKs do not
    /// declare it).
    message PerTurnEffortChanged: r#"{"per_turn_effort_active": false}"# => r#"!view.per_turn_effort_active"# {
        /// Whether there is one.
        per_turn_effort_active: bool,
    }
}

words! {
    /// What the session does now.
    SessionState {
        /// It waits for a prompt.
        Idle = "idle",
        /// It works.
        Running = "running",
        /// It waits for an answer of the host, such as a permission.
        RequiresAction = "requires_action",
    }

    /// What the CLI does at this moment, in a [`SessionStatus`].
    Activity {
        /// It replaces the conversation by a summary.
        Compacting = "compacting",
        /// It asks the API.
        Requesting = "requesting",
    }

    /// Who wanted a compaction, in a [`CompactMetadata`].
    CompactTrigger {
        /// The user: `/compact`.
        Manual = "manual",
        /// The CLI, because the context was full.
        Auto = "auto",
    }
}
