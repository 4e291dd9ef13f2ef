//! The deletion of a name: its rows, and its files on every host.
//!
//! ```text
//!  Names:  ── delete ──► Deleting ── erase: its prompts, keys and commands go ── deleted ──► (no row)
//!  Files:  name, host ── delete ──► FilesLeft: host, conversation ── the host has removed them, or is forgotten ──► (no row)
//! ```
//!
//! A claim writes the row in `Files`, so the row is there before an activation makes a folder. A node of each host removes the files
//! there. The name goes when no host with a living node has files of it any more. Rows of other hosts stay in `FilesLeft`, until
//! a node of the host joins again. Their key has the conversation, so they do not affect a new session of the
//! same name.

use uuid::Uuid;

use super::key::{Key, Table, last_id, number, text_and_rest};
use super::prompts::BY_USER;
use super::{BATCH, Result, Step, parsed};
use crate::error::BackendError;
use crate::id::{Name, Term};
use crate::query::feed::FeedEvent;
use crate::record::{NameRecord, NameState, ProcessRecord, PromptOutcome, Unsent};
use crate::request::{Change, Erasure, FilesLeft, ForgottenFiles, HostMove, Marked};

impl Step<'_> {
    /// Marks a name as being deleted. Its prompts end as unsent.
    pub(crate) fn delete(&mut self, name: Name) -> Result<Marked> {
        let Some(mut record) = self.name(&name)? else { return Ok(Marked::Gone) };
        match &record.state {
            NameState::Owned { node, .. } if self.is_alive(*node)? => return Ok(Marked::Owned(*node)),
            NameState::Deleting { .. } => return Ok(Marked::Done),
            NameState::Departing { .. } => return Err(BackendError::moves(&name)),
            _ => {}
        }
        self.lose_owner(&mut record, u32::MAX)?;
        record.state = NameState::Deleting { since: self.now };
        self.put_name(&mut record)?;
        let mut hosts = Vec::new();
        for (key, _) in self.txn.under(&files_of(&name), usize::MAX) {
            let (host, _) = text_and_rest(&key)?;
            self.txn.remove(&files_key(&name, &host));
            self.txn.write(&left_key(&host).id(record.conversation), &name)?;
            hosts.push(host);
        }
        self.txn.write(&Key::of(Table::Deleting).name(&name), &hosts)?;
        self.happened(&record.name, FeedEvent::Deleting)?;
        self.end_queue(&name)?;
        self.told.changes.push(Change::Deleting(name));
        Ok(Marked::Done)
    }

    /// Removes the rows of a name that is marked as being deleted, except its record. `false`: call again for the rest.
    pub(crate) fn erase(&mut self, name: Name) -> Result<bool> {
        if self.deletion(&name)?.is_none() {
            return Ok(true);
        }
        Ok(self.end_queue(&name)? && self.forget_prompts_of(&name)?)
    }

    /// Removes a name that is marked as being deleted, unless it was made anew since. `false`: call again for the rest.
    pub(crate) fn deleted(&mut self, name: Name, conversation: Uuid) -> Result<bool> {
        let record = self.deletion(&name)?.filter(|record| record.conversation == conversation);
        let Some(record) = record else { return Ok(true) };
        if !self.erase(name)? {
            return Ok(false);
        }
        self.happened(&record.name, FeedEvent::Deleted)?;
        self.remove_name(&record)?;
        Ok(true)
    }

    /// The record of a name that is marked as being deleted.
    fn deletion(&self, name: &Name) -> Result<Option<NameRecord>> {
        Ok(self.name(name)?.filter(|record| matches!(record.state, NameState::Deleting { .. })))
    }

    /// A deletion that goes on.
    pub(crate) fn erasure(&self, name: Name) -> Result<Option<Erasure>> {
        let Some(NameRecord { conversation, .. }) = self.deletion(&name)? else { return Ok(None) };
        let hosts: Option<Vec<String>> = self.txn.read(&Key::of(Table::Deleting).name(&name))?;
        Ok(Some(Erasure { conversation, hosts: hosts.unwrap_or_default() }))
    }

    /// The hosts of a deletion that have not removed their files.
    pub(crate) fn hosts_left(&self, of: Erasure) -> Result<Vec<String>> {
        let mut hosts = of.hosts;
        hosts.retain(|host| self.txn.get(left_key(host).id(of.conversation).bytes()).is_some());
        Ok(hosts)
    }

    /// Files of deleted names on a host, or on any.
    pub(crate) fn files_left(&self, host: Option<String>, limit: usize) -> Result<Vec<FilesLeft>> {
        let prefix = host.map_or(Key::of(Table::FilesLeft), |host| left_key(&host));
        let start = prefix.rest().to_vec();
        self.page(&prefix, None, limit, |step, key, name| {
            let Some(name) = step.readable(parsed(name).map(Some))? else { return Ok(None) };
            let (host, _) = text_and_rest(&[&start, key].concat())?;
            Ok(Some(FilesLeft { host, conversation: last_id(key)?, name }))
        })
    }

    /// Notes that a host has removed the files of a deleted name.
    pub(crate) fn files_removed(&mut self, files: FilesLeft) -> Result<()> {
        let place = left_key(&files.host).id(files.conversation);
        if self.txn.get(place.bytes()).is_some() {
            self.txn.remove(&place);
            self.told.changes.push(Change::Deleting(files.name));
        }
        Ok(())
    }

    /// Drops the rows about files of names on a host that is gone for ever, and about the processes that lost owners have left there. Answers
    /// with their numbers.
    pub(crate) fn forget_files(&mut self, host: String, names: Vec<Name>) -> Result<ForgottenFiles> {
        let mut forgotten = ForgottenFiles::default();
        for name in names {
            let place = files_key(&name, &host);
            if self.txn.get(place.bytes()).is_some() {
                self.txn.remove(&place);
                forgotten.files += 1;
            }
            let of_name = Key::of(Table::Processes).name(&name);
            for (term, row) in self.txn.under(&of_name, BATCH) {
                let record = self.readable(parsed::<ProcessRecord>(&row).map(Some))?;
                if record.is_some_and(|record| record.host == host)
                    && self.process_ended(name.clone(), Term(number(&term)?))?
                {
                    forgotten.processes += 1;
                }
            }
        }
        Ok(forgotten)
    }

    /// Binds a name to another host than the one that it is bound to.
    pub(crate) fn move_to_host(&mut self, name: Name, host: String) -> Result<HostMove> {
        let Some(mut record) = self.name(&name)? else { return Ok(HostMove::Gone) };
        match &record.host {
            None => return Ok(HostMove::NotBound),
            Some(bound) if *bound == host => return Ok(HostMove::Done),
            Some(_) => {}
        }
        match &record.state {
            NameState::Owned { node, .. } if self.is_alive(*node)? => return Ok(HostMove::NotAtRest),
            NameState::Deleting { .. } | NameState::Departing { .. } => return Ok(HostMove::NotAtRest),
            _ => {}
        }
        let nodes = self.looking(|step| step.nodes(None, usize::MAX))?;
        if !nodes.iter().any(|node| node.is_alive() && node.host == host) {
            return Ok(HostMove::NoNode);
        }
        record.host = Some(host);
        if let NameState::Owned { .. } = record.state {
            self.lose_owner(&mut record, u32::MAX)?;
            self.free_or_quarantine(&mut record)?;
        } else {
            self.put_name(&mut record)?;
            self.told.changes.push(Change::Freed(name));
        }
        Ok(HostMove::Done)
    }

    /// Ends prompts of a name that is being deleted. `false`: some are left.
    fn end_queue(&mut self, name: &Name) -> Result<bool> {
        if let Some(mut record) = self.name(name)?
            && let Some(parked) = record.parked
        {
            match self.readable(self.prompt_record(parked))? {
                Some(prompt) => self.end_waiting(prompt, &BY_USER)?,
                None => {
                    self.leave_parked(&mut record);
                    self.put_name(&mut record)?;
                }
            }
        }
        let queue =
            [Table::Queue, Table::Reminders].map(|list| self.txn.under(&Key::of(list).name(name), BATCH));
        let queue: Vec<_> = queue.concat().into_iter().take(BATCH).collect();
        // Request all of them first, so that one read has them.
        let prompts: Vec<_> = queue.iter().map(|(_, id)| self.listed(id)).collect();
        for ((order, _), prompt) in queue.iter().zip(prompts) {
            let Some(prompt) = self.readable(prompt)? else {
                self.drop_place(name, number(order)?)?;
                continue;
            };
            // A prompt that waits for its continuation has already begun in a CLI.
            let outcome = match prompt.begins {
                0 => PromptOutcome::Unsent { why: Unsent::Deleted },
                _ => BY_USER,
            };
            self.end_waiting(prompt, &outcome)?;
        }
        Ok(queue.len() < BATCH)
    }
}

/// The beginning of the keys of the hosts with files of a name.
pub(crate) fn files_of(name: &Name) -> Key {
    Key::of(Table::Files).name(name)
}

pub(super) fn files_key(name: &Name, host: &str) -> Key {
    files_of(name).text(host)
}

fn left_key(host: &str) -> Key {
    Key::of(Table::FilesLeft).text(host)
}
