//! Events around tasks, teammates, settings, directories and files.

use super::define::event;
use crate::control::fields::open_enum;

event! {
    /// When a task is made.
    TaskCreated: TaskCreatedInput, TaskCreatedOutput;
    sample r#"{"task_id": "1", "task_subject": "Write tests", "task_description": "All of them", "teammate_name": "ada", "team_name": "t"}"#;
    input {
        /// The task.
        task_id: String,
        /// What it is called.
        task_subject: String,
    }
    may {
        /// What it is about.
        task_description: String,
        /// Who made it.
        teammate_name: String,
        /// Whose it is. The CLI is about to drop it.
        team_name: String,
    }
}

event! {
    /// Before a task is completed. The CLI ignores [`OnFailure::Block`](super::OnFailure::Block) here.
    TaskCompleted: TaskCompletedInput, TaskCompletedOutput;
    sample r#"{"task_id": "1", "task_subject": "Write tests", "task_description": "All of them", "teammate_name": "ada", "team_name": "t"}"#;
    input {
        /// The task.
        task_id: String,
        /// What it is called.
        task_subject: String,
    }
    may {
        /// What it is about.
        task_description: String,
        /// Who completes it.
        teammate_name: String,
        /// Whose it is. The CLI is about to drop it.
        team_name: String,
    }
}

event! {
    /// Before a teammate becomes idle. The CLI ignores [`OnFailure::Block`](super::OnFailure::Block) here.
    TeammateIdle: TeammateIdleInput, TeammateIdleOutput;
    sample r#"{"teammate_name": "ada", "team_name": "t"}"#;
    input {
        /// The teammate.
        teammate_name: String,
    }
    may {
        /// Whose it is. The CLI is about to drop it.
        team_name: String,
    }
}

open_enum! {
    /// What has changed.
    ///
    /// ```
    /// assert_eq!(greenroom::hook::ConfigSource::Skills.as_str(), "skills");
    /// ```
    ConfigSource {
        /// The person's settings.
        UserSettings = "user_settings",
        /// The project's settings.
        ProjectSettings = "project_settings",
        /// The person's settings for the project.
        LocalSettings = "local_settings",
        /// Settings that are managed for the person.
        PolicySettings = "policy_settings",
        /// Skills.
        Skills = "skills",
    }
}

event! {
    /// When settings or skills changed, before they are in force. [`block`](super::Output::block) keeps them from that.
    ConfigChange: ConfigChangeInput, ConfigChangeOutput;
    sample r#"{"source": "user_settings", "file_path": "/h/.claude/settings.json"}"#;
    input {
        /// What has changed.
        source: ConfigSource,
    }
    may {
        /// The file.
        file_path: String,
    }
}

open_enum! {
    /// Whose instructions they are.
    ///
    /// ```
    /// assert_eq!(greenroom::hook::MemoryType::Project.as_str(), "Project");
    /// ```
    MemoryType {
        /// The person's.
        User = "User",
        /// The project's.
        Project = "Project",
        /// The person's for the project.
        Local = "Local",
        /// Those that are managed for the person.
        Managed = "Managed",
    }
}

open_enum! {
    /// Why instructions were loaded.
    ///
    /// ```
    /// assert_eq!(greenroom::hook::InstructionsLoadReason::Include.as_str(), "include");
    /// ```
    InstructionsLoadReason {
        /// The session begins.
        SessionStart = "session_start",
        /// The CLI came into their directory.
        NestedTraversal = "nested_traversal",
        /// A file was opened that they are for.
        PathGlobMatch = "path_glob_match",
        /// Other instructions name them.
        Include = "include",
        /// The conversation was compacted.
        Compact = "compact",
    }
}

event! {
    /// When a file of instructions was loaded.
    InstructionsLoaded: InstructionsLoadedInput, InstructionsLoadedOutput;
    sample r#"{"file_path": "/w/CLAUDE.md", "memory_type": "Project", "load_reason": "include", "globs": ["*.rs"], "trigger_file_path": "/w/a.rs", "parent_file_path": "/w/B.md"}"#;
    input {
        /// The file.
        file_path: String,
        /// Whose instructions they are.
        memory_type: MemoryType,
        /// Why they were loaded.
        load_reason: InstructionsLoadReason,
    }
    may {
        /// The files that they are for.
        globs: Vec<String>,
        /// The file that was opened.
        trigger_file_path: String,
        /// The instructions that name them.
        parent_file_path: String,
    }
}

event! {
    /// To make a worktree: the hook has to make it and to say where it is. [`pass`](super::Output::pass) is no answer
    /// here.
    WorktreeCreate: WorktreeCreateInput, WorktreeCreateOutput, WorktreeCreateFields;
    sample r#"{"name": "feature"}"#;
    input {
        /// What it is to be called.
        name: String,
    }
    may {}
    output {
        /// Where it is: an absolute path.
        worktree_path: String,
    }
}

impl WorktreeCreateOutput {
    /// It was made there: an absolute path.
    pub fn made(path: impl Into<String>) -> Self {
        Self::pass().worktree_path(path)
    }
}

event! {
    /// To remove a worktree.
    WorktreeRemove: WorktreeRemoveInput, WorktreeRemoveOutput;
    sample r#"{"worktree_path": "/w/feature"}"#;
    input {
        /// Where it is.
        worktree_path: String,
    }
    may {}
}

event! {
    /// After the working directory changed.
    CwdChanged: CwdChangedInput, CwdChangedOutput, CwdChangedFields;
    sample r#"{"old_cwd": "/a", "new_cwd": "/b"}"#;
    input {
        /// The one before.
        old_cwd: String,
        /// The one now.
        new_cwd: String,
    }
    may {}
    output {
        /// Files of which changes are told at [`FileChanged`], by their absolute paths.
        watch_paths: Vec<String>,
    }
}

open_enum! {
    /// What happened to a file.
    ///
    /// ```
    /// assert_eq!(greenroom::hook::FileChange::Unlink.as_str(), "unlink");
    /// ```
    FileChange {
        /// It was written.
        Change = "change",
        /// It was made.
        Add = "add",
        /// It was removed.
        Unlink = "unlink",
    }
}

event! {
    /// After a watched file changed.
    FileChanged: FileChangedInput, FileChangedOutput, FileChangedFields;
    sample r#"{"file_path": "/w/a.rs", "event": "change"}"#;
    input {
        /// The file.
        file_path: String,
        /// What happened to it.
        event: FileChange,
    }
    may {}
    output {
        /// Files of which changes are told from now on, by their absolute paths.
        watch_paths: Vec<String>,
    }
}

open_enum! {
    /// How a directory was added.
    ///
    /// ```
    /// assert_eq!(greenroom::hook::DirectorySource::SlashCommand.as_str(), "slash_command");
    /// ```
    DirectorySource {
        /// By a command of the person.
        SlashCommand = "slash_command",
        /// By the application.
        RegisterRepoRoot = "register_repo_root",
    }
}

event! {
    /// After a directory was added to those in which the CLI may work.
    DirectoryAdded: DirectoryAddedInput, DirectoryAddedOutput;
    sample r#"{"directory": "/srv", "source": "slash_command"}"#;
    input {
        /// Its absolute path.
        directory: String,
        /// How it was added.
        source: DirectorySource,
    }
    may {}
}
