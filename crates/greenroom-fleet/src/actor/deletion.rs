//! Deletes names, with their rows and with their files on every host.
//!
//! ```text
//!  backend: delete ──► marked ──► its rows and transcripts are removed ──► no host with a living node has files ──► backend: deleted ──► (gone)
//!                        │
//!  each host: files left ──► its old processes are gone ──► the files are removed ──► backend: files removed
//!               │ ▲
//!               ▼ │ a process does not end, files cannot be removed, or no node of the host is alive
//!             stay listed: the keepers and the next opening there try again
//! ```
//!
//! A marked name takes no prompts and no owner, so its files belong to the deletion alone. A caller goes through all steps for its name. The
//! keeper of each node removes the files on its host, and goes on with marked names whose caller is gone. Each step can be repeated.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::context::{FleetShared, hint};
use super::name::steps::left;
use super::retry::repeat;
use crate::backend::Requests;
use crate::error::{BackendError, FleetError};
use crate::event::FleetEvent;
use crate::id::Name;
use crate::outcome::erased::{Erased, LeftOn};
use crate::pages::all_nodes;
use crate::request::{Change, Erasure, FilesLeft, Marked, TranscriptsOf};

/// The pauses before a deletion that has failed is tried again: the first one, doubled each time up to the longest one.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(15);
/// The pause between two looks for marked names whose caller may be gone.
const LOOK: Duration = Duration::from_secs(5);
/// The time for which a caller waits for other hosts to remove their files, and the longest pause between two looks.
const OTHERS: Duration = Duration::from_secs(30);
const AGAIN: Duration = Duration::from_secs(1);

/// Marks a name as being deleted, unless a living node owns it.
///
/// # Errors
/// The backend's, and [`FleetError::Ended`] if the node has lost its lease.
pub(crate) async fn mark(shared: &FleetShared, name: &Name) -> Result<Marked, FleetError> {
    Ok(repeat(shared, || shared.backend.delete(name.clone())).await?)
}

/// Deletes a name that is marked, with its files here, and waits until other hosts with living nodes have removed theirs. Does nothing if
/// the name is not marked any more.
///
/// # Errors
/// [`FleetError::Files`] if files here cannot be removed, [`FleetError::State`] if a process of a lost owner still uses them. The name
/// stays marked, and the keeper tries again.
pub(crate) async fn erase(shared: &FleetShared, name: &Name) -> Result<Erased, FleetError> {
    let mut changes = shared.backend.changes();
    let until = Instant::now() + OTHERS;
    let Some(erasure) = repeat(shared, || shared.backend.erasure(name.clone())).await? else {
        return Ok(Erased::default());
    };
    remove_rows(shared, name, &erasure).await?;
    for host in erasure.hosts.iter().filter(|host| shared.has_files_of(host)) {
        let (host, conversation, name) = (host.clone(), erasure.conversation, name.clone());
        remove_files(shared, FilesLeft { host, conversation, name }).await?;
    }
    loop {
        let (erased, is_over) = finish(shared, name, &erasure).await?;
        if is_over || Instant::now() >= until {
            return Ok(erased);
        }
        let pause = AGAIN.min(until.saturating_duration_since(Instant::now()));
        hint(&mut changes, Change::Deleting(name.clone()), pause).await;
    }
}

/// Removes all that the backend keeps of a marked name, but for its record.
async fn remove_rows(shared: &FleetShared, name: &Name, erasure: &Erasure) -> Result<(), FleetError> {
    while !repeat(shared, || shared.backend.erase(name.clone())).await? {}
    let of = TranscriptsOf::project(erasure.conversation.to_string());
    while !repeat(shared, || shared.backend.delete_transcripts(of.clone())).await? {}
    Ok(())
}

