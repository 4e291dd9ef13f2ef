//! Add and remove MCP servers while a session runs.

use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};

use super::Session;
use crate::actor::messages::session::{ChangeRequest, Internal, SessionMessage};
use crate::actor::router;
use crate::actor::servers::roster::{Addition, ServerChange};
use crate::error::{Error, Result};
use crate::options::{ExternalServer, Merged, merged};
use crate::report::McpSetServersResult;
use crate::tool::CompleteServer;
use crate::tool::spec::ServerSpec;

/// A set of MCP servers for [`Session::set_mcp_servers`].
///
/// ```
/// use greenroom::options::ExternalServer;
/// use greenroom::session::McpServerSet;
/// use greenroom::{NoArgs, ToolServer};
///
/// let clock = ToolServer::new("clock", "1.0.0").tool("now", "The time", async |_: NoArgs| "noon");
/// let set = McpServerSet::new()
///     .keep("calc")
///     .server(clock)
///     .external("search", ExternalServer::http("https://mcp.example.com/mcp"));
/// # let _ = set;
/// ```
#[derive(Clone, Default)]
pub struct McpServerSet {
    additions: Vec<Addition>,
    kept: Vec<String>,
}

impl McpServerSet {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a new in-process server. The session must not have a server of this name: [`keep`](McpServerSet::keep) that
    /// server, or remove it before.
    pub fn server(mut self, server: impl CompleteServer) -> Self {
        self.additions.push(Addition::Inside(Arc::new(server.complete().spec().clone())));
        self
    }

    /// Adds a server that the CLI connects to. Replaces an external server of this name that was added before.
    pub fn external(mut self, name: impl Into<String>, server: ExternalServer) -> Self {
        self.additions.push(Addition::Outside(name.into(), server));
        self
    }

    /// Keeps a server that the session has. An in-process server keeps its state and its calls in flight.
    pub fn keep(mut self, name: impl Into<String>) -> Self {
        self.kept.push(name.into());
        self
    }
}

impl fmt::Debug for McpServerSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let additions: Vec<_> = self.additions.iter().map(Addition::name).collect();
        f.debug_struct("McpServerSet").field("additions", &additions).field("kept", &self.kept).finish()
    }
}

/// Add and remove MCP servers while the session runs.
///
/// Changes happen one at a time, in order. A change goes on if its future is dropped. Calls in flight of other servers
/// are not disturbed, and the next CLI gets the changed set after a restart. A tool of a new in-process server can be
/// called in the same turn: CLI 2.1.328 was seen to list the tools before it asks the model again.
///
/// External servers that the CLI was started with cannot be changed.
impl Session {
    /// Adds an in-process MCP server, supervised like the servers given to the builder. To let its tools run without
    /// asking, call [`allow_server_tools`](Session::allow_server_tools).
    ///
    /// ```
    /// use greenroom::{NoArgs, Session, ToolServer};
    ///
    /// async fn late(session: &Session) -> greenroom::Result<()> {
    ///     let clock = ToolServer::new("clock", "1.0.0").tool("now", "The time", async |_: NoArgs| "noon");
    ///     session.allow_server_tools("clock").await?;
    ///     session.add_mcp_server(clock).await?;
    ///     println!("{:?}", session.prompt("What time is it?").await?.outcome().await?.text());
    ///     session.remove_mcp_server("clock").await
    /// }
    /// # let _ = late;
    /// ```
    ///
    /// # Errors
    /// Nothing has changed after an error:
    ///
    /// | kind | what happened |
    /// |---|---|
    /// | [`InvalidOption`](crate::ErrorKind::InvalidOption) | the name clashes with another server, or a tool definition is invalid |
    /// | [`NotReady`](crate::ErrorKind::NotReady) | there is no CLI: the session is recovering |
    /// | [`CliExited`](crate::ErrorKind::CliExited) | the CLI ended before it had taken the server |
    /// | [`Refused`](crate::ErrorKind::Refused) | the CLI refused the server, or could not connect to it |
    /// | [`Timeout`](crate::ErrorKind::Timeout) | the CLI did not answer in time, and is told to forget the server |
    /// | [`Stopped`](crate::ErrorKind::Stopped), [`SessionFailed`](crate::ErrorKind::SessionFailed) | the session has ended |
    pub async fn add_mcp_server(&self, server: impl CompleteServer) -> Result<()> {
        let spec = Arc::new(ServerSpec::clone(server.complete().spec()));
        self.change_servers(ServerChange::Add(Addition::Inside(spec))).await.map(drop)
    }

