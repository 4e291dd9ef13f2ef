//! Activations that fail, actors that fail, and leases that are lost.

use greenroom_fleet::backend::Requests;
use greenroom_fleet::testkit::{Fault, FaultedBackend, FleetFault};
use greenroom_fleet::{FleetEnd, FleetEvent, InterruptedBy, Name, NameFilter, NameState};
use tokio::time::{Instant, sleep};

use super::*;

/// A fleet whose profile `broken` panics while the switch is on.
async fn breakable(world: &World, change: impl FnOnce(&mut FleetLimits)) -> (Fleet, Arc<Mutex<bool>>) {
    let (clis, switch) = (world.clis.clone(), Arc::new(Mutex::new(true)));
    let broken = switch.clone();
    let builder = world.builder().configure(change).profile("broken", move |cx| {
        if *broken.lock().unwrap() {
            panic!("no such template");
        }
        session(&clis, cx.name.session())
    });
    (start(builder).await, switch)
}

fn failed(event: &FleetEvent, of: &str) -> bool {
    matches!(event, FleetEvent::ActivationFailed { name, .. } if name.session() == of)
}

fn quarantined(event: &FleetEvent, of: &str) -> bool {
    matches!(event, FleetEvent::Quarantined { name, .. } if name.session() == of)
}

