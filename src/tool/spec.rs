//! A server as a session runs it: a [`ToolServer`](crate::ToolServer) without the type of its state.

use std::any::{TypeId, type_name};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};

use super::policy::Policies;
use super::registry::{Lists, Registry};
use super::run::erased::AnyState;
use super::run::service::Service;
use super::state::{StateContext, StateFactory};
use crate::blocking::caught::panic_text;
use crate::error::{BoxError, Error, Result};
use crate::options::check::check_server_name;
use crate::wire::rpc::PROTOCOL_VERSIONS;

/// A server that answers in place of the lists of a [`ServerSpec`], such as a handler of the crate `rmcp`.
pub(crate) trait Mount: Send + Sync {
    /// Takes the messages of the CLI.
    fn service(&self, spec: &Arc<ServerSpec>) -> Box<dyn Service>;

    /// Makes the handler, which is the server's state.
    fn make(&self, spec: Arc<ServerSpec>, cx: StateContext)
    -> BoxFuture<'static, Result<AnyState, BoxError>>;

    /// Copies the mount for another session.
    fn for_another_session(&self) -> Box<dyn Mount>;
}

/// A server without the type of its state. Within a session only its [`Registry`] changes. A clone is the same server
/// for another session.
#[derive(Clone)]
pub(crate) struct ServerSpec {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) instructions: Option<String>,
    pub(crate) registry: Registry,
    pub(crate) timeout: Option<Duration>,
    pub(crate) significant: bool,
    pub(crate) policies: Policies,
    pub(super) factories: Vec<StateFactory>,
    pub(crate) mount: Option<Box<dyn Mount>>,
}

impl Clone for Box<dyn Mount> {
    fn clone(&self) -> Self {
        self.for_another_session()
    }
}

impl ServerSpec {
    /// Makes the states, one after another. A factory's panic is an error.
    pub(crate) async fn make_states(self: &Arc<Self>, cx: StateContext) -> Result<Vec<AnyState>, String> {
        if let Some(mount) = &self.mount {
            return made(async { mount.make(self.clone(), cx).await }).await.map(|handler| vec![handler]);
        }
        let mut states = Vec::with_capacity(self.factories.len());
        for factory in &self.factories {
            let (make, cx) = (factory.make.clone(), cx.clone());
            states.push(made(async move { make(cx).await }).await?);
        }
        Ok(states)
    }

    /// Whether a mounted handler answers in place of the lists.
    pub(crate) fn is_mounted(&self) -> bool {
        self.mount.is_some()
    }

    /// Index of the newest state of this type; `None` for `()` if there is none.
    pub(crate) fn state_of<S: 'static>(&self) -> Result<Option<usize>> {
        let wanted = TypeId::of::<S>();
        match self.factories.iter().rposition(|factory| factory.state == wanted) {
            Some(index) => Ok(Some(index)),
            None if wanted == TypeId::of::<()>() => Ok(None),
            None => {
                let text = format!("server '{}' has no state of the type {}", self.name, type_name::<S>());
                Err(Error::invalid_option(text).with_help("give it one with `ToolServer::state`"))
            }
        }
    }

    /// The result of `initialize` for this version of MCP.
    pub(crate) fn initialize_result(&self, lists: &Lists, version: &str) -> Value {
        let mut result = json!({
            "protocolVersion": version,
            "capabilities": lists.capabilities(),
            "serverInfo": { "name": self.name, "version": self.version },
        });
        if let Some(instructions) = &self.instructions {
            result["instructions"] = json!(instructions);
        }
        result
    }

    /// The manifest for `initialize`, so that the CLI need not ask before the first turn. `None` for a mounted server, which has to be asked.
    pub(crate) fn manifest(&self) -> Option<Value> {
        if self.is_mounted() {
            return None;
        }
        let lists = self.registry.snapshot();
        self.registry.announce(&lists);
        Some(json!({
            "initializeResult": self.initialize_result(&lists, PROTOCOL_VERSIONS[0]),
            "toolsListResult": lists.tools.to_wire(),
        }))
    }

    /// The server's settings in `initialize.sdkMcpServerConfigs`.
    pub(crate) fn settings(&self) -> Map<String, Value> {
        let mut settings = Map::new();
        if let Some(timeout) = self.timeout {
            settings.insert("timeout".into(), json!(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)));
        }
        if let Some(policies) = self.policies.to_wire() {
            settings.insert("tools".into(), policies);
        }
        settings
    }

    /// An error for a mounted server: its lists are its handler's.
    pub(crate) fn must_not_be_mounted(&self) -> Result<()> {
        if !self.is_mounted() {
            return Ok(());
        }
        let text = format!("server '{}' is a mounted one, and offers what its handler does", self.name);
        Err(Error::invalid_option(text)
            .with_help("put what it is to offer beside that into a server of its own"))
    }

    /// The prefix of the names of a server's tools as the model sees them.
    pub(crate) fn prefix(name: &str) -> String {
        let safe: String =
            name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect();
        format!("mcp__{safe}__")
    }

    pub(crate) fn validate(&self) -> Result<()> {
        check_server_name(&self.name)?;
        let lists = self.registry.snapshot();
        if self.is_mounted() {
            // Nobody would serve what is in the lists.
            return if lists.is_empty() { Ok(()) } else { self.must_not_be_mounted() };
        }
        self.policies.validate(&self.name, lists.tools.iter().map(|tool| tool.definition.name.as_str()))?;
        lists.validate(&self.name)
    }
}

/// Waits for a factory. Its panic is an error.
async fn made(making: impl Future<Output = Result<AnyState, BoxError>>) -> Result<AnyState, String> {
    match std::panic::AssertUnwindSafe(making).catch_unwind().await {
        Ok(Ok(state)) => Ok(state),
        Ok(Err(error)) => Err(format!("its state could not be made: {error}")),
        Err(panic) => {
            let text = panic_text(&*panic);
            Err(format!("the factory of its state panicked: {text}"))
        }
    }
}
