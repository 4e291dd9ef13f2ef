//! The routes to the tool servers that are up: published by the router, used by the reader.
//!
//! The reader sends a message to its server directly if there is a route, and no earlier message is still with the
//! router. The router publishes a route only after it has passed on the messages that waited for that server. So a
//! server gets the messages of the CLI in order.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::fast::RandomState;
use ractor::ActorRef;

use crate::actor::base::gate::Gate;
use crate::actor::messages::mcp_server::ServerMessage;

/// The way to a server that is up.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) server: Arc<str>,
    pub(crate) actor: ActorRef<ServerMessage>,
    pub(crate) gate: Option<Arc<Gate>>,
    /// Whether the server's tools are called without its MCP session.
    pub(crate) own_tools: bool,
}

/// State of a tool server.
#[derive(Clone)]
pub(crate) enum Known {
    Up(Arc<Route>),
    /// The server has ended and will be restarted.
    Down,
    /// The server has ended, for this cause, and will not be restarted.
    Failed(String),
}

/// Routes by the name of the server.
pub(crate) type Routes = HashMap<Arc<str>, Arc<Route>, RandomState>;

/// Number of messages to tool servers that are with the router.
#[derive(Debug, Default)]
pub(crate) struct RoutedCount(Arc<AtomicUsize>);

/// Counts one message until the router has passed it on.
#[derive(Debug)]
pub(crate) struct RoutedGuard(Arc<AtomicUsize>);

impl RoutedCount {
    pub(crate) fn begin(&self) -> RoutedGuard {
        self.0.fetch_add(1, Ordering::Relaxed);
        RoutedGuard(self.0.clone())
    }

    pub(crate) fn any(&self) -> bool {
        // Acquire: whoever sees the lower count also sees what the router did before.
        self.0.load(Ordering::Acquire) > 0
    }
}

impl Drop for RoutedGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}
