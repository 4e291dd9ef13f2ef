//! Users of the system for tests. Only root can run processes as other users, and give files to them.

use std::io::Write;
use std::ops::Range;

/// Ten ids of users that no other test uses, for the `nth` test of this process. `None`, and a note in stderr: this process is not
/// root, so the test is not run.
pub(crate) fn own_users(nth: u32) -> Option<Range<u32>> {
    if !rustix::process::geteuid().is_root() {
        let (thread, mut stderr) = (std::thread::current(), std::io::stderr());
        let test = thread.name().unwrap_or_default();
        // Not with `eprintln!`, which is not shown for a test that passes.
        // An error: nobody reads the note.
        writeln!(stderr, "{test}: not run, for only root can run processes as other users").ok();
        return None;
    }
    // A process has at most 20 such tests, and its id is below 2^22.
    let first = 2_000_000_000 + std::process::id() * 200 + nth * 10;
    Some(first..first + 10)
}