/// Removes the files of a deleted name on this host. Does nothing if they were removed before.
async fn remove_files(shared: &FleetShared, files: FilesLeft) -> Result<(), FleetError> {
    let FilesLeft { host, conversation, name } = files.clone();
    // Read after the wait: the other removal may have been this one.
    let removal = shared.folders.removal().await;
    let of = Erasure { conversation, hosts: vec![host] };
    if repeat(shared, || shared.backend.hosts_left(of.clone())).await?.is_empty() {
        return Ok(());
    }
    let removed = match left::end_processes(shared, &name).await? {
        Some(why) => Err(FleetError::State(format!("{why}; its files are kept until then"))),
        None => shared.folders.remove(conversation, &removal).await.map_err(FleetError::from),
    };
    if let Err(error) = removed {
        shared.tell(FleetEvent::DeletionFailed { name, why: error.to_string() });
        return Err(error);
    }
    Ok(repeat(shared, || shared.backend.files_removed(files.clone())).await?)
}

/// Removes the name, unless a host with a living node has files of it. `true`: it is gone.
async fn finish(shared: &FleetShared, name: &Name, of: &Erasure) -> Result<(Erased, bool), FleetError> {
    let hosts = repeat(shared, || shared.backend.hosts_left(of.clone())).await?;
    let mut left = Vec::new();
    if !hosts.is_empty() {
        let nodes = shared.ask(|backend| Box::pin(all_nodes(backend))).await?;
        let lives = |host: &String| nodes.iter().any(|node| node.is_alive() && node.host == *host);
        left = hosts.into_iter().map(|host| LeftOn { has_node: lives(&host), host }).collect();
    }
    // This node may not have joined yet.
    let waits = left.iter().any(|left| left.has_node || shared.has_files_of(&left.host));
    if !waits {
        while !repeat(shared, || shared.backend.deleted(name.clone(), of.conversation)).await? {}
        shared.tell_transitions();
    }
    Ok((Erased { left }, !waits))
}

/// A part of a deletion that a keeper goes on with.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Part {
    /// Files on this host.
    Files(FilesLeft),
    /// A marked name. Its files here are parts of their own.
    Name(Name),
}

impl Part {
    /// `false`: it waits for files.
    async fn resume(self, shared: &FleetShared) -> Result<bool, FleetError> {
        match self {
            Part::Files(files) => remove_files(shared, files).await.map(|()| true),
            Part::Name(name) => {
                let erasure = repeat(shared, || shared.backend.erasure(name.clone())).await?;
                let Some(erasure) = erasure else { return Ok(true) };
                remove_rows(shared, &name, &erasure).await?;
                Ok(finish(shared, &name, &erasure).await?.1)
            }
        }
    }
}

/// Deletions that a keeper goes on with.
#[derive(Default)]
pub(crate) struct Resumed {
    /// Parts that have failed or wait, each with the moment of its next try and the pause before that.
    stuck: HashMap<Part, (Instant, Duration)>,
    /// The last look for marked names. Hints do not lead to one, because the caller goes on with the name.
    looked: Option<Instant>,
}

impl Resumed {
    /// Goes on with `count` parts of each kind that have not failed before, and then with those whose next try has come. A part that fails waits
    /// for its next try; the others go on meanwhile.
    ///
    /// # Errors
    /// An unavailable backend. A name that cannot be read, or whose files cannot be removed or are in use, is no error.
    pub(crate) async fn resume(&mut self, shared: &FleetShared, count: usize) -> Result<(), BackendError> {
        let limit = self.stuck.len().saturating_add(count);
        let files = shared.ask(|backend| backend.files_left(shared.files_of(), limit)).await?;
        let mut parts: Vec<_> = files.into_iter().map(Part::Files).collect();
        let now = Instant::now();
        let is_due =
            |(part, (at, _)): (&Part, &(Instant, Duration))| matches!(part, Part::Name(_)) && *at <= now;
        if self.looked.is_none_or(|looked| now >= looked + LOOK) || self.stuck.iter().any(is_due) {
            let names = shared.ask(|backend| backend.deleting(limit)).await?;
            parts.extend(names.into_iter().map(Part::Name));
            self.looked = Some(now);
        }
        let mut before = std::mem::take(&mut self.stuck);
        parts.sort_by_key(|part| before.contains_key(part));
        for part in parts {
            let (mut at, mut pause) =
                before.remove(&part).unwrap_or_else(|| (Instant::now(), Duration::ZERO));
            if at <= Instant::now() {
                match part.clone().resume(shared).await {
                    Ok(true) => continue,
                    Err(FleetError::Backend(error)) if error.is_unavailable() => {
                        self.stuck.extend(before);
                        return Err(error);
                    }
                    Ok(false) | Err(_) => pause = (pause * 2).clamp(SHORTEST, LONGEST),
                }
                at = Instant::now() + pause;
            }
            self.stuck.insert(part, (at, pause));
        }
        Ok(())
    }

