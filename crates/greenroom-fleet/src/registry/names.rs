//! Owners of names: claim, release, quarantine.

use super::erasure::files_key;
use super::key::{Key, Table, name_at_start};
use super::lost::process_key;
use super::{Result, Step};
use crate::error::BackendError;
use crate::id::{AttemptId, Name, NodeId, Tenant, Term};
use crate::query::feed::FeedEvent;
use crate::record::{Credential, NameRecord, NameState, Quarantine};
use crate::request::{ActivationFailed, Claim, Claimed, Counted, Marked, Owned, Ownership, Page};

impl Step<'_> {
    pub(crate) fn claim(&mut self, claim: Claim) -> Result<Claimed> {
        self.txn.want(&Key::of(Table::Names).name(&claim.name));
        self.txn.want(&Key::of(Table::DeletedTerm).tenant(claim.name.tenant()));
        self.want_place(&claim.name, 0);
        self.want_quota(claim.name.tenant());
        // A node drains by its own word, so this is no matter of a moment.
        let drains = self.looking(|step| step.lease(claim.node))?.draining;
        let Some(node) = self.node_row(claim.node)?.filter(|node| !node.dead) else {
            return Ok(Claimed::NodeDown);
        };
        let Some(mut record) = self.name(&claim.name)? else { return Ok(Claimed::Gone) };
        match &record.state {
            NameState::Owned { claim: attempt, node: owner, .. }
                if *attempt == claim.attempt && *owner == claim.node =>
            {
                return Ok(Claimed::Won(record));
            }
            NameState::Owned { node: owner, .. } if self.is_alive(*owner)? => {
                return Ok(Claimed::Elsewhere(*owner));
            }
            NameState::Quarantined { why, .. } => return Ok(Claimed::Quarantined(why.clone())),
            NameState::Deleting { .. } | NameState::Departing { .. } => return Ok(Claimed::Gone),
            NameState::Owned { .. } | NameState::Free => {}
        }
        if let Some(host) = record.host.as_ref().filter(|host| **host != node.host) {
            return Ok(Claimed::OtherHost(host.clone()));
        }
        if drains {
            return Ok(Claimed::NodeDown);
        }
        let had_owner = matches!(record.state, NameState::Owned { .. });
        self.lose_owner(&mut record, claim.losses)?;
        if let Some(quarantine) = record.quarantine.clone() {
            self.free_or_quarantine(&mut record)?;
            return Ok(Claimed::Quarantined(quarantine.why));
        }
        if record.parked.is_some() {
            // Free the name from its lost owner, although nothing may run in it.
            if had_owner {
                self.free_or_quarantine(&mut record)?;
            }
            return Ok(Claimed::Parked);
        }
        let quota = self.quota_of(claim.name.tenant(), &claim.quota)?;
        if !self.may_live(claim.name.tenant(), &quota)? {
            // Free the name from its lost owner, although the claim is refused.
            if had_owner {
                self.free_or_quarantine(&mut record)?;
            }
            return Ok(Claimed::AtCap);
        }
        // Later than the terms of the tenant's deleted names: this one may have been deleted and made again. The deletion came before the
        // record that was read, so a look is enough.
        let deleted = self.looking(|step| step.deleted_term(claim.name.tenant()))?;
        record.term = Term(record.term.max(deleted).0 + 1);
        record.state = NameState::Owned { node: claim.node, claim: claim.attempt, since: self.now };
        self.count_owned(claim.node, &claim.name, 1)?;
        self.txn.mark(&files_key(&claim.name, &node.host));
        self.put_name(&mut record)?;
        Ok(Claimed::Won(record))
    }

    /// Gives a name back. `Done(true)`: a prompt waits. A name that another owner has is fenced.
    pub(crate) fn release(&mut self, owner: Ownership) -> Result<Owned<bool>> {
        self.want_place(&owner.name, 0);
        let Some(mut record) = self.left_by(&owner)? else {
            let record = self.released_before(&owner)?;
            return Ok(record.map_or(Owned::Fenced, |record| Owned::Done(record.queued > 0)));
        };
        self.free_or_quarantine(&mut record)?;
        Ok(Owned::Done(record.queued > 0))
    }

    /// Counts a failed activation and gives the name back, or quarantines it.
    pub(crate) fn activation_failed(&mut self, failed: ActivationFailed) -> Result<Owned<Option<u32>>> {
        let Some(mut record) = self.left_by(&failed.owner)? else {
            let record = self.released_before(&failed.owner)?;
            return Ok(record.map_or(Owned::Fenced, |record| Owned::Done(after_failure(&record))));
        };
        record.last_failure = Some(shortened(&failed.why));
        if let Some(Counted { kind, period, intensity }) = failed.counted {
            record.failures.retain(|at| self.now.since(*at) < period);
            record.failures.push(self.now);
            let count = u32::try_from(record.failures.len()).unwrap_or(u32::MAX);
            let too_many = || match intensity {
                0 | 1 => failed.why,
                _ => format!("{count} activations failed within {period:?}; the last one: {}", failed.why),
            };
            if count >= intensity.max(1) {
                record.quarantine.get_or_insert_with(|| Quarantine { kind, why: too_many() });
            }
        }
        self.free_or_quarantine(&mut record)?;
        Ok(Owned::Done(after_failure(&record)))
    }

    /// Notes the cause for which a node does not start the session of a name, unless the name is known to have failed by it.
    pub(crate) fn held_back(
        &mut self,
        name: Name,
        credential: Option<Credential>,
        why: String,
    ) -> Result<()> {
        let (record, why) = (self.name(&name)?, shortened(&why));
        let Some(mut record) = record else { return Ok(()) };
        let known = (record.last_failure.clone(), record.held_by.clone());
        match record.state {
            NameState::Free => {}
            // Its owner runs it, and notes only the credential.
            NameState::Owned { .. } if credential.is_some() => {}
            // A name that departs stays as it is.
            _ => return Ok(()),
        }
        let is_known = record.last_failure.as_ref().is_some_and(|known| known.starts_with(&why));
        if !is_known && record.state == NameState::Free {
            record.last_failure = Some(why);
        }
        record.held_by = credential.or(record.held_by);
        if known == (record.last_failure.clone(), record.held_by.clone()) {
            return Ok(());
        }
        self.put_name(&mut record)
    }

    /// Keeps a name from being activated.
    pub(crate) fn quarantine(&mut self, name: Name, quarantine: Quarantine) -> Result<Marked> {
        let Some(mut record) = self.name(&name)? else { return Ok(Marked::Gone) };
        match &record.state {
            NameState::Owned { node, .. } if self.is_alive(*node)? => return Ok(Marked::Owned(*node)),
            NameState::Deleting { .. } => return Ok(Marked::Gone),
            NameState::Departing { .. } => return Err(BackendError::moves(&name)),
            NameState::Quarantined { .. } => return Ok(Marked::Done),
            NameState::Owned { .. } | NameState::Free => {}
        }
        self.lose_owner(&mut record, u32::MAX)?;
        self.quarantine_now(&mut record, quarantine)?;
        Ok(Marked::Done)
    }

    /// Lets a name be activated again. `false`: it is not quarantined.
    pub(crate) fn unquarantine(&mut self, name: Name) -> Result<bool> {
        let Some(mut record) = self.name(&name)? else { return Ok(false) };
        if !matches!(record.state, NameState::Quarantined { .. }) {
            return Ok(false);
        }
        (record.failures, record.losses, record.last_failure) = (Vec::new(), 0, None);
        self.free_now(&mut record)?;
        self.happened(&record.name, FeedEvent::Unquarantined)?;
        Ok(true)
    }

    /// The highest term of the tenant's names that were deleted.
    fn deleted_term(&self, tenant: &Tenant) -> Result<Term> {
        Ok(self.txn.read(&Key::of(Table::DeletedTerm).tenant(tenant))?.unwrap_or_default())
    }

    /// Removes the record of a name, and its places in lists of names.
    pub(super) fn remove_name(&mut self, record: &NameRecord) -> Result<()> {
        if record.term > self.deleted_term(record.name.tenant())? {
            self.txn.write(&Key::of(Table::DeletedTerm).tenant(record.name.tenant()), &record.term)?;
        }
        self.end_numbers(&record.name)?;
        self.index_labels(record, false);
        self.txn.remove(&Key::of(Table::Deleting).name(&record.name));
        self.txn.remove(&Key::of(Table::Stuck).name(&record.name));
        self.txn.remove(&Key::of(Table::Names).name(&record.name));
        self.add_to(Table::NamesOf, record.name.tenant(), -1);
        Ok(())
    }

    /// Frees a name that has no owner any more, or quarantines it if its record has a reason.
    pub(super) fn free_or_quarantine(&mut self, record: &mut NameRecord) -> Result<()> {
        match record.quarantine.take() {
            Some(quarantine) => self.quarantine_now(record, quarantine),
            None => self.free_now(record),
        }
    }

    pub(super) fn quarantine_now(&mut self, record: &mut NameRecord, quarantine: Quarantine) -> Result<()> {
        let Quarantine { kind, why } = quarantine;
        self.happened(&record.name, FeedEvent::Quarantined { kind, why: why.clone() })?;
        (record.state, record.quarantine) = (NameState::Quarantined { kind, why, since: self.now }, None);
        self.put_name(record)
    }

    /// Takes the name off its owner's list. The caller sets the new state.
    pub(super) fn leave_owner(&mut self, record: &mut NameRecord) -> Result<()> {
        let NameState::Owned { node, .. } = record.state else { return Ok(()) };
        self.count_owned(node, &record.name, -1)
    }

    /// Takes a name from its owner, which ends its session. `None`: the owner is fenced. The caller sets the new state.
    fn left_by(&mut self, owner: &Ownership) -> Result<Option<NameRecord>> {
        let Some(mut record) = self.owned(owner)? else { return Ok(None) };
        self.txn.remove(&process_key(&owner.name, owner.term));
        self.leave_owner(&mut record)?;
        self.give_up_turns(&mut record)?;
        Ok(Some(record))
    }

    /// The record for an owner that repeats its release, unless somebody else has owned the name since. A dead node may have lost the name
    /// instead.
    fn released_before(&self, owner: &Ownership) -> Result<Option<NameRecord>> {
        let record = self.name(&owner.name)?;
        let record = record
            .filter(|record| record.term == owner.term && !matches!(record.state, NameState::Owned { .. }));
        Ok(if self.is_alive(owner.node)? { record } else { None })
    }

    /// A page of names that a node owns, for a node that compares its activations with them.
    pub(crate) fn owned_names(&self, node: NodeId, page: Page) -> Result<Vec<(Name, Term, AttemptId)>> {
        let after = page.after.as_ref().map(|after| Key::of(Table::Owned).node(node).name(after));
        self.page(&Key::of(Table::Owned).node(node), after, page.limit.min(Page::MOST), |step, key, _| {
            let record = step.readable(step.name(&name_at_start(key)?))?;
            Ok(record.and_then(|record| match record.state {
                NameState::Owned { node: owner, claim, .. } if owner == node => {
                    Some((record.name, record.term, claim))
                }
                _ => None,
            }))
        })
    }
}

/// A cause in words, as it is kept: 1 KiB at most.
pub(super) fn shortened(why: &str) -> String {
    const MOST: usize = 1024;
    // `str::floor_char_boundary` needs Rust 1.91. Every text has a boundary at 0.
    let end = (0..=MOST.min(why.len())).rev().find(|end| why.is_char_boundary(*end));
    why[..end.unwrap_or(0)].to_owned()
}

/// Failed activations of a name, unless it is quarantined.
fn after_failure(record: &NameRecord) -> Option<u32> {
    let is_quarantined = matches!(record.state, NameState::Quarantined { .. });
    (!is_quarantined).then(|| u32::try_from(record.failures.len()).unwrap_or(u32::MAX))
}
