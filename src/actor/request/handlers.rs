//! The handlers that an actor runs: one task per request, owned by the actor, each with its time limit.
//!
//! ```text
//!   start ──► running ──► done                          the handler answered
//!     │ ▲        │
//!     │ │        ├─ limit passes ──► session answers, token cancelled ─┐
//!     │ │        └─ cancelled from outside (token) ────────────────────┴─► grace ──► done | aborted
//!     │ │
//!     └─┴─ waits while the outbound queue is over `Limits::outbound_bytes`; done if cancelled meanwhile
//! ```
//!
//! The actor watches the limit, not the task: so the call of a handler that blocks its thread is answered in time.
//! Dropping [`HandlerTasks`] aborts all tasks and answers their requests with an error.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::pending::PendingRequest;
use super::sweep_mark::SweepMark;
use crate::actor::base::deadlines::{Deadlines, after};
use crate::wire::rpc::RpcError;

/// Numbers the handlers of one actor. Request ids do not: the CLI may use the id of a settled request again while the
/// handler of the first request still has its grace time.
pub(crate) type HandlerId = u64;

/// Entry of a handler in the list of its actor.
#[derive(Debug)]
pub(crate) struct RunningHandler<L> {
    pub(crate) pending: Arc<PendingRequest>,
    /// Kept for the actor.
    pub(crate) label: L,
    /// Time limit, counted from the arrival of the request.
    pub(crate) limit: Option<Duration>,
    deadline: Option<Instant>,
}

/// The handlers of one actor.
///
/// A handler that finished normally stays in the list until the next sweep, so its end costs the actor no message: see
/// [`SweepMark`].
#[derive(Debug)]
pub(crate) struct HandlerTasks<L> {
    running: HashMap<HandlerId, RunningHandler<L>, RandomState>,
    next: HandlerId,
    deadlines: Deadlines<HandlerId>,
    tasks: TaskTracker,
    sweep_mark: Arc<SweepMark>,
    grace: Duration,
    /// Error text for the requests of aborted handlers.
    abort_text: String,
}

/// Report of a handler's task to its actor.
#[derive(Debug)]
pub(crate) enum HandlerEnd<E> {
    /// The handler ended with something to report.
    Reported(HandlerId, E),
    /// The handler did not end in its grace time, or its task was dropped.
    Aborted(HandlerId),
    /// Enough handlers have finished for a [sweep](HandlerTasks::sweep).
    SweepDue,
}

/// Tells the actor that the task of a handler ended; on drop, that it was aborted.
struct EndGuard<E, F: FnOnce(HandlerEnd<E>)> {
    id: HandlerId,
    pending: Arc<PendingRequest>,
    sweep_mark: Arc<SweepMark>,
    tell: Option<F>,
    told: PhantomData<fn(E)>,
}

impl<E, F: FnOnce(HandlerEnd<E>)> EndGuard<E, F> {
    /// `None` if the handler did not end in its grace time.
    fn ended(mut self, ended: Option<Option<E>>) {
        let end = match ended {
            Some(Some(report)) => HandlerEnd::Reported(self.id, report),
            Some(None) => {
                self.pending.set_handled();
                if !self.sweep_mark.finish() {
                    self.tell = None;
                }
                HandlerEnd::SweepDue
            }
            None => HandlerEnd::Aborted(self.id),
        };
        self.tell(end);
    }

    fn tell(&mut self, end: HandlerEnd<E>) {
        // The registered waker would keep the memory of the task.
        self.pending.cancel.forget_task();
        if let Some(tell) = self.tell.take() {
            tell(end);
        }
    }
}

impl<E, F: FnOnce(HandlerEnd<E>)> Drop for EndGuard<E, F> {
    fn drop(&mut self) {
        self.tell(HandlerEnd::Aborted(self.id));
    }
}

/// The task of a handler. A hand-written future, because there may be ten thousand, and an `async` block would hold the
/// handler twice.
struct HandlerTask<H, E, F: FnOnce(HandlerEnd<E>)> {
    /// `None` once the handler has ended: dropped before its end is told.
    handler: Option<H>,
    stage: HandlerStage,
    grace: Duration,
    /// `None` once the end was told.
    guard: Option<EndGuard<E, F>>,
}

enum HandlerStage {
    /// The task was not polled yet.
    Spawned,
    /// The outbound queue is full: the handler waits before it begins.
    WaitsForRoom(Pin<Box<dyn Future<Output = ()> + Send>>),
    Runs,
    /// Cancelled, and still running until its grace time is over.
    HasGrace(Pin<Box<Sleep>>),
}

