//! [`StoredSessions`]: the sessions in a store, listed, read and changed.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::{SessionKey, SessionStore, StoreError, TranscriptEntry, Unsupported, dedup};
use crate::error::{Error, ErrorKind, Result};
use crate::sessions::{
    Folded, Fork, Link, LocalSessions, Page, Parents, SessionFile, SessionInfo, SessionMessage,
    SessionMessages, SubagentInfo, blocking, check_session_id, derived_title, each_line, no_subagent,
    parents, sidecar, tag_entry, title_entry, transcripts, visible, visible_of_subagent,
};

/// The type of the entry that stands for a subagent's `.meta.json` in a store.
pub(crate) const AGENT_METADATA: &str = "agent_metadata";

/// The sessions of one project in a [`SessionStore`]: the same that [`LocalSessions`] does on disk.
///
/// Session ids are UUIDs. Anything else is [`InvalidOption`](ErrorKind::InvalidOption), an id that the store does not
/// have [`SessionNotFound`](ErrorKind::SessionNotFound), and a store that fails [`Store`](ErrorKind::Store). The methods of
/// the store are called on the task of the caller, without a limit.
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
    /// Those under this [`project_key`](SessionKey::project_key).
    pub fn new(store: Arc<dyn SessionStore>, project_key: impl Into<String>) -> Self {
        Self { store, project_key: project_key.into() }
    }

    /// The sessions, the one that was written to last first.
    ///
    /// Of a store without [`list_summaries`](SessionStore::list_summaries) sessions are loaded one after the other until
    /// the page is full.
    ///
    /// # Errors
    /// [`Store`](ErrorKind::Store), also for a store without [`list_sessions`](SessionStore::list_sessions).
    pub async fn list(&self, page: Page) -> Result<Vec<SessionInfo>> {
        let summaries = match self.store.list_summaries(&self.project_key).await {
            Ok(summaries) => summaries,
            Err(error) if error.is::<Unsupported>() => return self.list_loaded(page).await,
            Err(error) => return Err(failed("list_summaries", &self.project_key, error)),
        };
        let mut found: Vec<_> = summaries.iter().filter_map(|summary| summary.info()).collect();
        found.sort_by(|one, other| {
            other.modified.cmp(&one.modified).then_with(|| one.session_id.cmp(&other.session_id))
        });
        Ok(page.of(found).collect())
    }

    async fn list_loaded(&self, page: Page) -> Result<Vec<SessionInfo>> {
        let mut found = Vec::new();
        for session in newest_first(&*self.store, &self.project_key).await? {
            if found.len() >= page.end() {
                break;
            }
            let mut folded = Folded::default();
            folded.entries(&self.entries(&session.session_id).await?);
            found.extend(folded.info(&session.session_id, session.modified, None, None));
        }
        Ok(page.of(found).collect())
    }

    /// What a session is.
    ///
    /// # Errors
    /// [`SessionNotFound`](ErrorKind::SessionNotFound), also for one in which nothing was said.
    pub async fn info(&self, session_id: &str) -> Result<SessionInfo> {
        let mut folded = Folded::default();
        folded.entries(&self.entries(session_id).await?);
        // A store that cannot list has no times.
        let sessions = self.store.list_sessions(&self.project_key).await.unwrap_or_default();
        let listed = sessions.into_iter().find(|session| session.session_id == session_id);
        let modified = listed.map_or(std::time::SystemTime::UNIX_EPOCH, |session| session.modified);
        folded.info(session_id, modified, None, None).ok_or_else(|| {
            Error::new(ErrorKind::SessionNotFound, format!("nothing was said in the session {session_id}"))
        })
    }

    /// The messages of a session's conversation; see [`LocalSessions::messages`].
    ///
    /// # Errors
    /// [`SessionNotFound`](ErrorKind::SessionNotFound).
    pub async fn messages(&self, session_id: &str, page: Page) -> Result<SessionMessages> {
        let (entries, links) = linked(self.entries(session_id).await?);
        Ok(read(&entries, &links, &visible(&links, false), page, &Parents::default()))
    }

    /// [`messages`](StoredSessions::messages) with the system messages among them.
    ///
    /// # Errors
    /// [`SessionNotFound`](ErrorKind::SessionNotFound).
    pub async fn messages_with_system(&self, session_id: &str, page: Page) -> Result<SessionMessages> {
        let (entries, links) = linked(self.entries(session_id).await?);
        Ok(read(&entries, &links, &visible(&links, true), page, &Parents::default()))
    }

    /// Gives a session a title.
    ///
    /// # Errors
    /// [`InvalidOption`](ErrorKind::InvalidOption) for an empty title, [`SessionNotFound`](ErrorKind::SessionNotFound).
    pub async fn rename(&self, session_id: &str, title: &str) -> Result<()> {
        self.add(session_id, title_entry(session_id, title)?).await
    }

    /// Gives a session a tag, or takes it away.
    ///
    /// # Errors
    /// [`InvalidOption`](ErrorKind::InvalidOption) for an empty tag, [`SessionNotFound`](ErrorKind::SessionNotFound).
    pub async fn tag(&self, session_id: &str, tag: Option<&str>) -> Result<()> {
        self.add(session_id, tag_entry(session_id, tag)?).await
    }

    async fn add(&self, session_id: &str, entry: Value) -> Result<()> {
        self.entries(session_id).await?;
        self.append(&self.key(session_id), vec![entry]).await
    }

    /// Removes a session and its subagents for good.
    ///
    /// # Errors
    /// [`SessionNotFound`](ErrorKind::SessionNotFound); [`Store`](ErrorKind::Store), also for a store without
    /// [`delete`](SessionStore::delete).
    pub async fn delete(&self, session_id: &str) -> Result<()> {
        self.entries(session_id).await?;
        let key = self.key(session_id);
        self.store.delete(&key).await.map_err(|error| failed("delete", &key, error))
    }

    /// Copies a session's conversation into a new session; see [`LocalSessions::fork`].
    ///
    /// # Errors
    /// [`SessionNotFound`](ErrorKind::SessionNotFound), also for a message that is not in it.
    pub async fn fork(&self, session_id: &str, up_to: Option<&str>, title: Option<&str>) -> Result<String> {
        let entries = self.entries(session_id).await?;
        let links: Vec<_> = entries.iter().filter_map(|entry| Link::read(entry.raw().get())).collect();
        let fork = Fork::plan(session_id, &links, up_to)?;
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

    /// The subagents of a session, in the order of their names.
    ///
    /// # Errors
    /// [`SessionNotFound`](ErrorKind::SessionNotFound); [`Store`](ErrorKind::Store), also for a store without
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
    /// [`SessionNotFound`](ErrorKind::SessionNotFound), also for a subagent that the session does not have;
    /// [`Store`](ErrorKind::Store), also for a store without [`list_subkeys`](SessionStore::list_subkeys).
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
        let started_by = parents(metadata(&entries).as_ref());
        let (entries, links) = linked(entries);
        Ok(read(&entries, &links, &visible_of_subagent(&links), page, &started_by))
    }

    /// Copies a session from this machine's disk into the store, with its subagents, so many entries at a time. Entries
    /// that the store has already come to nothing if it drops what it is given twice, as it should: so this also brings a
    /// store up to date that has missed something.
    ///
    /// # Errors
    /// [`SessionNotFound`](ErrorKind::SessionNotFound), [`Io`](ErrorKind::Io), [`Store`](ErrorKind::Store);
    /// [`InvalidOption`](ErrorKind::InvalidOption) if `batch` is 0.
    pub async fn import(&self, from: &LocalSessions, session_id: &str, batch: usize) -> Result<()> {
        if batch == 0 {
            return Err(Error::invalid_option("a batch of no entries imports nothing"));
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
            // A file is read whole before it is sent, so that nothing blocks between two batches.
            let entries = blocking(move || {
                let mut entries = Vec::new();
                each_line(&path, |_, _, line| {
                    Ok(TranscriptEntry::parse(line).map(|entry| entries.push(entry)).is_ok())
                })?;
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

    /// The entries of a session, which is there.
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

/// The sessions of a project, the one that was written to last first.
pub(crate) async fn newest_first(
    store: &dyn SessionStore,
    project_key: &str,
) -> Result<Vec<super::StoredSession>> {
    let listed = store.list_sessions(project_key).await;
    let mut sessions = listed.map_err(|error| failed("list_sessions", project_key, error))?;
    sort_newest_first(&mut sessions);
    Ok(sessions)
}

pub(crate) fn sort_newest_first(sessions: &mut [super::StoredSession]) {
    sessions.sort_by(|one, other| {
        other.modified.cmp(&one.modified).then_with(|| one.session_id.cmp(&other.session_id))
    });
}

pub(crate) fn not_stored(key: &SessionKey) -> Error {
    let text = format!("the store has no session {} of the project '{}'", key.session_id, key.project_key);
    Error::new(ErrorKind::SessionNotFound, text)
        .with_help("it may be under another `project_key`, which is made of the working directory by default")
}

pub(crate) fn failed(method: &str, about: impl fmt::Display, error: StoreError) -> Error {
    Error::new(ErrorKind::Store, format!("`{method}` of the session store failed for {about}: {error}"))
        .with_source(error)
}

/// What a subagent's entries tell of who started it: the last one counts, for it is written anew.
pub(crate) fn metadata(entries: &[TranscriptEntry]) -> Option<Value> {
    let mut note = entries.iter().rev().find(|entry| entry.kind() == Some(AGENT_METADATA))?.value();
    note.as_object_mut()?.remove("type");
    Some(note)
}

fn linked(entries: Vec<TranscriptEntry>) -> (Vec<TranscriptEntry>, Vec<Link>) {
    let links = entries.into_iter().filter_map(|entry| {
        let link = Link::read(entry.raw().get()).filter(Link::is_linked)?;
        Some((entry, link))
    });
    links.unzip()
}

fn read(
    entries: &[TranscriptEntry],
    links: &[Link],
    chain: &[usize],
    page: Page,
    parents: &Parents,
) -> SessionMessages {
    let wanted = page.of(chain.iter().copied());
    let messages =
        wanted.filter_map(|index| SessionMessage::read(&links[index], entries[index].raw().get(), parents));
    SessionMessages { messages: messages.collect(), total: chain.len(), skipped_lines: 0 }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use futures_util::future::BoxFuture;
    use serde_json::json;

    use super::*;
    use crate::sessions::project_key;
    use crate::store::{MemoryStore, StoreResult};

    const ID: &str = "aaaaaaaa-0000-4000-8000-000000000001";

    /// A session with a subagent on a disk.
    fn disk() -> (tempfile::TempDir, LocalSessions) {
        let home = tempfile::tempdir().unwrap();
        let work = Path::new("/no/such/work");
        let project = home.path().join("projects").join(project_key(work));
        let agents = project.join(ID).join("subagents");
        std::fs::create_dir_all(&agents).unwrap();
        let said = |kind: &str, uuid: &str, parent: Option<&str>| {
            let content = [json!({"type": "text", "text": format!("text of {uuid}")})];
            json!({"type": kind, "uuid": uuid, "parentUuid": parent, "message": {"id": uuid, "content": content},
                "isSidechain": uuid.starts_with('s')})
        };
        let lines = |values: &[Value]| values.iter().map(|value| format!("{value}\n")).collect::<String>();
        let talk =
            [said("user", "u1", None), said("assistant", "a1", Some("u1")), said("user", "u2", Some("a1"))];
        std::fs::write(project.join(format!("{ID}.jsonl")), lines(&talk)).unwrap();
        let side = [said("user", "s1", None), said("assistant", "s2", Some("s1"))];
        std::fs::write(agents.join("agent-x.jsonl"), lines(&side)).unwrap();
        std::fs::write(agents.join("agent-x.meta.json"), r#"{"agentType":"Plan","toolUseId":"t"}"#).unwrap();
        let local = LocalSessions::at(home.path()).in_directory(work);
        (home, local)
    }

    fn uuids(messages: &SessionMessages) -> Vec<&str> {
        messages.messages.iter().map(|said| said.uuid.as_str()).collect()
    }

    #[tokio::test]
    async fn a_session_that_was_imported_is_the_same_as_on_disk() {
        let (_home, local) = disk();
        let store = Arc::new(MemoryStore::new());
        let stored = StoredSessions::new(store.clone(), "tenant");
        stored.import(&local, ID, 2).await.unwrap();
        stored.import(&local, ID, 500).await.unwrap();
        let key = SessionKey::new("tenant", ID);
        assert_eq!(store.keys(), [key.clone(), key.with_subpath("subagents/agent-x")]);
        let on_disk = local.messages(ID, Page::ALL).await.unwrap();
        let in_store = stored.messages(ID, Page::ALL).await.unwrap();
        assert_eq!((uuids(&in_store), in_store.total), (uuids(&on_disk), 3));
        assert_eq!(uuids(&stored.messages(ID, Page::first(1).after(1)).await.unwrap()), ["a1"]);
        assert_eq!(stored.subagents(ID).await.unwrap(), local.subagents(ID).await.unwrap());
        let side = stored.subagent_messages(ID, "x", Page::ALL).await.unwrap();
        assert_eq!(uuids(&side), ["s1", "s2"]);
        assert_eq!(side.messages[0].parent_tool_use_id.as_deref(), Some("t"));
        let listed = stored.list(Page::ALL).await.unwrap();
        assert_eq!((listed.len(), listed[0].summary.as_str()), (1, "text of u1"));

        stored.rename(ID, "Mine").await.unwrap();
        stored.tag(ID, Some("t")).await.unwrap();
        let fork = stored.fork(ID, Some("a1"), None).await.unwrap();
        let info = stored.info(ID).await.unwrap();
        assert_eq!((info.summary.as_str(), info.tag.as_deref()), ("Mine", Some("t")));
        assert_eq!(stored.info(&fork).await.unwrap().summary, "Mine (fork)");
        assert_eq!(stored.messages(&fork, Page::ALL).await.unwrap().total, 2);
        stored.delete(ID).await.unwrap();
        assert_eq!(store.keys().len(), 1, "the fork is left");
    }

    #[tokio::test]
    async fn what_is_not_there_and_what_a_store_cannot_do_is_said() {
        /// Fails, and cannot list.
        struct Poor;
        impl SessionStore for Poor {
            fn append<'a>(
                &'a self,
                _: &'a SessionKey,
                _: &'a [TranscriptEntry],
            ) -> BoxFuture<'a, StoreResult<()>> {
                Box::pin(async { Err("full".into()) })
            }
            fn load<'a>(
                &'a self,
                _: &'a SessionKey,
            ) -> BoxFuture<'a, StoreResult<Option<Vec<TranscriptEntry>>>> {
                Box::pin(async { Ok(Some(vec![TranscriptEntry::parse(r#"{"type":"user","uuid":"u"}"#)?])) })
            }
        }
        let empty = StoredSessions::new(Arc::new(MemoryStore::new()), "p");
        for error in [
            empty.info(ID).await.unwrap_err(),
            empty.messages(ID, Page::ALL).await.unwrap_err(),
            empty.rename(ID, "x").await.unwrap_err(),
            empty.delete(ID).await.unwrap_err(),
            empty.subagents(ID).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::SessionNotFound);
            assert!(error.to_string().contains(ID), "{error}");
        }
        assert_eq!(empty.info("x").await.unwrap_err().kind(), ErrorKind::InvalidOption);
        let poor = StoredSessions::new(Arc::new(Poor), "p");
        for (error, says) in [
            (poor.rename(ID, "x").await.unwrap_err(), "full"),
            (poor.list(Page::ALL).await.unwrap_err(), "has no `list_sessions`"),
            (poor.subagents(ID).await.unwrap_err(), "has no `list_subkeys`"),
            (poor.delete(ID).await.unwrap_err(), "has no `delete`"),
        ] {
            assert_eq!(error.kind(), ErrorKind::Store);
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
