//! Each transition is an event.

use greenroom_fleet::testkit::{Fault, FaultedBackend};
use greenroom_fleet::{FleetEvent, PromptId};

use super::*;

/// The events of a prompt: a word, and for an end its outcome.
fn of_prompt(event: &FleetEvent, of: PromptId) -> Option<String> {
    let (word, name, prompt) = match event {
        FleetEvent::Accepted { name, prompt } => ("accepted", name, prompt),
        FleetEvent::Begun { name, prompt } => ("begun", name, prompt),
        FleetEvent::Continues { name, prompt } => ("continues", name, prompt),
        FleetEvent::Ended { name, prompt, outcome } => (*outcome, name, prompt),
        _ => return None,
    };
    (*prompt == of).then(|| format!("{word} {name}"))
}

async fn story(log: &Log, of: PromptId, length: usize) -> Vec<String> {
    log.wait_for("the events of the prompt", length, |event| of_prompt(event, of).is_some()).await;
    log.all().iter().filter_map(|(_, event)| of_prompt(event, of)).collect()
}

async fn sends(fleet: &Fleet, name: &str, prompt: impl Into<FleetPrompt>) -> PromptId {
    in_time("the accept", named_of(fleet, "acme", name).prompt(prompt)).await.unwrap().prompt_id()
}

#[tokio::test(start_paused = true)]
async fn each_prompt_is_told_once_however_it_ends() {
    let world = World::new();
    let builder = world.builder().configure(|limits| limits.live = 1);
    let log = Log::new(builder.events());
    let fleet = start(builder).await;
    let completed = sends(&fleet, "a", "one").await;
    outcome(fleet.operator().turn(completed)).await;
    let interrupted = sends(&fleet, "a", "hold").await;
    world.clis.read(2).await;
    let expired = sends(&fleet, "a", FleetPrompt::new("late").wait(secs(5))).await;
    let withdrawn = sends(&fleet, "a", "no more").await;
    let deleted = sends(&fleet, "b", "never").await;
    assert!(
        fleet.operator().withdraw(withdrawn).await.unwrap()
            && fleet.operator().withdraw(withdrawn).await.unwrap()
    );
    tokio::time::sleep(secs(10)).await;
    for _ in 0..2 {
        named_of(&fleet, "acme", "b").delete().await.unwrap();
    }
    named_of(&fleet, "acme", "a").interrupt().await.unwrap();
    let of = |name: &str, words: &[&str]| {
        words.iter().map(|word| format!("{word} acme/{name}")).collect::<Vec<_>>()
    };
    assert_eq!(story(&log, completed, 3).await, of("a", &["accepted", "begun", "completed"]));
    assert_eq!(story(&log, interrupted, 3).await, of("a", &["accepted", "begun", "interrupted"]));
    assert_eq!(story(&log, expired, 2).await, of("a", &["accepted", "unsent"]));
    assert_eq!(story(&log, withdrawn, 2).await, of("a", &["accepted", "unsent"]));
    assert_eq!(story(&log, deleted, 2).await, of("b", &["accepted", "unsent"]));
    let told = |wanted: &str| {
        let word = |event: &FleetEvent| serde_json::to_value(event).unwrap()["event"] == wanted;
        log.count(word)
    };
    assert_eq!((told("deleting"), told("deleted")), (1, 1));
    fleet.drain(secs(10)).await;
    tokio::time::sleep(secs(1)).await;
    for (prompt, length) in [(completed, 3), (interrupted, 3), (expired, 2), (withdrawn, 2), (deleted, 2)] {
        assert_eq!(story(&log, prompt, length).await.len(), length, "told twice");
    }
}

#[tokio::test(start_paused = true)]
async fn turns_of_a_lost_owner_are_told_by_the_fleet_that_recovers_them() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let ends = sends(&fleet, "a", "hold").await;
    let goes_on = sends(&fleet, "b", FleetPrompt::new("hold").continue_with("go on", 1)).await;
    world.clis.read(2).await;
    let world = world.killed().await;
    world.clis.gone().await;
    let builder = world.builder();
    let log = Log::new(builder.events());
    let fleet = start(builder).await;
    outcome(fleet.operator().turn(goes_on)).await;
    assert_eq!(story(&log, ends, 1).await, ["interrupted acme/a"]);
    let went_on = ["continues acme/b", "begun acme/b", "completed acme/b"];
    assert_eq!(story(&log, goes_on, 3).await, went_on);
    assert_eq!(
        log.count(
            |event| matches!(event, FleetEvent::Recovered { name } if name.tenant().as_str() == "acme")
        ),
        2
    );
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_a_drain_cuts_off_is_told_to_go_on() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let log = Log::of(&fleet);
    let goes_on = sends(&fleet, "a", FleetPrompt::new("hold").continue_with("go on", 1)).await;
    world.clis.read(1).await;
    fleet.drain(secs(10)).await;
    assert_eq!(story(&log, goes_on, 3).await, ["accepted acme/a", "begun acme/a", "continues acme/a"]);
}

#[tokio::test(start_paused = true)]
async fn a_transition_whose_reply_is_lost_is_told_once() {
    let world = World::new();
    let backend = FaultedBackend::new(world.backend.clone());
    let fleet = start(world.on(backend.clone())).await;
    let log = Log::of(&fleet);
    for method in ["accept", "begin", "finish"] {
        backend.fault_next(method, Fault::LoseReply);
    }
    let prompt = sends(&fleet, "a", "one").await;
    outcome(fleet.operator().turn(prompt)).await;
    backend.fault_next("quarantine", Fault::LoseReply);
    backend.fault_next("unquarantine", Fault::LoseReply);
    named_of(&fleet, "acme", "a").quarantine("by hand").await.unwrap();
    // The repeated request finds that the first one has done the work.
    assert!(!named_of(&fleet, "acme", "a").unquarantine().await.unwrap());
    let lifted = |event: &FleetEvent| matches!(event, FleetEvent::Unquarantined { name } if name.tenant().as_str() == "acme");
    log.wait("the lift", lifted).await;
    let told = ["accepted acme/a", "begun acme/a", "completed acme/a"];
    assert_eq!(story(&log, prompt, 3).await, told);
    let quarantined = |event: &FleetEvent| matches!(event, FleetEvent::Quarantined { name, .. } if name.tenant().as_str() == "acme");
    assert_eq!((log.count(quarantined), log.count(lifted)), (1, 1));
}
