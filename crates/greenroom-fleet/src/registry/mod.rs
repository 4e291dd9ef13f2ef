//! The rules of a fleet over an ordered map of rows: each request is one function of the rows that it reads. They are the same on every
//! backend.

mod account;
mod content;
mod erasure;
mod feed;
mod lists;
mod lost;
mod map;
mod messages;
mod moving;
mod names;
mod nodes;
mod prompts;
mod query;
mod questions;
#[cfg(test)]
mod tests;
mod transcripts;
mod turns;
mod waiting;

use std::time::Duration;

pub(crate) use account::usage::days_of_name;
pub(crate) use erasure::files_of;
pub(crate) use lists::{index_of_prompt, prompts_of};
pub(crate) use lost::unreadable;
#[cfg(any(feature = "postgres", feature = "testkit"))]
pub(crate) use map::counter;
#[cfg(feature = "postgres")]
pub(crate) use map::key::is_counter;
pub(crate) use map::key::{Key, Table, is_key, last_id, number, time_at_start};
pub use map::rows::Lane;
pub(crate) use map::rows::{Attempt, run_alone, try_on};
pub(crate) use map::txn::depth;
use map::txn::{Txn, parsed};
pub use map::{Commit, Committed, Map, MapMut, Part, Range, Row, Rows, Wanted, commit_rows, read_rows};
pub(crate) use map::{MemoryMap, sums, write};
use map::{key, txn};
pub(crate) use messages::runs;
pub(crate) use moving::{end_of_prompt, rows_of_prompt};
pub(crate) use transcripts::{entries_of, transcripts_of};

use crate::error::BackendErrorKind;
pub(crate) use crate::error::Result;
use crate::event::FleetEvent;
use crate::id::{Name, PromptId, Timestamp};
use crate::record::{NameRecord, NameState, PromptRecord};
use crate::request::{Change, Ownership};

/// The version of the keys and rows. The file holds it in digits.
pub(crate) const FORMAT: u32 = 1;

/// The key of the version. No [`Table`] begins with its byte, and every version finds it there.
pub(crate) const FORMAT_KEY: &[u8] = b"\0";

/// Rows of one kind that a request removes at once; what is over it is left for the next request.
const BATCH: usize = 256;

/// The first key of the first [`Table`]: the rows of the registry begin here.
pub(crate) const FIRST_KEY: &[u8] = &[Table::Queued as u8];

/// A request while it runs: its rows, the moment at which it happens, and what it has changed.
pub(crate) struct Step<'a> {
    txn: Txn<'a>,
    now: Timestamp,
    told: Told,
}

/// Changes and transitions, told once the requests that made them are carried out.
#[derive(Debug, Default)]
pub struct Told {
    /// Changes, for everybody.
    pub changes: Vec<Change>,
    /// Transitions, for this process.
    pub transitions: Vec<FleetEvent>,
}

impl Step<'_> {
    /// Passes over a record that cannot be read, so that it hides no other record of a list.
    fn readable<T>(&self, record: Result<Option<T>>) -> Result<Option<T>> {
        match record {
            Err(error) if error.kind() == BackendErrorKind::Damaged => {
                // A record seems to be missing while it is not read.
                if !self.txn.lacks_rows() {
                    tracing::error!(%error, "a record of the fleet is passed over");
                }
                Ok(None)
            }
            record => record,
        }
    }

    /// Reads for the answer or for a hint: the commit does not expect these rows unchanged.
    fn looking<T>(&self, read: impl FnOnce(&Self) -> T) -> T {
        let only_looked = self.txn.only_look(true);
        let found = read(self);
        self.txn.only_look(only_looked);
        found
    }

    /// The first `limit` entries of a list by time whose moments have come, with their whole keys.
    fn passed(&self, list: Table, limit: usize) -> Vec<Row> {
        self.txn.before(list, self.now.after(Duration::from_millis(1)), limit)
    }

    fn name(&self, name: &Name) -> Result<Option<NameRecord>> {
        self.txn.read(&Key::of(Table::Names).name(name))
    }

    /// Writes a name's record, and its places in the lists of names that can run and of stuck ones.
    fn put_name(&mut self, record: &mut NameRecord) -> Result<()> {
        self.list_waiting(record)?;
        let is_stuck = record.is_stuck();
        if std::mem::replace(&mut record.stuck, is_stuck) != is_stuck {
            let place = Key::of(Table::Stuck).name(&record.name);
            if is_stuck { self.txn.mark(&place) } else { self.txn.remove(&place) }
        }
        self.txn.write(&Key::of(Table::Names).name(&record.name), record)
    }

    fn made(&mut self, transition: FleetEvent) {
        self.told.transitions.push(transition);
    }

    /// A prompt's record.
    pub(crate) fn prompt_record(&self, id: PromptId) -> Result<Option<PromptRecord>> {
        self.txn.read(&Key::of(Table::Prompts).prompt(id))
    }

    fn put_prompt(&mut self, record: &PromptRecord) -> Result<()> {
        self.txn.write(&Key::of(Table::Prompts).prompt(record.id), record)
    }

    /// The name's record, if this owner is its owner still.
    fn owned(&self, owner: &Ownership) -> Result<Option<NameRecord>> {
        let alive = self.is_alive(owner.node)?;
        let Some(record) = self.name(&owner.name)? else { return Ok(None) };
        let owns = matches!(&record.state, NameState::Owned { node, .. } if *node == owner.node);
        Ok((owns && alive && record.term == owner.term).then_some(record))
    }
}
