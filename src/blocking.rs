//! File work on tokio's blocking threads.

use crate::error::{Error, ErrorKind, Result};

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