impl HandlerStage {
    /// Begins the handler if there is room for its answer.
    fn begin(&mut self, pending: &PendingRequest, cx: &mut Context<'_>) {
        if let HandlerStage::Spawned = self {
            *self = match pending.room() {
                Some(room) => HandlerStage::WaitsForRoom(Box::pin(room)),
                None => HandlerStage::Runs,
            };
        }
        if let HandlerStage::WaitsForRoom(room) = self
            && room.as_mut().poll(cx).is_ready()
        {
            *self = HandlerStage::Runs;
        }
    }

    /// Ready when the grace time of a cancelled handler is over. The first call starts the time.
    fn poll_grace(&mut self, grace: Duration, cx: &mut Context<'_>) -> Poll<()> {
        if let HandlerStage::Runs = self {
            *self = HandlerStage::HasGrace(Box::pin(tokio::time::sleep(grace)));
        }
        match self {
            HandlerStage::HasGrace(over) => over.as_mut().poll(cx),
            _ => Poll::Ready(()),
        }
    }
}

impl<H: Unpin, E, F: FnOnce(HandlerEnd<E>)> Unpin for HandlerTask<H, E, F> {}

impl<H, E, F: FnOnce(HandlerEnd<E>)> Drop for HandlerTask<H, E, F> {
    fn drop(&mut self) {
        if let HandlerStage::Spawned = self.stage
            && let Some(guard) = &self.guard
        {
            guard.pending.gate().has_begun();
        }
    }
}

impl<H, E, F> Future for HandlerTask<H, E, F>
where
    H: Future<Output = Option<E>> + Unpin,
    F: FnOnce(HandlerEnd<E>),
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let Some(guard) = &this.guard else { return Poll::Ready(()) };
        let cancel = &guard.pending.cancel;
        let first = matches!(this.stage, HandlerStage::Spawned);
        this.stage.begin(&guard.pending, cx);
        let waits = matches!(this.stage, HandlerStage::WaitsForRoom(_));
        let polled = match &mut this.handler {
            Some(_) if waits && !cancel.is_aborted() => Poll::Pending,
            Some(handler) if !cancel.is_aborted() => Pin::new(handler).poll(cx).map(Some),
            _ => Poll::Ready(None),
        };
        if first {
            guard.pending.gate().has_begun();
        }
        let ended = match polled {
            Poll::Ready(ended) => ended,
            Poll::Pending if !cancel.poll_cancelled(cx) => return Poll::Pending,
            // Settled before the handler began: there is nothing to abort.
            Poll::Pending if waits => Some(None),
            Poll::Pending if cancel.is_aborted() => None,
            Poll::Pending => {
                ready!(this.stage.poll_grace(this.grace, cx));
                None
            }
        };
        this.handler = None;
        if let Some(guard) = this.guard.take() {
            guard.ended(ended);
        }
        Poll::Ready(())
    }
}

impl<L> HandlerTasks<L> {
    pub(crate) fn new(grace: Duration, abort_text: String) -> Self {
        Self {
            running: HashMap::default(),
            next: 0,
            deadlines: Deadlines::new(),
            tasks: TaskTracker::new(),
            sweep_mark: Arc::default(),
            grace,
            abort_text,
        }
    }

    pub(crate) fn set_abort_text(&mut self, text: String) {
        self.abort_text = text;
    }

