//! What tests of a backend, or of an application with a fleet, need (feature `testkit`).

mod conformance;

pub use conformance::{BackendViolation, backend_conformance};
