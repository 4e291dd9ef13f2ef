//! [`LocalSessions`]: the sessions on this machine's disk.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::archive;
use super::change::{tag_entry, title_entry};
use super::find::contents;
use super::find::disk::{self, SearchScope, SessionFile};
use super::find::key::{self, check_session_id};
use super::page::Page;
use super::read::chain::{visible, visible_of_subagent};
use super::read::summary::SessionInfo;
use super::read::{EntryLink, Fork, SessionMessages, derived_title};
use super::subagent::{Parents, SubagentInfo, no_subagent};
use crate::Options;
use crate::blocking::blocking;
use crate::error::{Error, ErrorKind, Result};
use crate::files::is_absent;
use crate::message::{AGENT_METADATA, UsageTracker};

/// The sessions that CLIs have written to this machine's disk: of all projects, or of one directory.
///
/// No CLI and no running session is needed. Each method reads the disk anew on a blocking thread of the current tokio
/// runtime; nothing is cached. Changing a session that a CLI has open is safe: entries are appended.
///
/// Errors of all methods with a session id: [`InvalidOption`](ErrorKind::InvalidOption) if the id is no UUID,
/// [`SessionNotFound`](ErrorKind::SessionNotFound) if there is no such session, and [`Io`](ErrorKind::Io) if the disk
/// fails.
///
/// ```no_run
/// use greenroom::sessions::{LocalSessions, Page};
///
/// # async fn example() -> greenroom::Result<()> {
/// let sessions = LocalSessions::new()?.in_directory("/home/me/project");
/// for session in sessions.list(Page::first(10)).await? {
///     println!("{}  {}", session.session_id, session.summary);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct LocalSessions {
    scope: SearchScope,
}

impl LocalSessions {
    /// The sessions in the configuration folder of this process's environment: `CLAUDE_CONFIG_DIR`, else `.claude` in
    /// the home.
    ///
    /// # Errors
    /// [`InvalidOption`](ErrorKind::InvalidOption) if there is no home directory.
    pub fn new() -> Result<Self> {
        Ok(Self::at(key::config_dir(|name| std::env::var(name).ok()).map_err(no_home)?))
    }

    /// The sessions in this configuration folder, which contains `projects`.
    pub fn at(config_dir: impl Into<PathBuf>) -> Self {
        let config_dir = config_dir.into();
        Self { scope: SearchScope { config_dir, directory: None, worktrees: true, programmatic: true } }
    }

    /// The sessions of a CLI with these options: in its environment and its working directory.
    ///
    /// # Errors
    /// As [`new`](LocalSessions::new); [`Io`](ErrorKind::Io) if the host's working directory is needed and does not
    /// exist.
    pub fn of(options: &Options) -> Result<Self> {
        let sessions = Self::at(key::config_dir(|name| key::variable(options, name)).map_err(no_home)?);
        let cwd = match &options.cwd {
            Some(cwd) => cwd.clone(),
            None => std::env::current_dir().map_err(|error| disk::unreadable(Path::new("."), error))?,
        };
        Ok(sessions.in_directory(cwd))
    }

