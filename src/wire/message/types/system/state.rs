//! The state of the session, and changes to its conversation.

use crate::wire::objects::objects;
use crate::wire::words::words;

objects! {
    /// The session became idle or busy (`system` / `session_state_changed`).
    message SessionStateChanged {
        state: SessionState,
        /// The message is meant for this library, not for the application.
        sdk_host_only: bool,
    }

    /// The CLI's current activity (`system` / `status`).
    message SessionStatus {
        /// `compacting`, or `requesting` while the CLI waits for the API; `None` if nothing special is going on.
        status: Option<String>,
        /// The permission mode, if it has changed.
        permission_mode: Option<String> = "permissionMode",
        /// `success` or `failed`, after a compaction.
        compact_result: Option<String>,
        compact_error: Option<String>,
    }

    /// The conversation before this message was replaced by a summary (`system` / `compact_boundary`).
    message CompactBoundary {
        compact_metadata: CompactMetadata,
    }

    /// A compaction, in a [`CompactBoundary`].
    part CompactMetadata {
        /// `manual` for the command `/compact`, `auto` if the context was full.
        trigger: String,
        /// Tokens in the context before the compaction.
        pre_tokens: u64,
        /// Tokens in the context after the compaction.
        post_tokens: Option<u64>,
        duration_ms: Option<u64>,
        /// The messages that were kept, as a range.
        preserved_segment: Option<PreservedSegment>,
        /// The messages that were kept, one by one.
        preserved_messages: Option<PreservedMessages>,
    }

    /// A range of messages that a compaction kept.
    part PreservedSegment {
        /// The first message.
        head_uuid: String,
        /// The range now follows this message.
        anchor_uuid: String,
        /// The last message.
        tail_uuid: String,
    }

    /// Messages that a compaction kept.
    part PreservedMessages {
        /// The messages now follow this message.
        anchor_uuid: String,
        /// The messages that are shown.
        uuids: Vec<String>,
    }

    /// Estimate of how much the model has thought (`system` / `thinking_tokens`).
    message ThinkingTokens {
        /// Tokens since the message was started.
        estimated_tokens: u64,
        /// Tokens since the last estimate.
        estimated_tokens_delta: u64,
    }

    /// The CLI is about to exit (`system` / `worker_shutting_down`).
    message WorkerShuttingDown {
        reason: String,
    }

    /// The disk is full and something was not written (`system` / `session_writes_lost`). Comes after the last result.
    message SessionWritesLost {
        /// `ENOSPC` or `EDQUOT`.
        error_code: String,
        /// `transcript` or `global_config`.
        lost: Vec<String>,
        /// Conversations whose transcript is incomplete.
        transcript_session_ids: Vec<String>,
    }

    /// Entries of a transcript could not be mirrored (`system` / `mirror_error`).
    message MirrorError {
        error: String,
        key: MirrorKey,
    }

    /// The transcript of a [`MirrorError`].
    part MirrorKey {
        project_key: String = "projectKey",
        session_id: String = "sessionId",
        /// Part of the conversation, such as `subagents/a1`.
        subpath: Option<String>,
    }
}

words! {
    /// The state of the session.
    pub enum SessionState or "" {
        /// The session waits for a prompt.
        Idle = "idle",
        Running = "running",
        /// The session waits for an answer of the host, such as a permission.
        RequiresAction = "requires_action",
    }
}
