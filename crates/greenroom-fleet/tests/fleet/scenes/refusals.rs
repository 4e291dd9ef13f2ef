//! Requests that the backend refuses for good: the session ends, and the name tries again.

use greenroom_fleet::testkit::{Fault, FaultedBackend};
use greenroom_fleet::{BackendErrorKind, FleetEvent, InterruptedBy, PassivatedBy};
use tokio::time::Instant;

use super::*;

/// Runs a prompt whose first request of a method is refused. Returns the outcome, the time, and the events.
async fn refused_once(method: &'static str, kind: BackendErrorKind) -> (World, PromptOutcome, Duration, Log) {
    let world = World::new();
    let backend = FaultedBackend::new(world.backend.clone());
    backend.fault_next(method, Fault::Refuse(kind));
    let fleet = start(world.on(backend.clone())).await;
    let log = Log::of(&fleet);
    let begun = Instant::now();
    let ended = outcome(send(&fleet, "a", "one").await).await;
    let took = begun.elapsed();
    assert_eq!(asks(&fleet, "a", "two").await, "re: two");
    assert!(backend.requests(method) >= 2, "{method}");
    drain(&fleet, secs(20)).await;
    assert_eq!((world.clis.live(), world.clis.most_live()), (0, 1));
    (world, ended, took, log)
}

fn failures(log: &Log) -> usize {
    log.count(|event| matches!(event, FleetEvent::Passivating { why: PassivatedBy::Failure, .. }))
}

/// The reasons why `a` was not activated.
fn not_activated(log: &Log) -> Vec<String> {
    let why = |(_, event)| match event {
        FleetEvent::ActivationFailed { name, why, .. } if name.session() == "a" => Some(why),
        _ => None,
    };
    log.all().into_iter().filter_map(why).collect()
}

fn lost(outcome: &PromptOutcome) -> bool {
    matches!(outcome, PromptOutcome::Interrupted { by: InterruptedBy::OwnerLost { .. }, .. })
}

#[tokio::test(start_paused = true)]
async fn a_begin_that_is_refused_is_tried_again_in_another_session() {
    for kind in [BackendErrorKind::Damaged, BackendErrorKind::Invalid, BackendErrorKind::Version] {
        let (world, ended, took, log) = refused_once("begin", kind).await;
        assert_eq!(ended.text(), Some("re: one"), "{kind:?}");
        assert_eq!(world.clis.prompts_of("a"), ["one", "two"], "{kind:?}");
        assert_eq!((world.clis.starts_of("a"), failures(&log)), (2, 1), "{kind:?}");
        // The first wait after a failure is 1 s, a quarter more or less.
        assert!((750..2000).contains(&took.as_millis()), "{kind:?}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_whose_message_or_outcome_is_refused_is_not_sent_again() {
    for method in ["append", "finish"] {
        let (world, ended, _, log) = refused_once(method, BackendErrorKind::Damaged).await;
        assert!(lost(&ended), "{method}: {ended:?}");
        assert_eq!(world.clis.prompts_of("a"), ["one", "two"], "{method}");
        assert_eq!((world.clis.starts_of("a"), failures(&log)), (2, 1), "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_cannot_be_kept_is_a_failure_that_says_so() {
    let (world, ended, ..) = refused_once("finish", BackendErrorKind::Invalid).await;
    let PromptOutcome::Failed { kind, message, result: None } = &ended else { panic!("{ended:?}") };
    assert_eq!(kind, "invalid");
    assert!(message.starts_with("the outcome of the turn cannot be kept: "), "{message}");
    assert_eq!(world.clis.prompts_of("a"), ["one", "two"]);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_refused_is_tried_again_after_a_pause() {
    let (world, ended, took, log) = refused_once("claim", BackendErrorKind::Damaged).await;
    assert_eq!(ended.text(), Some("re: one"));
    assert!((750..2000).contains(&took.as_millis()), "{took:?}");
    assert_eq!((world.clis.starts_of("a"), failures(&log)), (1, 0), "no session was there to end");
    assert_eq!(not_activated(&log), ["a fault of the test: the request `claim` is refused as Damaged"]);
}

#[tokio::test(start_paused = true)]
async fn an_activation_that_cannot_be_written_down_starts_no_cli() {
    let (world, ended, took, log) = refused_once("record_process", BackendErrorKind::Damaged).await;
    assert_eq!(ended.text(), Some("re: one"));
    assert!((750..2000).contains(&took.as_millis()), "{took:?}");
    assert_eq!(world.clis.starts_of("a"), 1);
    assert_eq!(log.count(|event| matches!(event, FleetEvent::ActivationFailed { .. })), 1);
}

/// A backend that refuses to write down the process of the first activation, whose claim it has written down.
fn refuses_the_process(world: &World) -> FaultedBackend {
    let backend = FaultedBackend::new(world.backend.clone());
    backend.plan(|request| match (request.method, request.nth) {
        ("record_process", 2) => Fault::Refuse(BackendErrorKind::Damaged),
        _ => Fault::Pass,
    });
    backend
}

#[tokio::test(start_paused = true)]
async fn a_process_that_cannot_be_written_down_is_ended_before_it_gets_a_prompt() {
    let world = World::new();
    let fleet = start(world.on(refuses_the_process(&world))).await;
    let log = Log::of(&fleet);
    assert_eq!(asks(&fleet, "a", "one").await, "re: one");
    assert_eq!((world.clis.starts_of("a"), world.clis.most_live()), (2, 1));
    assert_eq!(world.clis.prompts_of("a"), ["one"]);
    assert_eq!(log.count(|event| matches!(event, FleetEvent::ActivationFailed { .. })), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failed_activation_that_cannot_be_counted_gives_the_name_back() {
    let world = World::new();
    let backend = refuses_the_process(&world);
    // The process cannot be written down, and then the failure cannot either.
    backend.fault_next("activation_failed", Fault::Refuse(BackendErrorKind::Damaged));
    let fleet = start(world.on(backend.clone())).await;
    let log = Log::of(&fleet);
    assert_eq!(asks(&fleet, "a", "one").await, "re: one");
    assert_eq!((world.clis.starts_of("a"), world.clis.most_live(), failures(&log)), (2, 1, 1));
    assert_eq!(backend.requests("activation_failed"), 1);
    assert_eq!(named(&fleet, "a").record().await.unwrap().failures.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_cannot_be_read_is_looked_at_again() {
    let world = World::new();
    let backend = FaultedBackend::new(world.backend.clone());
    let fleet = start(world.on(backend.clone())).await;
    let log = Log::of(&fleet);
    backend.plan(|request| match request.method {
        "next_prompt" => Fault::Refuse(BackendErrorKind::Damaged),
        _ => Fault::Pass,
    });
    let turn = send(&fleet, "a", "one").await;
    tokio::time::sleep(secs(20)).await;
    assert_eq!(world.clis.starts_of("a"), 0);
    let why = not_activated(&log);
    assert!(why.iter().any(|why| why.contains("`next_prompt` is refused")), "{why:?}");
    backend.disable();
    let begun = Instant::now();
    assert_eq!(outcome(turn).await.text(), Some("re: one"));
    // The keeper looks each five seconds.
    assert!(begun.elapsed() < secs(6), "{:?}", begun.elapsed());
}
