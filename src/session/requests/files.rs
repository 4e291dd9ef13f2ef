//! Files and folders.

use std::path::Path;

use super::Body;
use crate::error::Result;
use crate::requests::{FileContents, FileEncoding, FileSuggestions, ReadFile, Reply, RewindResult};
use crate::session::Session;

impl Session {
    /// Puts files back to what they were before this prompt, by its [uuid](crate::Turn::prompt_uuid). It needs
    /// [`Options::enable_file_checkpointing`](crate::Options::enable_file_checkpointing).
    ///
    /// # Errors
    /// Those of [`control`](Session::control); `Refused` without checkpoints, and for a prompt that has none.
    pub async fn rewind_files(&self, prompt_uuid: &str) -> Result<Reply<RewindResult>> {
        self.request(Body::new("rewind_files").with("user_message_id", prompt_uuid)).await
    }

    /// Says what [`rewind_files`](Session::rewind_files) would do, and does nothing.
    ///
    /// # Errors
    /// Those of [`rewind_files`](Session::rewind_files).
    pub async fn rewind_files_dry_run(&self, prompt_uuid: &str) -> Result<Reply<RewindResult>> {
        let body = Body::new("rewind_files").with("user_message_id", prompt_uuid);
        self.request(body.with("dry_run", true)).await
    }

    /// Tells the CLI that the model has read a file as it was then (`mtime`, milliseconds since 1970), so that it may
    /// edit it: for a read that is no longer in the context. A file that has changed since counts as not read. Lost when
    /// the CLI restarts.
    ///
    /// # Errors
    /// Those of [`control`](Session::control).
    pub async fn seed_read_state(&self, path: impl AsRef<Path>, mtime: u64) -> Result<()> {
        let body = Body::new("seed_read_state").path("path", path.as_ref());
        self.acknowledged(body.with("mtime", mtime)).await
    }

    /// Files of the project whose path resembles the query; for an empty one, what is at its top. The CLI makes its list
    /// in the background: the first answers may be empty (CLI 2.1.328).
    ///
    /// # Errors
    /// Those of [`control`](Session::control).
    pub async fn file_suggestions(&self, query: &str) -> Result<Reply<FileSuggestions>> {
        self.request(Body::new("file_suggestions").with("query", query)).await
    }

    /// Reads a file as the CLI sees it, under the rules that its `Read` tool is under.
    ///
    /// # Errors
    /// Those of [`control`](Session::control); `Refused` for a file that is not there, or may not be read: the CLI does
    /// not say which.
    pub async fn read_file(&self, file: impl Into<ReadFile>) -> Result<Reply<FileContents>> {
        let ReadFile { path, max_bytes, encoding } = file.into();
        let body = Body::new("read_file").path("path", &path).maybe("max_bytes", max_bytes);
        self.request(body.maybe("encoding", encoding.as_ref().map(FileEncoding::as_str))).await
    }
}
