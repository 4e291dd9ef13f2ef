//! A message of a conversation as it stands in a transcript.

use serde::Serialize;

use super::entry::Link;
use crate::wire::Message;

/// A message of a session's transcript.
///
/// ```
/// # fn show(said: &greenroom::sessions::SessionMessage) {
/// println!("{}: {}", said.message.kind(), said.message.raw());
/// # }
/// ```
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct SessionMessage {
    /// The message's own id, by which [`fork`](crate::sessions::LocalSessions::fork) names it.
    pub uuid: String,
    /// The entry before it in the file's tree, which need not be a message.
    pub parent_uuid: Option<String>,
    /// The session that it was written for. In a session that was resumed into a new file it may be an older one.
    pub session_id: Option<String>,
    /// When it was written (RFC 3339).
    pub timestamp: Option<String>,
    /// For a message of a subagent: the tool call that started it.
    pub parent_tool_use_id: Option<String>,
    /// For a message of a subagent that a subagent has started: that one.
    pub parent_agent_id: Option<String>,
    /// Whether the CLI wrote it in place of what a compaction took away.
    pub is_compact_summary: bool,
    /// The message. The names of the fields around `message` are those of transcripts (`parentUuid`), not those of the
    /// wire: see [`raw`](Message::raw).
    pub message: Message,
}

/// Messages of a session, in order.
///
/// ```
/// # fn show(page: &greenroom::sessions::SessionMessages) {
/// println!("{} of {} messages; {} lines could not be read", page.messages.len(), page.total, page.skipped_lines);
/// # }
/// ```
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct SessionMessages {
    /// The messages that were asked for.
    pub messages: Vec<SessionMessage>,
    /// How many there are in all.
    pub total: usize,
    /// Lines of the transcript that are no JSON object, such as one that was cut off by a crash.
    pub skipped_lines: usize,
}

/// Who started a subagent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parents {
    pub(crate) tool_use_id: Option<String>,
    pub(crate) parent_agent_id: Option<String>,
}

impl SessionMessage {
    /// `None` if the line has become something else since it was linked.
    pub(crate) fn read(link: &Link, line: &str, parents: &Parents) -> Option<Self> {
        Some(Self {
            uuid: link.uuid.clone(),
            parent_uuid: link.parent_uuid.clone(),
            session_id: link.session_id.clone(),
            timestamp: Some(link.timestamp.clone()).filter(|timestamp| !timestamp.is_empty()),
            parent_tool_use_id: parents.tool_use_id.clone(),
            parent_agent_id: parents.parent_agent_id.clone(),
            is_compact_summary: link.is_compact_summary,
            message: Message::parse(line).ok()?,
        })
    }
}
