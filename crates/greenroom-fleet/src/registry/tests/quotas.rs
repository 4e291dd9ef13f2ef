//! The bounds of tenants, and the clock behind them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::backend::{MemoryBackend, Requests};
use crate::limits::{Budget, Quota};
use crate::record::{Decision, PromptOutcome, Unsent};
use crate::stage::turn::{BegunTurn, fleet_on};
use crate::stage::{name, tenant};

/// A backend in memory whose clock follows a system's clock that the test sets.
fn on_a_clock_that_is_set() -> (MemoryBackend, Arc<AtomicU64>) {
    let (step, start) = (Arc::new(AtomicU64::new(0)), tokio::time::Instant::now());
    // In the middle of a period of an hour.
    let noon = Timestamp(500_000 * 3_600_000 + 1_800_000);
    let steps = step.clone();
    let shown = move || Timestamp(noon.0 + steps.load(Ordering::Relaxed)).after(start.elapsed());
    let clock = Clock::following(shown, move || start.elapsed());
    (MemoryBackend::with_clock(clock), step)
}

#[tokio::test(start_paused = true)]
async fn a_forward_step_of_the_clock_denies_no_question() {
    let (backend, step) = on_a_clock_that_is_set();
    let shared = fleet_on(backend.clone()).await;
    let begun = BegunTurn::new(&shared, "a").await;
    let question = QuestionId::new();
    let (owner, prompt, wait) = (begun.owner, begun.prompt, Duration::from_secs(600));
    let ask = Ask { owner, question, prompt, wait, call: None, body: json!({}) };
    assert!(backend.ask(ask).await.unwrap().done().flatten().is_some());
    step.store(3_600_000, Ordering::Relaxed);
    tokio::time::advance(Duration::from_secs(500)).await;
    assert_eq!(backend.expire_questions(10).await.unwrap(), []);
    let answered = backend.answer(question, AttemptId::new(), json!("yes")).await.unwrap();
    assert!(matches!(answered, Answered::Decided(_)), "{answered:?}");
    let decided = backend.question(question).await.unwrap().unwrap().decision;
    assert!(matches!(decided, Some(Decision::Answered { .. })), "{decided:?}");
}

// Guards: paid
#[tokio::test(start_paused = true)]
async fn a_forward_step_of_the_clock_begins_no_new_budget() {
    let (backend, step) = on_a_clock_that_is_set();
    let shared = fleet_on(backend.clone()).await;
    let budget = Some(Budget { amount: 100, period: Duration::from_secs(3600), reserve: 60 });
    let quota = Quota { budget, ..Quota::default() };
    backend.set_quota(tenant("acme"), Some(quota)).await.unwrap();
    let spends = BegunTurn::new(&shared, "b").await;
    spends.finish_at(90).await;
    step.store(3_600_000, Ordering::Relaxed);
    tokio::time::advance(Duration::from_secs(600)).await;
    let refused = backend.accept(crate::stage::turn::accept("c")).await.unwrap();
    assert!(matches!(refused, Accepted::Refused(Refused::OverBudget { .. })), "{refused:?}");
}

// Guards: fair
#[test]
fn a_tenant_with_few_prompts_is_not_refused_for_those_of_others() {
    let mut world = World::new(1);
    let mut put = |name: &str, key: u32| {
        let mut accept = accept(name, key, WAIT);
        accept.bounds.fleet = 512;
        world.step(|step| step.accept(accept.clone()))
    };
    for key in 0..512 {
        assert!(matches!(put("greedy/a", key), Accepted::New(_)), "{key}");
    }
    assert!(matches!(put("new/a", 512), Accepted::New(_)), "its share");
    let full = Accepted::Refused(Refused::QueueFull { what: "prompts", of: "in the fleet", bound: 512 });
    assert_eq!([put("new/a", 513), put("greedy/b", 514)], [full.clone(), full]);
}

