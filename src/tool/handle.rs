//! The handle of a running server: changes what it offers.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde_json::value::to_raw_value;
use tokio_util::sync::CancellationToken;

use super::define::def::ToolDef;
use super::define::resource::ResourceDef;
use super::define::template::ResourceTemplateDef;
use super::run::context::ToolContext;
use super::run::log_level::LogLevel;
use super::spec::ServerSpec;
use crate::error::{Error, ErrorKind, Result};

/// The handle of a tool server in a running session: adds, removes, enables and disables what the server offers, and
/// sends notifications. Get it from [`Session::server`](crate::Session::server) or
/// [`ToolContext::server_handle`](crate::ToolContext::server_handle). Cheap to clone.
///
/// A change takes effect before the method returns: the next call sees it. The CLI gets
/// `notifications/tools/list_changed` or its like, or the new lists at its next start. Changes survive restarts of the
/// server and of the CLI. Calls in flight are not affected.
///
/// CLI 2.1.328 asks for the list of tools again at once, so that the model has a new tool in its next request or the
/// one after, and for the list of resources when the model wants it. A CLI asks for resources only if the server
/// announced them when the two met: see [`ToolServer::dynamic_resources`](crate::ToolServer::dynamic_resources).
///
/// ```
/// use greenroom::{NoArgs, Session, ToolDef, ToolServer};
/// use greenroom_testkit::{Script, ScriptedCli};
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
    /// Cancelled when the session has ended.
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

    /// The names of the enabled tools, in the order of the list.
    pub fn tools(&self) -> Vec<String> {
        let lists = self.spec.registry.snapshot();
        lists.tools.iter().filter(|tool| tool.enabled).map(|tool| tool.definition.name.clone()).collect()
    }

    /// Sends a log message to the CLI, unless the CLI wants only more severe ones. Waits when many notifications are
    /// queued; does nothing while there is no CLI.
    pub async fn log(&self, level: LogLevel, logger: &str, data: impl Into<serde_json::Value> + Send) {
        if self.spec.registry.log_level.lets(level) {
            let params = serde_json::json!({ "level": level, "logger": logger, "data": data.into() });
            self.notify("notifications/message", params).await;
        }
    }

    /// Sends a notification that has no method here. Waits when many are queued
    /// ([`Limits::notifications_queued`](crate::options::Limits::notifications_queued)); does nothing while there is no
    /// CLI, or when `params` do not serialise.
    pub async fn notify(&self, method: &str, params: impl Serialize + Send) {
        if let (Some(peer), Ok(params)) = (self.spec.registry.peer(), to_raw_value(&params)) {
            peer.notify(&self.spec.name, method, params).await;
        }
    }

    /// An error if the lists cannot be changed.
    pub(crate) fn changeable(&self) -> Result<()> {
        if self.gone.is_cancelled() {
            let text = format!("the session of server '{}' has ended", self.spec.name);
            return Err(Error::new(ErrorKind::Stopped, text));
        }
        self.spec.must_not_be_mounted()
    }
}

/// Adds, removes, enables and disables definitions of one list.
macro_rules! changes {
    ($kind:literal, $key:ident, $def:ident in $list:ident: $add:ident, $remove:ident, $enable:ident, $disable:ident) => {
        #[doc = concat!("Adds a ", $kind, ". Its handler gets the server's newest state of its type (see")]
        #[doc = concat!("[`ToolServer::state`](crate::ToolServer::state)); a `", stringify!($def), "<()>` needs none.")]
        ///
        /// # Errors
        #[doc = concat!("[`InvalidOption`](ErrorKind::InvalidOption) for an invalid definition, a second ", $kind, " with the ", stringify!($key), ",")]
        /// or a missing state; [`Stopped`](ErrorKind::Stopped) after the session has ended.
        pub fn $add<S: Send + Sync + 'static>(&self, definition: $def<S>) -> Result<()> {
            self.changeable()?;
            let state = self.spec.state_of::<S>()?;
            self.spec.registry.add(&self.spec.name, definition.inner, state, |lists| &mut lists.$list)
        }

        #[doc = concat!("Removes a ", $kind, "; false if there is none with this ", stringify!($key), ". Calls in flight go on.")]
        ///
        /// # Errors
        /// [`Stopped`](ErrorKind::Stopped) after the session has ended.
        pub fn $remove(&self, $key: &str) -> Result<bool> {
            self.changeable()?;
            self.spec.registry.remove($key, |lists| &mut lists.$list)
        }

        #[doc = concat!("Enables a disabled ", $kind, "; false if it was enabled.")]
        ///
        /// # Errors
        #[doc = concat!("[`InvalidOption`](ErrorKind::InvalidOption) if there is no ", $kind, " with this ", stringify!($key), ";")]
        /// [`Stopped`](ErrorKind::Stopped) after the session has ended.
        pub fn $enable(&self, $key: &str) -> Result<bool> {
            self.changeable()?;
            self.spec.registry.enable(&self.spec.name, $key, true, |lists| &mut lists.$list)
        }

        #[doc = concat!("Disables a ", $kind, ": it stays defined, but is neither listed nor found. False if it was disabled.")]
        ///
        /// # Errors
        #[doc = concat!("As [`", stringify!($enable), "`](ServerHandle::", stringify!($enable), ").")]
        pub fn $disable(&self, $key: &str) -> Result<bool> {
            self.changeable()?;
            self.spec.registry.enable(&self.spec.name, $key, false, |lists| &mut lists.$list)
        }
    };
}

impl ServerHandle {
    changes!("tool", name, ToolDef in tools: add_tool, remove_tool, enable_tool, disable_tool);
    changes!("resource", uri, ResourceDef in resources: add_resource, remove_resource, enable_resource, disable_resource);
    changes!("resource template", uri_template, ResourceTemplateDef in templates:
        add_resource_template, remove_resource_template, enable_resource_template, disable_resource_template);
}

impl fmt::Debug for ServerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerHandle")
            .field("name", &self.spec.name)
            .field("tools", &self.tools())
            .finish_non_exhaustive()
    }
}

impl<S> ToolContext<S> {
    /// The handle of the handler's server, to change what the server offers; `None` without a session.
    pub fn server_handle(&self) -> Option<ServerHandle> {
        self.call.link.handle.as_ref()?.downcast_ref::<ServerHandle>().cloned()
    }
}
