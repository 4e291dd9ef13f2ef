//! Messages about the session.
//!
//! - [`init`]: the description of the session at the start of a turn
//! - [`state`]: its state, and changes to the conversation
//! - [`task`]: background tasks
//! - [`notice`]: progress of hooks, and notices for the user

use serde::de;

mod init;
mod notice;
mod state;
mod task;

pub use init::*;
pub use notice::*;
pub use state::*;
pub use task::*;

/// A message about the session (`type` `system`), told apart by its `subtype`.
///
/// [`detail`](Self::detail) is the typed body. For an unknown subtype it is [`SystemDetail::Unknown`];
/// [`Message::field`](crate::Message::field) reads the fields.
///
/// Without a string `subtype` this is [`Message::Other`](crate::Message::Other).
///
/// ```
/// use greenroom::message::{SessionState, SystemDetail};
/// use greenroom::Message;
///
/// let line =
///     r#"{"type": "system", "subtype": "session_state_changed", "state": "idle", "sdk_host_only": true}"#;
/// let Message::System(notice) = Message::parse(line)? else { unreachable!() };
/// assert_eq!(notice.session_state(), Some(SessionState::Idle));
/// assert!(matches!(notice.detail(), SystemDetail::SessionStateChanged(_)) && notice.init().is_none());
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SystemMessage {
    /// `init`, `status`, `session_state_changed`, `task_started`, `hook_response`, and many others; an open set.
    pub subtype: String,
    detail: SystemDetail,
}

/// Declares the subtypes: the word on the wire, and the type of the body.
macro_rules! subtypes {
    ($( $(#[$about:meta])* $word:literal => $variant:ident($type:ty), )*) => {
        /// The body of a [`SystemMessage`]: a variant for each known subtype.
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        pub enum SystemDetail {
            $(
                #[doc = concat!("`", $word, "`")]
                $variant(Box<$type>),
            )*
            /// A subtype that this library does not know.
            Unknown,
        }

        impl SystemMessage {
            /// The subtypes that this library knows.
            pub const SUBTYPES: &'static [&'static str] = &[$($word),*];
        }

        impl SystemMessage {
            /// Reads the body. The fields of an unknown subtype are not read.
            pub(crate) fn read(subtype: Option<&str>, text: &str) -> serde_json::Result<Self> {
                let Some(subtype) = subtype else { return Err(de::Error::missing_field("subtype")) };
                let detail = match subtype {
                    $( $word => SystemDetail::$variant(serde_json::from_str(text)?), )*
                    _ => SystemDetail::Unknown,
                };
                Ok(Self { subtype: subtype.to_owned(), detail })
            }
        }
    };
}

subtypes! {
    "init" => Init(InitMessage),
    "session_state_changed" => SessionStateChanged(SessionStateChanged),
    "status" => Status(SessionStatus),
    "compact_boundary" => CompactBoundary(CompactBoundary),
    "api_retry" => ApiRetry(ApiRetry),
    "control_request_progress" => ControlRequestProgress(ControlRequestProgress),
    "model_refusal_fallback" => ModelRefusalFallback(ModelRefusalFallback),
    "model_refusal_no_fallback" => ModelRefusalNoFallback(ModelRefusalNoFallback),
    "local_command_output" => LocalCommandOutput(LocalCommandOutput),
    "informational" => Informational(Informational),
    "notification" => Notification(Notification),
    "hook_started" => HookStarted(HookStarted),
    "hook_progress" => HookProgress(HookProgress),
    "hook_response" => HookResponse(HookResponse),
    "plugin_install" => PluginInstall(PluginInstall),
    "task_started" => TaskStarted(TaskStarted),
    "task_progress" => TaskProgress(TaskProgress),
    "task_updated" => TaskUpdated(TaskUpdated),
    "task_notification" => TaskNotification(TaskNotification),
    "background_tasks_changed" => BackgroundTasksChanged(BackgroundTasksChanged),
    "thinking_tokens" => ThinkingTokens(ThinkingTokens),
    "commands_changed" => CommandsChanged(CommandsChanged),
    "files_persisted" => FilesPersisted(FilesPersisted),
    "memory_recall" => MemoryRecall(MemoryRecall),
    "elicitation_complete" => ElicitationComplete(ElicitationComplete),
    "permission_denied" => PermissionDenied(PermissionDenied),
    "worker_shutting_down" => WorkerShuttingDown(WorkerShuttingDown),
    "session_writes_lost" => SessionWritesLost(SessionWritesLost),
    "mirror_error" => MirrorError(MirrorError),
}

impl SystemMessage {
    /// The typed body.
    pub fn detail(&self) -> &SystemDetail {
        &self.detail
    }

    /// The description of the session, in the message that each turn starts with (`init`).
    pub fn init(&self) -> Option<&InitMessage> {
        match &self.detail {
            SystemDetail::Init(init) => Some(init),
            _ => None,
        }
    }

    /// The new state of the session (`session_state_changed`).
    pub fn session_state(&self) -> Option<SessionState> {
        match &self.detail {
            SystemDetail::SessionStateChanged(changed) if !changed.state.as_str().is_empty() => {
                Some(changed.state.clone())
            }
            _ => None,
        }
    }

    /// Whether the message is meant for this library: a state message that the application did not ask for.
    pub fn sdk_host_only(&self) -> bool {
        matches!(&self.detail, SystemDetail::SessionStateChanged(changed) if changed.sdk_host_only)
    }

    /// The start or the end of a background task. A task may end with `task_notification`, with `task_updated`, or with
    /// both, so handle a second end of the same task.
    pub fn task(&self) -> Option<TaskEvent> {
        let event = match &self.detail {
            SystemDetail::TaskStarted(task) => {
                TaskEvent::Started { task_id: task.task_id.clone(), task_type: task.task_type.clone() }
            }
            SystemDetail::TaskNotification(task) => {
                TaskEvent::Ended { task_id: task.task_id.clone(), status: task.status.clone() }
            }
            SystemDetail::TaskUpdated(task) => {
                let status = task.patch.status.clone().filter(TaskStatus::is_end)?;
                TaskEvent::Ended { task_id: task.task_id.clone(), status }
            }
            _ => return None,
        };
        let (TaskEvent::Started { task_id, .. } | TaskEvent::Ended { task_id, .. }) = &event;
        (!task_id.is_empty()).then_some(event)
    }
}