#[test]
fn withdrawn_prompts_leave_no_content() {
    let mut world = World::new(1);
    let accept = accept("a", "key", WAIT);
    assert!(matches!(world.step(|step| step.accept(accept.clone())), Accepted::New(_)));
    let (id, of) = (accept.prompt, tenant("acme"));
    assert!(world.step(|step| step.content(id)).is_some());
    assert_eq!(world.step(|step| step.withdraw(id)), Withdrawn::Unsent);
    assert_eq!(world.step(|step| step.content(id)), None);
    assert_eq!(world.step(|step| step.outcome(id)), Some(PromptOutcome::Unsent { why: Unsent::Withdrawn }));
    assert!(world.step(|step| step.tenant(of.clone())).kept_bytes < 1024 + 100, "its record and its outcome");
    // It is recognised all the same.
    let again = Accept { prompt: PromptId::new(), ..accept.clone() };
    assert!(
        matches!(world.step(|step| step.accept(again.clone())), Accepted::Duplicate(known) if known.id == id)
    );
    let other = PromptContent { prompt: json!(2), continuation: None };
    let other = Accept { content: other, ..again };
    let refused = world.step(|step| step.accept(other.clone()));
    assert_eq!(refused, Accepted::Refused(Refused::KeyReused { prompt: id }));
    assert_eq!(world.step(|step| step.forget(Timestamp(u64::MAX), 10)), 1);
    assert_eq!(world.step(|step| step.tenant(of.clone())).kept_bytes, 0);
}

#[test]
fn a_bucket_gives_tokens_back_at_its_rate() {
    let mut world = World::new(1);
    world.now = Timestamp(1_000_000);
    let quota = Quota::default().prompts(60, 3);
    let mut key = 0;
    let mut ask = |world: &mut World, quota: &Quota| {
        key += 1;
        let accept = Accept { quota: quota.clone(), ..accept(&format!("name {key}"), key, WAIT) };
        match world.step(|step| step.accept(accept.clone())) {
            Accepted::New(_) => None,
            Accepted::Refused(Refused::TooFast { retry_after }) => Some(retry_after),
            other => panic!("{other:?}"),
        }
    };
    let millis = Duration::from_millis;
    let asked: Vec<_> = (0..4).map(|_| ask(&mut world, &quota)).collect();
    assert_eq!(asked, [None, None, None, Some(millis(1000))]);
    world.now = world.now.after(millis(400));
    assert_eq!(ask(&mut world, &quota), Some(millis(600)), "a refused prompt takes nothing");
    world.now = world.now.after(millis(600));
    assert_eq!([ask(&mut world, &quota), ask(&mut world, &quota)], [None, Some(millis(1000))]);
    // A long pause fills the bucket, and no more.
    world.now = world.now.after(Duration::from_secs(3600));
    let asked: Vec<_> = (0..4).map(|_| ask(&mut world, &quota)).collect();
    assert_eq!(asked, [None, None, None, Some(millis(1000))]);
    // Another rate begins with a full bucket.
    assert_eq!(ask(&mut world, &Quota::default().prompts(600, 1)), None);
    assert_eq!(ask(&mut world, &Quota::default().prompts(600, 1)), Some(millis(100)));
}

#[test]
fn prompts_are_bounded_in_bytes_and_names_in_number() {
    let mut world = World::new(1);
    let long = |bytes: usize| PromptContent { prompt: json!("x".repeat(bytes)), continuation: None };
    let mut ask = |to: &str, bytes: usize, quota: Quota| {
        let accept = Accept { content: long(bytes), quota, ..accept(to, PromptId::new(), WAIT) };
        let bounds = QueueBounds { prompt_bytes: 1000, ..accept.bounds };
        let accept = Accept { bounds, ..accept };
        match world.step(|step| step.accept(accept.clone())) {
            Accepted::New(_) => None,
            Accepted::Refused(why) => Some(why),
            other => panic!("{other:?}"),
        }
    };
    assert!(matches!(ask("a", 1000, Quota::default()), Some(Refused::TooLong { bound: 1000, .. })));
    assert_eq!(ask("a", 900, Quota::default()), None);
    let waiting_bytes = 1000;
    let refused = ask("a", 900, Quota { waiting_bytes, ..Quota::default() });
    assert_eq!(refused, Some(Refused::WaitingBytes { bound: waiting_bytes }));
    let kept_bytes = 3000;
    assert_eq!(
        ask("a", 90, Quota { kept_bytes, ..Quota::default() }),
        Some(Refused::KeptBytes { bound: kept_bytes })
    );
    assert_eq!(ask("b", 9, Quota { names: 1, ..Quota::default() }), Some(Refused::TooManyNames { bound: 1 }));
    assert_eq!(ask("a", 9, Quota { names: 1, ..Quota::default() }), None, "a known name");
}

