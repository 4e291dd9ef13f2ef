//! The handlers that an actor runs: one task per request, owned by the actor, each with its limit.
//!
//! ```text
//!   start ──► running ──► done                          the handler answered
//!                │
//!                ├─ limit passes ──► answered for, token cancelled ─┐
//!                └─ cancelled from outside (token) ─────────────────┴─► grace ──► done | aborted
//! ```
//!
//! The limit is watched here and not in the task, so that a handler that blocks its thread is answered for in
//! time. When the work is dropped, every task is aborted and what it owed is answered with an error.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use super::ledger::Owed;
use crate::wire::rpc::RpcError;

/// A task that ends when its owner does.
#[derive(Debug)]
pub(crate) struct Task<T = ()> {
    handle: JoinHandle<T>,
    joined: bool,
}

impl<T: Send + 'static> Task<T> {
    pub(crate) fn spawn(future: impl Future<Output = T> + Send + 'static) -> Self {
        #[allow(clippy::disallowed_methods, reason = "this is the owner that the rule asks for")]
        Self { handle: tokio::spawn(future), joined: false }
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }

    /// Whether its end was taken note of with [`join`](Task::join).
    pub(crate) fn is_joined(&self) -> bool {
        self.joined
    }

    /// Waits for its end; `None` if it panicked or was aborted. Safe to cancel; for ever once it was joined.
    pub(crate) async fn join(&mut self) -> Option<T> {
        if self.joined {
            return std::future::pending().await;
        }
        let ended = (&mut self.handle).await.ok();
        self.joined = true;
        ended
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.handle.abort();
    }
}

/// One handler at work.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) owed: Arc<Owed>,
    /// The tool, or the kind of callback.
    pub(crate) label: String,
    pub(crate) tool_use_id: Option<String>,
    pub(crate) limit: Option<Duration>,
    deadline: Option<Instant>,
    abort: AbortHandle,
}

/// The handlers of one actor.
#[derive(Debug)]
pub(crate) struct Work {
    jobs: HashMap<String, Job>,
    deadlines: BTreeSet<(Instant, String)>,
    timer: Option<(Instant, Task)>,
    tasks: TaskTracker,
    grace: Duration,
    /// What is said for those whose handler is taken away.
    ending: String,
}

/// How a handler's task ended.
#[derive(Debug)]
pub(crate) enum Ending<T> {
    /// The handler came to its end.
    Done(T),
    /// It did not end in its grace time.
    Aborted,
}

impl Work {
    pub(crate) fn new(grace: Duration, ending: String) -> Self {
        Self {
            jobs: HashMap::new(),
            deadlines: BTreeSet::new(),
            timer: None,
            tasks: TaskTracker::new(),
            grace,
            ending,
        }
    }

    /// What is said for those whose handler is taken away.
    pub(crate) fn set_ending(&mut self, ending: String) {
        self.ending = ending;
    }

    /// Runs a handler. `finished` is called on its task when it ends, and has to tell the actor.
    pub(crate) fn start<T: Send + 'static>(
        &mut self,
        owed: Arc<Owed>,
        label: String,
        tool_use_id: Option<String>,
        limit: Option<Duration>,
        handler: impl Future<Output = T> + Send + 'static,
        finished: impl FnOnce(Ending<T>) + Send + 'static,
    ) {
        let (token, grace, span) = (owed.cancel.clone(), self.grace, owed.span.clone());
        let run = async move {
            let ending = tokio::select! {
                biased;
                done = handler => Ending::Done(done),
                () = async { token.cancelled().await; tokio::time::sleep(grace).await } => Ending::Aborted,
            };
            finished(ending);
        };
        let task = self.tasks.spawn(run.instrument(span));
        let deadline = limit.map(|limit| owed.received + limit);
        let request_id = owed.request_id.clone();
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, request_id.clone()));
        }
        let job = Job { owed, label, tool_use_id, limit, deadline, abort: task.abort_handle() };
        self.jobs.insert(request_id, job);
    }

    /// Takes a handler off the list that has told of its end.
    pub(crate) fn finish(&mut self, request_id: &str) -> Option<Job> {
        let job = self.jobs.remove(request_id)?;
        if let Some(deadline) = job.deadline {
            self.deadlines.remove(&(deadline, request_id.to_owned()));
        }
        Some(job)
    }

    pub(crate) fn jobs(&self) -> impl ExactSizeIterator<Item = &Job> {
        self.jobs.values()
    }

    pub(crate) fn get(&self, request_id: &str) -> Option<&Job> {
        self.jobs.get(request_id)
    }

    /// Makes `wake` be called at the next deadline, if there is one and it is not arranged already.
    pub(crate) fn arm(&mut self, wake: impl FnOnce() + Send + 'static) {
        let Some((next, _)) = self.deadlines.first() else { return };
        let next = *next;
        if self.timer.as_ref().is_some_and(|(at, task)| *at <= next && !task.is_finished()) {
            return;
        }
        let task = Task::spawn(async move {
            tokio::time::sleep_until(next).await;
            wake();
        });
        self.timer = Some((next, task));
    }

    /// The handlers whose limit has passed; each is returned once. They are still running: settle what they owe
    /// and cancel their token.
    pub(crate) fn expired(&mut self, now: Instant) -> Vec<String> {
        let mut expired = Vec::new();
        while self.deadlines.first().is_some_and(|(deadline, _)| *deadline <= now) {
            if let Some((_, request_id)) = self.deadlines.pop_first() {
                if let Some(job) = self.jobs.get_mut(&request_id) {
                    job.deadline = None;
                }
                expired.push(request_id);
            }
        }
        self.timer = None;
        expired
    }

    /// Ends all handlers in order: cancels their tokens, lets them have their grace time, then takes them away.
    /// What they owe is answered at once.
    pub(crate) async fn stop(&mut self) {
        self.settle_all();
        self.tasks.close();
        // Each task ends by itself within the grace time, unless it blocks its thread.
        if tokio::time::timeout(self.grace, self.tasks.wait()).await.is_err() {
            self.abort_all();
        }
    }

    /// Answers for all handlers and cancels their tokens.
    pub(crate) fn settle_all(&mut self) {
        for job in self.jobs.values().filter(|job| job.owed.is_open()) {
            job.owed.refuse(&RpcError::internal(self.ending.clone()));
        }
        for job in self.jobs.values() {
            job.owed.cancel.cancel();
        }
    }

    fn abort_all(&mut self) {
        for job in self.jobs.values() {
            job.abort.abort();
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.settle_all();
        self.abort_all();
    }
}
