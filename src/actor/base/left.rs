//! Processes of a session's CLIs that had not ended in time.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::lock::lock;
use crate::transport::{Leftover, Leftovers};

/// Most incarnations that are asked again, and most processes that are named.
const MOST: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct LeftProcesses(Mutex<Vec<Leftovers>>);

impl LeftProcesses {
    /// Adds an incarnation, and forgets those whose processes have ended. The oldest one is forgotten when there are too many.
    pub(crate) async fn add(&self, leftovers: Leftovers, limit: Duration) {
        let mut left: Vec<_> =
            self.remaining(limit).await.into_iter().map(|(leftovers, _)| leftovers).collect();
        left.push(leftovers);
        left.drain(..left.len().saturating_sub(MOST));
        *lock(&self.0) = left;
    }

    /// The error of a session whose CLIs have left processes behind that still run, or of which this is not known.
    pub(crate) async fn error(&self, limit: Duration) -> Option<Error> {
        let left = self.remaining(limit).await;
        let known: BTreeMap<_, _> = left
            .iter()
            .filter_map(|(_, processes)| processes.as_ref())
            .flatten()
            .map(|Leftover { pid, name }| (*pid, name.as_str()))
            .collect();
        let names: Vec<_> = known.iter().take(MOST).map(|(pid, name)| format!("{pid} ({name})")).collect();
        let names = names.join(", ");
        let is_known = left.iter().all(|(_, processes)| processes.is_some());
        let (message, help) = match (names.as_str(), is_known) {
            ("", true) => return None,
            ("", false) => (
                "the session has ended, but it is not known whether all processes of its CLIs have ended"
                    .to_owned(),
                "call `stop` again to look again; the machine is overloaded, or this process has too few file descriptors: \
                 raise `timeouts.reap`, or the limit of open files",
            ),
            (names, _) => (
                format!("the session has ended, but processes of its CLIs still run: {names}"),
                "end these processes yourself: they did not end within `timeouts.reap`, because they run as a user whom this \
                 one may not end, wait for a device or a network disk, or the machine is overloaded",
            ),
        };
        Some(Error::new(ErrorKind::ProcessesLeft, message).with_help(help))
    }

    /// The incarnations of which a process runs, or may run.
    async fn remaining(&self, limit: Duration) -> Vec<(Leftovers, Option<Vec<Leftover>>)> {
        let all = lock(&self.0).clone();
        let answers = ask(all.clone(), limit).await;
        let runs = |processes: &Option<Vec<Leftover>>| processes.as_ref().is_none_or(|some| !some.is_empty());
        all.into_iter().zip(answers).filter(|(_, processes)| runs(processes)).collect()
    }
}

/// Asks on a blocking thread: a look at a process that hangs in the system may hang as well. `None` for each if the answers do
/// not come within `limit`.
pub(crate) async fn ask(all: Vec<Leftovers>, limit: Duration) -> Vec<Option<Vec<Leftover>>> {
    let number = all.len();
    if number == 0 {
        return Vec::new();
    }
    let answers = tokio::task::spawn_blocking(move || all.iter().map(Leftovers::ask).collect());
    match tokio::time::timeout(limit, answers).await {
        Ok(Ok(answers)) => answers,
        // Too late, or the code of the transport panicked.
        Ok(Err(_)) | Err(_) => vec![None; number],
    }
}
