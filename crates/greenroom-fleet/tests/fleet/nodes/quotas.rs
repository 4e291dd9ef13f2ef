//! Quotas that hold over all nodes, also when nodes are killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use greenroom_fleet::backend::Requests;
use greenroom_fleet::{Budget, FleetPrompt, Quota, Tenant};
use tokio::time::{Instant, sleep};

use super::*;
use crate::scenes::{named_of, outcome, secs};

const CAP: usize = 5;
const BUDGET: u64 = 4_000_000;
const RESERVE: u64 = 500_000;

fn acme() -> Tenant {
    Tenant::new("acme").unwrap()
}

fn quota() -> Quota {
    let mut quota = Quota::default().live(CAP);
    quota.budget = Some(Budget { amount: BUDGET, period: secs(40 * 365 * 24 * 3600), reserve: RESERVE });
    quota
}

async fn node(world: &World, quota: Quota) -> Node {
    let backend = FaultedBackend::new(world.backend.clone());
    Node::with(world, backend, |builder| {
        builder.default_quota(quota).configure(|limits| limits.wait = secs(24 * 3600))
    })
    .await
}

// Guards: paid
#[tokio::test(start_paused = true)]
async fn quotas_hold_over_four_nodes_of_which_two_are_killed() {
    let world = World::new();
    let mut nodes = Vec::new();
    for _ in 0..4 {
        nodes.push(node(&world, quota()).await);
    }
    // Looks at the account all the time.
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, watched) = (stop.clone(), world.clone());
    let watch = tokio::spawn(async move {
        while !stopped.load(Ordering::Relaxed) {
            let account = watched.backend.tenant(acme()).await.unwrap();
            assert!(account.spent + account.reserved <= BUDGET, "{account:?}");
            assert!(account.live as usize <= CAP, "{account:?}");
            sleep(std::time::Duration::from_millis(50)).await;
        }
    });
    // Each turn costs less than its reserve.
    let mut turns = Vec::new();
    for number in 0..24 {
        let session = named_of(&nodes[number % 4].fleet, "acme", &format!("name-{number}"));
        turns.push(session.prompt("cost 0.1").await.unwrap().prompt_id());
        if number % 3 == 0 {
            let holds = FleetPrompt::new("hold").continue_with("cost 0.1", 1);
            turns.push(session.prompt(holds).await.unwrap().prompt_id());
        }
    }
    sleep(secs(5)).await;
    nodes[0].kill(&world).await;
    sleep(secs(3)).await;
    nodes[1].kill(&world).await;
    // Turns that hold on are interrupted on the nodes that are left, until the money is spent.
    for _ in 0..60 {
        sleep(secs(5)).await;
        for number in 0..24 {
            let session = named_of(&nodes[2].fleet, "acme", &format!("name-{number}"));
            session.interrupt().await.ok();
        }
    }
    stop.store(true, Ordering::Relaxed);
    watch.await.unwrap();
    // Each start and end of a CLI counts, also between two looks.
    assert_eq!(world.clis.most_live(), CAP, "the cap holds, and was used");
    let account = world.backend.tenant(acme()).await.unwrap();
    assert!(account.spent > BUDGET / 2 && account.spent <= BUDGET, "{account:?}");
    assert!(account.live as usize <= CAP && account.reserved <= BUDGET - account.spent, "{account:?}");
    for node in &nodes[2..] {
        in_time("the drain", node.fleet.drain(secs(10))).await;
    }
    let account = world.backend.tenant(acme()).await.unwrap();
    assert_eq!((account.live, account.reserved), (0, 0), "what dead nodes had was given back");
}

// Guards: paid
#[tokio::test(start_paused = true)]
async fn turns_over_their_reserve_exceed_the_budget_by_their_rest_at_most() {
    const COST: u64 = 900_000;
    // Their reserves are the whole budget.
    const RUNNING: u64 = BUDGET / RESERVE;
    let world = World::new();
    let quota = quota().live(20);
    let nodes = [node(&world, quota.clone()).await, node(&world, quota).await];
    for number in 0..RUNNING as usize + 4 {
        let session = named_of(&nodes[number % 2].fleet, "acme", &format!("name-{number}"));
        drop(session.prompt("hold 0.9").await.unwrap());
    }
    world.clis.read(RUNNING as usize).await;
    let begun = world.clis.prompts();
    for (ended, (name, _)) in (1..).zip(begun) {
        let session = named_of(&nodes[0].fleet, "acme", &name);
        let running = session.record().await.unwrap().running.unwrap();
        assert!(in_time("the interrupt", session.interrupt()).await.unwrap());
        outcome(nodes[0].fleet.operator().turn(running)).await;
        let account = world.backend.tenant(acme()).await.unwrap();
        let left = (RUNNING - ended) * RESERVE;
        assert_eq!((account.spent, account.reserved), (ended * COST, left), "no other turn has begun");
    }
    // The prompts that are left wait, since nothing is.
    sleep(secs(60)).await;
    assert_eq!(world.clis.prompts().len(), RUNNING as usize);
    let account = world.backend.tenant(acme()).await.unwrap();
    assert_eq!(account.queued, 4);
    assert_eq!((account.spent - BUDGET, account.reserved), (RUNNING * (COST - RESERVE), 0));
    for node in &nodes {
        in_time("the drain", node.fleet.drain(secs(10))).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_cannot_start_at_the_cap_is_passive_and_quarantined_at_once() {
    // Each call comes while the name is claimed, and the claim finds that there is no room.
    for is_quarantined in [false, true] {
        let world = World::new();
        let first = node(&world, Quota::default().live(1)).await;
        drop(named_of(&first.fleet, "acme", "a").prompt("hold").await.unwrap());
        world.clis.read(1).await;
        // Later than the prompt, which it would run otherwise.
        let second = node(&world, Quota::default().live(1)).await;
        let session = named_of(&second.fleet, "acme", "b");
        second.backend.fault_next("claim", Fault::Hang);
        drop(session.prompt("one").await.unwrap());
        second.backend.wait_for_hanging(1).await;
        let call = async {
            if is_quarantined {
                session.quarantine("why").await.unwrap();
            } else {
                session.passivate().await.unwrap();
            }
        };
        let release = async {
            sleep(std::time::Duration::from_millis(100)).await;
            second.backend.release();
        };
        tokio::join!(in_time("the call", call), release);
        assert_eq!(world.clis.prompts().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn idle_sessions_make_room_for_names_of_their_tenant_on_any_node() {
    let world = World::new();
    let (first, second) =
        (node(&world, Quota::default().live(2)).await, node(&world, Quota::default().live(2)).await);
    let ask = async |node: &Node, name: &str| {
        outcome(named_of(&node.fleet, "acme", name).prompt("one").await.unwrap()).await
    };
    ask(&first, "a").await;
    ask(&second, "b").await;
    assert_eq!(world.clis.live(), 2);
    let begun = Instant::now();
    assert_eq!(ask(&second, "c").await.text(), Some("re: one"));
    let waited = begun.elapsed();
    assert!(waited <= secs(12), "not until they sleep: {waited:?}");
    assert!(world.clis.most_live() <= 2);
    // Another tenant waits for nothing.
    let begun = Instant::now();
    let other = named_of(&first.fleet, "other", "d").prompt("one").await.unwrap();
    assert_eq!(outcome(other).await.text(), Some("re: one"));
    assert!(begun.elapsed() < secs(1), "{:?}", begun.elapsed());
}
