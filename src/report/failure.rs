//! Tells why a turn failed, as an [`ErrorKind`].

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::{Error, ErrorKind};
use crate::wire::message::{ApiErrorKind, RateLimitInfo, RateLimitStatus, TerminalReason};
use crate::wire::{Message, ResultMessage};

/// The messages of a session that tell more about the failure of a turn than its result does.
#[derive(Debug, Default)]
pub(crate) struct FailureSigns {
    /// The reason of the last API call of the turn's main thread, if the call failed.
    api_error: Option<ApiErrorKind>,
    /// The limit that rejects calls now. The CLI tells it only when it changes, so it outlives the turn.
    limit: Option<ReachedLimit>,
}

/// A quota that is used up.
#[derive(Debug)]
struct ReachedLimit {
    /// The time in seconds since 1970 when the quota is full again.
    resets_at: Option<u64>,
    /// Only credit clears the limit, not time.
    needs_credit: bool,
}

impl ReachedLimit {
    fn of(info: &RateLimitInfo) -> Option<Self> {
        // Beyond the quota, calls go through as long as they are billed.
        if info.status != RateLimitStatus::Rejected || info.is_using_overage == Some(true) {
            return None;
        }
        let beyond_quota = matches!(info.rate_limit_type.as_deref(), None | Some("overage"));
        let needs_credit = beyond_quota && info.error_code.as_deref() == Some("credits_required");
        Some(Self { resets_at: info.resets_at, needs_credit })
    }
}

impl FailureSigns {
    /// Forgets the signs of the turn before: a prompt is written.
    pub(crate) fn turn_begins(&mut self) {
        self.api_error = None;
    }

    pub(crate) fn note(&mut self, message: &Message) {
        match message {
            Message::Assistant(said) if message.parent_tool_use_id().is_none() => {
                self.api_error.clone_from(&said.error);
            }
            // Each turn begins with one: signs before it may belong to work of the CLI's own.
            Message::System(system) if system.init().is_some() => self.api_error = None,
            Message::RateLimitEvent(event) => self.limit = ReachedLimit::of(&event.rate_limit_info),
            _ => {}
        }
    }

    /// The error of a turn that ended with this result.
    pub(crate) fn error(&self, result: &ResultMessage) -> Error {
        let kind = match (self.kind(result), &self.limit) {
            (ErrorKind::RateLimited, Some(limit)) if limit.needs_credit => ErrorKind::NoCredit,
            (kind, _) => kind,
        };
        let text = result.error_text().unwrap_or_else(|| result.subtype.clone());
        let error = Error::new(kind, text);
        let error = match help(kind) {
            Some(help) => error.with_help(help),
            None => error,
        };
        let limit = self.limit.as_ref().filter(|_| kind == ErrorKind::RateLimited);
        let Some(resets_at) = limit.and_then(|limit| moment(limit.resets_at?)) else { return error };
        let error = error.with_resets_at(resets_at);
        match until(resets_at) {
            Some(time) => error.with_retry_after(time),
            None => error,
        }
    }

    fn kind(&self, result: &ResultMessage) -> ErrorKind {
        let reason = result.terminal_reason.as_ref();
        if result.subtype == "error_max_budget_usd" || reason == Some(&TerminalReason::BudgetExhausted) {
            return ErrorKind::BudgetSpent;
        }
        match reason {
            Some(
                TerminalReason::BlockingLimit
                | TerminalReason::RapidRefillBreaker
                | TerminalReason::PromptTooLong,
            ) => return ErrorKind::ContextFull,
            // The CLI says `success` of a turn whose last API call has failed. Other subtypes are not about the API.
            _ if result.subtype != "success" && reason != Some(&TerminalReason::ApiError) => {
                return match result.startup_failure_reason.as_deref() {
                    Some(
                        "org_pin_api_key_conflict"
                        | "org_pin_mismatch"
                        | "gateway_signin_required"
                        | "gateway_access_denied",
                    ) => ErrorKind::Unauthenticated,
                    _ => ErrorKind::TurnFailed,
                };
            }
            _ => {}
        }
        let of_message = self.api_error.as_ref().and_then(kind_of_api_error);
        of_message.or_else(|| kind_of_status(result.api_error_status?)).unwrap_or(ErrorKind::TurnFailed)
    }
}

fn kind_of_api_error(error: &ApiErrorKind) -> Option<ErrorKind> {
    Some(match error {
        ApiErrorKind::AuthenticationFailed
        | ApiErrorKind::OauthOrgNotAllowed
        | ApiErrorKind::AccountOnHold
        | ApiErrorKind::VerificationRequired
        | ApiErrorKind::CloudCredentialError => ErrorKind::Unauthenticated,
        ApiErrorKind::BillingError => ErrorKind::NoCredit,
        ApiErrorKind::RateLimit => ErrorKind::RateLimited,
        ApiErrorKind::Overloaded | ApiErrorKind::ServerError => ErrorKind::Overloaded,
        _ => return None,
    })
}

fn kind_of_status(status: u16) -> Option<ErrorKind> {
    match status {
        401 | 403 => Some(ErrorKind::Unauthenticated),
        402 => Some(ErrorKind::NoCredit),
        429 => Some(ErrorKind::RateLimited),
        500..=599 => Some(ErrorKind::Overloaded),
        _ => None,
    }
}

fn help(kind: ErrorKind) -> Option<&'static str> {
    Some(match kind {
        ErrorKind::Unauthenticated => {
            "log in with `claude /login`, or give the CLI a valid `ANTHROPIC_API_KEY` or `CLAUDE_CODE_OAUTH_TOKEN`"
        }
        ErrorKind::NoCredit => "add credit to the account that the key or the login belongs to",
        ErrorKind::RateLimited => "send the prompt again when the limit is reset, see `Error::retry_after`",
        ErrorKind::Overloaded => "send the prompt again later",
        ErrorKind::BudgetSpent => "raise option `max_budget_usd`, or begin another conversation",
        ErrorKind::ContextFull => "compact the conversation with the prompt `/compact`, or begin another one",
        _ => return None,
    })
}

/// A moment in seconds since 1970; `None` if the system cannot express it.
fn moment(seconds: u64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::new(seconds, 0))
}

/// The time from now until that moment; `None` if it has passed.
fn until(moment: SystemTime) -> Option<Duration> {
    moment.duration_since(SystemTime::now()).ok().filter(|time| !time.is_zero())
}
