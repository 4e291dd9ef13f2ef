//! [`Hook`]: when it runs, and what it does.

use std::fmt;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::{EventType, HookEvent, HookInput, HookOutput, Output};
use crate::control::lazy::check_value;
use crate::control::{CallbackContext, Handler, IntoReply, erase_reading};
use crate::error::{Error, Result};

/// A hook: an event, a handler, and when it runs.
///
/// ```
/// use greenroom::hook::StopOutput;
/// use greenroom::{Hook, hook};
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

/// Upper bound of a hook's limit.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// The CLI waits at least this much longer than we do, and at most [`LONGEST`], because its timers have a bound.
const HEAD_START: Duration = Duration::from_secs(1);

impl Hook {
    /// A hook at this event, with typed input and answer.
    pub fn on<E: EventType, Fut>(
        event: E,
        handler: impl Fn(E::Input, CallbackContext) -> Fut + Send + Sync + 'static,
    ) -> Self
    where
        Fut: Future<Output: IntoReply<Output<E>>> + Send + 'static,
    {
        // The event is a marker: only its type is used.
        drop(event);
        let handler = move |input, cx| {
            let answer = handler(input, cx);
            async move { answer.await.into_reply().map(HookOutput::from) }
        };
        Self::made(E::NAME.into(), erase_reading(read::<E::Input>, handler))
    }

    /// A hook at the event of this name, with JSON as input and answer: for events that this library does not know.
    ///
    /// ```
    /// use greenroom::hook::HookOutput;
    /// use greenroom::Hook;
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
        Self::made(event.into(), erase_reading(|raw| HookInput::read(raw).map_err(unreadable), handler))
    }

    fn made(event: HookEvent, run: Handler<Box<RawValue>, HookOutput>) -> Self {
        let forbids = blocking_answer(&event, "").is_some();
        let on_failure = if forbids { OnFailure::Block } else { OnFailure::Continue };
        Self { event, matcher: None, timeout: None, on_failure, run }
    }

    /// Runs the hook only for matching events. The CLI matches the pattern against the tool's name at events of tools
    /// (`Write|Edit`, `mcp__.*`), and against `source`, `trigger` or `notification_type` at some others. Default: all.
    pub fn matcher(mut self, pattern: impl Into<String>) -> Self {
        self.matcher = Some(pattern.into());
        self
    }

    /// Limits how long the hook may take. Default: [`Timeouts::hook`](crate::options::Timeouts::hook). At most a day,
    /// also without a limit. The CLI is told a later limit, by
    /// [`Timeouts::cancel_grace`](crate::options::Timeouts::cancel_grace) and at least a second.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets what happens when the hook fails. The default depends on the event: see [`OnFailure`].
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// The limit in force; `default` is the session's.
    pub(crate) fn limit(&self, default: Option<Duration>) -> Duration {
        self.timeout.or(default).unwrap_or(LONGEST).min(LONGEST)
    }

    /// Refuses `OnFailure::Block` where the CLI ignores it.
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

    /// The `hooks` field of `initialize`; the callback ids are `hook_0`, `hook_1` and so on. The CLI waits longer than
    /// we do by `grace`, so that `on_failure` decides about a late hook, without a race.
    pub(crate) fn to_wire(hooks: &[Hook], limit: Option<Duration>, grace: Duration) -> Value {
        let mut events: Map<String, Value> = Map::new();
        for (index, hook) in hooks.iter().enumerate() {
            let mut matcher = json!({ "hookCallbackIds": [Hook::callback_id(index)] });
            if let Some(pattern) = &hook.matcher {
                matcher["matcher"] = json!(pattern);
            }
            // Always sent, because the CLI's default may be shorter than our limit.
            let timeout = hook.limit(limit) + grace.clamp(HEAD_START, LONGEST);
            matcher["timeout"] = json!(timeout.as_secs_f64());
            if hook.on_failure == OnFailure::Block {
                matcher["onFailure"] = json!("block");
            }
            match events.entry(hook.event.as_str()).or_insert_with(|| json!([])) {
                Value::Array(matchers) => matchers.push(matcher),
                // `or_insert_with` above makes every entry an array.
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

/// Reads the input as the type that the hook takes.
fn read<I: serde::de::DeserializeOwned>(raw: Box<RawValue>) -> std::result::Result<I, String> {
    check_value(&raw).and_then(|()| serde_json::from_str(raw.get())).map_err(unreadable)
}

fn unreadable(error: serde_json::Error) -> String {
    format!("its input cannot be read: {error}")
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hook")
            .field("event", &self.event)
            .field("matcher", &self.matcher)
            .finish_non_exhaustive()
    }
}

/// The effect of a failed hook: one that returns an error, panics, times out, or cannot read its input.
///
/// The default is [`Block`](Self::Block) at [`PreToolUse`](super::PreToolUse),
/// [`PermissionRequest`](super::PermissionRequest) and [`UserPromptSubmit`](super::UserPromptSubmit), where a hook can
/// forbid something, and [`Continue`](Self::Continue) at all other events.
///
/// ```
/// use greenroom::hook::{OnFailure, PreToolUseOutput};
/// use greenroom::{Hook, hook};
///
/// // This hook only counts calls, so its failure should stop none of them.
/// let count = Hook::on(hook::PreToolUse, async |_input, _cx| PreToolUseOutput::pass())
///     .on_failure(OnFailure::Continue);
/// # let _ = count;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnFailure {
    /// The CLI continues as if there were no hook.
    Continue,
    /// The tool call, the permission or the prompt is refused, and the failure is the reason. At other events the CLI
    /// blocks by its own rules (`onFailure: "block"`). `start()` fails when the CLI does not know `onFailure`, and when
    /// the hook is at `Stop`, `SubagentStop`, `TaskCompleted` or `TeammateIdle`, where the CLI ignores it.
    Block,
}

/// The answer that forbids the hook's subject; `None` at events that have no such answer.
pub(crate) fn blocking_answer(event: &HookEvent, why: &str) -> Option<Value> {
    Some(match event {
        HookEvent::PreToolUse => json!({ "hookSpecificOutput": {
            "hookEventName": event.as_str(),
            "permissionDecision": "deny",
            "permissionDecisionReason": why,
        } }),
        HookEvent::PermissionRequest => json!({ "hookSpecificOutput": {
            "hookEventName": event.as_str(),
            "decision": { "behavior": "deny", "message": why },
        } }),
        HookEvent::UserPromptSubmit => json!({ "decision": "block", "reason": why }),
        _ => return None,
    })
}
