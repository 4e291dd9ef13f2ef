//! Prompts: how they are accepted, wait, are withdrawn, expire and end, and are forgotten.

use super::account::quota::signed;
use super::account::room::RECORD_BYTES;
use super::content::Content;
use super::key::{Key, Table, last_id};
use super::lists::{check_labels, key_of, place_of};
use super::messages::of_prompt;
use super::txn::to_json;
use super::waiting::{due_key, queue_key, reminder_key};
use super::{Result, Step, parsed};
use crate::error::BackendError;
use crate::id::{AttemptId, Name, PromptId, Term, Timestamp};
use crate::query::feed::FeedEvent;
use crate::record::{
    InterruptedBy, NameRecord, NameState, PromptOrigin, PromptOutcome, PromptRecord, PromptState, Unsent,
};
use crate::request::{Accept, Accepted, Change, Refused, Withdrawn};

/// The outcome of a prompt that was parked or waited to go on when the application ended it.
pub(super) const BY_USER: PromptOutcome =
    PromptOutcome::Interrupted { by: InterruptedBy::User, result: None };

/// Rows of messages and questions that one request forgets. A row of short messages has up to 16 KB.
const ROWS: usize = 256;
/// Prompts that one request forgets.
const PROMPTS: usize = 32;
/// Rows that it reads of each prompt but the first.
const OF_NEXT: usize = 64;

