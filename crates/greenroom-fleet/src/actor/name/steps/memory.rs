//! The transcript of an activation in the backend, appended to by the owner of the name alone.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use greenroom::sessions::TranscriptEntry;
use greenroom::store::{SessionKey, SessionStore, StoreResult};
use greenroom::{Options, SessionBuilder};

use super::losses::Losses;
use crate::actor::cell::NameCell;
use crate::actor::context::FleetShared;
use crate::actor::retry::{NotDone, repeat, repeat_owned};
use crate::backend::Requests;
use crate::error::FleetError;
use crate::profile::ActivationContext;
use crate::request::{AppendEntries, Ownership};
use crate::transcripts;

const CONFIG: &str = "CLAUDE_CONFIG_DIR";

/// The time for a request about it, and for the last entries of a session that stops. A request is repeated until the lease is
/// lost, so the node's lease ends most of them earlier.
const PATIENCE: Duration = Duration::from_secs(300);

/// Events of a session that are kept for its watch: far more than a session tells between two looks of the watch.
const EVENTS: usize = 1024;
/// Their bytes.
const EVENT_BYTES: usize = 16 << 20;

/// Gives the session of an activation its transcript from the backend, if the fleet keeps transcripts there.
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
    if !shared.transcripts {
        return Ok(builder);
    }
    let (mut fits, mut line_bytes) = (Ok(()), 0);
    let mut builder = builder.configure(|options| {
        fits = check_folder(options);
        line_bytes = options.limits.line_bytes;
        // Missed events count as a loss.
        options.limits.events_kept = EVENTS.max(options.limits.events_kept);
        options.limits.kept_bytes = EVENT_BYTES.max(options.limits.kept_bytes);
        options.store.project_key = Some(cx.conversation.to_string());
        // The next activation on this host, or the deletion, removes what a node that was killed has left there.
        options.store.folder = Some(cx.config_directory.clone());
        let limits = &mut options.store;
        // `append` repeats what can be repeated. Any other error loses the entries.
        limits.retry_pauses.clear();
        for limit in [&mut limits.append, &mut limits.load, &mut limits.stop] {
            *limit = PATIENCE.max(*limit);
        }
    });
    fits?;
    cell.holdings().losses = Some(Losses::watch(builder.events(), cell.kill(), line_bytes));
    let store = OwnedTranscript { shared: shared.clone(), cell: cell.clone(), owner: owner.clone() };
    Ok(builder.session_store(Arc::new(store)))
}

/// Finds out if the options of a profile leave the configuration folder to a fleet with transcripts in its backend.
///
/// # Errors
/// [`FleetError::Invalid`] if they do not.
pub(crate) fn check_folder(options: &Options) -> Result<(), FleetError> {
    if !options.env.contains_key(CONFIG) {
        return Ok(());
    }
    Err(FleetError::Invalid(format!(
        "the profile sets `{CONFIG}`, and a fleet with transcripts in its backend chooses the folder: leave it out, for instance by \
         `ActivationContext::isolated_options`, and give the CLI its login and settings by other variables and options",
    )))
}

/// The transcript of one ownership of a name.
struct OwnedTranscript {
    shared: Arc<FleetShared>,
    cell: Arc<NameCell>,
    owner: Ownership,
}

impl SessionStore for OwnedTranscript {
    fn append<'a>(
        &'a self,
        key: &'a SessionKey,
        entries: &'a [TranscriptEntry],
    ) -> BoxFuture<'a, StoreResult<()>> {
        Box::pin(async move {
            // Entries link to the ones before them. Behind a gap they would hide the whole conversation from the next owner, so nothing
            // is stored once there is a loss, not even when the CLI starts again and the gap could be filled.
            if let Some(loss) = self.cell.loss().await {
                return Err(format!("nothing is stored behind a loss: {}", loss.why).into());
            }
            for part in transcripts::parts(key, entries) {
                let part = AppendEntries { owner: Some(self.owner.clone()), ..part };
                let append = || self.shared.backend.append_entries(part.clone());
                if let Err(not_done) = repeat_owned(&self.shared, append).await {
                    if matches!(not_done, NotDone::Fenced) {
                        // Another owner has the name: nothing of this session counts any more.
                        self.cell.fence();
                    }
                    return Err(not_done.into());
                }
            }
            Ok(())
        })
    }

    fn load<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, StoreResult<Option<Vec<TranscriptEntry>>>> {
        Box::pin(async move {
            let page = |after| {
                let entries = move || self.shared.backend.entries(key.clone(), after);
                Box::pin(async move { Ok(repeat(&self.shared, entries).await?) }) as _
            };
            transcripts::load(page).await
        })
    }

    fn list_subkeys<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, StoreResult<Vec<String>>> {
        Box::pin(async move {
            let backend = &*self.shared.backend;
            Ok(repeat(&self.shared, || Box::pin(transcripts::subkeys(backend, key))).await?)
        })
    }
}
