//! Owners that were lost: their turns, their names, and the processes that they left behind.

use serde_json::Value;

use super::key::{Key, Table, last_id, name_at_start, number};
use super::nodes::NodeRow;
use super::{Result, Step, parsed};
use crate::error::{BackendError, BackendErrorKind};
use crate::event::FleetEvent;
use crate::id::{AttemptId, Name, NodeId, Term};
use crate::query::feed::FeedEvent;
use crate::record::{
    InterruptedBy, NameRecord, NameState, ProcessRecord, PromptOutcome, PromptRecord, PromptState,
    Quarantine, QuarantineKind,
};
use crate::request::{Change, Owned, Ownership};

impl Step<'_> {
    /// Takes up to `limit` names from dead nodes: their turns are lost, and they are free or quarantined. Answers with the names.
    pub(crate) fn recover(&mut self, limit: usize, losses: u32) -> Result<Vec<Name>> {
        let dead = self.page(&Key::of(Table::Nodes), None, limit, |step, key, row| {
            let dead = step.readable(parsed::<NodeRow>(row).map(Some))?.filter(|node| node.dead);
            dead.map(|_| last_id(key).map(NodeId)).transpose()
        })?;
        let mut recovered = Vec::new();
        for node in dead {
            for (key, _) in self.txn.under(&Key::of(Table::Owned).node(node), limit - recovered.len()) {
                let name = name_at_start(&key)?;
                match self.readable(self.name(&name))? {
                    Some(mut record) => {
                        self.lose_owner(&mut record, losses)?;
                        self.free_or_quarantine(&mut record)?;
                        if record.state == NameState::Free {
                            let name = record.name;
                            self.made(FleetEvent::Recovered { name });
                        }
                    }
                    // A name that cannot be read keeps no others from being recovered.
                    None => self.count_owned(node, &name, -1)?,
                }
                recovered.push(name);
            }
        }
        Ok(recovered)
    }

    pub(super) fn free_now(&mut self, record: &mut NameRecord) -> Result<()> {
        record.state = NameState::Free;
        self.put_name(record)?;
        self.told.changes.push(Change::Freed(record.name.clone()));
        Ok(())
    }

    /// Takes a name from its owner, if it has one, which was lost. After `losses` lost owners in a row the record has a reason for a
    /// quarantine. The caller sets the new state.
    pub(super) fn lose_owner(&mut self, record: &mut NameRecord, losses: u32) -> Result<()> {
        self.leave_owner(record)?;
        record.losses += u32::from(self.give_up_turns(record)?);
        if record.losses >= losses.max(1) {
            let why = format!("{} owners in a row were lost while a turn of this session ran", record.losses);
            record.quarantine.get_or_insert(Quarantine { kind: QuarantineKind::Losses, why });
        }
        Ok(())
    }

    /// The turns that an owner had begun and not ended: a prompt's is parked, goes on with its call or its continuation, or ends as
    /// interrupted, as one does that the CLI has begun by itself. `true`: a turn ran.
    pub(super) fn give_up_turns(&mut self, record: &mut NameRecord) -> Result<bool> {
        let cli_turn = self.give_up_cli_turn(record)?;
        let Some(running) = record.running.take() else { return Ok(cli_turn) };
        // A prompt that cannot be read keeps no name from being recovered. The money that is reserved for it stays reserved.
        let Some(mut prompt) = self.readable(self.prompt_record(running))? else { return Ok(cli_turn) };
        let PromptState::Begun { term, attempt, .. } = prompt.state else { return Ok(cli_turn) };
        // Nobody knows what the turn has cost.
        self.settle(&mut prompt, None)?;
        self.meter(&mut prompt, None)?;
        if self.park_now(record, &mut prompt, attempt)? {
            // A parked turn was waiting for a person: it is not the reason why its owner was lost.
            return Ok(cli_turn || record.parked.is_none());
        }
        if prompt.continuations > 0 {
            prompt.continuations -= 1;
            prompt.state = PromptState::Queued;
            prompt.calls.clear();
            record.continues.get_or_insert(prompt.id);
            self.end_questions(prompt.id)?;
            self.enqueue(record, &prompt)?;
            self.happened(&prompt.name, FeedEvent::Continues { prompt: prompt.id })?;
            return Ok(true);
        }
        self.end_lost(&mut prompt, term, attempt)?;
        Ok(true)
    }

    /// Ends a turn that the CLI of a lost owner had begun by itself. `true`: one ran.
    pub(super) fn give_up_cli_turn(&mut self, record: &mut NameRecord) -> Result<bool> {
        let Some(running) = record.cli_turn.take() else { return Ok(false) };
        let Some(mut prompt) = self.readable(self.prompt_record(running))? else { return Ok(false) };
        let PromptState::Begun { term, attempt, .. } = prompt.state else { return Ok(false) };
        self.settle(&mut prompt, None)?;
        self.meter(&mut prompt, None)?;
        self.end_lost(&mut prompt, term, attempt)?;
        Ok(true)
    }

    fn end_lost(&mut self, prompt: &mut PromptRecord, term: Term, attempt: AttemptId) -> Result<()> {
        let by = InterruptedBy::OwnerLost { term };
        self.end(prompt, Some(attempt), &PromptOutcome::Interrupted { by, result: None })
    }

    /// Keeps the process that runs an owner's session. `None`: no process runs.
    pub(crate) fn record_process(&mut self, owner: Ownership, process: Option<Value>) -> Result<Owned<()>> {
        if self.owned(&owner)?.is_none() {
            return Ok(Owned::Fenced);
        }
        let key = process_key(&owner.name, owner.term);
        let Some(process) = process else {
            self.txn.remove(&key);
            return Ok(Owned::Done(()));
        };
        let host = self.node_row(owner.node)?.map(|node| node.host).unwrap_or_default();
        let record = ProcessRecord { name: owner.name, term: owner.term, node: owner.node, host, process };
        self.txn.write(&key, &record)?;
        Ok(Owned::Done(()))
    }

    /// Processes whose owners have not given their names back and are owners no more, or are dead.
    pub(crate) fn left_processes(&self, limit: usize) -> Result<Vec<ProcessRecord>> {
        self.page(&Key::of(Table::Processes), None, limit, |step, _, row| {
            let Some::<ProcessRecord>(record) = step.readable(parsed(row).map(Some))? else {
                return Ok(None);
            };
            Ok((!step.owns(&record.name, record.term)?).then_some(record))
        })
    }

    /// Processes that lost owners of a name have left. A row that cannot be read is an error.
    pub(crate) fn left_processes_of(&self, name: Name) -> Result<Vec<ProcessRecord>> {
        let mut left = Vec::new();
        for (term, row) in self.txn.under(&Key::of(Table::Processes).name(&name), usize::MAX) {
            let term = Term(number(&term)?);
            if self.owns(&name, term)? {
                continue;
            }
            left.push(serde_json::from_slice(&row).map_err(|error| unreadable(&name, term, error))?);
        }
        Ok(left)
    }

    /// Removes the record of a process that has ended. `false`: its owner is alive, and keeps it.
    pub(crate) fn process_ended(&mut self, name: Name, term: Term) -> Result<bool> {
        let key = process_key(&name, term);
        if self.txn.get(key.bytes()).is_some() && self.owns(&name, term)? {
            return Ok(false);
        }
        self.txn.remove(&key);
        Ok(true)
    }

    /// True if a living node owns the name with this term.
    fn owns(&self, name: &Name, term: Term) -> Result<bool> {
        let Some(record) = self.name(name)?.filter(|record| record.term == term) else { return Ok(false) };
        match record.state {
            NameState::Owned { node, .. } => self.is_alive(node),
            _ => Ok(false),
        }
    }
}

/// The error for the record of a process that cannot be read.
pub(crate) fn unreadable(
    name: &Name,
    term: Term,
    error: impl std::error::Error + Send + Sync + 'static,
) -> BackendError {
    let name = name.to_string();
    let name = name.escape_debug();
    let message = format!(
        "the record of a process of the session '{name}' with the term {term} cannot be read ({error}): end that CLI if it \
         runs, then remove the record with `Admin::remove_process`"
    );
    BackendError::new(BackendErrorKind::Damaged, message).caused_by(error)
}

pub(super) fn process_key(name: &Name, term: Term) -> Key {
    Key::of(Table::Processes).name(name).number(term.0)
}
