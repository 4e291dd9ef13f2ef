//! Run a session as a child of your own `ractor` actor.
//!
//! [`SessionBuilder::spawn_linked`](crate::SessionBuilder::spawn_linked) starts a session as a child of your actor.
//! Your actor sees the session start, stop (`ActorTerminated`) and fail (`ActorFailed`, with a
//! [`greenroom::Error`](crate::Error) inside) like any other child. When your actor ends, the session and everything
//! that belongs to it end too. You get a [`Session`](crate::Session); a program that only sends messages can use its
//! actor and [`SessionMessage`].
//!
//! ```
//! use greenroom::{Session, SessionBuilder};
//! use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
//!
//! struct Desk;
//!
//! #[cfg_attr(feature = "async-trait", ractor::async_trait)]
//! impl Actor for Desk {
//!     type Msg = ();
//!     type State = Session;
//!     type Arguments = SessionBuilder;
//!
//!     async fn pre_start(&self, myself: ActorRef<()>, builder: SessionBuilder) -> Result<Session, ActorProcessingErr> {
//!         Ok(builder.spawn_linked(myself.get_cell()).await?)
//!     }
//!
//!     async fn handle_supervisor_evt(
//!         &self, _: ActorRef<()>, event: SupervisionEvent, _: &mut Session,
//!     ) -> Result<(), ActorProcessingErr> {
//!         if let SupervisionEvent::ActorFailed(_, error) = event {
//!             let error = error.downcast_ref::<greenroom::Error>();
//!             tracing::warn!(?error, "the session has failed; start another one, or stop");
//!         }
//!         Ok(())
//!     }
//! }
//! # let _ = Desk;
//! ```
//!
//! `ractor`'s features `cluster` and `async-trait` change its traits for the whole program. When any crate of your
//! program enables one of them, enable greenroom's feature of the same name too.
//!
//! # The actors of a session
//!
//! ```text
//! SessionSupervisor   starts, restarts and stops the others; does no work itself
//! ├── Conversation    prompts, turns, the captured session id, the end of the run
//! ├── ControlRouter   requests to the CLI, and its answers
//! ├── Callbacks       hooks, permissions, elicitations, dialogs: a task for each request
//! ├── McpServer …     one for each in-process server: runs its calls as tasks
//! └── CliPort         one incarnation of the CLI: reader, writer, process
//! ```
//!
//! They start in this order and stop in the reverse order: the CLI goes first, while everything that it may still ask
//! for is there to answer.

pub(crate) mod base;
pub(crate) mod callbacks;
pub(crate) mod context;
pub(crate) mod conversation;
pub(crate) mod current_cli;
pub(crate) mod ending;
pub(crate) mod incarnation;
pub(crate) mod mcp_server;
pub(crate) mod messages;
pub(crate) mod metrics;
pub(crate) mod mirror;
pub(crate) mod outbound;
pub(crate) mod request;
pub(crate) mod resume;
pub(crate) mod router;
pub(crate) mod servers;
pub(crate) mod spans;
pub(crate) mod supervisor;
pub(crate) mod turn;

pub use messages::session::SessionMessage;

/// Marks a type as the message of an actor. With its feature `cluster`, ractor has no blanket implementation.
macro_rules! actor_message {
    ($($message:ty),*) => {$(
        #[cfg(feature = "cluster")]
        impl ractor::Message for $message {}
    )*};
}
pub(crate) use actor_message;