#[tokio::test(start_paused = true)]
async fn failed_activations_back_off_and_the_third_quarantines() {
    let world = World::new();
    let (fleet, switch) = breakable(&world, |_| {}).await;
    let log = Log::of(&fleet);
    let a = named(&fleet, "a").profile("broken");
    let turn = in_time("the accept", a.prompt("one")).await.unwrap();
    log.wait("quarantine", |event| quarantined(event, "a")).await;
    let times: Vec<_> =
        log.all().into_iter().filter(|(_, event)| failed(event, "a")).map(|(at, _)| at).collect();
    assert_eq!(times.len(), 3);
    let (first, second) = (times[1] - times[0], times[2] - times[1]);
    // 1 s and 2 s, a quarter more or less.
    assert!(
        (750..=1250).contains(&first.as_millis()) && (1500..=2500).contains(&second.as_millis()),
        "{first:?} {second:?}"
    );
    let record = a.record().await.unwrap();
    assert!(
        matches!(&record.state, NameState::Quarantined { why, .. } if why.contains("no such template")),
        "{record:?}"
    );
    assert_eq!(
        fleet.operator().names(NameQuery::new().only(NameFilter::Stuck)).await.unwrap().names.len(),
        1
    );
    let warm = in_time("warm", a.warm()).await.unwrap_err();
    assert!(
        warm.to_string().contains("quarantined") && warm.to_string().contains("no such template"),
        "{warm}"
    );

    sleep(secs(60)).await;
    assert_eq!(log.count(|event| failed(event, "a")), 3, "it is left alone");
    *switch.lock().unwrap() = false;
    assert!(in_time("unquarantine", a.unquarantine()).await.unwrap());
    assert_eq!(outcome(turn).await.text(), Some("re: one"));
    assert!(!in_time("unquarantine", a.unquarantine()).await.unwrap());
    assert!(a.record().await.unwrap().failures.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_wait_between_failed_activations_ends_at_a_minute() {
    let world = World::new();
    let (fleet, _) = breakable(&world, |limits| (limits.failures, limits.wait) = (12, secs(3600))).await;
    let log = Log::of(&fleet);
    let turn = in_time("the accept", named(&fleet, "a").profile("broken").prompt("one")).await.unwrap();
    log.wait("quarantine", |event| quarantined(event, "a")).await;
    let times: Vec<_> =
        log.all().into_iter().filter(|(_, event)| failed(event, "a")).map(|(at, _)| at).collect();
    let longest = times.windows(2).map(|two| two[1] - two[0]).max().unwrap();
    assert!((secs(45)..secs(76)).contains(&longest), "{longest:?}");
    assert!(fleet.operator().withdraw(turn.prompt_id()).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn failures_that_lie_apart_do_not_quarantine() {
    let world = World::new();
    let (fleet, switch) =
        breakable(&world, |limits| (limits.backoff, limits.backoff_max) = (secs(400), secs(400))).await;
    let log = Log::of(&fleet);
    let a = named(&fleet, "a").profile("broken");
    let turn = in_time("the accept", a.prompt(FleetPrompt::new("one").wait(secs(8000)))).await.unwrap();
    log.wait_for("failures", 4, |event| failed(event, "a")).await;
    *switch.lock().unwrap() = false;
    assert_eq!(log.count(|event| quarantined(event, "a")), 0);
    assert_eq!(outcome(turn).await.text(), Some("re: one"));
}

// Guards: isolated
#[tokio::test(start_paused = true)]
async fn a_crash_loop_of_one_name_delays_no_other() {
    let world = World::new();
    let (fleet, _) =
        breakable(&world, |limits| (limits.live, limits.activations_at_once, limits.failures) = (1, 1, 100))
            .await;
    let log = Log::of(&fleet);
    let loops = named(&fleet, "loops").profile("broken");
    let turn = in_time("the accept", loops.prompt("one")).await.unwrap();
    log.wait("a failure", |event| failed(event, "loops")).await;
    for name in ["a", "b", "c"] {
        let begun = Instant::now();
        asks(&fleet, name, "one").await;
        // The slot of an idle session is free after five seconds; nobody waits for a backoff.
        assert!(begun.elapsed() < secs(6), "{:?}", begun.elapsed());
    }
    drop(turn);
}

#[tokio::test(start_paused = true)]
async fn a_profile_that_is_missing_after_a_deploy_quarantines_its_names() {
    let world = World::new();
    let (fleet, switch) = breakable(&world, |_| {}).await;
    *switch.lock().unwrap() = false;
    let a = named(&fleet, "a").profile("broken");
    outcome(in_time("the accept", a.prompt("one")).await.unwrap()).await;
    let hold = in_time("the accept", a.prompt("hold")).await.unwrap();
    world.clis.read(2).await;
    let waits = in_time("the accept", a.prompt("two")).await.unwrap().prompt_id();
    assert!(drain(&fleet, secs(10)).await < secs(10));
    drop((a, hold, fleet));

    let fleet = world.fleet(|_| {}).await;
    let log = Log::of(&fleet);
    log.wait("quarantine", |event| quarantined(event, "a")).await;
    let record = named(&fleet, "a").record().await.unwrap();
    assert!(
        matches!(&record.state, NameState::Quarantined { why, .. } if why.contains("no profile 'broken'")),
        "{record:?}"
    );
    assert_eq!(record.queued, 1, "nothing is lost");
    drain(&fleet, secs(10)).await;

    let (fleet, switch) = breakable(&world, |_| {}).await;
    *switch.lock().unwrap() = false;
    in_time("unquarantine", named(&fleet, "a").unquarantine()).await.unwrap();
    assert_eq!(outcome(fleet.operator().turn(waits)).await.text(), Some("re: two"));
}

#[tokio::test(start_paused = true)]
async fn a_fault_of_admission_loses_nothing_and_ends_no_turn() {
    let world = World::new();
    let fleet = world.fleet(|limits| limits.live = 2).await;
    let log = Log::of(&fleet);
    let mut turns = vec![send(&fleet, "a", "wait 30").await, send(&fleet, "b", "wait 40").await];
    world.clis.read(2).await;
    for name in ["c", "a", "d", "e"] {
        turns.push(send(&fleet, name, "wait 1").await);
    }
    for n in 1..=3 {
        fleet.inject(FleetFault::Admission);
        log.wait_for(
            "the restart",
            n,
            |event| matches!(event, FleetEvent::ActorRestarted { actor, .. } if actor == "admission"),
        )
        .await;
        sleep(secs(11)).await;
    }
    for turn in turns {
        let outcome = outcome(turn).await;
        assert!(outcome.is_completed(), "{outcome:?}");
    }
    assert_eq!((world.clis.prompts().len(), world.clis.most_live()), (6, 2));
}

#[tokio::test(start_paused = true)]
async fn a_fault_of_the_keeper_loses_neither_the_lease_nor_a_reminder() {
    let world = World::new();
    let backend = FaultedBackend::new(world.backend.clone());
    backend.plan(|request| match (request.method, request.nth % 3) {
        ("renew" | "waiting" | "expire_prompts" | "forget" | "deleting" | "owned_names", 2) => {
            panic!("a step of the keeper panics")
        }
        _ => Fault::Pass,
    });
    let fleet = start(world.on(backend)).await;
    let log = Log::of(&fleet);
    let reminder = FleetPrompt::new("remember").not_before(std::time::SystemTime::now() + secs(120));
    let reminder = send(&fleet, "a", reminder).await;
    let turn = send(&fleet, "b", "wait 100").await;
    let fails = |event: &FleetEvent| matches!(event, FleetEvent::ActorRestarted { actor, .. } if actor.starts_with("keeper"));
    log.wait_for("the faults", 20, fails).await;
    assert_eq!(outcome(turn).await.text(), Some("re: wait 100"));
    assert_eq!(outcome(reminder).await.text(), Some("re: remember"));
}

#[tokio::test(start_paused = true)]
async fn a_fault_of_a_name_lets_its_turn_end_and_its_prompts_run() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let log = Log::of(&fleet);
    let running = send(&fleet, "a", "wait 30").await;
    world.clis.read(1).await;
    let waits = send(&fleet, "a", "two").await;
    fleet.inject(FleetFault::Name("default/a".parse::<Name>().unwrap()));
    log.wait("the restart", |event| matches!(event, FleetEvent::ActorRestarted { .. })).await;
    assert_eq!(outcome(running).await.text(), Some("re: wait 30"));
    let begun = Instant::now();
    assert_eq!(outcome(waits).await.text(), Some("re: two"));
    assert!(begun.elapsed() < secs(1), "{:?}", begun.elapsed());
    assert_eq!(world.clis.prompts_of("a"), ["wait 30", "two"]);
    assert_eq!((world.clis.starts_of("a"), world.clis.most_live()), (2, 1));
}

// Guards: accepted-is-kept
#[tokio::test(start_paused = true)]
async fn a_fault_of_a_name_in_each_stage_costs_no_prompt() {
    for delay in 0..12 {
        let world = World::new();
        let backend = FaultedBackend::new(world.backend.clone());
        // So that each stage takes time.
        backend.plan(|_| Fault::Delay(Duration::from_millis(100)));
        let fleet = start(world.on(backend)).await;
        let turn = send(&fleet, "a", "one").await;
        sleep(Duration::from_millis(delay * 100)).await;
        fleet.inject(FleetFault::Name("default/a".parse::<Name>().unwrap()));
        let outcome = outcome(turn).await;
        assert_eq!(outcome.text(), Some("re: one"), "after {delay}00 ms: {outcome:?}");
        assert_eq!(asks(&fleet, "a", "two").await, "re: two");
        assert_eq!((world.clis.prompts_of("a").len(), world.clis.most_live()), (2, 1));
        drain(&fleet, secs(20)).await;
        assert_eq!(world.clis.live(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_fault_of_the_supervisor_ends_the_fleet_and_loses_nothing() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let runs = send(&fleet, "a", "hold").await.prompt_id();
    let idle = asks(&fleet, "b", "one").await;
    assert_eq!(idle, "re: one");
    world.clis.read(2).await;
    let waits = send(&fleet, "a", "two").await;
    let id = waits.prompt_id();
    fleet.inject(FleetFault::Supervisor);
    assert_eq!(in_time("the end", fleet.wait()).await, FleetEnd::Failed);
    world.clis.gone().await;
    let mut waits = waits;
    assert!(matches!(in_time("the reader", waits.outcome()).await, Err(greenroom_fleet::FleetError::Ended)));
    let (why, _) = refused(&named(&fleet, "a"), "three").await;
    assert_eq!(why, Refused::Draining);

    let world = world.killed().await;
    let fleet = world.fleet(|_| {}).await;
    let lost = outcome(fleet.operator().turn(runs)).await;
    assert!(
        matches!(lost, PromptOutcome::Interrupted { by: InterruptedBy::OwnerLost { .. }, .. }),
        "{lost:?}"
    );
    assert_eq!(outcome(fleet.operator().turn(id)).await.text(), Some("re: two"));
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_kills_the_sessions_and_writes_nothing() {
    let world = World::new();
    let backend = FaultedBackend::new(world.backend.clone());
    let fleet = start(world.on(backend.clone())).await;
    let log = Log::of(&fleet);
    let mut runs = send(&fleet, "a", "hold").await;
    asks(&fleet, "b", "one").await;
    let mut waits = send(&fleet, "a", "two").await;
    sleep(secs(1)).await;
    backend.plan(|_| Fault::Hang);
    let begun = Instant::now();
    world.clis.gone().await;
    // Renewed each 5 s and fenced after 24 s.
    assert!((secs(18)..secs(26)).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    assert_eq!(in_time("the end", fleet.wait()).await, FleetEnd::Failed);
    assert_eq!(log.count(|event| matches!(event, FleetEvent::Fenced { .. })), 2);
    assert!(in_time("the reader", runs.outcome()).await.is_err(), "the reader of a fleet that has ended");
    assert!(in_time("the reader", waits.outcome()).await.is_err());
    let record = world.backend.prompt_record(runs.prompt_id()).await.unwrap().unwrap();
    assert!(matches!(record.state, greenroom_fleet::PromptState::Begun { .. }), "{record:?}");

    let world = world.killed().await;
    let fleet = world.fleet(|_| {}).await;
    let lost = outcome(fleet.operator().turn(runs.prompt_id())).await;
    assert!(
        matches!(lost, PromptOutcome::Interrupted { by: InterruptedBy::OwnerLost { .. }, .. }),
        "{lost:?}"
    );
    assert_eq!(outcome(fleet.operator().turn(waits.prompt_id())).await.text(), Some("re: two"));
    assert_eq!(world.clis.prompts_of("a"), ["hold", "two"]);
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_is_away_for_ten_seconds_ends_no_turn() {
    let world = World::new();
    let backend = FaultedBackend::new(world.backend.clone());
    let fleet = start(world.on(backend.clone())).await;
    let log = Log::of(&fleet);
    let runs = send(&fleet, "a", "wait 5").await;
    world.clis.read(1).await;
    backend.plan(|_| Fault::Fail);
    let unknown = in_time("the accept", named(&fleet, "b").prompt("one")).await;
    assert!(matches!(unknown, Err(PromptError::Unknown { .. })), "{unknown:?}");
    sleep(secs(9)).await;
    backend.disable();
    assert_eq!(outcome(runs).await.text(), Some("re: wait 5"));
    assert!(log.count(|event| matches!(event, FleetEvent::BackendUnavailable { .. })) > 0);
    assert_eq!(log.count(|event| matches!(event, FleetEvent::Fenced { .. })), 0);
    assert_eq!(asks(&fleet, "a", "two").await, "re: two");
}

#[tokio::test(start_paused = true)]
async fn a_name_whose_turn_kills_its_process_three_times_is_quarantined() {
    let mut world = World::new();
    let prompt = FleetPrompt::new("hold").continue_with("hold", 10);
    let fleet = world.fleet(|_| {}).await;
    drop(send(&fleet, "a", prompt).await);
    let mut fleets = vec![fleet];
    for n in 1..=3 {
        world.clis.read(n).await;
        world = world.killed().await;
        // The old fleet runs in this process, and its session has the conversation until it is fenced.
        world.clis.gone().await;
        fleets.push(world.fleet(|_| {}).await);
    }
    let record = named(fleets.last().unwrap(), "a").record().await.unwrap();
    assert!(matches!(record.state, NameState::Quarantined { .. }), "{record:?}");
    assert_eq!(world.clis.prompts_of("a").len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_waits_after_a_failure_holds_no_slot_after_a_fault_of_admission() {
    let world = World::new();
    let (fleet, _) = breakable(&world, |limits| {
        (limits.live, limits.backoff, limits.backoff_max) = (1, secs(900), secs(900))
    })
    .await;
    let log = Log::of(&fleet);
    drop(in_time("the accept", named(&fleet, "a").profile("broken").prompt("one")).await.unwrap());
    log.wait("the failure", |event| failed(event, "a")).await;
    super::review::admission_fails(&fleet, &log).await;
    let begun = Instant::now();
    assert_eq!(asks(&fleet, "b", "one").await, "re: one");
    assert!(begun.elapsed() < secs(1), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_request_to_sleep_is_over_when_the_start_of_its_session_has_failed() {
    let world = World::new();
    let backend = FaultedBackend::new(world.backend.clone());
    let (clis, switch) = (world.clis.clone(), Arc::new(Mutex::new(true)));
    let broken = switch.clone();
    let builder = world.on(backend.clone()).profile("broken", move |cx| {
        assert!(!*broken.lock().unwrap(), "no such template");
        session(&clis, cx.name.session())
    });
    let fleet = start(builder).await;
    let log = Log::of(&fleet);
    let a = named(&fleet, "a").profile("broken");
    backend.fault_next("claim", Fault::Hang);
    let turn = in_time("the accept", a.prompt("one")).await.unwrap();
    in_time("the claim", backend.wait_for_hanging(1)).await;
    let begun = Instant::now();
    let asleep = async { tokio::join!(a.passivate(), async { backend.release() }) };
    in_time("sleep", asleep).await.0.unwrap();
    assert!(begun.elapsed() < secs(1), "{:?}", begun.elapsed());
    assert_eq!(log.count(|event| failed(event, "a")), 1);
    *switch.lock().unwrap() = false;
    assert_eq!(outcome(turn).await.text(), Some("re: one"));
    sleep(secs(1)).await;
    assert_eq!((world.clis.starts_of("a"), stage(&fleet, "a").await), (1, "idle"));
}

#[tokio::test(start_paused = true)]
async fn a_fault_of_the_supervisor_during_a_drain_is_a_failure() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let _turn = send(&fleet, "a", "hold").await;
    world.clis.read(1).await;
    let (draining, log) = (fleet.clone(), Log::of(&fleet));
    let drain = tokio::spawn(async move { draining.drain(secs(60)).await });
    log.wait("the drain", |event| matches!(event, FleetEvent::Draining)).await;
    fleet.inject(FleetFault::Supervisor);
    assert_eq!(in_time("the end", fleet.wait()).await, FleetEnd::Failed);
    in_time("the drain", drain).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_fleet_that_has_drained_says_so_also_at_its_deadline() {
    for limit in [secs(60), secs(0)] {
        let world = World::new();
        let fleet = world.fleet(|_| {}).await;
        let _turn = send(&fleet, "a", "hold").await;
        world.clis.read(1).await;
        fleet.drain(limit).await;
        assert_eq!(in_time("the end", fleet.wait()).await, FleetEnd::Drained);
    }
}
