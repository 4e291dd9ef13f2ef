//! Prompts that wait: accept, withdraw, expiry, and the queues.

use super::key::{Key, Table};
use super::moving::ended_of;
use super::txn::as_stored;
use super::waiting::{due_key, queue_key, reminder_key};
use super::{Result, Step, parsed};
use crate::error::BackendError;
use crate::event::FleetEvent;
use crate::id::{AttemptId, Name, PromptId, Term};
use crate::record::{InterruptedBy, NameRecord, NameState, PromptOutcome, PromptRecord, PromptState, Unsent};
use crate::request::{Accept, Accepted, Change, Refused, Withdrawn};

const WITHDRAWN: PromptOutcome = PromptOutcome::Unsent { why: Unsent::Withdrawn };

/// The outcome of a prompt that waited to go on with its continuation when the application ended it.
pub(super) const BY_USER: PromptOutcome =
    PromptOutcome::Interrupted { by: InterruptedBy::User, result: None };

/// The place of a prompt in the queue of its name.
pub(super) struct QueueRow {
    /// The end of its key.
    order: Vec<u8>,
    /// The prompt may begin; otherwise it waits for its moment.
    is_ready: bool,
    /// The row: the id of the prompt.
    pub(super) prompt: Vec<u8>,
}

impl Step<'_> {
    pub(crate) fn accept(&mut self, accept: Accept) -> Result<Accepted> {
        self.want_accept(&accept);
        if let Some(known) = self.prompt(accept.prompt)? {
            let content = self.content(known.id)?;
            let same = known.name == accept.name && known.tenant == accept.tenant && known.key == accept.key;
            if !same || content != Some(as_stored(&accept.content)?) {
                return Err(BackendError::id_reused("prompt", known.id));
            }
            return Ok(Accepted::New(known));
        }
        let known = self.name(&accept.name)?;
        if let Some(refused) = known.as_ref().and_then(|record| mismatch(record, &accept)) {
            return Ok(Accepted::Refused(refused));
        }
        if let Some(same) = self.prompt_of_key(&accept)? {
            return Ok(match self.content(same.id)? == Some(as_stored(&accept.content)?) {
                true => Accepted::Duplicate(same),
                false => Accepted::Refused(Refused::KeyReused { prompt: same.id }),
            });
        }
        if let Some(NameRecord { state: NameState::Quarantined { why, .. }, .. }) = &known {
            // The prompt would wait for a person, and expire before one comes.
            return Ok(Accepted::Refused(Refused::Quarantined { why: why.clone() }));
        }
        if let Some(budget) = accept.budget
            && self.spent(&accept.tenant, &budget)?
        {
            return Ok(Accepted::Refused(Refused::OverBudget));
        }
        if let Some(refused) = self.over_bound(&accept, known.as_ref())? {
            return Ok(Accepted::Refused(refused));
        }
        let mut name = match known {
            Some(known) => known,
            None => {
                let name = self.new_name(&accept);
                self.list_name(&name)?;
                name
            }
        };
        // A continuation of null is none: it would be read as none.
        let continues = accept.content.continuation.as_ref().filter(|prompt| !prompt.is_null());
        let due_at = accept.not_before.unwrap_or(self.now).max(self.now);
        let prompt = PromptRecord {
            id: accept.prompt,
            name: accept.name.clone(),
            tenant: accept.tenant.clone(),
            key: accept.key.clone(),
            accepted_at: self.now,
            due_at,
            expires_at: due_at.after(accept.wait),
            order: name.next_order(self.now),
            state: PromptState::Queued,
            begins: 0,
            continuations: continues.map_or(0, |_| accept.continuations),
            reserved: 0,
            period: Default::default(),
            last_seq: 0,
            kept_bytes: 0,
            dropped: 0,
            asked: 0,
        };
        self.txn.write(&Key::of(Table::Contents).prompt(prompt.id), &accept.content)?;
        if let Some(key) = &accept.key {
            self.txn.write(&Key::of(Table::Keys).name(&accept.name).text(key), &prompt.id)?;
        }
        self.txn.mark(&Key::of(Table::Expiries).time(prompt.expires_at).prompt(prompt.id))?;
        self.enqueue(&mut name, &prompt)?;
        self.put_name(&mut name)?;
        let (name, tenant) = (accept.name, accept.tenant);
        self.made(FleetEvent::Accepted { name, tenant, prompt: prompt.id });
        Ok(Accepted::New(prompt))
    }

    /// Names the rows of an accept, so that they are read together.
    fn want_accept(&self, accept: &Accept) {
        self.txn.want(&Key::of(Table::Names).name(&accept.name));
        if let Some(key) = &accept.key {
            self.txn.want(&Key::of(Table::Keys).name(&accept.name).text(key));
        }
    }

    /// Takes back a prompt that waits.
    pub(crate) fn withdraw(&mut self, id: PromptId) -> Result<Withdrawn> {
        self.take_back(id, &WITHDRAWN)
    }

    /// Takes back a prompt for an operator.
    pub(crate) fn drop_prompt(&mut self, id: PromptId, why: String) -> Result<Withdrawn> {
        self.take_back(id, &PromptOutcome::Unsent { why: Unsent::Dropped { why } })
    }

    /// Ends a prompt that waits: with `unsent`, or as interrupted if a lost owner had begun with it.
    fn take_back(&mut self, id: PromptId, unsent: &PromptOutcome) -> Result<Withdrawn> {
        let Some(prompt) = self.prompt(id)? else { return Ok(Withdrawn::Gone) };
        if prompt.state == PromptState::Queued {
            let (outcome, answer) = match prompt.begins {
                0 => (unsent, Withdrawn::Unsent),
                _ => (&BY_USER, Withdrawn::Interrupted),
            };
            self.end_waiting(prompt, outcome)?;
            return Ok(answer);
        }
        let by_request = matches!(prompt.state, PromptState::Ended { attempt: None, .. });
        Ok(match self.outcome(id)? {
            Some(outcome) if outcome == *unsent => Withdrawn::Unsent,
            Some(BY_USER) if by_request => Withdrawn::Interrupted,
            _ => Withdrawn::TooLate(prompt),
        })
    }

    /// Ends a prompt that waits, and writes its name's record, if that can be read.
    pub(super) fn end_waiting(&mut self, mut prompt: PromptRecord, outcome: &PromptOutcome) -> Result<()> {
        if let Some(mut name) = self.readable(self.name(&prompt.name))? {
            self.dequeue(&mut name, &prompt)?;
            self.put_name(&mut name)?;
        }
        self.end(&mut prompt, None, outcome)
    }

    /// Gives a prompt its outcome. It no longer waits and no longer runs.
    pub(super) fn end(
        &mut self,
        prompt: &mut PromptRecord,
        attempt: Option<AttemptId>,
        outcome: &PromptOutcome,
    ) -> Result<()> {
        prompt.state = PromptState::Ended { at: self.now, attempt };
        self.txn.write(&Key::of(Table::Outcomes).prompt(prompt.id), outcome)?;
        let place = ended_of(&prompt.tenant, &prompt.name).prompt(prompt.id);
        self.txn.mark(&place)?;
        self.txn.put(Key::of(Table::Ended).time(self.now).prompt(prompt.id).bytes(), place.rest())?;
        self.put_prompt(prompt)?;
        self.end_questions(prompt.id)?;
        self.told.changes.push(Change::Ended(prompt.id));
        let (name, tenant, outcome) = (prompt.name.clone(), prompt.tenant.clone(), outcome.word());
        self.made(FleetEvent::Ended { name, tenant, prompt: prompt.id, outcome });
        Ok(())
    }

    /// Puts a prompt into its queue. The caller writes the name's record.
    pub(super) fn enqueue(&mut self, name: &mut NameRecord, prompt: &PromptRecord) -> Result<()> {
        name.queued += 1;
        self.count_queued(&prompt.tenant, 1);
        match due_key(prompt) {
            Some(due) => {
                self.txn.write(&due, &prompt.id)?;
                self.txn.write(&reminder_key(prompt), &prompt.id)?;
            }
            None => self.make_ready(name, prompt)?,
        }
        self.put_prompt(prompt)?;
        self.told.changes.push(Change::Queued(prompt.name.clone()));
        Ok(())
    }

    /// Takes a prompt out of its queue. The caller writes the records of the prompt and of the name.
    pub(super) fn dequeue(&mut self, name: &mut NameRecord, prompt: &PromptRecord) -> Result<()> {
        name.queued = name.queued.saturating_sub(1);
        name.continues = name.continues.filter(|id| *id != prompt.id);
        self.count_queued(&prompt.tenant, -1);
        match due_key(prompt) {
            // A look makes a reminder ready, and leaves its record as it is.
            Some(due) if self.txn.get(queue_key(prompt).bytes())?.is_none() => {
                self.txn.remove(&due)?;
                self.txn.remove(&reminder_key(prompt))?;
            }
            _ => {
                name.ready = name.ready.saturating_sub(1);
                self.txn.remove(&queue_key(prompt))?;
            }
        }
        self.txn.remove(&Key::of(Table::Expiries).time(prompt.expires_at).prompt(prompt.id))
    }

    /// The rows of the first `limit` prompts that wait for a name, in the order of the prompts.
    pub(super) fn queue_rows(&self, name: &Name, limit: usize) -> Result<Vec<QueueRow>> {
        let mut rows = Vec::new();
        for (table, is_ready) in [(Table::Queue, true), (Table::Reminders, false)] {
            let found = self.txn.under(&Key::of(table).name(name), limit)?;
            rows.extend(found.into_iter().map(|(order, prompt)| QueueRow { order, is_ready, prompt }));
        }
        rows.sort_by(|one, other| one.order.cmp(&other.order));
        rows.truncate(limit);
        Ok(rows)
    }

    /// Takes a prompt that cannot be read out of the queue of its name.
    pub(super) fn drop_row(&mut self, name: &Name, row: &QueueRow) -> Result<()> {
        let table = if row.is_ready { Table::Queue } else { Table::Reminders };
        self.txn.remove(&Key::of(table).name(name).followed_by(&row.order))?;
        let Some(mut record) = self.name(name)? else { return Ok(()) };
        record.queued = record.queued.saturating_sub(1);
        record.ready = record.ready.saturating_sub(u32::from(row.is_ready));
        self.count_queued(&record.tenant, -1);
        self.put_name(&mut record)
    }

    /// A prompt whose id an index holds: never none.
    pub(super) fn listed(&self, id: &[u8]) -> Result<Option<PromptRecord>> {
        let id: PromptId = parsed(id)?;
        self.prompt(id)?.ok_or_else(|| BackendError::missing("prompt", id)).map(Some)
    }

    fn prompt_of_key(&self, accept: &Accept) -> Result<Option<PromptRecord>> {
        let Some(key) = &accept.key else { return Ok(None) };
        let id: Option<PromptId> = self.txn.read(&Key::of(Table::Keys).name(&accept.name).text(key))?;
        id.map_or(Ok(None), |id| self.prompt(id))
    }

    fn over_bound(&self, accept: &Accept, name: Option<&NameRecord>) -> Result<Option<Refused>> {
        let queues = [
            ("for the session", name.map_or(0, |name| name.queued), accept.bounds.name),
            ("for the tenant", self.queued_of(&accept.tenant)?, accept.bounds.tenant),
            ("in the fleet", self.queued()?, accept.bounds.fleet),
        ];
        let full = queues.into_iter().find(|(_, queued, bound)| queued >= bound);
        Ok(full.map(|(of, _, bound)| Refused::QueueFull { of, bound }))
    }

    fn new_name(&self, accept: &Accept) -> NameRecord {
        NameRecord {
            name: accept.name.clone(),
            profile: accept.profile.clone(),
            tenant: accept.tenant.clone(),
            host: accept.host.clone(),
            conversation: accept.conversation,
            created_at: self.now,
            term: Term(0),
            state: NameState::Free,
            queued: 0,
            ready: 0,
            listed: None,
            stuck: false,
            last_order: 0,
            running: None,
            continues: None,
            failures: Vec::new(),
            losses: 0,
            quarantine: None,
        }
    }
}

fn mismatch(known: &NameRecord, accept: &Accept) -> Option<Refused> {
    if known.tenant != accept.tenant {
        // The profile of another tenant's session is no business of this tenant.
        return Some(Refused::TenantMismatch);
    }
    if known.profile != accept.profile {
        return Some(Refused::ProfileMismatch { known: known.profile.clone() });
    }
    match known.state {
        NameState::Deleting { .. } => Some(Refused::Deleting),
        NameState::Departing { .. } => Some(Refused::Moving),
        _ => None,
    }
}
