//! Quotas of tenants: weights, live sessions, and money.

use greenroom_fleet::backend::{MemoryBackend, Requests};
use greenroom_fleet::{Budget, Clock, Quota, Timestamp};
use tokio::time::{Instant, sleep};

use super::*;

fn of(fleet: &Fleet, tenant: &str, name: &str) -> FleetSession {
    named_of(fleet, tenant, name)
}

async fn sends(session: &FleetSession, prompt: &str) -> FleetTurn {
    in_time("the accept", session.prompt(prompt)).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn tenants_get_turns_by_their_weights() {
    let world = in_mid_period();
    let builder = world.builder().tenant("heavy", Quota::default().weight(3));
    let fleet = start(builder.configure(|limits| (limits.live, limits.wait) = (1, secs(3600)))).await;
    let blocker = send(&fleet, "blocker", "wait 10").await;
    world.clis.read(1).await;
    let mut turns = Vec::new();
    for n in 0..12 {
        turns.push(sends(&of(&fleet, "heavy", &format!("heavy-{n}")), "wait 1").await);
        turns.push(sends(&of(&fleet, "light", &format!("light-{n}")), "wait 1").await);
    }
    outcome(blocker).await;
    world.clis.read(13).await;
    let first: Vec<_> = world.clis.prompts()[1..13].iter().map(|(name, _)| name.clone()).collect();
    let heavy = first.iter().filter(|name| name.starts_with("heavy")).count();
    assert!((8..=10).contains(&heavy), "{heavy} of 12 turns: {first:?}");
    for turn in turns {
        assert!(outcome(turn).await.is_completed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_tenant_at_its_own_cap_waits_and_others_do_not() {
    let world = in_mid_period();
    let fleet =
        start(world.builder().tenant("small", Quota::default().live(1)).configure(|limits| limits.live = 4))
            .await;
    let first = sends(&of(&fleet, "small", "a"), "wait 20").await;
    world.clis.read(1).await;
    let second = sends(&of(&fleet, "small", "b"), "one").await;
    let begun = Instant::now();
    assert_eq!(outcome(sends(&of(&fleet, "other", "c"), "one").await).await.text(), Some("re: one"));
    assert!(begun.elapsed() < secs(1), "{:?}", begun.elapsed());
    assert_eq!(world.clis.prompts_of("b"), [""; 0]);
    assert!(outcome(first).await.is_completed());
    assert_eq!(outcome(second).await.text(), Some("re: one"));
    assert!(begun.elapsed() < secs(27), "{:?}", begun.elapsed());
}

/// A world whose clock begins ten minutes after the start of a budget period of an hour, so no period ends while a turn runs.
fn in_mid_period() -> World {
    let (begin, start) = (Timestamp(500_000 * 3_600_000 + 600_000), Instant::now());
    let clock = Clock::new(move || begin.after(start.elapsed()));
    World { backend: MemoryBackend::with_clock(clock), ..World::new() }
}

fn budget(amount: u64, reserve: u64) -> Quota {
    let mut quota = Quota::default();
    quota.budget = Some(Budget { amount, period: secs(3600), reserve });
    quota
}

#[tokio::test(start_paused = true)]
async fn money_is_reserved_at_the_beginning_and_settled_at_the_end() {
    let world = in_mid_period();
    let fleet = start(world.builder().tenant("t", budget(2_000_000, 800_000))).await;
    let account = async || world.backend.tenant(Tenant::new("t").unwrap()).await.unwrap();
    let turn = sends(&of(&fleet, "t", "a"), "wait 5").await;
    world.clis.read(1).await;
    assert_eq!((account().await.reserved, account().await.spent), (800_000, 0));
    outcome(turn).await;
    assert_eq!((account().await.reserved, account().await.spent), (0, 0));
    outcome(sends(&of(&fleet, "t", "a"), "cost 0.5").await).await;
    assert_eq!((account().await.reserved, account().await.spent), (0, 500_000));
    outcome(sends(&of(&fleet, "t", "a"), "cost 0.25").await).await;
    assert_eq!((account().await.reserved, account().await.spent), (0, 750_000));
}

#[tokio::test(start_paused = true)]
async fn a_spent_budget_refuses_with_the_start_of_the_next_period() {
    let world = in_mid_period();
    let fleet = start(world.builder().tenant("t", budget(1_000_000, 500_000))).await;
    let a = of(&fleet, "t", "a");
    outcome(sends(&a, "cost 1.5").await).await;
    let (why, retry_after) = refused(&a, "two").await;
    let retry_after = retry_after.unwrap();
    assert!(
        matches!(why, Refused::OverBudget { .. }) && retry_after <= secs(3600),
        "{why:?} {retry_after:?}"
    );
    assert_eq!(outcome(sends(&of(&fleet, "other", "b"), "one").await).await.text(), Some("re: one"));
    sleep(retry_after + secs(1)).await;
    assert_eq!(outcome(sends(&a, "two").await).await.text(), Some("re: two"));
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_waits_for_money_runs_in_the_next_period() {
    let world = in_mid_period();
    let fleet = start(
        world.builder().tenant("t", budget(1_000_000, 500_000)).configure(|limits| limits.wait = secs(7200)),
    )
    .await;
    let a = of(&fleet, "t", "a");
    let first = sends(&a, "cost 0.9").await;
    let second = sends(&a, "two").await;
    assert!(outcome(first).await.is_completed());
    let left = 3600 - world.backend.now().0 / 1000 % 3600;
    let begun = Instant::now();
    assert_eq!(outcome(second).await.text(), Some("re: two"));
    let waited = begun.elapsed();
    assert!(waited + secs(2) >= secs(left) && waited <= secs(left + 7), "{waited:?} of {left} s");
}

// Guards: paid
#[tokio::test(start_paused = true)]
async fn turns_at_once_do_not_reserve_more_than_there_is() {
    let world = in_mid_period();
    let fleet =
        start(world.builder().tenant("t", budget(1_000_000, 500_000)).configure(|limits| limits.live = 8))
            .await;
    let mut turns = Vec::new();
    for n in 0..4 {
        turns.push(sends(&of(&fleet, "t", &format!("{n}")), "wait 20").await);
    }
    sleep(secs(10)).await;
    assert_eq!(world.clis.prompts().len(), 2, "two reservations fit into the budget");
    for turn in turns {
        assert!(outcome(turn).await.is_completed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_cut_off_costs_what_was_set_aside_for_it() {
    let world = in_mid_period();
    let fleet = start(world.builder().tenant("t", budget(2_000_000, 800_000))).await;
    drop(sends(&of(&fleet, "t", "a"), "hold").await);
    world.clis.read(1).await;
    drain(&fleet, secs(6)).await;
    let account = world.backend.tenant(Tenant::new("t").unwrap()).await.unwrap();
    assert_eq!((account.reserved, account.spent), (0, 800_000));
}
