//! Settings, turns, background tasks and files.

use crate::wire::objects::objects;
use crate::wire::words::words;

objects! {
    /// Answer to [`Session::set_model`](crate::Session::set_model).
    answer ModelSet {
        /// The model's id, if the CLI reports it, as CLI 2.1.328 does.
        model: Option<String>,
    }

    /// Answer to [`Session::set_permission_mode`](crate::Session::set_permission_mode).
    answer PermissionModeSet {
        /// The mode as the CLI spells it, if the CLI reports it, as CLI 2.1.328 does.
        mode: Option<String>,
    }

    /// Answer to
    /// [`Requests::set_mcp_permission_mode_override`](crate::session::Requests::set_mcp_permission_mode_override).
    answer PermissionOverrideSet {
        /// For example, the server is unknown.
        warning: Option<String>,
    }

    /// Answer to an interrupt. Names prompts by their [uuid](crate::Turn::prompt_uuid).
    answer InterruptReceipt {
        /// Prompts that still wait and will run, in the CLI and in this session. A CLI without the capability
        /// `interrupt_receipt_v1` names none of its own.
        still_queued: Vec<String>,
        /// Prompts that waited and will not run.
        cancelled: Vec<String>,
    }

    /// Answer to [`Session::cancel_async_message`](crate::Session::cancel_async_message).
    answer CancelledMessage {
        /// False if the prompt has started or is unknown.
        cancelled: bool,
    }

    /// Answer to [`Requests::background_tasks`](crate::session::Requests::background_tasks).
    answer Backgrounded {
        /// `None` means yes. CLI 2.1.328 answers `false` for an unknown call, and nothing if all tasks were meant.
        backgrounded: Option<bool>,
    }

    /// Answer to [`Session::rewind_files`](crate::Session::rewind_files) and its dry run.
    answer RewindResult {
        can_rewind: bool = "canRewind",
        error: Option<String>,
        /// CLI 2.1.328 lists the files for a dry run only.
        files_changed: Vec<String> = "filesChanged",
        /// Added lines.
        insertions: Option<u64>,
        /// Removed lines.
        deletions: Option<u64>,
        /// Number of files that were skipped as links or special files; not for a dry run.
        skipped_links: Option<u64> = "skippedLinks",
    }

    /// Contents of a file.
    answer FileContents {
        /// Text or base64: see `encoding`.
        contents: String,
        abs_path: String = "absPath",
        /// The end of the file is missing.
        truncated: Option<bool>,
        /// `base64`, or `None` for text. Check this field: a CLI that does not support base64 answers with text.
        encoding: Option<String>,
        /// Invalid UTF-8 was replaced. `None` for base64.
        lossy: Option<bool>,
    }
}

words! {
    /// A settings file that [`Requests::update_settings`](crate::session::Requests::update_settings) can write.
    pub enum SettingsFile or "" {
        /// `.claude/settings.local.json` in the project. CLI 2.1.328 accepts `outputStyle` only.
        Local = "localSettings",
        /// `~/.claude/settings.json`. CLI 2.1.328 accepts `effortLevel` only, and saves it for the session's model.
        User = "userSettings",
    }

    /// A permission mode for the tools of one MCP server.
    pub enum McpPermissionMode or "" {
        /// The CLI asks unless a rule decides.
        Default = "default",
        /// A classifier decides. CLI 2.1.328 refuses this mode for models without auto mode.
        Auto = "auto",
    }

    /// Encoding of a file's contents.
    pub enum FileEncoding or "" {
        /// Text; invalid UTF-8 is replaced.
        Utf8 = "utf-8",
        /// The exact bytes, in base64.
        Base64 = "base64",
    }
}

impl Backgrounded {
    /// Whether the task was put into the background.
    pub fn is_backgrounded(&self) -> bool {
        self.backgrounded.unwrap_or(true)
    }
}

/// Options of [`Requests::read_file`](crate::session::Requests::read_file).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadFile {
    /// Reads at most this many bytes.
    pub max_bytes: Option<u64>,
    /// Encoding of the contents; `None` for text.
    pub encoding: Option<FileEncoding>,
}
