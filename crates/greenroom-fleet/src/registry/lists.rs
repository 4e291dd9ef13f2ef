//! Lists for people and services: names, the prompts of a name, and the labels by which both are found.
//!
//! A name's prompts stand in `PromptsOf` from accept to forget, the newest first: the order in the key is counted backwards. The row has
//! what is needed to remove the other rows that lead to the prompt, also if its record cannot be read. A label has a row in `NameLabels` or
//! `PromptLabels`, by key and value first, so that one index serves a tenant and all of them.

use serde::{Deserialize, Serialize};

use super::key::{Key, Table, last_id, name_at_start, number};
use super::{Part, Result, Step, parsed};
use crate::error::{BackendError, BackendErrorKind};
use crate::id::{Name, PromptId};
use crate::query::lists::{
    NameFilter, NamePage, NameQuery, PromptCursor, PromptEntry, PromptPage, PromptQuery,
};
use crate::record::label::Labels;
use crate::record::{NameRecord, NameState, PromptRecord};

/// Rows that a page with a filter looks at.
const LOOK: usize = 1024;
/// Bytes of contents and outcomes of a page of prompts. The last one may have more.
const BYTES: u64 = 1 << 20;

/// The value of a prompt's row in `PromptsOf`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct PromptPlace {
    /// The application's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    labels: Labels,
}

impl Step<'_> {
    /// A page of names.
    pub(crate) fn names(&self, query: NameQuery) -> Result<NamePage> {
        self.looking(|step| {
            let list = match (&query.label, query.only) {
                (Some((key, value)), _) => Key::of(Table::NameLabels).text(key).text(value),
                (_, Some(NameFilter::Stuck | NameFilter::Quarantined)) => Key::of(Table::Stuck),
                _ => Key::of(Table::Names),
            };
            let prefix = match &query.tenant {
                Some(tenant) => list.clone().tenant(tenant).text_beginning(&query.prefix),
                None => list.clone(),
            };
            let start = &prefix.bytes()[list.bytes().len()..];
            let (mut page, mut looked) = (NamePage::default(), 0);
            let limit = query.limit.min(NameQuery::MOST);
            let mut after = query.after.as_ref().map(|after| list.clone().name(after));
            while page.names.len() < limit && looked < LOOK {
                let wanted = if looked == 0 { limit } else { LOOK - looked };
                let rows = match &after {
                    Some(after) => step.txn.after(&prefix, after, wanted),
                    None => step.txn.under(&prefix, wanted),
                };
                (looked, page.next) = (looked + rows.len(), None);
                let is_last = rows.len() < wanted;
                let mut rows = rows.into_iter();
                for (key, _) in &mut rows {
                    let name = name_at_start(&[start, &key].concat())?;
                    page.names.extend(step.readable(step.name(&name))?.filter(|name| query.takes(name)));
                    page.next = Some(name);
                    if page.names.len() == limit {
                        break;
                    }
                }
                // Stop: load the missing records before reading further.
                if step.txn.lacks_rows() {
                    break;
                }
                if is_last && rows.len() == 0 {
                    page.next = None;
                    break;
                }
                after = page.next.as_ref().map(|name| list.clone().name(name));
            }
            Ok(page)
        })
    }

    /// A page of the prompts of a name, the newest first.
    pub(crate) fn prompts(&self, name: Name, query: PromptQuery) -> Result<PromptPage> {
        self.looking(|step| {
            let prefix = match &query.label {
                Some((key, value)) => Key::of(Table::PromptLabels).text(key).text(value).name(&name),
                None => prompts_of(&name),
            };
            let place = |cursor: PromptCursor| prefix.clone().number(!cursor.order).prompt(cursor.prompt);
            let limit = query.limit.min(PromptQuery::MOST);
            let (mut found, mut after, mut looked) = (Vec::new(), query.after.map(place), 0);
            let mut next = None;
            while found.len() < limit && looked < LOOK {
                let wanted = if looked == 0 { limit } else { LOOK - looked };
                let rows = match &after {
                    Some(after) => step.txn.after(&prefix, after, wanted),
                    None => step.txn.under(&prefix, wanted),
                };
                looked += rows.len();
                let is_last = rows.len() < wanted;
                let mut rows = rows.into_iter();
                for (key, _) in &mut rows {
                    let cursor = cursor_of(&key)?;
                    let record = step.readable(step.prompt_record(cursor.prompt))?;
                    found.extend(record.filter(|record| query.takes(record)));
                    next = Some(cursor);
                    if found.len() == limit {
                        break;
                    }
                }
                if step.txn.lacks_rows() {
                    break;
                }
                if is_last && rows.len() == 0 {
                    next = None;
                    break;
                }
                after = next.map(place);
            }
            step.entries_of_page(found, next)
        })
    }

    /// The prompts of a page with their contents and outcomes, as many as have some bytes.
    fn entries_of_page(&self, found: Vec<PromptRecord>, next: Option<PromptCursor>) -> Result<PromptPage> {
        let size = |table: Table, id: PromptId| {
            let key = Key::of(table).prompt(id);
            let rows = self.txn.scan(Part::Sizes, key.bytes(), &key.end(), 1);
            rows.first().map_or(Ok(0), |(_, size)| number(size))
        };
        let mut sizes = Vec::with_capacity(found.len());
        for record in &found {
            sizes.push(size(Table::Contents, record.id)? + size(Table::Outcomes, record.id)?);
        }
        let mut page = PromptPage { prompts: Vec::new(), next };
        if self.txn.lacks_rows() {
            return Ok(page);
        }
        let (mut bytes, all) = (0, found.len());
        for (record, size) in found.into_iter().zip(sizes) {
            if bytes >= BYTES {
                break;
            }
            bytes += size;
            let content = self.readable(self.content(record.id))?;
            let outcome = self.readable(self.outcome(record.id))?;
            page.prompts.push(PromptEntry { record, content, outcome });
        }
        if page.prompts.len() < all {
            page.next = page.prompts.last().map(PromptEntry::cursor);
        }
        Ok(page)
    }

    /// Sets the labels of a name, in place of those that it has. `false`: the name is not known, or is being deleted.
    pub(crate) fn set_labels(&mut self, name: Name, labels: Labels) -> Result<bool> {
        check_labels(&labels)?;
        let Some(mut record) = self.name(&name)? else { return Ok(false) };
        match record.state {
            NameState::Deleting { .. } => return Ok(false),
            // Its record may have been read for the other backend already.
            NameState::Departing { .. } => return Err(BackendError::moves(&name)),
            _ => {}
        }
        if record.labels != labels {
            self.index_labels(&record, false);
            record.labels = labels;
            self.index_labels(&record, true);
            self.put_name(&mut record)?;
        }
        Ok(true)
    }

    /// Enters a name in the index of labels, or removes it.
    pub(super) fn index_labels(&mut self, record: &NameRecord, is_listed: bool) {
        for (key, value) in record.labels.iter() {
            let place = Key::of(Table::NameLabels).text(key).text(value).name(&record.name);
            if is_listed { self.txn.mark(&place) } else { self.txn.remove(&place) }
        }
    }

    /// Enters a new prompt in the lists of its name's prompts.
    pub(super) fn list_prompt(&mut self, prompt: &PromptRecord) -> Result<()> {
        let row = PromptPlace { key: prompt.key.clone(), labels: prompt.labels.clone() };
        let place = place_of(prompt);
        self.txn.write(&place, &row)?;
        labels_of(&place, &row).iter().for_each(|place| self.txn.mark(place));
        Ok(())
    }

    /// Removes a prompt from the lists of its name's prompts. `place` is its key in `PromptsOf`, if its name had one.
    pub(super) fn unlist_prompt(&mut self, id: PromptId, place: &Key) -> Result<()> {
        let row = self.readable(self.txn.read::<PromptPlace>(place))?.unwrap_or_default();
        labels_of(place, &row).iter().for_each(|place| self.txn.remove(place));
        if let Some(key) = row.key {
            let of_key = key_of(&name_at_start(place.rest())?, &key);
            // A session of the same name that was made anew may use the key for another prompt.
            if self.readable(self.txn.read::<PromptId>(&of_key))? == Some(id) {
                self.txn.remove(&of_key);
            }
        }
        self.txn.remove(place);
        Ok(())
    }
}

