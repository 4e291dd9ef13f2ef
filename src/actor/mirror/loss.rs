//! Reports entries that the store did not get.

use std::path::Path;
use std::sync::Arc;

use ractor::ActorRef;
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
    pub(crate) fn give_up(&self, shared: &Arc<Shared>, conversation: Option<&ActorRef<ConversationMessage>>) {
        let (lost, waiting) = {
            let queue = &mut *self.queue();
            let mut left = std::mem::take(&mut queue.in_flight);
            left.extend(queue.frames.drain(..).map(|frame| frame.pending()));
            let mut lost = std::mem::take(&mut queue.lost);
            let fenced = self.fenced.is_cancelled();
            for (path, entries) in left {
                let reason = match &path {
                    Some(_) if entries == 0 => continue,
                    _ if fenced => "the session was killed before the store had taken them",
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
            match conversation {
                Some(conversation) => {
                    let reporter =
                        LossReporter { shared: shared.clone(), conversation: conversation.clone() };
                    reporter.failed(key, entries, reason);
                }
                None => shared.emit(Event::MirrorFailed { key, entries, error: reason }),
            }
        }
        drop(waiting);
    }
}

/// Reports losses: an event, a log line, and a message in the conversation.
pub(super) struct LossReporter {
    pub(super) shared: Arc<Shared>,
    pub(super) conversation: ActorRef<ConversationMessage>,
}

impl LossReporter {
    pub(super) fn failed(&self, key: Option<SessionKey>, entries: usize, error: String) {
        tracing::warn!(parent: &self.shared.span, ?key, entries, error, "entries were not mirrored");
        let session_id = self.shared.facts.borrow().session_id.clone();
        let message = json!({
            "type": "system",
            "subtype": "mirror_error",
            "uuid": uuid::Uuid::new_v4().to_string(),
            "session_id": session_id.or_else(|| Some(key.as_ref()?.session_id.clone())),
            "error": error,
            "key": key,
        });
        self.shared.emit(Event::MirrorFailed { key, entries, error });
        if let Ok(message) = Message::parse(&message.to_string()) {
            // Fails only if the conversation has ended, and the session with it.
            self.conversation.cast(ConversationMessage::Told(message)).ok();
        }
    }
}
