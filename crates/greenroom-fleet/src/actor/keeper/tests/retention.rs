//! Outcomes are forgotten after their time.

use super::*;
use crate::record::PromptOutcome;
use crate::request::{Append, Finish, Withdrawn};

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
