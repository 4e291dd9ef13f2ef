//! Messages that stand beside the conversation.

use std::fmt;
use std::ops::Deref;

use serde_json::value::RawValue;

use super::read::Head;
use super::view::{view, words};

/// A message whose fields are those of its body `T`, with what every message has beside them.
///
/// It dereferences to the body.
///
/// ```
/// use greenroom::Message;
///
/// let line = r#"{"type": "tool_progress", "uuid": "u1", "tool_name": "Bash", "elapsed_time_seconds": 2.5}"#;
/// let Message::ToolProgress(progress) = Message::parse(line)? else { unreachable!() };
/// assert_eq!((progress.uuid(), progress.tool_name.as_str()), (Some("u1"), "Bash"));
/// assert_eq!(progress.raw().get(), line);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone)]
pub struct Typed<T> {
    pub(super) head: Head,
    raw: Box<RawValue>,
    body: T,
}

impl<T> Typed<T> {
    pub(super) fn new(head: Head, raw: Box<RawValue>, body: T) -> Self {
        Self { head, raw, body }
    }

    /// The body.
    pub fn body(&self) -> &T {
        &self.body
    }
}

impl<T> Deref for Typed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.body
    }
}

impl<T: fmt::Debug> fmt::Debug for Typed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Typed").field("head", &self.head).field("body", &self.body).finish_non_exhaustive()
    }
}

super::common!(Typed<T>, T);

