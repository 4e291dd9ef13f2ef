//! Bounds of tenants: the time of turns, money without a result, quotas that are set while the fleet runs, and a tenant that does all it may.

use greenroom_fleet::admin::Admin;
use greenroom_fleet::backend::{MemoryBackend, Requests};
use greenroom_fleet::{
    Accept, Accepted, Budget, InterruptedBy, Name, PassivatedBy, PromptContent, PromptId, QueueBounds, Quota,
    Withdrawn,
};
use tokio::time::Instant;
use uuid::Uuid;

use super::*;

fn acme() -> Tenant {
    Tenant::new("acme").unwrap()
}

fn with_budget() -> Quota {
    let mut quota = Quota::default();
    // Its period does not end while a test runs.
    quota.budget = Some(Budget { amount: 2_000_000, period: secs(40 * 365 * 24 * 3600), reserve: 800_000 });
    quota
}

async fn sends(fleet: &Fleet, name: &str, prompt: &str) -> FleetTurn {
    in_time("the accept", named_of(fleet, "acme", name).prompt(prompt)).await.unwrap()
}

async fn spent(world: &World) -> (u64, u64) {
    let account = world.backend.tenant(acme()).await.unwrap();
    (account.spent, account.reserved)
}

fn is_by_session(outcome: &PromptOutcome, word: &str) -> bool {
    matches!(outcome, PromptOutcome::Interrupted { by: InterruptedBy::Session { cause }, .. } if cause.contains(word))
}

