//! Information about the CLI and the session, and files.

use super::Requests;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use super::RequestBody;
use crate::error::{Error, Result};
use crate::requests::{
    ContextDetail, ContextUsage, FileContents, FileEncoding, ReadFile, ReloadPlugins, ReloadedOutputStyles,
    ReloadedPlugins, ReloadedSkills, Reply, RewindResult, ServerInfo, UsageReport,
};
use crate::session::Session;

impl Session {
    /// The CLI's description of itself from its start: commands, agents, models, account, version and more. Of the
    /// newest incarnation; sends no request.
    pub fn server_info(&self) -> Arc<Reply<ServerInfo>> {
        self.shared().cli.info()
    }

    /// Whether the current CLI has this capability, such as `interrupt_receipt_v1`. `None` before the first turn, with
    /// which the CLI reports all of them. CLIs before 2.1.205 report none.
    pub fn has_capability(&self, name: &str) -> Option<bool> {
        self.shared().cli.has_capability(name)
    }

    /// Contents of the context window (`get_context_usage`). For [`Full`](ContextDetail::Full) the CLI asks the API to
    /// count tokens, limited by [`Timeouts::long_request`](crate::options::Timeouts::long_request); if the API cannot
    /// count, CLI 2.1.328 estimates as for [`Summary`](ContextDetail::Summary).
    pub async fn context_usage(&self, detail: ContextDetail) -> Result<Reply<ContextUsage>> {
        let body = RequestBody::new("get_context_usage").with("detail", detail.as_str());
        if detail == ContextDetail::Summary {
            self.request(body).await
        } else {
            self.long_request(body).await
        }
    }

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
    /// Cost of the session, and use of the plan's limits (`get_usage`). With `behaviors` the CLI also reads the
    /// transcripts of the last week to find the causes. The CLI calls this experimental.
    pub async fn usage(self, behaviors: bool) -> Result<Reply<UsageReport>> {
        self.session.request(RequestBody::new("get_usage").flag("skip_behaviors", !behaviors)).await
    }

    /// Reloads plugins, and lists the result.
    ///
    /// # Errors
    /// Besides those of [`control`](Requests::control): [`InvalidOption`](crate::ErrorKind::InvalidOption) for a plugin
    /// whose path is not absolute; [`Unsupported`](crate::ErrorKind::Unsupported), with nothing sent, for
    /// [`refuse_if_busy`](ReloadPlugins::refuse_if_busy) if the CLI is known to lack
    /// `reload_plugins_refuse_if_busy_v1`.
    pub async fn reload_plugins(self, reload: ReloadPlugins) -> Result<Reply<ReloadedPlugins>> {
        let ReloadPlugins { hold_on_cache_impact, refuse_if_busy, add_plugins } = reload;
        if refuse_if_busy {
            self.session
                .require("reload_plugins_refuse_if_busy_v1", "`refuse_if_busy` of `reload_plugins`")?;
        }
        let mut added = Vec::new();
        for (path, without_mcp) in &add_plugins {
            let Some(text) = path.to_str().filter(|_| path.is_absolute()) else {
                let text =
                    format!("the path of the plugin {} is not absolute, or not Unicode", path.display());
                return Err(Error::invalid_option(text));
            };
            let mut plugin = json!({ "type": "local", "path": text });
            if *without_mcp {
                plugin["skipMcpDiscovery"] = true.into();
            }
            added.push(plugin);
        }
        let body = RequestBody::new("reload_plugins").flag("hold_on_cache_impact", hold_on_cache_impact);
        let body = body.flag("refuse_if_busy", refuse_if_busy);
        self.session
            .request(body.maybe("add_plugins", (!added.is_empty()).then_some(Value::Array(added))))
            .await
    }

    /// Reloads skills, and lists them.
    pub async fn reload_skills(self) -> Result<Reply<ReloadedSkills>> {
        self.session.request(RequestBody::new("reload_skills")).await
    }

    /// Reloads output styles, and lists them.
    pub async fn reload_output_styles(self) -> Result<Reply<ReloadedOutputStyles>> {
        self.session.request(RequestBody::new("reload_output_styles")).await
    }

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
