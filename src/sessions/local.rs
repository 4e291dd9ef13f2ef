//! [`LocalSessions`]: the sessions that CLIs have written to this machine's disk.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Value, json};
use unicode_normalization::UnicodeNormalization;
use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};

use super::disk::{self, Index, Place, SessionFile};
use super::entry::Link;
use super::fork::{Fork, derived_title};
use super::key::{self, check_session_id};
use super::message::{Parents, SessionMessage, SessionMessages};
use super::summary::SessionInfo;
use super::{Page, blocking, chain};
use crate::error::{Error, ErrorKind, Result};
use crate::options::Options;

/// The sessions that CLIs have written to this machine's disk, of all projects or of one directory.
///
/// Nothing is kept in memory, and nothing needs a CLI or a running session; each method looks at the disk anew, on a
/// blocking thread of tokio's, and so needs its runtime. A CLI that has a session open may be written to at the same time:
/// entries are put behind its own.
///
/// Session ids are UUIDs. Anything else is [`InvalidOption`](ErrorKind::InvalidOption), an id that is not there
/// [`SessionNotFound`](ErrorKind::SessionNotFound), and a disk that refuses [`Io`](ErrorKind::Io).
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
    place: Place,
}

/// A subagent of a session.
///
/// ```
/// # fn show(agent: &greenroom::sessions::SubagentInfo) {
/// println!("{} ({:?}): {:?}", agent.agent_id, agent.agent_type, agent.description);
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SubagentInfo {
    /// Its id.
    pub agent_id: String,
    /// What kind of agent it is, such as `general-purpose`.
    pub agent_type: Option<String>,
    /// What it was asked to do, in a few words.
    pub description: Option<String>,
    /// The tool call that started it.
    pub parent_tool_use_id: Option<String>,
    /// The subagent that started it; `None` if that was the main thread.
    pub parent_agent_id: Option<String>,
    /// All that the CLI has noted of it; `null` if it has noted nothing.
    pub metadata: Value,
}

impl SubagentInfo {
    pub(crate) fn new(agent_id: String, metadata: Option<Value>) -> Self {
        let Parents { tool_use_id, parent_agent_id } = disk::parents(metadata.as_ref());
        let text = |name: &str| metadata.as_ref()?.get(name)?.as_str().map(str::to_owned);
        Self {
            agent_id,
            agent_type: text("agentType"),
            description: text("description"),
            parent_tool_use_id: tool_use_id,
            parent_agent_id,
            metadata: metadata.unwrap_or_default(),
        }
    }
}

impl LocalSessions {
    /// Those in the configuration folder of this process's environment: `CLAUDE_CONFIG_DIR`, else `.claude` in the home.
    ///
    /// # Errors
    /// [`InvalidOption`](ErrorKind::InvalidOption), if there is no home.
    pub fn new() -> Result<Self> {
        Ok(Self::at(key::config_dir(|name| std::env::var(name).ok())?))
    }

    /// Those in this configuration folder, the one that has `projects` in it.
    pub fn at(config_dir: impl Into<PathBuf>) -> Self {
        Self { place: Place { config_dir: config_dir.into(), directory: None, worktrees: true } }
    }

    /// Those of the CLI that is started with these options: their environment, and their working directory.
    ///
    /// # Errors
    /// As [`new`](LocalSessions::new), and when the host's working directory is wanted and not there.
    pub fn of(options: &Options) -> Result<Self> {
        let sessions = Self::at(key::config_dir(|name| key::variable(options, name))?);
        let cwd = match &options.cwd {
            Some(cwd) => cwd.clone(),
            None => std::env::current_dir().map_err(|error| disk::unreadable(Path::new("."), error))?,
        };
        Ok(sessions.in_directory(cwd))
    }

