//! Everything that a scripted CLI has seen, over all incarnations.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use greenroom::testing::Delivered;
use greenroom::transport::Launch;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::timeout;

use super::usage::Usage;

/// One incarnation, as its host started it.
#[derive(Clone, Debug)]
pub(super) struct SeenLaunch {
    /// Its `initialize` is null until it comes.
    pub(super) delivered: Delivered,
    pub(super) prompts: Vec<String>,
}

/// A conversation, over all launches that go on with it.
#[derive(Clone, Debug, Default)]
pub(super) struct Conversation {
    /// See [`ScriptedCli::conversation`](crate::ScriptedCli::conversation).
    pub(super) lines: Vec<String>,
    /// Sum over all answers of the model.
    pub(super) spent: Usage,
}

#[derive(Debug, Default)]
pub(super) struct SeenState {
    /// Number of the script's turns that were played.
    pub(super) turns: usize,
    pub(super) results: Vec<String>,
    pub(super) launches: Vec<SeenLaunch>,
    /// By their ids.
    conversations: HashMap<String, Conversation>,
    /// The id of the conversation of the last launch.
    current: String,
}

impl SeenState {
    /// The conversation of the last launch.
    pub(super) fn conversation(&self) -> &Conversation {
        const EMPTY: &Conversation = &Conversation { lines: Vec::new(), spent: Usage::NOTHING };
        self.conversations.get(&self.current).unwrap_or(EMPTY)
    }
}

/// Shared by the incarnations of one scripted CLI and by the test. Incarnations do not overlap, so the last launch is
/// the current one.
#[derive(Clone, Debug)]
pub(crate) struct Seen(Arc<watch::Sender<SeenState>>);

impl Seen {
    pub(super) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(SeenState::default())))
    }

    pub(super) fn look<T>(&self, look: impl FnOnce(&SeenState) -> T) -> T {
        look(&self.0.borrow())
    }

    /// `id`: the conversation of the launch; `resumes`: the conversation that it goes on with.
    pub(super) fn launched(&self, launch: &Launch, id: &str, resumes: Option<&str>) {
        let delivered = Delivered::launched(launch, Value::Null);
        self.0.send_modify(|seen| {
            seen.launches.push(SeenLaunch { delivered, prompts: Vec::new() });
            let resumed = resumes.and_then(|resumes| seen.conversations.get(resumes));
            let conversation = resumed.cloned().unwrap_or_default();
            seen.conversations.insert(id.to_owned(), conversation);
            seen.current = id.to_owned();
        });
    }

    /// The id of the conversation of the last launch, if there was a launch.
    pub(super) fn last_conversation(&self) -> Option<String> {
        self.look(|seen| Some(seen.current.clone()).filter(|id| !id.is_empty()))
    }

    pub(super) fn knows(&self, conversation: &str) -> bool {
        self.look(|seen| seen.conversations.contains_key(conversation))
    }

    /// Adds a line to the conversation.
    pub(super) fn said(&self, line: String) {
        self.converse(|conversation| conversation.lines.push(line));
    }

    pub(super) fn spent(&self, usage: Usage) {
        self.converse(|conversation| conversation.spent += usage);
    }

    fn converse(&self, change: impl FnOnce(&mut Conversation)) {
        self.0.send_modify(|seen| {
            if let Some(conversation) = seen.conversations.get_mut(&seen.current) {
                change(conversation);
            }
        });
    }

    pub(super) fn initialized(&self, request: &Value) {
        self.current(|launch| launch.delivered.initialize = request.clone());
    }

    pub(super) fn prompted(&self, text: String) {
        self.current(|launch| launch.prompts.push(text));
    }

    pub(super) fn results(&self, results: Vec<String>) {
        self.0.send_modify(|seen| seen.results.extend(results));
    }

    /// Number of the turn to play, counted from 0.
    pub(super) fn next_turn(&self) -> usize {
        let mut turn = 0;
        self.0.send_modify(|seen| {
            turn = seen.turns;
            seen.turns += 1;
        });
        turn
    }

    fn current(&self, change: impl FnOnce(&mut SeenLaunch)) {
        self.0.send_modify(|seen| {
            if let Some(launch) = seen.launches.last_mut() {
                change(launch);
            }
        });
    }

    /// Waits until `look` sees at least `count` items, and returns all of them.
    ///
    /// # Panics
    /// If they do not come within the limit, with those that came.
    pub(super) async fn wait_for<T: std::fmt::Debug>(
        &self,
        count: usize,
        what: &str,
        limit: Duration,
        look: impl Fn(&SeenState) -> Vec<T>,
    ) -> Vec<T> {
        let mut changes = self.0.subscribe();
        let search = async { changes.wait_for(|seen| look(seen).len() >= count).await.is_ok() };
        let came = timeout(limit, search).await.unwrap_or(false);
        let seen = self.look(&look);
        assert!(
            came,
            "{count} {what} did not come within {limit:?}; the scripted CLI has seen {}: {seen:?}",
            seen.len()
        );
        seen
    }
}
