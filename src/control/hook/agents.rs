//! Events of subagents, tasks and teammates.

use super::define::event;
use super::session::{BackgroundTask, SessionCron};

event! {
    /// When a subagent starts.
    SubagentStart: SubagentStartInput, SubagentStartOutput, SubagentStartFields;
    input { agent_id: String, agent_type: String, }
    output {
        /// Text that the subagent reads.
        additional_context: String,
    };

    /// Before a subagent ends. [`block`](super::Output::block) makes it continue. The CLI ignores
    /// [`OnFailure::Block`](super::OnFailure::Block) here.
    SubagentStop: SubagentStopInput, SubagentStopOutput, SubagentStopFields;
    input {
        /// Whether the subagent already continues because a hook blocked.
        stop_hook_active: bool,
        agent_id: String,
        agent_transcript_path: String,
        agent_type: String,
    }
    may {
        last_assistant_message: String,
        background_tasks: Vec<BackgroundTask>,
        session_crons: Vec<SessionCron>,
    }
    output {
        /// Text that the subagent reads and continues with.
        additional_context: String,
    };

    /// When a task is created. The CLI is about to drop `team_name`.
    TaskCreated: TaskCreatedInput, TaskCreatedOutput;
    input { task_id: String, task_subject: String, }
    may { task_description: String, teammate_name: String, team_name: String, };

    /// Before a task is completed. The CLI ignores [`OnFailure::Block`](super::OnFailure::Block) here, and is about to
    /// drop `team_name`.
    TaskCompleted: TaskCompletedInput, TaskCompletedOutput;
    input { task_id: String, task_subject: String, }
    may { task_description: String, teammate_name: String, team_name: String, };

    /// Before a teammate becomes idle. The CLI ignores [`OnFailure::Block`](super::OnFailure::Block) here, and is about
    /// to drop `team_name`.
    TeammateIdle: TeammateIdleInput, TeammateIdleOutput;
    input { teammate_name: String, }
    may { team_name: String, }
}
