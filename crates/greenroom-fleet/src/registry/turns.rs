//! Turns that run: begin, messages, finish.

use serde_json::Value;
use uuid::Uuid;

use super::account::quota::signed;
use super::key::{Key, Table};
use super::messages::of_prompt;
use super::prompts::{expiry_key, kept_bytes};
use super::txn::as_stored;
use super::{BATCH, Result, Step};
use crate::error::BackendError;
use crate::id::PromptId;
use crate::query::feed::FeedEvent;
use crate::record::{
    PromptContent, PromptOrigin, PromptOutcome, PromptRecord, PromptState, Quarantine, QuarantineKind,
};
use crate::request::{Append, Begin, Change, Finish, Owned};

impl Step<'_> {
    pub(crate) fn begin(&mut self, begin: Begin) -> Result<Owned<Option<Value>>> {
        self.txn.want(&Key::of(Table::Prompts).prompt(begin.prompt));
        self.txn.want(&Key::of(Table::Contents).prompt(begin.prompt));
        self.want_place(&begin.owner.name, 1);
        self.want_quota(begin.owner.name.tenant());
        self.want_hold(begin.credential.as_ref().map(|used| &used.credential));
        self.want_feed(&begin.owner.name);
        let Some(mut name) = self.owned(&begin.owner)? else { return Ok(Owned::Fenced) };
        let Some(mut prompt) = self.prompt_record(begin.prompt)?.filter(|prompt| prompt.name == name.name)
        else {
            return Ok(Owned::Done(None));
        };
        match prompt.state {
            PromptState::Queued => {}
            PromptState::Begun { term, attempt, .. } if term == name.term && attempt == begin.attempt => {
                return Ok(Owned::Done(Some(self.to_send(&prompt)?)));
            }
            _ => return Ok(Owned::Done(None)),
        }
        // A continuation waits for nothing: its prompt was due, and began in time.
        if prompt.begins == 0 && self.now >= prompt.expires_at {
            let expiry = expiry_key(&prompt);
            if self.wait_out(&mut prompt, begin.credential.map(|used| used.credential))? {
                self.txn.remove(&expiry);
            } else {
                self.expire(prompt)?;
            }
            return Ok(Owned::Done(None));
        }
        let is_first = name.continues.is_none_or(|first| first == prompt.id);
        if !prompt.is_due(self.now) || !is_first || !name.is_between_turns() {
            return Ok(Owned::Done(None));
        }
        if self.is_held(&begin)? {
            return Ok(Owned::Done(None));
        }
        let quota = self.quota_of(prompt.name.tenant(), &begin.quota)?;
        if let Some(budget) = quota.budget
            && !self.reserve(&mut prompt, budget)?
        {
            return Ok(Owned::Done(None));
        }
        self.begin_try(&begin)?;
        self.dequeue(&mut name, &prompt);
        prompt.begins += 1;
        prompt.state = PromptState::Begun { term: name.term, attempt: begin.attempt, at: self.now };
        (name.running, name.last_failure, name.held_by) = (Some(prompt.id), None, None);
        self.put_prompt(&prompt)?;
        self.put_name(&mut name)?;
        self.happened(&prompt.name, FeedEvent::Begun { prompt: prompt.id })?;
        Ok(Owned::Done(Some(self.to_send(&prompt)?)))
    }

    /// Writes down a turn that the session's CLI has begun by itself. `false`: the tenant has no money for it.
    pub(crate) fn begin_cli_turn(&mut self, begin: Begin) -> Result<Owned<bool>> {
        self.txn.want(&Key::of(Table::Prompts).prompt(begin.prompt));
        self.want_place(&begin.owner.name, 0);
        self.want_quota(begin.owner.name.tenant());
        self.want_feed(&begin.owner.name);
        let Some(mut name) = self.owned(&begin.owner)? else { return Ok(Owned::Fenced) };
        let quota = self.quota_of(name.name.tenant(), &begin.quota)?;
        if let Some(known) = self.prompt_record(begin.prompt)? {
            let same = known.name == name.name && known.origin == PromptOrigin::Cli;
            return match same {
                true => Ok(Owned::Done(quota.budget.is_none_or(|budget| known.reserved == budget.reserve))),
                false => Err(BackendError::id_reused("prompt", known.id)),
            };
        }
        // The owner has lost sight of an earlier one: its step has failed.
        self.give_up_cli_turn(&mut name)?;
        let mut prompt = PromptRecord {
            id: begin.prompt,
            name: name.name.clone(),
            key: None,
            labels: Default::default(),
            accepted_at: self.now,
            due_at: self.now,
            expires_at: self.now,
            origin: PromptOrigin::Cli,
            order: name.next_order(self.now),
            state: PromptState::Begun { term: name.term, attempt: begin.attempt, at: self.now },
            begins: 1,
            continuations: 0,
            reserved: 0,
            bytes: 0,
            digest: Uuid::nil(),
            last_seq: 0,
            kept_bytes: 0,
            dropped: 0,
            asked: 0,
            calls: Vec::new(),
            parked_by: None,
            waited: Default::default(),
            usage: Default::default(),
        };
        let funded = quota.budget.map_or(Ok(true), |budget| self.reserve(&mut prompt, budget))?;
        self.add_to(Table::KeptBytes, prompt.name.tenant(), signed(kept_bytes(&prompt)));
        self.list_prompt(&prompt)?;
        self.put_prompt(&prompt)?;
        name.cli_turn = Some(prompt.id);
        self.put_name(&mut name)?;
        self.happened(&prompt.name, FeedEvent::BegunByCli { prompt: prompt.id })?;
        Ok(Owned::Done(funded))
    }

    /// Keeps messages of a running turn.
    pub(crate) fn append(&mut self, append: Append) -> Result<Owned<Option<u64>>> {
        self.txn.want(&Key::of(Table::Prompts).prompt(append.prompt));
        let Some(name) = self.owned(&append.owner)? else { return Ok(Owned::Fenced) };
        let running =
            self.prompt_record(append.prompt)?.filter(|prompt| name.turns().any(|turn| turn == prompt.id));
        let Some(mut prompt) = running.filter(|prompt| append.first_seq <= prompt.last_seq + 1) else {
            return Ok(Owned::Done(None));
        };
        let (known, kept_before) = (prompt.last_seq, prompt.kept_bytes);
        let mut kept = Vec::new();
        let numbered = (append.first_seq..=u64::MAX).zip(&append.messages);
        for (seq, json) in numbered.skip_while(|(seq, _)| *seq <= known) {
            prompt.last_seq = seq;
            let bytes = prompt.kept_bytes.saturating_add(json.len() as u64);
            // A gap stays a gap: a short message after it would look like the next one.
            if prompt.dropped > 0 || bytes > append.bound {
                prompt.dropped += 1;
                continue;
            }
            prompt.kept_bytes = bytes;
            kept.push(json.as_str());
        }
        self.keep_texts(&of_prompt(prompt.id), known + 1, &kept);
        if prompt.last_seq > known {
            self.put_prompt(&prompt)?;
            let bytes = signed(prompt.kept_bytes - kept_before);
            self.add_to(Table::KeptBytes, prompt.name.tenant(), bytes);
            self.told.changes.push(Change::Messages(prompt.id));
        }
        Ok(Owned::Done(Some(prompt.last_seq)))
    }

    pub(crate) fn finish(&mut self, finish: Finish) -> Result<Owned<bool>> {
        self.txn.want(&Key::of(Table::Prompts).prompt(finish.prompt));
        self.want_place(&finish.owner.name, 0);
        self.want_usage(&finish.owner.name);
        self.want_feed(&finish.owner.name);
        self.txn.want_under(&Key::of(Table::QuestionsOfPrompt).prompt(finish.prompt), BATCH);
        // An owner that lost its name since may have finished before.
        let Some(mut name) = self.owned(&finish.owner)? else {
            let before = self.finished_before(&finish)?;
            return Ok(if before { Owned::Done(true) } else { Owned::Fenced });
        };
        let by_this = |state: &PromptState| matches!(state, PromptState::Begun { term, attempt, .. } if *term == name.term && *attempt == finish.attempt);
        let Some(mut prompt) = self.prompt_record(finish.prompt)?.filter(|prompt| by_this(&prompt.state))
        else {
            return Ok(Owned::Done(self.finished_before(&finish)?));
        };
        name.running = name.running.filter(|running| *running != prompt.id);
        name.cli_turn = name.cli_turn.filter(|running| *running != prompt.id);
        if matches!(finish.outcome, PromptOutcome::Completed { .. }) {
            (name.failures, name.losses) = (Vec::new(), 0);
        }
        if let Some(why) = &finish.quarantine {
            name.quarantine = Some(Quarantine { kind: QuarantineKind::Transcript, why: why.clone() });
        }
        self.put_name(&mut name)?;
        self.settle(&mut prompt, finish.cost)?;
        self.meter(&mut prompt, finish.usage)?;
        self.end(&mut prompt, Some(finish.attempt), &finish.outcome)?;
        Ok(Owned::Done(true))
    }

    /// The outcome of a prompt, once it has ended.
    pub(crate) fn outcome(&self, prompt: PromptId) -> Result<Option<PromptOutcome>> {
        self.txn.read(&Key::of(Table::Outcomes).prompt(prompt))
    }

    /// The content of a prompt.
    pub(crate) fn content(&self, prompt: PromptId) -> Result<Option<PromptContent>> {
        self.txn.read(&Key::of(Table::Contents).prompt(prompt))
    }

    /// True for a repeated finish: this attempt has given the prompt this outcome.
    fn finished_before(&self, finish: &Finish) -> Result<bool> {
        let Some(prompt) = self.prompt_record(finish.prompt)? else { return Ok(false) };
        let ended =
            matches!(prompt.state, PromptState::Ended { attempt, .. } if attempt == Some(finish.attempt));
        Ok(ended && self.outcome(finish.prompt)? == Some(as_stored(&finish.outcome)?))
    }

    /// The prompt, or its continuation if a lost owner had begun it. `null`: the turn goes on with its tool call, and nothing is sent.
    fn to_send(&self, prompt: &PromptRecord) -> Result<Value> {
        if prompt.goes_on_with_call() {
            return Ok(Value::Null);
        }
        // It never changes, and may be long.
        let content = self.looking(|step| step.content(prompt.id))?;
        let to_send = content.and_then(|content| match prompt.begins {
            0 | 1 => Some(content.prompt),
            _ => content.continuation,
        });
        to_send.ok_or_else(|| BackendError::missing("content of prompt", prompt.id))
    }
}
