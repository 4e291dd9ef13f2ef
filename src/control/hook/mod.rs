//! Run functions of yours at events of the CLI's loop, to deny, change or add something.
//!
//! Make a hook for an event with [`Hook::on`], and give it to a session with
//! [`SessionBuilder::hook`](crate::SessionBuilder::hook). Each event has three types: the event itself, the input
//! (`…Input`) and the answer (`…Output`):
//!
//! ```
//! use greenroom::hook::PreToolUseOutput;
//! use greenroom::{Hook, hook};
//!
//! let no_shell = Hook::on(hook::PreToolUse, async |input, _cx| {
//!     if input.tool_input["command"].as_str().is_some_and(|command| command.contains("sudo")) {
//!         PreToolUseOutput::deny("not as root")
//!     } else {
//!         PreToolUseOutput::pass()
//!     }
//! })
//! .matcher("Bash");
//! # let _ = no_shell;
//! ```
//!
//! | subject | events |
//! |---|---|
//! | tool calls | [`PreToolUse`], [`PermissionRequest`], [`PermissionDenied`], [`PostToolUse`], [`PostToolUseFailure`], [`PostToolBatch`] |
//! | input and output | [`UserPromptSubmit`], [`UserPromptExpansion`], [`Notification`], [`Elicitation`], [`ElicitationResult`], [`MessageDisplay`] |
//! | a session's life | [`SessionStart`], [`SessionEnd`], [`Setup`], [`Stop`], [`StopFailure`], [`PreCompact`], [`PostCompact`], [`PreModelSwitch`], [`PostModelSwitch`] |
//! | subagents, tasks | [`SubagentStart`], [`SubagentStop`], [`TaskCreated`], [`TaskCompleted`], [`TeammateIdle`] |
//! | settings, files | [`ConfigChange`], [`InstructionsLoaded`], [`WorktreeCreate`], [`WorktreeRemove`], [`CwdChanged`], [`FileChanged`], [`DirectoryAdded`] |
//!
//! Arguments and results of tools are [`LazyValue`](crate::callback::LazyValue)s, which are parsed on their first use: a
//! hook that does not look at a large result does not pay for it.
//!
//! For an event that this library does not know yet, use [`Hook::new`] with JSON, or implement [`EventType`].
//!
//! # When a hook fails
//!
//! A hook fails when it returns an error, panics, times out, gets an input that does not fit its type, or returns an
//! answer that the CLI could not read (not an object, arguments that are no object, an invalid decision). It also fails at
//! an input that holds more than 8,192 values, and more than one for every 128 bytes, beside its `LazyValue`s. [`OnFailure`]
//! decides what the CLI is told: by default a hook that can deny something denies it. The session emits
//! [`Event::CallbackFailed`](crate::Event::CallbackFailed), [`CallbackPanicked`](crate::Event::CallbackPanicked) or
//! [`CallbackTimedOut`](crate::Event::CallbackTimedOut) with the name of the hook's event.

mod agents;
pub(crate) mod define;
pub(crate) mod definition;
mod event;
mod input;
mod output;
mod prompts;
mod session;
#[cfg(test)]
mod tests;
mod tools;
mod workspace;

pub use agents::*;
pub use definition::OnFailure;
pub(crate) use definition::{Hook, blocking_answer};
pub use event::{EventType, HookEvent, NoFields};
pub use input::{Common, Effort, HookInput};
pub use output::{CommonOutput, HookDecision, HookOutput, Output};
pub use prompts::*;
pub use session::*;
pub use tools::*;
pub use workspace::*;
