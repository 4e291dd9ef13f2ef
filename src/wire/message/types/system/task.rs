//! Background tasks: subagents, workflows, shells, monitors.

use serde_json::Value;

use crate::wire::objects::objects;
use crate::wire::words::words;

objects! {
    /// A task was started (`system` / `task_started`).
    message TaskStarted {
        task_id: String,
        /// This run of the task.
        run_id: Option<String>,
        /// The tool call that started the task.
        tool_use_id: Option<String>,
        /// The task, in a few words.
        description: String,
        subagent_type: Option<String>,
        is_backgrounded: Option<bool>,
        /// Depth among nested subagents, from 1.
        spawn_depth: Option<u64>,
        /// The task that started this task.
        parent_task_id: Option<String>,
        /// `local_agent`, `local_workflow`, `local_bash`, a monitor, and others; an open set.
        task_type: Option<String>,
        workflow_name: Option<String>,
        prompt: Option<String>,
        /// The task is not written to the transcript.
        skip_transcript: Option<bool>,
        /// The task need not be shown to people.
        ambient: Option<bool>,
    }

    /// Progress of a task (`system` / `task_progress`).
    message TaskProgress {
        task_id: String,
        /// This run of the task.
        run_id: Option<String>,
        /// The tool call that started the task.
        tool_use_id: Option<String>,
        /// The current step, in a few words.
        description: String,
        subagent_type: Option<String>,
        /// Usage so far.
        usage: Option<TaskUsage>,
        last_tool_name: Option<String>,
        /// Summary of the work so far.
        summary: Option<String>,
    }

    /// Fields of a task have changed (`system` / `task_updated`).
    message TaskUpdated {
        task_id: String,
        /// This run of the task.
        run_id: Option<String>,
        /// The fields that have changed.
        patch: TaskPatch,
    }

    /// The changed fields, in a [`TaskUpdated`].
    part TaskPatch {
        status: Option<TaskStatus>,
        description: Option<String>,
        /// Milliseconds since 1970.
        end_time: Option<u64>,
        total_paused_ms: Option<u64>,
        error: Option<String>,
        is_backgrounded: Option<bool>,
    }

    /// A task ended (`system` / `task_notification`).
    message TaskNotification {
        task_id: String,
        /// This run of the task.
        run_id: Option<String>,
        /// The tool call that started the task.
        tool_use_id: Option<String>,
        /// `completed`, `failed` or `stopped`.
        status: TaskStatus,
        /// Set if the task was ended from outside: `worker_restart`.
        reason: Option<String>,
        /// The file with the task's output; empty if there is none.
        output_file: String,
        /// The result, in words.
        summary: String,
        usage: Option<TaskUsage>,
        /// Resource links, in the shape of MCP.
        resource_links: Vec<Value>,
        /// The task is not written to the transcript.
        skip_transcript: Option<bool>,
        /// The task need not be shown to people.
        ambient: Option<bool>,
    }

    /// Usage of a task.
    part TaskUsage {
        /// Tokens, read and written.
        total_tokens: u64,
        /// Number of tool calls.
        tool_uses: u64,
        duration_ms: u64,
    }

    /// The list of background tasks has changed (`system` / `background_tasks_changed`). This list replaces earlier
    /// ones.
    message BackgroundTasksChanged {
        tasks: Vec<BackgroundTask>,
    }

    /// A task in a [`BackgroundTasksChanged`].
    part BackgroundTask {
        task_id: String,
        /// This run of the task.
        run_id: Option<String>,
        /// `local_agent`, `local_workflow`, `local_bash`, and others; an open set.
        task_type: String,
        subagent_type: Option<String>,
        /// The task, in a few words.
        description: String,
        /// The task that started this task.
        parent_task_id: Option<String>,
        /// The task need not be shown to people.
        ambient: Option<bool>,
    }
}

words! {
    /// The state of a background task.
    pub enum TaskStatus or "" {
        Completed = "completed",
        Failed = "failed",
        Stopped = "stopped",
        Killed = "killed",
        /// The task was not started yet.
        Pending = "pending",
        Running = "running",
        Paused = "paused",
    }
}

impl TaskStatus {
    /// Whether the task has ended: `completed`, `failed`, `stopped`, `killed`.
    pub fn is_end(&self) -> bool {
        matches!(self, TaskStatus::Completed | TaskStatus::Failed | TaskStatus::Stopped | TaskStatus::Killed)
    }
}

/// Start or end of a background task, from [`SystemMessage::task`](crate::message::SystemMessage::task).
///
/// ```
/// use greenroom::message::{TaskEvent, TaskStatus};
/// use greenroom::Message;
///
/// let line =
///     r#"{"type": "system", "subtype": "task_updated", "task_id": "t1", "patch": {"status": "killed"}}"#;
/// let Message::System(notice) = Message::parse(line)? else { unreachable!() };
/// let Some(TaskEvent::Ended { task_id, status, .. }) = notice.task() else { unreachable!() };
/// assert_eq!((task_id.as_str(), status), ("t1", TaskStatus::Killed));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "fields are named as on the wire")]
#[non_exhaustive]
pub enum TaskEvent {
    /// The task was started (`task_started`).
    #[non_exhaustive]
    Started {
        task_id: String,
        /// `local_agent`, `local_workflow`, a shell, a monitor, and others; an open set.
        task_type: Option<String>,
    },
    /// The task ended (`task_notification`, or `task_updated` with a final status).
    #[non_exhaustive]
    Ended { task_id: String, status: TaskStatus },
}
