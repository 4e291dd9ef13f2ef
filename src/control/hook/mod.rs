//! Hooks: code of the application that runs at points of the CLI's loop.
//!
//! A hook is made for an event with [`Hook::on`] and given to a session with
//! [`SessionBuilder::hook`](crate::SessionBuilder::hook). Each event has a type with its name, one for what the hook is
//! told (`…Input`), and one for what it answers (`…Output`):
//!
//! ```
//! use greenroom::hook::{self, Hook, OnFailure, PreToolUseOutput};
//!
//! let no_shell = Hook::on(hook::PreToolUse, async |input, _cx| {
//!     if input.tool_input["command"].as_str().is_some_and(|command| command.contains("sudo")) {
//!         PreToolUseOutput::deny("not as root")
//!     } else {
//!         PreToolUseOutput::pass()
//!     }
//! })
//! .matcher("Bash")
//! .on_failure(OnFailure::Block);
//! # let _ = no_shell;
//! ```
//!
//! | when | [`HookEvent`]s |
//! |---|---|
//! | around a tool call | [`PreToolUse`], [`PermissionRequest`], [`PermissionDenied`], [`PostToolUse`], [`PostToolUseFailure`], [`PostToolBatch`] |
//! | what goes in and out | [`UserPromptSubmit`], [`UserPromptExpansion`], [`Notification`], [`Elicitation`], [`ElicitationResult`], [`MessageDisplay`] |
//! | the life of a session | [`SessionStart`], [`SessionEnd`], [`Setup`], [`Stop`], [`StopFailure`], [`SubagentStart`], [`SubagentStop`], [`PreCompact`], [`PostCompact`], [`PreModelSwitch`], [`PostModelSwitch`] |
//! | tasks and files | [`TaskCreated`], [`TaskCompleted`], [`TeammateIdle`], [`ConfigChange`], [`InstructionsLoaded`], [`WorktreeCreate`], [`WorktreeRemove`], [`CwdChanged`], [`FileChanged`], [`DirectoryAdded`] |
//!
//! A newer event needs no newer library: see [`Hook::new`] and [`Event`].
//!
//! # When a hook fails
//!
//! A hook fails when it returns an error, panics, takes longer than it may, is told what does not fit its input, or answers
//! with what cannot be sent: what is no object, arguments that are none, or a decision that the CLI would not read. The CLI gets an error and does what the hook's [`OnFailure`] says; the application gets an
//! [`Event::CallbackFailed`](crate::Event::CallbackFailed), [`CallPanicked`](crate::Event::CallPanicked) or
//! [`CallTimedOut`](crate::Event::CallTimedOut). No hook is passed over in silence.

pub(crate) mod define;
mod event;
mod input;
mod output;
mod prompts;
mod session;
#[cfg(test)]
mod tests;
mod tools;
mod workspace;

use std::fmt;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::{CallbackContext, Handler, IntoReply, erase_reading};
use crate::error::{Error, Result};

pub use event::{Event, HookEvent, NoFields};
pub use input::{Common, Effort, HookInput};
pub use output::{CommonOutput, HookDecision, HookOutput, Output};
pub use prompts::*;
pub use session::*;
pub use tools::*;
pub use workspace::*;

/// A hook: at which event it runs, for what, and what it does.
///
/// ```
/// use greenroom::hook::{self, Hook, StopOutput};
///
/// let once = Hook::on(hook::Stop, async |input, _cx| {
///     if input.stop_hook_active { StopOutput::pass() } else { StopOutput::block("say goodbye first") }
/// });
/// # let _ = once;
/// ```
#[derive(Clone)]
pub struct Hook {
    pub(crate) event: HookEvent,
    pub(crate) matcher: Option<String>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) on_failure: OnFailure,
    pub(crate) run: Handler<Box<RawValue>, HookOutput>,
}

/// The longest that a hook may take.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// How much longer than we do the CLI waits at least. At most it is a day: its timers do not count for ever.
const HEAD_START: Duration = Duration::from_secs(1);

/// What the CLI does when a hook fails: it returns an error, panics, is too late, or cannot read what it is told.
///
/// ```
/// assert_eq!(greenroom::OnFailure::default(), greenroom::OnFailure::Continue);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnFailure {
    /// As if there were no hook. A hook that is there to forbid something should be [`Block`](OnFailure::Block).
    #[default]
    Continue,
    /// What the hook was asked about does not happen. A CLI that cannot do this is refused at the start, and so is a hook
    /// at `Stop`, `SubagentStop`, `TaskCompleted` or `TeammateIdle`, where the CLI goes on whatever it was told.
    Block,
}