    /// Runs a handler, whose output is what the actor has to be told, if anything. `tell` is called on the handler's
    /// task.
    pub(crate) fn start<E: Send + 'static>(
        &mut self,
        pending: Arc<PendingRequest>,
        label: L,
        limit: Option<Duration>,
        handler: impl Future<Output = Option<E>> + Send + Unpin + 'static,
        tell: impl FnOnce(HandlerEnd<E>) + Send + 'static,
    ) {
        let id = self.next;
        self.next += 1;
        pending.dispatched();
        pending.gate().begins();
        let guard = EndGuard {
            id,
            pending: pending.clone(),
            sweep_mark: self.sweep_mark.clone(),
            tell: Some(tell),
            told: PhantomData,
        };
        // Not kept: a `JoinHandle` would hold the memory of a task that has ended. `abort_all` ends the tasks by their
        // tokens.
        drop(self.tasks.spawn(HandlerTask {
            handler: Some(handler),
            stage: HandlerStage::Spawned,
            grace: self.grace,
            guard: Some(guard),
        }));
        let deadline = limit.map(|limit| after(pending.received, limit));
        if let Some(deadline) = deadline {
            self.deadlines.insert(deadline, id);
        }
        self.running.insert(id, RunningHandler { pending, label, limit, deadline });
    }

    /// Removes a handler whose end was told.
    pub(crate) fn remove(&mut self, id: HandlerId) -> Option<RunningHandler<L>> {
        let handler = self.running.remove(&id)?;
        if let Some(deadline) = handler.deadline {
            self.deadlines.remove(deadline, id);
        }
        Some(handler)
    }

    /// Removes the handlers that have finished, if there are enough of them.
    pub(crate) fn sweep(&mut self, mut swept: impl FnMut(HandlerId, &RunningHandler<L>)) {
        let mut due = self.sweep_mark.is_due();
        while due {
            self.sweep_mark.begin();
            let deadlines = &mut self.deadlines;
            self.running.retain(|id, handler| {
                let keep = !handler.pending.is_handled();
                if !keep {
                    if let Some(deadline) = handler.deadline {
                        deadlines.remove(deadline, *id);
                    }
                    swept(*id, handler);
                }
                keep
            });
            // The capacity for a burst is not kept for the few handlers that follow.
            if SweepMark::is_roomy(self.running.capacity(), self.running.len()) {
                self.running.shrink_to(2 * self.running.len());
            }
            due = self.sweep_mark.end(self.running.len());
        }
    }

    /// The handlers that have not finished.
    pub(crate) fn running(&self) -> impl Iterator<Item = &RunningHandler<L>> {
        self.running.values().filter(|handler| !handler.pending.is_handled())
    }

    /// The id of the next handler: ids count up.
    pub(crate) fn next_id(&self) -> HandlerId {
        self.next
    }

    /// The handlers from the id `first` on that have not finished, in any order.
    pub(crate) fn since(&self, first: HandlerId) -> impl Iterator<Item = (HandlerId, &RunningHandler<L>)> {
        // Visits the fewer: all ids since `first`, or all entries of the list.
        let few = self.next.saturating_sub(first) <= self.running.len() as u64;
        let ids = if few { first..self.next } else { 0..0 };
        let all = if few { None } else { Some(self.running.iter()) };
        let numbered = ids.filter_map(|id| Some((id, self.running.get(&id)?)));
        let listed = all.into_iter().flatten().map(|(id, handler)| (*id, handler));
        let listed = listed.filter(move |(id, _)| *id >= first);
        numbered.chain(listed).filter(|(_, handler)| !handler.pending.is_handled())
    }

    pub(crate) fn get(&self, id: HandlerId) -> Option<&RunningHandler<L>> {
        self.running.get(&id).filter(|handler| !handler.pending.is_handled())
    }

    /// Arranges that `wake` is called at the next deadline: see [`Deadlines::arm`].
    pub(crate) fn arm(&mut self, wake: impl FnOnce() + Send + 'static) {
        self.deadlines.arm(wake);
    }

    /// The handlers whose limit has passed; each is returned once. They still run: the caller answers their requests
    /// and cancels their tokens.
    pub(crate) fn expired(&mut self, now: Instant) -> Vec<HandlerId> {
        let expired = self.deadlines.expired(now);
        for id in &expired {
            if let Some(handler) = self.running.get_mut(id) {
                handler.deadline = None;
            }
        }
        expired
    }

    /// Answers all requests with an error, cancels their handlers, and aborts those that outlive their grace time. The
    /// grace time ends early when the session is `killed`. Returns when all tasks have ended, or after `abort_within`:
    /// a handler that blocks its thread cannot be aborted.
    pub(crate) async fn stop(&mut self, abort_within: Duration, killed: &CancellationToken) {
        self.refuse_all();
        self.tasks.close();
        let ended = tokio::select! {
            ended = tokio::time::timeout(self.grace, self.tasks.wait()) => ended.is_ok(),
            () = killed.cancelled() => false,
        };
        if !ended {
            self.abort_all();
            if tokio::time::timeout(abort_within, self.tasks.wait()).await.is_err() {
                tracing::warn!("handlers that block their thread are left behind");
            }
        }
    }

    fn refuse_all(&mut self) {
        for handler in self.running.values().filter(|handler| handler.pending.is_open()) {
            handler.pending.refuse(&RpcError::internal(self.abort_text.clone()));
        }
        for handler in self.running() {
            handler.pending.cancel.cancel();
        }
    }

    fn abort_all(&mut self) {
        for handler in self.running.values() {
            handler.pending.cancel.abort();
        }
    }
}

impl<L> Drop for HandlerTasks<L> {
    fn drop(&mut self) {
        self.refuse_all();
        self.abort_all();
    }
}
