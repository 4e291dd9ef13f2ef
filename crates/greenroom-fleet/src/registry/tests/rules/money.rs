//! Promises about the money of tenants.

use super::stage::{
    Checked, Stage, accept, accept_with_continuation, begin, completed, finish, promises, same, tenant,
    unexpected,
};
use crate::backend::Requests;
use crate::id::{AttemptId, PromptId, Timestamp};
use crate::request::{Accept, Accepted, Begin, Finish, Owned, Ownership, Refused, Reserve};

promises! {
    "a tenant without money for a turn is refused until the next period" => refused,
    "money that is reserved for a turn refuses no prompt" => reserved,
    "money of a period of the future refuses no prompt" => future,
    "money that was spent is not reserved again" => spent,
    "money that a lost turn has reserved stays reserved when its continuation has ended" => lost,
    "a turn that outlasts its period costs in the new one, and frees none of its reservations" => outlasts,
}

/// A budget of 100, of which a turn reserves 60.
fn budget(period: u64) -> Reserve {
    Reserve { period: Timestamp(period), budget: 100, amount: 60 }
}

async fn refused(stage: Stage) -> Checked {
    let (owner, prompt, attempt) = begun(&stage, "a", budget(1)).await?;
    end(&stage, &owner, prompt, attempt, 50).await?;
    let ask = async |period| stage.backend.accept(with(period)).await;
    same("an accept without money", ask(1).await?, Accepted::Refused(Refused::OverBudget))?;
    accepted(ask(2).await?)
}

async fn future(stage: Stage) -> Checked {
    let later = stage.backend.now().after(std::time::Duration::from_secs(3600));
    same("the answer", stage.backend.open_account(tenant("acme"), later, 100).await?, true)?;
    accepted(stage.backend.accept(with(1)).await?)
}

async fn reserved(stage: Stage) -> Checked {
    begun(&stage, "a", budget(1)).await?;
    accepted(stage.backend.accept(with(1)).await?)
}

async fn spent(stage: Stage) -> Checked {
    let (owner, prompt, attempt) = begun(&stage, "a", budget(1)).await?;
    end(&stage, &owner, prompt, attempt, 50).await?;
    let second = stage.prompt("a", "hello").await?;
    let reserve = Some(budget(1));
    let begin = Begin { reserve, ..begin(&owner, second, AttemptId::new()) };
    let answer = stage.backend.begin(begin).await?;
    same("a begin without money", answer, Owned::Done(None))
}

async fn lost(stage: Stage) -> Checked {
    let node = stage.short_lived_node().await?;
    let prompt = stage.accepted(accept_with_continuation("a")).await?;
    let owner = stage.own_by(node, "a").await?;
    let reserve = Some(budget(1));
    let first = Begin { reserve, ..begin(&owner, prompt, AttemptId::new()) };
    same("whether it begins", stage.backend.begin(first).await?.done().is_some(), true)?;
    stage.kill(node).await?;
    let owner = stage.own("a").await?;
    // The tenant has no budget any more.
    let (attempt, _) = stage.begin(&owner, prompt).await?;
    end(&stage, &owner, prompt, attempt, 10).await?;
    let account = stage.backend.tenant(tenant("acme")).await?;
    same("money spent and reserved", (account.spent, account.reserved), (10, 60))
}

async fn outlasts(stage: Stage) -> Checked {
    let (owner, prompt, attempt) = begun(&stage, "a", budget(1)).await?;
    begun(&stage, "b", budget(2)).await?;
    end(&stage, &owner, prompt, attempt, 10).await?;
    let account = stage.backend.tenant(tenant("acme")).await?;
    same("money spent and reserved", (account.spent, account.reserved), (10, 60))
}

fn with(period: u64) -> Accept {
    Accept { budget: Some(budget(period)), ..accept("later", "hello") }
}

fn accepted(answer: Accepted) -> Checked {
    match answer {
        Accepted::New(_) => Ok(()),
        other => unexpected("a prompt is not accepted", other),
    }
}

async fn begun(stage: &Stage, to: &str, reserve: Reserve) -> Checked<(Ownership, PromptId, AttemptId)> {
    let prompt = stage.prompt(to, "hello").await?;
    let owner = stage.own(to).await?;
    let attempt = AttemptId::new();
    let begin = Begin { reserve: Some(reserve), ..begin(&owner, prompt, attempt) };
    match stage.backend.begin(begin).await? {
        Owned::Done(Some(_)) => Ok((owner, prompt, attempt)),
        other => unexpected("a prompt that waits does not begin", other),
    }
}

async fn end(stage: &Stage, owner: &Ownership, prompt: PromptId, attempt: AttemptId, cost: u64) -> Checked {
    let finish = Finish { cost, ..finish(owner, prompt, attempt, completed()) };
    same("the answer to a finish", stage.backend.finish(finish).await?, Owned::Done(true))
}
