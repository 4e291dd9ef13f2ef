//! The thread that starts all CLIs of this process, and never ends.
//!
//! Why one thread, and not whoever happens to start a CLI:
//!
//! - The parent-death signal comes when the *thread* that forked ends, even if its process lives on. Worker and
//!   blocking threads of a runtime end with the runtime, or when idle: the CLI would be killed for no reason.
//! - Forking blocks until the child has executed its program.
//!
//! What only looks (for the executable, or for the cause of a failure) is done elsewhere, see `spawn.rs`: a file
//! system that hangs holds up those who ask it, and not this thread. Should it hang here all the same, in the
//! moment between the look and the start, then whoever waits for that start gives it up at some time. The thread
//! is then left to it, and the next job gets another:
//!
//! ```text
//! Idle ──a job──► At work ──done, or a panic──► Idle
//!                    └──its start is given up──► Stuck ──done──► Idle; what it started is killed
//! ```
//!
//! A job waits for a thread that is idle or at work; one is started when all are stuck. So there is one, and one
//! more for each that was ever stuck at the same time.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use tokio::sync::oneshot;

use crate::error::{Error, ErrorKind, Result};

/// As the system shows the thread.
const NAME: &str = "greenroom-cli";

/// Jobs and the threads for them. To be kept in a static: a thread never ends.
#[derive(Debug)]
pub(super) struct Spawner {
    state: Mutex<State>,
    more: Condvar,
}

#[derive(Debug)]
struct State {
    /// Whose threads they are: a fork of the host finds them in its memory, and has none of them.
    host: u32,
    jobs: VecDeque<Job>,
    threads: usize,
    /// The jobs that the threads are at, and whether each has been given up.
    under_way: BTreeMap<u64, bool>,
    next: u64,
}

struct Job {
    id: u64,
    work: Box<dyn FnOnce() + Send>,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Job").field(&self.id).finish()
    }
}

impl Spawner {
    pub(super) const fn new() -> Self {
        Self { state: Mutex::new(State::new(0)), more: Condvar::new() }
    }

    /// Has the work done on the thread, in its turn. Dropping the future takes the work back, or drops what came of
    /// it if it had begun.
    pub(super) async fn run<T: Send + 'static>(
        &'static self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let (reply, done) = oneshot::channel();
        // What nobody wants any more comes back, and is dropped.
        let job = self.submit(Box::new(move || drop(reply.send(work()))));
        let mut ticket = job.map_err(|error| no_thread(&error))?;
        let result = done.await;
        ticket.settled = true;
        result.map_err(|_| panicked("starting the CLI"))
    }

    fn submit(&'static self, work: Box<dyn FnOnce() + Send>) -> io::Result<Ticket> {
        let mut state = self.state();
        let id = state.next;
        state.next += 1;
        state.jobs.push_back(Job { id, work });
        if let Err(error) = self.find_thread(&mut state) {
            let refused = state.jobs.pop_back();
            drop(state);
            drop(refused);
            return Err(error);
        }
        Ok(Ticket { spawner: self, id, settled: false })
    }

    /// Sees that there is a thread for the jobs that wait.
    fn find_thread(&'static self, state: &mut State) -> io::Result<()> {
        let stuck = state.under_way.values().filter(|given_up| **given_up).count();
        if state.jobs.is_empty() {
            return Ok(());
        }
        if state.threads == stuck {
            thread::Builder::new().name(NAME.into()).spawn(|| self.serve())?;
            state.threads += 1;
        }
        self.more.notify_one();
        Ok(())
    }

    fn serve(&self) {
        loop {
            let Job { id, work } = self.next();
            // The hook for panics has told of it, and the reply that is dropped tells who waits.
            drop(catch_unwind(AssertUnwindSafe(work)));
            self.state().under_way.remove(&id);
        }
    }

    fn next(&self) -> Job {
        let mut state = self.state();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                state.under_way.insert(job.id, false);
                return job;
            }
            state = self.more.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn give_up(&'static self, id: u64) {
        let mut state = self.state();
        let waits = state.jobs.iter().position(|job| job.id == id);
        let taken_back = waits.and_then(|position| state.jobs.remove(position));
        if let Some(given_up) = state.under_way.get_mut(&id) {
            *given_up = true;
            // If it fails, the next job tries again, and tells.
            self.find_thread(&mut state).ok();
        }
        drop(state);
        drop(taken_back);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let host = std::process::id();
        if state.host != host {
            // Not dropped: what wakes those who wait belongs to the parent.
            std::mem::forget(std::mem::replace(&mut *state, State::new(host)));
        }
        state
    }
}

impl State {
    const fn new(host: u32) -> Self {
        Self { host, jobs: VecDeque::new(), threads: 0, under_way: BTreeMap::new(), next: 0 }
    }
}

/// Someone waits for a job. When it is dropped before the job is settled, nobody does.
struct Ticket {
    spawner: &'static Spawner,
    id: u64,
    settled: bool,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.settled {
            self.spawner.give_up(self.id);
        }
    }
}

/// Does the work on a thread that ends with it: work that may hang, and that neither the thread above nor the end of
/// a runtime should wait for.
pub(super) async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let (reply, done) = oneshot::channel();
    thread::Builder::new()
        .name("greenroom-look".into())
        .spawn(move || drop(reply.send(work())))
        .map_err(|error| no_thread(&error))?;
    done.await.map_err(|_| panicked("looking for the CLI"))
}

