//! Files and folders: rewinding, reading, suggestions, the working directory.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::wire::objects::objects;
use crate::wire::words::words;

objects! {
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

    /// Files that match a query.
    answer FileSuggestions {
        /// Best match first.
        suggestions: Vec<FileSuggestion>,
        /// The paths are relative to this folder.
        cwd: Option<String>,
    }

    /// A file that matches a query.
    answer FileSuggestion {
        /// The path of a folder ends with a slash.
        path: String,
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
        requested_path: Option<String>,
    }

    /// Answer to [`Requests::set_cwd`](crate::session::Requests::set_cwd).
    answer SetCwdResult {
        status: SetCwdStatus,
        /// The new working directory, if it was changed.
        cwd: Option<String>,
        /// The new working directory differs from the old.
        changed: Option<bool>,
        /// The transcript was moved to the folder of the new project.
        transcript_relocated: Option<bool>,
        /// The folder that must be trusted first, for [`SetCwd::trust`].
        directory: Option<String>,
        /// The folder that the trust will apply to.
        trust_root: Option<String>,
        /// Why the change was rejected: `not_found`, `not_a_directory`, `busy`, `blocked_by_rule` and others.
        reason: Option<String>,
        /// The reason, for people.
        message: Option<String>,
    }

    /// Answer to [`Requests::register_repo_root`](crate::session::Requests::register_repo_root).
    answer RepoRoot {
        /// The absolute path.
        directory: Option<String>,
    }
}

words! {
    /// Outcome of a change of the working directory.
    pub enum SetCwdStatus or "" {
        /// The working directory is the requested folder.
        Ok = "ok",
        /// The folder is not trusted yet; nothing was changed.
        NeedsTrust = "needs_trust",
        /// Nothing was changed.
        Rejected = "rejected",
    }

    /// Encoding of a file's contents.
    pub enum FileEncoding or "" {
        /// Text; invalid UTF-8 is replaced.
        Utf8 = "utf-8",
        /// The exact bytes, in base64.
        Base64 = "base64",
    }
}

/// A file to read, for [`Requests::read_file`](crate::session::Requests::read_file).
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each field has a method of its name")]
#[non_exhaustive]
pub struct ReadFile {
    pub path: PathBuf,
    pub max_bytes: Option<u64>,
    pub encoding: Option<FileEncoding>,
}

impl ReadFile {
    /// Reads the file as text.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), max_bytes: None, encoding: None }
    }

    /// Reads at most this many bytes.
    pub fn max_bytes(mut self, max_bytes: u64) -> Self {
        self.max_bytes = Some(max_bytes);
        self
    }

    /// Sets the encoding of the contents.
    pub fn encoding(mut self, encoding: FileEncoding) -> Self {
        self.encoding = Some(encoding);
        self
    }
}

/// A change of the working directory, for [`Requests::set_cwd`](crate::session::Requests::set_cwd).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SetCwd {
    /// The new working directory.
    pub path: PathBuf,
    /// A person trusts the folder.
    pub trust_accepted: Option<bool>,
    /// The folder that the person trusts.
    pub trusted_directory: Option<PathBuf>,
}

impl SetCwd {
    /// Changes to this folder if it is already trusted.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), trust_accepted: None, trusted_directory: None }
    }

    /// Trusts a folder: the folder that the CLI named in [`SetCwdResult::directory`]. The CLI remembers the trust.
    pub fn trust(mut self, directory: impl Into<PathBuf>) -> Self {
        self.trust_accepted = Some(true);
        self.trusted_directory = Some(directory.into());
        self
    }
}

/// A folder to add to the session, for [`Requests::register_repo_root`](crate::session::Requests::register_repo_root).
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each field has a method of its name")]
#[non_exhaustive]
pub struct RegisterRepoRoot {
    pub directory: PathBuf,
    pub reload_claude_md: Option<bool>,
    pub reload_plugins: Option<bool>,
    pub reload_skills: Option<bool>,
}

impl RegisterRepoRoot {
    /// Adds the folder without reloading anything.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            reload_claude_md: None,
            reload_plugins: None,
            reload_skills: None,
        }
    }

    /// Whether to read the folder's `CLAUDE.md`.
    pub fn reload_claude_md(mut self, reload: bool) -> Self {
        self.reload_claude_md = Some(reload);
        self
    }

    /// Whether to reload plugins.
    pub fn reload_plugins(mut self, reload: bool) -> Self {
        self.reload_plugins = Some(reload);
        self
    }

    /// Whether to reload skills.
    pub fn reload_skills(mut self, reload: bool) -> Self {
        self.reload_skills = Some(reload);
        self
    }
}

super::convert_from!(ReadFile: &Path, PathBuf, &str);
super::convert_from!(SetCwd: &Path, PathBuf, &str);
super::convert_from!(RegisterRepoRoot: &Path, PathBuf, &str);

/// Checks the CLI's answer to a change of the working directory.
pub(crate) fn cwd_was_set(answer: &Value) -> Result<(), String> {
    // An answer without a status means success.
    match answer["status"].as_str() {
        None | Some("ok") => Ok(()),
        Some(status) => Err(answer["message"].as_str().unwrap_or(status).to_owned()),
    }
}