#[test]
fn far_reminders_block_no_tenant() {
    let mut world = World::new(1);
    let bounds = QueueBounds { reminders: 30, ..QueueBounds::default() };
    let quota = Quota { reminders: 20, ..Quota::default() };
    let mut ask = |to: &str, far: bool| {
        let not_before = far.then_some(Timestamp(9_999_999));
        let accept = accept(to, PromptId::new(), Duration::from_secs(3600));
        let accept = Accept { not_before, bounds, quota: quota.clone(), ..accept };
        match world.step(|step| step.accept(accept.clone())) {
            Accepted::New(_) => None,
            Accepted::Refused(Refused::QueueFull { what, of, .. }) => Some((what, of)),
            other => panic!("{other:?}"),
        }
    };
    let asked: Vec<_> = (0..21).map(|_| ask("a", true)).collect();
    assert_eq!(asked[..20], [None; 20]);
    assert_eq!(asked[20], Some(("reminders", "for the tenant")));
    assert_eq!(ask("a", false), None, "its name and its tenant");
    let asked: Vec<_> = (0..11).map(|_| ask("other/a", true)).collect();
    assert_eq!(asked[10], Some(("reminders", "in the fleet")));
    assert_eq!(ask("third/a", false), None, "another tenant");
    // They go on counting as reminders when their moments have come.
    world.now = Timestamp(10_000_000);
    let page = WaitingPage {
        node: NodeId::new(),
        of: None,
        without: Vec::new(),
        profiles: None,
        after: None,
        limit: 10,
    };
    world.step(|step| step.waiting(page.clone()));
    let account = world.step(|step| step.tenant(tenant("acme")));
    assert_eq!((account.queued, account.reminders), (1, 20));
}

#[test]
fn names_with_an_owner_never_exceed_the_cap_of_their_tenant() {
    let mut world = World::new(1);
    let nodes = [NodeId::new(), NodeId::new()];
    for node in nodes {
        world.step(|step| step.join(Join { node, host: String::new(), lease: WAIT, capacity: 8 }));
    }
    for to in ["a", "b", "c"] {
        let accept = accept(to, 1, WAIT);
        assert!(matches!(world.step(|step| step.accept(accept.clone())), Accepted::New(_)));
    }
    let claim = |to: &str, node| Claim {
        name: name(to),
        node,
        attempt: AttemptId::new(),
        losses: 3,
        quota: Quota::default().live(1),
    };
    let first = claim("a", nodes[0]);
    // The other node has one between its read and its commit.
    let refused = world.overlap(
        |step| step.claim(claim("b", nodes[1])),
        |world| drop(world.step(|step| step.claim(first.clone()))),
    );
    assert_eq!((refused.unwrap().0, world.conflicts), (Claimed::AtCap, 1));
    // A dead node holds its share until its names are recovered, or claimed.
    world.now = world.now.after(WAIT * 2);
    assert!(world.step(|step| step.declare_dead(nodes[0], 0)));
    assert_eq!(world.step(|step| step.claim(claim("b", nodes[1]))), Claimed::AtCap);
    assert!(matches!(world.step(|step| step.claim(claim("a", nodes[1]))), Claimed::Won(_)));
    assert_eq!(world.step(|step| step.tenant(tenant("acme"))).live, 1);
    assert_eq!(world.step(|step| step.claim(claim("c", nodes[1]))), Claimed::AtCap);
    // The quota that was set counts, whatever the node says.
    world.step(|step| step.set_quota(tenant("acme"), Some(Quota::default().live(2))));
    assert!(matches!(world.step(|step| step.claim(claim("c", nodes[1]))), Claimed::Won(_)));
    assert_eq!(world.step(|step| step.tenant(tenant("acme"))).live, 2);
}
