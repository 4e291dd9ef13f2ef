//! Promises about the money of tenants.

use std::time::Duration;

use super::stage::{
    Checked, Stage, accept, accept_with_continuation, begin, completed, finish, promises, same, tenant,
    unexpected,
};
use crate::backend::Requests;
use crate::event::FleetEvent;
use crate::id::{AttemptId, PromptId};
use crate::limits::{Budget, Quota};
use crate::request::{Accept, Accepted, Begin, Finish, Owned, Ownership, Refused};

promises! {
    "a tenant without money for a turn is refused until the next period" => refused,
    "money that is reserved for a turn refuses no prompt" => reserved,
    "money of a period of the future refuses no prompt" => future,
    "money that was spent is not reserved again" => spent,
    "a turn whose owner was lost costs its reserve, and its continuation costs its own" => lost,
    "a turn without a cost costs its reserve" => untold,
    "a turn that outlasts its period keeps its reservation, and costs in the new one" => outlasts,
    "each level of a budget is told once in a period" => levels,
}

/// A period that does not end within a check, and one that ends at once.
const LONG: Duration = Duration::from_secs(40 * 365 * 24 * 3600);
const SHORT: Duration = Duration::from_millis(1);

/// A budget of 100, of which a turn reserves 60.
fn budget(period: Duration) -> Quota {
    Quota { budget: Some(Budget { amount: 100, period, reserve: 60 }), ..Quota::default() }
}

async fn refused(stage: Stage) -> Checked {
    let (owner, prompt, attempt) = begun(&stage, "a", budget(LONG)).await?;
    end(&stage, &owner, prompt, attempt, 50).await?;
    let ask = async |period| stage.backend.accept(with(period)).await;
    match ask(LONG).await? {
        Accepted::Refused(Refused::OverBudget { retry_after }) if retry_after <= LONG => {}
        other => return unexpected("an accept without money", other),
    }
    stage.next_millisecond().await;
    accepted(ask(SHORT).await?)
}

async fn future(stage: Stage) -> Checked {
    let later = stage.backend.now().after(Duration::from_secs(3600));
    same("the answer", stage.backend.open_account(tenant("acme"), later, 100).await?, true)?;
    accepted(stage.backend.accept(with(LONG)).await?)
}

async fn reserved(stage: Stage) -> Checked {
    begun(&stage, "a", budget(LONG)).await?;
    accepted(stage.backend.accept(with(LONG)).await?)
}

async fn spent(stage: Stage) -> Checked {
    let (owner, prompt, attempt) = begun(&stage, "a", budget(LONG)).await?;
    end(&stage, &owner, prompt, attempt, 50).await?;
    let second = stage.prompt("a", "hello").await?;
    let quota = budget(LONG);
    let begin = Begin { quota, ..begin(&owner, second, AttemptId::new()) };
    let answer = stage.backend.begin(begin).await?;
    same("a begin without money", answer, Owned::Done(None))
}

async fn lost(stage: Stage) -> Checked {
    let node = stage.short_lived_node().await?;
    let prompt = stage.accepted(accept_with_continuation("a")).await?;
    let owner = stage.own_by(node, "a").await?;
    let quota = budget(LONG);
    let first = Begin { quota, ..begin(&owner, prompt, AttemptId::new()) };
    same("whether it begins", stage.backend.begin(first).await?.done().is_some(), true)?;
    stage.kill(node).await?;
    let owner = stage.own("a").await?;
    // The tenant has no budget any more.
    let (attempt, _) = stage.begin(&owner, prompt).await?;
    end(&stage, &owner, prompt, attempt, 10).await?;
    let account = stage.backend.tenant(tenant("acme")).await?;
    same("money spent and reserved", (account.spent, account.reserved), (70, 0))
}

async fn outlasts(stage: Stage) -> Checked {
    let (owner, prompt, attempt) = begun(&stage, "a", budget(SHORT)).await?;
    stage.next_millisecond().await;
    let second = stage.prompt("b", "hello").await?;
    let other = stage.own("b").await?;
    let begin = || Begin { quota: budget(SHORT), ..begin(&other, second, AttemptId::new()) };
    same("a begin beside it", stage.backend.begin(begin()).await?, Owned::Done(None))?;
    end(&stage, &owner, prompt, attempt, 10).await?;
    let account = stage.backend.tenant(tenant("acme")).await?;
    same("money spent and reserved", (account.spent, account.reserved), (10, 0))?;
    same("whether it begins", stage.backend.begin(begin()).await?.done().flatten().is_some(), true)
}

async fn untold(stage: Stage) -> Checked {
    let (owner, prompt, attempt) = begun(&stage, "a", budget(LONG)).await?;
    end(&stage, &owner, prompt, attempt, None).await?;
    let account = stage.backend.tenant(tenant("acme")).await?;
    same("money spent and reserved", (account.spent, account.reserved), (60, 0))
}

async fn levels(stage: Stage) -> Checked {
    let mut made = stage.backend.transitions();
    let mut quota = budget(LONG);
    quota.budget.iter_mut().for_each(|budget| budget.reserve = 1);
    // Begins before the money is spent, and ends after that.
    let (owner, prompt, attempt) = begun(&stage, "late", quota.clone()).await?;
    for (name, cost) in [("a", 79), ("b", 1), ("c", 10), ("d", 10)] {
        let (owner, prompt, attempt) = begun(&stage, name, quota.clone()).await?;
        end(&stage, &owner, prompt, attempt, cost).await?;
    }
    end(&stage, &owner, prompt, attempt, 5).await?;
    let mut told = Vec::new();
    while let Ok(event) = made.try_recv() {
        match event {
            FleetEvent::BudgetNearlySpent { spent, budget, .. } => told.push(("nearly", spent, budget)),
            FleetEvent::BudgetSpent { spent, budget, .. } => told.push(("spent", spent, budget)),
            _ => {}
        }
    }
    same("the levels", told, vec![("nearly", 80, 100), ("spent", 100, 100)])
}

fn with(period: Duration) -> Accept {
    Accept { quota: budget(period), ..accept("later", "hello") }
}

fn accepted(answer: Accepted) -> Checked {
    match answer {
        Accepted::New(_) => Ok(()),
        other => unexpected("a prompt is not accepted", other),
    }
}

async fn begun(stage: &Stage, to: &str, quota: Quota) -> Checked<(Ownership, PromptId, AttemptId)> {
    let prompt = stage.prompt(to, "hello").await?;
    let owner = stage.own(to).await?;
    let attempt = AttemptId::new();
    let begin = Begin { quota, ..begin(&owner, prompt, attempt) };
    match stage.backend.begin(begin).await? {
        Owned::Done(Some(_)) => Ok((owner, prompt, attempt)),
        other => unexpected("a prompt that waits does not begin", other),
    }
}

async fn end(
    stage: &Stage,
    owner: &Ownership,
    prompt: PromptId,
    attempt: AttemptId,
    cost: impl Into<Option<u64>>,
) -> Checked {
    let finish = Finish { cost: cost.into(), ..finish(owner, prompt, attempt, completed()) };
    same("the answer to a finish", stage.backend.finish(finish).await?, Owned::Done(true))
}
