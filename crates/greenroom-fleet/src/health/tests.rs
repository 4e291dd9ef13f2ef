//! The machine of an extent, on the paused clock.

use std::time::Duration;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn of(profile: &str, tenant: &str) -> Membership {
    let (profile, tenant) = (profile.to_owned(), crate::stage::tenant(tenant));
    let credential = Credential::OfTenant { tenant: tenant.clone(), profile: profile.clone() };
    Membership { profile, tenant, credential }
}

fn failed(health: &NodeHealth, cause: Cause, tenant: &str, tries: &mut Vec<Try>) -> Option<FleetEvent> {
    let failed = Failure { cause, of: of("support", tenant), why: "no".into(), since: Timestamp(1) };
    health.failed(failed, tries, &FleetLimits::default()).unwrap()
}

fn tries_of(health: &NodeHealth) -> Vec<u32> {
    match health.report() {
        Health::Healthy => Vec::new(),
        Health::Degraded { causes } => causes.iter().map(|cause| cause.tries).collect(),
    }
}

#[tokio::test(start_paused = true)]
async fn one_name_tries_at_a_time_after_pauses_that_grow_and_the_last_one_mends_for_all() {
    let health = Arc::new(NodeHealth::new());
    let mut tries = Vec::new();
    assert!(failed(&health, Cause::CliMissing, "a", &mut tries).is_some());
    assert!(failed(&health, Cause::CliMissing, "b", &mut tries).is_none(), "it is told once");
    assert_eq!(tries_of(&health), [1], "a name that was starting already is no try");
    let mut held = health.admit(&mut tries, &of("support", "a")).unwrap_err();
    let other = health.admit(&mut Vec::new(), &of("support", "b")).unwrap_err();
    assert!(health.admit(&mut Vec::new(), &of("another", "a")).is_ok(), "another profile has another CLI");
    for (count, pause) in [(2, 1), (3, 2), (4, 4)] {
        let begun = Instant::now();
        tries.extend(health.turn(held, false).await);
        let took = begun.elapsed();
        assert!((SECOND * pause * 3 / 4..=SECOND * pause * 5 / 4 + SECOND / 10).contains(&took), "{took:?}");
        assert!(health.admit(&mut tries, &of("support", "a")).is_ok());
        assert!(health.admit(&mut Vec::new(), &of("support", "b")).is_err(), "one at a time");
        assert!(failed(&health, Cause::CliMissing, "a", &mut tries).is_none());
        assert_eq!(tries_of(&health), [count]);
        held = health.admit(&mut tries, &of("support", "a")).unwrap_err();
    }
    tries.extend(health.turn(held, false).await);
    let waits = health.turn(other, false);
    assert!(matches!(health.passed(&mut tries, false)[..], [FleetEvent::Mended { .. }]));
    assert!(waits.await.is_none(), "it need not try");
    assert_eq!(health.report(), Health::Healthy);
    assert!(health.admit(&mut Vec::new(), &of("support", "b")).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_name_that_gives_its_try_up_leaves_it_to_the_next() {
    let health = NodeHealth::new();
    failed(&health, Cause::DiskFull, "a", &mut Vec::new());
    let first = health.turn(health.admit(&mut Vec::new(), &of("support", "a")).unwrap_err(), false).await;
    let next = health.admit(&mut Vec::new(), &of("another", "b")).unwrap_err();
    drop(first);
    let begun = Instant::now();
    assert!(health.turn(next, false).await.is_some());
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!(tries_of(&health), [1]);
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_prompt_was_rejected_lets_the_others_try_first() {
    let health = NodeHealth::new();
    failed(&health, Cause::KeyRejected, "a", &mut Vec::new());
    let held = || health.admit(&mut Vec::new(), &of("support", "a")).unwrap_err();
    let mut rejected = std::pin::pin!(health.turn(held(), true));
    assert!(futures_util::poll!(rejected.as_mut()).is_pending(), "it waits first");
    let mut tries = vec![health.turn(held(), false).await.unwrap()];
    tokio::time::sleep(SECOND * 5).await;
    let other = health.turn(held(), false);
    failed(&health, Cause::KeyRejected, "a", &mut tries);
    tokio::select! {
        biased;
        _ = rejected.as_mut() => panic!("it has gone first"),
        other = other => drop(other.unwrap()),
    }
    assert!(rejected.await.is_some(), "nobody else waits");
}

#[tokio::test(start_paused = true)]
async fn a_key_is_tried_by_a_turn_and_holds_back_its_own_tenant_alone() {
    let health = NodeHealth::new();
    failed(&health, Cause::KeyRejected, "a", &mut Vec::new());
    assert_eq!(health.rejects(&[], &of("support", "a")), Some(Cause::KeyRejected));
    assert_eq!(health.rejects(&[], &of("support", "b")), None);
    assert!(health.admit(&mut Vec::new(), &of("support", "b")).is_ok());
    let mut tries: Vec<_> = health
        .turn(health.admit(&mut Vec::new(), &of("support", "a")).unwrap_err(), false)
        .await
        .into_iter()
        .collect();
    assert!(health.passed(&mut tries, false).is_empty() && tries.len() == 1, "a session is up with any key");
    assert_eq!(health.rejects(&tries, &of("support", "a")), None);
    assert_eq!(health.passed(&mut tries, true).len(), 1);
    assert_eq!(health.report(), Health::Healthy);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_held_back_keeps_no_try_of_another_extent() {
    let health = NodeHealth::new();
    failed(&health, Cause::DiskFull, "a", &mut Vec::new());
    failed(&health, Cause::CliMissing, "a", &mut Vec::new());
    tokio::time::sleep(SECOND * 2).await;
    let mut first = Vec::new();
    assert!(health.admit(&mut first, &of("support", "a")).is_ok() && first.len() == 2);
    let mut second = Vec::new();
    drop(first.remove(0));
    assert!(health.admit(&mut second, &of("support", "b")).is_err() && second.is_empty());
    assert!(
        health.admit(&mut second, &of("another", "b")).is_ok() && second.len() == 1,
        "the disk is not tried by it"
    );
}

#[tokio::test(start_paused = true)]
async fn further_extents_than_a_node_keeps_in_mind_do_not_queue() {
    let health = NodeHealth::new();
    for tenant in 0..EXTENTS {
        failed(&health, Cause::KeyRejected, &tenant.to_string(), &mut Vec::new());
    }
    let (cause, of_more) = (Cause::KeyRejected, of("support", "more"));
    let one_more = Failure { cause, of: of_more.clone(), why: String::new(), since: Timestamp(1) };
    let limits = FleetLimits::default();
    assert!(health.failed(one_more, &mut Vec::new(), &limits).is_err());
    assert!(health.admit(&mut Vec::new(), &of_more).is_ok());
}

#[cfg(feature = "axum")]
#[tokio::test(start_paused = true)]
async fn a_node_is_ready_while_a_profile_can_start_or_try() {
    let (health, profiles) = (NodeHealth::new(), ["other".to_owned(), "support".to_owned()]);
    let support = || profiles[1..].iter();
    failed(&health, Cause::KeyRejected, "a", &mut Vec::new());
    assert!(!health.holds_back(support(), false), "other tenants have other keys");
    failed(&health, Cause::CliMissing, "a", &mut Vec::new());
    assert!(
        health.holds_back(support(), false) && !health.holds_back(profiles.iter(), false),
        "one profile of two"
    );
    tokio::time::sleep(SECOND * 2).await;
    assert!(!health.holds_back(support(), false), "the next session tries");
    assert!(health.holds_back(support(), true), "prompts of the other nodes try");
    let mut tries = Vec::new();
    health.admit(&mut tries, &of("support", "b")).unwrap_or_else(|_| panic!("the pause is over"));
    assert!(health.holds_back(support(), false), "a session tries");
    health.passed(&mut tries, false);
    assert!(!health.holds_back(support(), false));
    failed(&health, Cause::DiskFull, "a", &mut Vec::new());
    assert!(health.holds_back(profiles.iter(), false), "every profile");
}
