//! Turns that are parked: a person decides on one of their tool calls, and no CLI waits for the decision.
//!
//! ```text
//!  Begun ── park, or its owner is lost ──► Parked ── answer, deadline ──► Queued, before all others of the name ── begin ──► Begun
//!    │                                       └─ withdraw, delete ──► Ended                                                   │
//!    │ the question is decided already                                                                                       │
//!    └───────────────────────────────────────────────────────────────► Queued                                                │
//!                                                        the decision is handed to the CLI: the turn runs like any other ◄───┘
//! ```
//!
//! A prompt has the ids of the questions whose decisions no CLI has got (`calls`). The call of such a question has not run: an owner notes
//! the hand-over before its CLI reads the decision. So the turn of a lost owner goes on with the call if it has exactly one of them, and
//! otherwise as if it had none.
//!
//! An answer to a question that is not parked reads the row of the question alone. Parking writes that row, so an answer and a park at the
//! same moment are in conflict, and the later one finds what the earlier one has done.

use crate::id::{AttemptId, PromptId, QuestionId};
use crate::query::feed::FeedEvent;
use crate::record::{NameRecord, PromptRecord, PromptState, QuestionRecord};
use crate::registry::key::{Key, Table};
use crate::registry::{Result, Step};
use crate::request::{Change, Owned, Ownership, Park};

impl Step<'_> {
    /// Parks a turn whose CLI has ended. `Done(false)`: it does not run by this attempt, or has not exactly one call that it can go on with.
    pub(crate) fn park(&mut self, park: Park) -> Result<Owned<bool>> {
        self.txn.want(&Key::of(Table::Prompts).prompt(park.prompt));
        self.want_place(&park.owner.name, 0);
        self.want_usage(&park.owner.name);
        self.want_feed(&park.owner.name);
        let Some(mut name) = self.owned(&park.owner)? else { return Ok(Owned::Fenced) };
        let Some(mut prompt) = self.prompt_record(park.prompt)?.filter(|prompt| prompt.name == name.name)
        else {
            return Ok(Owned::Done(false));
        };
        let by_this = matches!(prompt.state, PromptState::Begun { term, attempt, .. } if term == name.term && attempt == park.attempt);
        if !by_this {
            return Ok(Owned::Done(prompt.parked_by == Some(park.attempt)));
        }
        // Before the money: a refused request writes nothing.
        let Some(call) = self.call_of(&prompt)? else { return Ok(Owned::Done(false)) };
        name.running = None;
        self.settle(&mut prompt, park.cost)?;
        self.meter(&mut prompt, park.usage)?;
        self.park_with(&mut name, &mut prompt, park.attempt, call)?;
        self.put_name(&mut name)?;
        Ok(Owned::Done(true))
    }

    /// Parks a turn that runs no more, if it has a call that it can go on with. The caller writes the record of the name. `false`: it has not.
    pub(in crate::registry) fn park_now(
        &mut self,
        name: &mut NameRecord,
        prompt: &mut PromptRecord,
        attempt: AttemptId,
    ) -> Result<bool> {
        let Some(call) = self.call_of(prompt)? else { return Ok(false) };
        self.park_with(name, prompt, attempt, call)?;
        Ok(true)
    }

    /// The question about the only call of a turn that no CLI has got a decision for.
    fn call_of(&self, prompt: &PromptRecord) -> Result<Option<QuestionRecord>> {
        let [call] = prompt.calls[..] else { return Ok(None) };
        self.readable(self.question(call))
    }

    fn park_with(
        &mut self,
        name: &mut NameRecord,
        prompt: &mut PromptRecord,
        attempt: AttemptId,
        mut question: QuestionRecord,
    ) -> Result<()> {
        prompt.parked_by = Some(attempt);
        if question.decision.is_some() {
            self.end_questions(prompt.id)?;
            return self.go_on(name, prompt);
        }
        question.parked = true;
        self.put_question(&question)?;
        self.end_questions_but(prompt.id, Some(question.id))?;
        (prompt.state, name.parked) =
            (PromptState::Parked { question: question.id, at: self.now }, Some(prompt.id));
        self.put_prompt(prompt)?;
        self.add_to(Table::ParkedOf, name.name.tenant(), 1);
        // For readers of the turn, to show it.
        self.told.changes.push(Change::Asked(prompt.id, question.id));
        self.happened(&prompt.name, FeedEvent::Parked { prompt: prompt.id, question: question.id })
    }

    /// Lets a parked turn go on whose question is decided.
    pub(in crate::registry) fn unpark(&mut self, question: &QuestionRecord) -> Result<()> {
        // Rows that cannot be read keep no question from its decision.
        let Some(mut prompt) = self.readable(self.prompt_record(question.prompt))? else { return Ok(()) };
        if !matches!(prompt.state, PromptState::Parked { question: of, .. } if of == question.id) {
            return Ok(());
        }
        let Some(mut name) = self.readable(self.name(&question.name))? else { return Ok(()) };
        self.leave_parked(&mut name);
        self.go_on(&mut name, &mut prompt)?;
        self.put_name(&mut name)
    }

    /// The turn of a name is parked no more. The caller writes the record of the name.
    pub(in crate::registry) fn leave_parked(&mut self, name: &mut NameRecord) {
        if name.parked.take().is_some() {
            self.add_to(Table::ParkedOf, name.name.tenant(), -1);
        }
    }

    /// The turn waits to go on with its call. The caller writes the record of the name.
    fn go_on(&mut self, name: &mut NameRecord, prompt: &mut PromptRecord) -> Result<()> {
        prompt.state = PromptState::Queued;
        name.continues.get_or_insert(prompt.id);
        self.enqueue(name, prompt)?;
        self.happened(&prompt.name, FeedEvent::Continues { prompt: prompt.id })
    }

    /// Notes that the CLI of an owner is about to get the decision on a question. `Done(false)`: the question is not decided, its turn does
    /// not run by this owner, or another owner's CLI has got the decision.
    pub(crate) fn hand_over(&mut self, owner: Ownership, id: QuestionId) -> Result<Owned<bool>> {
        self.txn.want(&Key::of(Table::Questions).question(id));
        let Some(name) = self.owned(&owner)? else { return Ok(Owned::Fenced) };
        let is_decided =
            |question: &QuestionRecord| question.name == name.name && question.decision.is_some();
        let Some(mut question) = self.question(id)?.filter(is_decided) else {
            return Ok(Owned::Done(false));
        };
        if question.handed_to.is_some() || name.running != Some(question.prompt) {
            return Ok(Owned::Done(question.handed_to == Some(owner.term)));
        }
        question.handed_to = Some(owner.term);
        self.put_question(&question)?;
        self.forget_call(question.prompt, id)?;
        Ok(Owned::Done(true))
    }

    /// No turn goes on with the call of this question any more.
    pub(in crate::registry) fn forget_call(&mut self, prompt: PromptId, question: QuestionId) -> Result<()> {
        let Some(mut prompt) = self.readable(self.prompt_record(prompt))? else { return Ok(()) };
        prompt.calls.retain(|call| *call != question);
        self.put_prompt(&prompt)
    }
}
