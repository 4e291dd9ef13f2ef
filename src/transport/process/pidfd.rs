//! The one thread that waits for the ends of all CLIs, on Linux.
//!
//! Each CLI has a descriptor (a pidfd), which becomes readable when it has ended, and which stands for that process
//! whatever its number is given to later. The thread sleeps in `epoll_wait(2)` over all of them; another may add to
//! the set meanwhile, so nothing has to wake it. It starts with the first CLI and stays.
//!
//! An event is an edge: a process that has ended and is held by a debugger is readable, but not yet ours to look at.
//! There is a second edge when it is let go.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::process::{PidfdFlags, pidfd_open};

use super::exits;
use super::group::Group;

/// How many ends are taken at once. More of them come right after.
const EVENTS: usize = 64;

static ENDS: Mutex<Ends> = Mutex::new(Ends::new(0));

#[derive(Debug)]
struct Ends {
    /// Whose children they are: a fork of the host finds them in its memory as well.
    host: u32,
    /// The set; the thread has it as well.
    epoll: Option<Arc<OwnedFd>>,
    awaited: BTreeMap<u64, Awaited>,
    next: u64,
}

#[derive(Debug)]
struct Awaited {
    group: Arc<Group>,
    pidfd: OwnedFd,
}

/// From now on the end of the leader is noticed.
///
/// # Errors
/// When this system has no such descriptors, or has no more of them.
pub(super) fn watch(group: &Arc<Group>) -> io::Result<()> {
    // It is not reaped, so the number is its own.
    let pidfd = pidfd_open(group.id(), PidfdFlags::empty())?;
    // There are systems that have them and cannot look by them.
    group.may_be_looked_at(&pidfd)?;
    // Held until it is in the list: its end may come at once.
    let mut ends = lock();
    let epoll = ends.running()?;
    let id = ends.next;
    ends.next += 1;
    epoll::add(&epoll, &pidfd, epoll::EventData::new_u64(id), epoll::EventFlags::IN | epoll::EventFlags::ET)?;
    ends.awaited.insert(id, Awaited { group: Arc::clone(group), pidfd });
    Ok(())
}

fn lock() -> MutexGuard<'static, Ends> {
    let mut ends = ENDS.lock().unwrap_or_else(PoisonError::into_inner);
    let host = std::process::id();
    if ends.host != host {
        // Not dropped: what is there belongs to the parent.
        std::mem::forget(std::mem::replace(&mut *ends, Ends::new(host)));
    }
    ends
}

impl Ends {
    const fn new(host: u32) -> Self {
        Self { host, epoll: None, awaited: BTreeMap::new(), next: 0 }
    }

    /// The set, and a thread that waits for it.
    fn running(&mut self) -> io::Result<Arc<OwnedFd>> {
        if let Some(epoll) = &self.epoll {
            return Ok(Arc::clone(epoll));
        }
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let waited_for = Arc::clone(&epoll);
        thread::Builder::new().name("greenroom-exits".into()).spawn(move || wait(&waited_for))?;
        self.epoll = Some(Arc::clone(&epoll));
        Ok(epoll)
    }
}

fn wait(epoll: &OwnedFd) {
    let mut events = Vec::with_capacity(EVENTS);
    loop {
        match epoll::wait(epoll, spare_capacity(&mut events), None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return give_up(error),
        }
        for event in events.drain(..) {
            look(epoll, event.data.u64());
        }
    }
}

fn look(epoll: &OwnedFd, id: u64) {
    // Looked at without the lock: it may take a moment to reap.
    let Some(awaited) = lock().awaited.remove(&id) else { return };
    let looked = catch_unwind(AssertUnwindSafe(|| awaited.group.look_at_leader(&awaited.pidfd)));
    match looked {
        Ok(false) => drop(lock().awaited.insert(id, awaited)),
        Ok(true) | Err(_) => {
            // Whoever waits must not wait for ever; a second word does nothing.
            awaited.group.lost();
            // Closing alone would not do: a child that is just being started may hold a copy.
            epoll::delete(epoll, &awaited.pidfd).ok();
        }
    }
}

/// Someone in this process has closed what is not theirs. Each CLI gets a thread; the next one, a new set.
fn give_up(error: Errno) {
    let awaited = {
        let mut ends = lock();
        ends.epoll = None;
        std::mem::take(&mut ends.awaited)
    };
    for Awaited { group, .. } in awaited.into_values() {
        if exits::by_thread(&group).is_err() {
            group.lost();
        }
    }
    // Last, for it may panic in a subscriber.
    tracing::error!(%error, "cannot wait for the ends of CLIs: a thread waits for each");
}
