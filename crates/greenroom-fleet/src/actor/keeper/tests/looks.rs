//! Looks at what can run: their order, and what they leave out.

use super::*;
use crate::clock::Clock;
use crate::id::Timestamp;
use crate::limits::{Budget, Quota, Quotas};
use crate::request::{Accept, Finish, Marked, QueueBounds};
use crate::stage::{join, name, shared, tenant};

fn names(of: &[&str]) -> Vec<Name> {
    of.iter().map(|of| name(of)).collect()
}

#[tokio::test(start_paused = true)]
async fn names_are_woken_in_the_order_in_which_their_prompts_were_accepted() {
    let mut stage = Stage::new().await;
    let order = ["z", "d", "y", "b", "x", "a", "w", "c", "v", "e"];
    for name in order {
        stage.accept(accept(name, HOUR)).await;
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    // After a restart: the first look finds them all.
    let keeper = stage.keeper();
    assert_eq!(stage.woken().await, names(&order));

    stage.settle().await;
    let later = order.map(|name| format!("{name} later"));
    for name in &later {
        stage.accept(accept(name, HOUR)).await;
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    let mut woken = Vec::new();
    while woken.len() < later.len() {
        woken.extend(stage.woken().await);
    }
    assert_eq!(woken, names(&later.each_ref().map(String::as_str)), "by their hints");
    drop(keeper);
}

#[tokio::test(start_paused = true)]
async fn names_that_cannot_run_are_not_woken_until_they_can() {
    // In the middle of a period, whatever the hour is.
    let (noon, start) = (Timestamp::default().after(HOUR * 12 + HOUR / 2), Instant::now());
    let clock = Clock::new(move || noon.after(start.elapsed()));
    let backend = FaultedBackend::new(MemoryBackend::with_clock(clock));
    let mut fleet = shared(Arc::new(backend.clone()), FleetLimits::default());
    let budget = Some(Budget { amount: 10, period: HOUR, reserve: 5 });
    let poor = Quota { budget, ..Quota::default() };
    fleet.quotas = Arc::new(Quotas::new([(tenant("poor"), poor.clone())].into(), Quota::default()));
    let mut stage = Stage::of(join(fleet).await, backend.clone());
    let prompt = |name: &str| accept(name, HOUR * 10);

    // The tenant spends its money.
    let spent = stage.accept(prompt("poor/spends")).await;
    let (owner, attempt) = (stage.claim(&name("poor/spends")).await, AttemptId::new());
    let begin = Begin { owner: owner.clone(), prompt: spent, attempt, quota: poor.clone(), credential: None };
    assert!(matches!(backend.begin(begin).await.unwrap().done(), Some(Some(_))));
    let outcome = crate::record::PromptOutcome::Completed { result: ().into(), transcript_lost: false };
    let finish = Finish {
        owner: owner.clone(),
        prompt: spent,
        attempt,
        outcome,
        cost: Some(10),
        usage: None,
        quarantine: None,
    };
    assert!(backend.finish(finish).await.unwrap().done().unwrap());
    stage.shared.backend.release(owner).await.unwrap().done().unwrap();

    for number in 0..50 {
        stage.accept(prompt(&format!("poor/{number}"))).await;
        let quarantined = format!("acme/quarantined {number}").parse::<Name>().unwrap();
        stage.accept(prompt(quarantined.session())).await;
        assert_eq!(backend.quarantine(quarantined, "why".into()).await.unwrap(), Marked::Done);
    }
    stage.accept(prompt("runs")).await;
    let period = poor.budget.unwrap().period_at(backend.now());
    let next_period = Instant::now() + period.after(HOUR).since(backend.now());

    let _keeper = stage.keeper();
    assert_eq!(stage.woken().await, names(&["runs"]));
    let asked = |backend: &FaultedBackend| {
        ["waiting", "tenant", "name_record", "next_prompt"].map(|of| backend.requests(of))
    };
    let before = asked(&backend);
    assert_eq!(stage.woken().await, names(&["runs"]), "the next look");
    let after = asked(&backend);
    assert_eq!([0, 1, 2, 3].map(|of| after[of] - before[of]), [1, 0, 0, 0], "requests of a look");

    // Its next period begins.
    let mut woken = Vec::new();
    while woken.len() < 2 {
        woken = stage.woken().await;
    }
    at(Instant::now(), next_period, Duration::ZERO);
    assert_eq!(woken.len(), 51, "{woken:?}");
    let first = ["runs", "poor/0", "poor/1"].map(name);
    assert_eq!(woken[..3], first, "by tenants, then in their order");
}

#[tokio::test(start_paused = true)]
async fn tenants_that_have_spent_their_money_are_not_asked_about_again() {
    const TENANTS: usize = 10_000;
    let (noon, start) = (Timestamp::default().after(HOUR * 12 + HOUR / 2), Instant::now());
    let clock = Clock::new(move || noon.after(start.elapsed()));
    let backend = FaultedBackend::new(MemoryBackend::with_clock(clock));
    let mut fleet = shared(Arc::new(backend.clone()), FleetLimits::default());
    let budget = Budget { amount: 10, period: HOUR, reserve: 5 };
    let poor = Quota { budget: Some(budget), ..Quota::default() };
    fleet.quotas = Arc::new(Quotas::new([(tenant("rich"), Quota::default())].into(), poor.clone()));
    let period = budget.period_at(backend.now());
    let mut stage = Stage::of(join(fleet).await, backend.clone());
    let bounds = QueueBounds { name: 1, tenant: 1, fleet: u32::MAX, ..Default::default() };
    for number in 0..TENANTS {
        let poor = tenant(&format!("poor {number}"));
        assert!(backend.open_account(poor.clone(), period, 10).await.unwrap());
        stage.accept(Accept { bounds, ..accept(&format!("{poor}/a"), HOUR * 10) }).await;
    }
    stage.accept(Accept { bounds, ..accept("rich/runs", HOUR * 10) }).await;
    let _keeper = stage.keeper();
    assert_eq!(stage.woken().await, names(&["rich/runs"]));
    let asked = |backend: &FaultedBackend| ["waiting", "tenant"].map(|of| backend.requests(of));
    let before = asked(&backend);
    assert_eq!(stage.woken().await, names(&["rich/runs"]), "the next look");
    let after = asked(&backend);
    assert_eq!([0, 1].map(|of| after[of] - before[of]), [3, 0], "requests of a look");
}
