//! Files and folders: rewinding, reading.

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
    /// Encoding of a file's contents.
    pub enum FileEncoding or "" {
        /// Text; invalid UTF-8 is replaced.
        Utf8 = "utf-8",
        /// The exact bytes, in base64.
        Base64 = "base64",
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
