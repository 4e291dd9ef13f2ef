//! Checks for backends of your own, faults for tests of your service, and a scratch server of PostgreSQL (feature `testkit`).

mod conformance;
mod faults;
#[cfg(feature = "postgres")]
mod postgres;

pub use crate::backend::local::SimulatedDisk;
pub use conformance::{BackendViolation, backend_conformance};
pub use faults::{Fault, FaultedBackend, FaultedRequest, FleetFault};
#[cfg(feature = "postgres")]
pub use postgres::{ScratchPostgres, ScratchPostgresError};
