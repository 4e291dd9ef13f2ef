//! Reports entries that the store did not get.

use std::path::Path;

use serde_json::json;

use super::Mirror;
use super::key::key_of;
use super::queue::{Lost, report_later};
use crate::actor::context::Shared;
use crate::actor::messages::conversation::ConversationMessage;
use crate::report::Event;
use crate::store::SessionKey;
use crate::wire::Message;

impl Mirror {
    /// Reports everything in the queue as lost, because the session stops.
    pub(crate) fn give_up(&self, shared: &Shared) {
        let (lost, waiting) = {
            let queue = &mut *self.queue();
            let mut left = std::mem::take(&mut queue.in_flight);
            left.extend(queue.frames.drain(..).map(|frame| frame.pending()));
            let mut lost = std::mem::take(&mut queue.lost);
            let killed = self.killed.is_cancelled();
            for (path, entries) in left {
                let reason = match &path {
                    Some(_) if entries == 0 => continue,
                    _ if killed => "the session was killed before the store had taken them",
                    Some(_) => "the session stopped before the store had taken them (`store.stop`)",
                    None => {
                        "the session stopped before the transcripts were searched for what the CLI had not told (`store.stop`)"
                    }
                };
                report_later(&mut lost, Lost { path, entries, reason: reason.to_owned() });
            }
            (queue.settled, queue.entries, queue.bytes, queue.busy) = (queue.accepted, 0, 0, false);
            (lost, std::mem::take(&mut queue.waiting))
        };
        for Lost { path, entries, reason } in lost {
            let folders = [Some(&self.projects), self.resolved.get()];
            let key = path.as_ref().and_then(|path| {
                let path = Path::new(path);
                let below = folders.iter().flatten().find_map(|folder| path.strip_prefix(folder).ok())?;
                key_of(below, self.options.project_key.as_deref())
            });
            report_loss(shared, key, entries, reason);
        }
        drop(waiting);
    }
}

/// Reports a loss: an event, a log line, and a message in the conversation.
pub(super) fn report_loss(shared: &Shared, key: Option<SessionKey>, entries: usize, error: String) {
    tracing::warn!(parent: &shared.span, ?key, entries, error, "entries were not mirrored");
    let session_id = shared.facts.borrow().session_id.clone();
    let message = json!({
        "type": "system",
        "subtype": "mirror_error",
        "uuid": uuid::Uuid::new_v4().to_string(),
        "session_id": session_id.or_else(|| Some(key.as_ref()?.session_id.clone())),
        "error": error,
        "key": key,
    });
    shared.emit(Event::MirrorFailed { key, entries, error });
    if let Ok(message) = Message::parse(&message.to_string()) {
        shared.tell_conversation(ConversationMessage::Told(message));
    }
}
