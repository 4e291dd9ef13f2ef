//! Break a session on purpose, and see what it would tell its CLI (feature `testing`).
//!
//! These are the parts of a test harness that need the inside of a session. The crate `greenroom-testkit` shows them too, beside its
//! stand-ins for the CLI and the model: tests need nothing from here if they depend on it.

mod calls;
mod delivered;

pub use crate::actor::messages::fault::Fault;
pub use calls::CallFault;
pub use delivered::Delivered;
