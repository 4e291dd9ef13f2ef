//! Questions of the fleet about what is there.

use super::key::{Key, Table, name_at_start, time_at_start};
use super::{FIRST_KEY, Part, Result, Row, Step};
use crate::error::{BackendError, BackendErrorKind};
use crate::id::{Name, PromptId, Timestamp};
use crate::record::{NameRecord, PromptRecord};
use crate::request::Page;

impl Step<'_> {
    /// A name's record.
    pub(crate) fn name_record(&self, name: Name) -> Result<Option<NameRecord>> {
        self.name(&name)
    }

    /// The records of prompts that are known and can be read.
    pub(crate) fn prompt_records(&self, prompts: Vec<PromptId>) -> Result<Vec<PromptRecord>> {
        prompts.into_iter().filter_map(|id| self.readable(self.prompt_record(id)).transpose()).collect()
    }

    /// Up to `limit` items of the rows under `prefix` after `after`. `item` gets the key without the
    /// prefix and the row; rows for which it returns none are passed over, so a page is shorter only at the end. The request reads for
    /// its answer only: the commit does not expect these rows unchanged.
    pub(super) fn page<T>(
        &self,
        prefix: &Key,
        after: Option<Key>,
        limit: usize,
        item: impl Fn(&Self, &[u8], &[u8]) -> Result<Option<T>>,
    ) -> Result<Vec<T>> {
        let (mut last, mut items, mut wanted) = (after, Vec::new(), limit);
        self.looking(|step| {
            while items.len() < limit {
                let rows = match &last {
                    Some(last) => step.txn.after(prefix, last, wanted),
                    None => step.txn.under(prefix, wanted),
                };
                let Some((key, _)) = rows.last() else { break };
                last = Some(prefix.clone().followed_by(key));
                for (key, row) in &rows {
                    items.extend(item(step, key, row)?);
                }
                // Otherwise it would read on in place of the rows that it lacks.
                if step.txn.lacks_rows() {
                    break;
                }
                // The attempt begins anew with each read, so few reads pass over many rows.
                wanted = wanted.saturating_mul(2).clamp(64, Page::MOST);
            }
            items.truncate(limit);
            Ok(items)
        })
    }

    /// The earliest moment after `after` for which a prompt waits.
    pub(crate) fn next_due(&self, after: Timestamp) -> Result<Option<Timestamp>> {
        let rows = self.txn.after(&Key::of(Table::Due), &Key::of(Table::Due).time(after), 1);
        rows.first().map(|(key, _)| time_at_start(key)).transpose()
    }

    /// The earliest moment at which time has to do something: a prompt or a question expires.
    pub(crate) fn next_expiry(&self) -> Result<Option<Timestamp>> {
        let mut next = None;
        for table in [Table::Expiries, Table::Deadlines] {
            let rows = self.txn.under(&Key::of(table), 1);
            let first = rows.first().map(|(key, _)| time_at_start(key)).transpose()?;
            next = [next, first].into_iter().flatten().min();
        }
        Ok(next)
    }

    /// Names whose deletion has begun and not ended.
    pub(crate) fn deleting(&self, limit: usize) -> Result<Vec<Name>> {
        let rows = self.txn.under(&Key::of(Table::Deleting), limit);
        rows.into_iter().map(|(key, _)| name_at_start(&key)).collect()
    }

    /// Writes the rows of an export, if there are none.
    pub(crate) fn fill(&mut self, rows: &[Row]) -> Result<()> {
        if !self.txn.scan(Part::Values, FIRST_KEY, &[u8::MAX], 1).is_empty() {
            let message = "the fleet's file is not empty: import into a new file; nothing was imported";
            return Err(BackendError::new(BackendErrorKind::Damaged, message));
        }
        rows.iter().for_each(|(key, value)| self.txn.put(key, value));
        Ok(())
    }
}