fn no_thread(error: &io::Error) -> Error {
    Error::new(ErrorKind::Spawn, format!("no thread to start the CLI: {error}"))
}

fn panicked(what: &str) -> Error {
    Error::new(ErrorKind::Spawn, format!("{what} panicked"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread::ThreadId;

    use super::super::tests::in_time;
    use super::*;

    fn spawner() -> &'static Spawner {
        Box::leak(Box::new(Spawner::new()))
    }

    async fn run<T: Send + 'static>(
        spawner: &'static Spawner,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        in_time(spawner.run(work)).await
    }

    async fn thread_of(spawner: &'static Spawner) -> ThreadId {
        run(spawner, || thread::current().id()).await.unwrap()
    }

    /// Work that says when it has begun, and does not end before it is told to.
    fn slow<T: Send + 'static>(result: T) -> (Sender<()>, oneshot::Receiver<()>, impl FnOnce() -> T + Send) {
        let (go, gone): (_, Receiver<()>) = channel();
        let (begin, begun) = oneshot::channel();
        let work = move || {
            begin.send(()).unwrap();
            gone.recv().ok();
            result
        };
        (go, begun, work)
    }

    #[tokio::test]
    async fn all_work_is_done_on_one_thread() {
        let spawner = spawner();
        let threads = futures_util::future::join_all((0..32).map(|_| thread_of(spawner))).await;
        assert!(threads.iter().all(|thread| *thread == threads[0]), "{threads:?}");
        assert_eq!(spawner.state().threads, 1);
        let name = run(spawner, || thread::current().name().map(str::to_owned)).await.unwrap();
        assert_eq!(name.as_deref(), Some("greenroom-cli"));
    }

    #[tokio::test]
    async fn the_thread_outlives_the_runtime_of_whoever_used_it_first() {
        let spawner = spawner();
        let on_a_runtime = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(thread_of(spawner))
        };
        let first = thread::spawn(on_a_runtime).join().unwrap();
        assert_eq!(first, thread::spawn(on_a_runtime).join().unwrap());
        assert_eq!(first, thread_of(spawner).await);
    }

    #[tokio::test]
    async fn a_panic_is_an_error_and_the_thread_goes_on() {
        let spawner = spawner();
        let before = thread_of(spawner).await;
        let error = run(spawner, || panic!("on purpose")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Spawn);
        assert!(error.to_string().contains("panicked"), "{error}");
        assert_eq!(before, thread_of(spawner).await);
        assert_eq!(spawner.state().threads, 1);
    }

    #[tokio::test]
    async fn work_that_waits_is_taken_back_when_nobody_waits_for_it() {
        let spawner = spawner();
        let (go, begun, work) = slow(());
        let mut first = Box::pin(spawner.run(work));
        assert!(futures_util::poll!(&mut first).is_pending());
        in_time(begun).await.unwrap();
        let held = Arc::new(());
        let mut second = Box::pin(spawner.run({
            let held = Arc::clone(&held);
            move || drop(held)
        }));
        assert!(futures_util::poll!(&mut second).is_pending());
        assert_eq!(Arc::strong_count(&held), 2);
        drop(second);
        assert_eq!(Arc::strong_count(&held), 1, "taken back");
        assert_eq!(spawner.state().threads, 1);
        go.send(()).unwrap();
        in_time(first).await.unwrap();
    }

    /// As long as somebody waits for it, others wait behind it; then it holds up nobody.
    #[tokio::test]
    async fn work_that_hangs_is_left_behind_once_it_is_given_up() {
        let spawner = spawner();
        let held = Arc::new(());
        let (go, begun, work) = slow(Arc::clone(&held));
        let mut hangs = Box::pin(spawner.run(work));
        assert!(futures_util::poll!(&mut hangs).is_pending());
        in_time(begun).await.unwrap();
        let mut waits = Box::pin(spawner.run(|| thread::current().id()));
        assert!(futures_util::poll!(&mut waits).is_pending());
        assert_eq!(spawner.state().threads, 1);

        drop(hangs);
        let second = in_time(waits).await.unwrap();
        assert_eq!(second, thread_of(spawner).await);
        assert_eq!(spawner.state().threads, 2);

        // What it comes to is dropped, and its thread is there for others again.
        go.send(()).unwrap();
        let gone = async {
            while !spawner.state().under_way.is_empty() {
                tokio::task::yield_now().await;
            }
        };
        in_time(gone).await;
        assert_eq!(Arc::strong_count(&held), 1);
        let (go, begun, work) = slow(());
        let mut hangs = Box::pin(spawner.run(work));
        assert!(futures_util::poll!(&mut hangs).is_pending());
        in_time(begun).await.unwrap();
        drop(hangs);
        thread_of(spawner).await;
        assert_eq!(spawner.state().threads, 2, "no third one");
        drop(go);
    }

    #[tokio::test]
    async fn a_fork_of_the_host_has_threads_of_its_own() {
        let spawner = spawner();
        thread_of(spawner).await;
        // What a fork finds in its memory: threads that there are not.
        spawner.state().under_way.insert(99, false);
        spawner.state.lock().unwrap().host = 0;
        assert_eq!(spawner.state().threads, 0);
        let (go, begun, work) = slow(());
        let mut first = Box::pin(spawner.run(work));
        assert!(futures_util::poll!(&mut first).is_pending());
        in_time(begun).await.unwrap();
        assert_eq!(spawner.state().threads, 1);
        go.send(()).unwrap();
        in_time(first).await.unwrap();
    }
}