/// Refuses labels that cannot be kept.
pub(super) fn check_labels(labels: &Labels) -> Result<()> {
    labels.misfit().map_or(Ok(()), |why| Err(BackendError::new(BackendErrorKind::Invalid, why)))
}

/// The beginning of the keys of a name's prompts.
pub(crate) fn prompts_of(name: &Name) -> Key {
    Key::of(Table::PromptsOf).name(name)
}

/// The place of a prompt among those of its name.
pub(super) fn place_of(prompt: &PromptRecord) -> Key {
    prompts_of(&prompt.name).number(!prompt.order).prompt(prompt.id)
}

/// The keys of the rows that lead to a prompt, by its row in `PromptsOf`.
pub(crate) fn index_of_prompt(place: &[u8], row: &[u8]) -> Result<Vec<Key>> {
    let (row, place) = (parsed::<PromptPlace>(row)?, Key::of(Table::PromptsOf).followed_by(&place[1..]));
    let mut index = labels_of(&place, &row);
    if let Some(key) = &row.key {
        index.push(key_of(&name_at_start(place.rest())?, key));
    }
    Ok(index)
}

/// The places of a prompt's labels.
fn labels_of(place: &Key, row: &PromptPlace) -> Vec<Key> {
    let label = |(key, value)| Key::of(Table::PromptLabels).text(key).text(value).followed_by(place.rest());
    row.labels.iter().map(label).collect()
}

/// The place at the end of a key.
fn cursor_of(key: &[u8]) -> Result<PromptCursor> {
    let order = key.len().checked_sub(24).map(|start| &key[start..start + 8]);
    Ok(PromptCursor { order: !number(order.unwrap_or_default())?, prompt: PromptId(last_id(key)?) })
}

/// The key of the row that leads to a prompt by the application's key.
pub(super) fn key_of(name: &Name, key: &str) -> Key {
    Key::of(Table::Keys).name(name).text(key)
}
