//! Outcomes: from the end of a turn in a session to a record.

pub(crate) mod erased;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use greenroom::message::{ResultMessage, TerminalReason, Typed};
use greenroom::report::InterruptedBy as SessionInterruptedBy;
use greenroom::{Error, ErrorKind, Message, Outcome};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::limits::micro_dollars;
use crate::record::usage::Usage;
use crate::record::{InterruptedBy, PromptOutcome};
use crate::registry::depth;

/// The kind of a turn that was to go on with a call whose tool is gone.
pub(crate) const TOOL_IS_GONE: &str = "tool_deferred_unavailable";

/// Levels of JSON in a result that every backend can keep inside an outcome.
const DEEPEST: usize = 100;

/// The outcome of a prompt, from the end of its turn in the session.
pub(crate) fn outcome_of(ended: &greenroom::Result<Outcome>) -> PromptOutcome {
    let cut_off =
        |cause: String| PromptOutcome::Interrupted { by: InterruptedBy::Session { cause }, result: None };
    if let Some(gone) = ended.as_ref().ok().and_then(tool_is_gone) {
        return gone;
    }
    match ended {
        Ok(Outcome::Completed { result, .. }) => {
            PromptOutcome::Completed { result: kept(result), transcript_lost: false }
        }
        // The prompt was appended without asking the model, so there is no result.
        // Likewise, of a turn that a prompt has joined: the prompt has the result.
        Ok(Outcome::Appended | Outcome::Joined { .. }) => {
            PromptOutcome::Completed { result: Value::Null, transcript_lost: false }
        }
        Ok(Outcome::Interrupted { by, result, .. }) => PromptOutcome::Interrupted {
            by: match by {
                SessionInterruptedBy::User => InterruptedBy::User,
                by => InterruptedBy::Session { cause: by.to_string() },
            },
            result: result.as_ref().map(kept),
        },
        Ok(Outcome::Failed { error, result, .. }) => failed(error, result.as_ref()),
        // Otherwise the turn is parked.
        Ok(Outcome::Deferred { .. }) => {
            cut_off("the question for which the turn was deferred has ended".to_owned())
        }
        Ok(Outcome::NotStarted { .. }) => {
            cut_off("the session ended before the CLI started the turn".to_owned())
        }
        // The session was torn down in the middle of the turn.
        Err(error) if error.kind() == ErrorKind::SessionFailed => cut_off(error.to_string()),
        Err(error) => failed(error, None),
        Ok(other) => PromptOutcome::Failed {
            kind: "unknown".to_owned(),
            message: format!(
                "the turn ended in a way that this version of the fleet does not know: {other:?}"
            ),
            result: None,
        },
    }
}

/// The outcome of a turn that was to go on with a call whose tool is gone.
fn tool_is_gone(ended: &Outcome) -> Option<PromptOutcome> {
    let (Outcome::Completed { result, .. } | Outcome::Failed { result: Some(result), .. }) = ended else {
        return None;
    };
    if result.terminal_reason.as_ref()? != &TerminalReason::ToolDeferredUnavailable {
        return None;
    }
    let message = "the turn was parked for a call of a tool that the session has no longer: compare the tools of its profile with those of \
                   the profile before, and send the prompt again";
    let (kind, message) = (TOOL_IS_GONE.to_owned(), message.to_owned());
    Some(PromptOutcome::Failed { kind, message, result: Some(kept(result)) })
}

/// The outcome of a prompt whose turn failed, or that its session refused.
pub(crate) fn failed(error: &Error, result: Option<&Arc<Typed<ResultMessage>>>) -> PromptOutcome {
    PromptOutcome::Failed {
        kind: snake_case(error.kind()),
        message: error.to_string(),
        result: result.map(kept),
    }
}

/// The cost of a turn in micro-dollars and what it has used. `None`: the CLI had begun and told none, for instance because it was
/// killed; the cost also if its result has no `total_cost_usd`.
///
/// The session counts what was used between turns, too, by background tasks for instance.
pub(crate) fn metered(ended: &greenroom::Result<Outcome>) -> (Option<u64>, Option<Usage>) {
    let Ok(outcome) = ended else { return (None, None) };
    let Some(turn) = outcome.usage() else { return (Some(0), Some(Usage::default())) };
    let total = turn.total();
    let used = Usage {
        cost: micro_dollars(total.cost_usd),
        input: total.input,
        output: total.output,
        cache_read: total.cache_read,
        cache_creation: total.cache_creation,
        ..Usage::default()
    };
    match outcome.result() {
        Some(result) => (result.total_cost_usd.map(|_| used.cost), Some(used)),
        None if turn.accounted => (Some(used.cost), Some(used)),
        None => (None, None),
    }
}

/// A result as it is kept: without the fields that no backend can keep, because they are nested too deeply or have a number out
/// of range.
fn kept(result: &Arc<Typed<ResultMessage>>) -> Value {
    let (message, raw) = (Message::Result(result.clone()), result.raw().get());
    if depth(raw) <= DEEPEST
        && let value @ Value::Object(_) = message.value()
    {
        return value;
    }
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(raw).unwrap_or_default();
    let fields = fields.into_iter().filter(|(_, raw)| depth(raw.get()) < DEEPEST);
    Value::Object(fields.filter_map(|(name, _)| Some((name.clone(), message.field(&name)?))).collect())
}

/// The name of a kind in snake case, such as `context_full`.
pub(crate) fn snake_case(kind: impl std::fmt::Debug) -> String {
    let mut name = String::new();
    for letter in format!("{kind:?}").chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.extend(letter.to_lowercase());
    }
    name
}
