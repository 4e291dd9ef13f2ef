//! Limits of the API, which are waited out, and keys that it rejects: the prompts of the credential wait, and none fails.

use greenroom_fleet::admin::Admin;
use greenroom_fleet::backend::Requests;
use greenroom_fleet::{Cause, Credential, Health, Hold, Name, Timestamp, Unsent, Update};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use tokio::time::sleep;

use super::*;
use crate::clis::ApiFailure;

/// The API limits a world's names until a moment, in whole seconds after now.
fn limit(world: &World, after: u64, names: impl Fn(&str) -> bool + Send + Sync + 'static) -> Timestamp {
    let at = world.backend.now().0.div_ceil(1000) + after;
    let (backend, until) = (world.backend.clone(), Timestamp(at * 1000));
    world.clis.fail_api(move |name| (names(name) && backend.now() < until).then_some(ApiFailure::limit(at)));
    until
}

fn held(event: &FleetEvent) -> bool {
    matches!(event, FleetEvent::Degraded { credential: Some(_), .. })
}

fn mended(event: &FleetEvent) -> bool {
    matches!(event, FleetEvent::Mended { credential: Some(_), .. })
}

fn key(name: &str) -> Credential {
    Credential::Key { name: name.to_owned() }
}

async fn holds(world: &World) -> Vec<Hold> {
    world.backend.holds(None, 100).await.unwrap()
}

// Guards: waited-out
#[tokio::test(start_paused = true)]
async fn a_rate_limit_is_waited_out_and_no_prompt_fails() {
    let world = World::new();
    let fleet = world.fleet(|limits| (limits.live, limits.wait) = (20, secs(7200))).await;
    let log = Log::of(&fleet);
    let until = limit(&world, 30, |_| true);
    let first = send(&fleet, "first", "one").await;
    log.wait("the limit", held).await;
    let mut turns = vec![first];
    for n in 0..20 {
        turns.push(send(&fleet, &format!("name-{n}"), "one").await);
    }
    sleep(secs(20)).await;
    assert_eq!(world.clis.prompts().len(), 1, "one prompt has found the limit, and the others wait");
    assert_eq!(stage(&fleet, "first").await, "idle", "its session goes on");
    assert_eq!(stage(&fleet, "name-7").await, "held");
    let snapshot = fleet.operator().snapshot(SnapshotQuery::active()).await.unwrap();
    assert_eq!(snapshot.live, 1, "the others have no slot");
    let Health::Degraded { causes } = snapshot.health else { panic!("it is degraded") };
    assert_eq!((causes.len(), causes[0].cause, causes[0].until), (1, Cause::RateLimited, Some(until)));
    assert!(
        matches!(&causes[0].credential, Some(Credential::OfTenant { profile, .. }) if profile == "default")
    );
    let first = named(&fleet, "first").record().await.unwrap();
    assert!(first.last_failure.unwrap().starts_with("the rate limit of the key is reached"));

    for turn in turns {
        assert_eq!(outcome(turn).await.text(), Some("re: one"));
    }
    assert!(world.backend.now() >= until);
    assert_eq!(world.clis.prompts().len(), 22, "one prompt was sent twice");
    assert_eq!((log.count(held), log.count(mended)), (1, 1));
    assert_eq!(log.count(|event| matches!(event, FleetEvent::Held { .. })), 1);
    assert_eq!(
        (holds(&world).await, fleet.operator().snapshot(SnapshotQuery::active()).await.unwrap().health),
        (vec![], Health::Healthy)
    );
}

