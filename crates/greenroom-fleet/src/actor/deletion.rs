//! Deletes names, with their files.
//!
//! ```text
//!  backend: delete ──► marked ──► its old processes are gone ──► files and transcripts are removed ──► backend: deleted ──► (gone)
//!                        │ ▲
//!                        ▼ │ a process does not end, files cannot be removed, or the service ends
//!                      stays marked: the next opening and the keeper try again
//! ```
//!
//! A marked name takes no prompts and no owner, so its files belong to the deletion alone. Each step can be repeated.

use super::context::FleetShared;
use super::name::steps::left;
use super::retry::repeat;
use crate::backend::Requests;
use crate::error::{BackendError, FleetError};
use crate::event::FleetEvent;
use crate::files::Removal;
use crate::id::Name;
use crate::record::{NameRecord, NameState};
use crate::request::{Marked, TranscriptsOf};

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
    match repeat(shared, || shared.backend.name_record(name.clone())).await? {
        Some(record) if matches!(record.state, NameState::Deleting { .. }) => {
            match record.host.as_ref().filter(|host| !shared.backend.is_exclusive() && **host != shared.host)
            {
                Some(host) => Err(FleetError::State(format!(
                    "the session is marked as being deleted; its files are on the host '{host}', and a node there removes them"
                ))),
                None => finish(shared, &record, &removal).await,
            }
        }
        _ => Ok(()),
    }
}

/// Goes on with the first `limit` deletions. Returns the number of names that stay marked.
///
/// # Errors
/// An unavailable backend. A name that cannot be read, or whose files cannot be removed or are in use, is no error.
pub(crate) async fn resume_marked(shared: &FleetShared, limit: usize) -> Result<usize, BackendError> {
    let mut failed = 0;
    for name in shared.ask(|backend| backend.deleting(limit)).await? {
        match resume(shared, &name).await {
            Err(FleetError::Backend(error)) if error.is_unavailable() => return Err(error),
            resumed => failed += usize::from(resumed.is_err()),
        }
    }
    Ok(failed)
}

/// Removes the files of a marked name, and then the name.
async fn finish(shared: &FleetShared, record: &NameRecord, removal: &Removal) -> Result<(), FleetError> {
    let name = &record.name;
    let removed = match left::end_processes(shared, name).await? {
        Some(why) => Err(FleetError::State(format!("{why}; its files are kept until then"))),
        None => shared.folders.remove(record.conversation, removal).await.map_err(FleetError::from),
    };
    if let Err(error) = removed {
        let (name, tenant, why) = (name.clone(), record.tenant.clone(), error.to_string());
        shared.tell(FleetEvent::DeletionFailed { name, tenant, why });
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::actor::stage::{accept, joined};
    use crate::backend::MemoryBackend;
    use crate::limits::FleetLimits;
    use crate::request::{Accept, Accepted, QueueBounds};

    #[tokio::test(start_paused = true)]
    async fn a_name_with_many_prompts_and_files_is_deleted_whole() {
        let shared = joined(MemoryBackend::new(), FleetLimits::default()).await;
        shared.folders.open().await.unwrap();
        let bounds = QueueBounds { name: 10_000, tenant: 10_000, fleet: 10_000 };
        let mut last = None;
        for key in 0..2_500 {
            let accept =
                Accept { key: Some(key.to_string()), bounds, ..accept("a", Duration::from_secs(60)) };
            let Accepted::New(prompt) = shared.backend.accept(accept).await.unwrap() else {
                panic!("refused")
            };
            last = Some(prompt.id);
        }
        let name = Name::new("a").unwrap();
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
        let name = Name::new("a").unwrap();
        let record = shared.backend.name_record(name.clone()).await.unwrap().unwrap();
        let own = shared.folders.create(&record).await.unwrap();
        // The name was deleted by another call meanwhile, and made anew.
        resume(&shared, &name).await.unwrap();
        assert!(own.work.exists());
        assert_eq!(shared.backend.name_record(name).await.unwrap(), Some(record));
    }
}
