//! Code of the application that runs at points of the CLI's loop.

use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{CallbackContext, Handler, erase};

/// A hook: at which event it runs, for what, and what it does.
///
/// Events are named as the CLI names them: `PreToolUse`, `PostToolUse`, `UserPromptSubmit`, `Stop`, …
///
/// ```
/// use greenroom::{Hook, HookOutput};
///
/// let no_shell = Hook::new("PreToolUse", |input, _cx| async move {
///     match input.field("tool_name").as_str() {
///         Some("Bash") => HookOutput::permission("deny", "no shell here"),
///         _ => HookOutput::pass(),
///     }
/// })
/// .matcher("Bash|mcp__.*")
/// .on_failure(greenroom::OnFailure::Block);
/// # let _ = no_shell;
/// ```
#[derive(Clone)]
pub struct Hook {
    pub(crate) event: String,
    pub(crate) matcher: Option<String>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) on_failure: OnFailure,
    pub(crate) run: Handler<HookInput, HookOutput>,
}

/// What the CLI is told for a hook without a limit.
const NO_LIMIT: Duration = Duration::from_secs(24 * 60 * 60);

/// What the CLI does when a hook fails: it panics, is too late, or its answer is an error.
///
/// ```
/// assert_eq!(greenroom::OnFailure::default(), greenroom::OnFailure::Continue);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// As if there were no hook. A hook that is there to forbid something should be [`Block`](OnFailure::Block).
    #[default]
    Continue,
    /// What the hook was asked about does not happen. A CLI that cannot do this is refused at the start.
    Block,
}

impl Hook {
    /// A hook at this event.
    pub fn new<Fut>(
        event: impl Into<String>,
        handler: impl Fn(HookInput, CallbackContext) -> Fut + Send + Sync + 'static,
    ) -> Self
    where
        Fut: Future<Output = HookOutput> + Send + 'static,
    {
        Self {
            event: event.into(),
            matcher: None,
            timeout: None,
            on_failure: OnFailure::Continue,
            run: erase(handler),
        }
    }

    /// For what it runs: a pattern over tool names for the events of tools. Default: everything.
    pub fn matcher(mut self, pattern: impl Into<String>) -> Self {
        self.matcher = Some(pattern.into());
        self
    }

    /// How long it may take, for the CLI as well. Default: [`Timeouts::hook`](crate::Timeouts::hook). At most a
    /// day.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// What the CLI does when it fails.
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// The `hooks` field of `initialize`; the callback ids are `hook_0`, `hook_1` and so on.
    pub(crate) fn to_wire(hooks: &[Hook], limit: Option<Duration>) -> Value {
        let mut events: Map<String, Value> = Map::new();
        for (index, hook) in hooks.iter().enumerate() {
            let mut matcher = json!({ "hookCallbackIds": [Hook::callback_id(index)] });
            if let Some(pattern) = &hook.matcher {
                matcher["matcher"] = json!(pattern);
            }
            // Always said, so that the CLI's own limit does not undercut ours: a day stands for none.
            let timeout = hook.timeout.or(limit).unwrap_or(NO_LIMIT).min(NO_LIMIT);
            matcher["timeout"] = json!(timeout.as_secs_f64());
            if hook.on_failure == OnFailure::Block {
                matcher["onFailure"] = json!("block");
            }
            match events.entry(hook.event.clone()).or_insert_with(|| json!([])) {
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

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hook")
            .field("event", &self.event)
            .field("matcher", &self.matcher)
            .finish_non_exhaustive()
    }
}

/// What a hook is told.
///
/// ```
/// use greenroom::HookInput;
///
/// let input = HookInput::new(serde_json::json!({ "hook_event_name": "Stop", "stop_hook_active": false }));
/// assert_eq!(input.event(), "Stop");
/// assert_eq!(input.field("stop_hook_active"), false);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct HookInput(Value);

impl HookInput {
    /// An input, for unit tests.
    pub fn new(input: Value) -> Self {
        Self(input)
    }

    /// The event.
    pub fn event(&self) -> &str {
        self.field("hook_event_name").as_str().unwrap_or_default()
    }

    /// A field; JSON null when it is not there.
    pub fn field(&self, name: &str) -> &Value {
        &self.0[name]
    }

    /// All of it.
    pub fn raw(&self) -> &Value {
        &self.0
    }
}

/// What a hook answers.
///
/// ```
/// use greenroom::HookOutput;
///
/// let said = HookOutput::raw(serde_json::json!({ "systemMessage": "be brief" }));
/// # let _ = said;
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct HookOutput(pub(crate) Reply);

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Raw(Value),
    Specific { fields: Value },
}

impl HookOutput {
    /// No opinion.
    pub fn pass() -> Self {
        Self(Reply::Raw(json!({})))
    }

    /// At `PreToolUse`: `allow`, `deny` or `ask`, and why.
    pub fn permission(decision: &str, reason: impl Into<String>) -> Self {
        Self::specific(json!({ "permissionDecision": decision, "permissionDecisionReason": reason.into() }))
    }

    /// The fields of `hookSpecificOutput` for the event that the hook runs at: an object.
    pub fn specific(fields: Value) -> Self {
        Self(Reply::Specific { fields })
    }

    /// The whole answer, as it goes over the wire.
    pub fn raw(answer: Value) -> Self {
        Self(Reply::Raw(answer))
    }

    pub(crate) fn to_wire(&self, event: &str) -> Value {
        match &self.0 {
            Reply::Raw(answer) => answer.clone(),
            Reply::Specific { fields } => {
                let mut specific = Map::new();
                specific.insert("hookEventName".into(), json!(event));
                match fields {
                    Value::Object(fields) => specific.extend(fields.clone()),
                    // It has no name under which it could go out.
                    other => {
                        tracing::warn!(event, value = %other, "fields for a hook's answer that are no object")
                    }
                }
                json!({ "hookSpecificOutput": specific })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_are_announced_by_event() {
        let pass = |_: HookInput, _: CallbackContext| async { HookOutput::pass() };
        let hooks = [
            Hook::new("PreToolUse", pass)
                .matcher("Bash")
                .timeout(Duration::from_secs(5))
                .on_failure(OnFailure::Block),
            Hook::new("Stop", pass),
            Hook::new("PreToolUse", pass),
        ];
        assert_eq!(
            Hook::to_wire(&hooks, Some(Duration::from_secs(60))),
            json!({
                "PreToolUse": [
                    {"matcher": "Bash", "hookCallbackIds": ["hook_0"], "timeout": 5.0, "onFailure": "block"},
                    {"hookCallbackIds": ["hook_2"], "timeout": 60.0},
                ],
                "Stop": [{"hookCallbackIds": ["hook_1"], "timeout": 60.0}],
            })
        );
        assert_eq!(Hook::to_wire(&hooks[1..2], None)["Stop"][0]["timeout"], 86_400.0);
        assert_eq!(Hook::index("hook_2"), Some(2));
        assert_eq!(Hook::index("other"), None);
    }

    #[test]
    fn a_specific_answer_names_the_event() {
        assert_eq!(
            HookOutput::specific(json!("no object")).to_wire("Stop"),
            json!({"hookSpecificOutput": {"hookEventName": "Stop"}})
        );
        assert_eq!(
            HookOutput::permission("deny", "no").to_wire("PreToolUse"),
            json!({"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": "no"}})
        );
    }
}
