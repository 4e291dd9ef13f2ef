//! Decide which result ends the running turn.
//!
//! A result that names the prompt (`user_message_uuids`) ends the prompt's turn. A result that names no prompt may be
//! stale, written before the prompt was; or it may belong to work of the CLI's own, such as a `set_cwd` or the report
//! of a background task. The CLI's progress with the prompt decides:
//!
//! ```text
//!             an `init` or a message of a turn            names the prompt: its lifecycle, its uuid
//!   Written ─────────────────────────────► MaybeStarted ───────────────────────────────────────────► Started
//!      └──── the same signs from a CLI that has never told the lifecycle of a prompt ───────────────────►┘
//! ```
//!
//! | a result that | before `Started` | in `Started` |
//! |---|---|---|
//! | names the prompt | ends the turn | ends the turn |
//! | names none, after work of the CLI's own (by its `origin`, or without turns and text) | is kept | is kept |
//! | names none | is kept | ends the turn |
//! | names other prompts | is kept | is kept |
//!
//! A result kept before `Started` is stale, and dropped when the prompt starts. A result kept after `Started` ends the
//! turn when the CLI says `idle`, so a misjudged result leaves no turn open. `idle` counts once the CLI has named the
//! prompt, if only as queued: before that, `idle` may belong to the previous turn. If the CLI tells no lifecycle,
//! `idle` counts after a `running` or an `init` behind the prompt. A turn without a result, because its line could not
//! be read or the CLI wrote none, ends at `idle` too. CLI 2.1.330 was seen to say `idle` after the result, and not
//! while a prompt is queued; if `idle` comes first, the next result ends the turn.

use std::sync::Arc;

use crate::message::Typed;
use crate::wire::message::CommandState;
use crate::wire::{Message, ResultMessage, SessionState};

/// The CLI's progress with a prompt that was written to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PromptProgress {
    /// Nothing shows that the CLI works.
    Written,
    /// The CLI works at something, which may be this prompt.
    MaybeStarted,
    /// The CLI works at this prompt.
    Started,
}

/// The end of a turn, as a message gives it.
#[derive(Clone, Debug)]
pub(super) enum TurnEnd {
    Result(Arc<Typed<ResultMessage>>),
    /// There is no result that can be read. The text becomes the turn's error.
    Unreadable(String),
}

/// Watches for the result of one prompt. See the [module](self).
pub(super) struct ResultWatch {
    uuid: String,
    progress: PromptProgress,
    /// Whether the CLI has named the prompt, if only as queued.
    named: bool,
    /// Whether the CLI has sent a `running` or an `init` since the prompt was written.
    ran: bool,
    /// Whether the CLI has said that it is done with the prompt.
    done: bool,
    /// Whether the last state that counts was `idle`.
    idle: bool,
    /// The last result that did not count as the turn's result.
    kept: Option<TurnEnd>,
    /// The reason why a line could not be read that may have been the result.
    lost: Option<String>,
}

impl ResultWatch {
    pub(super) fn new(uuid: String) -> Self {
        let progress = PromptProgress::Written;
        Self { uuid, progress, named: false, ran: false, done: false, idle: false, kept: None, lost: None }
    }

    /// Watches a prompt that was written while another turn ran.
    pub(super) fn steered(uuid: String, named: bool) -> Self {
        Self { named, ..Self::new(uuid) }
    }

    /// Watches a turn that goes on with a deferred call: the CLI begins with it by itself, and names no prompt.
    pub(super) fn resumed(uuid: String) -> Self {
        Self { progress: PromptProgress::Started, named: true, ran: true, ..Self::new(uuid) }
    }

    /// Whether the CLI has named the prompt, if only as queued.
    pub(super) fn is_named(&self) -> bool {
        self.named
    }

    pub(super) fn uuid(&self) -> &str {
        &self.uuid
    }

    pub(super) fn progress(&self) -> PromptProgress {
        self.progress
    }

    /// Notes that a line could not be read; the line may have been the result.
    pub(super) fn line_lost(&mut self, reason: String) {
        self.lost = Some(reason);
    }

    /// Notes a message, and returns the end of the turn if the message ends it.
    pub(super) fn message(&mut self, message: &Message, tells_lifecycle: bool) -> Option<TurnEnd> {
        let end = self.ends_with(message, tells_lifecycle);
        if end.is_some() {
            return end;
        }
        if let Some(result) = result_of(message) {
            self.kept = Some(result);
        }
        if let Message::System(system) = message {
            let state = system.session_state();
            self.ran |= system.init().is_some() || state == Some(SessionState::Running);
            if let Some(state) = state {
                self.idle = state == SessionState::Idle && self.is_over_when_idle(tells_lifecycle);
            }
        }
        self.progresses(message, tells_lifecycle);
        None
    }

