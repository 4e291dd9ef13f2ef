//! [`StoredSessions`]: lists, reads and changes the sessions in a store.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::{
    AGENT_METADATA, SessionKey, SessionStore, TranscriptEntry, Unsupported, dedup, failed, metadata,
    not_stored,
};
use crate::blocking::blocking;
use crate::error::{Error, ErrorKind, Result};
use crate::message::UsageTracker;
use crate::sessions::{
    Folded, Fork, LocalSessions, Page, Parents, SessionFile, SessionInfo, SessionMessages, SubagentInfo,
    check_session_id, derived_title, no_subagent, read_entries, sidecar, sort_newest_first, tag_entry,
    title_entry, transcripts, visible, visible_of_subagent,
};

/// The sessions of one project in a [`SessionStore`], with the methods that [`LocalSessions`] has for a disk.
///
/// Errors of all methods with a session id: [`InvalidOption`](ErrorKind::InvalidOption) if the id is no UUID,
/// [`SessionNotFound`](ErrorKind::SessionNotFound) if the store has no such session, and [`Store`](ErrorKind::Store) if
/// the store fails. Methods of the store run on the caller's task, without a time limit.
///
/// ```
/// use std::sync::Arc;
/// use greenroom::sessions::{Page, project_key};
/// use greenroom::store::{MemoryStore, StoredSessions};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> greenroom::Result<()> {
/// let sessions = StoredSessions::new(Arc::new(MemoryStore::new()), project_key("/home/me/project".as_ref()));
/// assert!(sessions.list(Page::ALL).await?.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct StoredSessions {
    store: Arc<dyn SessionStore>,
    project_key: String,
}

impl StoredSessions {
    /// The sessions under this [`project_key`](SessionKey::project_key).
    pub fn new(store: Arc<dyn SessionStore>, project_key: impl Into<String>) -> Self {
        Self { store, project_key: project_key.into() }
    }

    /// Lists sessions, the most recently written first. If the store has no
    /// [`list_summaries`](SessionStore::list_summaries), loads one session after the other until the page is full.
    ///
    /// # Errors
    /// [`Store`](ErrorKind::Store), also if the store has no [`list_sessions`](SessionStore::list_sessions).
    pub async fn list(&self, page: Page) -> Result<Vec<SessionInfo>> {
        let summaries = match self.store.list_summaries(&self.project_key).await {
            Ok(summaries) => summaries,
            Err(error) if error.is::<Unsupported>() => return self.list_loaded(page).await,
            Err(error) => return Err(failed("list_summaries", &self.project_key, error)),
        };
        let mut found: Vec<_> = summaries.iter().filter_map(|summary| summary.info()).collect();
        sort_newest_first(&mut found, |info| (info.modified, &info.session_id));
        Ok(page.of(found).collect())
    }

    async fn list_loaded(&self, page: Page) -> Result<Vec<SessionInfo>> {
        let listed = self.store.list_sessions(&self.project_key).await;
        let mut sessions = listed.map_err(|error| failed("list_sessions", &self.project_key, error))?;
        sort_newest_first(&mut sessions, |session| (session.modified, &session.session_id));
        let mut found = Vec::new();
        for session in sessions {
            if found.len() >= page.end() {
                break;
            }
            let mut folded = Folded::default();
            folded.entries(&self.entries(&session.session_id).await?);
            found.extend(folded.info(&session.session_id, session.modified, None, None));
        }
        Ok(page.of(found).collect())
    }

    /// Describes a session.
    ///
    /// # Errors
    /// [`SessionNotFound`](ErrorKind::SessionNotFound), also for a session without a message.
    pub async fn info(&self, session_id: &str) -> Result<SessionInfo> {
        let mut folded = Folded::default();
        folded.entries(&self.entries(session_id).await?);
        // A store that cannot list has no modification times.
        let sessions = self.store.list_sessions(&self.project_key).await.unwrap_or_default();
        let listed = sessions.into_iter().find(|session| session.session_id == session_id);
        let modified = listed.map_or(std::time::SystemTime::UNIX_EPOCH, |session| session.modified);
        folded.info(session_id, modified, None, None).ok_or_else(|| {
            let text = format!("the session {session_id} in the store has no message");
            Error::new(ErrorKind::SessionNotFound, text).with_help("run a turn in the session first")
        })
    }

    /// The messages of a session's conversation; see [`LocalSessions::messages`].
    pub async fn messages(&self, session_id: &str, page: Page) -> Result<SessionMessages> {
        let entries = self.entries(session_id).await?;
        Ok(SessionMessages::read(&entries, |links| visible(links, false), page, &Parents::default()))
    }

