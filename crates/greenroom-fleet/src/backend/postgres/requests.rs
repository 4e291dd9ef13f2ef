//! The requests of a backend, as calls of the functions in the schema.

use std::time::Duration;

use serde_json::{Value, json};

use super::PostgresBackend;
use super::answers::{
    list, open, optional, owned, ownership, process, question, record, refused, reserve, text, unknown,
    variant,
};
use super::text::{kept, millis, number, time};
use crate::id::{AttemptId, Name, NodeId, PromptId, QuestionId, Term, Timestamp};
use crate::record::{
    NameRecord, NodeRecord, ProcessRecord, PromptContent, PromptOutcome, PromptRecord, QuestionRecord,
    TenantRecord,
};
use crate::registry::Result;
use crate::request::{
    Accept, Accepted, ActivationFailed, AfterFailure, Answered, Append, Appended, Ask, Begin, Begun, Claim,
    Claimed, Deletion, Finish, Finished, Join, Owned, Ownership, Page, Quarantined, Renewed, StoredMessage,
    WaitingCursor, WaitingNames, WaitingPage,
};

impl PostgresBackend {
    pub(in crate::backend) async fn join(&self, join: Join) -> Result<NodeRecord> {
        let request = json!({ "node": join.node, "host": join.host, "lease": millis(join.lease), "capacity": join.capacity });
        record(self.control("join", request).await?)
    }

    pub(in crate::backend) async fn renew(
        &self,
        node: NodeId,
        lease: Duration,
        draining: bool,
    ) -> Result<Renewed> {
        let request = json!({ "node": node, "lease": millis(lease), "draining": draining });
        match variant(self.lease(request).await?)? {
            (word, node) if word == "kept" => Ok(Renewed::Kept(record(node)?)),
            _ => Ok(Renewed::Dead),
        }
    }

    pub(in crate::backend) async fn leave(&self, node: NodeId) -> Result<()> {
        self.control("leave", json!({ "node": node })).await.map(drop)
    }

    pub(in crate::backend) async fn declare_dead(&self, node: NodeId, renewals: u64) -> Result<bool> {
        record(self.control("declare_dead", json!({ "node": node, "renewals": number(renewals) })).await?)
    }

    pub(in crate::backend) async fn nodes(
        &self,
        after: Option<NodeId>,
        limit: usize,
    ) -> Result<Vec<NodeRecord>> {
        record(self.control("nodes", json!({ "after": after, "limit": number(limit as u64) })).await?)
    }

    pub(in crate::backend) async fn owned_names(
        &self,
        node: NodeId,
        page: Page,
    ) -> Result<Vec<(Name, Term, AttemptId)>> {
        let request = json!({ "node": node, "after": page.after, "limit": number(page.limit as u64) });
        record(self.call("owned_names", request).await?)
    }

    pub(in crate::backend) async fn accept(&self, accept: Accept) -> Result<Accepted> {
        // A continuation of null is none: it would be read as none.
        let continuation = accept.content.continuation.as_ref().filter(|prompt| !prompt.is_null());
        let bounds = accept.bounds;
        let request = json!({
            "prompt": accept.prompt, "name": accept.name, "profile": accept.profile, "tenant": accept.tenant,
            "conversation": accept.conversation, "host": accept.host, "key": accept.key,
            "content": {
                "prompt": kept(&accept.content.prompt)?,
                "continuation": continuation.map(kept).transpose()?,
            },
            "continuations": accept.continuations,
            "not_before": accept.not_before.map(time), "wait": millis(accept.wait),
            "bounds": { "name": bounds.name, "tenant": bounds.tenant, "fleet": bounds.fleet },
            "budget": reserve(accept.budget),
        });
        let (word, value) = variant(self.call("accept", request).await?)?;
        match word.as_str() {
            "new" => Ok(Accepted::New(record(value)?)),
            "duplicate" => Ok(Accepted::Duplicate(record(value)?)),
            "refused" => Ok(Accepted::Refused(refused(value, bounds)?)),
            _ => unknown(value),
        }
    }

