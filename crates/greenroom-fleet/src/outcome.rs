//! Outcomes: from a session's turn to a record, and from a record to its reader.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use greenroom::message::ResultMessage;
use greenroom::report::InterruptedBy as SessionInterruptedBy;
use greenroom::{Error, ErrorKind, Message, Outcome};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::record::{InterruptedBy, PromptOutcome};

/// Levels of JSON in a result that every backend can keep inside an outcome.
const DEEPEST: usize = 100;

impl PromptOutcome {
    /// True if the CLI finished the turn.
    pub fn is_completed(&self) -> bool {
        matches!(self, PromptOutcome::Completed { .. })
    }

    /// The CLI's `result` message with its typed fields, if there is one: the answer, the usage, the reason of a failure.
    ///
    /// ```
    /// use greenroom_fleet::PromptOutcome;
    ///
    /// let outcome = PromptOutcome::Completed {
    ///     result: serde_json::json!({ "type": "result", "subtype": "success", "result": "Hello.", "num_turns": 1 }),
    /// };
    /// assert_eq!(outcome.text(), Some("Hello."));
    /// assert_eq!(outcome.result().unwrap().num_turns, 1);
    /// ```
    pub fn result(&self) -> Option<Arc<ResultMessage>> {
        match Message::parse(&self.json()?.to_string()) {
            Ok(Message::Result(result)) => Some(result),
            _ => None,
        }
    }

    /// The model's answer, if the turn was completed.
    pub fn text(&self) -> Option<&str> {
        match self {
            PromptOutcome::Completed { result } => result.get("result")?.as_str(),
            _ => None,
        }
    }

    fn json(&self) -> Option<&Value> {
        match self {
            PromptOutcome::Completed { result } => Some(result),
            PromptOutcome::Interrupted { result, .. } | PromptOutcome::Failed { result, .. } => {
                result.as_ref()
            }
            PromptOutcome::Unsent { .. } => None,
        }
    }
}

/// The outcome of a prompt, from the end of its turn in the session.
pub(crate) fn outcome_of(ended: &greenroom::Result<Outcome>) -> PromptOutcome {
    let session = |cause: String| InterruptedBy::Session { cause };
    match ended {
        Ok(Outcome::Completed { result }) => PromptOutcome::Completed { result: kept(result) },
        // The prompt was appended without asking the model, so there is no result.
        Ok(Outcome::Appended) => PromptOutcome::Completed { result: Value::Null },
        Ok(Outcome::Interrupted { by, result }) => PromptOutcome::Interrupted {
            by: match by {
                SessionInterruptedBy::User => InterruptedBy::User,
                by => session(by.to_string()),
            },
            result: result.as_ref().map(kept),
        },
        Ok(Outcome::Failed { error, result }) => failed(error, result.as_ref()),
        Ok(Outcome::NotStarted { .. }) => PromptOutcome::Interrupted {
            by: session("the session ended before the CLI started the turn".to_owned()),
            result: None,
        },
        // The session was torn down in the middle of the turn.
        Err(error) if error.kind() == ErrorKind::SessionFailed => {
            PromptOutcome::Interrupted { by: session(error.to_string()), result: None }
        }
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

/// The outcome of a prompt whose turn failed, or that its session refused.
pub(crate) fn failed(error: &Error, result: Option<&Arc<ResultMessage>>) -> PromptOutcome {
    PromptOutcome::Failed {
        kind: snake_case(error.kind()),
        message: error.to_string(),
        result: result.map(kept),
    }
}

/// Measures the cost of each turn of an activation, in micro-dollars.
///
/// The CLI reports the cost of the whole conversation so far, resumed parts included, so a turn costs the difference of two
/// totals. That counts money spent between turns, too, by background tasks for instance. The first result after a start, and one
/// whose total is lower than the last, are counted as the CLI counts them since its last result. A CLI that does not say so
/// is taken to have spent the whole total since then: a budget is rather ended too early than too late.
#[derive(Clone, Debug, Default)]
pub(crate) struct CostMeter {
    /// The last total, in micro-dollars. 0: none yet.
    total: u64,
}

impl CostMeter {
    /// The cost of a turn, given the end of each turn in order. A turn without a result costs nothing here; a later result counts
    /// it if the CLI does.
    pub(crate) fn cost_of(&mut self, ended: &greenroom::Result<Outcome>) -> u64 {
        let Some(result) = ended.as_ref().ok().and_then(Outcome::result) else { return 0 };
        // A turn without a model call may report 0 after a resume.
        let total = result.total_cost_usd.map_or(0, micro_dollars);
        if total == 0 {
            return 0;
        }
        let last = std::mem::replace(&mut self.total, total);
        match total.checked_sub(last) {
            Some(spent) if last > 0 => spent,
            _ => since_last_result(result).unwrap_or(total),
        }
    }
}

/// The cost since the last result of the CLI's process, if the CLI says so.
fn since_last_result(result: &ResultMessage) -> Option<u64> {
    let models = &result.model_usage_since_last_result;
    let says = !models.is_empty() || result.raw().get().contains("\"model_usage_since_last_result\"");
    let dollars = models.values().filter_map(|model| model.cost_usd).sum();
    says.then(|| micro_dollars(dollars))
}

/// Dollars in micro-dollars, rounded to the nearest one. A negative number or none counts as nothing.
fn micro_dollars(dollars: f64) -> u64 {
    (dollars * 1e6).round() as u64
}

/// A result as it is kept: without the fields that no backend can keep, because they are nested too deeply or have a number out
/// of range.
fn kept(result: &Arc<ResultMessage>) -> Value {
    let message = Message::Result(result.clone());
    match message.value() {
        value @ Value::Object(_) if depth(&value) <= DEEPEST => return value,
        _ => {}
    }
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(result.raw().get()).unwrap_or_default();
    let field = |name: String| {
        let value = message.field(&name).filter(|value| depth(value) < DEEPEST)?;
        Some((name, value))
    };
    Value::Object(fields.into_keys().filter_map(field).collect())
}

/// How deep objects and arrays are nested in a value. A value that was read is nested no deeper than 127 levels.
fn depth(value: &Value) -> usize {
    let deepest = |depth: Option<usize>| 1 + depth.unwrap_or(0);
    match value {
        Value::Array(items) => deepest(items.iter().map(depth).max()),
        Value::Object(fields) => deepest(fields.values().map(depth).max()),
        _ => 0,
    }
}

/// The name of a kind in snake case, such as `context_full`.
fn snake_case(kind: ErrorKind) -> String {
    let mut name = String::new();
    for letter in format!("{kind:?}").chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.extend(letter.to_lowercase());
    }
    name
}
