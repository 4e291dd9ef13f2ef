//! Checks of all that is kept at the end of a case.

use std::collections::BTreeMap;

use greenroom_fleet::backend::{Backend, Requests};
use greenroom_fleet::{
    InterruptedBy, Name, NameState, PromptId, PromptOutcome, PromptRecord, PromptState, Timestamp, Unsent,
};

use super::{Content, Known, Model};
use crate::cli::Journal;

/// The prompts that have not ended, without the prompts of quarantined sessions.
pub(crate) async fn unfinished(backend: &dyn Backend, ids: &[PromptId]) -> Vec<PromptId> {
    let mut unfinished = Vec::new();
    for id in ids {
        let Some(record) = backend.prompt_record(*id).await.unwrap() else { continue };
        let waits = match record.state {
            PromptState::Ended { .. } => false,
            PromptState::Queued => !is_quarantined(backend, &record.name).await,
            _ => true,
        };
        if waits {
            unfinished.push(*id);
        }
    }
    unfinished
}

/// The prompts that should have ended by now.
pub(crate) async fn stuck(backend: &dyn Backend, ids: &[PromptId]) -> Vec<PromptId> {
    let (mut stuck, now) = (Vec::new(), backend.now());
    for id in unfinished(backend, ids).await {
        let record = backend.prompt_record(id).await.unwrap().unwrap();
        if record.state != PromptState::Queued || record.due_at <= now {
            stuck.push(id);
        }
    }
    stuck
}

async fn is_quarantined(backend: &dyn Backend, name: &Name) -> bool {
    let record = backend.name_record(name.clone()).await.unwrap();
    record.is_some_and(|record| matches!(record.state, NameState::Quarantined { .. }))
}

/// Compares all that is kept with the model and with what the CLIs have seen.
pub(crate) async fn check(backend: &dyn Backend, model: &Model, journal: &Journal) -> Vec<String> {
    let ids: Vec<PromptId> = model.state().known.keys().copied().collect();
    let mut kept = BTreeMap::new();
    for id in ids {
        let record = backend.prompt_record(id).await.unwrap();
        let outcome = backend.outcome(id).await.unwrap();
        kept.insert(id, record.map(|record| (record, outcome)));
    }
    let (mut wrong, mut completed) = (Vec::new(), 0);
    let state = model.state();
    let seen = journal.state();
    for (id, kept) in &kept {
        let known = &state.known[id];
        let content = &state.contents[known.content];
        let Some((record, outcome)) = kept else {
            if known.accepted {
                wrong.push(format!("accepted-is-kept: {} ({id}) is gone", content.prompt.text()));
            }
            continue;
        };
        completed += u64::from(matches!(outcome, Some(PromptOutcome::Completed { .. })));
        let now = backend.now();
        let told = state.ended.get(id).copied();
        if let Err(what) = of_prompt(content, known, record, outcome.as_ref(), told, now) {
            wrong.push(format!("{what}: {} {record:?} {outcome:?}", content.prompt.text()));
        }
        let reached = |turn: &str| seen.reached.get(turn).map_or(0, Vec::len);
        let unsent = matches!(outcome, Some(PromptOutcome::Unsent { .. }));
        if unsent && content.ids.len() == 1 && content.maybe == 0 && reached(&content.prompt.id) > 0 {
            wrong.push(format!("never-run-twice: {} is unsent, and a CLI got it", content.prompt.text()));
        }
        let finished = |turn: &str| seen.finished.get(turn).copied().unwrap_or(0);
        let done =
            finished(&content.prompt.id) + content.continuation.as_ref().map_or(0, |c| finished(&c.id));
        if matches!(outcome, Some(PromptOutcome::Completed { .. })) && done == 0 {
            wrong.push(format!("{} is completed, and no CLI has finished it", content.prompt.text()));
        }
    }
    for (number, content) in state.contents.iter().enumerate() {
        let reached = seen.reached.get(&content.prompt.id).map_or(0, Vec::len);
        let most = content.ids.len() + content.maybe;
        if reached > most {
            wrong.push(format!(
                "never-run-twice: '{}' reached a CLI {reached} times, and was accepted {most} times",
                content.prompt.text()
            ));
        }
        let continued = seen.reached.get(&format!("c{number}")).map_or(0, Vec::len);
        let most = most * usize::from(content.continuations);
        if continued > most {
            wrong.push(format!(
                "never-run-twice: the continuation of '{}' reached a CLI {continued} times of {most}",
                content.prompt.text()
            ));
        }
        let name = crate::driver::name_of(content.name);
        let all = [format!("p{number}"), format!("c{number}")];
        for other in all.iter().filter_map(|turn| seen.reached.get(turn)).flatten() {
            if *other != name {
                wrong.push(format!("'{}' of {name} reached the CLI of {other}", content.prompt.text()));
            }
        }
    }
    drop((state, seen));
    model.state().answers.completed = completed;
    wrong
}

fn of_prompt(
    content: &Content,
    known: &Known,
    record: &PromptRecord,
    outcome: Option<&PromptOutcome>,
    told: Option<&str>,
    now: Timestamp,
) -> Result<(), &'static str> {
    let ensure = |holds: bool, what| if holds { Ok(()) } else { Err(what) };
    let PromptState::Ended { at, .. } = record.state else {
        ensure(outcome.is_none(), "accepted-is-kept: a prompt that has not ended has an outcome")?;
        ensure(!known.withdrawn, "a withdrawn prompt has not ended")?;
        ensure(known.outcome.is_none(), "accepted-is-kept: an outcome that was read is gone")?;
        return ensure(told.is_none(), "accepted-is-kept: a prompt whose end was told has not ended");
    };
    let outcome = outcome.ok_or("accepted-is-kept: a prompt that has ended has no outcome")?;
    ensure(at <= now, "a prompt has ended in the future")?;
    if let Some(read) = &known.outcome {
        ensure(read == outcome, "accepted-is-kept: the outcome has changed since it was read")?;
    }
    let word = match outcome {
        PromptOutcome::Completed { .. } => "completed",
        PromptOutcome::Interrupted { .. } => "interrupted",
        PromptOutcome::Failed { .. } => "failed",
        PromptOutcome::Unsent { .. } => "unsent",
        _ => "?",
    };
    ensure(told.is_none_or(|told| told == word), "accepted-is-kept: an event told another end")?;
    let by_user = PromptOutcome::Interrupted { by: InterruptedBy::User, result: None };
    let withdrawn = *outcome == PromptOutcome::Unsent { why: Unsent::Withdrawn };
    ensure(
        !withdrawn || known.asked_back,
        "drain-bounded: a prompt is taken back, and nobody asked for that",
    )?;
    if known.withdrawn {
        ensure(withdrawn || *outcome == by_user, "a withdrawn prompt has another outcome")?;
    }
    match outcome {
        PromptOutcome::Completed { result, .. } => {
            let text = result["result"].as_str().unwrap_or_default();
            let own = text == content.prompt.id
                || content.continuation.as_ref().is_some_and(|continuation| text == continuation.id);
            ensure(own, "the outcome is that of another prompt")
        }
        PromptOutcome::Unsent { why: Unsent::Expired { .. } } => {
            ensure(at >= record.expires_at, "a prompt has expired before its time")
        }
        PromptOutcome::Interrupted { by: InterruptedBy::OwnerLost { .. }, .. } => {
            ensure(record.begins > 0, "a prompt that did not begin is interrupted")
        }
        _ => Ok(()),
    }
}
