//! Files and folders.

use super::Requests;
use std::path::Path;

use super::RequestBody;
use crate::error::Result;
use crate::requests::{FileContents, FileEncoding, ReadFile, Reply, RewindResult};
use crate::session::Session;

impl Session {
    /// Restores files to their contents before a prompt, named by its [uuid](crate::Turn::prompt_uuid). Needs
    /// [`Options::enable_file_checkpointing`](crate::Options::enable_file_checkpointing).
    ///
    /// ```
    /// async fn undo(session: &greenroom::Session, prompt: &str) -> greenroom::Result<()> {
    ///     let preview = session.rewind_files_dry_run(prompt).await?;
    ///     println!("{:?}: +{:?} -{:?}", preview.files_changed, preview.insertions, preview.deletions);
    ///     let done = session.rewind_files(prompt).await?;
    ///     assert!(done.can_rewind, "{:?}", done.error);
    ///     Ok(())
    /// }
    /// # let _ = undo;
    /// ```
    ///
    /// # Errors
    /// Besides those of [`control`](Requests::control): `Refused` for a prompt without a checkpoint.
    pub async fn rewind_files(&self, prompt_uuid: &str) -> Result<Reply<RewindResult>> {
        self.request(RequestBody::new("rewind_files").with("user_message_id", prompt_uuid)).await
    }

    /// Reports what [`rewind_files`](Session::rewind_files) would do, without changing anything. Fails as
    /// `rewind_files` does.
    pub async fn rewind_files_dry_run(&self, prompt_uuid: &str) -> Result<Reply<RewindResult>> {
        let body = RequestBody::new("rewind_files").with("user_message_id", prompt_uuid);
        self.request(body.with("dry_run", true)).await
    }
}

impl Requests<'_> {
    /// Tells the CLI that the model has read a file at this `mtime` (milliseconds since 1970), so that the model may
    /// edit the file although the read is no longer in the context. Has no effect if the file has changed since. Lost
    /// when the CLI restarts.
    pub async fn seed_read_state(self, path: impl AsRef<Path>, mtime: u64) -> Result<()> {
        let body = RequestBody::new("seed_read_state").path("path", path.as_ref());
        self.session.acknowledged(body.with("mtime", mtime)).await
    }

    /// Reads a file through the CLI, under the same rules as its `Read` tool.
    ///
    /// # Errors
    /// Besides those of [`control`](Requests::control): `Refused` for a file that is missing or may not be read;
    /// the CLI does not say which.
    pub async fn read_file(self, path: impl AsRef<Path>, options: ReadFile) -> Result<Reply<FileContents>> {
        let ReadFile { max_bytes, encoding } = options;
        let body = RequestBody::new("read_file").path("path", path.as_ref()).maybe("max_bytes", max_bytes);
        self.session.request(body.maybe("encoding", encoding.as_ref().map(FileEncoding::as_str))).await
    }
}
