//! Messages into turns, and sessions that are started, of another node.

use greenroom_fleet::testkit::Fault;
use greenroom_fleet::{FleetError, NameState};
use tokio::time::sleep;

use super::*;
use crate::scenes::{named, outcome, secs, send, stage};
use crate::wait::within;

#[tokio::test(start_paused = true)]
async fn a_message_from_another_node_reaches_the_turn_once() {
    for (deaf, limit) in [(false, 1), (true, 7)] {
        let world = World::new();
        let [first, second] = two(&world, deaf).await;
        let turn = send(&first.fleet, "a", "listen").await;
        world.clis.read(2).await;
        let there = named(&second.fleet, "a");
        within(secs(limit), there.steer("be kind")).await.unwrap();
        world.clis.heard(1).await;
        assert_eq!(world.clis.steered(), [("a".to_owned(), "be kind".to_owned())]);
        assert_eq!(first.backend.requests("take_command"), 1);
        assert!(within(secs(limit), there.interrupt()).await.unwrap());
        assert_eq!(outcome(turn).await.word(), "interrupted");
        let late = within(secs(limit), there.steer("too late")).await.unwrap_err();
        assert!(matches!(&late, FleetError::State(why) if why.contains("no turn")), "{late:?}");
        assert_eq!(world.clis.steered().len(), 1);
    }
}

// Guards: never-run-twice
#[tokio::test(start_paused = true)]
async fn a_late_message_from_another_node_is_said_in_no_later_turn() {
    let world = World::new();
    let [first, second] = two(&world, false).await;
    let ends = send(&first.fleet, "a", "wait 5").await;
    world.clis.read(2).await;
    first.backend.fault_next("take_command", Fault::Hang);
    let there = named(&second.fleet, "a");
    let late = tokio::spawn(async move { there.steer("late").await });
    in_time("the take", first.backend.wait_for_hanging(1)).await;
    let later = send(&first.fleet, "a", "hold").await;
    assert!(outcome(ends).await.is_completed());
    world.clis.read(3).await;
    first.backend.release();
    let late = in_time("the late message", late).await.unwrap().unwrap_err();
    assert!(matches!(late, FleetError::State(_)), "{late:?}");
    assert_eq!(stage(&first.fleet, "a").await, "running");
    assert!(named(&first.fleet, "a").interrupt().await.unwrap());
    assert_eq!(outcome(later).await.word(), "interrupted");
    assert_eq!(world.clis.steered(), []);
}

// Guards: never-run-twice
#[tokio::test(start_paused = true)]
async fn a_message_whose_replies_are_lost_is_said_once() {
    for method in ["put_command", "take_command", "finish_command", "command"] {
        let world = World::new();
        let [first, second] = two(&world, false).await;
        let turn = send(&first.fleet, "a", "listen").await;
        world.clis.read(2).await;
        for node in [&first, &second] {
            node.backend.fault_next(method, Fault::LoseReply);
        }
        within(secs(10), named(&second.fleet, "a").steer("once")).await.unwrap();
        world.clis.heard(1).await;
        sleep(secs(30)).await;
        assert_eq!(world.clis.steered().len(), 1, "{method}");
        assert!(named(&first.fleet, "a").interrupt().await.unwrap());
        assert_eq!(outcome(turn).await.word(), "interrupted");
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_too_long_for_another_node_is_refused() {
    let world = World::new();
    let [first, second] = two(&world, false).await;
    let turn = send(&first.fleet, "a", "listen").await;
    world.clis.read(2).await;
    let refused = named(&second.fleet, "a").steer("x".repeat(20_000)).await.unwrap_err();
    assert!(matches!(&refused, FleetError::State(why) if why.contains("16384")), "{refused:?}");
    assert_eq!(second.backend.requests("put_command"), 0);
    named(&first.fleet, "a").steer("x".repeat(20_000)).await.unwrap();
    world.clis.heard(1).await;
    assert!(named(&first.fleet, "a").interrupt().await.unwrap());
    assert_eq!(outcome(turn).await.word(), "interrupted");
    assert_eq!(world.clis.steered().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn warm_is_done_where_the_session_is_awake_and_here_if_nobody_owns_it() {
    for deaf in [false, true] {
        let world = World::new();
        let [first, second] = two(&world, deaf).await;
        let there = named(&second.fleet, "a");
        within(secs(7), there.warm()).await.unwrap();
        assert_eq!((world.clis.starts_of("a"), stage(&first.fleet, "a").await), (1, "idle"));
        named(&first.fleet, "a").passivate().await.unwrap();
        within(secs(7), there.warm()).await.unwrap();
        assert_eq!((world.clis.starts_of("a"), stage(&second.fleet, "a").await), (2, "idle"));
        let record = there.record().await.unwrap();
        assert!(matches!(record.state, NameState::Owned { .. }), "{record:?}");
    }
}
