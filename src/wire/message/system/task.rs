//! Background tasks: subagents, workflows, shells, monitors.

use serde_json::Value;

use crate::wire::message::view::{view, words};

view! {
    /// A task began (`system` / `task_started`).
    message TaskStarted: r#"{"task_id": "t1", "task_type": "local_agent", "description": "count"}"#
        => r#"view.task_id == "t1" && view.task_type.as_deref() == Some("local_agent")"#
    {
        /// The task.
        task_id: String,
        /// This run of it.
        run_id: Option<String>,
        /// The tool call that began it.
        tool_use_id: Option<String>,
        /// What it is to do, in a few words.
        description: String,
        /// What kind of subagent it is.
        subagent_type: Option<String>,
        /// Whether it runs in the background.
        is_backgrounded: Option<bool>,
        /// How deep it stands among subagents, from 1.
        spawn_depth: Option<u64>,
        /// The task that began it.
        parent_task_id: Option<String>,
        /// What it is: `local_agent`, `local_workflow`, `local_bash`, a monitor, and others; an open set.
        task_type: Option<String>,
        /// The workflow.
        workflow_name: Option<String>,
        /// What it was told.
        prompt: Option<String>,
        /// Whether it leaves no trace in the transcript.
        skip_transcript: Option<bool>,
        /// Whether it is of no interest to people.
        ambient: Option<bool>,
    }

    /// A task goes on (`system` / `task_progress`).
    message TaskProgress: r#"{"task_id": "t1", "usage": {"total_tokens": 54, "tool_uses": 1, "duration_ms": 112}}"#
        => r#"view.usage.is_some_and(|usage| usage.tool_uses == 1)"#
    {
        /// The task.
        task_id: String,
        /// This run of it.
        run_id: Option<String>,
        /// The tool call that began it.
        tool_use_id: Option<String>,
        /// What it does, in a few words.
        description: String,
        /// What kind of subagent it is.
        subagent_type: Option<String>,
        /// What it used so far.
        usage: Option<TaskUsage>,
        /// The tool that it called last.
        last_tool_name: Option<String>,
        /// What it did so far, in words.
        summary: Option<String>,
    }

    /// Something about a task has changed (`system` / `task_updated`).
    message TaskUpdated: r#"{"task_id": "t1", "patch": {"status": "killed"}}"#
        => r#"view.patch.status == Some(greenroom::TaskStatus::Killed)"#
    {
        /// The task.
        task_id: String,
        /// This run of it.
        run_id: Option<String>,
        /// What has changed; the rest is as it was.
        patch: TaskPatch,
    }

    /// What has changed, in a [`TaskUpdated`].
    part TaskPatch: r#"{"is_backgrounded": true}"# => r#"view.is_backgrounded == Some(true)"# {
        /// What it does.
        status: Option<TaskStatus>,
        /// What it is to do, in a few words.
        description: Option<String>,
        /// When it ended, in milliseconds since 1970.
        end_time: Option<u64>,
        /// How long it has been paused, in milliseconds.
        total_paused_ms: Option<u64>,
        /// Why it failed.
        error: Option<String>,
        /// Whether it runs in the background.
        is_backgrounded: Option<bool>,
    }

    /// A task ended (`system` / `task_notification`).
    message TaskNotification: r#"{"task_id": "t1", "status": "completed", "summary": "counted"}"#
        => r#"view.status == greenroom::TaskStatus::Completed && view.summary == "counted""#
    {
        /// The task.
        task_id: String,
        /// This run of it.
        run_id: Option<String>,
        /// The tool call that began it.
        tool_use_id: Option<String>,
        /// How it ended: `completed`, `failed` or `stopped`.
        status: TaskStatus,
        /// Why, if it was none of its own doing: `worker_restart`.
        reason: Option<String>,
        /// The file with what it wrote; empty if there is none.
        output_file: String,
        /// What it came to, in words.
        summary: String,
        /// Whether the summary is the report of the subagent itself.
        summary_is_report: Option<bool>,
        /// What it used.
        usage: Option<TaskUsage>,
        /// Resources that it points to, in the shape of MCP.
        resource_links: Vec<Value>,
        /// Whether it leaves no trace in the transcript.
        skip_transcript: Option<bool>,
        /// Whether it is of no interest to people.
        ambient: Option<bool>,
    }

    /// What a task used.
    part TaskUsage: r#"{"total_tokens": 54, "tool_uses": 1, "duration_ms": 112}"# => r#"view.total_tokens == 54"# {
        /// Tokens, read and written.
        total_tokens: u64,
        /// Tool calls.
        tool_uses: u64,
        /// Milliseconds.
        duration_ms: u64,
    }

    /// All background tasks there are now (`system` / `background_tasks_changed`). It replaces what was said before.
    message BackgroundTasksChanged: r#"{"tasks": [{"task_id": "t1", "task_type": "local_bash"}]}"#
        => r#"view.tasks[0].task_type == "local_bash""#
    {
        /// The tasks.
        tasks: Vec<BackgroundTask>,
    }

    /// A task in a [`BackgroundTasksChanged`].
    part BackgroundTask: r#"{"task_id": "t1", "task_type": "local_bash", "description": "sleep"}"#
        => r#"view.description == "sleep""#
    {
        /// The task.
        task_id: String,
        /// This run of it.
        run_id: Option<String>,
        /// What it is: `local_agent`, `local_workflow`, `local_bash`, and others; an open set.
        task_type: String,
        /// What kind of subagent it is.
        subagent_type: Option<String>,
        /// What it is to do, in a few words.
        description: String,
        /// The task that began it.
        parent_task_id: Option<String>,
        /// Whether it is of no interest to people.
        ambient: Option<bool>,
    }
}

words! {
    /// What a background task does, or how it ended.
    TaskStatus {
        /// It came to its end.
        Completed = "completed",
        /// It failed.
        Failed = "failed",
        /// It was stopped.
        Stopped = "stopped",
        /// It was killed.
        Killed = "killed",
        /// It has not begun.
        Pending = "pending",
        /// It runs.
        Running = "running",
        /// It is paused.
        Paused = "paused",
    }
}

impl TaskStatus {
    /// Whether nothing follows after it: `completed`, `failed`, `stopped`, `killed`.
    pub fn is_end(&self) -> bool {
        matches!(self, TaskStatus::Completed | TaskStatus::Failed | TaskStatus::Stopped | TaskStatus::Killed)
    }
}

/// A background task that began or ended.
///
/// ```
/// use greenroom::{Message, TaskEvent, TaskStatus};
///
/// let line =
///     r#"{"type": "system", "subtype": "task_updated", "task_id": "t1", "patch": {"status": "killed"}}"#;
/// let Message::System(notice) = Message::parse(line)? else { unreachable!() };
/// let Some(TaskEvent::Ended { task_id, status, .. }) = notice.task() else { unreachable!() };
/// assert_eq!((task_id.as_str(), status), ("t1", TaskStatus::Killed));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TaskEvent {
    /// It began (`task_started`).
    #[non_exhaustive]
    Started {
        /// The task.
        task_id: String,
        /// What it is: `local_agent`, `local_workflow`, a shell, a monitor, and others; an open set.
        task_type: Option<String>,
    },
    /// It ended (`task_notification`, or `task_updated` with a status after which nothing follows).
    #[non_exhaustive]
    Ended {
        /// The task.
        task_id: String,
        /// How.
        status: TaskStatus,
    },
}
