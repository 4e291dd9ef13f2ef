//! MCP servers that come and go while a session runs.

use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::Session;
use crate::actor::message::{Internal, SessionMessage};
use crate::actor::roster::{Addition, Change};
use crate::actor::router;
use crate::actor::supervisor::changing::ChangeRequest;
use crate::error::{Error, Result};
use crate::options::{ExternalServer, Merged, merged};
use crate::report::McpSetServersResult;
use crate::tool::ToolServer;
use crate::tool::server::ServerSpec;

/// The MCP servers that a running session is to have, for [`Session::set_mcp_servers`].
///
/// ```
/// use greenroom::{ExternalServer, McpServerSet, NoArgs, ToolServer};
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
    /// No server at all.
    pub fn new() -> Self {
        Self::default()
    }

    /// With a new in-process server. Its name must not be that of one that the session has: that one is kept with
    /// [`keep`](McpServerSet::keep), or removed before.
    pub fn server(mut self, server: ToolServer) -> Self {
        self.additions.push(Addition::Inside(Arc::new(server.spec().clone())));
        self
    }

    /// With a server that the CLI dials itself. One that was added under this name before is replaced.
    pub fn external(mut self, name: impl Into<String>, server: ExternalServer) -> Self {
        self.additions.push(Addition::Outside(name.into(), server));
        self
    }

    /// With a server that the session has now, as it is: an in-process one keeps its state and its calls in flight.
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

/// MCP servers that come and go while the session runs.
///
/// One change happens at a time, in the order in which they were asked for. A change whose future is dropped goes on.
/// Calls of other servers that are in flight are not disturbed, and the set is in force again after a restart of the
/// CLI. The CLI learns the tools of a new in-process server right after it has taken it, and before it asks the model
/// again (seen with CLI 2.1.328): a call in the same turn works.
///
/// The servers that the CLI was started with and dials itself are not part of this: they stay.
impl Session {
    /// Adds an in-process MCP server. It is supervised as those that were there from the start. Its tools are
    /// permitted as others are; see [`allow_server_tools`](Session::allow_server_tools).
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
    /// The server is not there then, and nothing else has changed:
    ///
    /// | kind | what happened |
    /// |---|---|
    /// | [`InvalidOption`](crate::ErrorKind::InvalidOption) | its name is that of another, as the CLI sees them, or a tool is defined in a way that cannot work |
    /// | [`NotReady`](crate::ErrorKind::NotReady) | there is no CLI at this moment: the session is recovering |
    /// | [`CliExited`](crate::ErrorKind::CliExited) | the CLI ended before it had taken it |
    /// | [`Refused`](crate::ErrorKind::Refused) | the CLI refused it, or could not connect to it |
    /// | [`Timeout`](crate::ErrorKind::Timeout) | the CLI did not answer in time; it is told to forget it |
    /// | [`Stopped`](crate::ErrorKind::Stopped), [`SessionFailed`](crate::ErrorKind::SessionFailed) | the session is no more |
    pub async fn add_mcp_server(&self, server: ToolServer) -> Result<()> {
        let spec = Arc::new(ServerSpec::clone(server.spec()));
        self.change_servers(Change::Add(Addition::Inside(spec))).await.map(drop)
    }

    /// Adds an MCP server that the CLI dials itself, and waits until it has connected to it.
    ///
    /// # Errors
    /// Those of [`add_mcp_server`](Session::add_mcp_server); [`Refused`](crate::ErrorKind::Refused) with the CLI's words
    /// when it could not connect, and then it does not try again.
    pub async fn add_external_mcp_server(
        &self,
        name: impl Into<String>,
        server: ExternalServer,
    ) -> Result<()> {
        self.change_servers(Change::Add(Addition::Outside(name.into(), server))).await.map(drop)
    }

    /// Removes an MCP server: an in-process one, also of those that were there from the start, or one that was added
    /// to the running session. The CLI is told first; then what the server owes is answered with an error, its handlers are
    /// cancelled and get their [grace time](crate::Timeouts::cancel_grace), and it ends. Returns when it is gone, and its
    /// state is dropped.
    ///
    /// The model reads `Connection closed` for a call that was in flight (seen with CLI 2.1.328).
    ///
    /// # Errors
    /// Those of [`add_mcp_server`](Session::add_mcp_server): the server is still there then.
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption) also for a server that the session does not have, or that the
    /// CLI was started with and dials itself.
    pub async fn remove_mcp_server(&self, name: impl Into<String>) -> Result<()> {
        self.change_servers(Change::Remove(name.into())).await.map(drop)
    }

    /// Replaces the in-process MCP servers, and those that were added to the running session, by this set: what it
    /// does not name is removed as by [`remove_mcp_server`](Session::remove_mcp_server).
    ///
    /// An external server that the CLI could not connect to is in [`errors`](McpSetServersResult::errors). It is part of
    /// the set all the same: the CLI lists it as `failed`, and tries again when it is told to (`mcp_reconnect`) or is
    /// started again. An in-process server with an error is taken out again.
    ///
    /// # Errors
    /// Those of [`add_mcp_server`](Session::add_mcp_server): nothing has changed then.
    pub async fn set_mcp_servers(&self, set: McpServerSet) -> Result<McpSetServersResult> {
        // A clone of the set may be for another session, and what changes at run time is that of one. What is code of the
        // application is kept by this future, so that it is not the supervisor who drops the last of a refused set.
        let additions = set.additions.iter().map(Addition::anew).collect();
        self.change_servers(Change::Replace { additions, kept: set.kept.clone() }).await
    }

    /// Lets all tools of this server run without asking, as [`SessionBuilder::allow_server_tools`] does for those that
    /// are there from the start. Hooks still see their calls. The server need not be there yet; the rule stays when it goes,
    /// and is in force again after a restart of the CLI.
    ///
    /// It is a rule in the `permissions` of the CLI's flag settings (`apply_flag_settings`), beside those that are there
    /// already. CLI 2.1.328 was seen to honour it from the next call on.
    ///
    /// [`SessionBuilder::allow_server_tools`]: crate::SessionBuilder::allow_server_tools
    ///
    /// # Errors
    /// Those of [`control`](Session::control). [`InvalidOption`](crate::ErrorKind::InvalidOption) also when the session's
    /// [`settings`](crate::Options::settings) are a file: the rule would take the place of the rules in it.
    pub async fn allow_server_tools(&self, server: impl AsRef<str>) -> Result<()> {
        let shared = &self.inner.shared;
        // Two at once would each read the rules without that of the other.
        let _turn = shared.changing.lock().await;
        let set_before = shared.settings().into_iter().find(|set| set["subtype"] == "apply_flag_settings");
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

    async fn change_servers(&self, change: Change) -> Result<McpSetServersResult> {
        let turn = self.inner.shared.changing.clone().lock_owned().await;
        let (reply, done) = oneshot::channel();
        let request = Internal::Change(Box::new(ChangeRequest { change, reply, turn }));
        self.inner.actor.cast(SessionMessage::Internal(request)).map_err(|_| self.gone())?;
        done.await.unwrap_or_else(|_| Err(self.gone()))
    }
}
