//! The errors of a fleet, of its backend and of its files.

mod backend;
mod files;
mod fleet;
mod report;

pub(crate) use backend::Result;
pub use backend::{BackendError, BackendErrorKind};
pub use files::{FilesError, FilesErrorKind};
pub use fleet::{FleetError, PromptError};
pub(crate) use report::debug_as_report;