// Guards: paid
#[tokio::test(start_paused = true)]
async fn a_turn_without_a_result_costs_its_reserve() {
    let world = World::new();
    let fleet = start(world.builder().tenant("acme", with_budget())).await;
    assert!(!outcome(sends(&fleet, "a", "die").await).await.is_completed());
    assert_eq!(spent(&world).await, (800_000, 0));
    assert!(outcome(sends(&fleet, "a", "cost 0.5").await).await.is_completed());
    assert_eq!(spent(&world).await, (1_300_000, 0));
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_and_a_drain_take_the_cost_that_the_cli_tells() {
    let world = World::new();
    let fleet = start(world.builder().tenant("acme", with_budget())).await;
    let turn = sends(&fleet, "a", "hold 0.25").await;
    world.clis.read(1).await;
    assert!(in_time("the interrupt", named_of(&fleet, "acme", "a").interrupt()).await.unwrap());
    assert_eq!(outcome(turn).await.word(), "interrupted");
    assert_eq!(spent(&world).await, (250_000, 0));
    let turn = sends(&fleet, "b", "hold 0.125").await;
    world.clis.read(2).await;
    let id = turn.prompt_id();
    drain(&fleet, secs(6)).await;
    assert_eq!(spent(&world).await, (375_000, 0));
    let outcome = world.backend.outcome(id).await.unwrap().unwrap();
    assert!(is_by_session(&outcome, "drained") && outcome.result().is_some(), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_takes_longer_than_its_quota_is_interrupted() {
    let world = World::new();
    let fleet = start(world.builder().tenant("acme", Quota::default().turn(secs(30)))).await;
    for (prompt, at_most) in [("hold", 31), ("deaf", 42)] {
        let (turn, begun) = (sends(&fleet, prompt, prompt).await, Instant::now());
        let outcome = outcome(turn).await;
        assert!(is_by_session(&outcome, "Quota::turn"), "{outcome:?}");
        let took = begun.elapsed();
        assert!(took >= secs(30) && took <= secs(at_most), "{prompt}: {took:?}");
    }
    assert_eq!(outcome(sends(&fleet, "deaf", "one").await).await.text(), Some("re: one"));
}

#[tokio::test(start_paused = true)]
async fn a_quota_that_is_set_counts_at_once_and_over_a_restart() {
    let world = World::new();
    let fleet = start(world.builder().tenant("acme", Quota::default().live(1))).await;
    let operator = fleet.operator();
    assert_eq!(operator.quota(acme()).await.unwrap().live, 1);
    let first = sends(&fleet, "a", "hold").await;
    let second = sends(&fleet, "b", "hold").await;
    world.clis.read(1).await;
    tokio::time::sleep(secs(20)).await;
    assert_eq!(world.clis.live(), 1, "the builder's quota");
    let before = Instant::now();
    operator.set_quota(acme(), Quota::default().live(2).prompts(60, 1)).await.unwrap();
    world.clis.read(2).await;
    assert!(before.elapsed() < secs(1), "{:?}", before.elapsed());
    drop(sends(&fleet, "c", "one").await);
    let (why, retry_after) = refused(&named_of(&fleet, "acme", "c"), "two").await;
    assert!(matches!(why, Refused::TooFast { .. }), "{why:?}");
    assert_eq!(retry_after, Some(secs(1)));
    let invalid = operator.set_quota(acme(), Quota::default().live(0)).await.unwrap_err();
    assert!(invalid.to_string().contains("`live`"), "{invalid}");
    drain(&fleet, secs(5)).await;
    drop((first, second));

    let fleet = start(world.builder().tenant("acme", Quota::default().live(7))).await;
    assert_eq!(fleet.operator().quota(acme()).await.unwrap().live, 2, "the backend's before the builder's");
    Admin::new(world.backend.clone()).set_quota(acme(), None).await.unwrap();
    assert_eq!(fleet.operator().quota(acme()).await.unwrap().live, 7);
}

#[tokio::test(start_paused = true)]
async fn a_raised_budget_begins_what_waited_for_money() {
    let world = World::new();
    let fleet = start(
        world.builder().tenant("acme", with_budget()).configure(|limits| limits.wait = secs(24 * 3600)),
    )
    .await;
    let log = Log::of(&fleet);
    let first = sends(&fleet, "a", "cost 1.9").await;
    let second = sends(&fleet, "a", "two").await;
    assert!(outcome(first).await.is_completed());
    tokio::time::sleep(secs(60)).await;
    assert_eq!(world.clis.prompts_of("a"), ["cost 1.9"]);
    let told = |of: fn(&FleetEvent) -> bool| log.count(of);
    assert_eq!(told(|event| matches!(event, FleetEvent::BudgetNearlySpent { spent: 1_900_000, .. })), 1);
    assert_eq!(told(|event| matches!(event, FleetEvent::BudgetSpent { budget: 2_000_000, .. })), 1);
    let mut quota = with_budget();
    quota.budget.as_mut().unwrap().amount = 9_000_000;
    fleet.operator().set_quota(acme(), quota).await.unwrap();
    assert_eq!(outcome(second).await.text(), Some("re: two"));
}

/// The prompts of the busy session never run out, so it is never seen idle.
// Guards: fair
#[tokio::test(start_paused = true)]
async fn endless_background_work_keeps_a_slot_from_another_tenant_for_its_limit_and_a_turn() {
    let world = World::new();
    let fleet = world.fleet(|limits| (limits.live, limits.background) = (1, secs(200))).await;
    let log = Log::of(&fleet);
    assert_eq!(outcome(sends(&fleet, "a", "background on").await).await.text(), Some("re: background on"));
    // The session counts as busy after a second.
    tokio::time::sleep(secs(2)).await;
    let first = sends(&fleet, "a", "wait 10").await;
    let asked = Instant::now();
    let waits = in_time("the accept", named_of(&fleet, "quiet", "b").prompt("one")).await.unwrap();
    let refill = async {
        let mut turns = std::collections::VecDeque::from([first]);
        loop {
            while turns.len() < 3 {
                turns.push_back(sends(&fleet, "a", "wait 10").await);
            }
            assert!(outcome(turns.pop_front().unwrap()).await.is_completed());
        }
    };
    let answer = tokio::select! {
        answer = outcome(waits) => answer,
        () = refill => unreachable!("the prompts never run out"),
    };
    assert_eq!(answer.text(), Some("re: one"));
    let waited = asked.elapsed();
    assert!((secs(195)..secs(200 + 10 + 2)).contains(&waited), "{waited:?}");
    let evicted =
        |event: &FleetEvent| matches!(event, FleetEvent::Passivating { why: PassivatedBy::Eviction, .. });
    assert!(log.count(evicted) >= 1);
    assert_eq!(world.clis.most_live(), 1);
    drain(&fleet, secs(5)).await;
}

/// A prompt of the noisy tenant that the backend accepts.
async fn noise(backend: &MemoryBackend, name: usize, text: &str, later: bool) -> PromptId {
    let accept = Accept {
        prompt: PromptId::new(),
        name: Name::new(Tenant::new("noisy").unwrap(), format!("name-{name}")).unwrap(),
        profile: "default".to_owned(),
        conversation: Uuid::new_v4(),
        host: None,
        key: None,
        labels: Default::default(),
        content: PromptContent {
            prompt: serde_json::to_value(greenroom::Prompt::from(text)).unwrap(),
            continuation: None,
        },
        continuations: 0,
        not_before: later.then(|| backend.now().after(secs(60))),
        wait: secs(24 * 3600),
        bounds: QueueBounds::default(),
        quota: Quota::default(),
    };
    match backend.accept(accept).await.unwrap() {
        Accepted::New(prompt) => prompt.id,
        other => panic!("{other:?}"),
    }
}

/// Its turns never end, its CLIs do not listen, its queue and its reminders are full.
// Guards: fair
#[tokio::test(start_paused = true)]
async fn ten_thousand_names_of_a_tenant_hold_up_another_for_one_grant() {
    let world = World::new();
    for name in 0..10_000 {
        let prompt = noise(&world.backend, name, "deaf", false).await;
        assert_eq!(world.backend.withdraw(prompt).await.unwrap(), Withdrawn::Unsent);
    }
    // As many as may wait.
    for name in 0..256 {
        noise(&world.backend, name, "deaf", false).await;
    }
    for name in 0..1_024 {
        noise(&world.backend, name, "deaf", true).await;
    }
    let account = world.backend.tenant(Tenant::new("noisy").unwrap()).await.unwrap();
    assert_eq!((account.names, account.queued, account.reminders), (10_000, 256, 1_024));
    let quota = Quota::default().turn(secs(60));
    let fleet = start(world.builder().default_quota(quota).configure(|limits| limits.live = 2)).await;
    world.clis.read(2).await;
    // The reminders have come as well.
    tokio::time::sleep(secs(75)).await;
    let asked = Instant::now();
    let turn = in_time("the accept", named_of(&fleet, "quiet", "a").prompt("one")).await.unwrap();
    assert_eq!(outcome(turn).await.text(), Some("re: one"));
    let waited = asked.elapsed();
    assert!(waited <= secs(60 + 10 + 5), "one grant of the other tenant: {waited:?}");
    drain(&fleet, secs(5)).await;
}