    /// The moment of the next look, or at which the first part that has failed is tried again.
    pub(crate) fn next_step(&self) -> Instant {
        let look = self.looked.unwrap_or_else(Instant::now) + LOOK;
        self.stuck.values().map(|(at, _)| *at).fold(look, Instant::min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::MemoryBackend;
    use crate::id::AttemptId;
    use crate::limits::FleetLimits;
    use crate::request::{Accept, Accepted, Claim, Claimed, Owned, Ownership, QueueBounds};
    use crate::stage::{accept, joined};

    #[tokio::test(start_paused = true)]
    async fn a_name_with_many_prompts_and_files_is_deleted_whole() {
        let shared = joined(MemoryBackend::new(), FleetLimits::default()).await;
        shared.folders.open().await.unwrap();
        let bounds = QueueBounds { name: 10_000, tenant: 10_000, fleet: 10_000, ..Default::default() };
        let mut last = None;
        for key in 0..2_500 {
            let accept =
                Accept { key: Some(key.to_string()), bounds, ..accept("a", Duration::from_secs(60)) };
            let Accepted::New(prompt) = shared.backend.accept(accept).await.unwrap() else {
                panic!("refused")
            };
            last = Some(prompt.id);
        }
        let name = "acme/a".parse::<Name>().unwrap();
        let claim = Claim {
            name: name.clone(),
            node: shared.node,
            attempt: AttemptId::new(),
            losses: 3,
            quota: crate::Quota::default(),
        };
        let Claimed::Won(record) = shared.backend.claim(claim).await.unwrap() else { panic!("not won") };
        let own = shared.folders.create(&record).await.unwrap();
        let owner = Ownership { name: name.clone(), node: shared.node, term: record.term };
        assert_eq!(shared.backend.release(owner).await.unwrap(), Owned::Done(true));
        std::fs::write(own.config.join("transcript.jsonl"), "hello").unwrap();

        assert_eq!(mark(&shared, &name).await.unwrap(), Marked::Done);
        assert_eq!(erase(&shared, &name).await.unwrap(), Erased::default());
        assert_eq!(shared.backend.name_record(name.clone()).await.unwrap(), None);
        assert_eq!(shared.backend.outcome(last.unwrap()).await.unwrap(), None);
        assert_eq!(shared.backend.queued().await.unwrap(), 0);
        assert!(!own.work.parent().unwrap().exists());
        assert_eq!(mark(&shared, &name).await.unwrap(), Marked::Gone);
    }
    #[tokio::test(start_paused = true)]
    async fn a_name_that_is_not_marked_keeps_its_files_when_a_deletion_goes_on() {
        let shared = joined(MemoryBackend::new(), FleetLimits::default()).await;
        shared.folders.open().await.unwrap();
        let accepted = shared.backend.accept(accept("a", Duration::from_secs(60))).await.unwrap();
        assert!(matches!(accepted, Accepted::New(_)), "{accepted:?}");
        let name = "acme/a".parse::<Name>().unwrap();
        let record = shared.backend.name_record(name.clone()).await.unwrap().unwrap();
        let own = shared.folders.create(&record).await.unwrap();
        // The name was deleted by another call meanwhile, and made anew.
        assert_eq!(erase(&shared, &name).await.unwrap(), Erased::default());
        assert!(Part::Name(name.clone()).resume(&shared).await.unwrap());
        assert!(own.work.exists());
        assert_eq!(shared.backend.name_record(name).await.unwrap(), Some(record));
    }
}
