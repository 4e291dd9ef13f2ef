//! Causes that are no fault of a single name: they quarantine nobody, and all names run once they are mended.

use std::io;

use greenroom::{Error, ErrorKind};
use greenroom_fleet::admin::Admin;
use greenroom_fleet::{Cause, FleetError, FleetEvent, Health, NameState, QuarantineKind, Unsent};
use tokio::time::sleep;

use super::*;

/// A fleet whose CLIs can fail to start, with a profile `broken`, which panics, and with callers that wait for long.
async fn breakable(world: &World, change: impl FnOnce(&mut FleetLimits)) -> Fleet {
    start(on(world, change)).await
}

fn on(world: &World, change: impl FnOnce(&mut FleetLimits)) -> FleetBuilder {
    let (clis, of_broken) = (world.clis.clone(), world.clis.clone());
    let session = move |clis: &Clis, name: &str| session(clis, name).transport(clis.breakable(name));
    world
        .builder()
        .configure(|limits| {
            (limits.live, limits.activations_at_once, limits.queue.tenant) = (20, 4, 4096);
            limits.wait = secs(3600);
            change(limits);
        })
        .profile("default", move |cx| session(&clis, cx.name.session()))
        .profile("broken", move |cx| {
            assert_ne!(cx.name.session(), "broken", "no such template");
            session(&of_broken, cx.name.session())
        })
}

fn missing() -> Option<Error> {
    Some(Error::new(ErrorKind::CliNotFound, "no `claude` executable found"))
}

fn full() -> Option<Error> {
    let source = io::Error::from(io::ErrorKind::StorageFull);
    Some(Error::new(ErrorKind::Io, "the session cannot write").with_source(source))
}

fn degraded(event: &FleetEvent) -> bool {
    matches!(event, FleetEvent::Degraded { .. })
}

fn mended(event: &FleetEvent) -> bool {
    matches!(event, FleetEvent::Mended { .. })
}

fn quarantined(event: &FleetEvent) -> bool {
    matches!(event, FleetEvent::Quarantined { .. })
}

async fn health(fleet: &Fleet) -> Health {
    in_time("the snapshot", fleet.operator().snapshot(SnapshotQuery::active())).await.unwrap().health
}

fn cause_of(outcome: &PromptOutcome) -> Option<&str> {
    match outcome {
        PromptOutcome::Unsent { why: Unsent::Expired { cause } } => cause.as_deref(),
        other => panic!("it has not expired: {other:?}"),
    }
}

// Guards: blameless
#[tokio::test(start_paused = true)]
async fn a_missing_cli_quarantines_none_of_hundreds_of_names_and_all_run_once_it_is_there() {
    let world = World::new();
    world.clis.fail_to_start(missing());
    let fleet = breakable(&world, |_| {}).await;
    let log = Log::of(&fleet);
    let mut turns = Vec::new();
    for n in 0..200 {
        turns.push(send(&fleet, &format!("name-{n}"), "one").await);
    }
    sleep(secs(300)).await;
    assert_eq!((log.count(degraded), log.count(quarantined)), (1, 0));
    // Four at once at first, then one after 1 s, 2 s … 60 s.
    assert!((8..=20).contains(&world.clis.refused_starts()), "{}", world.clis.refused_starts());
    let Health::Degraded { causes } = health(&fleet).await else { panic!("it is degraded") };
    assert_eq!(
        (causes.len(), causes[0].cause, causes[0].profile.as_deref()),
        (1, Cause::CliMissing, Some("default"))
    );
    assert!(causes[0].why.contains("no `claude` executable") && causes[0].tries > 5, "{causes:?}");
    let json = serde_json::to_value(health(&fleet).await).unwrap();
    assert_eq!((&json["is"], &json["causes"][0]["cause"]), (&"degraded".into(), &"cli_missing".into()));
    let live = fleet.operator().snapshot(SnapshotQuery::active()).await.unwrap().live;
    let names = fleet.operator().names(NameQuery::new().limit(1000)).await.unwrap().names;
    assert!(names.iter().all(|name| name.failures.is_empty() && !name.is_stuck()));
    assert_eq!((names.len(), live), (200, 0), "no name holds a slot");

    world.clis.fail_to_start(None);
    for turn in turns {
        assert_eq!(outcome(turn).await.text(), Some("re: one"));
    }
    assert_eq!((log.count(degraded), log.count(mended)), (1, 1));
    assert_eq!(health(&fleet).await, Health::Healthy);
}

