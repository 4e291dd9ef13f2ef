//! Quick handlers of one actor, which share a task.
//!
//! ```text
//!   add ──► ready ── polled by a runner ──┬─► ended
//!             │                           ├─► waits: a task of its own
//!             │                           └─► took long: those that wait get a task each
//!             └─ no runner has taken one for a while, because a handler blocks its thread: another runner
//! ```
//!
//! A task for each handler costs more than a quick handler does, most of all if another thread takes the task. A handler
//! that blocks its thread must not hold up the others. So the list belongs to no runner, and a watcher starts another runner
//! when none takes a handler. The tasks that the blocked thread has woken, such as the writer of the answers before, wait
//! for that thread: tokio lets no other thread take the task that was woken last.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::task::coop::has_budget_remaining;
use tokio::time::sleep;
use tokio_util::task::TaskTracker;

use crate::actor::base::task::Task;
use crate::blocking::caught::drop_quietly;
use crate::lock::lock;
use crate::tool::run::pace::Pace;

type QuickHandler = BoxFuture<'static, ()>;

/// Quick handlers that wait for their first poll.
pub(super) struct ReadyHandlers {
    shared: Arc<Ready>,
    watcher: Option<Task>,
}

struct Ready {
    /// Nothing may panic under this lock, and no code of the application runs under it.
    list: Mutex<ReadyList>,
    tasks: TaskTracker,
    /// The time of a poll after which the handlers that wait get tasks of their own.
    slow: Duration,
}

#[derive(Default)]
struct ReadyList {
    handlers: VecDeque<QuickHandler>,
    /// Number of runners.
    runners: usize,
    /// Number of runners that the watcher has found stuck.
    stuck: usize,
    /// Number of handlers that runners have taken so far.
    taken: u64,
    is_watched: bool,
}

impl ReadyList {
    fn runner_ends(&mut self) {
        self.runners -= 1;
        self.stuck = self.stuck.min(self.runners);
    }
}

impl ReadyHandlers {
    pub(super) fn new(tasks: TaskTracker, slow: Duration) -> Self {
        Self { shared: Arc::new(Ready { list: Mutex::default(), tasks, slow }), watcher: None }
    }

    /// Adds handlers, and starts a runner if there is none.
    pub(super) fn add(&mut self, handlers: &mut Vec<QuickHandler>) {
        let (needs_runner, is_watched) = {
            let mut list = lock(&self.shared.list);
            list.handlers.extend(handlers.drain(..));
            let needs_runner = list.runners <= list.stuck;
            list.runners += usize::from(needs_runner);
            (needs_runner, std::mem::replace(&mut list.is_watched, true))
        };
        if needs_runner {
            self.shared.clone().start_runner();
        }
        if !is_watched {
            self.watcher = Some(Task::spawn(self.shared.clone().watch()));
        }
    }

    /// Drops the handlers that wait.
    pub(super) fn clear(&self) {
        let handlers = std::mem::take(&mut lock(&self.shared.list).handlers);
        handlers.into_iter().for_each(drop_quietly);
    }
}

impl Ready {
    fn start_runner(self: Arc<Self>) {
        drop(self.tasks.clone().spawn(Runner { ready: self, has_ended: false }));
    }

    /// Polls the handlers, each once. Yields after a while, for the tasks that the answers have woken, and when tokio's
    /// budget for one task is used up.
    fn run(&self, cx: &mut Context<'_>) -> Poll<()> {
        let began = std::time::Instant::now();
        let mut now = began;
        while let Some(mut handler) = self.take() {
            // As in a task of its own, a panic ends only this handler.
            match catch_unwind(AssertUnwindSafe(|| handler.as_mut().poll(cx))) {
                Ok(Poll::Pending) => drop(self.tasks.spawn(handler)),
                Ok(Poll::Ready(())) | Err(_) => drop_quietly(handler),
            }
            let before = std::mem::replace(&mut now, std::time::Instant::now());
            if now - before >= self.slow {
                self.spread();
            }
            if now - began > Pace::BATCH || !has_budget_remaining() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    }

    /// The next handler; `None` ends the runner.
    fn take(&self) -> Option<QuickHandler> {
        let mut list = lock(&self.list);
        let handler = list.handlers.pop_front();
        match handler {
            Some(_) => list.taken += 1,
            None => {
                list.runner_ends();
                // The capacity for a burst is not kept.
                list.handlers.shrink_to(64);
            }
        }
        handler
    }

    /// Gives each handler that waits a task of its own.
    fn spread(&self) {
        let handlers = std::mem::take(&mut lock(&self.list).handlers);
        for handler in handlers {
            drop(self.tasks.spawn(handler));
        }
    }

    /// Starts another runner whenever the runners make no progress. Ends when no handler waits.
    async fn watch(self: Arc<Self>) {
        let mut seen = 0;
        loop {
            sleep(Pace::STUCK).await;
            let is_stuck = {
                let mut list = lock(&self.list);
                if list.handlers.is_empty() {
                    list.is_watched = false;
                    return;
                }
                let is_stuck =
                    list.taken == std::mem::replace(&mut seen, list.taken) && !list.handlers.is_empty();
                if is_stuck {
                    list.stuck = list.runners;
                    list.runners += 1;
                }
                is_stuck
            };
            if is_stuck {
                self.clone().start_runner();
            }
        }
    }
}

/// The task that polls the handlers; it ends when none waits.
struct Runner {
    ready: Arc<Ready>,
    has_ended: bool,
}

impl Future for Runner {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let polled = self.ready.run(cx);
        self.has_ended = polled.is_ready();
        polled
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        if !self.has_ended {
            lock(&self.ready.list).runner_ends();
        }
    }
}