    pub(in crate::backend) async fn claim(&self, claim: Claim) -> Result<Claimed> {
        let request = json!({ "name": claim.name, "node": claim.node, "attempt": claim.attempt, "losses": claim.losses });
        let (word, mut value) = variant(self.call("claim", request).await?)?;
        Ok(match word.as_str() {
            "won" => Claimed::Won {
                record: record(value["record"].take())?,
                continues: record(value["continues"].take())?,
            },
            "elsewhere" => Claimed::Elsewhere(record(value)?),
            "other_host" => Claimed::OtherHost(record(value)?),
            "quarantined" => Claimed::Quarantined(record(value)?),
            "gone" => Claimed::Gone,
            "node_down" => Claimed::NodeDown,
            _ => return unknown(value),
        })
    }

    pub(in crate::backend) async fn begin(&self, begin: Begin) -> Result<Owned<Begun>> {
        let request = json!({
            "owner": ownership(&begin.owner), "prompt": begin.prompt, "attempt": begin.attempt,
            "reserve": reserve(begin.reserve),
        });
        owned(self.call("begin", request).await?, |answer| {
            let (word, value) = variant(answer)?;
            Ok(match word.as_str() {
                "send" => Begun::Send(text(value)?),
                "not_queued" => Begun::NotQueued(record(value)?),
                "expired" => Begun::Expired,
                "not_due" => Begun::NotDue(record(value)?),
                "not_its_turn" => Begun::NotItsTurn(record(value)?),
                "busy" => Begun::Busy(record(value)?),
                "over_budget" => Begun::OverBudget { left: record(value)? },
                "gone" => Begun::Gone,
                _ => return unknown(value),
            })
        })
    }

    pub(in crate::backend) async fn append(&self, append: Append) -> Result<Owned<Appended>> {
        let request = json!({
            "owner": ownership(&append.owner), "prompt": append.prompt, "first_seq": number(append.first_seq),
            "messages": append.messages, "bound": append.bound,
        });
        owned(self.call("append", request).await?, |answer| {
            let (word, value) = variant(answer)?;
            Ok(match word.as_str() {
                "last" => Appended::Last(record(value)?),
                "gap" => Appended::Gap(record(value)?),
                "not_running" => Appended::NotRunning,
                _ => return unknown(value),
            })
        })
    }

    pub(in crate::backend) async fn finish(&self, finish: Finish) -> Result<Owned<Finished>> {
        let request = json!({
            "owner": ownership(&finish.owner), "prompt": finish.prompt, "attempt": finish.attempt,
            "outcome": kept(&finish.outcome)?, "word": finish.outcome.word(), "cost": finish.cost, "quarantine": finish.quarantine,
        });
        owned(self.call("finish", request).await?, |answer| {
            let (word, value) = variant(answer)?;
            Ok(match word.as_str() {
                "ended" => Finished::Ended,
                "not_begun" => Finished::NotBegun(record(value)?),
                "gone" => Finished::Gone,
                _ => return unknown(value),
            })
        })
    }

    pub(in crate::backend) async fn release(&self, owner: Ownership) -> Result<Owned<bool>> {
        owned(self.call("release", ownership(&owner)).await?, record)
    }

    pub(in crate::backend) async fn activation_failed(
        &self,
        failed: ActivationFailed,
    ) -> Result<Owned<AfterFailure>> {
        let request = json!({
            "owner": ownership(&failed.owner), "why": failed.why, "period": millis(failed.period),
            "period_in_words": format!("{:?}", failed.period), "intensity": failed.intensity,
        });
        owned(self.call("activation_failed", request).await?, |answer| match variant(answer)? {
            (word, count) if word == "free" => Ok(AfterFailure::Free(record(count)?)),
            _ => Ok(AfterFailure::Quarantined),
        })
    }

