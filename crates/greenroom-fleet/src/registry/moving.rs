//! A tenant moves to another backend, name by name.
//!
//! ```text
//!  here:   Free, Quarantined ── depart ──► Departing ── departed ──► Departing, arrived ── departed ──► (no rows)
//!                                              │ its rows are copied     ▲
//!                                              ▼                         │
//!  there:  (no row) ─────────────────────── arrive ──► Free, Quarantined ┘
//! ```
//!
//! A name that departs is claimed by nobody and accepts nothing, so its rows stay as they are. It is there before its rows are removed
//! here, and it can run only there. Each step can be repeated. [`crate::admin::moving`] copies the rows.

use uuid::Uuid;

use super::account::quota::signed;
use super::erasure::files_of;
use super::key::{Key, Table, last_id};
use super::lists::prompts_of;
use super::prompts::kept_bytes;
use super::{BATCH, Result, Step, parsed};
use crate::id::{Name, PromptId, Tenant, Timestamp};
use crate::record::{NameRecord, NameState, PromptRecord, PromptState, Quarantine};
use crate::request::Departure;

/// Prompts that one request removes.
const PROMPTS: usize = 32;

impl Step<'_> {
    /// The id of this backend: the one that was given first.
    pub(crate) fn identify(&mut self, id: Uuid) -> Result<Uuid> {
        let key = Key::of(Table::BackendId);
        if let Some(known) = self.txn.read(&key)? {
            return Ok(known);
        }
        self.txn.write(&key, &id)?;
        Ok(id)
    }

    /// Marks a name that is at rest. Nobody claims it any more, and it accepts no prompt.
    pub(crate) fn depart(&mut self, name: Name, to: Uuid) -> Result<Departure> {
        let Some(mut record) = self.name(&name)? else { return Ok(Departure::Gone) };
        match &record.state {
            NameState::Departing { to: target, .. } if *target == to => return Ok(Departure::Marked(record)),
            NameState::Departing { .. } => return Ok(Departure::Elsewhere),
            NameState::Owned { .. } | NameState::Deleting { .. } => return Ok(Departure::NotAtRest),
            NameState::Quarantined { kind, why, .. } => {
                record.quarantine = Some(Quarantine { kind: *kind, why: why.clone() });
            }
            NameState::Free => {}
        }
        let left = self.txn.under(&Key::of(Table::Processes).name(&name), 1);
        if record.queued > 0 || !record.is_between_turns() || !left.is_empty() {
            return Ok(Departure::NotAtRest);
        }
        record.state = NameState::Departing { since: self.now, to, arrived: false };
        self.put_name(&mut record)?;
        Ok(Departure::Marked(record))
    }

    /// Makes a name of a record that departs elsewhere. Its other rows are here already. `false`: the name is taken.
    pub(crate) fn arrive(&mut self, mut record: NameRecord) -> Result<bool> {
        if let Some(known) = self.name(&record.name)? {
            let departs = matches!(known.state, NameState::Departing { .. });
            return Ok(known.conversation == record.conversation && !departs);
        }
        record.state = match record.quarantine.take() {
            Some(Quarantine { kind, why }) => NameState::Quarantined { kind, why, since: self.now },
            None => NameState::Free,
        };
        // It stands in no list here.
        (record.listed, record.stuck) = (None, false);
        self.add_to(Table::NamesOf, record.name.tenant(), 1);
        self.index_labels(&record, true);
        self.put_name(&mut record)?;
        Ok(true)
    }

    /// Takes over the money that a tenant has spent elsewhere, unless the tenant has an account of the same period here. `false`: it has one.
    pub(crate) fn open_account(&mut self, tenant: Tenant, period: Timestamp, spent: u64) -> Result<bool> {
        let (known, sums) = self.expect_account(&tenant)?;
        let is_before = known < period || (sums == 0 && known == Timestamp::default());
        if is_before {
            self.set_account(&tenant, period, spent)?;
        }
        Ok(is_before)
    }

    /// Forgets the money of a tenant all of whose names have departed. `false`: it has names.
    pub(crate) fn close_account(&mut self, tenant: Tenant) -> Result<bool> {
        if !self.txn.under(&Key::of(Table::Names).tenant(&tenant), 1).is_empty() {
            return Ok(false);
        }
        // The list of its names is a range, which the commit does not expect: a new name may have spent something since.
        self.expect_account(&tenant)?;
        self.set_account(&tenant, Timestamp::default(), 0)?;
        Ok(true)
    }

    /// Notes that a name that departs has arrived, and removes its rows. `false`: something is left, so call it again.
    pub(crate) fn departed(&mut self, name: Name) -> Result<bool> {
        let Some(mut record) = self.name(&name)? else { return Ok(true) };
        let NameState::Departing { arrived, .. } = &mut record.state else { return Ok(true) };
        if !std::mem::replace(arrived, true) {
            self.put_name(&mut record)?;
            return Ok(false);
        }
        if !self.forget_prompts_of(&name)? || self.txn.remove_under(&files_of(&name), BATCH)?.is_none() {
            return Ok(false);
        }
        self.remove_days(&name)?;
        self.remove_name(&record)?;
        Ok(true)
    }

    /// Removes the prompts of a name that have ended, with everything that belongs to them, its keys and its commands. `false`: something is
    /// left.
    pub(super) fn forget_prompts_of(&mut self, name: &Name) -> Result<bool> {
        // First, so that no key leads to a prompt that is gone.
        if self.txn.remove_under(&Key::of(Table::Keys).name(name), BATCH)?.is_none() {
            return Ok(false);
        }
        let (mut rows, of_name) = (BATCH, prompts_of(name));
        let prompts = self.txn.under(&of_name, PROMPTS);
        for (key, _) in &prompts {
            let id = PromptId(last_id(key)?);
            // Removed by an earlier call, or unreadable: its other rows go all the same.
            if let Some(prompt) = self.readable(self.prompt_record(id))?
                && let PromptState::Ended { at, .. } = prompt.state
            {
                self.txn.remove(&Key::of(Table::Ended).time(at).prompt(id));
            }
            if !self.forget_prompt(id, BATCH, &mut rows)? {
                return Ok(false);
            }
            self.unlist_prompt(id, &of_name.clone().followed_by(key))?;
        }
        Ok(prompts.len() < PROMPTS && self.forget_commands_of(name, BATCH)?)
    }
}

/// The place of a prompt's record in the list of ends, if the prompt has ended, and the bytes that count as kept of it.
pub(crate) fn end_of_prompt(row: &[u8]) -> Result<Option<(Key, i64)>> {
    let prompt: PromptRecord = parsed(row)?;
    let PromptState::Ended { at, .. } = prompt.state else { return Ok(None) };
    Ok(Some((Key::of(Table::Ended).time(at).prompt(prompt.id), signed(kept_bytes(&prompt)))))
}

/// The beginnings of the keys of the rows that belong to a prompt, its record left out.
pub(crate) fn rows_of_prompt(id: PromptId) -> [Key; 4] {
    [Table::Contents, Table::Outcomes, Table::Messages, Table::DecidedOfPrompt]
        .map(|table| Key::of(table).prompt(id))
}
