//! Nodes and their leases.

mod commands;

use super::txn::{Key, Table, last_id, readable, text};
use super::{BATCH, Result, Step};
use crate::error::{BackendError, BackendErrorKind};
use crate::id::{Name, NodeId};
use crate::record::{NodeRecord, NodeState};
use crate::request::{Change, Join, Renewed};

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
        let node = NodeRecord {
            id: join.node,
            host: join.host,
            state: NodeState::Up,
            renewals: 0,
            renewed_at: self.now,
            lease_until: self.now.after(join.lease),
            owns: 0,
            capacity: join.capacity,
            asked_to_drain: false,
        };
        self.put_node(&node)?;
        Ok(node)
    }

    /// Renews a node's lease, and says that it is up or draining.
    pub(crate) fn renew(
        &mut self,
        id: NodeId,
        lease: std::time::Duration,
        draining: bool,
    ) -> Result<Renewed> {
        let Some(mut node) = self.node(id)?.filter(|node| node.state != NodeState::Dead) else {
            return Ok(Renewed::Dead);
        };
        node.renewals += 1;
        node.renewed_at = self.now;
        node.lease_until = self.now.after(lease);
        if draining {
            node.state = NodeState::Draining;
        }
        self.put_node(&node)?;
        Ok(Renewed::Kept(node))
    }

    /// Marks a living node, which drains when it finds the mark with its next renewal.
    pub(crate) fn ask_to_drain(&mut self, id: NodeId) -> Result<bool> {
        let Some(mut node) = self.node(id)?.filter(|node| node.state != NodeState::Dead) else {
            return Ok(false);
        };
        node.asked_to_drain = true;
        self.put_node(&node)?;
        Ok(true)
    }

    /// Says that a node has ended. What it owns can be claimed.
    pub(crate) fn leave(&mut self, id: NodeId) -> Result<()> {
        let Some(node) = self.node(id)? else { return Ok(()) };
        self.tell_freed(&node)?;
        self.died(node)
    }

    /// Tells of the names of a node that dies now and of their prompts that wait or go on. A hint: there may be more names.
    fn tell_freed(&mut self, node: &NodeRecord) -> Result<()> {
        if node.state == NodeState::Dead {
            return Ok(());
        }
        for (key, _) in self.txn.under(&Key::of(Table::Owned).node(node.id), BATCH)? {
            let name = text(&key)?;
            let record = readable(self.name(&name)).transpose()?.flatten();
            if record.is_some_and(|record| record.queued > 0 || record.running.is_some()) {
                self.told.changes.push(Change::Freed(name));
            }
        }
        Ok(())
    }

    /// Says that a node is dead, because its counter stood still at `renewals` for a lease. `false`: the backend's clock has
    /// not come to the end of the lease, or the node has renewed it.
    pub(crate) fn declare_dead(&mut self, id: NodeId, renewals: u64) -> Result<bool> {
        let Some(node) = self.node(id)? else { return Ok(true) };
        if node.state == NodeState::Dead {
            return Ok(true);
        }
        // A clock behind the last renewal was set back, and says nothing about the lease.
        let runs = node.renewed_at <= self.now && self.now < node.lease_until;
        if node.renewals != renewals || runs {
            return Ok(false);
        }
        self.tell_freed(&node)?;
        self.died(node)?;
        Ok(true)
    }

    /// Says that every node is dead: no process of an earlier opening runs any more.
    pub(crate) fn all_dead(&mut self) -> Result<()> {
        for (key, _) in self.txn.under(&Key::of(Table::Nodes), usize::MAX)? {
            let id = NodeId(last_id(&key)?);
            let node = match readable(self.node(id)).transpose()?.flatten() {
                Some(node) if node.state == NodeState::Dead => continue,
                Some(node) => node,
                // The names of a node that cannot be read are found by its id.
                None => self.lost_node(id)?,
            };
            self.died(node)?;
        }
        Ok(())
    }

    fn lost_node(&self, id: NodeId) -> Result<NodeRecord> {
        let owns = self.txn.under(&Key::of(Table::Owned).node(id), usize::MAX)?.len();
        let owns = u32::try_from(owns).unwrap_or(u32::MAX);
        let (renewed_at, lease_until) = (self.now, self.now);
        let (host, state) = (String::new(), NodeState::Dead);
        Ok(NodeRecord {
            id,
            host,
            state,
            renewals: 0,
            renewed_at,
            lease_until,
            owns,
            capacity: 0,
            asked_to_drain: false,
        })
    }

    /// A page of nodes that can be read, and are alive or own names still, in the order of their ids.
    pub(crate) fn nodes(&self, after: Option<NodeId>, limit: usize) -> Result<Vec<NodeRecord>> {
        let after = after.map(|after| Key::of(Table::Nodes).node(after));
        self.page(&Key::of(Table::Nodes), after, limit, |_, _, row| {
            readable(serde_json::from_slice(row).map_err(BackendError::damaged)).transpose()
        })
    }

    /// `false` for nodes that are dead or not known.
    pub(super) fn is_alive(&self, id: NodeId) -> Result<bool> {
        Ok(self.node(id)?.is_some_and(|node| node.state != NodeState::Dead))
    }

    /// Counts a name for its owner. The record of a dead node goes with its last name.
    pub(super) fn count_owned(&mut self, id: NodeId, name: &Name, by: i32) -> Result<()> {
        let key = Key::of(Table::Owned).node(id).name(name);
        if by > 0 {
            self.txn.mark(&key)?
        } else {
            self.txn.remove(&key)?
        }
        let Some(mut node) = self.node(id)? else { return Ok(()) };
        node.owns = node.owns.saturating_add_signed(by);
        if node.state == NodeState::Dead { self.died(node) } else { self.put_node(&node) }
    }

    fn died(&mut self, mut node: NodeRecord) -> Result<()> {
        node.state = NodeState::Dead;
        if node.owns == 0 {
            return self.txn.remove(&Key::of(Table::Nodes).node(node.id));
        }
        self.put_node(&node)
    }

    fn put_node(&mut self, node: &NodeRecord) -> Result<()> {
        self.txn.write(&Key::of(Table::Nodes).node(node.id), node)
    }
}
