//! The events at which hooks run.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::control::fields::open_enum;

open_enum! {
    /// A point of the CLI's loop at which hooks run.
    ///
    /// ```
    /// use greenroom::HookEvent;
    ///
    /// assert_eq!(HookEvent::from("PreToolUse"), HookEvent::PreToolUse);
    /// assert_eq!(HookEvent::from("OfTomorrow").as_str(), "OfTomorrow");
    /// assert_eq!(HookEvent::ALL.len(), 33);
    /// ```
    HookEvent {
        /// Before a tool runs.
        PreToolUse = "PreToolUse",
        /// After a tool ran.
        PostToolUse = "PostToolUse",
        /// After a tool failed.
        PostToolUseFailure = "PostToolUseFailure",
        /// After all tool calls of one message.
        PostToolBatch = "PostToolBatch",
        /// Before the person, or the application, is asked for a permission.
        PermissionRequest = "PermissionRequest",
        /// After a tool was denied.
        PermissionDenied = "PermissionDenied",
        /// Before a prompt reaches the model.
        UserPromptSubmit = "UserPromptSubmit",
        /// Before a slash command becomes a prompt.
        UserPromptExpansion = "UserPromptExpansion",
        /// When a session begins.
        SessionStart = "SessionStart",
        /// When a session ends.
        SessionEnd = "SessionEnd",
        /// When a project is set up.
        Setup = "Setup",
        /// Before the model's turn ends.
        Stop = "Stop",
        /// After a turn ended with an error.
        StopFailure = "StopFailure",
        /// When a subagent begins.
        SubagentStart = "SubagentStart",
        /// Before a subagent ends.
        SubagentStop = "SubagentStop",
        /// Before the conversation is compacted.
        PreCompact = "PreCompact",
        /// After the conversation was compacted.
        PostCompact = "PostCompact",
        /// Before the model is switched.
        PreModelSwitch = "PreModelSwitch",
        /// After the model was switched.
        PostModelSwitch = "PostModelSwitch",
        /// When the person is notified.
        Notification = "Notification",
        /// Before an MCP server's question reaches the person.
        Elicitation = "Elicitation",
        /// Before the person's answer reaches the MCP server.
        ElicitationResult = "ElicitationResult",
        /// When a task is made.
        TaskCreated = "TaskCreated",
        /// Before a task is completed.
        TaskCompleted = "TaskCompleted",
        /// Before a teammate becomes idle.
        TeammateIdle = "TeammateIdle",
        /// When settings or skills changed.
        ConfigChange = "ConfigChange",
        /// When a file of instructions was loaded.
        InstructionsLoaded = "InstructionsLoaded",
        /// To make a worktree.
        WorktreeCreate = "WorktreeCreate",
        /// To remove a worktree.
        WorktreeRemove = "WorktreeRemove",
        /// After the working directory changed.
        CwdChanged = "CwdChanged",
        /// After a watched file changed.
        FileChanged = "FileChanged",
        /// After a directory was added to those in which the CLI may work.
        DirectoryAdded = "DirectoryAdded",
        /// While a message of the model is shown.
        MessageDisplay = "MessageDisplay",
    }
}

impl HookEvent {
    /// Whether it is about one call of a tool. At the others the CLI sends an id of its own making in the place of the
    /// tool use's.
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

    /// Whether the CLI heeds [`OnFailure`](super::OnFailure) at this event. At the others it goes on, whatever was asked
    /// for.
    pub(crate) fn can_block_on_failure(&self) -> bool {
        !matches!(self, Self::Stop | Self::SubagentStop | Self::TaskCompleted | Self::TeammateIdle)
    }
}

/// The types of one event. Each event that this library knows has a type that implements it, such as
/// [`PreToolUse`](super::PreToolUse); an event that is newer can be given one.
///
/// ```
/// use greenroom::hook::{self, Hook, HookOutput};
///
/// /// An event that this library does not know.
/// struct Tomorrow;
///
/// #[derive(serde::Deserialize)]
/// struct TomorrowInput { weather: String }
///
/// impl hook::Event for Tomorrow {
///     const NAME: &'static str = "Tomorrow";
///     type Input = TomorrowInput;
///     type Fields = hook::NoFields;
/// }
///
/// let hook = Hook::on(Tomorrow, async |input, _cx| hook::Output::pass().system_message(input.weather));
/// # let _ = hook;
/// ```
pub trait Event: 'static {
    /// Its name.
    const NAME: &'static str;

    /// What a hook at this event is told.
    type Input: DeserializeOwned + Send + 'static;

    /// What a hook may answer at this event only: the fields of `hookSpecificOutput`.
    type Fields: Serialize + Default + Send + 'static;
}

/// For events at which there is nothing particular to answer.
///
/// ```
/// let answer = greenroom::hook::SessionEndOutput::pass();
/// assert_eq!(answer.fields, greenroom::hook::NoFields {});
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(clippy::empty_structs_with_brackets, reason = "on the wire it is an object")]
pub struct NoFields {}
