//! Waits for the end of child processes: of each child, and of the guardian.
//!
//! An end must be noticed without reaping the process (`group.rs` says why), and also when no runtime is left. So
//! threads wait, not tasks:
//!
//! - On Linux one thread, `greenroom-exits`, waits for all children. Each child has a pidfd: a descriptor that becomes
//!   readable when the process ends, and that never means another process, even when the process id is reused. The
//!   thread sleeps in `epoll_wait(2)`; children are added to its set while it sleeps. It starts with the first child and
//!   never ends.
//! - Without pidfds (other systems, Linux before 5.3, a filter that refuses the system call) each child has a thread of
//!   its own, which sleeps in `waitid(2)`.
//!
//! The thread that starts children does not wait for ends, so a start that hangs delays no end.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;

use rustix::process::{Pid, WaitId, WaitIdOptions, WaitIdStatus, waitid};

/// Environment variable that makes the tests of this binary run without pidfds.
#[cfg(test)]
pub(super) const WITHOUT_PIDFDS: &str = "GREENROOM_TEST_WITHOUT_PIDFDS";

/// A child process whose end is noticed without reaping it.
pub(super) trait WatchedChild: Send + Sync {
    /// `None` where the system has no pidfds.
    fn pidfd(&self) -> Option<&OwnedFd>;

    /// Returns whether the child has ended, and acts on the end if so. Called when the pidfd is readable. A process
    /// that a debugger holds makes its pidfd readable twice; the first time this returns false.
    fn poll_exit(&self) -> bool;

    /// Blocks until the child has ended, and acts on the end.
    fn wait_exit(&self);

    /// Nobody can wait for the child any more. Does nothing if its end was noticed.
    fn abandon(&self) {}

    /// The name of the thread that waits for this child alone.
    fn thread_name(&self) -> &'static str;
}

/// Opens a pidfd for a child of this process that is not reaped yet.
pub(super) fn pidfd(child: Pid) -> Option<OwnedFd> {
    #[cfg(test)]
    if std::env::var_os(WITHOUT_PIDFDS).is_some() {
        return None;
    }
    #[cfg(target_os = "linux")]
    return rustix::process::pidfd_open(child, rustix::process::PidfdFlags::empty()).ok();
    #[cfg(not(target_os = "linux"))]
    {
        _ = child;
        None
    }
}

/// Blocks until a child of this process has ended, and leaves it unreaped.
pub(super) fn wait_without_reaping(child: Pid) -> rustix::io::Result<Option<WaitIdStatus>> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    rustix::io::retry_on_intr(|| waitid(WaitId::Pid(child), options))
}

/// Has the end of the child noticed, by its pidfd if that works and else by a thread.
///
/// # Errors
/// If the thread cannot be started.
pub(super) fn watch<C: WatchedChild + 'static>(child: &Arc<C>) -> io::Result<()> {
    let child: Arc<dyn WatchedChild> = child.clone();
    #[cfg(target_os = "linux")]
    if let Err(error) = epoll::add(&child) {
        wait_on_thread(child)?;
        tracing::debug!(%error, "no pidfd for a child process: a thread waits for it");
    }
    #[cfg(not(target_os = "linux"))]
    wait_on_thread(child)?;
    Ok(())
}

fn wait_on_thread(child: Arc<dyn WatchedChild>) -> io::Result<()> {
    let name = child.thread_name().to_owned();
    thread::Builder::new().name(name).spawn(move || child.wait_exit())?;
    Ok(())
}

/// The thread that waits for all children by their pidfds.
#[cfg(target_os = "linux")]
mod epoll {
    use std::collections::BTreeMap;
    use std::io;
    use std::os::fd::OwnedFd;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::{Arc, Mutex};
    use std::thread;

    use rustix::buffer::spare_capacity;
    use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
    use rustix::io::Errno;

    use super::{WatchedChild, wait_on_thread};
    use crate::lock;

    /// Most events that one call of `epoll_wait` returns.
    const EVENTS: usize = 64;

    static SET: Mutex<EpollSet> = Mutex::new(EpollSet { epoll: None, children: BTreeMap::new(), next_id: 0 });

    struct EpollSet {
        /// `None` until the thread runs.
        epoll: Option<Arc<OwnedFd>>,
        children: BTreeMap<u64, Arc<dyn WatchedChild>>,
        next_id: u64,
    }

    impl EpollSet {
        /// The epoll descriptor; starts the thread if there is none.
        fn running(&mut self) -> io::Result<Arc<OwnedFd>> {
            if let Some(epoll) = &self.epoll {
                return Ok(Arc::clone(epoll));
            }
            let epoll = Arc::new(epoll::create(CreateFlags::CLOEXEC)?);
            let waited_for = Arc::clone(&epoll);
            thread::Builder::new().name("greenroom-exits".into()).spawn(move || serve(&waited_for))?;
            self.epoll = Some(Arc::clone(&epoll));
            Ok(epoll)
        }
    }

    pub(super) fn add(child: &Arc<dyn WatchedChild>) -> io::Result<()> {
        let pidfd = child.pidfd().ok_or(Errno::NOSYS)?;
        // Locked until the child is in the map: its event may come at once.
        let mut set = lock(&SET);
        let epoll = set.running()?;
        let id = set.next_id;
        set.next_id += 1;
        epoll::add(&epoll, pidfd, EventData::new_u64(id), EventFlags::IN | EventFlags::ET)?;
        set.children.insert(id, Arc::clone(child));
        Ok(())
    }

    fn serve(epoll: &OwnedFd) {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            match epoll::wait(epoll, spare_capacity(&mut events), None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => {
                    // Someone in this process has closed the descriptor. The next child gets a new one.
                    let children = {
                        let mut set = lock(&SET);
                        set.epoll = None;
                        std::mem::take(&mut set.children)
                    };
                    for child in children.into_values() {
                        if wait_on_thread(Arc::clone(&child)).is_err() {
                            child.abandon();
                        }
                    }
                    return tracing::error!(%error, "cannot wait for children by epoll: a thread waits for each");
                }
            }
            for event in events.drain(..) {
                readable(epoll, event.data.u64());
            }
        }
    }

    fn readable(epoll: &OwnedFd, id: u64) {
        // Polled without the lock: reaping may take a moment.
        let Some(child) = lock(&SET).children.remove(&id) else { return };
        if let Ok(false) = catch_unwind(AssertUnwindSafe(|| child.poll_exit())) {
            lock(&SET).children.insert(id, child);
            return;
        }
        // Dropping the pidfd would not remove it from the set while a child that is being started holds a copy.
        if let Some(pidfd) = child.pidfd() {
            epoll::delete(epoll, pidfd).ok();
        }
        // After a panic above, callers that wait for the exit must not wait for ever.
        child.abandon();
    }
}
