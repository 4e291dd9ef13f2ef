//! A tenant with all that moves with it, and a look at where it is.

use std::time::Duration;

use greenroom::sessions::TranscriptEntry;
use greenroom::store::SessionKey;
use greenroom_fleet::backend::{Backend, Requests};
use greenroom_fleet::{
    Accept, Accepted, Append, AppendEntries, Ask, AttemptId, Begin, Claim, Claimed, Finish, Join, Labels,
    Name, NameQuery, NameState, NodeId, Owned, Ownership, PromptContent, PromptId, PromptOutcome,
    PromptQuery, QuestionId, QueueBounds, Tenant, Timestamp, TranscriptsOf, Usage,
};
use serde_json::json;
use uuid::Uuid;

const HOUR: Duration = Duration::from_secs(3600);

pub(crate) fn name(name: &str) -> Name {
    if name.contains('/') { name.parse().unwrap() } else { format!("acme/{name}").parse().unwrap() }
}

pub(crate) fn tenant(tenant: &str) -> Tenant {
    Tenant::new(tenant).unwrap()
}

pub(crate) fn accept(to: &str, conversation: Uuid) -> Accept {
    Accept {
        prompt: PromptId::new(),
        name: name(to),
        profile: "support".into(),
        conversation,
        host: None,
        key: None,
        labels: Default::default(),
        content: PromptContent { prompt: json!("hello"), continuation: None },
        continuations: 0,
        not_before: None,
        wait: HOUR,
        bounds: QueueBounds { name: 100, tenant: 10_000, fleet: 10_000, ..Default::default() },
        quota: greenroom_fleet::Quota::default(),
    }
}

pub(crate) async fn joined(backend: &dyn Backend) -> NodeId {
    let node = NodeId::new();
    backend.join(Join { node, host: "here".into(), lease: HOUR, capacity: 8 }).await.unwrap();
    node
}

async fn own(backend: &dyn Backend, node: NodeId, name: &Name) -> Ownership {
    let claim = Claim {
        name: name.clone(),
        node,
        attempt: AttemptId::new(),
        losses: 3,
        quota: greenroom_fleet::Quota::default(),
    };
    let Claimed::Won(record) = backend.claim(claim).await.unwrap() else { panic!("not won") };
    Ownership { name: name.clone(), node, term: record.term }
}

/// Runs a turn with messages, a question and entries, and gives the name back.
pub(crate) async fn turn(backend: &dyn Backend, node: NodeId, accept: Accept, cost: u64) {
    let (prompt, name, conversation) = (accept.prompt, accept.name.clone(), accept.conversation);
    assert!(matches!(backend.accept(accept).await.unwrap(), Accepted::New(_)));
    let (owner, attempt) = (own(backend, node, &name).await, AttemptId::new());
    let begin = Begin {
        owner: owner.clone(),
        prompt,
        attempt,
        quota: greenroom_fleet::Quota::default(),
        credential: None,
    };
    assert!(matches!(backend.begin(begin).await.unwrap(), Owned::Done(Some(_))));
    let messages = (1..=3).map(|number| number.to_string()).collect();
    let append = Append { owner: owner.clone(), prompt, first_seq: 1, messages, bound: 1000 };
    assert!(backend.append(append).await.unwrap().done().is_some());
    let question = QuestionId::new();
    let ask = Ask { owner: owner.clone(), question, prompt, wait: HOUR, call: None, body: json!("may I?") };
    assert!(backend.ask(ask).await.unwrap().done().flatten().is_some());
    let _decided = backend.answer(question, AttemptId::new(), json!("yes")).await.unwrap();
    for key in keys(conversation) {
        let entry =
            |uuid: String| TranscriptEntry::try_from(json!({ "type": "user", "uuid": uuid })).unwrap();
        let entries = (0..3).map(|number| entry(format!("{prompt} {number}"))).collect();
        let (owner, attempt) = (Some(owner.clone()), AttemptId::new());
        let append = AppendEntries { owner, attempt, key, entries };
        assert!(backend.append_entries(append).await.unwrap().done().is_some());
    }
    let outcome = PromptOutcome::Completed { result: json!("done"), transcript_lost: false };
    let mut used = Usage::default();
    (used.cost, used.output) = (cost, 7);
    let usage = Some(used);
    let finish =
        Finish { owner: owner.clone(), prompt, attempt, outcome, cost: Some(cost), usage, quarantine: None };
    assert!(backend.finish(finish).await.unwrap().done().is_some());
    assert!(backend.release(owner).await.unwrap().done().is_some());
}

/// The transcripts of a conversation: the session's own one, and one of a subagent.
fn keys(conversation: Uuid) -> [SessionKey; 2] {
    let own = SessionKey::new(conversation.to_string(), conversation.to_string());
    [own.clone(), own.with_subpath("subagents/agent-1")]
}

/// The tenant `acme` with two sessions of two turns each, one of them quarantined, and two sessions of other tenants.
pub(crate) struct Tenants {
    acme: Vec<Accept>,
    other: Vec<Accept>,
}

