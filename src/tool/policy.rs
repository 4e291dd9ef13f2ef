//! Whether the CLI asks before it calls a tool, whatever its other rules say.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::ToolServer;
use crate::error::{Error, Result};

/// What the CLI does before it calls a tool of an in-process server, whatever its rules and its permission mode say.
///
/// ```
/// use greenroom::{NoArgs, ToolPolicy, ToolServer};
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
    /// It calls the tool without asking. For an in-process server the CLI takes no note of this: whether it asks is left to
    /// its rules, and [`allow_server_tools`](crate::SessionBuilder::allow_server_tools) is what lets tools run.
    AlwaysAllow,
    /// It asks, even where a rule allows the tool, or the permission mode is one that asks for nothing. Without a
    /// [`can_use_tool`](crate::SessionBuilder::can_use_tool) the call is denied.
    AlwaysAsk,
    /// It never calls the tool, and does not show it to the model.
    AlwaysDeny,
}

/// The policies of a server's tools, in the order in which they were given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Policies(Vec<(String, ToolPolicy)>);

impl Policies {
    fn set(&mut self, tool: String, policy: ToolPolicy) {
        match self.0.iter_mut().find(|(name, _)| *name == tool) {
            Some((_, earlier)) => *earlier = policy,
            None => self.0.push((tool, policy)),
        }
    }

    /// As the CLI reads them in the settings of a server; `None` without any.
    pub(crate) fn to_wire(&self) -> Option<Value> {
        let policies =
            self.0.iter().map(|(name, policy)| json!({ "name": name, "permission_policy": policy }));
        (!self.0.is_empty()).then(|| policies.collect())
    }

    /// An error for a policy of a tool that is not there: it would protect nothing.
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

impl<S> ToolServer<S> {
    /// Whether the model sees all tools of this server from the start, those that are added later too, unless one
    /// [says otherwise](crate::ToolDef::always_load) for itself. Otherwise the CLI may put them behind its tool search. It
    /// is the `_meta` of each tool (`anthropic/alwaysLoad`); a mounted server lists its tools itself.
    pub fn always_load(mut self, always: bool) -> Self {
        self.spec.registry.get_mut().tools.meta.insert("anthropic/alwaysLoad".into(), always.into());
        self
    }

    /// What the CLI does before it calls this tool, by the tool's own name. The last one that is given counts. The policy
    /// is the CLI's to keep: it is told when it starts, and with every change of the session's servers.
    ///
    /// A session refuses a policy for a tool that the server does not have when it starts.
    pub fn tool_policy(mut self, tool: impl Into<String>, policy: ToolPolicy) -> Self {
        self.spec.policies.set(tool.into(), policy);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::{NoArgs, ToolDef};

    #[tokio::test]
    async fn all_tools_are_loaded_but_those_that_say_otherwise() {
        let later = ToolDef::new("later", "Later", async |_: NoArgs| "").always_load(false);
        let server: ToolServer = ToolServer::new("disk", "1")
            .always_load(true)
            .tool("now", "Now", async |_: NoArgs| "")
            .add(later);
        let list = server.handle(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" })).await.unwrap();
        let loaded = |index: usize| &list["result"]["tools"][index]["_meta"]["anthropic/alwaysLoad"];
        assert_eq!((loaded(0), loaded(1)), (&json!(true), &json!(false)), "{list}");
        let manifest = server.spec().manifest().unwrap();
        assert_eq!(manifest["toolsListResult"], list["result"]);
    }

    #[test]
    fn the_last_policy_counts_and_one_without_its_tool_is_refused() {
        let server: ToolServer = ToolServer::new("disk", "1")
            .tool("wipe", "Wipe", async |_: NoArgs| "")
            .tool_policy("wipe", ToolPolicy::AlwaysAllow)
            .tool_policy("wipe", ToolPolicy::AlwaysDeny);
        let settings = server.spec().settings();
        assert_eq!(settings["tools"], json!([{ "name": "wipe", "permission_policy": "always_deny" }]));
        server.spec().validate().unwrap();
        let error = server.tool_policy("erase", ToolPolicy::AlwaysAsk).spec().validate().unwrap_err();
        assert!(error.is_caller() && error.to_string().contains("'erase'"), "{error}");
    }
}