// Guards: waited-out
#[tokio::test(start_paused = true)]
async fn an_overloaded_api_is_tried_by_one_prompt_at_a_time_after_pauses_that_grow() {
    let world = World::new();
    let fleet = world.fleet(|limits| (limits.live, limits.wait) = (20, secs(7200))).await;
    let log = Log::of(&fleet);
    world.clis.fail_api(|_| Some(ApiFailure::OVERLOADED));
    let first = send(&fleet, "first", "one").await;
    log.wait("the failure", held).await;
    let mut turns = vec![first];
    for n in 0..50 {
        turns.push(send(&fleet, &format!("name-{n}"), "one").await);
    }
    sleep(secs(300)).await;
    // After 1 s, 2 s … 60 s.
    let read = world.clis.prompts().len();
    assert!((8..=14).contains(&read), "{read}");
    assert_eq!(holds(&world).await[0].tries as usize, read);
    world.clis.fail_api(|_| None);
    for turn in turns {
        assert!(outcome(turn).await.is_completed());
    }
    assert_eq!((log.count(held), log.count(mended)), (1, 1));
}

/// A fleet whose tenants `acme` and `umbrella` share a key, and whose other tenants have their own.
async fn keyed(world: &World, change: impl FnOnce(&mut FleetLimits)) -> Fleet {
    let builder =
        world.builder().configure(|limits| limits.wait = secs(7200)).credential("default", |name| match name
            .tenant()
            .as_str()
        {
            "acme" | "umbrella" => "shared".to_owned(),
            other => other.to_owned(),
        });
    start(builder.configure(change)).await
}

// Guards: waited-out
#[tokio::test(start_paused = true)]
async fn a_rejected_key_stops_its_own_credential_until_an_operator_releases_it() {
    for (failure, cause) in [(ApiFailure::KEY, Cause::KeyRejected), (ApiFailure::CREDIT, Cause::NoCredit)] {
        let world = World::new();
        let fleet =
            keyed(&world, |limits| (limits.backoff, limits.backoff_max) = (secs(7200), secs(7200))).await;
        let log = Log::of(&fleet);
        world.clis.fail_api(move |name| (name != "other").then_some(failure));
        let acme = named_of(&fleet, "acme", "a").prompt("one").await.unwrap();
        log.wait("the cause", held).await;
        let umbrella = named_of(&fleet, "umbrella", "b").prompt("one").await.unwrap();
        assert!(
            outcome(named_of(&fleet, "other", "other").prompt("one").await.unwrap()).await.is_completed()
        );
        sleep(secs(600)).await;
        assert_eq!(world.clis.prompts().len(), 2, "the other tenant with the key waits as well");
        world.clis.fail_api(|_| None);
        let admin = Admin::new(world.backend.clone());
        let held = admin.holds().await.unwrap();
        assert_eq!((held.len(), held[0].cause, &held[0].credential), (1, cause, &key("shared")));
        assert!(admin.release(key("another")).await.unwrap().is_none());
        assert_eq!(admin.release(key("shared")).await.unwrap().as_ref(), Some(&held[0]));
        let begun = Instant::now();
        assert!(outcome(acme).await.is_completed() && outcome(umbrella).await.is_completed());
        assert!(begun.elapsed() < secs(10), "at once");
        assert_eq!(log.count(mended), 1);
    }
}

// Guards: waited-out
#[tokio::test(start_paused = true)]
async fn a_turn_that_has_worked_before_the_limit_fails_and_the_others_wait() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let log = Log::of(&fleet);
    let at = world.backend.now().0.div_ceil(1000) + 30;
    world.clis.fail_api(move |_| Some(ApiFailure::limit(at).after_work()));
    let worked = send(&fleet, "a", "one").await;
    log.wait("the limit", held).await;
    let waits = send(&fleet, "b", "one").await;
    let PromptOutcome::Failed { kind, .. } = outcome(worked).await else { panic!("it has worked") };
    assert_eq!(kind, "rate_limited");
    world.clis.fail_api(|_| None);
    assert!(outcome(waits).await.is_completed());
    assert!(world.backend.now().0 >= at * 1000);
    // A command of the CLI may have run a program.
    world.clis.fail_api(|_| Some(ApiFailure::OVERLOADED));
    let PromptOutcome::Failed { kind, .. } = outcome(send(&fleet, "c", "/deploy now").await).await else {
        panic!("it may have run something")
    };
    assert_eq!(kind, "overloaded");
}

