//! Work that may hang, such as a look at a file system.

use std::io;
use std::thread;

use tokio::sync::oneshot;

use crate::error::{Error, ErrorKind, Result};

/// Runs work that may hang on a thread of its own (`greenroom-look`), so that neither the spawner nor the end of a
/// runtime waits for it.
pub(crate) async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let (reply, done) = oneshot::channel();
    thread::Builder::new()
        .name("greenroom-look".into())
        .spawn(move || drop(reply.send(work())))
        .map_err(|error| no_thread(&error))?;
    done.await.map_err(|_| panicked("looking for a program"))
}

pub(crate) fn no_thread(error: &io::Error) -> Error {
    Error::new(
        ErrorKind::NoResources,
        format!("this process cannot start a thread for the start of a program: {error}"),
    )
    .with_help("raise the limit of threads (`ulimit -u`, `pids.max`), or start fewer programs")
}

pub(crate) fn panicked(what: &str) -> Error {
    Error::new(ErrorKind::Spawn, format!("{what} panicked"))
        .with_help("find the message of the panic on stderr, and report it")
}
