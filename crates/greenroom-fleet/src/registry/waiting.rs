//! Names that can run: the index of names with a prompt that may begin.
//!
//! ```text
//!  accept ──► Due, Reminders ── its moment ──► Queue (of the name) ── the name can run ──► Waiting (of the tenant)
//!    └─────── no reminder ────────────────────────▲
//! ```
//!
//! A name stands in `Waiting` once, by the order of its first prompt and by itself, unless it is quarantined, is being deleted, moves away, or
//! runs a turn or has a parked one. So a look at what can run reads no name that cannot, but those whose reminders are due.

use std::collections::{BTreeMap, BTreeSet};

use super::key::{Key, Table, number, tenant_and_rest, text_and_rest};
use super::{BATCH, Result, Step};
use crate::error::BackendError;
use crate::id::{Name, Tenant};
use crate::record::{NameRecord, NameState, PromptRecord, PromptState};
use crate::request::{Change, Page, WaitingCursor, WaitingNames, WaitingPage};

/// Reminders that a request makes ready at most. It tells of their names, so the next look comes at once and goes on.
const RIPE: usize = 256;
/// Rows that are read at once.
const ROWS: usize = 64;
/// Rows that are read at once after rows all of which were left out.
const MANY_ROWS: usize = 1024;
/// Rows of tenants that a page leaves out, after which the page ends.
const LEFT_OUT: usize = 4096;

