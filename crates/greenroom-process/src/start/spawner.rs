//! The thread that starts all children of this process, and never ends.
//!
//! Children are started on one thread, not on the thread of the caller, because
//!
//! - the parent-death signal fires when the *thread* that forked ends, even if its process lives on. Worker and blocking
//!   threads of a runtime end with the runtime, or when idle: the child would be killed for no reason.
//! - forking blocks until the child has executed its program.
//!
//! Finding the executable, or the cause of a failure, happens on other threads (`spawn.rs`), so a file system that
//! hangs does not block this one. If a start hangs all the same, its caller drops the future some time later. The
//! thread is then stuck with that job, and the next job gets another thread:
//!
//! ```text
//! idle ──a job──► running ──done, or a panic──► idle
//!                    └──its future is dropped──► stuck ──done──► idle; the child that was started is killed
//! ```
//!
//! A job waits for a thread that is idle or running; a thread is started only when all threads are stuck.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use tokio::sync::oneshot;

use crate::aside::{no_thread, panicked};
use crate::error::Result;
use crate::lock;

/// The name of the thread in the system.
const NAME: &str = "greenroom-start";

/// A queue of jobs and the threads that run them. Kept in a static, because the threads never end.
pub(crate) struct Spawner {
    queue: Mutex<SpawnQueue>,
    more: Condvar,
}

struct SpawnQueue {
    waiting: VecDeque<(u64, Work)>,
    /// The jobs that threads have taken. True: the job's future was dropped, so its thread counts as stuck.
    running: BTreeMap<u64, bool>,
    threads: usize,
    next_id: u64,
}

type Work = Box<dyn FnOnce() + Send>;

impl Spawner {
    pub(crate) const fn new() -> Self {
        let queue = SpawnQueue { waiting: VecDeque::new(), running: BTreeMap::new(), threads: 0, next_id: 0 };
        Self { queue: Mutex::new(queue), more: Condvar::new() }
    }

    /// Runs `work` on the thread, after the jobs before it. Dropping the future removes a waiting job, or drops the
    /// result of a running one.
    pub(crate) async fn run<T: Send + 'static>(
        &'static self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let (reply, done) = oneshot::channel();
        // A result that nobody waits for comes back from `send` and is dropped.
        let id =
            self.submit(Box::new(move || drop(reply.send(work())))).map_err(|error| no_thread(&error))?;
        let guard = AbandonOnDrop { spawner: self, id };
        let result = done.await;
        std::mem::forget(guard);
        result.map_err(|_| panicked("starting a child"))
    }

    /// Number of jobs that no thread has taken.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.queue().waiting.len()
    }

    fn submit(&'static self, work: Work) -> io::Result<u64> {
        let mut queue = self.queue();
        let id = queue.next_id;
        queue.next_id += 1;
        queue.waiting.push_back((id, work));
        if let Err(error) = self.find_thread(&mut queue) {
            let refused = queue.waiting.pop_back();
            drop(queue);
            drop(refused);
            return Err(error);
        }
        Ok(id)
    }

    /// Makes sure that a thread will take the waiting jobs.
    fn find_thread(&'static self, queue: &mut SpawnQueue) -> io::Result<()> {
        if queue.waiting.is_empty() {
            return Ok(());
        }
        if queue.threads == queue.running.values().filter(|is_stuck| **is_stuck).count() {
            thread::Builder::new().name(NAME.into()).spawn(|| self.serve())?;
            queue.threads += 1;
        }
        self.more.notify_one();
        Ok(())
    }

    fn serve(&self) {
        loop {
            let (id, work) = self.next();
            // The panic hook reports a panic; the dropped reply tells the caller.
            drop(catch_unwind(AssertUnwindSafe(work)));
            self.queue().running.remove(&id);
        }
    }

    fn next(&self) -> (u64, Work) {
        let mut queue = self.queue();
        loop {
            if let Some(job) = queue.waiting.pop_front() {
                queue.running.insert(job.0, false);
                return job;
            }
            queue = self.more.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn abandon(&'static self, id: u64) {
        let mut queue = self.queue();
        let position = queue.waiting.iter().position(|job| job.0 == id);
        let removed = position.and_then(|position| queue.waiting.remove(position));
        if let Some(is_stuck) = queue.running.get_mut(&id) {
            *is_stuck = true;
            // If this fails, the next job tries again and gets the error.
            self.find_thread(&mut queue).ok();
        }
        drop(queue);
        drop(removed);
    }

    fn queue(&self) -> MutexGuard<'_, SpawnQueue> {
        lock(&self.queue)
    }
}

/// Abandons a job when its future is dropped.
struct AbandonOnDrop {
    spawner: &'static Spawner,
    id: u64,
}

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        self.spawner.abandon(self.id);
    }
}

// Guards: the start of a CLI hangs in the system, on a disk that is out of reach
#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread::ThreadId;

    use super::*;
    use crate::error::ErrorKind;
    use crate::tests::in_time;

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

    /// Work that reports its start, and ends when the sender is used or dropped.
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
        assert_eq!(spawner.queue().threads, 1);
        let name = run(spawner, || thread::current().name().map(str::to_owned)).await.unwrap();
        assert_eq!(name.as_deref(), Some("greenroom-start"));
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
        assert_eq!(spawner.queue().threads, 1);
    }

    #[tokio::test]
    async fn dropping_the_future_removes_a_waiting_job() {
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
        assert_eq!(Arc::strong_count(&held), 1, "removed");
        assert_eq!(spawner.queue().threads, 1);
        go.send(()).unwrap();
        in_time(first).await.unwrap();
    }

    /// Other jobs wait behind a job that hangs until its future is dropped.
    #[tokio::test]
    async fn an_abandoned_job_that_hangs_blocks_no_other() {
        let spawner = spawner();
        let held = Arc::new(());
        let (go, begun, work) = slow(Arc::clone(&held));
        let mut hangs = Box::pin(spawner.run(work));
        assert!(futures_util::poll!(&mut hangs).is_pending());
        in_time(begun).await.unwrap();
        let mut waits = Box::pin(spawner.run(|| thread::current().id()));
        assert!(futures_util::poll!(&mut waits).is_pending());
        assert_eq!(spawner.queue().threads, 1);

        drop(hangs);
        let second = in_time(waits).await.unwrap();
        assert_eq!(second, thread_of(spawner).await);
        assert_eq!(spawner.queue().threads, 2);

        // The result is dropped, and the thread takes other jobs again.
        go.send(()).unwrap();
        let gone = async {
            while !spawner.queue().running.is_empty() {
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
        assert_eq!(spawner.queue().threads, 2, "no third one");
        drop(go);
    }
}
