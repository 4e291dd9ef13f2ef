//! Files and folders: rewinding, reading, suggestions, the working directory.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::read::{answers, words};

answers! {
    /// What rewinding files did, or would do.
    ///
    /// ```
    /// async fn undo(session: &greenroom::Session, prompt: &str) -> greenroom::Result<()> {
    ///     let preview = session.rewind_files_dry_run(prompt).await?;
    ///     println!("{:?}: +{} -{}", preview.files_changed, preview.insertions.unwrap_or(0), preview.deletions.unwrap_or(0));
    ///     let done = session.rewind_files(prompt).await?;
    ///     assert!(done.can_rewind, "{:?}", done.error);
    ///     Ok(())
    /// }
    /// # let _ = undo;
    /// ```
    pub struct RewindResult {
        /// Whether it can be done, or was.
        pub can_rewind: bool = "canRewind",
        /// Why not.
        pub error: Option<String> = "error",
        /// The files that change. CLI 2.1.328 lists them for a dry run only.
        pub files_changed: Vec<String> = "filesChanged",
        /// The lines that come.
        pub insertions: Option<u64> = "insertions",
        /// The lines that go.
        pub deletions: Option<u64> = "deletions",
        /// How many files were left alone because something is a link or no regular file; not for a dry run.
        pub skipped_links: Option<u64> = "skippedLinks",
    }

    /// Files that fit a query.
    ///
    /// ```
    /// let found: greenroom::requests::FileSuggestions =
    ///     serde_json::from_str(r#"{"suggestions": [{"path": "src/lib.rs"}], "cwd": "/srv"}"#)?;
    /// assert_eq!(found.suggestions[0].path, "src/lib.rs");
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct FileSuggestions {
        /// The files, the best first.
        pub suggestions: Vec<FileSuggestion> = "suggestions",
        /// The folder that they are relative to.
        pub cwd: Option<String> = "cwd",
    }

    /// A file that fits a query.
    ///
    /// ```
    /// let file: greenroom::requests::FileSuggestion = serde_json::from_str(r#"{"path": "src/"}"#)?;
    /// assert_eq!(file.path, "src/");
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct FileSuggestion {
        /// Its path; that of a folder ends with a slash.
        pub path: String = "path",
    }

    /// A file's contents.
    ///
    /// ```
    /// let file: greenroom::requests::FileContents =
    ///     serde_json::from_str(r#"{"contents": "hello\n", "absPath": "/srv/a.txt", "lossy": false}"#)?;
    /// assert_eq!((file.contents.as_str(), file.lossy), ("hello\n", Some(false)));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct FileContents {
        /// The contents, as text or in base64.
        pub contents: String = "contents",
        /// The file's absolute path.
        pub abs_path: String = "absPath",
        /// Whether something is missing at the end.
        pub truncated: Option<bool> = "truncated",
        /// `base64`, or nothing for text: look at it, a CLI that does not know base64 answers with text.
        pub encoding: Option<String> = "encoding",
        /// Whether bytes that are no UTF-8 were replaced; nothing for base64.
        pub lossy: Option<bool> = "lossy",
        /// The path as it was asked for.
        pub requested_path: Option<String> = "requested_path",
    }

    /// What became of a change of the working directory.
    ///
    /// ```
    /// use greenroom::requests::{SetCwdResult, SetCwdStatus};
    ///
    /// let result: SetCwdResult =
    ///     serde_json::from_str(r#"{"status": "needs_trust", "directory": "/srv/new", "trust_root": "/srv"}"#)?;
    /// assert_eq!(result.status, SetCwdStatus::NeedsTrust);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct SetCwdResult {
        /// What became of it.
        pub status: SetCwdStatus = "status",
        /// The working directory, if it was changed.
        pub cwd: Option<String> = "cwd",
        /// Whether it is another than before.
        pub changed: Option<bool> = "changed",
        /// Whether the transcript went along, to the folder of the new project.
        pub transcript_relocated: Option<bool> = "transcript_relocated",
        /// The folder that has to be trusted first: what [`SetCwd::trust`] takes.
        pub directory: Option<String> = "directory",
        /// The folder that the trust will be for.
        pub trust_root: Option<String> = "trust_root",
        /// Why not: `not_found`, `not_a_directory`, `busy`, `blocked_by_rule` and others.
        pub reason: Option<String> = "reason",
        /// The same, for people.
        pub message: Option<String> = "message",
    }

    /// A folder that was added to those that the session works in.
    ///
    /// ```
    /// let root: greenroom::requests::RepoRoot = serde_json::from_str(r#"{"directory": "/srv/part"}"#)?;
    /// assert_eq!(root.directory.as_deref(), Some("/srv/part"));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct RepoRoot {
        /// Its absolute path.
        pub directory: Option<String> = "directory",
    }
}

