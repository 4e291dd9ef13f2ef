//! Checks for backends of your own, and faults for tests of your service (feature `testkit`).

mod conformance;
mod faults;

pub use crate::backend::local::SimulatedDisk;
pub use conformance::{BackendViolation, backend_conformance};
pub use faults::{Fault, FaultedBackend, FaultedRequest, FleetFault};
