//! The turns of each customer, as this process has accepted them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::{Extension, Json};
use greenroom_fleet::web::Problem;
use greenroom_fleet::{FleetSession, FleetTenant, FleetTurn, Name, PromptId, PromptState};
use serde_json::{Value, json};

#[derive(Default)]
pub(crate) struct Turns(Mutex<HashMap<Name, Vec<(PromptId, String)>>>);

impl Turns {
    pub(crate) fn add(&self, name: &Name, turn: &FleetTurn, text: String) {
        if !turn.is_duplicate() {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.entry(name.clone()).or_default().push((turn.prompt_id(), text));
        }
    }
}

/// The last turns of a customer, the newest first.
pub(crate) async fn list(
    tenant: FleetTenant,
    session: FleetSession,
    Extension(turns): Extension<Arc<Turns>>,
) -> Result<Json<Value>, Problem> {
    let known = turns.0.lock().unwrap_or_else(PoisonError::into_inner).get(session.name()).cloned();
    let mut listed = Vec::new();
    for (id, text) in known.unwrap_or_default().into_iter().rev().take(50) {
        let mut turn = tenant.turn(id);
        let (state, answer) = match turn.record().await?.state {
            PromptState::Ended { .. } => {
                let outcome = turn.outcome().await?;
                (outcome.word(), outcome.text().map(str::to_owned))
            }
            PromptState::Begun { .. } => ("running", None),
            _ => ("queued", None),
        };
        listed.push(json!({ "id": id, "text": text, "state": state, "answer": answer }));
    }
    Ok(Json(json!({ "turns": listed })))
}
