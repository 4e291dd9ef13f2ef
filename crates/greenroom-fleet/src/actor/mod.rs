//! The actors of a fleet.
//!
//! ```text
//!  Fleet (handles) ──► FleetSupervisor ──┬── Admission: who gets a slot, who gets a turn
//!                                        ├── Keeper (tasks): the lease, moments that are due, what expires
//!                                        └── NameActor, one for each name that is not passive ──► a greenroom session
//! ```
//!
//! The registry in the backend has the facts; messages between the actors are hints. An actor that fails is started again and
//! reads the facts.

pub(crate) mod admitter;
pub(crate) mod asker;
pub(crate) mod cell;
pub(crate) mod cli_turns;
pub(crate) mod context;
pub(crate) mod deletion;
pub(crate) mod keeper;
pub(crate) mod metrics;
pub(crate) mod name;
pub(crate) mod retry;
pub(crate) mod scribe;
pub(crate) mod supervisor;
pub(crate) mod task;