    pub(in crate::backend) async fn record_process(
        &self,
        owner: Ownership,
        process: Option<Value>,
    ) -> Result<Owned<()>> {
        let process = process.as_ref().map(kept).transpose()?;
        let request = json!({ "owner": ownership(&owner), "process": process });
        owned(self.call("record_process", request).await?, |_| Ok(()))
    }

    pub(in crate::backend) async fn left_processes(&self, limit: usize) -> Result<Vec<ProcessRecord>> {
        list(self.call("left_processes", json!({ "limit": number(limit as u64) })).await?, process)
    }

    pub(in crate::backend) async fn process_ended(&self, name: Name, term: Term) -> Result<bool> {
        record(self.call("process_ended", json!({ "name": name, "term": term })).await?)
    }

    pub(in crate::backend) async fn recover(&self, limit: usize, losses: u32) -> Result<Vec<Name>> {
        record(self.call("recover", json!({ "limit": number(limit as u64), "losses": losses })).await?)
    }

    pub(in crate::backend) async fn quarantine(&self, name: Name, why: String) -> Result<Quarantined> {
        match variant(self.call("quarantine", json!({ "name": name, "why": why })).await?)? {
            (word, _) if word == "done" => Ok(Quarantined::Done),
            (word, node) if word == "owned" => Ok(Quarantined::Owned(record(node)?)),
            _ => Ok(Quarantined::Gone),
        }
    }

    pub(in crate::backend) async fn unquarantine(&self, name: Name) -> Result<bool> {
        record(self.call("unquarantine", json!({ "name": name })).await?)
    }

    pub(in crate::backend) async fn delete(&self, name: Name) -> Result<Deletion> {
        match variant(self.call("delete", json!({ "name": name })).await?)? {
            (word, name) if word == "marked" => Ok(Deletion::Marked(record(name)?)),
            (word, node) if word == "owned" => Ok(Deletion::Owned(record(node)?)),
            _ => Ok(Deletion::Gone),
        }
    }

    pub(in crate::backend) async fn deleted(&self, name: Name) -> Result<bool> {
        record(self.call("deleted", json!({ "name": name })).await?)
    }

    pub(in crate::backend) async fn deleting(&self, limit: usize) -> Result<Vec<Name>> {
        record(self.call("deleting", json!({ "limit": number(limit as u64) })).await?)
    }

    pub(in crate::backend) async fn ask(&self, ask: Ask) -> Result<Owned<Option<QuestionRecord>>> {
        let request = json!({
            "owner": ownership(&ask.owner), "question": ask.question, "prompt": ask.prompt, "wait": millis(ask.wait),
            "body": kept(&ask.body)?,
        });
        owned(self.call("ask", request).await?, |answer| optional(answer, question))
    }

    pub(in crate::backend) async fn answer(
        &self,
        id: QuestionId,
        attempt: AttemptId,
        answer: Value,
    ) -> Result<Answered> {
        let request = json!({ "question": id, "attempt": attempt, "answer": kept(&answer)? });
        match variant(self.call("answer", request).await?)? {
            (word, value) if word == "decided" => Ok(Answered::Decided(question(value)?)),
            (word, value) if word == "too_late" => Ok(Answered::TooLate(question(value)?)),
            _ => Ok(Answered::Gone),
        }
    }

    pub(in crate::backend) async fn question(&self, id: QuestionId) -> Result<Option<QuestionRecord>> {
        optional(self.call("question", json!({ "question": id })).await?, question)
    }

    pub(in crate::backend) async fn open_questions(&self, limit: usize) -> Result<Vec<QuestionRecord>> {
        list(self.call("open_questions", json!({ "limit": number(limit as u64) })).await?, question)
    }

