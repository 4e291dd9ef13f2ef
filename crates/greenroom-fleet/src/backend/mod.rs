//! Backends: where a fleet keeps its names, prompts and outcomes.
//!
//! | backend | for | keeps its facts |
//! |---|---|---|
//! | [`MemoryBackend`] | tests | until it is dropped |
//! | [`LocalBackend`] | services on one machine | in one file, durable over a power cut |
//! | `PostgresBackend` (feature `postgres`) | services on several machines | in a database of PostgreSQL |
//! | `SocketBackend` (feature `socket`) | commands beside a service | in the backend of the service |
//!
//! Write a [`Backend`] of your own for another database: it reads rows and commits others. Check it with the conformance suite of
//! [`testkit`](crate::testkit) (feature `testkit`).

mod arc;
mod channels;
pub(crate) mod local;
mod memory;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
mod requests;
mod run;
#[cfg(any(feature = "postgres", feature = "socket"))]
mod server_clock;
#[cfg(feature = "socket")]
mod socket;

use std::path::PathBuf;

use futures_util::future::BoxFuture;

use crate::error::BackendError;
use crate::id::Timestamp;
use crate::request::NodeMessage;

pub use channels::Channels;
pub use local::LocalBackend;
pub use memory::MemoryBackend;
#[cfg(feature = "postgres")]
pub use postgres::{PostgresBackend, PostgresOptions};
#[cfg(feature = "testkit")]
pub(crate) use requests::METHODS;
pub use requests::Requests;
#[cfg(feature = "socket")]
pub use socket::{SocketBackend, SocketServer};

pub use crate::registry::{
    Commit, Committed, Lane, Map, MapMut, Part, Range, Row, Rows, Told, Wanted, commit_rows, read_rows,
};

/// The future of a request to a backend.
pub type Reply<'a, T> = BoxFuture<'a, Result<T, BackendError>>;

/// An ordered map of rows, with writes that happen only if what was read still stands: what a fleet keeps.
///
/// The rules of a fleet run above it: [`Requests`] has them. So a backend decides nothing but whether rows have their values still.
///
/// # What a backend promises
///
/// - **One moment**: a read gives rows as they were at one moment, with everything in them that was answered before.
/// - **Atomic**: a commit happens as a whole or not at all, and only if every row that it expects has its value at that moment, or is
///   absent still.
/// - **Durable**: a commit is kept over a power cut before its answer is given.
/// - **Ordered**: keys sort by their bytes.
///
/// Dropping the future of a commit may leave it carried out. A backend measures time on its own clock; moments in requests and records
/// are on that clock.
///
/// A map in memory behind a lock is a backend: [`read_rows`] and [`commit_rows`] do the work on any [`MapMut`].
///
/// # A clock that is set
///
/// The order of a session's prompts, terms and ownership never depend on the clock; the order of prompts of different
/// sessions does, and within a millisecond it is that of their names. If the clock is set back, prompts without a moment of their own
/// begin as before; reminders, the ends of waiting prompts and the deadlines of questions come when the clock shows
/// their moment again, so they are late by the step. If it is set forward, prompts and questions expire early, and budgets begin anew. A
/// backend of your own that goes by the clock of its host takes [`Clock::system`](crate::Clock::system), which has no steps.
pub trait Backend: Send + Sync + 'static {
    /// The moment now on the backend's clock.
    fn now(&self) -> Timestamp;

    /// Reads rows at one moment. The lane says on which connections, if the backend has several.
    ///
    /// # Errors
    /// [`Unavailable`](crate::BackendErrorKind::Unavailable) for whatever may pass, and the other kinds as
    /// [`BackendErrorKind`](crate::BackendErrorKind) has them.
    fn read(&self, lane: Lane, wanted: Wanted) -> Reply<'_, Rows>;

    /// Carries a commit out, and tells its [`told`](Commit::told) on the channels before the answer. A backend in one process tells in the
    /// order of the commits. Over a network, two commits that run at once may be told in either order.
    fn commit(&self, lane: Lane, commit: Commit) -> Reply<'_, Committed>;

    /// The channels on which this value of the backend and its clones tell what was made durable. Other processes are told of changes as
    /// well, as far as the backend can.
    fn channels(&self) -> &Channels;

    /// Passes a message on to the fleets on this backend, which [`Channels::deliver`] it: in this process, and in others as far as the
    /// backend can. It keeps nothing, may lose the message, and must not block. A node publishes 160 KiB of text a second at most.
    /// Default: to the fleets on this value of the backend and its clones.
    fn publish(&self, message: NodeMessage) {
        self.channels().deliver(message);
    }

    /// The folder for the files of the sessions, if the builder of the fleet names none. Default: none, so the builder has
    /// to name one.
    fn default_folder(&self) -> Option<PathBuf> {
        None
    }

    /// True while nobody outside of this process can use what the backend keeps, as with a file that is locked.
    /// A node then keeps its names although it cannot renew its lease, for instance because the disk is full.
    /// Default: `false`.
    fn is_exclusive(&self) -> bool {
        false
    }

    /// True if other processes can use what the backend keeps. A fleet then has a watchdog, which ends its CLIs when its lease is
    /// over, also while its process is stopped. Default: the opposite of [`is_exclusive`](Self::is_exclusive).
    fn is_shared(&self) -> bool {
        !self.is_exclusive()
    }

    /// Carries out a request, by its name, such as `begin`: reads, and mostly one commit. Default: at once. Backends of tests fail it, delay
    /// it, or lose its answer.
    #[expect(unused_variables, reason = "backends of tests decide by the name of the request")]
    fn carry_out<'a>(&'a self, request: &'static str, run: BoxFuture<'a, ()>) -> Reply<'a, ()> {
        Box::pin(async move {
            run.await;
            Ok(())
        })
    }
}
