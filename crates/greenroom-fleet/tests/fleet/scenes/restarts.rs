//! Actors that have failed, and what goes on meanwhile.

use greenroom_fleet::FleetEvent;
use tokio::time::sleep;

use super::review::admission_fails;
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
    assert!(fleet.withdraw(waits.prompt_id()).await.unwrap());
}
