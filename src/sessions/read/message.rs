//! A message of a conversation as it is in a transcript.

use serde::Serialize;

use super::entry::TranscriptEntry;
use super::link::EntryLink;
use crate::sessions::page::Page;
use crate::sessions::subagent::Parents;
use crate::wire::Message;

/// A message of a conversation, read from a transcript.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct TranscriptMessage {
    /// The message's own id; [`fork`](crate::sessions::LocalSessions::fork) takes it.
    pub uuid: String,
    /// The entry before it in the tree of the transcript, which is not always a message.
    pub parent_uuid: Option<String>,
    /// The session that it was written in. An older id in a session that was resumed into a new file.
    pub session_id: Option<String>,
    /// When it was written (RFC 3339).
    pub timestamp: Option<String>,
    /// In a subagent: the tool call that started the subagent.
    pub parent_tool_use_id: Option<String>,
    /// In a subagent that a subagent started: the id of the latter.
    pub parent_agent_id: Option<String>,
    /// Whether the message is the summary of a compaction.
    pub is_compact_summary: bool,
    /// The message. The fields around `message` in its JSON are named as in transcripts (`parentUuid`), not as on the
    /// wire: see [`raw`](Message::raw).
    pub message: Message,
}

/// A page of a session's messages, in order.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct SessionMessages {
    /// The messages of the page.
    pub messages: Vec<TranscriptMessage>,
    /// Number of messages in the whole conversation.
    pub total: usize,
    /// Number of lines that are no JSON object, such as a line that a crash has torn.
    pub skipped_lines: usize,
}

impl SessionMessages {
    /// Reads a page of the conversation that `chain` finds in a transcript.
    pub(crate) fn read(
        entries: &[TranscriptEntry],
        chain: impl FnOnce(&[EntryLink]) -> Vec<usize>,
        page: Page,
        parents: &Parents,
    ) -> Self {
        let linked = entries.iter().map(|entry| entry.raw().get());
        let linked =
            linked.filter_map(|line| Some((line, EntryLink::read(line).filter(EntryLink::is_linked)?)));
        let (lines, links): (Vec<&str>, Vec<EntryLink>) = linked.unzip();
        let chain = chain(&links);
        let page = page.of(chain.iter().copied());
        let messages =
            page.filter_map(|at| TranscriptMessage::read(&links[at], lines[at], parents)).collect();
        Self { messages, total: chain.len(), skipped_lines: 0 }
    }
}

impl TranscriptMessage {
    /// `None` if the line is no message any more.
    fn read(link: &EntryLink, line: &str, parents: &Parents) -> Option<Self> {
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
