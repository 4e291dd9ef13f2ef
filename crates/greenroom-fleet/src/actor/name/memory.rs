//! The transcript of an activation in the fleet's store, appended to by the owner of the name alone.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use greenroom::SessionBuilder;
use greenroom::sessions::TranscriptEntry;
use greenroom::store::{SessionKey, SessionStore, StoreResult};

use super::losses::Losses;
use crate::actor::cell::NameCell;
use crate::actor::context::FleetShared;
use crate::actor::retry::{NotDone, repeat, repeat_owned};
use crate::face::error::FleetError;
use crate::face::profile::ActivationContext;
use crate::id::AttemptId;
use crate::request::Ownership;
use crate::transcripts::TranscriptStore;

const CONFIG: &str = "CLAUDE_CONFIG_DIR";

/// The time for a request to the store. A request is repeated until the lease is lost, so the node's lease ends most of them earlier.
const PATIENCE: Duration = Duration::from_secs(300);

/// Gives the session of an activation its transcript from the fleet's store, if the fleet has one.
///
/// # Errors
/// [`FleetError::Invalid`] if the profile chooses the configuration folder: transcripts of earlier owners could be in it.
pub(super) fn attach(
    shared: &Arc<FleetShared>,
    cell: &Arc<NameCell>,
    builder: SessionBuilder,
    cx: &ActivationContext,
    owner: &Ownership,
) -> Result<SessionBuilder, FleetError> {
    let Some(store) = shared.transcripts.clone() else { return Ok(builder) };
    let mut is_chosen = false;
    let mut builder = builder.configure(|options| {
        is_chosen = options.env.contains_key(CONFIG);
        options.store.project_key = Some(cx.conversation.to_string());
        options.store.append = options.store.append.max(PATIENCE);
        options.store.load = options.store.load.max(PATIENCE);
    });
    if is_chosen {
        return Err(FleetError::Invalid(format!(
            "the profile of the session '{}' sets `{CONFIG}`, and a fleet with `transcripts` chooses the folder: leave it out, and \
             give the CLI its login and settings by other variables and options",
            cx.name().as_str().escape_debug(),
        )));
    }
    let losses = Losses::watch(builder.events(), cell.kill());
    cell.holdings().losses = Some(losses);
    let store = OwnedTranscript { shared: shared.clone(), cell: cell.clone(), store, owner: owner.clone() };
    Ok(builder.session_store(Arc::new(store)))
}

/// The transcript of one ownership of a name.
struct OwnedTranscript {
    shared: Arc<FleetShared>,
    cell: Arc<NameCell>,
    store: Arc<dyn TranscriptStore>,
    owner: Ownership,
}

impl SessionStore for OwnedTranscript {
    fn append<'a>(
        &'a self,
        key: &'a SessionKey,
        entries: &'a [TranscriptEntry],
    ) -> BoxFuture<'a, StoreResult<()>> {
        Box::pin(async move {
            let attempt = AttemptId::new();
            let append = || self.store.append(&self.owner, attempt, key, entries);
            match repeat_owned(&self.shared, append).await {
                Ok(()) => Ok(()),
                Err(not_done) => {
                    if matches!(not_done, NotDone::Fenced) {
                        // Another owner has the name: nothing of this session counts any more.
                        self.cell.fence();
                    }
                    Err(not_done.into())
                }
            }
        })
    }

    fn load<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, StoreResult<Option<Vec<TranscriptEntry>>>> {
        Box::pin(async move { Ok(repeat(&self.shared, || self.store.load(key)).await?) })
    }

    fn list_subkeys<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, StoreResult<Vec<String>>> {
        Box::pin(async move { Ok(repeat(&self.shared, || self.store.subpaths(key)).await?) })
    }
}
