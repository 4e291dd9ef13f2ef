//! Questions that sessions ask people: each is decided once, by an answer or by its deadline.

mod parked;

use serde_json::Value;

use super::key::{Key, Table, last_id};
use super::txn::as_stored;
use super::{BATCH, Result, Step};
use crate::error::{BackendError, BackendErrorKind};
use crate::id::{AttemptId, Name, PromptId, QuestionId};
use crate::query::feed::FeedEvent;
use crate::record::{Decision, QuestionRecord};
use crate::request::{Answered, Ask, Change, Owned, Page, QuestionsOf};

impl Step<'_> {
    /// Keeps a question. `Done(None)`: the turn does not run any more.
    pub(crate) fn ask(&mut self, ask: Ask) -> Result<Owned<Option<QuestionRecord>>> {
        self.txn.want(&Key::of(Table::Questions).question(ask.question));
        self.txn.want(&Key::of(Table::Prompts).prompt(ask.prompt));
        self.want_feed(&ask.owner.name);
        let Some(name) = self.owned(&ask.owner)? else { return Ok(Owned::Fenced) };
        if let Some(known) = self.question(ask.question)? {
            let same = known.name == name.name && known.prompt == ask.prompt;
            if !same || known.body != as_stored(&ask.body)? {
                return Err(BackendError::id_reused("question", known.id));
            }
            return Ok(Owned::Done(Some(known)));
        }
        if name.turns().all(|turn| turn != ask.prompt) {
            return Ok(Owned::Done(None));
        }
        if self.txn.under(&Key::of(Table::QuestionsOfPrompt).prompt(ask.prompt), BATCH).len() == BATCH {
            let message = format!("the turn has {BATCH} open questions: ask again when some are decided");
            return Err(BackendError::new(BackendErrorKind::Invalid, message));
        }
        let prompt = self.prompt_record(ask.prompt)?;
        let mut prompt = prompt.ok_or_else(|| BackendError::missing("prompt", ask.prompt))?;
        // The end of the turn reads this record, so it finds the question.
        prompt.asked = prompt.asked.saturating_add(1);
        // A turn that the CLI has begun by itself has no prompt to go on with.
        let call = ask.call.filter(|_| name.running == Some(ask.prompt));
        if call.is_some() {
            prompt.calls.push(ask.question);
        }
        self.put_prompt(&prompt)?;
        let question = QuestionRecord {
            id: ask.question,
            name: name.name,
            prompt: ask.prompt,
            term: name.term,
            asked_at: self.now,
            deadline: self.now.after(ask.wait),
            call,
            parked: false,
            handed_to: None,
            body: ask.body,
            decision: None,
        };
        self.put_question(&question)?;
        let [of_prompt, of_tenant, deadline] = open_places(&question);
        self.txn.put(deadline.bytes(), of_tenant.rest());
        [of_prompt, of_tenant].iter().for_each(|place| self.txn.mark(place));
        self.told.changes.push(Change::Asked(question.prompt, question.id));
        self.happened(&question.name, FeedEvent::Asked { prompt: question.prompt, question: question.id })?;
        Ok(Owned::Done(Some(question)))
    }

    /// Decides a question, if it is open and its deadline has not passed.
    pub(crate) fn answer(&mut self, id: QuestionId, attempt: AttemptId, answer: Value) -> Result<Answered> {
        let Some(question) = self.question(id)? else { return Ok(Answered::Gone) };
        match &question.decision {
            Some(Decision::Answered { attempt: first, .. }) if *first == attempt => {
                return Ok(Answered::Decided(question));
            }
            Some(_) => return Ok(Answered::TooLate(question)),
            None => {}
        }
        if self.now >= question.deadline {
            return Ok(Answered::TooLate(self.decide(question, Decision::Expired { at: self.now })?));
        }
        let at = self.now;
        Ok(Answered::Decided(self.decide(question, Decision::Answered { answer, attempt, at })?))
    }

    /// Decides open questions whose deadline has passed. Answers with the questions.
    pub(crate) fn expire_questions(&mut self, limit: usize) -> Result<Vec<QuestionRecord>> {
        let mut expired = Vec::new();
        for (key, of_tenant) in self.passed(Table::Deadlines, limit) {
            match self.readable(self.question(QuestionId(last_id(&key)?)))? {
                Some(question) => expired.push(self.decide(question, Decision::Expired { at: self.now })?),
                None => {
                    self.txn.delete(&key);
                    self.txn.remove(&Key::of(Table::QuestionsOfTenant).followed_by(&of_tenant));
                }
            }
        }
        Ok(expired)
    }

    pub(crate) fn question(&self, id: QuestionId) -> Result<Option<QuestionRecord>> {
        self.txn.read(&Key::of(Table::Questions).question(id))
    }

    /// The questions of a turn: all open ones, then the first decided ones in the order of their ids.
    pub(crate) fn questions_of(&self, prompt: PromptId, decided: usize) -> Result<Vec<QuestionRecord>> {
        let mut questions = Vec::new();
        for (list, limit) in
            [(Table::QuestionsOfPrompt, BATCH), (Table::DecidedOfPrompt, decided.min(Page::MOST))]
        {
            for (key, _) in self.txn.under(&Key::of(list).prompt(prompt), limit) {
                questions.extend(self.readable(self.question(QuestionId(last_id(&key)?)))?);
            }
        }
        Ok(questions)
    }

    /// Open questions, the one with the nearest deadline first.
    pub(crate) fn open_questions(&self, of: QuestionsOf, limit: usize) -> Result<Vec<QuestionRecord>> {
        self.looking(|step| {
            let list = match of {
                QuestionsOf::All => Key::of(Table::Deadlines),
                QuestionsOf::Tenant(tenant) => Key::of(Table::QuestionsOfTenant).tenant(&tenant),
                QuestionsOf::Session(name) => return step.open_questions_of(&name, limit),
            };
            step.page(&list, None, limit, |step, key, _| {
                step.readable(step.question(QuestionId(last_id(key)?)))
            })
        })
    }

    /// Open questions of a name: those of the turns that run, or of the turn that is parked.
    fn open_questions_of(&self, name: &Name, limit: usize) -> Result<Vec<QuestionRecord>> {
        let mut open = Vec::new();
        for turn in self.name(name)?.iter().flat_map(|name| name.turns().chain(name.parked)) {
            for (key, _) in self.txn.under(&Key::of(Table::QuestionsOfPrompt).prompt(turn), BATCH) {
                open.extend(self.readable(self.question(QuestionId(last_id(&key)?)))?);
            }
        }
        open.sort_by_key(|question| (question.deadline, question.id));
        open.truncate(limit);
        Ok(open)
    }

    /// Removes the open questions of a turn that ended.
    pub(super) fn end_questions(&mut self, prompt: PromptId) -> Result<()> {
        self.end_questions_but(prompt, None)
    }

    /// Removes the open questions of a turn whose CLI has ended, but the one that the turn is parked for.
    pub(super) fn end_questions_but(&mut self, prompt: PromptId, kept: Option<QuestionId>) -> Result<()> {
        let prefix = Key::of(Table::QuestionsOfPrompt).prompt(prompt);
        for (key, _) in self.txn.under(&prefix, BATCH) {
            let id = QuestionId(last_id(&key)?);
            if Some(id) == kept {
                continue;
            }
            // A question that cannot be read keeps no turn from its end.
            if let Some(question) = self.readable(self.question(id))? {
                open_places(&question).iter().for_each(|place| self.txn.remove(place));
                self.decided(&question)?;
            }
            self.txn.remove(&Key::of(Table::Questions).question(id));
            self.txn.remove(&Key::of(Table::QuestionsOfPrompt).prompt(prompt).question(id));
            self.told.changes.push(Change::Decided(prompt, id));
        }
        Ok(())
    }

    /// Removes the first `limit` decided questions of a turn. Answers with their number. `None`: there may be more.
    pub(super) fn forget_questions(&mut self, prompt: PromptId, limit: usize) -> Result<Option<usize>> {
        let prefix = Key::of(Table::DecidedOfPrompt).prompt(prompt);
        for (key, _) in self.txn.under(&prefix, limit) {
            self.txn.remove(&Key::of(Table::Questions).question(QuestionId(last_id(&key)?)));
        }
        self.txn.remove_under(&prefix, limit)
    }

    fn decide(&mut self, mut question: QuestionRecord, decision: Decision) -> Result<QuestionRecord> {
        let is_taken_back = matches!(decision, Decision::Answered { answer: Value::Null, .. });
        question.decision = Some(decision);
        if std::mem::take(&mut question.parked) {
            self.unpark(&question)?;
        } else if is_taken_back && question.call.is_some() {
            self.forget_call(question.prompt, question.id)?;
        }
        self.put_question(&question)?;
        open_places(&question).iter().for_each(|place| self.txn.remove(place));
        self.txn.mark(&Key::of(Table::DecidedOfPrompt).prompt(question.prompt).question(question.id));
        self.told.changes.push(Change::Decided(question.prompt, question.id));
        self.decided(&question)?;
        Ok(question)
    }

    fn decided(&mut self, question: &QuestionRecord) -> Result<()> {
        self.happened(&question.name, FeedEvent::Decided { prompt: question.prompt, question: question.id })
    }

    pub(super) fn put_question(&mut self, question: &QuestionRecord) -> Result<()> {
        self.txn.write(&Key::of(Table::Questions).question(question.id), question)
    }
}

/// The places of an open question in the list of its turn, in that of its tenant, and in that of deadlines.
fn open_places(question: &QuestionRecord) -> [Key; 3] {
    let of_tenant = Key::of(Table::QuestionsOfTenant).tenant(question.name.tenant());
    [
        Key::of(Table::QuestionsOfPrompt).prompt(question.prompt).question(question.id),
        of_tenant.time(question.deadline).question(question.id),
        Key::of(Table::Deadlines).time(question.deadline).question(question.id),
    ]
}
