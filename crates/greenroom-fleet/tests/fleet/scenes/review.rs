//! Faults that a review of the actors has found.

use greenroom_fleet::backend::Requests;
use greenroom_fleet::testkit::{Fault, FaultedBackend, FleetFault};
use greenroom_fleet::{FleetEvent, InterruptedBy, Name, NameState, PassivatedBy, Quota};
use tokio::time::{Instant, sleep};

use super::*;
use crate::wait::within;

/// Much less than anything takes that waits for a limit.
const SOON: Duration = secs(20);

fn restarted(event: &FleetEvent) -> bool {
    matches!(event, FleetEvent::ActorRestarted { .. })
}

fn by_user(outcome: &PromptOutcome) -> bool {
    matches!(outcome, PromptOutcome::Interrupted { by: InterruptedBy::User, .. })
}

/// Makes the actor of `a` fail while its turn runs.
pub(super) async fn fail(fleet: &Fleet, log: &Log) {
    fleet.inject(FleetFault::Name("default/a".parse::<Name>().unwrap()));
    log.wait("the failure", restarted).await;
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_background_work_ended_in_a_later_turn_makes_room_for_another_one() {
    let world = World::new();
    let fleet = world.fleet(|limits| limits.live = 1).await;
    asks(&fleet, "a", "background on").await;
    // The session counts as busy after a second.
    sleep(secs(2)).await;
    asks(&fleet, "a", "background off").await;
    assert_eq!(within(SOON, asks(&fleet, "b", "one")).await, "re: one");
    assert_eq!(world.clis.most_live(), 1);
}

#[tokio::test(start_paused = true)]
async fn background_work_of_an_earlier_turn_keeps_its_session_from_being_evicted() {
    let world = World::new();
    let fleet = world.fleet(|limits| limits.live = 1).await;
    let log = Log::of(&fleet);
    asks(&fleet, "a", "background on").await;
    sleep(secs(2)).await;
    asks(&fleet, "a", "two").await;
    let waits = send(&fleet, "b", "one").await;
    sleep(secs(60)).await;
    assert_eq!(log.count(|event| matches!(event, FleetEvent::Passivating { .. })), 0);
    assert!(fleet.operator().withdraw(waits.prompt_id()).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_fleet_whose_supervisor_failed_leaves_its_names_to_the_next_fleet_at_once() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let begun = send(&fleet, "a", "hold").await.prompt_id();
    world.clis.read(1).await;
    let waits = send(&fleet, "a", "two").await.prompt_id();
    fleet.inject(FleetFault::Supervisor);
    within(SOON, fleet.wait()).await;
    assert_eq!(world.clis.live(), 0);
    let nodes = world.backend.nodes(None, 10).await.unwrap();
    assert!(nodes.iter().all(|node| node.state == greenroom_fleet::NodeState::Dead), "{nodes:?}");

    let next = world.fleet(|_| {}).await;
    let lost = within(SOON, outcome(next.operator().turn(begun))).await;
    assert!(
        matches!(lost, PromptOutcome::Interrupted { by: InterruptedBy::OwnerLost { .. }, .. }),
        "{lost:?}"
    );
    assert_eq!(within(SOON, outcome(next.operator().turn(waits))).await.text(), Some("re: two"));
    assert_eq!(world.clis.most_live(), 1);
}

/// A fleet with one tenant that has half a dollar a day, and a session of it.
async fn half_a_dollar(world: &World) -> (Fleet, FleetSession) {
    let fleet = start(world.builder().tenant("t", Quota::default().budget_usd(0.5))).await;
    let session = named_of(&fleet, "t", "a");
    (fleet, session)
}

#[tokio::test(start_paused = true)]
async fn a_budget_of_half_a_dollar_lasts_for_more_than_one_turn() {
    let world = World::new();
    let (_fleet, a) = half_a_dollar(&world).await;
    for n in 1..=5 {
        let turn = in_time("the accept", a.prompt("cost 0.01")).await.unwrap();
        assert!(within(SOON, outcome(turn)).await.is_completed(), "turn {n}");
    }
    let account = world.backend.tenant(Tenant::new("t").unwrap()).await.unwrap();
    assert_eq!((account.reserved, account.spent), (0, 50_000));
}

#[tokio::test(start_paused = true)]
async fn a_budget_with_less_left_than_a_turn_reserves_refuses_and_finds_keys_all_the_same() {
    let world = World::new();
    let (_fleet, a) = half_a_dollar(&world).await;
    let keyed = || FleetPrompt::new("cost 0.48").key("k");
    let turn = in_time("the accept", a.prompt(keyed())).await.unwrap();
    let id = turn.prompt_id();
    assert!(outcome(turn).await.is_completed());

    let (why, retry_after) = refused(&a, "two").await;
    assert!(
        matches!(why, Refused::OverBudget { .. }) && retry_after.is_some_and(|time| time <= secs(24 * 3600)),
        "{why:?} {retry_after:?}"
    );
    let again = in_time("the accept", a.prompt(keyed())).await.unwrap();
    assert!(again.is_duplicate() && again.prompt_id() == id, "{again:?}");
    assert_eq!(outcome(again).await.text(), Some("re: cost 0.48"));
}

#[tokio::test(start_paused = true)]
async fn a_session_that_fails_after_each_start_is_started_after_growing_pauses() {
    let world = World::new();
    let backend = FaultedBackend::new(world.backend.clone());
    // The session has failed when it is asked whether it takes the prompt.
    backend.plan(|request| match request.method {
        "record_process" => Fault::Delay(Duration::from_millis(200)),
        _ => Fault::Pass,
    });
    let fleet = start(world.on(backend)).await;
    let log = Log::of(&fleet);
    world.clis.fail_after_start("a", true);
    let turn = send(&fleet, "a", "one").await;
    sleep(secs(60)).await;
    // Pauses of 1, 2, 4, 8, 16 and 32 seconds, a quarter more or less each.
    let starts = world.clis.starts_of("a");
    assert!((5..=7).contains(&starts), "{starts} starts in a minute");
    // Each start came up, and failed then. The last session may be up now.
    let failures = log
        .count(|event| matches!(event, FleetEvent::Passivating { why, .. } if *why == PassivatedBy::Failure));
    assert!(failures <= starts && failures + 1 >= starts, "{failures} failures of {starts} starts");
    world.clis.fail_after_start("a", false);
    assert_eq!(outcome(turn).await.text(), Some("re: one"), "the prompt was never begun before");
    assert_eq!(world.clis.prompts_of("a"), ["one"]);
}

#[tokio::test(start_paused = true)]
async fn admission_may_restart_at_any_moment_while_a_session_falls_asleep() {
    // The restart takes some steps of the runtime; the session is asleep after each number of them.
    for steps in 0..20 {
        let world = World::new();
        let backend = FaultedBackend::new(world.backend.clone());
        let fleet = start(world.on(backend.clone()).configure(|limits| limits.live = 1)).await;
        asks(&fleet, "a", "one").await;
        backend.fault_next("release", Fault::Hang);
        let a = named(&fleet, "a");
        let asleep = tokio::spawn(async move { a.passivate().await });
        in_time("the release", backend.wait_for_hanging(1)).await;
        let turns = [send(&fleet, "a", "two").await, send(&fleet, "b", "one").await];
        sleep(secs(1)).await;
        fleet.inject(FleetFault::Admission);
        for _ in 0..steps {
            tokio::task::yield_now().await;
        }
        backend.release();
        for turn in turns {
            let outcome = within(SOON, outcome(turn)).await;
            assert!(outcome.is_completed(), "after {steps} steps: {outcome:?}");
        }
        in_time("sleep", asleep).await.unwrap().unwrap();
        assert_eq!(world.clis.most_live(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn delete_ends_the_turn_of_a_name_whose_actor_has_failed() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let log = Log::of(&fleet);
    let turn = send(&fleet, "a", "hold").await;
    world.clis.read(1).await;
    fail(&fleet, &log).await;
    within(SOON, named(&fleet, "a").delete()).await.unwrap();
    let cut = outcome(turn).await;
    assert!(by_user(&cut), "{cut:?}");
    assert_eq!(world.clis.live(), 0);
    assert_eq!(asks(&fleet, "a", "two").await, "re: two", "the name is free for another life");
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_while_the_backend_begins_the_turn_keeps_the_prompt_from_being_sent() {
    for fault in [Fault::Hang, Fault::HangReply] {
        let world = World::new();
        let backend = FaultedBackend::new(world.backend.clone());
        let fleet = start(world.on(backend.clone())).await;
        backend.fault_next("begin", fault);
        let turn = send(&fleet, "a", "one").await;
        in_time("the request", backend.wait_for_hanging(1)).await;
        assert!(within(SOON, named(&fleet, "a").interrupt()).await.unwrap());
        backend.release();
        let cut = within(SOON, outcome(turn)).await;
        assert!(by_user(&cut), "{fault:?}: {cut:?}");
        assert_eq!(asks(&fleet, "a", "two").await, "re: two");
        assert_eq!(world.clis.prompts_of("a"), ["two"], "{fault:?}");
        assert_eq!(world.clis.starts_of("a"), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_cut_off_by_four_drains_is_not_quarantined() {
    let world = World::new();
    let prompt = FleetPrompt::new("hold").continue_with("hold", 10);
    let mut fleet = world.fleet(|_| {}).await;
    let id = send(&fleet, "a", prompt).await.prompt_id();
    for n in 1..=4 {
        in_time("the turn", world.clis.read(n)).await;
        drain(&fleet, secs(6)).await;
        assert_eq!(world.clis.live(), 0);
        fleet = world.fleet(|_| {}).await;
    }
    within(SOON, world.clis.read(5)).await;
    let record = named(&fleet, "a").record().await.unwrap();
    assert!(matches!(record.state, NameState::Owned { .. }) && record.losses == 0, "{record:?}");
    assert!(within(SOON, named(&fleet, "a").interrupt()).await.unwrap());
    assert!(matches!(outcome(fleet.operator().turn(id)).await, PromptOutcome::Interrupted { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_turn_whose_actor_has_failed_goes_on_with_its_continuation_after_a_drain() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let log = Log::of(&fleet);
    let prompt = FleetPrompt::new("hold").continue_with("go on", 1);
    let id = send(&fleet, "a", prompt).await.prompt_id();
    world.clis.read(1).await;
    fail(&fleet, &log).await;
    let took = drain(&fleet, secs(20)).await;
    assert!((secs(14)..=secs(20)).contains(&took), "{took:?}");
    assert_eq!(world.clis.live(), 0);

    let fleet = world.fleet(|_| {}).await;
    assert_eq!(outcome(fleet.operator().turn(id)).await.text(), Some("re: go on"));
    assert_eq!(world.clis.prompts_of("a"), ["hold", "go on"]);
}

pub(super) async fn admission_fails(fleet: &Fleet, log: &Log) {
    fleet.inject(FleetFault::Admission);
    log.wait(
        "the restart",
        |event| matches!(event, FleetEvent::ActorRestarted { actor, .. } if actor == "admission"),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_session_makes_room_after_a_fault_of_admission() {
    let world = World::new();
    let fleet = world.fleet(|limits| limits.live = 1).await;
    let log = Log::of(&fleet);
    asks(&fleet, "a", "one").await;
    admission_fails(&fleet, &log).await;
    let begun = Instant::now();
    assert_eq!(asks(&fleet, "b", "one").await, "re: one");
    assert!(begun.elapsed() < secs(11), "{:?}", begun.elapsed());
    assert_eq!(world.clis.most_live(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_lost_alone_is_fenced_and_owned_again() {
    let world = World::new();
    let backend = FaultedBackend::new(world.backend.clone());
    let fleet = start(world.on(backend.clone())).await;
    let log = Log::of(&fleet);
    asks(&fleet, "b", "one").await;
    backend.fault_next("append", Fault::Hang);
    let lost = send(&fleet, "a", "hold").await;
    let waits = send(&fleet, "a", "two").await;
    in_time("the append", backend.wait_for_hanging(1)).await;
    let record = named(&fleet, "a").record().await.unwrap();
    let NameState::Owned { node, .. } = record.state else { panic!("{record:?}") };
    let owner = greenroom_fleet::Ownership { name: record.name, node, term: record.term };
    assert_eq!(world.backend.release(owner).await.unwrap(), greenroom_fleet::Owned::Done(true));
    let begun = Instant::now();
    backend.release();
    assert!(matches!(
        outcome(lost).await,
        PromptOutcome::Interrupted { by: InterruptedBy::OwnerLost { term }, .. } if term == record.term
    ));
    assert_eq!(outcome(waits).await.text(), Some("re: two"));
    assert!(begun.elapsed() < secs(6), "{:?}", begun.elapsed());
    assert_eq!(
        log.count(|event| matches!(event, FleetEvent::Fenced { name, .. } if name.session() == "a")),
        1
    );
    let after = named(&fleet, "a").record().await.unwrap();
    assert!(after.term > record.term && after.losses == 0, "{after:?}");
    assert_eq!(world.clis.prompts_of("a"), ["hold", "two"]);
    assert_eq!((world.clis.starts_of("a"), world.clis.most_live()), (2, 2));
    assert_eq!((stage(&fleet, "a").await, stage(&fleet, "b").await), ("idle", "idle"));
}

#[tokio::test(start_paused = true)]
async fn a_name_whose_actor_has_failed_gives_its_slot_back() {
    let world = World::new();
    let fleet = world.fleet(|limits| limits.live = 1).await;
    let log = Log::of(&fleet);
    let running = send(&fleet, "a", "wait 10").await;
    world.clis.read(1).await;
    fail(&fleet, &log).await;
    assert!(outcome(running).await.is_completed());
    assert_eq!(within(SOON, asks(&fleet, "b", "one")).await, "re: one");
}

#[tokio::test(start_paused = true)]
async fn a_name_whose_actor_has_failed_while_it_waited_gets_no_slot_for_nothing() {
    let world = World::new();
    let fleet = world.fleet(|limits| limits.live = 1).await;
    let log = Log::of(&fleet);
    let running = send(&fleet, "b", "wait 10").await;
    world.clis.read(1).await;
    let waits = send(&fleet, "a", "one").await;
    sleep(secs(1)).await;
    fail(&fleet, &log).await;
    assert!(fleet.operator().withdraw(waits.prompt_id()).await.unwrap());
    assert!(outcome(running).await.is_completed());
    assert_eq!(within(SOON, asks(&fleet, "c", "one")).await, "re: one");
    assert_eq!(world.clis.starts_of("a"), 0);
}

#[tokio::test(start_paused = true)]
async fn sessions_start_one_after_another_at_their_bound_also_after_a_fault() {
    for admission_fails_meanwhile in [false, true] {
        let world = World::new();
        let backend = FaultedBackend::new(world.backend.clone());
        backend.plan(|request| match request.method {
            "claim" => Fault::Delay(secs(2)),
            _ => Fault::Pass,
        });
        let one = |limits: &mut FleetLimits| (limits.live, limits.activations_at_once) = (9, 1);
        let fleet = start(world.on(backend).configure(one)).await;
        let log = Log::of(&fleet);
        let begun = Instant::now();
        let mut turns = Vec::new();
        for name in ["a", "b", "c"] {
            turns.push(send(&fleet, name, "one").await);
        }
        sleep(secs(1)).await;
        if admission_fails_meanwhile {
            admission_fails(&fleet, &log).await;
        }
        for turn in turns {
            assert!(outcome(turn).await.is_completed());
        }
        assert!((secs(6)..secs(7)).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_fleet_whose_admission_fails_more_than_ten_times_in_a_minute_ends() {
    for (pause, ends) in [(1, true), (7, false)] {
        let world = World::new();
        let fleet = world.fleet(|_| {}).await;
        let log = Log::of(&fleet);
        for n in 1..=12 {
            fleet.inject(FleetFault::Admission);
            let told = |event: &FleetEvent| restarted(event) || matches!(event, FleetEvent::Failed { .. });
            log.wait_for("the fault", n.min(11), told).await;
            sleep(secs(pause)).await;
        }
        let failed =
            log.count(|event| matches!(event, FleetEvent::Failed { why } if why.contains("too often")));
        assert_eq!(failed, usize::from(ends));
        if ends {
            within(SOON, fleet.wait()).await;
        } else {
            assert_eq!(asks(&fleet, "a", "one").await, "re: one");
        }
    }
}
