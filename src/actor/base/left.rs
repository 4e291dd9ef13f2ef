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
    /// Adds an incarnation. The oldest one is forgotten when there are too many.
    pub(crate) fn add(&self, leftovers: Leftovers) {
        let mut left = lock(&self.0);
        left.push(leftovers);
        let too_many = left.len().saturating_sub(MOST);
        left.drain(..too_many);
    }

    /// The error of a session whose CLIs have left processes behind that still run, or of which this is not known.
    pub(crate) async fn error(&self, limit: Duration) -> Option<Error> {
        let all = lock(&self.0).clone();
        let left = ask(all, limit).await;
        let known: BTreeMap<_, _> =
            left.iter().flatten().flatten().map(|Leftover { pid, name, .. }| (*pid, name.as_str())).collect();
        let names: Vec<_> = known.iter().take(MOST).map(|(pid, name)| format!("{pid} ({name})")).collect();
        let names = names.join(", ");
        let is_known = left.iter().all(Option::is_some);
        let (message, help) = match (names.as_str(), is_known) {
            ("", true) => return None,
            ("", false) => (
                "the session has ended, but it is not known whether all processes of its CLIs have ended"
                    .to_owned(),
                "call `stop` again to look again; the machine is overloaded, or this process has too few file descriptors: \
                 raise `timeouts.reap`, or the limit of open files",
            ),
            (names, is_known) => (
                format!(
                    "the session has ended, but processes of its CLIs still run: {names}{}",
                    if is_known { "" } else { "; it is not known whether others do" }
                ),
                "end these processes yourself: they did not end within `timeouts.reap`, because they run as a user whom this \
                 one may not end, wait for a device or a network disk, or the machine is overloaded",
            ),
        };
        Some(Error::new(ErrorKind::ProcessesLeft, message).with_help(help))
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
