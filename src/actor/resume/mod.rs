//! Find the conversation of a session before the CLI starts: on disk, or in the session's store. A conversation from
//! the store is loaded into a configuration folder of its own ([`home`]).

pub(crate) mod call;
mod home;

use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::FutureExt;

use super::base::task::Task;
use crate::Options;
use crate::blocking::blocking;
use crate::blocking::caught::panic_text;
use crate::error::{Error, ErrorKind, Result};
use crate::report::DeferredCall;
use crate::sessions::{
    TranscriptEntry, canonical, check_session_id, has_transcript, is_safe_subpath, is_session_id,
    key_of_path, sort_newest_first,
};
use crate::store::{
    SessionKey, SessionStore, StoreResult, StoredSession, Unsupported, dedup, failed, not_stored,
};
pub(crate) use home::ResumeHome;
use home::UserConfig;

/// The transcripts of a session in the store.
struct Loaded {
    session_id: String,
    main: Vec<TranscriptEntry>,
    /// Transcripts of subagents, by their subpath.
    parts: Vec<(String, Vec<TranscriptEntry>)>,
}

/// Loads the conversation that the options name, and points the options at the loaded copy. `None` if the options start
/// a new conversation, or allow one and the store has none. A deferred call that is to be resumed is written down as deferred, in
/// the store and in the copy.
pub(crate) async fn from_store(
    store: &Arc<dyn SessionStore>,
    options: &mut Options,
    call: Option<&DeferredCall>,
) -> Result<Option<ResumeHome>> {
    if options.resume.is_none() && options.conversation.is_none() && !options.continue_conversation {
        return Ok(None);
    }
    let loading = Loading::of(store, options).await?;
    let folder = loading.folder.clone();
    let Some(mut loaded) = loading.session().await? else {
        // Starts a new conversation, as the CLI does with none to continue. Without this the CLI would continue a
        // conversation on its disk that is not in the store.
        (options.continue_conversation, options.fork_session) = (false, false);
        return Ok(None);
    };
    match call {
        Some(call) => loading.defer(call, &loaded.session_id, &mut loaded.main).await?,
        None => loading.abandon(&loaded.session_id, &mut loaded.main).await?,
    }
    let config = UserConfig::of(options)?;
    let session_id = loaded.session_id.clone();
    let user = options.user;
    let parent = options.store.folder.clone().unwrap_or_else(std::env::temp_dir);
    let home = blocking(move || home::write(&parent, &folder, loaded, &config, user)).await?;
    let path = home.path().to_str().ok_or_else(|| {
        let text = format!("the path of the session's copy is not UTF-8: {}", home.path().display());
        Error::invalid_option(text)
    })?;
    options.env.insert("CLAUDE_CONFIG_DIR".into(), path.to_owned());
    if options.conversation.is_none() {
        options.resume = Some(session_id);
    }
    options.continue_conversation = false;
    Ok(Some(ResumeHome::new(home)))
}

/// Whether the CLI has a conversation with this id on this machine's disk, in whatever project folder. CLI 2.1.330 was
/// seen to resume a conversation of another working directory, and to go on in the old folder.
pub(crate) async fn is_on_disk(config_dir: &Path, id: &str) -> bool {
    let (config_dir, id) = (config_dir.to_owned(), id.to_owned());
    let found = blocking(move || has_transcript(config_dir, &id)).await;
    found.unwrap_or_else(|error| {
        // The CLI may be able to read what this process cannot. A conversation that it does not have is started then.
        tracing::warn!(%error, "a conversation could not be looked up; the CLI is asked to resume it");
        true
    })
}

struct Loading<'a> {
    store: &'a Arc<dyn SessionStore>,
    options: &'a Options,
    /// The folder of the project's transcripts on disk.
    folder: String,
    project_key: String,
}

impl<'a> Loading<'a> {
    async fn of(store: &'a Arc<dyn SessionStore>, options: &'a Options) -> Result<Self> {
        let cwd = options.cwd.clone().unwrap_or_else(|| PathBuf::from("."));
        let folder = blocking(move || Ok(key_of_path(&canonical(&cwd)))).await?;
        let project_key = options.store.project_key.clone().unwrap_or_else(|| folder.clone());
        Ok(Self { store, options, folder, project_key })
    }

