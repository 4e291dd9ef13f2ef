//! Deletes names, with their files.
//!
//! ```text
//!  backend: delete ──► marked ──► its old processes are gone ──► files and transcripts are removed ──► backend: deleted ──► (gone)
//!                        │ ▲
//!                        ▼ │ a process does not end, files cannot be removed, or the service ends
//!                      stays marked: the keeper and the next opening try again
//! ```
//!
//! A marked name takes no prompts and no owner, so its files belong to the deletion alone. Each step can be repeated.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::context::FleetShared;
use super::name::steps::left;
use super::retry::repeat;
use crate::backend::Requests;
use crate::error::{BackendError, FleetError};
use crate::event::FleetEvent;
use crate::id::Name;
use crate::record::NameState;
use crate::request::{Marked, TranscriptsOf};

/// The pauses before a deletion that has failed is tried again: the first one, doubled each time up to the longest one.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(15);

/// Deletes a name that no node owns, and its files.
///
/// # Errors
/// [`FleetError::Files`] if files cannot be removed, [`FleetError::State`] if a process of a lost owner still uses them. The name
/// stays marked, and the keeper tries again.
pub(crate) async fn delete(shared: &FleetShared, name: &Name) -> Result<Marked, FleetError> {
    let marked = repeat(shared, || shared.backend.delete(name.clone())).await?;
    if marked == Marked::Done {
        resume(shared, name).await?;
    }
    Ok(marked)
}

/// Goes on with the deletion of a name. Does nothing if the name is not marked any more.
///
/// # Errors
/// As [`delete`].
pub(crate) async fn resume(shared: &FleetShared, name: &Name) -> Result<(), FleetError> {
    // Read after the wait: the other removal may have been that of this name.
    let removal = shared.folders.removal().await;
    let record = repeat(shared, || shared.backend.name_record(name.clone())).await?;
    let Some(record) = record.filter(|record| matches!(record.state, NameState::Deleting { .. })) else {
        return Ok(());
    };
    if let Some(host) = record.host.filter(|host| !shared.backend.is_exclusive() && *host != shared.host) {
        return Err(FleetError::State(format!(
            "the session is marked as being deleted; its files are on the host '{host}', and a node there removes them"
        )));
    }
    let removed = match left::end_processes(shared, name).await? {
        Some(why) => Err(FleetError::State(format!("{why}; its files are kept until then"))),
        None => shared.folders.remove(record.conversation, &removal).await.map_err(FleetError::from),
    };
    if let Err(error) = removed {
        let (name, why) = (name.clone(), error.to_string());
        shared.tell(FleetEvent::DeletionFailed { name, why });
        return Err(error);
    }
    if shared.transcripts {
        let of = TranscriptsOf::project(record.conversation.to_string());
        while !repeat(shared, || shared.backend.delete_transcripts(of.clone())).await? {}
    }
    while !repeat(shared, || shared.backend.deleted(name.clone())).await? {}
    shared.tell_transitions();
    Ok(())
}

/// Deletions that have failed, each with the moment of its next try and the pause before that.
#[derive(Default)]
pub(crate) struct Stuck(HashMap<Name, (Instant, Duration)>);

impl Stuck {
    /// Goes on with `count` marked names that have not failed before, and then with those whose next try has come. A name that fails waits for its next try; the others go on meanwhile.
    ///
    /// # Errors
    /// An unavailable backend. A name that cannot be read, or whose files cannot be removed or are in use, is no error.
    pub(crate) async fn resume_marked(
        &mut self,
        shared: &FleetShared,
        count: usize,
    ) -> Result<(), BackendError> {
        let limit = self.0.len().saturating_add(count);
        let mut marked = shared.ask(|backend| backend.deleting(limit)).await?;
        let mut before = std::mem::take(&mut self.0);
        marked.sort_by_key(|name| before.contains_key(name));
        for name in marked {
            let (mut at, mut pause) =
                before.remove(&name).unwrap_or_else(|| (Instant::now(), Duration::ZERO));
            if at <= Instant::now() {
                match resume(shared, &name).await {
                    Ok(()) => continue,
                    Err(FleetError::Backend(error)) if error.is_unavailable() => {
                        self.0.extend(before);
                        return Err(error);
                    }
                    Err(_) => pause = (pause * 2).clamp(SHORTEST, LONGEST),
                }
                at = Instant::now() + pause;
            }
            self.0.insert(name, (at, pause));
        }
        Ok(())
    }

    /// The moment at which the first failed deletion is tried again.
    pub(crate) fn next_try(&self) -> Option<Instant> {
        self.0.values().map(|(at, _)| *at).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::MemoryBackend;
    use crate::limits::FleetLimits;
    use crate::request::{Accept, Accepted, QueueBounds};
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
        let record = shared.backend.name_record(name.clone()).await.unwrap().unwrap();
        let own = shared.folders.create(&record).await.unwrap();
        std::fs::write(own.config.join("transcript.jsonl"), "hello").unwrap();

        assert_eq!(delete(&shared, &name).await.unwrap(), Marked::Done);
        assert_eq!(shared.backend.name_record(name.clone()).await.unwrap(), None);
        assert!(shared.backend.outcome(last.unwrap()).await.unwrap().is_some(), "a prompt has no outcome");
        assert_eq!(shared.backend.queued().await.unwrap(), 0);
        assert!(!own.work.parent().unwrap().exists());
        assert_eq!(delete(&shared, &name).await.unwrap(), Marked::Gone);
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
        resume(&shared, &name).await.unwrap();
        assert!(own.work.exists());
        assert_eq!(shared.backend.name_record(name).await.unwrap(), Some(record));
    }
}
