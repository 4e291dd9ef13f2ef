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

use std::collections::HashMap;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use super::deadlines::Deadlines;
use super::ledger::Owed;
use crate::options::FOREVER;
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

/// Tells the jobs of one actor apart. Request ids do not: one that is settled may come again while its handler still
/// has its grace time.
pub(crate) type JobId = u64;

/// A handler to be started.
#[derive(Debug)]
pub(crate) struct NewJob<L = String> {
    pub(crate) owed: Arc<Owed>,
    /// The tool, or the kind of callback.
    pub(crate) label: L,
    pub(crate) tool_use_id: Option<String>,
    /// For a JSON-RPC request.
    pub(crate) rpc: Option<RpcJob>,
    /// How long it may take, from the arrival of its request.
    pub(crate) limit: Option<Duration>,
}

/// What a handler of a JSON-RPC request is.
#[derive(Debug)]
pub(crate) struct RpcJob {
    /// The id of the request, as it came.
    pub(crate) id: String,
    /// Whether it is a tool, whose failures are results.
    pub(crate) is_tool: bool,
    /// Whether it blocks a thread, which nobody can take away.
    pub(crate) blocks: bool,
}

/// One handler at work.
#[derive(Debug)]
pub(crate) struct Job<L = String> {
    pub(crate) new: NewJob<L>,
    deadline: Option<Instant>,
    abort: AbortHandle,
}

impl<L> Deref for Job<L> {
    type Target = NewJob<L>;

    fn deref(&self) -> &NewJob<L> {
        &self.new
    }
}

/// The handlers of one actor.
#[derive(Debug)]
pub(crate) struct Work<L = String> {
    jobs: HashMap<JobId, Job<L>>,
    next: JobId,
    deadlines: Deadlines<JobId>,
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
    /// It did not end in its grace time, or its task was lost.
    Aborted,
}

/// Tells the actor how a task ended, also when it ends in no way that was foreseen.
struct Finished<T, F: FnOnce(Ending<T>)> {
    tell: Option<F>,
    done: PhantomData<fn(T)>,
}

impl<T, F: FnOnce(Ending<T>)> Finished<T, F> {
    fn tell(mut self, ending: Ending<T>) {
        if let Some(tell) = self.tell.take() {
            tell(ending);
        }
    }
}

impl<T, F: FnOnce(Ending<T>)> Drop for Finished<T, F> {
    fn drop(&mut self) {
        if let Some(tell) = self.tell.take() {
            tell(Ending::Aborted);
        }
    }
}

impl<L> Work<L> {
    pub(crate) fn new(grace: Duration, ending: String) -> Self {
        Self {
            jobs: HashMap::new(),
            next: 0,
            deadlines: Deadlines::new(),
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
        new: NewJob<L>,
        handler: impl Future<Output = T> + Send + 'static,
        finished: impl FnOnce(JobId, Ending<T>) + Send + 'static,
    ) -> JobId {
        let id = self.next;
        self.next += 1;
        new.owed.dispatched();
        let (token, grace, span) = (new.owed.cancel.clone(), self.grace, new.owed.span.clone());
        let finished = Finished { tell: Some(move |ending| finished(id, ending)), done: PhantomData };
        let run = async move {
            let ending = tokio::select! {
                biased;
                done = handler => Ending::Done(done),
                () = async { token.cancelled().await; tokio::time::sleep(grace).await } => Ending::Aborted,
            };
            finished.tell(ending);
        };
        let task = self.tasks.spawn(run.instrument(span));
        let deadline = new.limit.map(|limit| after(new.owed.received, limit));
        if let Some(deadline) = deadline {
            self.deadlines.insert(deadline, id);
        }
        self.jobs.insert(id, Job { new, deadline, abort: task.abort_handle() });
        id
    }

    /// Takes a handler off the list that has told of its end.
    pub(crate) fn finish(&mut self, id: JobId) -> Option<Job<L>> {
        let job = self.jobs.remove(&id)?;
        if let Some(deadline) = job.deadline {
            self.deadlines.remove(deadline, id);
        }
        Some(job)
    }

    pub(crate) fn jobs(&self) -> impl ExactSizeIterator<Item = &Job<L>> {
        self.jobs.values()
    }

    pub(crate) fn get(&self, id: JobId) -> Option<&Job<L>> {
        self.jobs.get(&id)
    }

    /// Makes `wake` be called at the next deadline, if there is one and it is not arranged already.
    pub(crate) fn arm(&mut self, wake: impl FnOnce() + Send + 'static) {
        self.deadlines.arm(wake);
    }

    /// The handlers whose limit has passed; each is returned once. They are still running: settle what they owe
    /// and cancel their token.
    pub(crate) fn expired(&mut self, now: Instant) -> Vec<JobId> {
        let expired = self.deadlines.expired(now);
        for id in &expired {
            if let Some(job) = self.jobs.get_mut(id) {
                job.deadline = None;
            }
        }
        expired
    }

    /// Ends all handlers in order: cancels their tokens, lets them have their grace time, then takes them away.
    /// What they owe is answered at once. Returns when no task is left that can be ended: one that blocks its thread
    /// cannot.
    pub(crate) async fn stop(&mut self, abort_within: Duration) {
        self.settle_all();
        self.tasks.close();
        if tokio::time::timeout(self.grace, self.tasks.wait()).await.is_err() {
            self.abort_all();
            if tokio::time::timeout(abort_within, self.tasks.wait()).await.is_err() {
                tracing::warn!("handlers that block their thread are left behind");
            }
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

impl<L> Drop for Work<L> {
    fn drop(&mut self) {
        self.settle_all();
        self.abort_all();
    }
}

/// The moment after a limit; one that is too long for a clock is for ever.
pub(crate) fn after(moment: Instant, limit: Duration) -> Instant {
    moment + limit.min(FOREVER)
}
