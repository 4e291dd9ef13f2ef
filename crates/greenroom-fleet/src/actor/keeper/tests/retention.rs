//! Outcomes are forgotten after their time.

use super::*;
use crate::pages::all_holds;
use crate::record::{Cause, Credential, PromptOutcome};
use crate::request::{Append, Finish, Pause, Reject, Withdrawn};

#[tokio::test(start_paused = true)]
async fn outcomes_are_forgotten_after_their_time() {
    let limits = FleetLimits { retention: SECOND * 100, ..FleetLimits::default() };
    let stage = Stage::on(FaultedBackend::new(MemoryBackend::new()), limits).await;
    let _keeper = stage.keeper();
    let prompt = stage.accept(accept("a", SECOND)).await;
    tokio::time::sleep(SECOND * 100).await;
    let record = stage.backend.prompt_record(prompt).await.unwrap().expect("forgotten too early");
    assert!(matches!(record.state, PromptState::Ended { .. }));
    tokio::time::sleep(SECOND * 15).await;
    assert_eq!(stage.backend.prompt_record(prompt).await.unwrap(), None);
}

/// A request removes a bounded number of messages. The next one comes soon, so that a busy node keeps up.
#[tokio::test(start_paused = true)]
async fn a_turn_of_many_messages_holds_up_no_other_outcome_for_long() {
    let limits = FleetLimits { retention: SECOND * 100, ..FleetLimits::default() };
    let stage = Stage::on(FaultedBackend::new(MemoryBackend::new()), limits).await;
    let long = stage.accept(accept("a", HOUR)).await;
    let (owner, attempt) = (stage.claim(&"acme/a".parse::<Name>().unwrap()).await, AttemptId::new());
    let begin = Begin {
        owner: owner.clone(),
        prompt: long,
        attempt,
        quota: crate::Quota::default(),
        credential: None,
    };
    assert!(matches!(stage.backend.begin(begin).await.unwrap().done(), Some(Some(_))));
    let message = format!("\"{}\"", "x".repeat(20_000));
    for first_seq in 1..=1500 {
        let messages = vec![message.clone()];
        let append = Append { owner: owner.clone(), prompt: long, first_seq, messages, bound: u64::MAX };
        assert!(stage.backend.append(append).await.unwrap().done().is_some());
    }
    let outcome = PromptOutcome::Completed { result: ().into(), transcript_lost: false };
    let finish =
        Finish { owner, prompt: long, attempt, outcome, cost: Some(0), usage: None, quarantine: None };
    assert!(stage.backend.finish(finish).await.unwrap().done().is_some());
    tokio::time::sleep(SECOND / 10).await;
    let next = stage.accept(accept("b", HOUR)).await;
    assert_eq!(stage.backend.withdraw(next).await.unwrap(), Withdrawn::Unsent);
    let _keeper = stage.keeper();
    tokio::time::sleep(SECOND * 120).await;
    assert_eq!(stage.backend.prompt_record(next).await.unwrap(), None);
}

fn key(name: impl Into<String>) -> Credential {
    Credential::Key { name: name.into() }
}

/// Holds credentials, each after a turn of the name.
async fn hold(stage: &Stage, name: &str, credentials: impl Iterator<Item = Credential>) {
    let first = stage.accept(accept(name, HOUR)).await;
    let owner = stage.claim(&format!("acme/{name}").parse::<Name>().unwrap()).await;
    assert_eq!(stage.backend.withdraw(first).await.unwrap(), Withdrawn::Unsent);
    for credential in credentials {
        let (prompt, attempt) = (stage.accept(accept(name, HOUR)).await, AttemptId::new());
        let (owner, quota) = (owner.clone(), crate::Quota::default());
        let begin = Begin { owner: owner.clone(), prompt, attempt, quota, credential: None };
        assert!(matches!(stage.backend.begin(begin).await.unwrap().done(), Some(Some(_))));
        let outcome = PromptOutcome::Failed { kind: "overloaded".into(), message: "no".into(), result: None };
        let finish = Finish { owner, prompt, attempt, outcome, cost: None, usage: None, quarantine: None };
        let pause = Pause { first: HOUR, longest: HOUR, factor: 1.0 };
        let (cause, why) = (Cause::Overloaded, "no".to_owned());
        let reject = Reject { finish, credential, cause, why, resets_at: None, pause, again: false };
        assert_eq!(stage.backend.reject(reject).await.unwrap().done(), Some(true));
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_nobody_tries_is_forgotten_also_behind_a_page_of_others() {
    let backend = FaultedBackend::new(MemoryBackend::new());
    let stage = Stage::on(backend.clone(), FleetLimits::default()).await;
    hold(&stage, "a", [key("z")].into_iter()).await;
    tokio::time::sleep(HOUR * 24 * 8).await;
    let stage = Stage::on(backend, FleetLimits::default()).await;
    hold(&stage, "b", (0..1001).map(|n| key(format!("k{n}")))).await;
    let _keeper = stage.keeper();
    tokio::time::sleep(SECOND * 120).await;
    assert_eq!(stage.backend.hold(key("z")).await.unwrap(), None);
    assert_eq!(all_holds(&stage.backend).await.unwrap().len(), 1001, "the others are young");
}