    /// Adds an MCP server that the CLI connects to, and waits until it has connected.
    ///
    /// # Errors
    /// The errors of [`add_mcp_server`](Session::add_mcp_server). If the CLI could not connect:
    /// [`Refused`](crate::ErrorKind::Refused) with the CLI's reason; the CLI does not try again.
    pub async fn add_external_mcp_server(
        &self,
        name: impl Into<String>,
        server: ExternalServer,
    ) -> Result<()> {
        self.change_servers(ServerChange::Add(Addition::Outside(name.into(), server))).await.map(drop)
    }

    /// Removes an in-process MCP server, or an external server that was added to the running session. The CLI is told
    /// first. Then calls in flight are answered with an error, and their handlers are cancelled and get their [grace
    /// time](crate::options::Timeouts::cancel_grace). Returns when the server has ended and its state is dropped.
    ///
    /// The model reads `Connection closed` for a call that was in flight (seen with CLI 2.1.328).
    ///
    /// # Errors
    /// The errors of [`add_mcp_server`](Session::add_mcp_server): the server is still there then.
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption) also if the session has no such server, or if the CLI was
    /// started with it and connects to it itself.
    pub async fn remove_mcp_server(&self, name: impl Into<String>) -> Result<()> {
        self.change_servers(ServerChange::Remove(name.into())).await.map(drop)
    }

    /// Replaces the in-process MCP servers and the servers that were added to the running session by this set. Servers
    /// that the set does not name are removed, as by [`remove_mcp_server`](Session::remove_mcp_server).
    ///
    /// External servers that the CLI could not connect to are in [`errors`](McpSetServersResult::errors) and still in
    /// the set: the CLI lists them as `failed`, and tries again after `mcp_reconnect` or a restart. An in-process
    /// server with an error is removed again.
    ///
    /// # Errors
    /// The errors of [`add_mcp_server`](Session::add_mcp_server): nothing has changed then.
    pub async fn set_mcp_servers(&self, set: McpServerSet) -> Result<McpSetServersResult> {
        // Copied, because a clone of the set may be for another session, whose servers change independently. This
        // future keeps the originals, so that the supervisor never drops the last handler of a refused set.
        let additions = set.additions.iter().map(Addition::for_another_session).collect();
        self.change_servers(ServerChange::Replace { additions, kept: set.kept.clone() }).await
    }

    /// Lets all tools of a server run without asking, like [`SessionBuilder::allow_server_tools`]. Hooks still see
    /// their calls. The server need not be there yet. The rule stays when the server is removed and when the CLI is
    /// restarted.
    ///
    /// Adds a rule to the `permissions` of the CLI's flag settings (`apply_flag_settings`). CLI 2.1.328 was seen to
    /// honour the rule from the next call on.
    ///
    /// [`SessionBuilder::allow_server_tools`]: crate::SessionBuilder::allow_server_tools
    ///
    /// # Errors
    /// The errors of [`control`](super::Requests::control). [`InvalidOption`](crate::ErrorKind::InvalidOption) also if
    /// the session's [`settings`](crate::Options::settings) are a file: the rule would replace the rules in the file.
    pub async fn allow_server_tools(&self, server: impl AsRef<str>) -> Result<()> {
        let shared = &self.inner.shared;
        // Held so that two calls do not overwrite each other's rule.
        let _turn = shared.changing.lock().await;
        let set_before =
            shared.settings.made().into_iter().find(|set| set["subtype"] == "apply_flag_settings");
        let set_before = set_before.map(|set| set["settings"]["permissions"].clone());
        let options = shared.options();
        let mut permissions = match set_before {
            Some(permissions) if !permissions.is_null() => permissions,
            _ => match merged(options.settings.as_ref(), options.sandbox.as_ref())? {
                Some(Merged::File(_)) => {
                    let text = "a rule cannot be added to settings that are a file, for it would replace those in it";
                    let error = Error::invalid_option(text);
                    return Err(
                        error.with_help("give the settings as a JSON object, or the rule in the file")
                    );
                }
                Some(Merged::Inline(mut settings)) => settings.remove("permissions").unwrap_or_default(),
                None => Value::Null,
            },
        };
        if !permissions.is_object() {
            permissions = json!({});
        }
        let rule = json!(format!("{}*", ServerSpec::prefix(server.as_ref())));
        match &mut permissions["allow"] {
            Value::Array(rules) if rules.contains(&rule) => {}
            Value::Array(rules) => rules.push(rule),
            other => *other = json!([rule]),
        }
        let body = json!({ "subtype": "apply_flag_settings", "settings": { "permissions": permissions } });
        router::ask(shared, body, shared.options().timeouts.control_request).await.map(drop)
    }

    async fn change_servers(&self, change: ServerChange) -> Result<McpSetServersResult> {
        let turn = self.inner.shared.changing.clone().lock_owned().await;
        let request = |reply| Internal::Change(Box::new(ChangeRequest { change, reply, turn }));
        self.ask(|reply| SessionMessage::Internal(request(reply))).await?
    }
}
