//! Actors that have failed, and what goes on meanwhile.

use greenroom_fleet::{FleetEvent, InterruptedBy};
use tokio::time::sleep;

use super::review::{admission_fails, fail};
use super::*;

#[tokio::test(start_paused = true)]
async fn background_work_keeps_its_session_from_being_evicted_after_a_fault_of_admission() {
    let world = World::new();
    let fleet = world.fleet(|limits| limits.live = 1).await;
    let log = Log::of(&fleet);
    asks(&fleet, "a", "background on").await;
    // The session counts as busy after a second.
    sleep(secs(2)).await;
    admission_fails(&fleet, &log).await;
    sleep(secs(2)).await;
    let waits = send(&fleet, "b", "one").await;
    sleep(secs(60)).await;
    assert_eq!(log.count(|event| matches!(event, FleetEvent::Passivating { .. })), 0);
    assert!(fleet.operator().withdraw(waits.prompt_id()).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn the_turn_of_a_name_whose_actor_has_failed_can_be_interrupted() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let log = Log::of(&fleet);
    let turn = send(&fleet, "a", "hold").await;
    world.clis.read(1).await;
    fail(&fleet, &log).await;
    assert!(in_time("the interrupt", named(&fleet, "a").interrupt_turn(turn.prompt_id())).await.unwrap());
    let outcome = outcome(turn).await;
    assert!(matches!(outcome, PromptOutcome::Interrupted { by: InterruptedBy::User, .. }), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn a_name_whose_actor_has_failed_is_asleep_after_its_turn() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let log = Log::of(&fleet);
    let turn = send(&fleet, "a", "wait 30").await;
    world.clis.read(1).await;
    fail(&fleet, &log).await;
    in_time("sleep", named(&fleet, "a").passivate()).await.unwrap();
    assert_eq!(world.clis.live(), 0);
    assert_eq!(outcome(turn).await.text(), Some("re: wait 30"));
}