view! {
    /// A tool is still at work (`type` `tool_progress`).
    message ToolProgress:
        r#"{"tool_use_id": "toolu_1", "tool_name": "Bash", "elapsed_time_seconds": 2.5, "heartbeat": true}"#
        => r#"view.elapsed_time_seconds == 2.5 && view.heartbeat"#
    {
        /// The call.
        tool_use_id: String,
        /// The tool.
        tool_name: String,
        /// For how long, in seconds.
        elapsed_time_seconds: f64,
        /// The background task that it became.
        task_id: Option<String>,
        /// Whether it says nothing but that the tool is alive.
        heartbeat: bool,
        /// What kind of subagent it is, if the tool is one.
        subagent_type: Option<String>,
        /// The subagent waits before it asks the API again.
        subagent_retry: Option<SubagentRetry>,
    }

    /// A subagent waits before it asks the API again, in a [`ToolProgress`].
    part SubagentRetry: r#"{"agent_id": "a1", "attempt": 1, "max_retries": 10, "error_status": 529}"#
        => r#"view.error_status == Some(529)"#
    {
        /// The subagent.
        agent_id: String,
        /// Which attempt failed, from 1.
        attempt: u64,
        /// How often it is tried again at most.
        max_retries: u64,
        /// How long it waits, in milliseconds.
        retry_delay_ms: u64,
        /// The HTTP status; `None` if the API could not be reached.
        error_status: Option<u16>,
        /// Why it failed, as a word.
        error_category: String,
    }

    /// What some tool calls did, in a few words (`type` `tool_use_summary`).
    message ToolUseSummary: r#"{"summary": "read two files", "preceding_tool_use_ids": ["toolu_1"]}"#
        => r#"view.preceding_tool_use_ids == ["toolu_1"]"#
    {
        /// In words.
        summary: String,
        /// The calls.
        preceding_tool_use_ids: Vec<String>,
    }

    /// How a login goes (`type` `auth_status`).
    message AuthStatus: r#"{"isAuthenticating": true, "output": ["open this page"]}"#
        => r#"view.is_authenticating && view.output.len() == 1"#
    {
        /// Whether it goes on.
        is_authenticating: bool = "isAuthenticating",
        /// What it says.
        output: Vec<String>,
        /// Why it failed.
        error: Option<String>,
    }

    /// How much of a quota is left has changed (`type` `rate_limit_event`).
    message RateLimitEvent: r#"{"rate_limit_info": {"status": "allowed_warning", "utilization": 0.9}}"#
        => r#"view.rate_limit_info.status == greenroom::message::RateLimitStatus::AllowedWarning"#
    {
        /// How much.
        rate_limit_info: RateLimitInfo,
    }

    /// How much of a quota is left, in a [`RateLimitEvent`].
    part RateLimitInfo: r#"{"status": "rejected", "rateLimitType": "five_hour", "resetsAt": 1795175021}"#
        => r#"view.rate_limit_type.as_deref() == Some("five_hour")"#
    {
        /// Whether requests are allowed.
        status: RateLimitStatus,
        /// When the quota is full again, in seconds since 1970.
        resets_at: Option<u64> = "resetsAt",
        /// Which quota: `five_hour`, `seven_day`, `seven_day_opus`, `seven_day_sonnet`, `overage`, and others.
        rate_limit_type: Option<String> = "rateLimitType",
        /// How much of it is used, as a part of 1.
        utilization: Option<f64>,
        /// Whether requests beyond the quota are allowed.
        overage_status: Option<RateLimitStatus> = "overageStatus",
        /// When the quota beyond the quota is full again, in seconds since 1970.
        overage_resets_at: Option<u64> = "overageResetsAt",
        /// Why requests beyond the quota are not allowed, as a word.
        overage_disabled_reason: Option<String> = "overageDisabledReason",
        /// Whether requests go beyond the quota now.
        is_using_overage: Option<bool> = "isUsingOverage",
        /// Whether what is beyond the quota is in use.
        overage_in_use: Option<bool> = "overageInUse",
        /// Whether requests may go beyond the quota at all.
        overage_enabled: Option<bool> = "overageEnabled",
        /// Which part of the quota, as a part of 1, was just passed.
        surpassed_threshold: Option<f64> = "surpassedThreshold",
        /// What shares the quota: `service`, `channel`, `group_pool`.
        limit_scope: Option<String> = "limitScope",
        /// Why the request was rejected: `credits_required`.
        error_code: Option<String> = "errorCode",
        /// Whether the user may buy credits.
        can_user_purchase_credits: Option<bool> = "canUserPurchaseCredits",
        /// Whether there is a way to pay that is saved.
        has_chargeable_saved_payment_method: Option<bool> = "hasChargeableSavedPaymentMethod",
    }

    /// What the user may want to say next (`type` `prompt_suggestion`). It comes after the result.
    message PromptSuggestion: r#"{"suggestion": "run the tests"}"# => r#"view.suggestion == "run the tests""# {
        /// The prompt.
        suggestion: String,
    }

    /// The conversation begins anew (`type` `conversation_reset`), after `/clear` for example.
    ///
    /// The message itself still has the id of the old conversation; that of the new one stands in the `system/init`
    /// behind it. With CLI 2.1.328 it was seen to be another one than [`new_conversation_id`](Self::new_conversation_id).
    /// The totals of cost and usage in results begin at 0 again.
    message ConversationReset: r#"{"new_conversation_id": "s2", "trigger": "clear"}"#
        => r#"view.trigger == Some(greenroom::message::ResetTrigger::Clear)"#
    {
        /// An id for what comes after it.
        new_conversation_id: String,
        /// What set it off.
        trigger: Option<ResetTrigger>,
        /// When (RFC 3339).
        timestamp: Option<String>,
    }

    /// What the session works towards (`type` `active_goal`).
    message ActiveGoal: r#"{"value": {"condition": "the tests pass", "iterations": 2}}"#
        => r#"view.value.is_some_and(|goal| goal.condition == "the tests pass")"#
    {
        /// The goal; `None` if there is none any more.
        value: Option<Goal>,
    }

    /// A goal, in an [`ActiveGoal`].
    part Goal: r#"{"condition": "the tests pass", "iterations": 2}"# => r#"view.iterations == 2"# {
        /// When it is reached.
        condition: String,
        /// How often it was worked at.
        iterations: u64,
        /// When it was set, in milliseconds since 1970.
        set_at: u64,
        /// How many tokens were used when it was set.
        tokens_at_start: u64,
        /// Why it was not reached the last time.
        last_reason: Option<String>,
    }

    /// What becomes of a prompt (`type` `command_lifecycle`; the SDKs do not declare it). With CLI 2.1.328 each prompt
    /// was seen to be `queued`, `started`, and, after its result, `completed`.
    message CommandLifecycle: r#"{"command_uuid": "p1", "state": "started"}"#
        => r#"view.state == greenroom::message::CommandState::Started"#
    {
        /// The prompt: [`Turn::prompt_uuid`](crate::Turn::prompt_uuid).
        command_uuid: String,
        /// What becomes of it.
        state: CommandState,
        /// Whether it overtook others.
        ran_ahead: Option<bool>,
    }

    /// When the CLI will replace the conversation by a summary (`type` `autocompact_state`; the SDKs do not declare it).
    message AutocompactState: r#"{"value": {"enabled": true, "effective_window": 180000, "threshold": 167000}}"#
        => r#"view.value.threshold == Some(167_000)"#
    {
        /// When.
        value: Autocompact,
    }

    /// When the CLI will replace the conversation by a summary, in an [`AutocompactState`].
    part Autocompact: r#"{"enabled": false, "source": "settings"}"# => r#"!view.enabled"# {
        /// Whether it will at all.
        enabled: bool,
        /// The size of the context that can be used, in tokens.
        effective_window: Option<u64>,
        /// The size of the context at which it does, in tokens.
        threshold: Option<u64>,
        /// Whether the user cannot change it.
        enforced: Option<bool>,
        /// Who said so, as a word.
        source: Option<String>,
    }
}

words! {
    /// Whether requests are allowed, in a [`RateLimitInfo`].
    RateLimitStatus {
        /// They are.
        Allowed = "allowed",
        /// They are, and the quota is nearly used up.
        AllowedWarning = "allowed_warning",
        /// They are not.
        Rejected = "rejected",
    }

    /// What made a conversation begin anew, in a [`ConversationReset`].
    ResetTrigger {
        /// `/clear`.
        Clear = "clear",
        /// A plan was accepted.
        PlanModeExit = "plan_mode_exit",
        /// A fresh session was wanted.
        FreshSession = "fresh_session",
        /// The first steps of a new user.
        Onboarding = "onboarding",
    }

    /// What becomes of a prompt, in a [`CommandLifecycle`].
    CommandState {
        /// The CLI has it.
        Queued = "queued",
        /// The CLI works at it.
        Started = "started",
        /// The CLI is done with it.
        Completed = "completed",
        /// It was taken back.
        Cancelled = "cancelled",
    }
}
