//! Nodes and their leases.
//!
//! A node has three rows, by who changes them: what it is and whether it is dead, which the requests of owners on it expect; its lease, which
//! it renews every few seconds, with the marks of a drain; and the counter of the names that it owns. A renewal expects its lease alone, so
//! it waits for no owner's request. The lease of a node that has died has ended.

mod commands;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::key::{Key, Table, last_id, name_at_start};
use super::{BATCH, Result, Step, parsed};
use crate::error::{BackendError, BackendErrorKind};
use crate::id::{Name, NodeId, Timestamp};
use crate::record::{NodeRecord, NodeState};
use crate::request::{Change, Join, Owned, Page};

/// A node without its lease.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct NodeRow {
    pub(super) host: String,
    pub(super) dead: bool,
    capacity: u32,
}

/// The lease of a node.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Lease {
    renewals: u64,
    renewed_at: Timestamp,
    lease_until: Timestamp,
    pub(super) draining: bool,
    asked_to_drain: bool,
    ended: bool,
}

impl Step<'_> {
    /// Adds a node. A node that joins again with its id finds its record.
    pub(crate) fn join(&mut self, join: Join) -> Result<NodeRecord> {
        if let Some(known) = self.node(join.node)? {
            if known.host != join.host {
                return Err(BackendError::id_reused("node", known.id));
            }
            if known.state == NodeState::Dead {
                let message = format!("the node {} is dead: join with a new id", known.id);
                return Err(BackendError::new(BackendErrorKind::Invalid, message));
            }
            return Ok(known);
        }
        let Join { node, host, lease, capacity } = join;
        self.put_node(node, &NodeRow { host, dead: false, capacity })?;
        let lease_until = self.now.after(lease);
        self.put_lease(node, &Lease { renewed_at: self.now, lease_until, ..Lease::default() })?;
        self.node(node)?.ok_or_else(|| BackendError::missing("node", node))
    }

    /// Renews a node's lease, and says that it is up or draining.
    pub(crate) fn renew(&mut self, id: NodeId, lease: Duration, draining: bool) -> Result<Owned<NodeRecord>> {
        let Some(mut renewed) = self.running_lease(id)? else { return Ok(Owned::Fenced) };
        renewed.renewals += 1;
        renewed.draining |= draining;
        (renewed.renewed_at, renewed.lease_until) = (self.now, self.now.after(lease));
        self.put_lease(id, &renewed)?;
        let node = self.looking(|step| step.node(id))?;
        Ok(node.map_or(Owned::Fenced, Owned::Done))
    }

    /// Marks a living node, which drains when it finds the mark with its next renewal.
    pub(crate) fn ask_to_drain(&mut self, id: NodeId) -> Result<bool> {
        let Some(mut lease) = self.running_lease(id)? else { return Ok(false) };
        lease.asked_to_drain = true;
        self.put_lease(id, &lease)?;
        Ok(true)
    }

    /// Says that a node has ended. What it owns can be claimed.
    pub(crate) fn leave(&mut self, id: NodeId) -> Result<()> {
        let Some(node) = self.node_row(id)?.filter(|node| !node.dead) else { return Ok(()) };
        self.tell_freed(id)?;
        self.died(id, node)
    }

    /// Tells of the names of a node that dies now and of their prompts that wait or go on. A hint: there may be more names.
    fn tell_freed(&mut self, id: NodeId) -> Result<()> {
        for (key, _) in self.txn.under(&Key::of(Table::Owned).node(id), BATCH) {
            let name = name_at_start(&key)?;
            let record = self.looking(|step| step.readable(step.name(&name)))?;
            if record.is_some_and(|record| record.queued > 0 || record.turns().next().is_some()) {
                self.told.changes.push(Change::Freed(name));
            }
        }
        Ok(())
    }

    /// Says that a node is dead, because its counter stood still at `renewals` for a lease. `false`: the backend's clock has
    /// not come to the end of the lease, or the node has renewed it.
    pub(crate) fn declare_dead(&mut self, id: NodeId, renewals: u64) -> Result<bool> {
        let lease = self.lease(id)?;
        let Some(node) = self.node_row(id)? else { return Ok(true) };
        if node.dead {
            return Ok(true);
        }
        // A clock behind the last renewal was set back, and says nothing about the lease.
        let runs = lease.renewed_at <= self.now && self.now < lease.lease_until;
        if lease.renewals != renewals || runs {
            return Ok(false);
        }
        self.tell_freed(id)?;
        self.died(id, node)?;
        Ok(true)
    }

    /// Says that every node is dead: no process of an earlier opening runs any more.
    pub(crate) fn all_dead(&mut self) -> Result<()> {
        let rows = self.txn.under(&Key::of(Table::Nodes), usize::MAX);
        let ids = rows.iter().map(|(key, _)| last_id(key).map(NodeId)).collect::<Result<Vec<_>>>()?;
        for id in ids {
            // The names of a node that cannot be read are found by its id.
            let node = self.readable(self.node_row(id))?.unwrap_or_default();
            if !node.dead {
                self.died(id, node)?;
            }
        }
        Ok(())
    }

    /// A page of nodes that can be read, and are alive or own names still, in the order of their ids.
    pub(crate) fn nodes(&self, after: Option<NodeId>, limit: usize) -> Result<Vec<NodeRecord>> {
        let after = after.map(|after| Key::of(Table::Nodes).node(after));
        self.page(&Key::of(Table::Nodes), after, limit.min(Page::MOST), |step, key, row| {
            let id = NodeId(last_id(key)?);
            let whole = parsed(row).and_then(|node| step.whole_node(id, node));
            step.readable(whole.map(Some))
        })
    }

    pub(super) fn node(&self, id: NodeId) -> Result<Option<NodeRecord>> {
        let node = self.node_row(id)?;
        node.map(|node| self.whole_node(id, node)).transpose()
    }

    pub(super) fn node_row(&self, id: NodeId) -> Result<Option<NodeRow>> {
        self.txn.read(&Key::of(Table::Nodes).node(id))
    }

    fn whole_node(&self, id: NodeId, node: NodeRow) -> Result<NodeRecord> {
        let NodeRow { host, dead, capacity } = node;
        let (lease, owns) = (self.lease(id)?, self.txn.count(&owned_by(id))?);
        let owns = u32::try_from(owns).unwrap_or(u32::MAX);
        let Lease { renewals, renewed_at, lease_until, draining, asked_to_drain, .. } = lease;
        let state = match (dead, draining) {
            (true, _) => NodeState::Dead,
            (false, true) => NodeState::Draining,
            (false, false) => NodeState::Up,
        };
        Ok(NodeRecord { id, host, state, renewals, renewed_at, lease_until, owns, capacity, asked_to_drain })
    }

    pub(super) fn lease(&self, id: NodeId) -> Result<Lease> {
        Ok(self.txn.read(&Key::of(Table::Leases).node(id))?.unwrap_or_default())
    }

    /// `None` for nodes that are dead or not known.
    fn running_lease(&self, id: NodeId) -> Result<Option<Lease>> {
        let lease: Option<Lease> = self.txn.read(&Key::of(Table::Leases).node(id))?;
        Ok(lease.filter(|lease| !lease.ended))
    }

    fn put_lease(&mut self, id: NodeId, lease: &Lease) -> Result<()> {
        self.txn.write(&Key::of(Table::Leases).node(id), lease)
    }

    /// `false` for nodes that are dead or not known.
    pub(super) fn is_alive(&self, id: NodeId) -> Result<bool> {
        Ok(self.node_row(id)?.is_some_and(|node| !node.dead))
    }

    /// Counts a name for its owner and for its tenant. The rows of a dead node go with its last name. A name that a node without its record
    /// has taken from its owner does not count any more, and is not taken from the counts again.
    pub(super) fn count_owned(&mut self, id: NodeId, name: &Name, by: i64) -> Result<()> {
        let key = Key::of(Table::Owned).node(id).name(name);
        if by > 0 {
            self.txn.mark(&key)
        } else if self.txn.get(key.bytes()).is_none() {
            return Ok(());
        } else {
            self.txn.remove(&key)
        }
        self.txn.add(&owned_by(id), by);
        self.add_to(Table::LiveOf, name.tenant(), by);
        match self.node_row(id)? {
            Some(node) if node.dead => self.died(id, node),
            _ => Ok(()),
        }
    }

    /// Marks a node as dead, or removes its rows if it owns no name. A dead node takes no names, so its counter only falls from
    /// then on.
    fn died(&mut self, id: NodeId, mut node: NodeRow) -> Result<()> {
        if self.txn.exact_count(&owned_by(id))? == 0 {
            self.txn.remove(&Key::of(Table::Leases).node(id));
            self.txn.remove(&owned_by(id));
            self.txn.remove(&Key::of(Table::Nodes).node(id));
            return Ok(());
        }
        let lease = self.readable(self.lease(id).map(Some))?.unwrap_or_default();
        if !lease.ended {
            self.put_lease(id, &Lease { ended: true, ..lease })?;
        }
        node.dead = true;
        self.put_node(id, &node)
    }

    fn put_node(&mut self, id: NodeId, node: &NodeRow) -> Result<()> {
        self.txn.write(&Key::of(Table::Nodes).node(id), node)
    }
}

fn owned_by(id: NodeId) -> Key {
    Key::of(Table::OwnedBy).node(id)
}
