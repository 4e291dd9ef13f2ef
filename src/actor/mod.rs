//! The actors of a session, and the door for programs that are made of actors themselves.
//!
//! ```text
//! SessionSupervisor   what restarts, how often, in which order things start and stop; does no work itself
//! ├── Conversation    prompts, turns, the captured session id, when the run is over
//! ├── ControlRouter   the ledger: who owes whom an answer, both directions
//! ├── Callbacks       hooks, permissions, elicitations, dialogs: a task per request
//! ├── McpServer …     one per in-process server: a task per call
//! └── CliPort         one incarnation of the CLI: reader, writer, process
//! ```
//!
//! They start in this order and stop in the reverse one: the CLI goes first, while everything that it may still
//! ask is there to answer.
//!
//! # For actor programs
//!
//! [`SessionBuilder::spawn_linked`](crate::SessionBuilder::spawn_linked) starts a session as a child of an
//! application's own `ractor` actor. That one sees the session start, stop (`ActorTerminated`) and fail
//! (`ActorFailed`, with a [`greenroom::Error`](crate::Error) inside) like any other child, and a session whose
//! parent ends is taken down with everything that belongs to it. [`SessionMessage`] is what the session's actor
//! understands; the [`Session`](crate::Session) that comes with it is the same in methods.
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
//! `ractor`'s features `cluster` and `async-trait` change its traits for the whole program. When any crate of a
//! program enables one, greenroom's feature of the same name has to be enabled too.

pub(crate) mod admission;
pub(crate) mod asking;
pub(crate) mod callbacks;
pub(crate) mod conversation;
pub(crate) mod deadlines;
pub(crate) mod initialize;
pub(crate) mod intake;
pub(crate) mod interrupt;
pub(crate) mod lane;
pub(crate) mod ledger;
pub(crate) mod mcp_server;
pub(crate) mod message;
pub(crate) mod mirror;
pub(crate) mod outgoing;
pub(crate) mod owed;
pub(crate) mod port;
pub(crate) mod reader;
pub(crate) mod restart;
pub(crate) mod resume;
pub(crate) mod roster;
pub(crate) mod router;
pub(crate) mod routes;
pub(crate) mod run;
pub(crate) mod settings;
pub(crate) mod shared;
pub(crate) mod spill;
pub(crate) mod spool;
pub(crate) mod stderr;
pub(crate) mod supervisor;
pub(crate) mod turn;
pub(crate) mod work;

pub use message::SessionMessage;

/// Marks a type as the message of an actor: with ractor's feature `cluster` there is no blanket implementation.
macro_rules! actor_message {
    ($($message:ty),*) => {$(
        #[cfg(feature = "cluster")]
        impl ractor::Message for $message {}
    )*};
}
pub(crate) use actor_message;
