//! The rules of a backend over an ordered map: each request is one function over one transaction. The memory backend and the
//! embedded backend both run these functions.

mod lost;
mod maintain;
mod messages;
mod names;
mod nodes;
mod prompts;
mod query;
mod questions;
mod quota;
#[cfg(test)]
mod tests;
mod turns;
mod txn;
mod waiting;

pub(crate) use lost::unreadable;
#[cfg(feature = "postgres")]
pub(crate) use txn::checked_json;
pub(crate) use txn::{Draft, MapTxn, Result, Txn, is_key};

use crate::id::{Name, PromptId, Timestamp};
use crate::record::{NameRecord, NameState, NodeRecord, NodeState, PromptRecord};
use crate::request::{Change, Ownership, Transition};
use txn::{Key, Table};

/// The version of the keys and rows, as the file holds it.
pub(crate) const FORMAT: &[u8] = b"1";

/// The key of the version. No [`Table`] begins with its byte, and every version finds it there.
pub(crate) const FORMAT_KEY: &[u8] = b"\0";

/// Rows of one kind that a request removes at once; what is over it is left for the next request.
const BATCH: usize = 256;

/// The first key of the first [`Table`]: the rows of the registry begin here.
pub(crate) const FIRST_KEY: &[u8] = &[Table::Meta as u8];

/// A key and its value.
pub(crate) type Row = (Vec<u8>, Vec<u8>);

/// A request in a transaction: the moment at which it happens, and what it has changed.
pub(crate) struct Step<'a> {
    txn: &'a mut dyn Txn,
    now: Timestamp,
    told: &'a mut Told,
}

/// Changes and transitions, told once the requests that made them are carried out.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) changes: Vec<Change>,
    pub(crate) transitions: Vec<Transition>,
}

impl<'a> Step<'a> {
    pub(crate) fn new(txn: &'a mut dyn Txn, now: Timestamp, told: &'a mut Told) -> Self {
        Self { txn, now, told }
    }

    fn name(&self, name: &Name) -> Result<Option<NameRecord>> {
        self.txn.read(&Key::of(Table::Names).name(name))
    }

    fn put_name(&mut self, record: &NameRecord) -> Result<()> {
        self.txn.write(&Key::of(Table::Names).name(&record.name), record)?;
        self.list_waiting(record)
    }

    fn made(&mut self, transition: Transition) {
        self.told.transitions.push(transition);
    }

    fn prompt(&self, id: PromptId) -> Result<Option<PromptRecord>> {
        self.txn.read(&Key::of(Table::Prompts).prompt(id))
    }

    fn put_prompt(&mut self, record: &PromptRecord) -> Result<()> {
        self.txn.write(&Key::of(Table::Prompts).prompt(record.id), record)
    }

    /// The name's record, if this owner is its owner still.
    fn owned(&self, owner: &Ownership) -> Result<Option<NameRecord>> {
        let Some(record) = self.name(&owner.name)? else { return Ok(None) };
        let owns = matches!(&record.state, NameState::Owned { node, .. } if *node == owner.node);
        let alive = self.node(owner.node)?.is_some_and(|node| node.state != NodeState::Dead);
        Ok((owns && alive && record.term == owner.term).then_some(record))
    }

    /// The conversation of a name, if this owner is its owner still.
    pub(crate) fn conversation_of(&self, owner: &Ownership) -> Result<Option<uuid::Uuid>> {
        Ok(self.owned(owner)?.map(|record| record.conversation))
    }

    fn node(&self, id: crate::id::NodeId) -> Result<Option<NodeRecord>> {
        self.txn.read(&Key::of(Table::Nodes).node(id))
    }
}