// Guards: waited-out
#[tokio::test(start_paused = true)]
async fn a_prompt_that_the_api_always_rejects_fails_alone() {
    let world = World::new();
    let fleet = world.fleet(|limits| limits.wait = secs(7200)).await;
    let log = Log::of(&fleet);
    world.clis.fail_api(|name| (name == "bad").then_some(ApiFailure::OVERLOADED));
    let bad = send(&fleet, "bad", "one").await;
    for count in 1..=3 {
        log.wait_for("the failure", count, held).await;
        let begun = Instant::now();
        let other = send(&fleet, &format!("other-{count}"), "one").await;
        assert!(outcome(other).await.is_completed());
        assert!(begun.elapsed() < secs(5), "after one pause");
    }
    let PromptOutcome::Failed { kind, .. } = outcome(bad).await else { panic!("it fails by itself") };
    assert_eq!((kind.as_str(), world.clis.prompts_of("bad").len()), ("overloaded", 4));
    assert_eq!(holds(&world).await, [], "others have passed");
}

// Guards: waited-out
#[tokio::test(start_paused = true)]
async fn a_prompt_that_never_asks_the_model_leaves_the_try_to_the_next() {
    let world = World::new();
    let fleet = world.fleet(|limits| limits.wait = secs(7200)).await;
    let log = Log::of(&fleet);
    world.clis.fail_api(|_| Some(ApiFailure::OVERLOADED));
    let first = send(&fleet, "first", "one").await;
    log.wait("the failure", held).await;
    world.clis.fail_api(|name| (name == "first").then_some(ApiFailure::OVERLOADED));
    assert!(outcome(send(&fleet, "local", "local").await).await.is_completed());
    let hold = holds(&world).await.remove(0);
    assert_eq!((hold.tries, hold.trying, log.count(mended)), (1, None, 0), "the model has not answered");
    world.clis.fail_api(|_| None);
    assert!(outcome(first).await.is_completed());
    assert_eq!(log.count(mended), 1);
}

// Guards: waited-out
#[tokio::test(start_paused = true)]
async fn a_limit_ends_no_session_and_its_work_in_the_background_goes_on() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let log = Log::of(&fleet);
    for name in ["a", "b"] {
        assert!(outcome(send(&fleet, name, "background on").await).await.is_completed());
    }
    let until = limit(&world, 60, |_| true);
    let found = send(&fleet, "a", "one").await;
    log.wait("the limit", held).await;
    let waits = send(&fleet, "b", "one").await;
    sleep(secs(30)).await;
    for name in ["a", "b"] {
        assert_eq!(stage(&fleet, name).await, "idle");
    }
    assert!(outcome(found).await.is_completed() && outcome(waits).await.is_completed());
    assert!(world.backend.now() >= until);
    assert_eq!(log.count(|event| matches!(event, FleetEvent::Passivating { .. })), 0);
    // A prompt that is taken back leaves its session as it was.
    limit(&world, 60, |_| true);
    let found = send(&fleet, "a", "one").await;
    log.wait_for("the limit", 2, held).await;
    assert!(fleet.operator().withdraw(found.prompt_id()).await.unwrap());
    sleep(secs(70)).await;
    assert!(outcome(send(&fleet, "b", "one").await).await.is_completed());
    assert_eq!(log.count(|event| matches!(event, FleetEvent::Passivating { .. })), 0);
}

