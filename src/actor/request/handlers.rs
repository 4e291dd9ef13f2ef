//! The handlers that an actor runs: tasks that the actor owns, one for each request or one for several [quick
//! ones](super::ready), each with its time limit.
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

use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::Sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::handler_table::{HandlerId, HandlerTable, RunningHandler};
use super::is_roomy;
use super::pending::PendingRequest;
use super::ready::ReadyHandlers;
use crate::actor::base::deadlines::after;
use crate::tool::run::pace::Pace;

/// The handlers of one actor. A handler that finished normally leaves the table itself, so its end costs the actor no
/// message.
pub(crate) struct HandlerTasks<L> {
    table: Arc<HandlerTable<L>>,
    next: HandlerId,
    /// Quick handlers that were started since the last flush.
    quick: Vec<BoxFuture<'static, ()>>,
    ready: ReadyHandlers,
    tasks: TaskTracker,
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
}

/// Removes a handler that finished from the table, and tells the actor about any other end: on drop, that the handler
/// was aborted.
struct EndGuard<L, E, F: FnOnce(HandlerEnd<E>)> {
    id: HandlerId,
    pending: Arc<PendingRequest>,
    table: Arc<HandlerTable<L>>,
    tell: Option<F>,
    told: PhantomData<fn(E)>,
}

impl<L, E, F: FnOnce(HandlerEnd<E>)> EndGuard<L, E, F> {
    /// `None` if the handler did not end in its grace time.
    fn ended(mut self, ended: Option<Option<E>>) {
        match ended {
            Some(Some(report)) => self.tell(HandlerEnd::Reported(self.id, report)),
            Some(None) => {
                self.tell = None;
                self.pending.cancel.forget_task();
                drop(self.table.remove(self.id));
            }
            None => self.tell(HandlerEnd::Aborted(self.id)),
        }
    }

    fn tell(&mut self, end: HandlerEnd<E>) {
        if let Some(tell) = self.tell.take() {
            // The registered waker would keep the memory of the task.
            self.pending.cancel.forget_task();
            tell(end);
        }
    }
}

impl<L, E, F: FnOnce(HandlerEnd<E>)> Drop for EndGuard<L, E, F> {
    fn drop(&mut self) {
        self.tell(HandlerEnd::Aborted(self.id));
    }
}

/// The task of a handler. A hand-written future, because there may be ten thousand, and an `async` block would hold the
/// handler twice.
struct HandlerTask<H, L, E, F: FnOnce(HandlerEnd<E>)> {
    /// `None` once the handler has ended: dropped before its end is told.
    handler: Option<H>,
    stage: HandlerStage,
    grace: Duration,
    /// The pace of the handler's tool, if it has one.
    pace: Option<Pace>,
    /// `None` once the end was told.
    guard: Option<EndGuard<L, E, F>>,
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

impl<H: Unpin, L, E, F: FnOnce(HandlerEnd<E>)> Unpin for HandlerTask<H, L, E, F> {}

impl<H, L, E, F: FnOnce(HandlerEnd<E>)> Drop for HandlerTask<H, L, E, F> {
    fn drop(&mut self) {
        if let HandlerStage::Spawned = self.stage
            && let Some(guard) = &self.guard
        {
            guard.pending.gate().has_begun();
        }
    }
}

impl<H, L, E, F> Future for HandlerTask<H, L, E, F>
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
        let began = this.pace.as_ref().filter(|_| first).map(|_| std::time::Instant::now());
        let polled = match &mut this.handler {
            Some(_) if waits && !cancel.is_aborted() => Poll::Pending,
            Some(handler) if !cancel.is_aborted() => Pin::new(handler).poll(cx).map(Some),
            _ => Poll::Ready(None),
        };
        if first {
            guard.pending.gate().has_begun();
        }
        if let (Some(pace), Some(began)) = (&this.pace, began) {
            pace.note(polled.is_ready(), began.elapsed());
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

impl<L: Send + 'static> HandlerTasks<L> {
    pub(crate) fn new(grace: Duration, abort_text: String) -> Self {
        let (table, tasks) = (Arc::default(), TaskTracker::new());
        let ready = ReadyHandlers::new(tasks.clone());
        Self { table, next: 0, quick: Vec::new(), ready, tasks, grace, abort_text }
    }

    pub(crate) fn set_abort_text(&mut self, text: String) {
        self.abort_text = text;
    }

    /// Starts a handler. Its output is the report for the actor, if any. `tell` is called on the handler's task. A handler with a quick pace runs with the next [`flush`](HandlerTasks::flush), with others of its kind.
    pub(crate) fn start<E: Send + 'static>(
        &mut self,
        pending: Arc<PendingRequest>,
        label: L,
        limit: Option<Duration>,
        pace: Option<Pace>,
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
            table: self.table.clone(),
            tell: Some(tell),
            told: PhantomData,
        };
        let deadline = limit.map(|limit| after(pending.received, limit));
        self.table.insert(id, RunningHandler { pending, label, limit, deadline });
        let is_quick = pace.as_ref().is_some_and(Pace::is_quick);
        let (handler, stage, guard) = (Some(handler), HandlerStage::Spawned, Some(guard));
        let task = HandlerTask { handler, stage, grace: self.grace, pace, guard };
        if is_quick {
            self.quick.push(Box::pin(task));
        } else {
            // Handlers begin in the order of their requests.
            self.flush();
            self.spawn(task);
        }
    }

    /// Runs the quick handlers that were started.
    pub(crate) fn flush(&mut self) {
        match self.quick.len() {
            0 => {}
            1 => self.quick.pop().into_iter().for_each(|handler| self.spawn(handler)),
            _ => self.ready.add(&mut self.quick),
        }
        if is_roomy(self.quick.capacity(), 0) {
            self.quick = Vec::new();
        }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        // Not kept: a `JoinHandle` would hold the memory of a task that has ended. `abort_all` ends the tasks by their
        // tokens.
        drop(self.tasks.spawn(task));
    }

    pub(crate) fn table(&self) -> &HandlerTable<L> {
        &self.table
    }

    /// The id of the next handler: ids count up.
    pub(crate) fn next_id(&self) -> HandlerId {
        self.next
    }

    /// Answers all requests with an error, cancels their handlers, and aborts those that outlive their grace time. The
    /// grace time ends early when the session is `killed`. Returns when all tasks have ended, or after `abort_within`:
    /// a handler that blocks its thread cannot be aborted.
    pub(crate) async fn stop(&mut self, abort_within: Duration, killed: &CancellationToken) {
        self.table.refuse_all(&self.abort_text);
        self.tasks.close();
        let ended = tokio::select! {
            ended = tokio::time::timeout(self.grace, self.tasks.wait()) => ended.is_ok(),
            () = killed.cancelled() => false,
        };
        if !ended {
            self.table.abort_all();
            if tokio::time::timeout(abort_within, self.tasks.wait()).await.is_err() {
                tracing::warn!("handlers that block their thread are left behind");
            }
        }
    }
}

impl<L> Drop for HandlerTasks<L> {
    fn drop(&mut self) {
        self.table.refuse_all(&self.abort_text);
        self.table.abort_all();
        self.ready.clear();
        // A handler that blocks its thread holds the table, and would keep alive what the entries hold.
        self.table.clear();
    }
}
