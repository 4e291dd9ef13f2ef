//! Messages beside the conversation: progress, quotas, logins, goals.

use crate::wire::objects::objects;
use crate::wire::words::words;

objects! {
    /// A tool is still running (`type` `tool_progress`).
    message ToolProgress {
        tool_use_id: String,
        tool_name: String,
        /// Seconds since the tool was started.
        elapsed_time_seconds: f64,
        /// The background task that the call has become.
        task_id: Option<String>,
        /// The message only says that the tool is alive.
        heartbeat: bool,
        /// The kind of subagent, if the tool runs one.
        subagent_type: Option<String>,
        subagent_retry: Option<SubagentRetry>,
    }

    /// A subagent waits before it sends a failed API request again, in a [`ToolProgress`].
    part SubagentRetry {
        agent_id: String,
        /// The attempt that failed, from 1.
        attempt: u64,
        max_retries: u64,
        retry_delay_ms: u64,
        /// The HTTP status; `None` if the API could not be reached.
        error_status: Option<u16>,
        error_category: String,
    }

    /// A summary of several tool calls, in a few words (`type` `tool_use_summary`).
    message ToolUseSummary {
        summary: String,
        /// The calls that the summary covers.
        preceding_tool_use_ids: Vec<String>,
    }

    /// Progress of a login (`type` `auth_status`).
    message AuthStatus {
        is_authenticating: bool = "isAuthenticating",
        /// Lines for the user, such as an address to open.
        output: Vec<String>,
        error: Option<String>,
    }

    /// The state of a quota has changed (`type` `rate_limit_event`).
    message RateLimitEvent {
        rate_limit_info: RateLimitInfo,
    }

    /// The state of a quota, in a [`RateLimitEvent`]. "Overage" is use beyond the quota, which is billed.
    part RateLimitInfo {
        status: RateLimitStatus,
        /// When the quota is full again, in seconds since 1970.
        resets_at: Option<u64> = "resetsAt",
        /// `five_hour`, `seven_day`, `seven_day_opus`, `seven_day_sonnet`, `overage`, and others.
        rate_limit_type: Option<String> = "rateLimitType",
        /// The used part of the quota, 0 to 1.
        utilization: Option<f64>,
        overage_status: Option<RateLimitStatus> = "overageStatus",
        /// In seconds since 1970.
        overage_resets_at: Option<u64> = "overageResetsAt",
        overage_disabled_reason: Option<String> = "overageDisabledReason",
        is_using_overage: Option<bool> = "isUsingOverage",
        overage_in_use: Option<bool> = "overageInUse",
        overage_enabled: Option<bool> = "overageEnabled",
        /// The threshold, 0 to 1, that was just passed.
        surpassed_threshold: Option<f64> = "surpassedThreshold",
        /// `service`, `channel` or `group_pool`.
        limit_scope: Option<String> = "limitScope",
        /// `credits_required`, if a request was rejected for that.
        error_code: Option<String> = "errorCode",
        can_user_purchase_credits: Option<bool> = "canUserPurchaseCredits",
        has_chargeable_saved_payment_method: Option<bool> = "hasChargeableSavedPaymentMethod",
    }

    /// A prompt that the user may want to send next (`type` `prompt_suggestion`). Comes after the result.
    message PromptSuggestion {
        suggestion: String,
    }

    /// The conversation was cleared and starts over (`type` `conversation_reset`), for example after `/clear`.
    ///
    /// This message still carries the session id of the old conversation; the next `system/init` has the new id, which
    /// with CLI 2.1.328 differs from [`new_conversation_id`](Self::new_conversation_id). Totals of cost and usage in
    /// results start at 0 again.
    message ConversationReset {
        new_conversation_id: String,
        /// `clear`, `plan_mode_exit` and others.
        trigger: Option<String>,
        /// RFC 3339.
        timestamp: Option<String>,
    }

    /// The goal of the session has changed (`type` `active_goal`). Without a value there is no goal any more.
    message ActiveGoal {
        value: Option<Goal>,
    }

    /// A goal, in an [`ActiveGoal`].
    part Goal {
        /// The goal is reached when this holds.
        condition: String,
        /// Attempts so far.
        iterations: u64,
        /// Milliseconds since 1970.
        set_at: u64,
        /// Tokens used before the goal was set.
        tokens_at_start: u64,
        /// Why the last attempt did not reach the goal.
        last_reason: Option<String>,
    }

    /// The state of a prompt in the CLI's queue (`type` `command_lifecycle`; undeclared in the SDKs). With CLI 2.1.328
    /// each prompt is `queued`, `started` and, after its result, `completed`.
    message CommandLifecycle {
        /// The prompt: [`Turn::prompt_uuid`](crate::Turn::prompt_uuid).
        command_uuid: String,
        state: CommandState,
    }
}

words! {
    /// Whether requests are allowed, in a [`RateLimitInfo`].
    pub enum RateLimitStatus or "" {
        Allowed = "allowed",
        /// Requests are allowed, and the quota is nearly used up.
        AllowedWarning = "allowed_warning",
        Rejected = "rejected",
    }

    /// The state of a prompt, in a [`CommandLifecycle`].
    pub enum CommandState or "" {
        Queued = "queued",
        Started = "started",
        Completed = "completed",
        Cancelled = "cancelled",
    }
}