impl Step<'_> {
    /// A page of names that a node can run now, with their first prompts.
    pub(crate) fn waiting(&mut self, page: WaitingPage) -> Result<WaitingNames> {
        self.ripen()?;
        // The commit that makes reminders ready happens also if rows of the page have changed.
        self.txn.only_look(true);
        let host = self.node_row(page.node)?.map(|node| node.host);
        let listed = page.of.as_ref().map(|names| self.places_of(names, page.after.as_ref()));
        let mut listed = listed.transpose()?;
        let (mut left, mut after) = (page.limit.min(Page::MOST), page.after.clone());
        let (mut prompts, mut other_profile) = (Vec::new(), None);
        let without: BTreeSet<&Tenant> = page.without.iter().collect();
        let (mut at_once, mut left_out) = (ROWS, 0);
        while left > 0 && left_out < LEFT_OUT {
            let rows = match &mut listed {
                Some(listed) => listed.drain(..listed.len().min(left)).collect(),
                None => self.places_after(after.as_ref(), at_once),
            };
            if rows.is_empty() {
                return Ok(WaitingNames { prompts, other_profile, next: None });
            }
            let before = left;
            for place in rows {
                if left == 0 {
                    break;
                }
                let name = placed(&place)?;
                if without.contains(name.tenant()) {
                    left_out += 1;
                    // The next read begins behind all names of the tenant.
                    after =
                        Some(WaitingCursor(Key::of(Table::Waiting).tenant(name.tenant()).rest().to_vec()));
                    continue;
                }
                left -= 1;
                after = Some(WaitingCursor(place));
                let Some(record) = self.readable(self.name(&name))? else { continue };
                if !self.can_run_on(&record, &page, host.as_deref())? {
                    continue;
                }
                if page.profiles.as_ref().is_some_and(|profiles| !profiles.contains(&record.profile)) {
                    other_profile.get_or_insert(record.profile);
                    continue;
                }
                prompts.extend(self.first_ready(&record)?);
            }
            at_once = if left == before { MANY_ROWS } else { ROWS };
        }
        Ok(WaitingNames { prompts, other_profile, next: after })
    }

    /// The first `limit` names in the list after a place.
    fn places_after(&self, after: Option<&WaitingCursor>, limit: usize) -> Vec<Vec<u8>> {
        let all = Key::of(Table::Waiting);
        let rows = match after {
            Some(WaitingCursor(after)) => self.txn.after(&all, &all.clone().followed_by(after), limit),
            None => self.txn.under(&all, limit),
        };
        rows.into_iter().map(|(place, _)| place).collect()
    }

    /// Names that are in the list after a place, in its order; others are passed over.
    fn places_of(&self, names: &[Name], after: Option<&WaitingCursor>) -> Result<Vec<Vec<u8>>> {
        let mut places = BTreeSet::new();
        for name in names.iter().take(Page::MOST) {
            let Some(record) = self.readable(self.name(name))? else { continue };
            places.extend(record.listed.map(|order| place_of(&record, order).rest().to_vec()));
        }
        if let Some(WaitingCursor(after)) = after {
            places.retain(|place| place > after && !place.starts_with(after));
        }
        Ok(places.into_iter().collect())
    }

    /// True unless another living node owns the name, or its files are on another host.
    fn can_run_on(&self, record: &NameRecord, page: &WaitingPage, host: Option<&str>) -> Result<bool> {
        if let NameState::Owned { node, .. } = &record.state
            && *node != page.node
            && self.is_alive(*node)?
        {
            return Ok(false);
        }
        Ok(record.host.is_none() || record.host.as_deref() == host)
    }

    /// The first prompt of a name that may begin now.
    pub(crate) fn next_prompt(&self, name: Name) -> Result<Option<PromptRecord>> {
        self.txn.want_under(&Key::of(Table::Queue).name(&name), 1);
        let record = self.name(&name)?;
        record.map_or(Ok(None), |record| self.first_ready(&record))
    }

    fn first_ready(&self, record: &NameRecord) -> Result<Option<PromptRecord>> {
        if record.parked.is_some() {
            return Ok(None);
        }
        if let Some(first) = record.continues {
            return self.readable(self.prompt_record(first));
        }
        // Most often it is the first one.
        for limit in [1, BATCH] {
            for (_, id) in self.txn.under(&Key::of(Table::Queue).name(&record.name), limit) {
                let prompt = self.readable(self.listed(&id))?;
                let may_begin = |prompt: &PromptRecord| {
                    prompt.state == PromptState::Queued
                        && prompt.is_due(self.now)
                        && self.now < prompt.expires_at
                };
                if let Some(prompt) = prompt.filter(may_begin) {
                    return Ok(Some(prompt));
                }
            }
            if limit == 1 && self.txn.lacks_rows() {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Makes reminders ready whose moment has come.
    fn ripen(&mut self) -> Result<()> {
        let mut names = BTreeMap::new();
        for (key, id) in self.passed(Table::Due, RIPE) {
            self.txn.delete(&key);
            // A prompt that cannot be read does not begin.
            let Some(prompt) = self.readable(self.listed(&id))? else { continue };
            // The page may list other names, and nobody looks for this moment again.
            self.told.changes.push(Change::Queued(prompt.name.clone()));
            if prompt.state == PromptState::Queued {
                let prompts: &mut Vec<_> = names.entry(prompt.name.clone()).or_default();
                prompts.push(prompt);
            } else {
                // It has expired while its name could not be read.
                self.txn.remove(&reminder_key(&prompt));
            }
        }
        for (name, prompts) in names {
            let Some(mut record) = self.readable(self.name(&name))? else { continue };
            for prompt in prompts {
                record.ripened += 1;
                self.txn.remove(&reminder_key(&prompt));
                self.txn.write(&queue_key(&prompt), &prompt.id)?;
            }
            self.put_name(&mut record)?;
        }
        Ok(())
    }

    /// Names the rows that decide on the place of a name in the list, for a request that takes `removed` of its prompts from its queue.
    /// This saves a read.
    pub(super) fn want_place(&self, name: &Name, removed: usize) {
        self.txn.want_under(&Key::of(Table::Queue).name(name), 1 + removed);
    }

    /// Enters a name in the list of names that can run, moves it, or removes it. The caller writes the name's record.
    pub(super) fn list_waiting(&mut self, record: &mut NameRecord) -> Result<()> {
        let can_run =
            matches!(record.state, NameState::Free | NameState::Owned { .. }) && record.is_between_turns();
        let first = self.txn.under(&Key::of(Table::Queue).name(&record.name), usize::from(can_run));
        let first = first.first().map(|(key, _)| number(key)).transpose()?;
        let listed = std::mem::replace(&mut record.listed, first);
        if listed != first {
            listed.iter().for_each(|order| self.txn.remove(&place_of(record, *order)));
            first.iter().for_each(|order| self.txn.mark(&place_of(record, *order)));
        }
        Ok(())
    }
}

/// The place of a name in the list of names that can run.
fn place_of(name: &NameRecord, order: u64) -> Key {
    Key::of(Table::Waiting).tenant(name.name.tenant()).number(order).text(name.name.session())
}

/// The name of a place.
fn placed(place: &[u8]) -> Result<Name> {
    let (tenant, rest) = tenant_and_rest(place)?;
    let (session, _) = text_and_rest(rest.get(8..).unwrap_or_default())?;
    Name::new(tenant, session).map_err(BackendError::damaged)
}

/// The place of a prompt that waits for its moment, if it does. A prompt without a moment of its own is ready whatever the clock
/// says, so a clock that steps back does not hold it up. A continuation was ready before.
pub(super) fn due_key(prompt: &PromptRecord) -> Option<Key> {
    let waits = prompt.is_reminder() && prompt.begins == 0;
    waits.then(|| Key::of(Table::Due).time(prompt.due_at).prompt(prompt.id))
}

/// The place of a prompt that may begin, among those of its name.
pub(super) fn queue_key(prompt: &PromptRecord) -> Key {
    Key::of(Table::Queue).name(&prompt.name).number(prompt.order)
}

/// The place of a prompt that waits for its moment, among those of its name.
pub(super) fn reminder_key(prompt: &PromptRecord) -> Key {
    Key::of(Table::Reminders).name(&prompt.name).number(prompt.order)
}