/// The facts about a tenant in a backend, as texts.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Kept(Vec<String>);

impl Tenants {
    pub(crate) async fn on(backend: &dyn Backend) -> Self {
        let (node, mut tenants) = (joined(backend).await, Self { acme: Vec::new(), other: Vec::new() });
        for (session, tenant) in [("a", "acme"), ("b", "acme"), ("c", "other"), ("d", "more")] {
            let conversation = Uuid::new_v4();
            for number in 0..2 {
                let key = Some(format!("key {number}"));
                let labels = Labels::new().with("number", number.to_string());
                let accept = Accept { key, labels, ..accept(&format!("{tenant}/{session}"), conversation) };
                turn(backend, node, accept.clone(), 5).await;
                if tenant == "acme" { &mut tenants.acme } else { &mut tenants.other }.push(accept);
            }
        }
        assert!(backend.set_labels(name("a"), Labels::new().with("plan", "pro")).await.unwrap());
        let _quarantined = backend.quarantine(name("b"), "a reason".into()).await.unwrap();
        tenants
    }

    /// The conversations of `acme`.
    #[allow(dead_code, reason = "the tests on PostgreSQL do without")]
    pub(crate) fn conversations(&self) -> Vec<Uuid> {
        self.acme.iter().map(|accept| accept.conversation).collect()
    }

    /// The prompts of `acme`.
    #[allow(dead_code, reason = "the tests on PostgreSQL do without")]
    pub(crate) fn prompts(&self) -> Vec<PromptId> {
        self.acme.iter().map(|accept| accept.prompt).collect()
    }

    pub(crate) async fn acme(&self, backend: &dyn Backend) -> Kept {
        kept(backend, &self.acme, "acme").await
    }

    pub(crate) async fn other(&self, backend: &dyn Backend) -> Kept {
        kept(backend, &self.other, "other").await
    }
}

/// Everything about prompts, with their sessions and transcripts. Nothing, if nothing of them is there.
async fn kept(backend: &dyn Backend, of: &[Accept], tenant: &str) -> Kept {
    let mut kept = Vec::new();
    for accept in of {
        let record = backend.name_record(accept.name.clone()).await.unwrap();
        kept.extend(record.as_ref().map(|record| {
            let state = match &record.state {
                NameState::Quarantined { why, .. } => why.clone(),
                state => format!("{state:?}"),
            };
            format!("{} {} {} {state}", record.name, record.conversation, record.term)
        }));
        if record.is_some() {
            let again = Accept { prompt: PromptId::new(), ..accept.clone() };
            let known = backend.accept(again).await.unwrap();
            kept.push(match known {
                Accepted::Duplicate(known) => format!("key of {}", known.id),
                other => format!("{other:?}"),
            });
        }
        let prompts =
            backend.prompts(accept.name.clone(), PromptQuery::new().label("number", "1")).await.unwrap();
        kept.extend(prompts.prompts.iter().map(|entry| format!("second: {}", entry.record.id)));
        let days =
            backend.usage_of_name(accept.name.clone(), Timestamp(0), Timestamp(u64::MAX)).await.unwrap();
        kept.extend(days.iter().map(|day| format!("{:?}", day.usage)));
        let prompt = accept.prompt;
        kept.extend(backend.prompt_record(prompt).await.unwrap().map(|kept| format!("{kept:?}")));
        kept.extend(backend.content(prompt).await.unwrap().map(|kept| format!("{kept:?}")));
        kept.extend(backend.outcome(prompt).await.unwrap().map(|kept| format!("{kept:?}")));
        let messages = backend.messages(prompt, 0, 10).await.unwrap();
        kept.extend(messages.into_iter().map(|message| format!("{prompt} {}", message.json)));
        for key in keys(accept.conversation) {
            let entries = backend.entries(key.clone(), 0).await.unwrap();
            kept.extend(entries.into_iter().map(|entry| format!("{key} {} {}", entry.number, entry.json)));
        }
        let of = TranscriptsOf::project(accept.conversation.to_string());
        kept.extend(backend.transcripts(of, None, 10).await.unwrap().iter().map(|kept| kept.key.to_string()));
    }
    kept.extend(
        backend
            .names(NameQuery::new().tenant(Tenant::new(tenant).unwrap()))
            .await
            .unwrap()
            .names
            .iter()
            .map(|record| format!("{} of {tenant}", record.name)),
    );
    let of = Tenant::new(tenant).unwrap();
    let query = NameQuery::new().tenant(of.clone()).label("plan", "pro");
    let labelled = backend.names(query).await.unwrap().names;
    kept.extend(labelled.iter().map(|record| format!("{} has the label", record.name)));
    let hours = backend.usage(Some(of), Timestamp(0), Timestamp(u64::MAX), None).await.unwrap();
    kept.extend(hours.iter().map(|hour| format!("{hour:?}")));
    let spent = backend.tenant(Tenant::new(tenant).unwrap()).await.unwrap().spent;
    kept.extend((spent > 0).then(|| format!("{spent} spent")));
    Kept(kept)
}