// Guards: isolated
#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::sync::oneshot;
    use tokio::task::Id;

    use super::*;

    struct Stage {
        ready: ReadyHandlers,
        tasks: TaskTracker,
        note: mpsc::Sender<Id>,
        noted: mpsc::Receiver<Id>,
    }

    impl Stage {
        fn new(slow: Duration) -> Self {
            let (tasks, (note, noted)) = (TaskTracker::new(), mpsc::channel());
            Self { ready: ReadyHandlers::new(tasks.clone(), slow), tasks, note, noted }
        }

        /// A handler that notes its task and then does something.
        fn handler(&self, then: impl Future<Output = ()> + Send + 'static) -> QuickHandler {
            let note = self.note.clone();
            Box::pin(async move {
                note.send(tokio::task::id()).unwrap();
                then.await;
            })
        }

        /// The tasks that handlers began on, in order.
        async fn ended(self) -> Vec<Id> {
            self.tasks.close();
            self.tasks.wait().await;
            self.noted.try_iter().collect()
        }
    }

    const HOUR: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn quick_handlers_share_a_task_and_one_that_waits_or_panics_holds_up_none() {
        let mut stage = Stage::new(HOUR);
        let (release, released) = oneshot::channel::<()>();
        let later = stage.note.clone();
        let waits = async move {
            released.await.unwrap();
            later.send(tokio::task::id()).unwrap();
        };
        let panics = async { panic!("on purpose") };
        let releases = async { release.send(()).unwrap() };
        let mut handlers = vec![stage.handler(waits), stage.handler(panics), stage.handler(releases)];
        stage.ready.add(&mut handlers);
        assert_eq!(stage.noted.try_iter().count(), 0, "handlers run on no task but their own");
        let tasks = stage.ended().await;
        assert_eq!((tasks.len(), tasks[0], tasks[1]), (4, tasks[1], tasks[2]));
        assert_ne!(tasks[0], tasks[3], "a handler that waits has a task of its own");
    }

    #[tokio::test]
    async fn handlers_behind_a_slow_one_get_tasks_of_their_own() {
        let mut stage = Stage::new(Duration::ZERO);
        let mut handlers: Vec<_> = (0..3).map(|_| stage.handler(async {})).collect();
        stage.ready.add(&mut handlers);
        let tasks = stage.ended().await;
        assert!(tasks[0] != tasks[1] && tasks[1] != tasks[2] && tasks[0] != tasks[2], "{tasks:?}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_handler_that_blocks_its_thread_holds_up_no_other() {
        let mut stage = Stage::new(HOUR);
        let (release, released) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let blocks = async move { tell.send(released.recv_timeout(Duration::from_secs(60))).unwrap() };
        let releases = async move { release.send(()).unwrap() };
        let mut handlers = vec![stage.handler(blocks), stage.handler(releases)];
        stage.ready.add(&mut handlers);
        assert_eq!(stage.ended().await.len(), 2);
        assert_eq!(told.recv().unwrap(), Ok(()), "the second handler waited for the first");
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_is_used_again_has_a_runner_and_a_watcher_again() {
        let mut stage = Stage::new(HOUR);
        for _ in 0..3 {
            let mut handlers = vec![stage.handler(async {}), stage.handler(async {})];
            stage.ready.add(&mut handlers);
            assert!(lock(&stage.ready.shared.list).is_watched);
            tokio::time::sleep(3 * Pace::STUCK).await;
            let list = lock(&stage.ready.shared.list);
            assert_eq!((list.handlers.len(), list.runners, list.is_watched), (0, 0, false));
        }
        assert_eq!(stage.ended().await.len(), 6);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn handlers_that_wait_behind_a_blocked_one_end_with_their_actor() {
        struct Told(mpsc::Sender<()>);

        impl Drop for Told {
            fn drop(&mut self) {
                self.0.send(()).unwrap();
            }
        }

        let mut stage = Stage::new(HOUR);
        let (began, begun) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let blocks = async move {
            began.send(()).unwrap();
            released.recv_timeout(Duration::from_secs(60)).ok();
        };
        let (tell, told) = mpsc::channel();
        let mut handlers = vec![stage.handler(blocks)];
        stage.ready.add(&mut handlers);
        begun.recv().unwrap();
        let held = Told(tell);
        lock(&stage.ready.shared.list).handlers.push_back(Box::pin(async move { drop(held) }));
        stage.ready.clear();
        told.recv_timeout(Duration::from_secs(60)).unwrap();
        release.send(()).unwrap();
        stage.ended().await;
    }
}
