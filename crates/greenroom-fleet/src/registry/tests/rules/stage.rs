//! The stage of a check: a backend, a node, and shorthand for requests.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::backend::{Backend, Requests};
use crate::error::{BackendError, BackendErrorKind};
use crate::id::{AttemptId, NodeId, PromptId};
use crate::record::{PromptContent, PromptOutcome};
use crate::registry::{Key, Lane, Part, Range, Table, Wanted};
use crate::request::{
    Accept, Accepted, Begin, Claim, Claimed, Finish, Join, Marked, Owned, Ownership, QueueBounds,
};
pub(super) use crate::stage::{name, tenant};

/// A promise that is broken, in words.
pub(super) struct Broken(pub(super) String);

impl From<BackendError> for Broken {
    fn from(error: BackendError) -> Self {
        Self(format!("a request failed: {error}"))
    }
}

pub(super) type Checked<T = ()> = Result<T, Broken>;

/// Fails unless both are equal.
pub(super) fn same<T: PartialEq + Debug>(what: &str, seen: T, expected: T) -> Checked {
    if seen == expected {
        return Ok(());
    }
    Err(Broken(format!("{what} is {seen:?} and should be {expected:?}")))
}

/// Fails with what was seen.
pub(super) fn unexpected<T>(what: &str, seen: impl Debug) -> Checked<T> {
    Err(Broken(format!("{what}: {seen:?}")))
}

/// Fails unless the request was refused as invalid.
pub(super) fn invalid<T: Debug>(what: &str, seen: Result<T, BackendError>) -> Checked {
    match seen {
        Err(error) if error.kind() == BackendErrorKind::Invalid => Ok(()),
        other => unexpected(what, other),
    }
}

/// A lease that does not end within a check.
pub(super) const LEASE: Duration = Duration::from_secs(3600);
/// The capacity of the nodes.
pub(super) const CAPACITY: u32 = 8;

pub(super) const ROOMY: QueueBounds =
    QueueBounds { name: 100, tenant: 100, fleet: 100, reminders: 100, prompt_bytes: 1 << 20 };

/// A backend with one node.
pub(super) struct Stage {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) node: NodeId,
}

impl Stage {
    pub(super) async fn new(backend: Arc<dyn Backend>) -> Checked<Self> {
        let node = NodeId::new();
        let stage = Self { backend, node };
        stage.join(node, LEASE).await?;
        Ok(stage)
    }

    pub(super) async fn join(&self, node: NodeId, lease: Duration) -> Checked {
        self.join_on("here", node, lease).await
    }

    pub(super) async fn join_on(&self, host: &str, node: NodeId, lease: Duration) -> Checked {
        self.backend.join(Join { node, host: host.to_owned(), lease, capacity: CAPACITY }).await?;
        Ok(())
    }

    /// Another node, whose lease has ended already.
    pub(super) async fn short_lived_node(&self) -> Checked<NodeId> {
        let node = NodeId::new();
        self.join(node, Duration::ZERO).await?;
        Ok(node)
    }

    /// Says that a node is dead that never renewed its lease.
    pub(super) async fn kill(&self, node: NodeId) -> Checked {
        match self.backend.declare_dead(node, 0).await? {
            true => Ok(()),
            false => unexpected("a node whose lease is over is not declared dead", node),
        }
    }

    pub(super) async fn accepted(&self, accept: Accept) -> Checked<PromptId> {
        match self.backend.accept(accept).await? {
            Accepted::New(prompt) => Ok(prompt.id),
            other => unexpected("a prompt is not accepted", other),
        }
    }