impl Hook {
    /// A hook at this event.
    pub fn on<E: Event, Fut>(
        event: E,
        handler: impl Fn(E::Input, CallbackContext) -> Fut + Send + Sync + 'static,
    ) -> Self
    where
        Fut: Future<Output: IntoReply<Output<E>>> + Send + 'static,
    {
        // Only its type says something.
        drop(event);
        let handler = move |input, cx| {
            let answer = handler(input, cx);
            async move { answer.await.into_reply().map(HookOutput::from) }
        };
        Self::made(E::NAME.into(), erase_reading(read::<E::Input>, handler))
    }

    /// A hook at any event, by its name, which takes and gives JSON: for events that are newer than this library.
    ///
    /// ```
    /// use greenroom::{Hook, HookOutput};
    ///
    /// let hook = Hook::new("OfTomorrow", async |input, _cx| {
    ///     println!("{}", input.raw());
    ///     HookOutput::specific(serde_json::json!({ "additionalContext": "fine" }))
    /// });
    /// # let _ = hook;
    /// ```
    pub fn new<Fut>(
        event: impl Into<HookEvent>,
        handler: impl Fn(HookInput, CallbackContext) -> Fut + Send + Sync + 'static,
    ) -> Self
    where
        Fut: Future<Output: IntoReply<HookOutput>> + Send + 'static,
    {
        Self::made(event.into(), erase_reading(|raw| read(raw).map(HookInput::new), handler))
    }

    fn made(event: HookEvent, run: Handler<Box<RawValue>, HookOutput>) -> Self {
        Self { event, matcher: None, timeout: None, on_failure: OnFailure::Continue, run }
    }

    /// For what it runs: a pattern over the names of tools for the events of tools (`Write|Edit`, `mcp__.*`), and over
    /// something else for some others (`source`, `trigger`, `notification_type`). Default: everything.
    pub fn matcher(mut self, pattern: impl Into<String>) -> Self {
        self.matcher = Some(pattern.into());
        self
    }

    /// How long it may take. Default: [`Timeouts::hook`](crate::Timeouts::hook). At most a day, which is also what a hook
    /// without a limit may take. The CLI is told this limit and [`Timeouts::cancel_grace`](crate::Timeouts::cancel_grace)
    /// on top, a second at least.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// What the CLI does when it fails.
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// How long it may take; `default` is the session's limit.
    pub(crate) fn limit(&self, default: Option<Duration>) -> Duration {
        self.timeout.or(default).unwrap_or(LONGEST).min(LONGEST)
    }

    /// Finds what the CLI would not heed.
    pub(crate) fn validate(&self) -> Result<()> {
        if self.on_failure == OnFailure::Block && !self.event.can_block_on_failure() {
            let text = format!(
                "a hook at {} has `OnFailure::Block`, which the CLI ignores at this event",
                self.event
            );
            return Err(Error::invalid_option(text)
                .with_help("leave it out, and see to it that the hook does not fail"));
        }
        Ok(())
    }

    /// The `hooks` field of `initialize`; the callback ids are `hook_0`, `hook_1` and so on. The CLI waits longer than we
    /// do by this grace: what follows when a hook is too late is then up to its `on_failure`, and no race.
    pub(crate) fn to_wire(hooks: &[Hook], limit: Option<Duration>, grace: Duration) -> Value {
        let mut events: Map<String, Value> = Map::new();
        for (index, hook) in hooks.iter().enumerate() {
            let mut matcher = json!({ "hookCallbackIds": [Hook::callback_id(index)] });
            if let Some(pattern) = &hook.matcher {
                matcher["matcher"] = json!(pattern);
            }
            // Always said, so that the CLI's own limit does not undercut ours.
            let timeout = hook.limit(limit) + grace.clamp(HEAD_START, LONGEST);
            matcher["timeout"] = json!(timeout.as_secs_f64());
            if hook.on_failure == OnFailure::Block {
                matcher["onFailure"] = json!("block");
            }
            match events.entry(hook.event.as_str()).or_insert_with(|| json!([])) {
                Value::Array(matchers) => matchers.push(matcher),
                // Every entry is made as an array, just above.
                _ => unreachable!("the matchers of an event are an array"),
            }
        }
        Value::Object(events)
    }

    pub(crate) fn callback_id(index: usize) -> String {
        format!("hook_{index}")
    }

    pub(crate) fn index(callback_id: &str) -> Option<usize> {
        callback_id.strip_prefix("hook_")?.parse().ok()
    }
}

/// What a hook is told, as what it takes.
fn read<I: serde::de::DeserializeOwned>(raw: &RawValue) -> std::result::Result<I, String> {
    serde_json::from_str(raw.get()).map_err(|error| format!("its input cannot be read: {error}"))
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hook")
            .field("event", &self.event)
            .field("matcher", &self.matcher)
            .finish_non_exhaustive()
    }
}
