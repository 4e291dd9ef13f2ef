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
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep};
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use super::deadlines::Deadlines;
use super::ledger::Sweeping;
use super::owed::Owed;
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
pub(crate) struct NewJob<L> {
    pub(crate) owed: Arc<Owed>,
    /// What the actor wants to know of it later.
    pub(crate) label: L,
    /// How long it may take, from the arrival of its request.
    pub(crate) limit: Option<Duration>,
}

/// One handler at work.
#[derive(Debug)]
pub(crate) struct Job<L> {
    pub(crate) new: NewJob<L>,
    deadline: Option<Instant>,
}

impl<L> Deref for Job<L> {
    type Target = NewJob<L>;

    fn deref(&self) -> &NewJob<L> {
        &self.new
    }
}

/// The handlers of one actor.
///
/// One that has ended with nothing to tell stays on the list until it is swept, so that it costs its actor no message;
/// see [`Sweeping`].
#[derive(Debug)]
pub(crate) struct Work<L> {
    jobs: HashMap<JobId, Job<L>, RandomState>,
    next: JobId,
    deadlines: Deadlines<JobId>,
    tasks: TaskTracker,
    sweeping: Arc<Sweeping>,
    grace: Duration,
    /// What is said for those whose handler is taken away.
    ending: String,
}

/// What an actor is told of its handlers' tasks.
#[derive(Debug)]
pub(crate) enum Ending<E> {
    /// The handler came to its end with this to tell.
    Told(JobId, E),
    /// It did not end in its grace time, or its task was lost.
    Aborted(JobId),
    /// So many have ended with nothing to tell that it is time to [sweep](Work::sweep).
    Sweep,
}

/// Tells the actor how a task ended, also when it ends in no way that was foreseen.
struct Finished<E, F: FnOnce(Ending<E>)> {
    job: JobId,
    owed: Arc<Owed>,
    sweeping: Arc<Sweeping>,
    tell: Option<F>,
    told: PhantomData<fn(E)>,
}

impl<E, F: FnOnce(Ending<E>)> Finished<E, F> {
    /// `None` if it did not end in its grace time.
    fn tell(mut self, ended: Option<Option<E>>) {
        // Nobody is woken any more, and a waker holds the task.
        self.owed.cancel.forget_task();
        let ending = match ended {
            Some(None) => {
                self.owed.set_handled();
                // What traces it is told when it is over.
                if !self.sweeping.leave(!self.owed.span.is_none()) {
                    self.tell = None;
                }
                Ending::Sweep
            }
            Some(Some(told)) => Ending::Told(self.job, told),
            None => Ending::Aborted(self.job),
        };
        if let Some(tell) = self.tell.take() {
            tell(ending);
        }
    }
}

impl<E, F: FnOnce(Ending<E>)> Drop for Finished<E, F> {
    fn drop(&mut self) {
        self.owed.cancel.forget_task();
        if let Some(tell) = self.tell.take() {
            tell(Ending::Aborted(self.job));
        }
    }
}

/// The task of a handler: as small as can be, for there may be ten thousand, and an `async` block would hold everything
/// twice.
struct Guarded<H, E, F: FnOnce(Ending<E>)> {
    /// `None` once it has ended: what it held is gone before its end is told.
    handler: Option<H>,
    /// Until it was polled first.
    begins: bool,
    grace: Duration,
    /// From the cancellation on: the end of its grace time.
    over: Option<Pin<Box<Sleep>>>,
    /// `None` once it has ended.
    finished: Option<Finished<E, F>>,
}

impl<H: Unpin, E, F: FnOnce(Ending<E>)> Unpin for Guarded<H, E, F> {}

impl<H, E, F: FnOnce(Ending<E>)> Drop for Guarded<H, E, F> {
    fn drop(&mut self) {
        if self.begins
            && let Some(finished) = &self.finished
        {
            finished.owed.gate().has_begun();
        }
    }
}

impl<H, E, F> Future for Guarded<H, E, F>
where
    H: Future<Output = Option<E>> + Unpin,
    F: FnOnce(Ending<E>),
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let Some(finished) = &this.finished else { return Poll::Ready(()) };
        let cancel = &finished.owed.cancel;
        let polled = match &mut this.handler {
            Some(handler) if !cancel.is_aborted() => Pin::new(handler).poll(cx).map(Some),
            _ => Poll::Ready(None),
        };
        if std::mem::take(&mut this.begins) {
            finished.owed.gate().has_begun();
        }
        let ended = match polled {
            Poll::Ready(ended) => ended,
            Poll::Pending if !cancel.poll_cancelled(cx) => return Poll::Pending,
            Poll::Pending if cancel.is_aborted() => None,
            Poll::Pending => {
                let grace = this.grace;
                let over = this.over.get_or_insert_with(|| Box::pin(tokio::time::sleep(grace)));
                ready!(over.as_mut().poll(cx));
                None
            }
        };
        this.handler = None;
        if let Some(finished) = this.finished.take() {
            finished.tell(ended);
        }
        Poll::Ready(())
    }
}

