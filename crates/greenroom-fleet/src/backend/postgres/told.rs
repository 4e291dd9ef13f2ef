//! Changes and transitions, as the functions of the schema tell them.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::error::BackendError;
use crate::id::{CommandId, Name, NodeId, PromptId, QuestionId};
use crate::registry::{Result, Told};
use crate::request::{Change, Transition};

/// A change in JSON: the word, and what it is about.
pub(super) fn change_json(change: &Change) -> Value {
    match change {
        Change::Queued(name) => json!(["queued", name]),
        Change::Freed(name) => json!(["freed", name]),
        Change::Messages(prompt) => json!(["messages", prompt]),
        Change::Ended(prompt) => json!(["ended", prompt]),
        Change::Asked(question) => json!(["asked", question]),
        Change::Decided(question) => json!(["decided", question]),
        Change::Commanded(node) => json!(["commanded", node]),
        Change::CommandEnded(command) => json!(["command_ended", command]),
        // A listener finds out for itself, and nobody sends it.
        Change::Missed => json!(["missed"]),
    }
}

pub(super) fn change(value: &Value) -> Option<Change> {
    let about = value.get(1)?.as_str()?;
    let name = || Name::new(about).ok();
    let id = || about.parse::<Uuid>().ok();
    match value.get(0)?.as_str()? {
        "queued" => name().map(Change::Queued),
        "freed" => name().map(Change::Freed),
        "messages" => id().map(|id| Change::Messages(PromptId(id))),
        "ended" => id().map(|id| Change::Ended(PromptId(id))),
        "asked" => id().map(|id| Change::Asked(QuestionId(id))),
        "decided" => id().map(|id| Change::Decided(QuestionId(id))),
        "commanded" => id().map(|id| Change::Commanded(NodeId(id))),
        "command_ended" => id().map(|id| Change::CommandEnded(CommandId(id))),
        _ => None,
    }
}

#[derive(serde::Deserialize)]
struct ToldTransition {
    is: String,
    name: Name,
    tenant: String,
    #[serde(default)]
    prompt: Option<PromptId>,
    #[serde(default)]
    question: Option<QuestionId>,
    #[serde(default)]
    outcome: Option<String>,
    #[serde(default)]
    why: Option<String>,
}

fn transition(told: ToldTransition) -> Option<Transition> {
    let ToldTransition { is, name, tenant, prompt, question, outcome, why } = told;
    Some(match is.as_str() {
        "accepted" => Transition::Accepted { name, tenant, prompt: prompt? },
        "continues" => Transition::Continues { name, tenant, prompt: prompt? },
        "ended" => {
            let words = ["completed", "interrupted", "failed", "unsent"];
            let outcome = words.into_iter().find(|word| outcome.as_deref() == Some(word))?;
            Transition::Ended { name, tenant, prompt: prompt?, outcome }
        }
        "asked" => Transition::Asked { name, tenant, prompt: prompt?, question: question? },
        "decided" => Transition::Decided { name, tenant, prompt: prompt?, question: question? },
        "recovered" => Transition::Recovered { name, tenant },
        "quarantined" => Transition::Quarantined { name, tenant, why: why? },
        "unquarantined" => Transition::Unquarantined { name, tenant },
        "deleting" => Transition::Deleting { name, tenant },
        "deleted" => Transition::Deleted { name, tenant },
        _ => return None,
    })
}

/// Everything that a request has told. Words of a later version are passed over.
pub(super) fn read(items: Vec<Value>) -> Result<Told> {
    let mut told = Told::default();
    for item in items {
        if item.is_array() {
            told.changes.extend(change(&item));
        } else {
            let item = serde_json::from_value(item).map_err(BackendError::damaged)?;
            told.transitions.extend(transition(item));
        }
    }
    Ok(told)
}