    async fn session(&self) -> Result<Option<Loaded>> {
        let (session_id, main) = match (&self.options.conversation, &self.options.resume) {
            (Some(id), _) => match self.load(&SessionKey::new(&self.project_key, id)).await? {
                Some(main) => (id.clone(), main),
                None => return Ok(None),
            },
            (None, Some(id)) => {
                check_session_id(id)?;
                let key = SessionKey::new(&self.project_key, id);
                (id.clone(), self.load(&key).await?.ok_or_else(|| not_stored(&key))?)
            }
            (None, None) => match self.newest().await? {
                Some(newest) => newest,
                None if self.options.resume_session_at.is_none() => return Ok(None),
                None => {
                    let text = format!("the store has no session of the project '{}'", self.project_key);
                    return Err(Error::new(ErrorKind::SessionNotFound, text).with_help(
                        "start without `resume_session_at`, or see whether `project_key` is right",
                    ));
                }
            },
        };
        let key = SessionKey::new(&self.project_key, &session_id);
        let mut parts = Vec::new();
        for subpath in self.subkeys(&key).await? {
            // Checked, because the subpath comes from outside and becomes a path.
            if !is_safe_subpath(&subpath) {
                tracing::warn!(%key, subpath, "a transcript whose subpath leads out of the session's folder was skipped");
                continue;
            }
            let entries = self.load(&key.clone().with_subpath(&subpath)).await?;
            parts.extend(entries.map(|entries| (subpath, entries)));
        }
        Ok(Some(Loaded { session_id, main, parts }))
    }

    /// The newest session of the project that is not a subagent.
    async fn newest(&self) -> Result<Option<(String, Vec<TranscriptEntry>)>> {
        let (store, project_key) = (self.store.clone(), self.project_key.clone());
        let listing = async move { store.list_sessions(&project_key).await };
        let mut sessions: Vec<StoredSession> =
            self.limited("list_sessions", &self.project_key, listing).await??;
        sort_newest_first(&mut sessions, |session| (session.modified, &session.session_id));
        for session in sessions.into_iter().filter(|session| is_session_id(&session.session_id)) {
            let key = SessionKey::new(&self.project_key, &session.session_id);
            let Some(entries) = self.load(&key).await? else { continue };
            if !entries.first().is_some_and(TranscriptEntry::is_sidechain) {
                return Ok(Some((session.session_id, entries)));
            }
        }
        Ok(None)
    }

    async fn load(&self, key: &SessionKey) -> Result<Option<Vec<TranscriptEntry>>> {
        let (store, of) = (self.store.clone(), key.clone());
        let loaded = self.limited("load", key, async move { store.load(&of).await }).await??;
        Ok(loaded.filter(|entries| !entries.is_empty()).map(|mut entries| {
            dedup(&mut entries);
            entries
        }))
    }

    async fn subkeys(&self, key: &SessionKey) -> Result<Vec<String>> {
        let (store, of) = (self.store.clone(), key.clone());
        let listing = async move {
            match store.list_subkeys(&of).await {
                // The session can be resumed without its subagents.
                Err(error) if error.is::<Unsupported>() => Ok(Vec::new()),
                listed => listed,
            }
        };
        self.limited("list_subkeys", key, listing).await?
    }

    /// Calls the store on a task of its own, with the limit `store.load`.
    async fn limited<T: Send + 'static>(
        &self,
        method: &'static str,
        about: &(impl std::fmt::Display + Sync),
        call: impl Future<Output = StoreResult<T>> + Send + 'static,
    ) -> Result<Result<T>> {
        let limit = self.options.store.load;
        let mut task = Task::spawn(AssertUnwindSafe(call).catch_unwind());
        match tokio::time::timeout(limit, task.join()).await {
            Ok(Some(Ok(answer))) => Ok(answer.map_err(|error| failed(method, about, error))),
            Ok(Some(Err(panic))) => {
                Err(failed(method, about, format!("it panicked: {}", panic_text(&*panic)).into()))
            }
            Ok(None) => Err(failed(method, about, "its task was taken away".into())),
            Err(_) => {
                let error = failed(method, about, format!("it took more than {limit:?}").into());
                Err(error.with_help("see to the store, or raise `store.load`"))
            }
        }
    }
}
