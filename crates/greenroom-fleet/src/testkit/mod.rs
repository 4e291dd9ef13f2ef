//! Checks for backends of your own (feature `testkit`).

mod conformance;

pub use conformance::{BackendViolation, backend_conformance};