    /// [`messages`](StoredSessions::messages) including system messages.
    pub async fn messages_with_system(&self, session_id: &str, page: Page) -> Result<SessionMessages> {
        let entries = self.entries(session_id).await?;
        Ok(SessionMessages::read(&entries, |links| visible(links, true), page, &Parents::default()))
    }

    /// Gives a session a title.
    ///
    /// # Errors
    /// [`InvalidOption`](ErrorKind::InvalidOption) if the title is empty,
    /// [`SessionNotFound`](ErrorKind::SessionNotFound).
    pub async fn rename(&self, session_id: &str, title: &str) -> Result<()> {
        self.add(session_id, title_entry(session_id, title)?).await
    }

    /// Sets a session's tag, or removes it with `None`.
    ///
    /// # Errors
    /// [`InvalidOption`](ErrorKind::InvalidOption) if the tag is empty,
    /// [`SessionNotFound`](ErrorKind::SessionNotFound).
    pub async fn tag(&self, session_id: &str, tag: Option<&str>) -> Result<()> {
        self.add(session_id, tag_entry(session_id, tag)?).await
    }

    async fn add(&self, session_id: &str, entry: Value) -> Result<()> {
        self.entries(session_id).await?;
        self.append(&self.key(session_id), vec![entry]).await
    }

    /// Deletes a session and its subagents for good.
    ///
    /// # Errors
    /// [`SessionNotFound`](ErrorKind::SessionNotFound); [`Store`](ErrorKind::Store), also if the store has no
    /// [`delete`](SessionStore::delete).
    pub async fn delete(&self, session_id: &str) -> Result<()> {
        self.entries(session_id).await?;
        let key = self.key(session_id);
        self.store.delete(&key).await.map_err(|error| failed("delete", &key, error))
    }

    /// Copies a session's conversation into a new session; see [`LocalSessions::fork`].
    ///
    /// # Errors
    /// [`SessionNotFound`](ErrorKind::SessionNotFound), also if `up_to` is not in the session.
    pub async fn fork(&self, session_id: &str, up_to: Option<&str>, title: Option<&str>) -> Result<String> {
        let entries = self.entries(session_id).await?;
        let fork = Fork::plan(session_id, &entries, up_to)?;
        let title = match title.map(str::trim).filter(|title| !title.is_empty()) {
            Some(title) => title.to_owned(),
            None => {
                let mut folded = Folded::default();
                folded.entries(&entries);
                let info = folded.info(session_id, std::time::SystemTime::UNIX_EPOCH, None, None);
                derived_title(info.map(|info| info.title()).as_deref())
            }
        };
        let mut copies: Vec<Value> = entries.iter().filter_map(|entry| fork.copy(entry.value())).collect();
        copies.push(fork.title(&title));
        self.append(&self.key(fork.session_id()), copies).await?;
        Ok(fork.session_id().to_owned())
    }

    /// The subagents of a session, sorted by their subpaths.
    ///
    /// # Errors
    /// [`SessionNotFound`](ErrorKind::SessionNotFound); [`Store`](ErrorKind::Store), also if the store has no
    /// [`list_subkeys`](SessionStore::list_subkeys).
    pub async fn subagents(&self, session_id: &str) -> Result<Vec<SubagentInfo>> {
        self.entries(session_id).await?;
        let mut agents = Vec::new();
        for (agent_id, subpath) in self.subagent_paths(session_id).await? {
            let key = self.key(session_id).with_subpath(subpath);
            agents.push(SubagentInfo::new(agent_id, metadata(&self.load(&key).await?.unwrap_or_default())));
        }
        Ok(agents)
    }

    /// The messages of a subagent's conversation.
    ///
    /// # Errors
    /// [`SessionNotFound`](ErrorKind::SessionNotFound), also if the session has no such subagent;
    /// [`Store`](ErrorKind::Store), also if the store has no [`list_subkeys`](SessionStore::list_subkeys).
    pub async fn subagent_messages(
        &self,
        session_id: &str,
        agent_id: &str,
        page: Page,
    ) -> Result<SessionMessages> {
        self.entries(session_id).await?;
        let paths = self.subagent_paths(session_id).await?;
        let Some((_, subpath)) = paths.into_iter().find(|(found, _)| found == agent_id) else {
            return Err(no_subagent(session_id, agent_id));
        };
        let entries = self.load(&self.key(session_id).with_subpath(subpath)).await?.unwrap_or_default();
        let started_by = Parents::of(metadata(&entries).as_ref());
        Ok(SessionMessages::read(&entries, visible_of_subagent, page, &started_by))
    }

