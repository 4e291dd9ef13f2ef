//! Drain and restart.

use greenroom_fleet::backend::{LocalBackend, Requests};
use greenroom_fleet::testkit::{Fault, FaultedBackend};
use greenroom_fleet::{FleetEvent, InterruptedBy, PromptState};
use tokio::time::{Instant, sleep};

use super::*;

#[tokio::test(start_paused = true)]
async fn a_drain_ends_idle_sessions_at_once() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    for name in ["a", "b", "c"] {
        asks(&fleet, name, "one").await;
    }
    let took = drain(&fleet, secs(28)).await;
    assert!(took < secs(1), "{took:?}");
    assert_eq!(world.clis.live(), 0);
    let nodes = world.backend.nodes(None, 10).await.unwrap();
    assert!(nodes.is_empty(), "the node has left: {nodes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_running_turn_may_end_while_the_fleet_drains() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let turn = send(&fleet, "a", "wait 15").await;
    let waits = send(&fleet, "a", "two").await;
    world.clis.read(1).await;
    let took = drain(&fleet, secs(28)).await;
    assert!((secs(14)..secs(17)).contains(&took), "{took:?}");
    assert_eq!(outcome(turn).await.text(), Some("re: wait 15"));
    let record = world.backend.prompt_record(waits.prompt_id()).await.unwrap().unwrap();
    assert_eq!(record.state, PromptState::Queued, "what is queued stays");
}

// Guards: drain-bounded
#[tokio::test(start_paused = true)]
async fn a_turn_longer_than_the_drain_is_cut_off_and_goes_on_with_its_continuation() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let ends = send(&fleet, "a", "hold").await;
    let goes_on = send(&fleet, "b", FleetPrompt::new("hold").continue_with("go on", 1)).await.prompt_id();
    let waits = send(&fleet, "a", "two").await.prompt_id();
    world.clis.read(2).await;
    let took = drain(&fleet, secs(20)).await;
    // Cut off five seconds before the end.
    assert!((secs(14)..secs(17)).contains(&took), "{took:?}");
    assert_eq!(world.clis.live(), 0);
    let cut = outcome(ends).await;
    assert!(
        matches!(&cut, PromptOutcome::Interrupted { by: InterruptedBy::Session { cause }, .. } if cause.contains("drained")),
        "{cut:?}"
    );

    let fleet = world.fleet(|_| {}).await;
    assert_eq!(outcome(fleet.operator().turn(goes_on)).await.text(), Some("re: go on"));
    assert_eq!(outcome(fleet.operator().turn(waits)).await.text(), Some("re: two"));
    assert_eq!(world.clis.prompts_of("b"), ["hold", "go on"]);
    assert_eq!((world.clis.starts_of("a"), world.clis.starts_of("b")), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_drain_refuses_prompts_and_tells_its_readers() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let log = Log::of(&fleet);
    let turn = send(&fleet, "a", "wait 10").await;
    let mut waits = send(&fleet, "a", "two").await;
    world.clis.read(1).await;
    let other = fleet.clone();
    let draining = tokio::spawn(async move { other.drain(secs(28)).await });
    log.wait("the drain", |event| matches!(event, FleetEvent::Draining)).await;
    let (why, retry_after) = refused(&named(&fleet, "b"), "one").await;
    assert_eq!((why, retry_after.is_some()), (Refused::Draining, true));
    assert!(in_time("warm", named(&fleet, "a").warm()).await.is_ok(), "it is up");
    assert!(in_time("warm", named(&fleet, "b").warm()).await.is_err());
    in_time("the drain", draining).await.unwrap();
    assert!(outcome(turn).await.is_completed());
    assert!(matches!(in_time("the reader", waits.outcome()).await, Err(greenroom_fleet::FleetError::Ended)));
    let last = log.all().pop().unwrap().1;
    assert!(matches!(last, FleetEvent::Left { .. }), "{last:?}");
}