    /// Only those of this directory, and of the other worktrees of its git repository. The directory is resolved first,
    /// as the CLI does it.
    #[must_use]
    pub fn in_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.place.directory = Some(directory.into());
        self
    }

    /// Only those of the directory itself, not of other worktrees. Without a directory it changes nothing.
    #[must_use]
    pub fn without_worktrees(mut self) -> Self {
        self.place.worktrees = false;
        self
    }

    /// The configuration folder.
    pub fn config_dir(&self) -> &Path {
        &self.place.config_dir
    }

    /// The sessions, the one that was written to last first. Only both ends of each file are read, and of no more files than
    /// the page needs. A transcript of a subagent, and one in which nothing was said, is no session; a file that cannot be
    /// read is passed over.
    ///
    /// # Errors
    /// [`Io`](ErrorKind::Io), if a folder is there and cannot be read.
    pub async fn list(&self, page: Page) -> Result<Vec<SessionInfo>> {
        let place = self.place.clone();
        blocking(move || {
            let mut found: Vec<SessionInfo> = Vec::new();
            let wanted = page.end();
            for file in place.sessions()? {
                if found.len() >= wanted {
                    break;
                }
                if found.iter().any(|known| known.session_id == file.session_id) {
                    continue;
                }
                match info(&file) {
                    Ok(info) => found.extend(info),
                    // It may have gone between the two.
                    Err(error) => tracing::debug!(%error, "a session's file was passed over"),
                }
            }
            Ok(page.of(found).collect())
        })
        .await
    }

    /// What a session is.
    ///
    /// # Errors
    /// [`SessionNotFound`](ErrorKind::SessionNotFound), also for a transcript in which nothing was said.
    pub async fn info(&self, session_id: &str) -> Result<SessionInfo> {
        self.with(session_id, |file| {
            info(&file)?.ok_or_else(|| {
                let text = format!("nothing was said in the session {}", file.session_id);
                Error::new(ErrorKind::SessionNotFound, text)
            })
        })
        .await
    }

    /// The messages of a session's conversation, from the first to the last, or from the last compaction on. What was
    /// rewound or edited away is left out, and so is what the CLI has put in for itself; all calls of tools that ran at once
    /// are there.
    ///
    /// # Errors
    /// [`SessionNotFound`](ErrorKind::SessionNotFound).
    pub async fn messages(&self, session_id: &str, page: Page) -> Result<SessionMessages> {
        self.read_messages(session_id, page, false).await
    }

    /// [`messages`](LocalSessions::messages) with the system messages among them: boundaries of compactions, notices.
    ///
    /// # Errors
    /// [`SessionNotFound`](ErrorKind::SessionNotFound).
    pub async fn messages_with_system(&self, session_id: &str, page: Page) -> Result<SessionMessages> {
        self.read_messages(session_id, page, true).await
    }

    async fn read_messages(&self, session_id: &str, page: Page, system: bool) -> Result<SessionMessages> {
        self.with(session_id, move |file| {
            let index = Index::read(&file.path)?;
            let chain = visible(&index.links, system);
            read_page(&file.path, &index, &chain, page, &Parents::default())
        })
        .await
    }

    /// Gives a session a title, by which the CLI resumes it as well. White space around it does not count.
    ///
    /// # Errors
    /// [`InvalidOption`](ErrorKind::InvalidOption) for an empty title, [`SessionNotFound`](ErrorKind::SessionNotFound).
    pub async fn rename(&self, session_id: &str, title: &str) -> Result<()> {
        let entry = title_entry(session_id, title)?;
        self.with(session_id, move |file| disk::append(&file.path, &entry)).await
    }

    /// Gives a session a tag, or takes it away. Invisible characters are left out of it, and white space around it.
    ///
    /// # Errors
    /// [`InvalidOption`](ErrorKind::InvalidOption) for an empty tag, [`SessionNotFound`](ErrorKind::SessionNotFound).
    pub async fn tag(&self, session_id: &str, tag: Option<&str>) -> Result<()> {
        let entry = tag_entry(session_id, tag)?;
        self.with(session_id, move |file| disk::append(&file.path, &entry)).await
    }

    /// Removes a session for good: its transcript, and those of its subagents.
    ///
    /// # Errors
    /// [`SessionNotFound`](ErrorKind::SessionNotFound).
    pub async fn delete(&self, session_id: &str) -> Result<()> {
        self.with(session_id, |file| {
            for removed in [fs::remove_file(&file.path), fs::remove_dir_all(file.own_folder())] {
                match removed {
                    Err(error) if !disk::is_absent(&error) => {
                        return Err(disk::failed("cannot be removed", &file.path, error));
                    }
                    _ => {}
                }
            }
            Ok(())
        })
        .await
    }

    /// Copies a session's conversation, up to and with a message, into a new session beside it, and returns that one's id.
    /// Its entries get new ids and name where they come from. Without a title it gets that of the session, with ` (fork)`
    /// behind it. The files that can be rewound to are not copied.
    ///
    /// # Errors
    /// [`SessionNotFound`](ErrorKind::SessionNotFound), also for a message that is not in it.
    pub async fn fork(&self, session_id: &str, up_to: Option<&str>, title: Option<&str>) -> Result<String> {
        let (up_to, title) = (up_to.map(str::to_owned), title.map(|title| title.trim().to_owned()));
        self.with(session_id, move |file| {
            let index = Index::read(&file.path)?;
            let fork = Fork::plan(&file.session_id, &index.links, up_to.as_deref())?;
            let title = match title.filter(|title| !title.is_empty()) {
                Some(title) => title,
                None => derived_title(info(&file)?.map(|info| info.title()).as_deref()),
            };
            // It has its name only when it is whole.
            let refused = |error| disk::failed("cannot be written", &file.folder.path, error);
            let mut copy = tempfile::NamedTempFile::new_in(&file.folder.path).map_err(refused)?;
            let mut writer = std::io::BufWriter::new(&mut copy);
            disk::each_line(&file.path, |_, _, line| {
                let Ok(entry) = serde_json::from_str(line) else { return Ok(false) };
                if let Some(entry) = fork.copy(entry) {
                    writeln!(writer, "{entry}").map_err(refused)?;
                }
                Ok(true)
            })?;
            writeln!(writer, "{}", fork.title(&title)).map_err(refused)?;
            writer.flush().map_err(refused)?;
            drop(writer);
            let path = file.folder.path.join(format!("{}.jsonl", fork.session_id()));
            copy.persist_noclobber(path).map_err(|error| refused(error.error))?;
            Ok(fork.session_id().to_owned())
        })
        .await
    }

    /// The subagents of a session, in the order of their files' names.
    ///
    /// # Errors
    /// [`SessionNotFound`](ErrorKind::SessionNotFound).
    pub async fn subagents(&self, session_id: &str) -> Result<Vec<SubagentInfo>> {
        self.with(session_id, |file| {
            let agents = disk::subagent_files(&file.subagents())?.into_iter();
            Ok(agents.map(|(agent_id, path)| SubagentInfo::new(agent_id, disk::sidecar(&path))).collect())
        })
        .await
    }

    /// The messages of a subagent's conversation.
    ///
    /// # Errors
    /// [`SessionNotFound`](ErrorKind::SessionNotFound), also for a subagent that the session does not have.
    pub async fn subagent_messages(
        &self,
        session_id: &str,
        agent_id: &str,
        page: Page,
    ) -> Result<SessionMessages> {
        let agent_id = agent_id.to_owned();
        self.with(session_id, move |file| {
            let agents = disk::subagent_files(&file.subagents())?;
            let Some((_, path)) = agents.into_iter().find(|(found, _)| *found == agent_id) else {
                return Err(no_subagent(&file.session_id, &agent_id));
            };
            let index = Index::read(&path)?;
            let chain = visible_of_subagent(&index.links);
            read_page(&path, &index, &chain, page, &disk::parents(disk::sidecar(&path).as_ref()))
        })
        .await
    }

    /// Does something with a session's file.
    pub(crate) async fn with<T: Send + 'static>(
        &self,
        session_id: &str,
        work: impl FnOnce(SessionFile) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        check_session_id(session_id)?;
        let (place, session_id) = (self.place.clone(), session_id.to_owned());
        blocking(move || work(place.find(&session_id)?)).await
    }
}

