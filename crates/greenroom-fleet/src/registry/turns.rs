//! Turns that run: begin, messages, finish.

use serde_json::Value;

use super::key::{Key, Table};
use super::messages::of_prompt;
use super::txn::as_stored;
use super::{BATCH, Result, Step};
use crate::error::BackendError;
use crate::id::PromptId;
use crate::record::{PromptContent, PromptOutcome, PromptRecord, PromptState, Unsent};
use crate::request::{Append, Begin, Begun, Change, Finish, Owned};

pub(super) const EXPIRED: PromptOutcome = PromptOutcome::Unsent { why: Unsent::Expired };

impl Step<'_> {
    pub(crate) fn begin(&mut self, begin: Begin) -> Result<Owned<Begun>> {
        self.want_prompt(begin.prompt);
        self.txn.want(&Key::of(Table::Contents).prompt(begin.prompt));
        self.want_place(&begin.owner.name, 1)?;
        let Some(mut name) = self.owned(&begin.owner)? else { return Ok(Owned::Fenced) };
        let Some(mut prompt) = self.prompt(begin.prompt)?.filter(|prompt| prompt.name == name.name) else {
            return Ok(Owned::Done(Begun::Gone));
        };
        match prompt.state {
            PromptState::Queued => {}
            PromptState::Begun { term, attempt, .. } if term == name.term && attempt == begin.attempt => {
                return Ok(Owned::Done(Begun::Send(self.to_send(&prompt)?)));
            }
            _ if self.outcome(prompt.id)? == Some(EXPIRED) => return Ok(Owned::Done(Begun::Expired)),
            _ => return Ok(Owned::Done(Begun::NotQueued(prompt))),
        }
        // A continuation waits for nothing: its prompt was due, and began in time.
        if prompt.begins == 0 {
            if self.now >= prompt.expires_at {
                self.end_waiting(prompt, &EXPIRED)?;
                return Ok(Owned::Done(Begun::Expired));
            }
            if !prompt.is_due(self.now) {
                return Ok(Owned::Done(Begun::NotDue(prompt.due_at)));
            }
        }
        if let Some(first) = name.continues.filter(|first| *first != prompt.id) {
            return Ok(Owned::Done(Begun::NotItsTurn(first)));
        }
        if let Some(running) = name.running {
            return Ok(Owned::Done(Begun::Busy(running)));
        }
        if let Some(reserve) = begin.reserve
            && let Some(left) = self.reserve(&mut prompt, reserve)?
        {
            return Ok(Owned::Done(Begun::OverBudget { left }));
        }
        self.dequeue(&mut name, &prompt)?;
        prompt.begins += 1;
        prompt.state = PromptState::Begun { term: name.term, attempt: begin.attempt, at: self.now };
        name.running = Some(prompt.id);
        self.put_prompt(&prompt)?;
        self.put_name(&mut name)?;
        Ok(Owned::Done(Begun::Send(self.to_send(&prompt)?)))
    }

    /// Keeps messages of a running turn.
    pub(crate) fn append(&mut self, append: Append) -> Result<Owned<Option<u64>>> {
        self.want_prompt(append.prompt);
        let Some(name) = self.owned(&append.owner)? else { return Ok(Owned::Fenced) };
        let running = self.prompt(append.prompt)?.filter(|prompt| name.running == Some(prompt.id));
        let Some(mut prompt) = running.filter(|prompt| append.first_seq <= prompt.last_seq + 1) else {
            return Ok(Owned::Done(None));
        };
        let known = prompt.last_seq;
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
        self.keep_texts(&of_prompt(prompt.id), known + 1, &kept)?;
        if prompt.last_seq > known {
            self.put_prompt(&prompt)?;
            self.told.changes.push(Change::Messages(prompt.id));
        }
        Ok(Owned::Done(Some(prompt.last_seq)))
    }

    pub(crate) fn finish(&mut self, finish: Finish) -> Result<Owned<bool>> {
        self.want_prompt(finish.prompt);
        self.want_place(&finish.owner.name, 0)?;
        self.txn.want_under(&Key::of(Table::QuestionsOfPrompt).prompt(finish.prompt), BATCH)?;
        // An owner that lost its name since may have finished before.
        let Some(mut name) = self.owned(&finish.owner)? else {
            let before = self.finished_before(&finish)?;
            return Ok(if before { Owned::Done(true) } else { Owned::Fenced });
        };
        let by_this = |state: &PromptState| matches!(state, PromptState::Begun { term, attempt, .. } if *term == name.term && *attempt == finish.attempt);
        let Some(mut prompt) = self.prompt(finish.prompt)?.filter(|prompt| by_this(&prompt.state)) else {
            return Ok(Owned::Done(self.finished_before(&finish)?));
        };
        name.running = None;
        if matches!(finish.outcome, PromptOutcome::Completed { .. }) {
            (name.failures, name.losses) = (Vec::new(), 0);
        }
        if finish.quarantine.is_some() {
            name.quarantine.clone_from(&finish.quarantine);
        }
        self.put_name(&mut name)?;
        self.settle(&mut prompt, finish.cost)?;
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
        let Some(prompt) = self.prompt(finish.prompt)? else { return Ok(false) };
        let ended =
            matches!(prompt.state, PromptState::Ended { attempt, .. } if attempt == Some(finish.attempt));
        Ok(ended && self.outcome(finish.prompt)? == Some(as_stored(&finish.outcome)?))
    }

    /// The prompt, or its continuation if a lost owner had begun it.
    fn to_send(&self, prompt: &PromptRecord) -> Result<Value> {
        // It never changes, and may be long.
        self.txn.only_look(true);
        let content = self.content(prompt.id)?;
        self.txn.only_look(false);
        let content = content.ok_or_else(|| BackendError::missing("content of prompt", prompt.id))?;
        match prompt.begins {
            0 | 1 => Ok(content.prompt),
            _ => {
                content.continuation.ok_or_else(|| BackendError::missing("continuation of prompt", prompt.id))
            }
        }
    }
}
