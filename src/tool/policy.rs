//! Permission policies of tools.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::{Error, Result};

/// Permission policy of a tool of an in-process server. The CLI applies it regardless of its rules and permission mode.
///
/// ```
/// use greenroom::tool::ToolPolicy;
/// use greenroom::{NoArgs, ToolServer};
///
/// let disk = ToolServer::new("disk", "1.0.0")
///     .tool("wipe", "Wipe the disk", async |_: NoArgs| "gone")
///     .tool_policy("wipe", ToolPolicy::AlwaysAsk);
/// # let _: ToolServer = disk;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolPolicy {
    /// Calls the tool without asking. The CLI ignores this policy for an in-process server: use
    /// [`allow_server_tools`](crate::SessionBuilder::allow_server_tools) instead.
    AlwaysAllow,
    /// Asks, even if a rule or the permission mode allows the tool. Without a
    /// [`can_use_tool`](crate::SessionBuilder::can_use_tool) handler the call is denied.
    AlwaysAsk,
    /// Never calls the tool, and hides it from the model.
    AlwaysDeny,
}

/// The policies of a server's tools, in the order in which they were set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Policies(Vec<(String, ToolPolicy)>);

impl Policies {
    pub(crate) fn set(&mut self, tool: String, policy: ToolPolicy) {
        match self.0.iter_mut().find(|(name, _)| *name == tool) {
            Some((_, earlier)) => *earlier = policy,
            None => self.0.push((tool, policy)),
        }
    }

    /// The policies in the settings of a server; `None` without any.
    pub(crate) fn to_wire(&self) -> Option<Value> {
        let policies =
            self.0.iter().map(|(name, policy)| json!({ "name": name, "permission_policy": policy }));
        (!self.0.is_empty()).then(|| policies.collect())
    }

    /// Refuses a policy for a tool that the server does not have: it would protect nothing.
    pub(crate) fn validate<'a>(
        &self,
        server: &str,
        tools: impl Iterator<Item = &'a str> + Clone,
    ) -> Result<()> {
        match self.0.iter().find(|(name, _)| !tools.clone().any(|tool| tool == name)) {
            None => Ok(()),
            Some((name, _)) => {
                let text =
                    format!("server '{server}' has a policy for the tool '{name}', which it does not have");
                Err(Error::invalid_option(text)
                    .with_help("`tool_policy` takes the name that the tool was given"))
            }
        }
    }
}