pub(crate) fn no_subagent(session_id: &str, agent_id: &str) -> Error {
    let text = format!("the session {session_id} has no subagent '{agent_id}'");
    Error::new(ErrorKind::SessionNotFound, text)
}

pub(crate) fn title_entry(session_id: &str, title: &str) -> Result<Value> {
    let title = title.trim();
    if title.is_empty() {
        return Err(Error::invalid_option("the title of a session is empty"));
    }
    Ok(json!({ "type": "custom-title", "customTitle": title, "sessionId": session_id }))
}

pub(crate) fn tag_entry(session_id: &str, tag: Option<&str>) -> Result<Value> {
    let tag = tag.map(clean);
    if tag.as_deref() == Some("") {
        return Err(
            Error::invalid_option("the tag of a session is empty").with_help("give none to take it away")
        );
    }
    Ok(json!({ "type": "tag", "tag": tag.unwrap_or_default(), "sessionId": session_id }))
}

/// A tag as the CLI's own filters expect it: in NFKC, without what cannot be seen.
fn clean(tag: &str) -> String {
    let mut cleaned = tag.to_owned();
    // Leaving something out may bring together what NFKC makes one; each round but the last makes it shorter or settles it.
    loop {
        let next: String = cleaned
            .nfkc()
            .filter(|char| {
                !matches!(
                    char.general_category(),
                    GeneralCategory::Format | GeneralCategory::PrivateUse | GeneralCategory::Unassigned
                )
            })
            .collect();
        if next == cleaned {
            return next.trim().to_owned();
        }
        cleaned = next;
    }
}

fn info(file: &SessionFile) -> Result<Option<SessionInfo>> {
    let folded = disk::fold_edges(&file.path).map_err(|error| disk::unreadable(&file.path, error))?;
    Ok(folded.info(&file.session_id, file.modified, Some(file.size), file.folder.project.as_deref()))
}

/// The messages of a conversation that are shown.
pub(crate) fn visible(links: &[Link], system: bool) -> Vec<usize> {
    let mut chain = chain::conversation(links);
    chain.retain(|index| {
        let link = &links[*index];
        let kind = link.is_said() || (system && link.kind == "system");
        kind && !link.is_meta && !link.is_sidechain && link.team_name.is_none()
    });
    chain
}

pub(crate) fn visible_of_subagent(links: &[Link]) -> Vec<usize> {
    let mut chain = chain::subagent(links);
    chain.retain(|index| links[*index].is_said());
    chain
}

fn read_page(
    path: &Path,
    index: &Index,
    chain: &[usize],
    page: Page,
    parents: &Parents,
) -> Result<SessionMessages> {
    let wanted: Vec<usize> = page.of(chain.iter().copied()).collect();
    let lines = index.lines(path, &wanted)?;
    let read = wanted.iter().zip(&lines);
    Ok(SessionMessages {
        messages: read
            .filter_map(|(entry, line)| SessionMessage::read(&index.links[*entry], line, parents))
            .collect(),
        total: chain.len(),
        skipped_lines: index.skipped,
    })
}
