//! Events of settings, instructions, worktrees, directories and files.

use super::define::event;
use crate::wire::words::words;

words! {
    /// The changed settings.
    pub enum ConfigSource {
        UserSettings = "user_settings",
        ProjectSettings = "project_settings",
        /// The user's own settings for the project.
        LocalSettings = "local_settings",
        /// Managed settings.
        PolicySettings = "policy_settings",
        Skills = "skills",
    }
}

event! {
    /// When settings or skills changed, before the change takes effect. [`block`](super::Output::block) rejects the
    /// change.
    ConfigChange: ConfigChangeInput, ConfigChangeOutput;
    input { source: ConfigSource, }
    may { file_path: String, }
}

words! {
    /// Scope of a file of instructions.
    pub enum MemoryType {
        User = "User",
        Project = "Project",
        /// The user's own for the project.
        Local = "Local",
        Managed = "Managed",
    }
}

words! {
    /// The reason for loading instructions.
    pub enum InstructionsLoadReason {
        /// The session started.
        SessionStart = "session_start",
        /// The CLI entered their directory.
        NestedTraversal = "nested_traversal",
        /// A file was opened that matches their `globs`.
        PathGlobMatch = "path_glob_match",
        /// Other instructions include them.
        Include = "include",
        /// The conversation was compacted.
        Compact = "compact",
    }
}

event! {
    /// When a file of instructions was loaded.
    InstructionsLoaded: InstructionsLoadedInput, InstructionsLoadedOutput;
    input { file_path: String, memory_type: MemoryType, load_reason: InstructionsLoadReason, }
    may {
        globs: Vec<String>,
        /// The opened file, with [`InstructionsLoadReason::PathGlobMatch`].
        trigger_file_path: String,
        /// The including file, with [`InstructionsLoadReason::Include`].
        parent_file_path: String,
    }
}

event! {
    /// Creates a worktree: the hook has to create it and answer with its path. [`pass`](super::Output::pass) is no
    /// answer here.
    WorktreeCreate: WorktreeCreateInput, WorktreeCreateOutput, WorktreeCreateFields;
    input { name: String, }
    may {}
    output {
        /// An absolute path.
        worktree_path: String,
    }
}

impl WorktreeCreateOutput {
    /// The absolute path of the new worktree.
    pub fn made(path: impl Into<String>) -> Self {
        Self::pass().worktree_path(path)
    }
}

event! {
    /// Removes a worktree.
    WorktreeRemove: WorktreeRemoveInput, WorktreeRemoveOutput;
    input { worktree_path: String, }
    may {}
}

event! {
    /// After the working directory changed.
    CwdChanged: CwdChangedInput, CwdChangedOutput, CwdChangedFields;
    input { old_cwd: String, new_cwd: String, }
    may {}
    output {
        /// Absolute paths of files to watch: their changes run [`FileChanged`] hooks.
        watch_paths: Vec<String>,
    }
}

words! {
    /// The kind of a file's change.
    pub enum FileChange { Change = "change", Add = "add", Unlink = "unlink", }
}

event! {
    /// After a watched file changed.
    FileChanged: FileChangedInput, FileChangedOutput, FileChangedFields;
    input { file_path: String, event: FileChange, }
    may {}
    output {
        /// Absolute paths of the files to watch from now on.
        watch_paths: Vec<String>,
    }
}

words! {
    /// The source of an added directory.
    pub enum DirectorySource {
        /// By a command of the user.
        SlashCommand = "slash_command",
        /// By the application.
        RegisterRepoRoot = "register_repo_root",
    }
}

event! {
    /// After a directory was added to the CLI's working directories.
    DirectoryAdded: DirectoryAddedInput, DirectoryAddedOutput;
    input {
        /// An absolute path.
        directory: String,
        source: DirectorySource,
    }
    may {}
}