impl Step<'_> {
    pub(crate) fn accept(&mut self, accept: Accept) -> Result<Accepted> {
        check_labels(&accept.labels)?;
        let key = accept.key.as_ref().map(|key| key_of(&accept.name, key));
        self.txn.want(&Key::of(Table::Names).name(&accept.name));
        self.want_feed(&accept.name);
        key.iter().for_each(|key| self.txn.want(key));
        self.want_quota(accept.name.tenant());
        let content = Content::of(&accept.content)?;
        if let Some(known) = self.prompt_record(accept.prompt)? {
            let same = known.name == accept.name && known.key == accept.key;
            if !same || known.digest != content.digest {
                return Err(BackendError::id_reused("prompt", known.id));
            }
            return Ok(Accepted::New(known));
        }
        let known = self.name(&accept.name)?;
        if let Some(refused) = known.as_ref().and_then(|record| mismatch(record, &accept)) {
            return Ok(Accepted::Refused(refused));
        }
        let same = key.as_ref().map_or(Ok(None), |key| self.txn.read(key))?;
        if let Some(same) = same.map_or(Ok(None), |id| self.prompt_record(id))? {
            return Ok(match same.digest == content.digest {
                true => Accepted::Duplicate(same),
                false => Accepted::Refused(Refused::KeyReused { prompt: same.id }),
            });
        }
        if let Some(refused) = self.no_room(&accept, content.json.len() as u64, known.as_ref())? {
            return Ok(Accepted::Refused(refused));
        }
        let mut name = match known {
            Some(known) => known,
            None => self.new_name(&accept),
        };
        // A continuation of null is none: it would be read as none.
        let continues = accept.content.continuation.as_ref().filter(|prompt| !prompt.is_null());
        let due_at = accept.not_before.unwrap_or(self.now).max(self.now);
        let prompt = PromptRecord {
            id: accept.prompt,
            name: accept.name.clone(),
            key: accept.key.clone(),
            labels: accept.labels.clone(),
            accepted_at: self.now,
            due_at,
            expires_at: due_at.after(accept.wait),
            origin: PromptOrigin::Application,
            order: name.next_order(self.now),
            state: PromptState::Queued,
            begins: 0,
            continuations: continues.map_or(0, |_| accept.continuations),
            reserved: 0,
            bytes: content.json.len() as u64,
            digest: content.digest,
            last_seq: 0,
            kept_bytes: 0,
            dropped: 0,
            asked: 0,
            waited: Default::default(),
            calls: Vec::new(),
            parked_by: None,
            usage: Default::default(),
        };
        self.txn.put(Key::of(Table::Contents).prompt(prompt.id).bytes(), content.json.as_bytes());
        self.add_to(Table::KeptBytes, prompt.name.tenant(), signed(kept_bytes(&prompt)));
        key.map_or(Ok(()), |key| self.txn.write(&key, &prompt.id))?;
        self.txn.mark(&expiry_key(&prompt));
        self.list_prompt(&prompt)?;
        self.enqueue(&mut name, &prompt)?;
        self.put_name(&mut name)?;
        self.happened(&prompt.name, FeedEvent::Accepted { prompt: prompt.id })?;
        Ok(Accepted::New(prompt))
    }

    /// Takes back a prompt that waits.
    pub(crate) fn withdraw(&mut self, id: PromptId) -> Result<Withdrawn> {
        self.take_back(id, &PromptOutcome::Unsent { why: Unsent::Withdrawn })
    }

    /// Takes back a prompt for an operator.
    pub(crate) fn drop_prompt(&mut self, id: PromptId, why: String) -> Result<Withdrawn> {
        self.take_back(id, &PromptOutcome::Unsent { why: Unsent::Dropped { why } })
    }

    /// Ends a prompt that waits or is parked: with `unsent`, or as interrupted if an owner had begun with it.
    fn take_back(&mut self, id: PromptId, unsent: &PromptOutcome) -> Result<Withdrawn> {
        let Some(prompt) = self.prompt_record(id)? else { return Ok(Withdrawn::Gone) };
        if matches!(prompt.state, PromptState::Queued | PromptState::Parked { .. }) {
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

    /// Ends a prompt that waits or is parked, and writes its name's record, if that can be read.
    pub(super) fn end_waiting(&mut self, mut prompt: PromptRecord, outcome: &PromptOutcome) -> Result<()> {
        if let Some(mut name) = self.readable(self.name(&prompt.name))? {
            match prompt.state {
                PromptState::Parked { .. } => self.leave_parked(&mut name),
                _ => self.dequeue(&mut name, &prompt),
            }
            self.put_name(&mut name)?;
        }
        self.end(&mut prompt, None, outcome)
    }

    /// Ends a prompt that has waited until its time had passed.
    pub(super) fn expire(&mut self, prompt: PromptRecord) -> Result<()> {
        let name = self.readable(self.name(&prompt.name))?;
        let cause = name.as_ref().and_then(NameRecord::waits_because);
        self.end_waiting(prompt, &PromptOutcome::Unsent { why: Unsent::Expired { cause } })
    }

    /// Gives a prompt its outcome. It no longer waits and no longer runs.
    pub(super) fn end(
        &mut self,
        prompt: &mut PromptRecord,
        attempt: Option<AttemptId>,
        outcome: &PromptOutcome,
    ) -> Result<()> {
        prompt.state = PromptState::Ended { at: self.now, attempt };
        prompt.calls.clear();
        self.keep_outcome(prompt, outcome)?;
        self.txn.put(Key::of(Table::Ended).time(self.now).prompt(prompt.id).bytes(), place_of(prompt).rest());
        self.put_prompt(prompt)?;
        self.end_questions(prompt.id)?;
        self.told.changes.push(Change::Ended(prompt.id));
        let (outcome, usage) = (outcome.word().to_owned(), prompt.usage);
        self.happened(&prompt.name, FeedEvent::Ended { prompt: prompt.id, outcome, usage })
    }

    /// Writes the outcome of a prompt. The content of a prompt that was taken back, or went with its session, goes at once.
    fn keep_outcome(&mut self, prompt: &mut PromptRecord, outcome: &PromptOutcome) -> Result<()> {
        let before = prompt.bytes;
        let is_taken_back =
            matches!(outcome, PromptOutcome::Unsent { why } if !matches!(why, Unsent::Expired { .. }));
        if is_taken_back {
            self.txn.remove(&Key::of(Table::Contents).prompt(prompt.id));
            prompt.bytes = 0;
        }
        let json = to_json(outcome)?;
        self.txn.put(Key::of(Table::Outcomes).prompt(prompt.id).bytes(), json.as_bytes());
        prompt.bytes += json.len() as u64;
        self.add_to(Table::KeptBytes, prompt.name.tenant(), signed(prompt.bytes) - signed(before));
        Ok(())
    }

    /// Counts a prompt that waits (`by` is 1), or does not wait any more (-1).
    fn count_waiting(&mut self, name: &mut NameRecord, prompt: &PromptRecord, by: i32) {
        name.queued = name.queued.saturating_add_signed(by);
        let (of_tenant, of_fleet) = match due_key(prompt) {
            Some(_) => {
                name.reminders = name.reminders.saturating_add_signed(by);
                (Table::RemindersOf, Table::RemindersWaiting)
            }
            None => (Table::QueuedOf, Table::Queued),
        };
        let (tenant, by) = (prompt.name.tenant(), i64::from(by));
        self.add_to(of_tenant, tenant, by);
        self.txn.add(&Key::of(of_fleet), by);
        self.add_to(Table::WaitingBytes, tenant, by * signed(prompt.bytes));
    }

    /// Puts a prompt into its queue. The caller writes the name's record.
    pub(super) fn enqueue(&mut self, name: &mut NameRecord, prompt: &PromptRecord) -> Result<()> {
        self.count_waiting(name, prompt, 1);
        match due_key(prompt) {
            Some(due) => {
                self.txn.write(&due, &prompt.id)?;
                self.txn.write(&reminder_key(prompt), &prompt.id)?;
            }
            None => self.txn.write(&queue_key(prompt), &prompt.id)?,
        }
        self.put_prompt(prompt)?;
        self.told.changes.push(Change::Queued(prompt.name.clone()));
        Ok(())
    }

    /// Takes a prompt out of its queue. The caller writes the records of the prompt and of the name.
    pub(super) fn dequeue(&mut self, name: &mut NameRecord, prompt: &PromptRecord) {
        self.count_waiting(name, prompt, -1);
        name.continues = name.continues.filter(|id| *id != prompt.id);
        match due_key(prompt) {
            // A look makes a reminder ready, and leaves its record as it is.
            Some(due) if self.txn.get(queue_key(prompt).bytes()).is_none() => {
                self.txn.remove(&due);
                self.txn.remove(&reminder_key(prompt));
            }
            _ => self.txn.remove(&queue_key(prompt)),
        }
        self.txn.remove(&expiry_key(prompt));
    }

    /// Takes a prompt that cannot be read out of the queue of its name, if it is there.
    pub(super) fn drop_place(&mut self, name: &Name, order: u64) -> Result<()> {
        let places = [Table::Queue, Table::Reminders].map(|table| Key::of(table).name(name).number(order));
        // Perhaps it is not read yet.
        let is_reminder = self.txn.get(places[1].bytes()).is_some();
        if self.txn.lacks_rows() || places.iter().all(|place| self.txn.get(place.bytes()).is_none()) {
            return Ok(());
        }
        places.iter().for_each(|place| self.txn.remove(place));
        let Some(mut record) = self.readable(self.name(name))? else { return Ok(()) };
        record.queued = record.queued.saturating_sub(1);
        record.reminders = record.reminders.saturating_sub(u32::from(is_reminder)).min(record.queued);
        // The bytes of a prompt that cannot be read go on counting, and so does a reminder whose moment has come.
        let (of_tenant, of_fleet) = match is_reminder {
            true => (Table::RemindersOf, Table::RemindersWaiting),
            false => (Table::QueuedOf, Table::Queued),
        };
        self.add_to(of_tenant, name.tenant(), -1);
        self.txn.add(&Key::of(of_fleet), -1);
        self.put_name(&mut record)
    }

    /// A prompt whose id an index holds: never none.
    pub(super) fn listed(&self, id: &[u8]) -> Result<Option<PromptRecord>> {
        let id: PromptId = parsed(id)?;
        self.prompt_record(id)?.ok_or_else(|| BackendError::missing("prompt", id)).map(Some)
    }

    /// Ends prompts that have waited until their time had passed, or moves their expiry. Answers with their number.
    pub(crate) fn expire_prompts(&mut self, limit: usize) -> Result<usize> {
        let due = self.passed(Table::Expiries, limit);
        for (key, _) in &due {
            let id = PromptId(last_id(key)?);
            match self.readable(self.prompt_record(id))? {
                Some(mut prompt) if prompt.state == PromptState::Queued => {
                    let name = self.readable(self.name(&prompt.name))?;
                    if self.wait_out(&mut prompt, name.and_then(|name| name.held_by))? {
                        self.txn.delete(key);
                    } else {
                        self.expire(prompt)?;
                    }
                }
                // Perhaps it is not read yet.
                None if self.txn.lacks_rows() => {}
                // A prompt that cannot be read stays: a node of a later version may have written it.
                _ => self.txn.delete(key),
            }
        }
        Ok(due.len())
    }

    /// Removes prompts that ended before `before`, with their outcomes, messages, decided questions and keys. Answers with the number
    /// of prompts that it worked at: the last one may have messages or questions left for the next request.
    pub(crate) fn forget(&mut self, before: Timestamp, limit: usize) -> Result<usize> {
        let ended = self.txn.before(Table::Ended, before, limit.min(PROMPTS));
        let mut rows = ROWS;
        for (at, (key, place)) in ended.iter().enumerate() {
            // The numbers of rows to read do not depend on the prompts before, so that all are read together.
            let most = if at == 0 { ROWS } else { OF_NEXT };
            let (id, place) = (PromptId(last_id(key)?), Key::of(Table::PromptsOf).followed_by(place));
            self.unlist_prompt(id, &place)?;
            if !self.forget_prompt(id, most, &mut rows)? {
                return Ok(at + 1);
            }
            self.txn.delete(key);
        }
        Ok(ended.len())
    }

    /// Removes a prompt, then what belongs to it, up to `most` rows of each kind. Counts them down from `rows`. `false`: something
    /// is left, or `rows` is down.
    pub(super) fn forget_prompt(&mut self, id: PromptId, most: usize, rows: &mut usize) -> Result<bool> {
        // Removed with the record, once.
        if let Some(prompt) = self.readable(self.prompt_record(id))? {
            self.add_to(Table::KeptBytes, prompt.name.tenant(), -signed(kept_bytes(&prompt)));
        }
        self.txn.remove(&Key::of(Table::Prompts).prompt(id));
        for table in [Table::Contents, Table::Outcomes] {
            // The prompt has one row in the table, which may be long.
            if self.txn.remove_under(&Key::of(table).prompt(id), 2)?.is_none() {
                return Ok(false);
            }
        }
        for removed in [self.txn.remove_under(&of_prompt(id), most)?, self.forget_questions(id, most)?] {
            *rows = rows.saturating_sub(removed.unwrap_or(ROWS));
        }
        Ok(*rows > 0)
    }

    fn new_name(&mut self, accept: &Accept) -> NameRecord {
        self.add_to(Table::NamesOf, accept.name.tenant(), 1);
        NameRecord {
            name: accept.name.clone(),
            profile: accept.profile.clone(),
            host: accept.host.clone(),
            conversation: accept.conversation,
            created_at: self.now,
            term: Term(0),
            state: NameState::Free,
            queued: 0,
            reminders: 0,
            ripened: 0,
            listed: None,
            stuck: false,
            last_order: 0,
            running: None,
            cli_turn: None,
            continues: None,
            parked: None,
            failures: Vec::new(),
            losses: 0,
            quarantine: None,
            last_failure: None,
            held_by: None,
            labels: Default::default(),
        }
    }
}

/// Bytes that count as kept of a prompt.
pub(super) fn kept_bytes(prompt: &PromptRecord) -> u64 {
    prompt.bytes.saturating_add(prompt.kept_bytes).saturating_add(RECORD_BYTES)
}

/// The place of a prompt that waits in the list of expiries.
pub(super) fn expiry_key(prompt: &PromptRecord) -> Key {
    Key::of(Table::Expiries).time(prompt.expires_at).prompt(prompt.id)
}

fn mismatch(known: &NameRecord, accept: &Accept) -> Option<Refused> {
    if known.profile != accept.profile {
        return Some(Refused::ProfileMismatch { known: known.profile.clone() });
    }
    match known.state {
        NameState::Deleting { .. } => Some(Refused::Deleting),
        NameState::Departing { .. } => Some(Refused::Moving),
        _ => None,
    }
}
