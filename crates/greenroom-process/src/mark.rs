//! The mark of a child: a random value in an environment variable, which all descendants inherit.
//!
//! A scan of `/proc/*/environ` finds it; these files hold the environment that a program was started with. Processes
//! that this user must not read are skipped. A host that runs under another host's child keeps the outer mark beside its
//! own, so the outer host finds the processes of the inner host as well.

use std::fs::File;
use std::io;

use memchr::memmem;
use rustix::process::Pid;

use super::environment::{self, Facts, Patience, Since};

pub(crate) const VARIABLE: &str = "GREENROOM_INCARNATION";

/// Separates the marks of nested hosts.
const SEPARATOR: &str = ",";

/// The value of [`VARIABLE`] for a child: the marks that this process has inherited, then `mark`.
pub(crate) fn value(mark: &str) -> String {
    match std::env::var(VARIABLE) {
        Ok(outer) => format!("{outer}{SEPARATOR}{mark}"),
        Err(_) => mark.to_owned(),
    }
}

/// The beginning of marks of a watchdog's children, after the mark of the host.
pub(crate) fn of_watchdog(watchdog: u64) -> String {
    format!("w{watchdog}.")
}

/// Whether this system has `/proc/*/environ`.
pub(crate) fn can_be_found() -> bool {
    File::open("/proc/self/environ").is_ok()
}

/// Reads the environment of each process, and calls `found` with the position in `marks` of the mark that it has.
///
/// # Errors
/// There may be processes that `found` was not called with.
pub(crate) fn scan(
    marks: &[&str],
    patience: &mut Patience,
    mut found: impl FnMut(usize, Pid),
) -> io::Result<()> {
    environment::each(Facts::Environment, patience, &mut Since::default(), |pid, environment| {
        if let Some(position) = position(marks, environment) {
            found(position, pid);
        }
    })
}

/// True if the process shows the mark now, or if nobody can tell. A process in `execve` shows none.
pub(crate) fn has(mark: &str, pid: Pid) -> bool {
    environment::of(Facts::Environment, pid)
        .map_or(true, |environment| position(&[mark], &environment).is_some())
}

/// The position in `marks` of the first one that the environment has.
pub(crate) fn position(marks: &[&str], environment: &[u8]) -> Option<usize> {
    let start = memmem::find(environment, VARIABLE.as_bytes())?;
    let has = |mark: &str| !mark.is_empty() && memmem::find(&environment[start..], mark.as_bytes()).is_some();
    marks.iter().position(|mark| has(mark))
}