// Guards: blameless
#[tokio::test(start_paused = true)]
async fn a_rejected_key_costs_no_prompt_and_holds_back_its_own_tenant_alone() {
    let world = World::new();
    let fleet = breakable(&world, |_| {}).await;
    let log = Log::of(&fleet);
    let of = |tenant: &'static str, n: usize| named_of(&fleet, tenant, &format!("{tenant}-{n}"));
    assert!(outcome(of("acme", 0).prompt("warm up").await.unwrap()).await.is_completed());
    world.clis.reject_keys(true);
    let mut turns = Vec::new();
    for n in 1..100 {
        turns.push(of("acme", n).prompt("one").await.unwrap());
    }
    log.wait("the cause", degraded).await;
    world.clis.reject_keys(false);
    // A live session of the tenant ends, because its login may be the old one.
    let live = of("acme", 0).prompt("two").await.unwrap();
    assert!(outcome(of("other", 0).prompt("one").await.unwrap()).await.is_completed());
    assert!(outcome(live).await.is_completed());
    for turn in turns {
        assert!(outcome(turn).await.is_completed(), "it was sent again");
    }
    let read = world.clis.prompts().len();
    assert!((103..=122).contains(&read), "{read}");
    let is_acme = |event: &FleetEvent| matches!(event, FleetEvent::Degraded { cause: Cause::KeyRejected, tenant: Some(tenant), .. } if tenant.as_str() == "acme");
    assert_eq!((log.count(degraded), log.count(is_acme), log.count(mended)), (1, 1, 1));
    assert_eq!(log.count(quarantined), 0);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_stays_rejected_is_tried_by_one_prompt_at_a_time() {
    let world = World::new();
    world.clis.reject_keys(true);
    let fleet = breakable(&world, |limits| limits.activations_at_once = 1).await;
    let log = Log::of(&fleet);
    for n in 0..60 {
        drop(send(&fleet, &format!("name-{n}"), "one").await);
    }
    sleep(secs(300)).await;
    // At first as many as have a slot, then after 1 s, 2 s … 60 s.
    let read = world.clis.prompts().len();
    assert!((8..=32).contains(&read), "{read}");
    assert_eq!((log.count(degraded), log.count(quarantined)), (1, 0));
}

// Guards: blameless
#[tokio::test(start_paused = true)]
async fn a_full_disk_ends_no_live_session_and_holds_back_the_others() {
    let world = World::new();
    let fleet = breakable(&world, |limits| limits.idle_after = secs(7200)).await;
    let log = Log::of(&fleet);
    asks(&fleet, "live", "one").await;
    world.clis.fail_to_start(full());
    let mut waiting = Vec::new();
    for n in 0..20 {
        waiting.push(send(&fleet, &format!("name-{n}"), "one").await);
    }
    let is_full = |event: &FleetEvent| {
        matches!(event, FleetEvent::Degraded { cause: Cause::DiskFull, profile: None, tenant: None, .. })
    };
    log.wait("the cause", is_full).await;
    sleep(secs(300)).await;
    assert_eq!(asks(&fleet, "live", "two").await, "re: two");
    let warm = in_time("warm", named(&fleet, "name-1").warm()).await.unwrap_err();
    assert!(matches!(&warm, FleetError::State(why) if why.contains("the disk")), "{warm}");
    world.clis.fail_to_start(None);
    for turn in waiting {
        assert!(outcome(turn).await.is_completed());
    }
    assert_eq!((world.clis.starts_of("live"), log.count(degraded), log.count(mended)), (1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_name_that_fails_by_itself_is_quarantined_also_while_a_cause_holds_others_back() {
    let world = World::new();
    world.clis.fail_to_start(missing());
    let fleet = breakable(&world, |_| {}).await;
    let log = Log::of(&fleet);
    let waits = send(&fleet, "a", "one").await;
    log.wait("the cause", degraded).await;
    let broken = named(&fleet, "broken").profile("broken");
    drop(in_time("the accept", broken.prompt("one")).await.unwrap());
    log.wait("the quarantine", quarantined).await;
    let state = broken.record().await.unwrap().state;
    assert!(
        matches!(&state, NameState::Quarantined { kind: QuarantineKind::Activations, why, .. } if why.contains("no such template")),
        "{state:?}"
    );
    world.clis.fail_to_start(None);
    assert!(outcome(waits).await.is_completed());
    assert_eq!(log.count(quarantined), 1);
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_expires_tells_the_cause() {
    let world = World::new();
    world.clis.fail_to_start(missing());
    let fleet = breakable(&world, |limits| limits.wait = secs(30)).await;
    let mut turns = Vec::new();
    for n in 0..20 {
        turns.push(send(&fleet, &format!("name-{n}"), "one").await);
    }
    let mut details = 0;
    for turn in turns {
        let outcome = outcome(turn).await;
        let cause = cause_of(&outcome).unwrap_or_else(|| panic!("no cause: {outcome:?}"));
        assert!(cause.starts_with("the CLI is missing or does not run"), "{cause}");
        details += usize::from(cause.contains("no `claude` executable"));
    }
    assert!((1..20).contains(&details), "the names that have tried tell their error: {details}");
    let broken = named(&fleet, "broken").profile("broken");
    let turn = in_time("the accept", broken.prompt("one")).await.unwrap();
    let outcome_of_broken = outcome(turn).await;
    assert!(cause_of(&outcome_of_broken).is_some_and(|cause| cause.contains("no such template")));
    world.clis.fail_to_start(None);
    assert_eq!(asks(&fleet, "name-1", "two").await, "re: two");
    assert_eq!(named(&fleet, "name-1").record().await.unwrap().last_failure, None);
    // Behind a turn no failure is to blame.
    let runs = send(&fleet, "name-1", "wait 60").await;
    let waits = outcome(send(&fleet, "name-1", "three").await).await;
    assert_eq!(cause_of(&waits), None);
    assert!(outcome(runs).await.is_completed());
}

#[tokio::test(start_paused = true)]
async fn an_operator_lifts_all_quarantines_of_a_cause() {
    let world = World::new();
    let switch = Arc::new(Mutex::new(true));
    let (clis, broken) = (world.clis.clone(), switch.clone());
    let builder = world.builder().profile("broken", move |cx| {
        assert!(!*broken.lock().unwrap(), "no such template");
        session(&clis, cx.name.session())
    });
    let fleet = start(builder).await;
    let log = Log::of(&fleet);
    let names: Vec<_> = (0..30).map(|n| named(&fleet, &format!("name-{n}")).profile("broken")).collect();
    let mut turns = Vec::new();
    for name in &names {
        turns.push(in_time("the accept", name.prompt("one")).await.unwrap());
    }
    asks(&fleet, "by-hand", "one").await;
    in_time("the quarantine", named(&fleet, "by-hand").quarantine("looked at by Anna")).await.unwrap();
    log.wait_for("the quarantines", 31, quarantined).await;
    *switch.lock().unwrap() = false;
    let admin = Admin::new(world.backend.clone());
    let lifted = admin.unquarantine_all(|name, kind, why| {
        kind == QuarantineKind::Activations && name.profile == "broken" && why.contains("no such template")
    });
    assert_eq!(in_time("the lifting", lifted).await.unwrap(), 30);
    for turn in turns {
        assert!(outcome(turn).await.is_completed());
    }
    let left = admin.names(NameQuery::new().only(greenroom_fleet::NameFilter::Stuck)).await.unwrap().names;
    assert_eq!(left.len(), 1);
    assert!(
        matches!(left[0].state, NameState::Quarantined { kind: QuarantineKind::Operator, .. }),
        "{left:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_profile_that_does_not_fit_the_fleet_is_refused_at_the_start() {
    let world = World::new();
    let builder = world.builder().profile("resumes", |_| Session::builder().resume("one"));
    let Err(FleetError::Invalid(why)) = in_time("the start", builder.start()).await else {
        panic!("it has started")
    };
    assert!(why.contains("the profile 'resumes'") && why.contains("`resume`"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn a_profile_that_does_not_fit_a_real_name_is_its_profiles_fault() {
    let world = World::new();
    let (clis, switch) = (world.clis.clone(), Arc::new(Mutex::new(true)));
    let broken = switch.clone();
    let builder = world.builder().profile("default", move |cx| {
        let builder = session(&clis, cx.name.session());
        if *broken.lock().unwrap() && !cx.is_probe() { builder.resume("one") } else { builder }
    });
    let fleet = start(builder).await;
    let log = Log::of(&fleet);
    let turns = [send(&fleet, "a", "one").await, send(&fleet, "b", "one").await];
    log.wait("the cause", degraded).await;
    sleep(secs(120)).await;
    let is_unfit = |event: &FleetEvent| matches!(event, FleetEvent::Degraded { cause: Cause::ProfileUnfit, why, .. } if why.contains("leave the option out"));
    assert_eq!((log.count(degraded), log.count(is_unfit), log.count(quarantined)), (1, 1, 0));
    *switch.lock().unwrap() = false;
    for turn in turns {
        assert!(outcome(turn).await.is_completed());
    }
}

// Guards: blameless
#[tokio::test(start_paused = true)]
async fn another_node_runs_the_names_that_a_cause_holds_back() {
    let world = World::new();
    let (sick, well) = (World { backend: world.backend.clone(), clis: Clis::default() }, world);
    sick.clis.fail_to_start(missing());
    let first = breakable(&sick, |_| {}).await;
    let log = Log::of(&first);
    let mut turns = Vec::new();
    for n in 0..20 {
        turns.push(send(&first, &format!("name-{n}"), "one").await);
    }
    log.wait("the cause", degraded).await;
    let _second = breakable(&well, |_| {}).await;
    for turn in turns {
        assert!(outcome(turn).await.is_completed());
    }
    assert_eq!((sick.clis.prompts().len(), well.clis.prompts().len()), (0, 20));
    assert_eq!(log.count(quarantined), 0);
}