    /// Waits until the backend's clock has gone on. Prompts of several names that are accepted in one millisecond have any order.
    pub(super) async fn next_millisecond(&self) {
        let now = self.backend.now();
        while self.backend.now() <= now {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// The prompts that wait for a name, in their order.
    pub(super) async fn queue(&self, of: &str) -> Checked<Vec<PromptId>> {
        let range = |table| {
            let key = Key::of(table).name(&name(of));
            Range { from: key.bytes().to_vec(), to: key.end(), limit: 100, part: Part::Values }
        };
        let ranges = [Table::Queue, Table::Reminders].map(range).into();
        let rows = self.backend.read(Lane::Requests, Wanted { ranges, ..Wanted::default() }).await?;
        let mut rows: Vec<_> = rows.ranges.into_values().flatten().collect();
        rows.sort_by_key(|(key, _)| key[1..].to_vec());
        Ok(rows.iter().map(|(_, id)| serde_json::from_slice(id).unwrap()).collect())
    }

    /// Accepts a prompt for a name.
    pub(super) async fn prompt(&self, name: &str, text: &str) -> Checked<PromptId> {
        self.accepted(accept(name, text)).await
    }

    pub(super) async fn claim_by(&self, node: NodeId, name: &str) -> Checked<Claimed> {
        Ok(self.backend.claim(claim(node, name)).await?)
    }

    /// Claims a name for a node, which has to win it.
    pub(super) async fn own_by(&self, node: NodeId, name: &str) -> Checked<Ownership> {
        match self.claim_by(node, name).await? {
            Claimed::Won(record) => Ok(Ownership { name: record.name, node, term: record.term }),
            other => unexpected("a free name is not won", other),
        }
    }

    pub(super) async fn own(&self, name: &str) -> Checked<Ownership> {
        self.own_by(self.node, name).await
    }

    /// Begins a prompt, which has to be sent.
    pub(super) async fn begin(&self, owner: &Ownership, prompt: PromptId) -> Checked<(AttemptId, Value)> {
        let attempt = AttemptId::new();
        match self.backend.begin(begin(owner, prompt, attempt)).await? {
            Owned::Done(Some(content)) => Ok((attempt, content)),
            other => unexpected("a prompt that waits does not begin", other),
        }
    }

    /// A name that is owned, with a turn that runs.
    pub(super) async fn running(
        &self,
        node: NodeId,
        name: &str,
    ) -> Checked<(Ownership, PromptId, AttemptId)> {
        let prompt = self.prompt(name, "run").await?;
        let owner = self.own_by(node, name).await?;
        let (attempt, _) = self.begin(&owner, prompt).await?;
        Ok((owner, prompt, attempt))
    }

    /// Marks a name as being deleted. Answers with the length of its queue after that.
    pub(super) async fn delete(&self, to: &str) -> Checked<u32> {
        same("the answer to a deletion", self.backend.delete(name(to)).await?, Marked::Done)?;
        Ok(self.backend.name_record(name(to)).await?.map_or(0, |record| record.queued))
    }

    /// Removes a name that is marked, or was removed before. `false`: something is left for the next call.
    pub(super) async fn deleted(&self, of: &str) -> Checked<bool> {
        let conversation = self.backend.name_record(name(of)).await?.map(|record| record.conversation);
        Ok(self.backend.deleted(name(of), conversation.unwrap_or_default()).await?)
    }

    pub(super) async fn complete(&self, owner: &Ownership, prompt: PromptId, attempt: AttemptId) -> Checked {
        let finished = self.backend.finish(finish(owner, prompt, attempt, completed())).await?;
        same("the answer to a finish", finished, Owned::Done(true))
    }

    pub(super) async fn outcome(&self, prompt: PromptId) -> Checked<Option<PromptOutcome>> {
        Ok(self.backend.outcome(prompt).await?)
    }
}

pub(super) fn accept(to: &str, text: &str) -> Accept {
    Accept {
        prompt: PromptId::new(),
        name: name(to),
        profile: "support".to_owned(),
        conversation: Uuid::new_v4(),
        host: None,
        key: None,
        labels: Default::default(),
        content: PromptContent { prompt: json!(text), continuation: None },
        continuations: 0,
        not_before: None,
        wait: LEASE,
        quota: crate::Quota::default(),
        bounds: ROOMY,
    }
}

/// A prompt with a continuation that may be sent once.
pub(super) fn accept_with_continuation(to: &str) -> Accept {
    let content = PromptContent { prompt: json!("the prompt"), continuation: Some(json!("go on")) };
    Accept { content, continuations: 1, ..accept(to, "") }
}

pub(super) fn claim(node: NodeId, to: &str) -> Claim {
    Claim { name: name(to), node, attempt: AttemptId::new(), losses: 3, quota: crate::Quota::default() }
}

pub(super) fn begin(owner: &Ownership, prompt: PromptId, attempt: AttemptId) -> Begin {
    Begin { owner: owner.clone(), prompt, attempt, quota: crate::Quota::default(), credential: None }
}

pub(super) fn finish(
    owner: &Ownership,
    prompt: PromptId,
    attempt: AttemptId,
    outcome: PromptOutcome,
) -> Finish {
    Finish { owner: owner.clone(), prompt, attempt, outcome, cost: Some(0), usage: None, quarantine: None }
}

pub(super) fn completed() -> PromptOutcome {
    PromptOutcome::Completed { result: json!({ "result": "done" }), transcript_lost: false }
}

/// Boxes the checks of a file with their promises.
macro_rules! promises {
    ($($promise:literal => $check:ident,)*) => {
        pub(in crate::registry::tests::rules) const PROMISES: &[(&str, crate::registry::tests::rules::Check)] = &[$(($promise, |stage| Box::pin($check(stage)))),*];
    };
}

pub(super) use promises;
