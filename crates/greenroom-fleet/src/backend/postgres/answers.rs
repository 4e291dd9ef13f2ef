//! Answers of the functions in the schema.
//!
//! Enums come in serde's external form: a word alone, or an object with one field, the word. JSON that the schema does not look
//! into is a text in both directions.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::error::BackendError;
use crate::record::{ProcessRecord, QuestionRecord};
use crate::registry::Result;
use crate::request::{Owned, Ownership, QueueBounds, Refused, Reserve};

#[derive(Debug, thiserror::Error)]
#[error("the schema has answered {0}, which this version does not know")]
struct UnknownAnswer(Value);

pub(super) fn unknown<T>(answer: Value) -> Result<T> {
    Err(BackendError::damaged(UnknownAnswer(answer)))
}

pub(super) fn record<T: DeserializeOwned>(value: Value) -> Result<T> {
    serde_json::from_value(value).map_err(BackendError::damaged)
}

/// The word of an enum, and what comes with it.
pub(super) fn variant(mut answer: Value) -> Result<(String, Value)> {
    match &mut answer {
        Value::String(word) => Ok((std::mem::take(word), Value::Null)),
        Value::Object(fields) if fields.len() == 1 => match std::mem::take(fields).into_iter().next() {
            Some(field) => Ok(field),
            None => unknown(answer),
        },
        _ => unknown(answer),
    }
}

pub(super) fn owned<T>(answer: Value, done: impl FnOnce(Value) -> Result<T>) -> Result<Owned<T>> {
    match variant(answer)? {
        (word, _) if word == "fenced" => Ok(Owned::Fenced),
        (word, value) if word == "done" => done(value).map(Owned::Done),
        (word, _) => unknown(Value::String(word)),
    }
}

/// Replaces a JSON text by the JSON that it holds.
pub(super) fn open(value: &mut Value) -> Result<()> {
    if let Value::String(text) = value {
        *value = serde_json::from_str(text).map_err(BackendError::damaged)?;
    }
    Ok(())
}

pub(super) fn text<T: DeserializeOwned>(mut value: Value) -> Result<T> {
    open(&mut value)?;
    record(value)
}

pub(super) fn question(mut value: Value) -> Result<QuestionRecord> {
    open(&mut value["body"])?;
    if let Some(answer) = value.pointer_mut("/decision/answer") {
        open(answer)?;
    }
    record(value)
}

pub(super) fn process(mut value: Value) -> Result<ProcessRecord> {
    open(&mut value["process"])?;
    record(value)
}

pub(super) fn list<T>(answer: Value, item: impl Fn(Value) -> Result<T>) -> Result<Vec<T>> {
    record::<Vec<Value>>(answer)?.into_iter().map(item).collect()
}

pub(super) fn optional<T>(answer: Value, some: impl FnOnce(Value) -> Result<T>) -> Result<Option<T>> {
    if answer.is_null() { Ok(None) } else { some(answer).map(Some) }
}

pub(super) fn ownership(owner: &Ownership) -> Value {
    json!({ "name": owner.name, "node": owner.node, "term": owner.term })
}

pub(super) fn reserve(reserve: Option<Reserve>) -> Value {
    reserve.map_or(
        Value::Null,
        |reserve| json!({ "period": reserve.period, "budget": reserve.budget, "amount": reserve.amount }),
    )
}

pub(super) fn refused(why: Value, bounds: QueueBounds) -> Result<Refused> {
    let (word, value) = variant(why)?;
    let full = |of, bound| Refused::QueueFull { of, bound };
    Ok(match word.as_str() {
        "queue_full" => match value.as_str() {
            Some("name") => full("for the session", bounds.name),
            Some("tenant") => full("for the tenant", bounds.tenant),
            _ => full("in the fleet", bounds.fleet),
        },
        "over_budget" => Refused::OverBudget,
        "profile_mismatch" => Refused::ProfileMismatch { known: record(value)? },
        "tenant_mismatch" => Refused::TenantMismatch,
        "key_reused" => Refused::KeyReused { prompt: record(value)? },
        "quarantined" => Refused::Quarantined { why: record(value)? },
        "deleting" => Refused::Deleting,
        _ => return unknown(value),
    })
}
