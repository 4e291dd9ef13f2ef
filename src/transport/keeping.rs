//! A process with a value that outlives it.

use std::path::Path;

use futures_util::future::BoxFuture;

use super::{ContainedBy, Exit, Leftover, Leftovers, Process, ProcessIdentity};

/// A process, and a value that is dropped after the process: the files that the process was started with.
pub(super) struct Keeping<T> {
    // Fields are dropped in this order.
    process: Box<dyn Process>,
    _kept: T,
}

impl<T> Keeping<T> {
    pub(super) fn new(process: Box<dyn Process>, kept: T) -> Self {
        Self { process, _kept: kept }
    }
}

impl<T: Send + 'static> Process for Keeping<T> {
    fn pid(&self) -> Option<u32> {
        self.process.pid()
    }

    fn wait(&mut self) -> BoxFuture<'_, Exit> {
        self.process.wait()
    }

    fn terminate(&mut self) {
        self.process.terminate();
    }

    fn kill(&mut self) {
        self.process.kill();
    }

    fn program(&self) -> Option<&Path> {
        self.process.program()
    }

    fn contained_by(&self) -> Option<ContainedBy> {
        self.process.contained_by()
    }

    fn identity(&self) -> Option<ProcessIdentity> {
        self.process.identity()
    }

    fn cleared(&mut self) -> BoxFuture<'_, Vec<Leftover>> {
        self.process.cleared()
    }

    fn left(&self) -> Leftovers {
        self.process.left()
    }
}
