//! Checks for backends of your own, and backends with faults for tests of your service (feature `testkit`).

mod conformance;
mod faults;

pub use conformance::{BackendViolation, backend_conformance};
pub use faults::{Fault, FaultedBackend, FaultedRequest, RandomFaults};