    pub(in crate::backend) async fn expire_questions(&self, limit: usize) -> Result<Vec<QuestionRecord>> {
        list(self.call("expire_questions", json!({ "limit": number(limit as u64) })).await?, question)
    }

    pub(in crate::backend) async fn expire_prompts(&self, limit: usize) -> Result<usize> {
        record(self.call("expire_prompts", json!({ "limit": number(limit as u64) })).await?)
    }

    pub(in crate::backend) async fn forget(&self, before: Timestamp, limit: usize) -> Result<usize> {
        record(self.call("forget", json!({ "before": time(before), "limit": number(limit as u64) })).await?)
    }

    pub(in crate::backend) async fn next_expiry(&self) -> Result<Option<Timestamp>> {
        record(self.call("next_expiry", json!({})).await?)
    }

    pub(in crate::backend) async fn name_record(&self, name: Name) -> Result<Option<NameRecord>> {
        record(self.call("name_record", json!({ "name": name })).await?)
    }

    pub(in crate::backend) async fn names(&self, page: Page) -> Result<Vec<NameRecord>> {
        record(self.call("names", json!({ "after": page.after, "limit": number(page.limit as u64) })).await?)
    }

    pub(in crate::backend) async fn prompt_record(&self, prompt: PromptId) -> Result<Option<PromptRecord>> {
        record(self.call("prompt_record", json!({ "prompt": prompt })).await?)
    }

    pub(in crate::backend) async fn content(&self, prompt: PromptId) -> Result<Option<PromptContent>> {
        optional(self.call("content", json!({ "prompt": prompt })).await?, |mut content| {
            open(&mut content["prompt"])?;
            open(&mut content["continuation"])?;
            record(content)
        })
    }

    pub(in crate::backend) async fn outcome(&self, prompt: PromptId) -> Result<Option<PromptOutcome>> {
        optional(self.call("outcome", json!({ "prompt": prompt })).await?, text)
    }

    pub(in crate::backend) async fn messages(
        &self,
        prompt: PromptId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<StoredMessage>> {
        let request = json!({ "prompt": prompt, "after": number(after), "limit": number(limit as u64) });
        list(self.call("messages", request).await?, |item| {
            let (seq, json) = record(item)?;
            Ok(StoredMessage { seq, json })
        })
    }

    pub(in crate::backend) async fn queue(&self, name: Name, limit: usize) -> Result<Vec<PromptRecord>> {
        record(self.call("queue", json!({ "name": name, "limit": number(limit as u64) })).await?)
    }

    pub(in crate::backend) async fn waiting(&self, page: WaitingPage) -> Result<WaitingNames> {
        let after = page.after.map(|after| json!({ "tenant": after.tenant, "order": number(after.order) }));
        let request = json!({
            "node": page.node, "of": page.of, "without": page.without, "profiles": page.profiles,
            "after": after, "limit": number(page.limit as u64),
        });
        let mut answer = self.call("waiting", request).await?;
        let next = optional(answer["next"].take(), |mut next| {
            let order: u64 = record(next["order"].take())?;
            // The greatest `bigint` stands for the end of the tenant.
            let order = if order == number(u64::MAX) { u64::MAX } else { order };
            Ok(WaitingCursor { tenant: record(next["tenant"].take())?, order, name: None })
        })?;
        let other_profile = record(answer["other_profile"].take())?;
        Ok(WaitingNames { prompts: record(answer["prompts"].take())?, other_profile, next })
    }

    pub(in crate::backend) async fn next_due(&self, after: Timestamp) -> Result<Option<Timestamp>> {
        record(self.call("next_due", json!({ "after": time(after) })).await?)
    }

    pub(in crate::backend) async fn queued(&self) -> Result<u32> {
        record(self.call("queued", json!({})).await?)
    }

    pub(in crate::backend) async fn tenant(&self, tenant: String) -> Result<TenantRecord> {
        record(self.call("tenant", json!({ "tenant": tenant })).await?)
    }
}
