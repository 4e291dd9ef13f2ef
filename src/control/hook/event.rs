//! The names of the events, and the trait that ties an event to its types.

use crate::wire::words::words;
use serde::Serialize;
use serde::de::DeserializeOwned;

words! {
    /// An event of the CLI at which hooks run. The type of the same name in [`hook`](crate::hook) says when.
    ///
    /// ```
    /// use greenroom::hook::HookEvent;
    ///
    /// assert_eq!(HookEvent::from("PreToolUse"), HookEvent::PreToolUse);
    /// assert_eq!(HookEvent::from("OfTomorrow").as_str(), "OfTomorrow");
    /// assert_eq!(HookEvent::ALL.len(), 33);
    /// ```
    pub enum HookEvent {
        PreToolUse = "PreToolUse",
        PostToolUse = "PostToolUse",
        PostToolUseFailure = "PostToolUseFailure",
        PostToolBatch = "PostToolBatch",
        PermissionRequest = "PermissionRequest",
        PermissionDenied = "PermissionDenied",
        UserPromptSubmit = "UserPromptSubmit",
        UserPromptExpansion = "UserPromptExpansion",
        SessionStart = "SessionStart",
        SessionEnd = "SessionEnd",
        Setup = "Setup",
        Stop = "Stop",
        StopFailure = "StopFailure",
        SubagentStart = "SubagentStart",
        SubagentStop = "SubagentStop",
        PreCompact = "PreCompact",
        PostCompact = "PostCompact",
        PreModelSwitch = "PreModelSwitch",
        PostModelSwitch = "PostModelSwitch",
        Notification = "Notification",
        Elicitation = "Elicitation",
        ElicitationResult = "ElicitationResult",
        TaskCreated = "TaskCreated",
        TaskCompleted = "TaskCompleted",
        TeammateIdle = "TeammateIdle",
        ConfigChange = "ConfigChange",
        InstructionsLoaded = "InstructionsLoaded",
        WorktreeCreate = "WorktreeCreate",
        WorktreeRemove = "WorktreeRemove",
        CwdChanged = "CwdChanged",
        FileChanged = "FileChanged",
        DirectoryAdded = "DirectoryAdded",
        MessageDisplay = "MessageDisplay",
    }
}

impl HookEvent {
    /// Whether the event is about one tool call. At other events the CLI sends an id of its own as the tool use's.
    pub(crate) fn is_about_a_call(&self) -> bool {
        matches!(
            self,
            Self::PreToolUse
                | Self::PostToolUse
                | Self::PostToolUseFailure
                | Self::PermissionRequest
                | Self::PermissionDenied
        )
    }

    /// Whether the CLI honours [`OnFailure::Block`](super::OnFailure::Block) at this event.
    pub(crate) fn can_block_on_failure(&self) -> bool {
        !matches!(self, Self::Stop | Self::SubagentStop | Self::TaskCompleted | Self::TeammateIdle)
    }
}

/// Ties an event to the types of its input and output. Every known event has a type that implements the trait, such as
/// [`PreToolUse`](super::PreToolUse). Implement it yourself for an event that this library does not know yet.
///
/// ```
/// use greenroom::{Hook, hook};
///
/// struct Tomorrow;
///
/// #[derive(serde::Deserialize)]
/// struct TomorrowInput { weather: String }
///
/// impl hook::EventType for Tomorrow {
///     const NAME: &'static str = "Tomorrow";
///     type Input = TomorrowInput;
///     type Fields = hook::NoFields;
/// }
///
/// let hook = Hook::on(Tomorrow, async |input, _cx| hook::Output::pass().system_message(input.weather));
/// # let _ = hook;
/// ```
pub trait EventType: 'static {
    /// The event's name on the wire.
    const NAME: &'static str;

    /// The input of a hook.
    type Input: DeserializeOwned + Send + 'static;

    /// The fields of `hookSpecificOutput`: the part of the answer that only this event has.
    type Fields: Serialize + Default + Send + 'static;
}

/// The [`EventType::Fields`] of an event without `hookSpecificOutput`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(clippy::empty_structs_with_brackets, reason = "on the wire it is an object")]
pub struct NoFields {}
