//! The causes for which prompts wait, as names keep them and expired prompts tell them.

use std::time::Duration;

use super::stage::{Checked, LEASE, Stage, accept, name, promises, same, unexpected};
use crate::backend::Requests;
use crate::id::PromptId;
use crate::record::{NameState, PromptOutcome, QuarantineKind, Unsent};
use crate::registry::tests::counted;
use crate::request::{Accept, ActivationFailed, Marked, Owned};

promises! {
    "a failure that is no fault of the session frees the name and counts nothing" => uncounted,
    "an expired prompt tells the last failure, or the quarantine, of its name" => told,
    "a name that is held back keeps the cause, and an error of its own by the same cause" => held,
    "a prompt that begins forgets the last failure" => forgotten,
    "a quarantine has its kind" => kinds,
}

async fn late(stage: &Stage, of: &str) -> Checked<PromptId> {
    stage.accepted(Accept { wait: Duration::ZERO, ..accept(of, "late") }).await
}

async fn last_failure(stage: &Stage, of: &str) -> Checked<Option<String>> {
    let Some(record) = stage.backend.name_record(name(of)).await? else { return unexpected("no record", of) };
    Ok(record.last_failure)
}

async fn fails(stage: &Stage, of: &str, why: &str, intensity: Option<u32>) -> Checked<Owned<Option<u32>>> {
    let (owner, why) = (stage.own(of).await?, why.to_owned());
    let counted = intensity.and_then(|intensity| counted(LEASE, intensity));
    Ok(stage.backend.activation_failed(ActivationFailed { owner, why, counted }).await?)
}

async fn cause(stage: &Stage, prompt: PromptId) -> Checked<Option<String>> {
    stage.backend.expire_prompts(10).await?;
    match stage.outcome(prompt).await? {
        Some(PromptOutcome::Unsent { why: Unsent::Expired { cause } }) => Ok(cause),
        other => unexpected("it has not expired", other),
    }
}

async fn kind(stage: &Stage, of: &str) -> Checked<QuarantineKind> {
    match stage.backend.name_record(name(of)).await?.map(|record| record.state) {
        Some(NameState::Quarantined { kind, .. }) => Ok(kind),
        other => unexpected("it is not quarantined", other),
    }
}

async fn uncounted(stage: Stage) -> Checked {
    stage.prompt("a", "hello").await?;
    for _ in 0..5 {
        same("the answer", fails(&stage, "a", "no CLI", None).await?, Owned::Done(Some(0)))?;
    }
    let Some(record) = stage.backend.name_record(name("a")).await? else {
        return unexpected("no record", ());
    };
    same("the state", record.state.clone(), NameState::Free)?;
    same("the record needs somebody", record.is_stuck(), false)?;
    let long = "é".repeat(1000);
    let _: Owned<Option<u32>> = fails(&stage, "a", &long, None).await?;
    same("the text that is kept", last_failure(&stage, "a").await?.map(|text| text.len()), Some(1024))
}

async fn told(stage: Stage) -> Checked {
    let prompt = late(&stage, "a").await?;
    let _: Owned<Option<u32>> = fails(&stage, "a", "no CLI", None).await?;
    same("the cause", cause(&stage, prompt).await?, Some("no CLI".to_owned()))?;
    let prompt = late(&stage, "b").await?;
    same("the answer", stage.backend.quarantine(name("b"), "it loops".into()).await?, Marked::Done)?;
    let told = Some("the session is quarantined: it loops".to_owned());
    same("the cause in quarantine", cause(&stage, prompt).await?, told)
}

async fn held(stage: Stage) -> Checked {
    stage.prompt("a", "hello").await?;
    for (why, kept) in [("the disk", "the disk"), ("the key", "the key")] {
        stage.backend.held_back(name("a"), None, why.to_owned()).await?;
        same("the cause", last_failure(&stage, "a").await?, Some(kept.to_owned()))?;
    }
    let _: Owned<Option<u32>> = fails(&stage, "a", "the disk: /a is full", None).await?;
    stage.backend.held_back(name("a"), None, "the disk".to_owned()).await?;
    same("its own error", last_failure(&stage, "a").await?, Some("the disk: /a is full".to_owned()))?;
    let owner = stage.own("a").await?;
    stage.backend.held_back(name("a"), None, "the key".to_owned()).await?;
    same("of an owned name", last_failure(&stage, "a").await?, Some("the disk: /a is full".to_owned()))?;
    let _: Owned<bool> = stage.backend.release(owner).await?;
    stage.backend.held_back(name("nobody"), None, "the key".to_owned()).await?;
    same("of a name that is not known", stage.backend.name_record(name("nobody")).await?, None)
}

async fn forgotten(stage: Stage) -> Checked {
    let prompt = stage.prompt("a", "hello").await?;
    let _: Owned<Option<u32>> = fails(&stage, "a", "no CLI", Some(9)).await?;
    let owner = stage.own("a").await?;
    let (attempt, _) = stage.begin(&owner, prompt).await?;
    same("the last failure", last_failure(&stage, "a").await?, None)?;
    stage.complete(&owner, prompt, attempt).await
}

async fn kinds(stage: Stage) -> Checked {
    stage.prompt("a", "hello").await?;
    same("the answer", fails(&stage, "a", "no template", Some(1)).await?, Owned::Done(None))?;
    same("the kind", kind(&stage, "a").await?, QuarantineKind::Activations)?;
    stage.prompt("b", "hello").await?;
    same("the answer", stage.backend.quarantine(name("b"), "by hand".into()).await?, Marked::Done)?;
    same("the kind", kind(&stage, "b").await?, QuarantineKind::Operator)
}