    /// The end of the turn, if this message ends it.
    pub(super) fn ends_with(&self, message: &Message, tells_lifecycle: bool) -> Option<TurnEnd> {
        if let Some(result) = result_of(message) {
            let own = self.is_own(message, tells_lifecycle) || self.idle;
            return own.then_some(result);
        }
        let Message::System(system) = message else { return None };
        if system.session_state() != Some(SessionState::Idle) || !self.is_over_when_idle(tells_lifecycle) {
            return None;
        }
        let lost = self.lost.as_deref().map(unreadable);
        // A started prompt that the CLI is not done with may get its result after the `idle`.
        let gave_none = self.done || self.progress < PromptProgress::Started;
        lost.or_else(|| self.kept.clone()).or_else(|| {
            gave_none.then(|| TurnEnd::Unreadable("the CLI is idle and gave the turn no result".into()))
        })
    }

    /// The kept result, if it is an error that names no prompt: such a result may announce the CLI's exit.
    pub(super) fn announced_end(&self) -> Option<Arc<Typed<ResultMessage>>> {
        match &self.kept {
            Some(TurnEnd::Result(result))
                if !result.is_success() && result.user_message_uuids().is_empty() =>
            {
                Some(result.clone())
            }
            _ => None,
        }
    }

    /// The end of the turn when the CLI goes on to another prompt.
    pub(super) fn given_up(&mut self) -> TurnEnd {
        let lost = self.lost.take();
        let none =
            || TurnEnd::Unreadable("the CLI went on to another prompt and gave the turn no result".into());
        self.kept.take().or_else(|| lost.as_deref().map(unreadable)).unwrap_or_else(none)
    }

    /// Whether the CLI says that it is done with the prompt, and the prompt's result was kept or lost.
    pub(super) fn has_lost_result(&self) -> bool {
        self.done && (self.kept.is_some() || self.lost.is_some())
    }

    fn is_own(&self, message: &Message, tells_lifecycle: bool) -> bool {
        let uuids = message.user_message_uuids();
        if !uuids.is_empty() {
            return uuids.contains(&self.uuid);
        }
        let of_the_cli = matches!(message, Message::Result(result)
            if result.origin.as_ref().is_some_and(|origin| !origin.is_human())
                // CLI 2.1.328 and later end a `set_cwd` like this, sometimes before their first lifecycle. Their results
                // of prompts name the prompts. A CLI that counts queued turns is one of them.
                || ((tells_lifecycle || result.queued_turn_count.is_some()) && result.is_success()
                    && result.num_turns == 0 && result.result.as_deref() == Some("")));
        self.progress == PromptProgress::Started && !of_the_cli
    }

    fn is_over_when_idle(&self, tells_lifecycle: bool) -> bool {
        self.named || (!tells_lifecycle && self.ran && self.progress == PromptProgress::Started)
    }

    /// Notes signs that the CLI works at the prompt. A sign that may be about other work counts as `MaybeStarted`: a
    /// prompt is rather reported as lost than sent twice.
    fn progresses(&mut self, message: &Message, tells_lifecycle: bool) {
        let mut started = message.user_message_uuids().contains(&self.uuid)
            // The CLI repeats the prompt under `--replay-user-messages`.
            || (message.kind() == "user" && message.uuid() == Some(self.uuid.as_str()));
        if let Message::CommandLifecycle(lifecycle) = message
            && lifecycle.command_uuid == self.uuid
        {
            self.named = true;
            started |= lifecycle.state == CommandState::Started;
            self.done |= matches!(lifecycle.state, CommandState::Completed | CommandState::Cancelled);
        }
        self.named |= started;
        let works = match message {
            Message::System(system) => system.init().is_some(),
            // By kind, so that a message of an unknown shape counts too.
            message => matches!(message.kind(), "assistant" | "user" | "stream_event" | "result"),
        };
        // A result may end earlier work: it does not show that the CLI began with this prompt.
        started |= works && !tells_lifecycle && message.kind() != "result";
        let progress = match (started, works) {
            (true, _) => PromptProgress::Started,
            (false, true) => PromptProgress::MaybeStarted,
            (false, false) => PromptProgress::Written,
        };
        if progress == PromptProgress::Started && self.progress < PromptProgress::Started {
            // A result that came before the start is not about this prompt.
            self.kept = None;
        }
        self.progress = self.progress.max(progress);
    }
}

fn unreadable(reason: &str) -> TurnEnd {
    TurnEnd::Unreadable(format!("the result of the turn cannot be read: {reason}"))
}

/// The message as a result, readable or not.
pub(super) fn result_of(message: &Message) -> Option<TurnEnd> {
    match message {
        Message::Result(result) => Some(TurnEnd::Result(result.clone())),
        Message::Other(other) if other.kind() == "result" => {
            Some(unreadable(other.problem().unwrap_or("its shape is not known")))
        }
        _ => None,
    }
}
