//! Events of settings, instructions, worktrees, directories and files.

use super::define::event;

event! {
    /// When settings or skills changed, before the change takes effect. [`block`](super::Output::block) rejects the
    /// change.
    ConfigChange: ConfigChangeInput, ConfigChangeOutput;
    input {
        /// The changed settings: `user_settings`, `project_settings`, `local_settings` (the user's own for the project),
        /// `policy_settings`, `skills`, or another word.
        source: String,
    }
    may { file_path: String, };

    /// When a file of instructions was loaded.
    InstructionsLoaded: InstructionsLoadedInput, InstructionsLoadedOutput;
    input {
        file_path: String,
        /// Scope of the file: `User`, `Project`, `Local` (the user's own for the project), `Managed`, or another word.
        memory_type: String,
        /// `session_start`, `nested_traversal` (the CLI entered their directory), `path_glob_match` (a file was opened
        /// that matches their `globs`), `include`, `compact`, or another word.
        load_reason: String,
    }
    may {
        globs: Vec<String>,
        /// The opened file, with `path_glob_match`.
        trigger_file_path: String,
        /// The including file, with `include`.
        parent_file_path: String,
    };

    /// Creates a worktree: the hook has to create it and answer with its path. [`pass`](super::Output::pass) is no
    /// answer here.
    WorktreeCreate: WorktreeCreateInput, WorktreeCreateOutput, WorktreeCreateFields;
    input { name: String, }
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
    input { worktree_path: String, };

    /// After the working directory changed.
    CwdChanged: CwdChangedInput, CwdChangedOutput, CwdChangedFields;
    input { old_cwd: String, new_cwd: String, }
    output {
        /// Absolute paths of files to watch: their changes run [`FileChanged`] hooks.
        watch_paths: Vec<String>,
    };

    /// After a watched file changed.
    FileChanged: FileChangedInput, FileChangedOutput, FileChangedFields;
    input {
        file_path: String,
        /// `change`, `add`, `unlink` or another word.
        event: String,
    }
    output {
        /// Absolute paths of the files to watch from now on.
        watch_paths: Vec<String>,
    };

    /// After a directory was added to the CLI's working directories.
    DirectoryAdded: DirectoryAddedInput, DirectoryAddedOutput;
    input {
        /// An absolute path.
        directory: String,
        /// `slash_command` (of the user), `register_repo_root` (by the application), or another word.
        source: String,
    }
}
