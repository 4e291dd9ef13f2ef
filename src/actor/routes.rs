//! The routes to the tool servers that can be reached: written by the router, followed by the reader.
//!
//! The reader hands a request to its server itself, without the router, when there is a route and nothing that came before
//! is still on its way through the router. The router publishes a route only after it has passed on what waited for that
//! server. So the messages of the CLI reach a server in the order in which they came.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::fast::RandomState;
use ractor::ActorRef;
use tokio::sync::watch;

use super::admission::Gate;
use super::ledger::Ledger;
use super::mcp_server::ServerMessage;
use super::router::RouterMessage;

/// The way to a server that is up.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) server: Arc<str>,
    pub(crate) actor: ActorRef<ServerMessage>,
    pub(crate) gate: Option<Arc<Gate>>,
    /// Whether its tools are called without its MCP session.
    pub(crate) own_tools: bool,
}

/// All of them, by name.
pub(crate) type Routes = HashMap<Arc<str>, Arc<Route>, RandomState>;

/// What others need of a router: how to tell it something, its ledger, and the routes that it has published.
#[derive(Clone, Debug)]
pub(crate) struct RouterLink {
    pub(crate) actor: ActorRef<RouterMessage>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) routes: watch::Receiver<Arc<Routes>>,
}

/// How many messages to tool servers are with the router.
#[derive(Debug, Default)]
pub(crate) struct Detours(Arc<AtomicUsize>);

/// One of them.
#[derive(Debug)]
pub(crate) struct Detour(Arc<AtomicUsize>);

impl Detours {
    pub(crate) fn begin(&self) -> Detour {
        self.0.fetch_add(1, Ordering::Relaxed);
        Detour(self.0.clone())
    }

    pub(crate) fn any(&self) -> bool {
        // What the router did before it took one off is seen by whoever sees that it is off.
        self.0.load(Ordering::Acquire) > 0
    }
}

impl Drop for Detour {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}
