//! A spawned task that ends when its owner does.

use tokio::task::JoinHandle;

/// A task that is aborted when its owner drops it.
#[derive(Debug)]
pub(crate) struct Task(JoinHandle<()>);

impl Task {
    pub(crate) fn spawn(future: impl Future<Output = ()> + Send + 'static) -> Self {
        #[allow(clippy::disallowed_methods, reason = "`Task` is the owner that the rule asks for")]
        Self(tokio::spawn(future))
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}