    /// The money and the tokens of a conversation and its subagents, by their entries: see
    /// [`LocalSessions::usage`].
    ///
    /// # Errors
    /// [`SessionNotFound`](ErrorKind::SessionNotFound); [`Store`](ErrorKind::Store), also if the store has no
    /// [`list_subkeys`](SessionStore::list_subkeys).
    pub async fn usage(&self, session_id: &str) -> Result<UsageTracker> {
        let mut tracker = UsageTracker::new();
        for entry in self.entries(session_id).await? {
            tracker.feed_entry(None, entry.raw().get());
        }
        for (agent, subpath) in self.subagent_paths(session_id).await? {
            let key = self.key(session_id).with_subpath(subpath);
            for entry in self.load(&key).await?.unwrap_or_default() {
                tracker.feed_entry(Some(&agent), entry.raw().get());
            }
        }
        tracker.end();
        Ok(tracker)
    }

    /// Copies a session with its subagents from this machine's disk into the store, `batch` entries at a time. A store
    /// drops entries that it already has, so this also adds entries that the store has missed.
    ///
    /// # Errors
    /// [`SessionNotFound`](ErrorKind::SessionNotFound), [`Io`](ErrorKind::Io), [`Store`](ErrorKind::Store);
    /// [`InvalidOption`](ErrorKind::InvalidOption) if `batch` is 0.
    pub async fn import(&self, from: &LocalSessions, session_id: &str, batch: usize) -> Result<()> {
        if batch == 0 {
            return Err(Error::invalid_option("the batch of an import is 0").with_help("give it at least 1"));
        }
        let files = from.with(session_id, |file: SessionFile| {
            let own = file.own_folder();
            let mut files = vec![(None, file.path)];
            for path in transcripts(&own)? {
                let below = path.with_extension("");
                let parts = below.strip_prefix(&own).unwrap_or(&below).iter();
                let parts: Vec<_> = parts.map(|part| part.to_string_lossy()).collect();
                files.push((Some(parts.join("/")), path));
            }
            Ok(files)
        });
        for (subpath, path) in files.await? {
            let key = SessionKey { subpath, ..self.key(session_id) };
            // Read whole, so that no file is open while the store is called.
            let entries = blocking(move || {
                let (mut entries, _) = read_entries(&path)?;
                if let Some(Value::Object(mut note)) = sidecar(&path) {
                    note.insert("type".into(), AGENT_METADATA.into());
                    entries.extend(TranscriptEntry::try_from(Value::Object(note)));
                }
                Ok(entries)
            });
            for batch in entries.await?.chunks(batch) {
                self.store.append(&key, batch).await.map_err(|error| failed("append", &key, error))?;
            }
        }
        Ok(())
    }

    fn key(&self, session_id: &str) -> SessionKey {
        SessionKey::new(&self.project_key, session_id)
    }

    async fn subagent_paths(&self, session_id: &str) -> Result<Vec<(String, String)>> {
        let key = self.key(session_id);
        let listed = self.store.list_subkeys(&key).await;
        let mut subpaths = listed.map_err(|error| failed("list_subkeys", &key, error))?;
        subpaths.sort();
        let agent = |subpath: String| {
            let name = subpath.strip_prefix("subagents/")?.rsplit('/').next()?.strip_prefix("agent-")?;
            Some((name.to_owned(), subpath))
        };
        Ok(subpaths.into_iter().filter_map(agent).collect())
    }

    /// The entries of a session that exists.
    async fn entries(&self, session_id: &str) -> Result<Vec<TranscriptEntry>> {
        check_session_id(session_id)?;
        let key = self.key(session_id);
        self.load(&key).await?.ok_or_else(|| not_stored(&key))
    }

    async fn load(&self, key: &SessionKey) -> Result<Option<Vec<TranscriptEntry>>> {
        let loaded = self.store.load(key).await.map_err(|error| failed("load", key, error))?;
        Ok(loaded.filter(|entries| !entries.is_empty()).map(|mut entries| {
            dedup(&mut entries);
            entries
        }))
    }

    async fn append(&self, key: &SessionKey, values: Vec<Value>) -> Result<()> {
        let entries: Vec<_> = values.into_iter().flat_map(TranscriptEntry::try_from).collect();
        self.store.append(key, &entries).await.map_err(|error| failed("append", key, error))
    }
}

impl fmt::Debug for StoredSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredSessions").field("project_key", &self.project_key).finish_non_exhaustive()
    }
}
