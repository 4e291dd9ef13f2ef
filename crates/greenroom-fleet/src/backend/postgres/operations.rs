//! The requests of operators, and of activations about processes that lost owners have left.

use serde_json::json;

use super::PostgresBackend;
use super::answers::{list, process, record, unknown, variant};
use super::text::kept;
use crate::id::{Name, NodeId, PromptId, Term};
use crate::record::{ProcessRecord, PromptOutcome, Unsent};
use crate::registry::{Result, unreadable};
use crate::request::Withdrawn;

impl PostgresBackend {
    pub(in crate::backend) async fn ask_to_drain(&self, node: NodeId) -> Result<bool> {
        record(self.control("ask_to_drain", json!({ "node": node })).await?)
    }

    pub(in crate::backend) async fn withdraw(&self, prompt: PromptId) -> Result<Withdrawn> {
        withdrawn(self.call("withdraw", json!({ "prompt": prompt })).await?)
    }

    pub(in crate::backend) async fn drop_prompt(&self, prompt: PromptId, why: String) -> Result<Withdrawn> {
        let outcome = kept(&PromptOutcome::Unsent { why: Unsent::Dropped { why } })?;
        withdrawn(self.call("drop_prompt", json!({ "prompt": prompt, "outcome": outcome })).await?)
    }

    pub(in crate::backend) async fn left_processes_of(&self, name: Name) -> Result<Vec<ProcessRecord>> {
        let left = self.call("left_processes_of", json!({ "name": name })).await?;
        list(left, |left| {
            let term = Term(left["term"].as_u64().unwrap_or_default());
            process(left).map_err(|error| unreadable(&name, term, error))
        })
    }
}

fn withdrawn(answer: serde_json::Value) -> Result<Withdrawn> {
    let (word, value) = variant(answer)?;
    Ok(match word.as_str() {
        "unsent" => Withdrawn::Unsent,
        "interrupted" => Withdrawn::Interrupted,
        "too_late" => Withdrawn::TooLate(record(value)?),
        "gone" => Withdrawn::Gone,
        _ => return unknown(value),
    })
}