impl<L> Work<L> {
    pub(crate) fn new(grace: Duration, ending: String) -> Self {
        Self {
            jobs: HashMap::default(),
            next: 0,
            deadlines: Deadlines::new(),
            tasks: TaskTracker::new(),
            sweeping: Arc::default(),
            grace,
            ending,
        }
    }

    /// What is said for those whose handler is taken away.
    pub(crate) fn set_ending(&mut self, ending: String) {
        self.ending = ending;
    }

    /// Runs a handler, which gives what its actor has to be told of, if there is something. `tell` is called on its task,
    /// and has to tell the actor.
    pub(crate) fn start<E: Send + 'static>(
        &mut self,
        new: NewJob<L>,
        handler: impl Future<Output = Option<E>> + Send + Unpin + 'static,
        tell: impl FnOnce(Ending<E>) + Send + 'static,
    ) -> JobId {
        let id = self.next;
        self.next += 1;
        new.owed.dispatched();
        let grace = self.grace;
        let finished = Finished {
            job: id,
            owed: new.owed.clone(),
            sweeping: self.sweeping.clone(),
            tell: Some(tell),
            told: PhantomData,
        };
        new.owed.gate().begins();
        let run =
            Guarded { handler: Some(handler), begins: true, grace, over: None, finished: Some(finished) };
        // It ends with its owner: see `abort_all`. So nobody holds what is left of a task that has ended.
        if new.owed.span.is_none() {
            drop(self.tasks.spawn(run));
        } else {
            drop(self.tasks.spawn(run.instrument(new.owed.span.clone())));
        }
        let deadline = new.limit.map(|limit| after(new.owed.received, limit));
        if let Some(deadline) = deadline {
            self.deadlines.insert(deadline, id);
        }
        self.jobs.insert(id, Job { new, deadline });
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

    /// Takes those off the list that have ended with nothing to tell, if it is time for that.
    pub(crate) fn sweep(&mut self, mut swept: impl FnMut(JobId, &Job<L>)) {
        let mut due = self.sweeping.is_due();
        while due {
            self.sweeping.begin();
            let deadlines = &mut self.deadlines;
            self.jobs.retain(|id, job| {
                let keep = !job.owed.is_handled();
                if !keep {
                    if let Some(deadline) = job.deadline {
                        deadlines.remove(deadline, *id);
                    }
                    swept(*id, job);
                }
                keep
            });
            // What was needed for ten thousand at once is not kept for the few that follow.
            if Sweeping::is_roomy(self.jobs.capacity(), self.jobs.len()) {
                self.jobs.shrink_to(2 * self.jobs.len());
            }
            due = self.sweeping.end(self.jobs.len());
        }
    }

    /// Those whose handler has not ended.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = &Job<L>> {
        self.jobs.values().filter(|job| !job.owed.is_handled())
    }

    /// The id of the next handler: they count up.
    pub(crate) fn next_id(&self) -> JobId {
        self.next
    }

    /// Those whose handler has not ended, from this one on, in any order.
    pub(crate) fn since(&self, first: JobId) -> impl Iterator<Item = (JobId, &Job<L>)> {
        // Whichever are fewer: all numbers since, or all that are here.
        let few = self.next.saturating_sub(first) <= self.jobs.len() as u64;
        let ids = if few { first..self.next } else { 0..0 };
        let all = if few { None } else { Some(self.jobs.iter()) };
        let numbered = ids.filter_map(|id| Some((id, self.jobs.get(&id)?)));
        let listed =
            all.into_iter().flatten().map(|(id, job)| (*id, job)).filter(move |(id, _)| *id >= first);
        numbered.chain(listed).filter(|(_, job)| !job.owed.is_handled())
    }

    pub(crate) fn get(&self, id: JobId) -> Option<&Job<L>> {
        self.jobs.get(&id).filter(|job| !job.owed.is_handled())
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
        for job in self.jobs.values().filter(|job| !job.owed.is_handled()) {
            job.owed.cancel.cancel();
        }
    }

    fn abort_all(&mut self) {
        for job in self.jobs.values() {
            job.owed.cancel.abort();
        }
    }
}

impl<L> Drop for Work<L> {
    fn drop(&mut self) {
        self.settle_all();
        self.abort_all();
    }
}

/// Lets everybody run who is ready to, once. Unlike `tokio::task::yield_now`, which waits on its thread until nobody is ready
/// there, this goes to the end of the queue, from where another thread can take it: a handler that blocks its thread holds
/// up nobody who steps back.
pub(crate) async fn step_back() {
    let mut stepped = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut stepped, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The moment after a limit; one that is too long for a clock is for ever.
pub(crate) fn after(moment: Instant, limit: Duration) -> Instant {
    moment + limit.min(FOREVER)
}