// Guards: waited-out
#[tokio::test(start_paused = true)]
async fn the_time_of_a_limit_does_not_count_for_prompts_that_wait() {
    let world = World::new();
    let fleet = world.fleet(|limits| limits.wait = secs(300)).await;
    let log = Log::of(&fleet);
    assert!(outcome(send(&fleet, "live", "background on").await).await.is_completed());
    let until = limit(&world, 1800, |_| true);
    let mut turns = vec![send(&fleet, "found", "one").await];
    log.wait("the limit", held).await;
    for name in ["live", "other", "short"] {
        turns.push(send(&fleet, name, FleetPrompt::from("one").wait(secs(60))).await);
    }
    for turn in turns {
        assert!(outcome(turn).await.is_completed());
    }
    assert!(world.backend.now() >= until);
    // Perhaps the API rejects this prompt alone.
    world.clis.fail_api(|_| Some(ApiFailure::OVERLOADED));
    let alone = outcome(send(&fleet, "alone", FleetPrompt::from("one").wait(secs(60))).await).await;
    let PromptOutcome::Unsent { why: Unsent::Expired { cause: Some(cause) } } = alone else {
        panic!("it has not expired")
    };
    assert!(cause.starts_with("the API is overloaded"), "{cause}");
}

// Guards: waited-out
#[tokio::test(start_paused = true)]
async fn a_session_has_the_credential_with_which_it_was_started() {
    let (world, rotated) = (World::new(), Arc::new(AtomicBool::new(false)));
    let is_rotated = rotated.clone();
    let name_of = move |_: &Name| (if is_rotated.load(Relaxed) { "new" } else { "old" }).to_owned();
    let fleet = start(world.builder().credential("default", name_of)).await;
    let log = Log::of(&fleet);
    assert!(outcome(send(&fleet, "a", "one").await).await.is_completed());
    rotated.store(true, Relaxed);
    world.clis.fail_api(|_| Some(ApiFailure::KEY));
    let turn = send(&fleet, "a", "two").await;
    log.wait("the rejection", held).await;
    world.clis.fail_api(|_| None);
    assert!(outcome(turn).await.is_completed(), "the next session has the new key");
    let held: Vec<_> = holds(&world).await.into_iter().map(|hold| hold.credential).collect();
    assert_eq!(held, [key("old")]);
}

// Guards: waited-out
#[tokio::test(start_paused = true)]
async fn a_text_that_is_forbidden_fails_its_own_turn() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    world.clis.fail_api(|name| (name == "bad").then_some(ApiFailure::FORBIDDEN));
    let PromptOutcome::Failed { kind, .. } = outcome(send(&fleet, "bad", "one").await).await else {
        panic!("it is forbidden")
    };
    assert_eq!((kind.as_str(), holds(&world).await), ("unauthenticated", vec![]));
}

// Guards: waited-out
#[tokio::test(start_paused = true)]
async fn a_held_credential_takes_no_slot_from_others() {
    let world = World::new();
    let fleet = keyed(&world, |limits| limits.live = 1).await;
    let log = Log::of(&fleet);
    limit(&world, 900, |name| name.starts_with("acme"));
    let mut waiting = vec![named_of(&fleet, "acme", "acme").prompt("one").await.unwrap()];
    log.wait("the limit", held).await;
    for n in 0..50 {
        waiting.push(named_of(&fleet, "acme", &format!("acme-{n}")).prompt("one").await.unwrap());
    }
    let begun = Instant::now();
    for n in 0..20 {
        assert!(
            outcome(named_of(&fleet, "other", &format!("other-{n}")).prompt("one").await.unwrap())
                .await
                .is_completed()
        );
    }
    assert!(begun.elapsed() < secs(600), "long before the reset");
    assert_eq!(world.clis.prompts().len(), 21);
    for turn in waiting {
        assert!(outcome(turn).await.is_completed());
    }
}