#[tokio::test(start_paused = true)]
async fn dropped_handles_drain_the_fleet() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let mut turn = send(&fleet, "a", "wait 10").await;
    world.clis.read(1).await;
    let begun = Instant::now();
    drop(fleet);
    assert_eq!(in_time("the outcome", turn.outcome()).await.unwrap().text(), Some("re: wait 10"));
    world.clis.gone().await;
    // Long before the session would have slept.
    assert!(begun.elapsed() < secs(12), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_earliest_deadline_of_two_drains_counts() {
    for (first, second) in [(600, 6), (6, 600)] {
        let world = World::new();
        let fleet = world.fleet(|_| {}).await;
        drop(send(&fleet, "a", "hold").await);
        world.clis.read(1).await;
        let begun = Instant::now();
        in_time("both", async { tokio::join!(fleet.drain(secs(first)), fleet.drain(secs(second))) }).await;
        assert!(begun.elapsed() <= secs(6), "{:?}", begun.elapsed());
    }
}

// Guards: drain-bounded
#[tokio::test(start_paused = true)]
async fn a_drain_keeps_its_deadline_whatever_hangs() {
    for method in ["claim", "begin", "append", "finish", "release", "leave", "record_process", "renew"] {
        let world = World::new();
        let backend = FaultedBackend::new(world.backend.clone());
        let fleet = start(world.on(backend.clone())).await;
        asks(&fleet, "idle", "one").await;
        drop(send(&fleet, "a", "wait 1").await);
        world.clis.read(2).await;
        backend.plan(move |request| if request.method == method { Fault::Hang } else { Fault::Pass });
        drop(send(&fleet, "b", "one").await);
        let took = drain(&fleet, secs(12)).await;
        assert!(took <= secs(13), "{method}: {took:?}");
        world.clis.gone().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_no_backoff() {
    let world = World::new();
    let builder =
        world.builder().profile("broken", |_| panic!("no")).configure(|limits| limits.backoff = secs(50));
    let fleet = start(builder).await;
    let log = Log::of(&fleet);
    drop(named(&fleet, "a").profile("broken").prompt("one").await.unwrap());
    log.wait("the failure", |event| matches!(event, FleetEvent::ActivationFailed { .. })).await;
    let took = drain(&fleet, secs(28)).await;
    assert!(took < secs(1), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn an_activation_that_fails_while_the_fleet_drains_does_not_hold_it_up() {
    let world = World::new();
    let backend = FaultedBackend::new(world.backend.clone());
    backend.plan(|request| if request.method == "claim" { Fault::Delay(secs(2)) } else { Fault::Pass });
    let builder =
        world.on(backend).profile("broken", |_| panic!("no")).configure(|limits| limits.backoff = secs(50));
    let fleet = start(builder).await;
    drop(named(&fleet, "a").profile("broken").prompt("one").await.unwrap());
    sleep(secs(1)).await;
    let took = drain(&fleet, secs(28)).await;
    assert!(took < secs(3), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn readers_go_on_after_a_restart_by_id_and_number() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let mut turn = send(&fleet, "a", "one").await;
    let mut numbers = Vec::new();
    while let Some(item) = in_time("an item", turn.next()).await {
        numbers.push(item.unwrap().seq().unwrap());
    }
    assert_eq!(numbers, [1, 2, 3], "init, the answer, the result");
    let id = turn.prompt_id();
    drain(&fleet, secs(20)).await;
    let fleet = world.fleet(|_| {}).await;
    let mut again = fleet.operator().turn(id).messages_from(2);
    let first = in_time("an item", again.next()).await.unwrap().unwrap();
    assert_eq!((first.seq(), first.text().as_deref()), (Some(2), Some("re: one")));
    assert_eq!(outcome(again).await.text(), Some("re: one"));
}

#[tokio::test]
async fn a_restart_on_a_file_keeps_names_prompts_keys_and_outcomes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fleet.redb");
    let world = World::new();
    let open = async || {
        let backend = LocalBackend::open(&path).await.unwrap();
        (start(world.on(backend.clone()).configure(|limits| limits.live = 4)).await, backend)
    };
    let (fleet, backend) = open().await;
    let ended = send(&fleet, "a", FleetPrompt::new("one").key("k")).await.prompt_id();
    outcome(fleet.operator().turn(ended)).await;
    let runs = send(&fleet, "a", "hold").await.prompt_id();
    let goes_on = send(&fleet, "b", FleetPrompt::new("hold").continue_with("go on", 1)).await.prompt_id();
    world.clis.read(3).await;
    let mut waits = Vec::new();
    for name in ["a", "b", "c", "d", "e", "f"] {
        waits.push((name, send(&fleet, name, "wait 0").await.prompt_id()));
    }
    drain(&fleet, secs(2)).await;
    backend.close().await;

    let (fleet, _) = open().await;
    let cut = outcome(fleet.operator().turn(runs)).await;
    assert!(matches!(cut, PromptOutcome::Interrupted { .. }), "{cut:?}");
    assert_eq!(outcome(fleet.operator().turn(goes_on)).await.text(), Some("re: go on"));
    for (name, id) in waits {
        assert_eq!(outcome(fleet.operator().turn(id)).await.text(), Some("re: wait 0"), "{name}");
        assert_eq!(world.clis.prompts_of(name).iter().filter(|text| *text == "wait 0").count(), 1);
    }
    assert!(send(&fleet, "a", FleetPrompt::new("one").key("k")).await.is_duplicate());
    assert_eq!(outcome(fleet.operator().turn(ended)).await.text(), Some("re: one"));
    drain(&fleet, secs(5)).await;
}

#[tokio::test(start_paused = true)]
async fn a_prompt_whose_session_starts_when_the_drain_begins_goes_on_waiting() {
    let world = World::new();
    let backend = FaultedBackend::new(world.backend.clone());
    let fleet = start(world.on(backend.clone())).await;
    backend.fault_next("claim", Fault::Delay(secs(2)));
    let waits = send(&fleet, "a", "one").await.prompt_id();
    sleep(secs(1)).await;
    let took = drain(&fleet, secs(28)).await;
    assert!(took < secs(3), "{took:?}");
    let record = world.backend.prompt_record(waits).await.unwrap().unwrap();
    assert_eq!((record.state, record.begins), (PromptState::Queued, 0));
    assert_eq!(world.clis.prompts_of("a"), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_fleet_without_a_session_drains_at_once() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let took = drain(&fleet, secs(28)).await;
    assert!(took < secs(1), "{took:?}");
}
