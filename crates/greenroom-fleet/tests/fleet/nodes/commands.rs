//! Commands to a session of another node.

use greenroom_fleet::testkit::Fault;
use greenroom_fleet::{FleetError, InterruptedBy, NameState, PromptId, PromptOutcome, Refused};
use tokio::time::{Instant, sleep};

use super::*;
use crate::scenes::{asks, named, outcome, refused, secs, send, stage};
use crate::wait::within;

fn by_user(outcome: &PromptOutcome) -> bool {
    matches!(outcome, PromptOutcome::Interrupted { by: InterruptedBy::User, .. })
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_from_another_node_ends_the_turn_once() {
    // A lost hint is found by looking: the owner looks each second once it has seen the other node.
    for (deaf, limit) in [(false, 1), (true, 7)] {
        let world = World::new();
        let [first, second] = two(&world, deaf).await;
        let turn = send(&first.fleet, "a", "hold").await;
        world.clis.read(2).await;
        let there = named(&second.fleet, "a");
        assert!(within(secs(limit), there.interrupt()).await.unwrap());
        let outcome = outcome(turn).await;
        assert!(by_user(&outcome), "{outcome:?}");
        assert!(!within(secs(limit), there.interrupt()).await.unwrap(), "no turn runs");
        assert_eq!(first.backend.requests("take_command"), 1);
        assert_eq!(asks(&second.fleet, "a", "two").await, "re: two");
        assert_eq!(world.clis.starts_of("a"), 1);
    }
}

// Guards: never-run-twice
#[tokio::test(start_paused = true)]
async fn a_late_interrupt_from_another_node_hits_no_later_turn() {
    let world = World::new();
    let [first, second] = two(&world, false).await;
    let ends = send(&first.fleet, "a", "wait 5").await;
    world.clis.read(2).await;
    first.backend.fault_next("take_command", Fault::Hang);
    let there = named(&second.fleet, "a");
    let late = tokio::spawn(async move { there.interrupt().await });
    in_time("the take", first.backend.wait_for_hanging(1)).await;
    let later = send(&first.fleet, "a", "hold").await;
    assert!(outcome(ends).await.is_completed());
    world.clis.read(3).await;
    first.backend.release();
    assert!(!in_time("the late interrupt", late).await.unwrap().unwrap());
    let there = named(&second.fleet, "a");
    assert!(!in_time("a wrong interrupt", there.interrupt_turn(PromptId::new())).await.unwrap());
    assert_eq!(stage(&first.fleet, "a").await, "running");
    assert!(in_time("the interrupt", there.interrupt_turn(later.prompt_id())).await.unwrap());
    assert!(by_user(&outcome(later).await));
}

#[tokio::test(start_paused = true)]
async fn passivate_from_another_node_waits_for_the_turn() {
    for deaf in [false, true] {
        let world = World::new();
        let [first, second] = two(&world, deaf).await;
        let turn = send(&first.fleet, "a", "wait 60").await;
        world.clis.read(2).await;
        let begun = Instant::now();
        in_time("passivate", named(&second.fleet, "a").passivate()).await.unwrap();
        assert!(begun.elapsed() >= secs(59), "{:?}", begun.elapsed());
        assert!(outcome(turn).await.is_completed());
        assert_eq!(world.clis.live(), 0);
        let record = named(&second.fleet, "a").record().await.unwrap();
        assert!(matches!(record.state, NameState::Free), "{record:?}");
        within(secs(1), named(&second.fleet, "a").passivate()).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_is_lost_with_a_command_leaves_its_outcome_unknown() {
    let world = World::new();
    let [first, second] = two(&world, false).await;
    let turn = send(&first.fleet, "a", "hold").await;
    world.clis.read(2).await;
    first.backend.fault_next("take_command", Fault::HangReply);
    let there = named(&second.fleet, "a");
    let unknown = tokio::spawn(async move { there.interrupt().await });
    in_time("the take", first.backend.wait_for_hanging(1)).await;
    first.kill(&world).await;
    let unknown = within(secs(60), unknown).await.unwrap();
    assert!(matches!(unknown, Err(FleetError::OutcomeUnknown { .. })), "{unknown:?}");
    let lost = outcome(second.fleet.operator().turn(turn.prompt_id())).await;
    let by_loss = matches!(lost, PromptOutcome::Interrupted { by: InterruptedBy::OwnerLost { .. }, .. });
    assert!(by_loss, "{lost:?}");
    assert_eq!(asks(&second.fleet, "a", "two").await, "re: two");
    assert_eq!(second.backend.requests("take_command"), 0, "nobody carries it out again");
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_takes_no_command_is_silent_and_nothing_is_done() {
    let world = World::new();
    let [first, second] = two(&world, false).await;
    let turn = send(&first.fleet, "a", "hold").await;
    world.clis.read(2).await;
    first.backend.plan(|request| match request.method {
        "take_command" => Fault::Fail,
        _ => Fault::Pass,
    });
    let there = named(&second.fleet, "a");
    let silent = within(secs(12), there.interrupt()).await;
    assert!(matches!(silent, Err(FleetError::OwnerSilent { .. })), "{silent:?}");
    first.backend.disable();
    sleep(secs(30)).await;
    assert_eq!(stage(&first.fleet, "a").await, "running", "a command is not carried out after its deadline");
    assert!(within(secs(1), there.interrupt()).await.unwrap());
    assert!(by_user(&outcome(turn).await));
}

// Guards: never-run-twice
#[tokio::test(start_paused = true)]
async fn a_command_whose_replies_are_lost_is_carried_out_once() {
    for method in ["put_command", "take_command", "finish_command", "command"] {
        let world = World::new();
        let [first, second] = two(&world, false).await;
        let turn = send(&first.fleet, "a", "hold").await;
        world.clis.read(2).await;
        for node in [&first, &second] {
            node.backend.fault_next(method, Fault::LoseReply);
        }
        let interrupted = within(secs(10), named(&second.fleet, "a").interrupt()).await;
        assert!(interrupted.unwrap(), "{method}");
        assert!(by_user(&outcome(turn).await));
        let next = send(&first.fleet, "a", "hold").await;
        world.clis.read(3).await;
        sleep(secs(30)).await;
        assert_eq!(stage(&first.fleet, "a").await, "running", "{method}: it was carried out twice");
        drop(next);
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_is_quarantined_and_deleted_from_another_node() {
    let world = World::new();
    let [first, second] = two(&world, false).await;
    let turn = send(&first.fleet, "a", "hold").await;
    let waits = send(&first.fleet, "a", "later").await;
    world.clis.read(2).await;
    let there = named(&second.fleet, "a");
    within(secs(2), there.quarantine("by hand")).await.unwrap();
    assert_eq!(outcome(turn).await.word(), "interrupted");
    let (why, _) = refused(&named(&first.fleet, "a"), "two").await;
    assert!(matches!(why, Refused::Quarantined { .. }), "{why:?}");
    assert_eq!(world.clis.live(), 0);
    assert!(there.unquarantine().await.unwrap());
    assert_eq!(outcome(waits).await.text(), Some("re: later"));

    let [owner, other] = match stage(&first.fleet, "a").await {
        "passive" => [&second, &first],
        _ => [&first, &second],
    };
    let turn = send(&owner.fleet, "a", "hold").await;
    world.clis.read(4).await;
    within(secs(2), named(&other.fleet, "a").delete()).await.unwrap();
    assert!(matches!(named(&owner.fleet, "a").record().await, Err(FleetError::NotFound { .. })));
    assert_eq!(owner.log.end_of(turn.prompt_id()).await, "interrupted");
    assert_eq!(world.clis.live(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_commands_is_refused_and_answered() {
    let world = World::new();
    let [first, second] = two(&world, false).await;
    let turn = send(&first.fleet, "a", "hold").await;
    world.clis.read(2).await;
    let mut asleep = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let there = named(&second.fleet, "a");
        asleep.spawn(async move { there.passivate().await });
    }
    sleep(secs(2)).await;
    assert!(named(&first.fleet, "a").interrupt().await.unwrap());
    assert!(by_user(&outcome(turn).await));
    let answers = in_time("the answers", asleep.join_all()).await;
    let refused = answers.iter().filter(|answer| matches!(answer, Err(FleetError::OwnerBusy { .. }))).count();
    let done = answers.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!((refused, done), (4, 16));
}