// Guards: waited-out
#[tokio::test(start_paused = true)]
async fn prompts_that_wait_for_a_limit_can_be_withdrawn_and_deleted_and_drained() {
    let world = World::new();
    let fleet = world.fleet(|limits| limits.wait = secs(7200)).await;
    let log = Log::of(&fleet);
    let until = limit(&world, 3600, |_| true);
    let first = send(&fleet, "a", "one").await;
    log.wait("the limit", |event| matches!(event, FleetEvent::Held { .. })).await;
    let (second, third) = (send(&fleet, "b", "one").await, send(&fleet, "c", "one").await);
    sleep(secs(1)).await;
    assert!(!named(&fleet, "a").interrupt().await.unwrap(), "no turn runs");
    assert!(fleet.operator().withdraw(first.prompt_id()).await.unwrap(), "as if it had not begun");
    assert_eq!(outcome(first).await, PromptOutcome::Unsent { why: Unsent::Withdrawn });
    in_time("the deletion", named(&fleet, "b").delete()).await.unwrap();
    is_erased(&fleet, second.prompt_id()).await;
    assert!(drain(&fleet, secs(20)).await < secs(5), "the drain waits for nobody");
    let (prompt, clis) = (third.prompt_id(), world.clis.prompts().len());
    assert_eq!(clis, 1);
    // The hold outlives the process.
    let fleet = world.killed().await.fleet(|_| {}).await;
    assert!(outcome(fleet.operator().turn(prompt)).await.is_completed());
    assert!(world.backend.now() >= until);
    assert_eq!(world.clis.prompts_of("c"), ["one"]);
}

// Guards: waited-out
#[tokio::test(start_paused = true)]
async fn a_reset_that_is_far_away_or_has_passed_is_tried_within_bounds() {
    let day = secs(24 * 3600);
    let world = World::new();
    let fleet = world.fleet(|limits| limits.wait = day * 60).await;
    let log = Log::of(&fleet);
    let until = limit(&world, 40 * day.as_secs(), |_| true);
    let turn = send(&fleet, "a", "one").await;
    log.wait("the limit", held).await;
    let hold = holds(&world).await.remove(0);
    assert_eq!(
        (hold.resets_at, hold.until.since(world.backend.now()).as_secs().div_ceil(3600)),
        (Some(until), 24)
    );
    let past = world.backend.now().0 / 1000 - 100;
    world.clis.fail_api(move |_| Some(ApiFailure::limit(past)));
    Admin::new(world.backend.clone()).release(hold.credential).await.unwrap();
    log.wait_for("the second limit", 2, held).await;
    let hold = &holds(&world).await[0];
    assert!(hold.until.since(world.backend.now()) <= secs(2), "after a pause, as without a moment: {hold:?}");
    world.clis.fail_api(|_| None);
    assert!(outcome(turn).await.is_completed());
}

// Guards: waited-out
#[tokio::test(start_paused = true)]
async fn a_prompt_that_waits_for_a_limit_says_so_to_its_page() {
    let world = World::new();
    let fleet = world.fleet(|limits| limits.live = 1).await;
    let until = limit(&world, 30, |_| true);
    let turn = send(&fleet, "a", "one").await;
    let mut updates = fleet.operator().turn(turn.prompt_id()).updates();
    let mut seen = Vec::new();
    loop {
        let update = in_time("an update", updates.next()).await.unwrap().unwrap();
        match update {
            Update::Held { cause, until: at } => {
                assert_eq!((cause, at), (Cause::RateLimited, until));
                assert_eq!(turn.hold().await.unwrap().map(|hold| hold.until), Some(until));
                let json = serde_json::to_value(&update).unwrap();
                assert_eq!(
                    json,
                    serde_json::json!({ "type": "held", "cause": "rate_limited", "until": until })
                );
                let waits = send(&fleet, "b", "one").await.updates().next().await.unwrap().unwrap();
                assert_eq!(waits, update, "a prompt that has not begun waits as well");
            }
            Update::Heartbeat | Update::Usage { .. } => continue,
            Update::Text { ref text, .. } => assert_eq!(text, "re: one", "and not the error of the API"),
            _ => {}
        }
        seen.push(update.event_name());
        if let Update::Outcome { .. } = update {
            break;
        }
    }
    assert_eq!(seen, ["held", "text", "outcome"]);
    assert_eq!(turn.hold().await.unwrap(), None);
}