    /// Only sessions of this directory and of the other worktrees of its git repository. The directory is resolved
    /// first, as the CLI does.
    #[must_use]
    pub fn in_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.scope.directory = Some(directory.into());
        self
    }

    /// Only sessions of the directory itself, not of other worktrees. No effect without a directory.
    #[must_use]
    pub fn without_worktrees(mut self) -> Self {
        self.scope.worktrees = false;
        self
    }

    /// Lists only sessions that a person started, not those of programs (an SDK, or `claude -p`) and daemons.
    #[must_use]
    pub fn without_programmatic(mut self) -> Self {
        self.scope.programmatic = false;
        self
    }

    /// The configuration folder.
    pub fn config_dir(&self) -> &Path {
        &self.scope.config_dir
    }

    /// Lists sessions, the most recently written first. Reads both ends of each file, and only as many files as the
    /// page needs. Transcripts of subagents, transcripts without a message, and unreadable files are left out.
    ///
    /// # Errors
    /// [`Io`](ErrorKind::Io) if an existing folder cannot be read.
    pub async fn list(&self, page: Page) -> Result<Vec<SessionInfo>> {
        let scope = self.scope.clone();
        blocking(move || {
            let mut found: Vec<SessionInfo> = Vec::new();
            let wanted = page.end();
            for file in scope.sessions()? {
                if found.len() >= wanted {
                    break;
                }
                if found.iter().any(|known| known.session_id == file.session_id) {
                    continue;
                }
                match info(&file, scope.programmatic) {
                    Ok(info) => found.extend(info),
                    // The file may have been deleted meanwhile.
                    Err(error) => tracing::debug!(%error, "a session's file was skipped"),
                }
            }
            Ok(page.of(found).collect())
        })
        .await
    }

    /// Describes a session.
    ///
    /// # Errors
    /// [`SessionNotFound`](ErrorKind::SessionNotFound), also for a transcript without a message.
    pub async fn info(&self, session_id: &str) -> Result<SessionInfo> {
        self.with(session_id, |file| {
            info(&file, true)?.ok_or_else(|| {
                let text = format!("the transcript of the session {} has no message", file.session_id);
                Error::new(ErrorKind::SessionNotFound, text).with_help("run a turn in the session first")
            })
        })
        .await
    }

    /// The messages of a session's conversation in order, from the start or from the last compaction. Rewound and
    /// edited messages and messages that the CLI added for itself are left out; all parallel tool calls are included.
    /// The whole transcript is read into memory, whatever the page.
    pub async fn messages(&self, session_id: &str, page: Page) -> Result<SessionMessages> {
        self.read_messages(session_id, page, false).await
    }

    /// [`messages`](LocalSessions::messages) including system messages: boundaries of compactions, notices.
    pub async fn messages_with_system(&self, session_id: &str, page: Page) -> Result<SessionMessages> {
        self.read_messages(session_id, page, true).await
    }

    async fn read_messages(&self, session_id: &str, page: Page, system: bool) -> Result<SessionMessages> {
        self.with(session_id, move |file| {
            read_page(&file.path, |links| visible(links, system), page, &Parents::default())
        })
        .await
    }

    /// Gives a session a title, by which the CLI can also resume it. White space around the title is removed.
    ///
    /// # Errors
    /// [`InvalidOption`](ErrorKind::InvalidOption) if the title is empty,
    /// [`SessionNotFound`](ErrorKind::SessionNotFound).
    pub async fn rename(&self, session_id: &str, title: &str) -> Result<()> {
        let entry = title_entry(session_id, title)?;
        self.with(session_id, move |file| contents::append(&file.path, &entry)).await
    }

    /// Sets a session's tag, or removes it with `None`. Invisible characters and white space around the tag are
    /// removed.
    ///
    /// # Errors
    /// [`InvalidOption`](ErrorKind::InvalidOption) if the tag is empty,
    /// [`SessionNotFound`](ErrorKind::SessionNotFound).
    pub async fn tag(&self, session_id: &str, tag: Option<&str>) -> Result<()> {
        let entry = tag_entry(session_id, tag)?;
        self.with(session_id, move |file| contents::append(&file.path, &entry)).await
    }

    /// Archives a session. Its files stay, and lists show the mark
    /// ([`SessionInfo::archived`](super::SessionInfo::archived)). A CLI that has the session open is not affected; the
    /// next prompt unarchives the session.
    pub async fn archive(&self, session_id: &str) -> Result<()> {
        self.mark(session_id, true).await
    }

    /// Unarchives a session.
    pub async fn unarchive(&self, session_id: &str) -> Result<()> {
        self.mark(session_id, false).await
    }

    async fn mark(&self, session_id: &str, archived: bool) -> Result<()> {
        check_session_id(session_id)?;
        let (scope, session_id) = (self.scope.clone(), session_id.to_owned());
        blocking(move || {
            let files = scope.find_all(&session_id)?;
            if files.is_empty() {
                return Err(scope.not_found(&session_id));
            }
            files.iter().try_for_each(|file| archive::mark(file, archived))
        })
        .await
    }

    /// Deletes a session for good: its transcript and the transcripts of its subagents. Deletes empty transcripts of
    /// the session too, with which the CLI neither resumes nor starts the conversation.
    pub async fn delete(&self, session_id: &str) -> Result<()> {
        check_session_id(session_id)?;
        let (scope, session_id) = (self.scope.clone(), session_id.to_owned());
        blocking(move || {
            let mut paths = scope.empty_files(&session_id)?;
            match scope.find(&session_id) {
                Ok(file) => paths.push(file.path),
                Err(error) if paths.is_empty() => return Err(error),
                Err(_) => {}
            }
            for path in paths {
                for removed in [fs::remove_file(&path), fs::remove_dir_all(path.with_extension(""))] {
                    match removed {
                        Err(error) if !is_absent(&error) => {
                            return Err(disk::failed("cannot be removed", &path, error));
                        }
                        _ => {}
                    }
                }
            }
            Ok(())
        })
        .await
    }

    /// Copies a session's conversation, up to and including the message `up_to`, into a new session next to it, and
    /// returns the new id. Entries get new ids and name their origin. Without a title, the copy gets the session's
    /// title with ` (fork)` appended. Checkpoints of files are not copied. The
    /// whole transcript is read into memory.
    ///
    /// # Errors
    /// [`SessionNotFound`](ErrorKind::SessionNotFound), also if `up_to` is not in the session.
    pub async fn fork(&self, session_id: &str, up_to: Option<&str>, title: Option<&str>) -> Result<String> {
        let (up_to, title) = (up_to.map(str::to_owned), title.map(|title| title.trim().to_owned()));
        self.with(session_id, move |file| {
            let (entries, _) = disk::read_entries(&file.path)?;
            let fork = Fork::plan(&file.session_id, &entries, up_to.as_deref())?;
            let title = match title.filter(|title| !title.is_empty()) {
                Some(title) => title,
                None => derived_title(info(&file, true)?.map(|info| info.title()).as_deref()),
            };
            // Renamed when it is complete, so no other process sees a part of it.
            let refused = |error| disk::failed("cannot be written", &file.folder.path, error);
            let mut copy = tempfile::NamedTempFile::new_in(&file.folder.path).map_err(refused)?;
            let mut writer = std::io::BufWriter::new(&mut copy);
            for entry in entries.iter().filter_map(|entry| fork.copy(entry.value())) {
                writeln!(writer, "{entry}").map_err(refused)?;
            }
            writeln!(writer, "{}", fork.title(&title)).map_err(refused)?;
            writer.flush().map_err(refused)?;
            drop(writer);
            let path = file.folder.path.join(format!("{}.jsonl", fork.session_id()));
            copy.persist_noclobber(path).map_err(|error| refused(error.error))?;
            Ok(fork.session_id().to_owned())
        })
        .await
    }

    /// The subagents of a session, sorted by the names of their files.
    pub async fn subagents(&self, session_id: &str) -> Result<Vec<SubagentInfo>> {
        self.with(session_id, |file| {
            let agents = contents::subagent_files(&file.subagents())?.into_iter();
            Ok(agents.map(|(agent_id, path)| SubagentInfo::new(agent_id, contents::sidecar(&path))).collect())
        })
        .await
    }

    /// The messages of a subagent's conversation.
    ///
    /// # Errors
    /// [`SessionNotFound`](ErrorKind::SessionNotFound), also if the session has no such subagent.
    pub async fn subagent_messages(
        &self,
        session_id: &str,
        agent_id: &str,
        page: Page,
    ) -> Result<SessionMessages> {
        let agent_id = agent_id.to_owned();
        self.with(session_id, move |file| {
            let agents = contents::subagent_files(&file.subagents())?;
            let Some((_, path)) = agents.into_iter().find(|(found, _)| *found == agent_id) else {
                return Err(no_subagent(&file.session_id, &agent_id));
            };
            read_page(&path, visible_of_subagent, page, &Parents::of(contents::sidecar(&path).as_ref()))
        })
        .await
    }

    /// The money and the tokens of a conversation and its subagents, by their transcripts.
    ///
    /// A CLI that exits notes what it has counted, side calls included. Of a CLI that was killed, the messages count, at the price of those that
    /// were noted; without a note the money is 0.
    ///
    /// # Errors
    /// [`SessionNotFound`](ErrorKind::SessionNotFound), [`Io`](ErrorKind::Io).
    pub async fn usage(&self, session_id: &str) -> Result<UsageTracker> {
        self.with(session_id, |file| {
            let mut tracker = UsageTracker::new();
            let feed = |tracker: &mut UsageTracker, agent: Option<&str>, path: &Path| {
                disk::each_line(path, None, |line| {
                    tracker.feed_entry(agent, line);
                    true
                })
            };
            feed(&mut tracker, None, &file.path)?;
            for (agent, path) in contents::subagent_files(&file.subagents())? {
                feed(&mut tracker, Some(&agent), &path)?;
                if let Some(Value::Object(mut note)) = contents::sidecar(&path) {
                    note.insert("type".into(), AGENT_METADATA.into());
                    tracker.feed_entry(Some(&agent), &Value::Object(note).to_string());
                }
            }
            tracker.end();
            Ok(tracker)
        })
        .await
    }

    /// Runs blocking work with a session's file.
    pub(crate) async fn with<T: Send + 'static>(
        &self,
        session_id: &str,
        work: impl FnOnce(SessionFile) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        check_session_id(session_id)?;
        let (scope, session_id) = (self.scope.clone(), session_id.to_owned());
        blocking(move || work(scope.find(&session_id)?)).await
    }
}

/// Adds what only a user of [`LocalSessions`] can do.
fn no_home(error: Error) -> Error {
    error.with_help("set HOME or CLAUDE_CONFIG_DIR, or give the configuration folder to `LocalSessions::at`")
}

fn info(file: &SessionFile, programmatic: bool) -> Result<Option<SessionInfo>> {
    let folded = contents::fold_edges(&file.path).map_err(|error| disk::unreadable(&file.path, error))?;
    if !programmatic && folded.is_programmatic() {
        return Ok(None);
    }
    let project = file.folder.project.as_deref();
    let info = folded.info(&file.session_id, file.modified, Some(file.size), project);
    Ok(info.map(|info| SessionInfo { archived: archive::state(file, folded.last_asked), ..info }))
}

fn read_page(
    path: &Path,
    chain: impl FnOnce(&[EntryLink]) -> Vec<usize>,
    page: Page,
    parents: &Parents,
) -> Result<SessionMessages> {
    let (entries, skipped_lines) = disk::read_entries(path)?;
    Ok(SessionMessages { skipped_lines, ..SessionMessages::read(&entries, chain, page, parents) })
}
