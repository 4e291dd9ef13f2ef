//! Processes of a session's CLIs that could not be ended.

use std::sync::Mutex;

use crate::error::{Error, ErrorKind};
use crate::lock::lock;
use crate::transport::Leftover;

/// Most processes that are named.
const MOST: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct LeftProcesses(Mutex<Vec<Leftover>>);

impl LeftProcesses {
    pub(crate) fn add(&self, processes: &[Leftover]) {
        let mut left = lock(&self.0);
        let room = MOST.saturating_sub(left.len());
        left.extend(processes.iter().take(room).cloned());
    }

    /// The error of a session that has left processes behind.
    pub(crate) fn error(&self) -> Option<Error> {
        let names: Vec<_> =
            lock(&self.0).iter().map(|Leftover { pid, name }| format!("{pid} ({name})")).collect();
        (!names.is_empty()).then(|| {
            let message = format!(
                "the session has ended, but processes of its CLIs had not ended within `timeouts.reap`: {}",
                names.join(", ")
            );
            Error::new(ErrorKind::ProcessesLeft, message).with_help(
                "end these processes yourself: they run as a user whom this one may not end, wait for a device or a network \
                 disk, or the machine is overloaded",
            )
        })
    }
}
