//! Tells why a turn failed, as an [`ErrorKind`].

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::{Error, ErrorKind};
use crate::wire::message::{ApiErrorKind, RateLimitStatus, StartupFailureReason, TerminalReason};
use crate::wire::{Message, ResultMessage};

/// The messages of a turn that tell more about its failure than its result does.
#[derive(Debug, Default)]
pub(crate) struct FailureSigns {
    /// The reason of the last API call of the main thread, if the call failed.
    api_error: Option<ApiErrorKind>,
    /// The time in seconds since 1970 when the quota is full again, if the API has rejected a call.
    resets_at: Option<u64>,
}

impl FailureSigns {
    pub(crate) fn note(&mut self, message: &Message) {
        match message {
            Message::Assistant(said) if message.parent_tool_use_id().is_none() => {
                self.api_error.clone_from(&said.error);
            }
            Message::RateLimitEvent(event) if event.rate_limit_info.status == RateLimitStatus::Rejected => {
                self.resets_at = event.rate_limit_info.resets_at;
            }
            _ => {}
        }
    }

    /// The error of a turn that ended with this result.
    pub(crate) fn error(&self, result: &ResultMessage) -> Error {
        let kind = self.kind(result);
        let text = result.error_text().unwrap_or_else(|| result.subtype.clone());
        let error = Error::new(kind, text);
        let error = match help(kind) {
            Some(help) => error.with_help(help),
            None => error,
        };
        match self.resets_at {
            Some(resets_at) if kind == ErrorKind::RateLimited => error.with_retry_after(until(resets_at)),
            _ => error,
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
                return match &result.startup_failure_reason {
                    Some(reason) if is_about_login(reason) => ErrorKind::Unauthenticated,
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

fn is_about_login(reason: &StartupFailureReason) -> bool {
    matches!(
        reason,
        StartupFailureReason::OrgPinApiKeyConflict
            | StartupFailureReason::OrgPinMismatch
            | StartupFailureReason::GatewaySigninRequired
            | StartupFailureReason::GatewayAccessDenied
    )
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

/// The time from now until that time in seconds since 1970; zero if it has passed.
fn until(seconds: u64) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::from_secs(seconds).saturating_sub(now)
}
