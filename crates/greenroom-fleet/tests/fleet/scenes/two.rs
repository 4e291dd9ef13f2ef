//! Two fleets on one backend, and a fleet under another actor.

use greenroom_fleet::{FleetEvent, NameState};
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::*;

#[tokio::test(start_paused = true)]
async fn two_fleets_on_one_backend_have_one_owner_of_a_name_at_a_time() {
    let world = World::new();
    let fleets = [world.fleet(|_| {}).await, world.fleet(|_| {}).await];
    let mut turns = Vec::new();
    for n in 0..40 {
        turns.push(send(&fleets[n % 2], &format!("name-{}", n % 5), format!("{n}")).await);
    }
    for (n, turn) in turns.into_iter().enumerate() {
        assert_eq!(outcome(turn).await.text(), Some(format!("re: {n}").as_str()));
    }
    assert_eq!(world.clis.prompts().len(), 40);
    // Panics if a name had two.
    assert!(world.clis.most_live() <= 5);
}

#[tokio::test(start_paused = true)]
async fn another_fleet_takes_a_name_over_when_its_owner_drains() {
    let world = World::new();
    let first = world.fleet(|_| {}).await;
    // It is the owner before another fleet is there.
    asks(&first, "a", "one").await;
    let second = world.fleet(|_| {}).await;
    let record = named(&first, "a").record().await.unwrap();
    let turn = send(&first, "a", "wait 5").await;
    world.clis.read(2).await;
    let waits = send(&second, "a", "two").await;
    drain(&first, secs(20)).await;
    assert_eq!(outcome(second.operator().turn(turn.prompt_id())).await.text(), Some("re: wait 5"));
    assert_eq!(outcome(waits).await.text(), Some("re: two"));
    let after = named(&second, "a").record().await.unwrap();
    assert!(after.term > record.term && matches!(after.state, NameState::Owned { .. }), "{after:?}");
    assert_eq!((world.clis.starts_of("a"), world.clis.most_live()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn the_answer_of_another_fleets_session_is_read_here() {
    let world = World::new();
    let first = world.fleet(|_| {}).await;
    // It is the owner before another fleet is there.
    asks(&first, "a", "one").await;
    let second = world.fleet(|_| {}).await;
    assert_eq!(asks(&second, "a", "two").await, "re: two");
    assert_eq!(world.clis.starts_of("a"), 1, "its owner ran it");
    let error = in_time("steering", named(&second, "a").steer("no")).await.unwrap_err();
    assert!(error.to_string().contains("no turn of the session runs"), "{error}");
}

/// An application's actor, which tells what it hears of its children.
struct Application;

#[cfg_attr(feature = "async-trait", ractor::async_trait)]
impl Actor for Application {
    type Msg = ();
    type State = mpsc::UnboundedSender<SupervisionEvent>;
    type Arguments = mpsc::UnboundedSender<SupervisionEvent>;

    async fn pre_start(
        &self,
        _: ActorRef<()>,
        told: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        Ok(told)
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<()>,
        event: SupervisionEvent,
        told: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        told.send(event).ok();
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn an_application_supervises_a_fleet_as_its_child() {
    let world = World::new();
    let (told, mut hears) = mpsc::unbounded_channel();
    let (application, joined) = Actor::spawn(None, Application, told).await.unwrap();
    let fleet = world.builder().spawn_linked(application.get_cell()).await.unwrap();
    assert!(matches!(in_time("the start", hears.recv()).await, Some(SupervisionEvent::ActorStarted(_))));
    asks(&fleet, "a", "one").await;
    fleet.inject(greenroom_fleet::testkit::FleetFault::Supervisor);
    assert!(matches!(in_time("the failure", hears.recv()).await, Some(SupervisionEvent::ActorFailed(..))));
    world.clis.gone().await;

    let world = world.killed().await;
    let fleet = world.builder().spawn_linked(application.get_cell()).await.unwrap();
    assert!(matches!(in_time("the start", hears.recv()).await, Some(SupervisionEvent::ActorStarted(_))));
    asks(&fleet, "a", "two").await;
    drain(&fleet, secs(20)).await;
    assert!(matches!(in_time("the end", hears.recv()).await, Some(SupervisionEvent::ActorTerminated(..))));
    application.stop(None);
    joined.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_fleet_ends_with_the_actor_that_supervises_it() {
    let world = World::new();
    let (told, _hears) = mpsc::unbounded_channel();
    let (application, _) = Actor::spawn(None, Application, told).await.unwrap();
    let fleet = world.builder().spawn_linked(application.get_cell()).await.unwrap();
    let log = Log::of(&fleet);
    drop(send(&fleet, "a", "hold").await);
    log.wait("the turn", |event| matches!(event, FleetEvent::Begun { .. })).await;
    sleep(secs(1)).await;
    application.stop(None);
    in_time("the end", fleet.wait()).await;
    world.clis.gone().await;
}