words! {
    /// What became of a change of the working directory.
    ///
    /// ```
    /// assert_eq!(greenroom::requests::SetCwdStatus::NeedsTrust.as_str(), "needs_trust");
    /// ```
    pub enum SetCwdStatus {
        /// It was changed, or was that already.
        Ok = "ok",
        /// Nobody has said yet that the folder is trusted; nothing was changed.
        NeedsTrust = "needs_trust",
        /// It was not changed.
        Rejected = "rejected",
    }

    /// How a file is handed over.
    ///
    /// ```
    /// assert_eq!(greenroom::requests::FileEncoding::Base64.as_str(), "base64");
    /// ```
    pub enum FileEncoding {
        /// As text; what is no UTF-8 is replaced.
        Utf8 = "utf-8",
        /// Exactly.
        Base64 = "base64",
    }
}

/// What is read of which file.
///
/// ```
/// use greenroom::requests::{FileEncoding, ReadFile};
///
/// let read = ReadFile::new("logo.png").encoding(FileEncoding::Base64).max_bytes(1_000_000);
/// # let _ = read;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadFile {
    /// The file, relative to the CLI's working directory.
    pub path: PathBuf,
    /// How much of it at most.
    pub max_bytes: Option<u64>,
    /// How it is handed over.
    pub encoding: Option<FileEncoding>,
}

impl ReadFile {
    /// This file, as text.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), max_bytes: None, encoding: None }
    }

    /// Its beginning only.
    pub fn max_bytes(mut self, max_bytes: u64) -> Self {
        self.max_bytes = Some(max_bytes);
        self
    }

    /// How it is handed over.
    pub fn encoding(mut self, encoding: FileEncoding) -> Self {
        self.encoding = Some(encoding);
        self
    }
}

/// A change of the working directory.
///
/// ```
/// use greenroom::requests::SetCwd;
///
/// let change = SetCwd::new("/srv/new").trust("/srv/new");
/// # let _ = change;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SetCwd {
    /// The folder.
    pub path: PathBuf,
    /// Whether somebody has said that it is trusted.
    pub trust_accepted: Option<bool>,
    /// The folder that this was said of.
    pub trusted_directory: Option<PathBuf>,
}

impl SetCwd {
    /// Into this folder, if it is trusted already.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), trust_accepted: None, trusted_directory: None }
    }

    /// Says that this folder is trusted: the one that the CLI named ([`SetCwdResult::directory`]). The CLI remembers it.
    pub fn trust(mut self, directory: impl Into<PathBuf>) -> Self {
        self.trust_accepted = Some(true);
        self.trusted_directory = Some(directory.into());
        self
    }
}

/// A folder to add to those that the session works in, and what to read there.
///
/// ```
/// use greenroom::requests::RegisterRepoRoot;
///
/// let root = RegisterRepoRoot::new("/srv/part").reload_claude_md(true);
/// # let _ = root;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegisterRepoRoot {
    /// The folder.
    pub directory: PathBuf,
    /// Whether its `CLAUDE.md` is read.
    pub reload_claude_md: Option<bool>,
    /// Whether plugins are read again.
    pub reload_plugins: Option<bool>,
    /// Whether skills are read again.
    pub reload_skills: Option<bool>,
}

impl RegisterRepoRoot {
    /// This folder, of which nothing is read.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            reload_claude_md: None,
            reload_plugins: None,
            reload_skills: None,
        }
    }

    /// Whether its `CLAUDE.md` is read.
    pub fn reload_claude_md(mut self, reload: bool) -> Self {
        self.reload_claude_md = Some(reload);
        self
    }

    /// Whether plugins are read again.
    pub fn reload_plugins(mut self, reload: bool) -> Self {
        self.reload_plugins = Some(reload);
        self
    }

    /// Whether skills are read again.
    pub fn reload_skills(mut self, reload: bool) -> Self {
        self.reload_skills = Some(reload);
        self
    }
}

macro_rules! from_path {
    ($($name:ident),*) => {$(
        impl From<&Path> for $name {
            fn from(path: &Path) -> Self {
                Self::new(path)
            }
        }

        impl From<PathBuf> for $name {
            fn from(path: PathBuf) -> Self {
                Self::new(path)
            }
        }

        impl From<&str> for $name {
            fn from(path: &str) -> Self {
                Self::new(path)
            }
        }
    )*};
}
from_path!(ReadFile, SetCwd, RegisterRepoRoot);

/// Whether a change of the working directory was made, by the CLI's answer.
pub(crate) fn cwd_was_set(answer: &Value) -> Result<(), String> {
    // A CLI that says nothing else has done what it was told.
    match answer["status"].as_str() {
        None | Some("ok") => Ok(()),
        Some(status) => Err(answer["message"].as_str().unwrap_or(status).to_owned()),
    }
}
