//! Events of subagents, tasks and teammates.

use super::define::event;
use super::session::{BackgroundTask, SessionCron};

event! {
    /// When a subagent starts.
    SubagentStart: SubagentStartInput, SubagentStartOutput, SubagentStartFields;
    sample r#"{"agent_id": "a1", "agent_type": "Explore"}"#;
    input { agent_id: String, agent_type: String, }
    may {}
    output {
        /// Text that the subagent reads.
        additional_context: String,
    }
}

event! {
    /// Before a subagent ends. [`block`](super::Output::block) makes it continue. The CLI ignores
    /// [`OnFailure::Block`](super::OnFailure::Block) here.
    SubagentStop: SubagentStopInput, SubagentStopOutput, SubagentStopFields;
    sample r#"{"stop_hook_active": false, "agent_id": "a1", "agent_transcript_path": "/t/a1.jsonl", "agent_type": "Explore", "last_assistant_message": "Done.", "background_tasks": [], "session_crons": []}"#;
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
    }
}

event! {
    /// When a task is created. The CLI is about to drop `team_name`.
    TaskCreated: TaskCreatedInput, TaskCreatedOutput;
    sample r#"{"task_id": "1", "task_subject": "Write tests", "task_description": "All of them", "teammate_name": "ada", "team_name": "t"}"#;
    input { task_id: String, task_subject: String, }
    may { task_description: String, teammate_name: String, team_name: String, }
}

event! {
    /// Before a task is completed. The CLI ignores [`OnFailure::Block`](super::OnFailure::Block) here, and is about to drop
    /// `team_name`.
    TaskCompleted: TaskCompletedInput, TaskCompletedOutput;
    sample r#"{"task_id": "1", "task_subject": "Write tests", "task_description": "All of them", "teammate_name": "ada", "team_name": "t"}"#;
    input { task_id: String, task_subject: String, }
    may { task_description: String, teammate_name: String, team_name: String, }
}

event! {
    /// Before a teammate becomes idle. The CLI ignores [`OnFailure::Block`](super::OnFailure::Block) here, and is about to
    /// drop `team_name`.
    TeammateIdle: TeammateIdleInput, TeammateIdleOutput;
    sample r#"{"teammate_name": "ada", "team_name": "t"}"#;
    input { teammate_name: String, }
    may { team_name: String, }
}
