//! What the CLI says of itself and of the session.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::Body;
use crate::error::{Error, Result};
use crate::requests::{
    BinaryVersion, ContextDetail, ContextUsage, HooksListing, ModelList, PermissionRules, ReloadPlugins,
    ReloadedOutputStyles, ReloadedPlugins, ReloadedSkills, Reply, ServerInfo, SessionCost, UsageReport,
};
use crate::session::Session;

impl Session {
    /// What the CLI said of itself when it started: commands, agents, models, account, version and so on. That of the
    /// newest incarnation; asks nothing.
    pub fn server_info(&self) -> Arc<Reply<ServerInfo>> {
        self.shared().server_info.look().clone()
    }

    /// What the CLI of the moment has said that it can do, sorted: in its answer to `initialize`, and, from its first turn
    /// on, in `system/init`. Words such as `interrupt_receipt_v1`; an open set. CLIs older than 2.1.205 say nothing.
    pub fn capabilities(&self) -> Vec<String> {
        let known = self.shared().capabilities.look();
        let all: BTreeSet<&String> =
            known.of_initialize.iter().chain(known.of_init.iter().flatten()).collect();
        all.into_iter().cloned().collect()
    }

    /// Whether the CLI of the moment has this capability. `None` before it has said all of them, which it does with its
    /// first turn.
    pub fn has_capability(&self, name: &str) -> Option<bool> {
        self.shared().capabilities.look().has(name)
    }

    /// What fills the context window (`get_context_usage`). In [full](ContextDetail::Full) the CLI asks the API to count,
    /// which may take the time of [`Timeouts::long_request`](crate::Timeouts::long_request); where the API does not count
    /// (an address of one's own), CLI 2.1.328 was seen to estimate as for a [summary](ContextDetail::Summary).
    ///
    /// # Errors
    /// Those of [`control`](Session::control).
    pub async fn context_usage(&self, detail: ContextDetail) -> Result<Reply<ContextUsage>> {
        let body = Body::new("get_context_usage").with("detail", detail.as_str());
        if detail == ContextDetail::Summary {
            self.request(body).await
        } else {
            self.long_request(body).await
        }
    }

    /// What the session cost, and how much of the plan's limits is used (`get_usage`). With `behaviors` the CLI also reads
    /// the transcripts of the last week, to say what uses the limits up. The CLI calls it experimental.
    ///
    /// # Errors
    /// Those of [`control`](Session::control).
    pub async fn usage(&self, behaviors: bool) -> Result<Reply<UsageReport>> {
        self.request(Body::new("get_usage").flag("skip_behaviors", !behaviors)).await
    }

    /// What the session cost, as a text for people (`get_session_cost`).
    ///
    /// # Errors
    /// Those of [`control`](Session::control).
    pub async fn session_cost(&self) -> Result<Reply<SessionCost>> {
        self.request(Body::new("get_session_cost")).await
    }

    /// The models that can be chosen now. Those of the start are in [`server_info`](Session::server_info).
    ///
    /// # Errors
    /// Those of [`control`](Session::control).
    pub async fn list_models(&self) -> Result<Reply<ModelList>> {
        self.request(Body::new("list_models")).await
    }

    /// The build of the CLI (`get_binary_version`).
    ///
    /// # Errors
    /// Those of [`control`](Session::control).
    pub async fn binary_version(&self) -> Result<Reply<BinaryVersion>> {
        self.request(Body::new("get_binary_version")).await
    }

    /// The hooks of settings files, plugins and the session (`get_hooks_listing`).
    ///
    /// # Errors
    /// Those of [`control`](Session::control).
    pub async fn hooks_listing(&self) -> Result<Reply<HooksListing>> {
        self.request(Body::new("get_hooks_listing")).await
    }

    /// The permission rules that are in force, and the folders that the session works in (`list_permission_rules`).
    ///
    /// # Errors
    /// Those of [`control`](Session::control).
    pub async fn permission_rules(&self) -> Result<Reply<PermissionRules>> {
        self.request(Body::new("list_permission_rules")).await
    }

    /// Reads plugins again, and says what there is then.
    ///
    /// # Errors
    /// Those of [`control`](Session::control); [`InvalidOption`](crate::ErrorKind::InvalidOption) for a plugin whose path
    /// is not absolute; [`Unsupported`](crate::ErrorKind::Unsupported), with nothing sent, if
    /// [`refuse_if_busy`](ReloadPlugins::refuse_if_busy) is asked of a CLI that is known to lack
    /// `reload_plugins_refuse_if_busy_v1`.
    pub async fn reload_plugins(&self, reload: ReloadPlugins) -> Result<Reply<ReloadedPlugins>> {
        let ReloadPlugins { hold_on_cache_impact, refuse_if_busy, add_plugins } = reload;
        if refuse_if_busy {
            self.require("reload_plugins_refuse_if_busy_v1", "`refuse_if_busy` of `reload_plugins`")?;
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
        let body = Body::new("reload_plugins").flag("hold_on_cache_impact", hold_on_cache_impact);
        let body = body.flag("refuse_if_busy", refuse_if_busy);
        self.request(body.maybe("add_plugins", (!added.is_empty()).then_some(Value::Array(added)))).await
    }

    /// Reads skills again, and says what there is then.
    ///
    /// # Errors
    /// Those of [`control`](Session::control).
    pub async fn reload_skills(&self) -> Result<Reply<ReloadedSkills>> {
        self.request(Body::new("reload_skills")).await
    }

    /// Reads output styles again, and says what there is then.
    ///
    /// # Errors
    /// Those of [`control`](Session::control).
    pub async fn reload_output_styles(&self) -> Result<Reply<ReloadedOutputStyles>> {
        self.request(Body::new("reload_output_styles")).await
    }
}
