//! The cap and the budget of a tenant, over nodes that ask at once, and over nodes that die.

use std::time::Duration;

use greenroom_fleet::backend::{PostgresBackend, Requests};
use greenroom_fleet::{
    AttemptId, Begin, Budget, Claim, Claimed, Finish, Join, NodeId, Owned, Ownership, PromptOutcome, Quota,
    Tenant,
};
use serde_json::json;
use tokio::task::JoinSet;

use crate::nodes::{accept, accepted};
use crate::{connect, schema, server};

const NAMES: usize = 12;
const CAP: u32 = 3;
const BUDGET: u64 = 100;
const RESERVE: u64 = 10;

fn quota() -> Quota {
    let mut quota = Quota::default().live(CAP as usize);
    quota.budget =
        Some(Budget { amount: BUDGET, period: Duration::from_secs(40 * 365 * 24 * 3600), reserve: RESERVE });
    quota
}

/// Asserts that the tenant is within its bounds. Answers with the money that it has spent, and with its live sessions.
async fn within_bounds(backend: &PostgresBackend) -> (u64, u32) {
    let account = backend.tenant(Tenant::new("acme").unwrap()).await.unwrap();
    assert!(account.live <= CAP, "{account:?}");
    assert!(account.spent + account.reserved <= BUDGET, "{account:?}");
    (account.spent, account.live)
}

/// Runs turns of all names that it can claim, until the money is spent. A node that dies begins one turn, and does nothing more.
async fn run(backend: PostgresBackend, node: NodeId, dies: bool) {
    loop {
        for number in 0..NAMES {
            let (spent, _) = within_bounds(&backend).await;
            if spent == BUDGET {
                return;
            }
            let name = accept(&number.to_string()).name;
            let claim =
                Claim { name: name.clone(), node, attempt: AttemptId::new(), losses: 99, quota: quota() };
            let Claimed::Won(record) = backend.claim(claim).await.unwrap() else { continue };
            let owner = Ownership { name: name.clone(), node, term: record.term };
            let prompt = accepted(&backend, &number.to_string()).await;
            let attempt = AttemptId::new();
            let first = backend.next_prompt(name).await.unwrap().map_or(prompt, |first| first.id);
            let begin =
                Begin { owner: owner.clone(), prompt: first, attempt, quota: quota(), credential: None };
            let begun = backend.begin(begin).await.unwrap();
            if matches!(begun, Owned::Done(Some(_))) {
                if dies {
                    return;
                }
                let outcome = PromptOutcome::Completed { result: json!("done"), transcript_lost: false };
                let (owner, cost) = (owner.clone(), Some(RESERVE));
                let finish =
                    Finish { owner, prompt: first, attempt, outcome, cost, usage: None, quarantine: None };
                assert_eq!(backend.finish(finish).await.unwrap(), Owned::Done(true));
            }
            assert!(backend.release(owner).await.unwrap().done().is_some());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cap_and_the_budget_hold_over_four_nodes_of_which_two_die() {
    let Some(address) = server::address() else { return };
    let schema = schema();
    let first = connect(&address, &schema).await;
    for number in 0..NAMES {
        accepted(&first, &number.to_string()).await;
    }
    let mut nodes = JoinSet::new();
    for number in 0..4 {
        let (backend, node, dies) = (connect(&address, &schema).await, NodeId::new(), number < 2);
        let lease = if dies { Duration::ZERO } else { Duration::from_secs(3600) };
        backend.join(Join { node, host: "here".into(), lease, capacity: 8 }).await.unwrap();
        nodes.spawn(async move {
            run(backend.clone(), node, dies).await;
            if dies {
                let (_, live) = within_bounds(&backend).await;
                assert!(live >= 1, "a dead node holds its share");
                assert!(backend.declare_dead(node, 0).await.unwrap());
                backend.recover(10, 99).await.unwrap();
            }
        });
    }
    while let Some(ended) = nodes.join_next().await {
        ended.unwrap();
    }
    assert_eq!(within_bounds(&first).await, (BUDGET, 0));
}
