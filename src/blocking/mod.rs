//! Work on tokio's blocking threads.

pub(crate) mod caught;

use crate::error::{Error, ErrorKind, Result};

/// Runs work that may block on a blocking thread, without a wait. If the runtime ends first, the work is dropped without
/// a run: use this only for work whose drop does the same. Without a runtime, runs the work here.
pub(crate) fn in_background(work: impl FnOnce() + Send + 'static) {
    match tokio::runtime::Handle::try_current() {
        // Boxed as a trait object, because tokio's code for a task is compiled anew for each type of work.
        Ok(runtime) => drop(runtime.spawn_blocking(Box::new(work) as Box<dyn FnOnce() + Send>)),
        Err(_) => work(),
    }
}

/// Runs blocking file work on a blocking thread of the current tokio runtime.
///
/// # Errors
/// The error of `work`; [`ErrorKind::Io`] if `work` panics or the runtime ends first.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        Err(Error::new(ErrorKind::Io, "file work ended early: it panicked, or the tokio runtime is ending")
            .with_source(error))
    })
}
