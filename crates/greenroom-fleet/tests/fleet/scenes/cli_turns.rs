//! Turns that a session's CLI begins by itself.

use greenroom_fleet::{
    FleetEvent, InterruptedBy, PassivatedBy, PromptEntry, PromptOrigin, PromptQuery, PromptState, Quota,
    TurnItem, Usage, UsageQuery,
};
use tokio::time::sleep;

use super::*;

/// The turn that the CLI of a name has begun by itself last.
async fn own(fleet: &Fleet, name: &str) -> Option<PromptEntry> {
    let page = in_time("the prompts", named(fleet, name).prompts(PromptQuery::new())).await.unwrap();
    page.prompts.into_iter().find(|entry| entry.record.origin == PromptOrigin::Cli)
}

fn begun(event: &FleetEvent) -> bool {
    matches!(event, FleetEvent::BegunByCli { .. })
}

fn passivating(event: &FleetEvent) -> bool {
    matches!(event, FleetEvent::Passivating { .. })
}

async fn used(fleet: &Fleet) -> Usage {
    let usage = in_time("the usage", fleet.tenant("default").unwrap().usage(UsageQuery::new())).await;
    usage.unwrap().iter().map(|day| day.usage).sum()
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_the_cli_begins_is_written_down_with_its_messages_its_outcome_and_its_cost() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let log = Log::of(&fleet);
    asks(&fleet, "a", "own 20 60 0.5").await;
    log.wait("the turn", begun).await;
    let entry = own(&fleet, "a").await.unwrap();
    assert!(matches!(entry.record.state, PromptState::Begun { .. }), "{entry:?}");
    assert_eq!((entry.text(), entry.outcome.is_none()), (None, true));
    assert_eq!(stage(&fleet, "a").await, "running");
    let mut turn = fleet.tenant("default").unwrap().turn(entry.record.id);
    let mut kinds = Vec::new();
    while let Some(item) = in_time("the message", turn.next()).await {
        if let TurnItem::Message { message, .. } = item.unwrap() {
            kinds.push(message.kind().to_owned());
        }
    }
    assert_eq!(kinds, ["system", "assistant", "result"]);
    assert_eq!(outcome(turn).await.text(), Some("I am done."));
    assert_eq!(log.end_of(entry.record.id).await, "completed");
    let used = used(&fleet).await;
    assert_eq!((used.turns, used.cost), (2, 500_000));
    assert_eq!(asks(&fleet, "a", "two").await, "re: two");
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_the_cli_begins_is_not_evicted() {
    let world = World::new();
    let fleet = world.fleet(|limits| limits.live = 1).await;
    let log = Log::of(&fleet);
    asks(&fleet, "a", "own 20 60").await;
    let began = log.wait("the turn", begun).await;
    sleep(secs(10)).await;
    let other = send(&fleet, "b", "one").await;
    let left = log.wait("the eviction", passivating).await;
    assert!(left - began >= secs(60), "{:?}", left - began);
    assert_eq!(outcome(other).await.text(), Some("re: one"));
    assert_eq!(own(&fleet, "a").await.unwrap().outcome.unwrap().text(), Some("I am done."));
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_the_cli_begins_puts_sleep_off() {
    let world = World::new();
    let fleet = world.fleet(|limits| limits.idle_after = secs(30)).await;
    let log = Log::of(&fleet);
    asks(&fleet, "a", "own 20 100").await;
    let began = log.wait("the turn", begun).await;
    let asleep = log
        .wait("sleep", |event| matches!(event, FleetEvent::Passivating { why: PassivatedBy::Idle, .. }))
        .await;
    assert!((secs(130)..secs(132)).contains(&(asleep - began)), "{:?}", asleep - began);
    assert_eq!(own(&fleet, "a").await.unwrap().outcome.unwrap().text(), Some("I am done."));
}

#[tokio::test(start_paused = true)]
async fn a_prompt_waits_for_the_end_of_a_turn_that_the_cli_began() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let log = Log::of(&fleet);
    asks(&fleet, "a", "own 20 60").await;
    log.wait("the turn", begun).await;
    let waits = send(&fleet, "a", "two").await;
    assert_eq!(outcome(waits).await.text(), Some("re: two"));
    assert_eq!(world.clis.prompts_of("a"), ["own 20 60", "two"]);
    assert!(world.clis.steered().is_empty(), "no prompt has come into the turn");
    let ends: Vec<_> =
        log.all().into_iter().filter(|(_, event)| matches!(event, FleetEvent::Ended { .. })).collect();
    let cli_turn = own(&fleet, "a").await.unwrap().record.id;
    assert!(matches!(ends[1].1, FleetEvent::Ended { prompt, .. } if prompt == cli_turn), "{ends:?}");
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_the_cli_begins_ends_at_the_limit_of_turns() {
    let world = World::new();
    let quota = Quota::default().turn(secs(100));
    let fleet = start(world.builder().tenant("default", quota)).await;
    let log = Log::of(&fleet);
    asks(&fleet, "a", "own 20 1000 0.5").await;
    let began = log.wait("the turn", begun).await;
    let cli_turn = own(&fleet, "a").await.unwrap().record.id;
    assert_eq!(log.end_of(cli_turn).await, "interrupted");
    let took = tokio::time::Instant::now() - began;
    assert!((secs(99)..secs(102)).contains(&took), "{took:?}");
    let outcome = own(&fleet, "a").await.unwrap().outcome.unwrap();
    assert!(
        matches!(&outcome, PromptOutcome::Interrupted { by: InterruptedBy::Session { cause }, .. } if cause.contains("Quota::turn")),
        "{outcome:?}"
    );
    assert_eq!(used(&fleet).await.cost, 250_000);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_the_cli_begins_without_money_for_it_is_ended_and_counted() {
    let world = World::new();
    let mut quota = Quota::default().budget_usd(1.0);
    quota.budget.as_mut().unwrap().reserve = 600_000;
    let fleet = start(world.builder().tenant("default", quota)).await;
    let log = Log::of(&fleet);
    asks(&fleet, "a", "own 20 60 0.2").await;
    asks(&fleet, "b", "cost 0.5").await;
    log.wait("the turn", begun).await;
    let cli_turn = own(&fleet, "a").await.unwrap().record.id;
    assert_eq!(log.end_of(cli_turn).await, "interrupted");
    let outcome = own(&fleet, "a").await.unwrap().outcome.unwrap();
    assert!(
        matches!(&outcome, PromptOutcome::Interrupted { by: InterruptedBy::Session { cause }, .. } if cause.contains("budget")),
        "{outcome:?}"
    );
    assert_eq!(used(&fleet).await.cost, 600_000);
}

#[tokio::test(start_paused = true)]
async fn a_cli_that_dies_in_a_turn_that_it_began_interrupts_it() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let log = Log::of(&fleet);
    asks(&fleet, "a", "own 20 die").await;
    log.wait("the turn", begun).await;
    let cli_turn = own(&fleet, "a").await.unwrap().record.id;
    assert_eq!(log.end_of(cli_turn).await, "interrupted");
    assert_eq!(asks(&fleet, "a", "two").await, "re: two");
    assert_eq!((used(&fleet).await.turns, used(&fleet).await.unmetered), (3, 1));
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_the_cli_began_is_interrupted_with_its_lost_owner() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let log = Log::of(&fleet);
    asks(&fleet, "a", "own 20 60").await;
    log.wait("the turn", begun).await;
    let next = world.killed().await;
    let fleet = next.fleet(|_| {}).await;
    assert_eq!(asks(&fleet, "a", "two").await, "re: two");
    let outcome = own(&fleet, "a").await.unwrap().outcome.unwrap();
    assert!(
        matches!(outcome, PromptOutcome::Interrupted { by: InterruptedBy::OwnerLost { .. }, .. }),
        "{outcome:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_a_turn_that_the_cli_began_and_cuts_it_at_its_limit() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let log = Log::of(&fleet);
    asks(&fleet, "a", "own 20 1000 0.5").await;
    log.wait("the turn", begun).await;
    let took = drain(&fleet, secs(28)).await;
    assert!((secs(20)..secs(28)).contains(&took), "{took:?}");
    let next = World { backend: world.backend.clone(), clis: world.clis.clone() };
    let fleet = next.fleet(|_| {}).await;
    let entry = own(&fleet, "a").await.unwrap();
    assert!(
        matches!(&entry.outcome, Some(PromptOutcome::Interrupted { by: InterruptedBy::Session { cause }, .. }) if cause.contains("drained")),
        "{entry:?}"
    );
    assert_eq!(entry.record.usage.cost, 250_000, "the interrupted CLI has told the cost");
}

#[tokio::test(start_paused = true)]
async fn a_session_sleeps_by_request_after_the_turn_that_the_cli_began() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let log = Log::of(&fleet);
    asks(&fleet, "a", "own 20 60").await;
    log.wait("the turn", begun).await;
    in_time("sleep", named(&fleet, "a").passivate()).await.unwrap();
    assert_eq!(own(&fleet, "a").await.unwrap().outcome.unwrap().text(), Some("I am done."));
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_the_cli_began_is_interrupted_by_its_id_and_takes_no_message() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let log = Log::of(&fleet);
    asks(&fleet, "a", "own 20 60").await;
    log.wait("the turn", begun).await;
    let cli_turn = own(&fleet, "a").await.unwrap().record.id;
    let steered = in_time("the message", named(&fleet, "a").steer("Listen.")).await;
    assert!(matches!(steered, Err(FleetError::State(_))), "{steered:?}");
    assert!(in_time("the interrupt", named(&fleet, "a").interrupt_turn(cli_turn)).await.unwrap());
    assert_eq!(log.end_of(cli_turn).await, "interrupted");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_asks_the_model_nothing_is_no_turn() {
    let world = World::new();
    let fleet = world.fleet(|limits| limits.idle_after = secs(100)).await;
    let log = Log::of(&fleet);
    asks(&fleet, "a", "own 20 none").await;
    log.wait("sleep", passivating).await;
    assert!(own(&fleet, "a").await.is_none());
    assert_eq!(log.count(begun), 0);
}
