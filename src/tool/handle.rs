//! A running server, for whoever changes it.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde_json::value::to_raw_value;
use tokio_util::sync::CancellationToken;

use super::context::LogLevel;
use super::def::ToolDef;
use super::server::ServerSpec;
use crate::error::{Error, ErrorKind, Result};

/// A tool server of a running session: adds, removes, enables and disables its tools, and speaks for it.
/// [`Session::server`](crate::Session::server) and [`ToolContext::server_handle`](crate::ToolContext::server_handle) give
/// it. Cheap to clone.
///
/// A change is in force at once: when the method has returned, the next call finds it so. The CLI is told with
/// `notifications/tools/list_changed`, and CLI 2.1.328 asks for the list anew at once; while there is no CLI, the next
/// one is told from the start. A change is still there after a restart of the server or of the CLI. A call that is in
/// flight is not touched by any.
///
/// ```
/// use greenroom::{NoArgs, Session, ToolDef, ToolServer};
/// use greenroom::testkit::{Script, ScriptedCli};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let door = ToolServer::new("door", "1.0.0").tool("knock", "Knock", async |_: NoArgs| "who is there?");
/// let cli = ScriptedCli::play(Script::new());
/// let session = Session::builder().mcp_server(door).transport(cli.transport()).start().await?;
///
/// let door = session.server("door").expect("it was defined above");
/// door.add_tool(ToolDef::<()>::new("open", "Open the door", async |_: NoArgs| "open"))?;
/// door.disable_tool("knock")?;
/// assert_eq!(door.tools(), ["open"]);
/// # session.stop().await?;
/// # greenroom::Result::<()>::Ok(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ServerHandle {
    pub(crate) spec: Arc<ServerSpec>,
    /// Cancelled when the session is no more.
    pub(crate) gone: CancellationToken,
}

impl ServerHandle {
    pub(crate) fn new(spec: Arc<ServerSpec>, gone: CancellationToken) -> Self {
        Self { spec, gone }
    }

    /// The server's name.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// The names of its tools that are enabled, in the order of the list.
    pub fn tools(&self) -> Vec<String> {
        let lists = self.spec.registry.snapshot();
        lists.tools.iter().filter(|tool| tool.enabled).map(|tool| tool.definition.name.clone()).collect()
    }

    /// Adds a tool. Its state is the one of its type that the server was given last with
    /// [`ToolServer::state`](crate::ToolServer::state); a `ToolDef<()>` needs none.
    ///
    /// # Errors
    /// [`InvalidOption`](ErrorKind::InvalidOption) when the tool is defined in a way that cannot work, when there is one of
    /// this name, or when the server has no state of this type; [`Stopped`](ErrorKind::Stopped) when the session is no
    /// more.
    pub fn add_tool<S: Send + Sync + 'static>(&self, tool: ToolDef<S>) -> Result<()> {
        self.running()?;
        let state = self.spec.state_of::<S>()?;
        self.spec.registry.add(&self.spec.name, tool.inner, state, |lists| &mut lists.tools)
    }

    /// Removes a tool; false if there is none of this name. Its calls in flight go on; a later one is answered with
    /// -32601.
    ///
    /// # Errors
    /// [`Stopped`](ErrorKind::Stopped) when the session is no more.
    pub fn remove_tool(&self, name: &str) -> Result<bool> {
        self.running()?;
        self.spec.registry.remove(name, |lists| &mut lists.tools)
    }

    /// Enables a tool that was disabled; false if it was enabled.
    ///
    /// # Errors
    /// [`InvalidOption`](ErrorKind::InvalidOption) when there is no tool of this name; [`Stopped`](ErrorKind::Stopped)
    /// when the session is no more.
    pub fn enable_tool(&self, name: &str) -> Result<bool> {
        self.running()?;
        self.spec.registry.enable(&self.spec.name, name, true, |lists| &mut lists.tools)
    }

    /// Disables a tool, which stays defined: it is not listed, and a call of it is answered with -32601. False if it was
    /// disabled.
    ///
    /// # Errors
    /// Those of [`enable_tool`](ServerHandle::enable_tool).
    pub fn disable_tool(&self, name: &str) -> Result<bool> {
        self.running()?;
        self.spec.registry.enable(&self.spec.name, name, false, |lists| &mut lists.tools)
    }

    /// Sends a log message to the CLI of the moment, unless it asked for more severe ones only. Waits when many
    /// notifications are queued; does nothing while there is no CLI.
    pub async fn log(&self, level: LogLevel, logger: &str, data: impl Into<serde_json::Value> + Send) {
        if self.spec.registry.log_level.lets(level) {
            let params = serde_json::json!({ "level": level, "logger": logger, "data": data.into() });
            self.notify("notifications/message", params).await;
        }
    }

    /// Sends any notification to the CLI of the moment. For what has no method of its own. Waits when many are queued
    /// ([`Limits::notifications_queued`](crate::Limits::notifications_queued)); does nothing while there is no CLI, or
    /// when `params` do not serialise.
    pub async fn notify(&self, method: &str, params: impl Serialize + Send) {
        if let (Some(peer), Ok(params)) = (self.spec.registry.peer(), to_raw_value(&params)) {
            peer.notify(method, params).await;
        }
    }

    pub(crate) fn running(&self) -> Result<()> {
        if self.gone.is_cancelled() {
            let text = format!("the session of server '{}' is no more", self.spec.name);
            return Err(Error::new(ErrorKind::Stopped, text));
        }
        Ok(())
    }
}

impl fmt::Debug for ServerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerHandle")
            .field("name", &self.spec.name)
            .field("tools", &self.tools())
            .finish_non_exhaustive()
    }
}
