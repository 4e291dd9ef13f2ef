//! The state of a server: who it is made for, and how.

use std::any::{Any, TypeId};
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::run::erased::AnyState;
use crate::blocking::caught::DropElsewhere;
use crate::error::BoxError;
use crate::identity::{Identity, identity_methods};

/// The context of a factory that makes a server's state: the session that the state is for, and why it is made. See
/// [`ToolServer::state_with`](crate::ToolServer::state_with).
#[derive(Clone, Debug)]
pub struct StateContext {
    pub(crate) identity: Arc<dyn Identity>,
    pub(crate) server: Arc<str>,
    pub(crate) generation: u32,
    pub(crate) restart_cause: Option<Arc<str>>,
}

impl StateContext {
    identity_methods!(self => self.identity);

    /// The name of the server.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Number of starts of this server in this session, from 1: this one included.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// The reason why the state is made again, as in [`Event::ServerRestarted`](crate::Event::ServerRestarted): too
    /// many panics, a failed factory, a failed actor. `None` at the server's first start.
    pub fn restart_cause(&self) -> Option<&str> {
        self.restart_cause.as_deref()
    }
}

type MakeState = Arc<dyn Fn(StateContext) -> BoxFuture<'static, Result<AnyState, BoxError>> + Send + Sync>;

/// Makes a state of one type.
#[derive(Clone)]
pub(super) struct StateFactory {
    /// The type of the state.
    pub(super) state: TypeId,
    pub(super) make: MakeState,
}

impl StateFactory {
    pub(super) fn new<S: Any>(
        make: impl Fn(StateContext) -> BoxFuture<'static, Result<AnyState, BoxError>> + Send + Sync + 'static,
    ) -> Self {
        let make = DropElsewhere::new(make);
        Self { state: TypeId::of::<S>(), make: Arc::new(move |cx| make(cx)) }
    }
}
