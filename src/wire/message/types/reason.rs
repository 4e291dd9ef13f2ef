//! Reasons of errors and of ends, as enums of the CLI's words.

use crate::wire::words::words;

words! {
    /// Reason of a failed API call, in an [`AssistantMessage`](crate::message::AssistantMessage) and an
    /// [`ApiRetry`](crate::message::ApiRetry).
    pub enum ApiErrorKind or "" {
        /// The key or the login was rejected.
        AuthenticationFailed = "authentication_failed",
        /// The organization does not allow this kind of login.
        OauthOrgNotAllowed = "oauth_org_not_allowed",
        AccountOnHold = "account_on_hold",
        /// The account must be verified first.
        VerificationRequired = "verification_required",
        /// Payment is required or failed.
        BillingError = "billing_error",
        /// Too many requests, or the quota is used up.
        RateLimit = "rate_limit",
        Overloaded = "overloaded",
        /// The API rejected the request as invalid.
        InvalidRequest = "invalid_request",
        ModelNotFound = "model_not_found",
        ServerError = "server_error",
        Unknown = "unknown",
        /// The answer reached the output limit of the model.
        MaxOutputTokens = "max_output_tokens",
        /// The credentials of the cloud provider are invalid.
        CloudCredentialError = "cloud_credential_error",
    }

    /// Reason for the end of a turn, in a [`ResultMessage`](crate::message::ResultMessage).
    pub enum TerminalReason or "" {
        /// The model finished its answer.
        Completed = "completed",
        /// The limit of steps, `max_turns`, was reached.
        MaxTurns = "max_turns",
        /// The limit of cost, `max_budget_usd`, was reached.
        BudgetExhausted = "budget_exhausted",
        /// The turn was interrupted while the model was writing.
        AbortedStreaming = "aborted_streaming",
        /// The turn was interrupted during tool calls.
        AbortedTools = "aborted_tools",
        /// A `Stop` hook ended the turn.
        StopHookPrevented = "stop_hook_prevented",
        /// Another hook ended the turn.
        HookStopped = "hook_stopped",
        /// A tool call was deferred: see [`deferred_tool_use`](crate::message::ResultMessage::deferred_tool_use).
        ToolDeferred = "tool_deferred",
        ToolDeferredUnavailable = "tool_deferred_unavailable",
        /// The context window is full.
        BlockingLimit = "blocking_limit",
        /// The context was full again right after each compaction.
        RapidRefillBreaker = "rapid_refill_breaker",
        /// The prompt is larger than the context window.
        PromptTooLong = "prompt_too_long",
        ImageError = "image_error",
        ModelError = "model_error",
        /// The API failed after all retries.
        ApiError = "api_error",
        /// The model kept writing tool calls that cannot be parsed.
        MalformedToolUseExhausted = "malformed_tool_use_exhausted",
        BackgroundRequested = "background_requested",
        /// The model's structured output stayed invalid after all retries.
        StructuredOutputRetryExhausted = "structured_output_retry_exhausted",
        TurnSetupFailed = "turn_setup_failed",
    }
}

impl TerminalReason {
    /// Whether the turn was interrupted: any word that starts with `aborted`.
    pub fn is_aborted(&self) -> bool {
        self.as_str().starts_with("aborted")
    }
}
