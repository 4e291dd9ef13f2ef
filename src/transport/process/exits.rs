//! Who waits for the end of each CLI.
//!
//! It must be noticed without reaping (see `group.rs`), and the CLI must be reaped even when no runtime is left to do
//! it. So it is no matter of a runtime's:
//!
//! - On Linux one thread waits for all, by descriptors of the processes (`pidfd.rs`).
//! - Where there are none, on other systems, on Linux before 5.4 and where a filter of system calls refuses them, a
//!   thread for each CLI sleeps until that has ended.
//!
//! Neither is the thread that starts CLIs: a start that hangs delays no end.

use std::io;
use std::sync::Arc;
use std::thread;

use super::group::Group;

/// Sees to it that the end of the leader is noticed, told, and reaped when its time has come.
pub(super) fn watch(group: &Arc<Group>) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    if let Err(error) = by_pidfd(group) {
        by_thread(group)?;
        tracing::debug!(%error, "no descriptor for the CLI: a thread waits for it");
    }
    #[cfg(not(target_os = "linux"))]
    by_thread(group)?;
    Ok(())
}

#[cfg(target_os = "linux")]
fn by_pidfd(group: &Arc<Group>) -> io::Result<()> {
    #[cfg(test)]
    if super::tests::without_pidfds() {
        return Err(rustix::io::Errno::NOSYS.into());
    }
    super::pidfd::watch(group)
}

/// Waits for one CLI alone.
pub(super) fn by_thread(group: &Arc<Group>) -> io::Result<()> {
    let group = Arc::clone(group);
    let wait = move || group.wait_for_leader();
    thread::Builder::new().name("greenroom-wait".into()).spawn(wait)?;
    Ok(())
}
