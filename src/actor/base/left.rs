//! Processes of a session's CLIs that had not ended in time.

use std::sync::Mutex;

use crate::error::{Error, ErrorKind};
use crate::lock::lock;
use crate::transport::{Leftover, Leftovers};

/// Most incarnations that are asked again, and most processes that are named.
const MOST: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct LeftProcesses(Mutex<Vec<Leftovers>>);

impl LeftProcesses {
    /// Adds an incarnation, and forgets those whose processes have ended. The oldest one is forgotten when there are too many.
    pub(crate) fn add(&self, leftovers: Leftovers) {
        let mut left: Vec<_> = self.ask().into_iter().map(|(leftovers, _)| leftovers).collect();
        left.push(leftovers);
        left.drain(..left.len().saturating_sub(MOST));
        *lock(&self.0) = left;
    }

    /// The error of a session whose CLIs have left processes behind that still run, or of which this is not known.
    pub(crate) fn error(&self) -> Option<Error> {
        let left = self.ask();
        let known = left.iter().filter_map(|(_, processes)| processes.as_ref()).flatten();
        let names: Vec<_> =
            known.take(MOST).map(|Leftover { pid, name }| format!("{pid} ({name})")).collect();
        let message = match (names.join(", "), left.iter().any(|(_, processes)| processes.is_none())) {
            (names, false) if names.is_empty() => return None,
            (names, false) => format!("the session has ended, but processes of its CLIs still run: {names}"),
            (names, true) if names.is_empty() => {
                "the session has ended, but it is not known whether all processes of its CLIs have ended"
                    .to_owned()
            }
            (names, true) => format!(
                "the session has ended, but processes of its CLIs still run: {names}; it is not known whether others do"
            ),
        };
        Some(Error::new(ErrorKind::ProcessesLeft, message).with_help(
            "end these processes yourself: they did not end within `timeouts.reap`, because they run as a user whom this one \
             may not end, wait for a device or a network disk, or the machine is overloaded",
        ))
    }

    /// The incarnations of which a process runs, or may run.
    fn ask(&self) -> Vec<(Leftovers, Option<Vec<Leftover>>)> {
        // A copy: a transport is code of the application, and is asked without the lock.
        let all = lock(&self.0).clone();
        let asked = all.into_iter().map(|leftovers| {
            let processes = leftovers.ask();
            (leftovers, processes)
        });
        asked
            .filter(|(_, processes)| processes.as_ref().is_none_or(|processes| !processes.is_empty()))
            .collect()
    }
}
