//! Why something failed or ended, in the CLI's words.

use super::view::words;

words! {
    /// Why an API call failed, in an [`AssistantMessage`](crate::AssistantMessage) and an
    /// [`ApiRetry`](crate::message::ApiRetry).
    ApiErrorKind {
        /// The key or the login was refused.
        AuthenticationFailed = "authentication_failed",
        /// The organization may not log in this way.
        OauthOrgNotAllowed = "oauth_org_not_allowed",
        /// The account is on hold.
        AccountOnHold = "account_on_hold",
        /// The account has to be verified first.
        VerificationRequired = "verification_required",
        /// Something about payment.
        BillingError = "billing_error",
        /// Too many requests, or a quota is used up.
        RateLimit = "rate_limit",
        /// The API is overloaded.
        Overloaded = "overloaded",
        /// The API refused the request as wrong.
        InvalidRequest = "invalid_request",
        /// There is no such model.
        ModelNotFound = "model_not_found",
        /// The API failed.
        ServerError = "server_error",
        /// The CLI does not know.
        Unknown = "unknown",
        /// The answer was longer than the model may write.
        MaxOutputTokens = "max_output_tokens",
        /// The credentials of the cloud provider are wrong.
        CloudCredentialError = "cloud_credential_error",
    }

    /// Why a turn ended, in a [`ResultMessage`](crate::ResultMessage).
    TerminalReason {
        /// The model was done.
        Completed = "completed",
        /// The bound on steps was reached.
        MaxTurns = "max_turns",
        /// The bound on cost was reached.
        BudgetExhausted = "budget_exhausted",
        /// It was interrupted while the model wrote.
        AbortedStreaming = "aborted_streaming",
        /// It was interrupted during tool calls.
        AbortedTools = "aborted_tools",
        /// A `Stop` hook prevented that it went on.
        StopHookPrevented = "stop_hook_prevented",
        /// A hook stopped it.
        HookStopped = "hook_stopped",
        /// A tool call was deferred: see [`deferred_tool_use`](crate::ResultMessage::deferred_tool_use).
        ToolDeferred = "tool_deferred",
        /// The deferred tool is not there any more.
        ToolDeferredUnavailable = "tool_deferred_unavailable",
        /// The context window is too full to go on.
        BlockingLimit = "blocking_limit",
        /// The context filled up again right after each compaction.
        RapidRefillBreaker = "rapid_refill_breaker",
        /// The prompt does not fit into the context window.
        PromptTooLong = "prompt_too_long",
        /// A picture could not be used.
        ImageError = "image_error",
        /// The model failed.
        ModelError = "model_error",
        /// The API failed, after all retries.
        ApiError = "api_error",
        /// The model wrote tool calls that cannot be read, again and again.
        MalformedToolUseExhausted = "malformed_tool_use_exhausted",
        /// It goes on in the background.
        BackgroundRequested = "background_requested",
        /// The model did not get the structured output right.
        StructuredOutputRetryExhausted = "structured_output_retry_exhausted",
        /// The turn could not be set up.
        TurnSetupFailed = "turn_setup_failed",
    }

    /// Why a session could not start, in a [`ResultMessage`](crate::ResultMessage).
    StartupFailureReason {
        /// An API key where the organization demands its own login.
        OrgPinApiKeyConflict = "org_pin_api_key_conflict",
        /// The provider is not allowed.
        ProviderNotAllowed = "provider_not_allowed",
        /// The organization could not be verified.
        OrgVerifyFailed = "org_verify_failed",
        /// It is another organization than the one that is demanded.
        OrgPinMismatch = "org_pin_mismatch",
        /// The managed settings are wrong.
        ManagedSettingsInvalid = "managed_settings_invalid",
        /// Settings that must come from a server did not.
        RemoteSettingsRequiredUnavailable = "remote_settings_required_unavailable",
        /// The gateway wants a login.
        GatewaySigninRequired = "gateway_signin_required",
        /// The gateway denies access.
        GatewayAccessDenied = "gateway_access_denied",
        /// The proxy is set wrongly.
        ProxyInvalid = "proxy_invalid",
        /// The folder for temporary files cannot be used.
        TempDirUnusable = "temp_dir_unusable",
        /// The working directory is not there.
        CwdUnavailable = "cwd_unavailable",
        /// There is no shell.
        ShellToolMissing = "shell_tool_missing",
        /// The conversation is held by a background session.
        SessionHeldByBackground = "session_held_by_background",
        /// The conversation belongs to another worktree.
        WorktreeResumeRefused = "worktree_resume_refused",
        /// The worktree could not be verified.
        WorktreeUnverified = "worktree_unverified",
        /// The CLI is older than is demanded.
        CliVersionTooOld = "cli_version_too_old",
        /// Permissions may not be bypassed as root.
        BypassRoot = "bypass_root",
        /// The configuration of the organization is needed and not there.
        OrgConfigRequiredUnavailable = "org_config_required_unavailable",
        /// The configuration of the organization was refused.
        OrgConfigRefused = "org_config_refused",
        /// A sandbox is demanded and not available.
        SandboxRequiredUnavailable = "sandbox_required_unavailable",
        /// Something was sent before `initialize`.
        InitializeNotFirst = "initialize_not_first",
        /// The configuration file is broken: see
        /// [`invalid_config_file`](crate::ResultMessage::invalid_config_file).
        ConfigFileInvalid = "config_file_invalid",
        /// Managed settings that were announced did not arrive.
        ManagedSettingsNotDelivered = "managed_settings_not_delivered",
        /// Fields of `initialize` that were announced did not arrive.
        InitializeFieldsNotDelivered = "initialize_fields_not_delivered",
    }

    /// Whether the fast mode is on.
    FastModeState {
        /// It is off.
        Off = "off",
        /// It is on.
        On = "on",
        /// It was on, and waits before it is again.
        Cooldown = "cooldown",
    }
}

impl TerminalReason {
    /// Whether the turn was interrupted: [`AbortedStreaming`](Self::AbortedStreaming) and
    /// [`AbortedTools`](Self::AbortedTools), and any other word that begins with `aborted`.
    pub fn is_aborted(&self) -> bool {
        self.as_str().starts_with("aborted")
    }
}
