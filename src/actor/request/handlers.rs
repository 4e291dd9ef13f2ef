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

/// The handlers of one actor, with the label `L` of each and the reports `E` to the actor. A handler that finished normally
/// leaves the table itself, so its end costs the actor no message.
pub(crate) struct HandlerTasks<L, E> {
    ends: Arc<HandlerEnds<L, E>>,
    next: HandlerId,
    /// Quick handlers that were started since the last flush.
    quick: Vec<BoxFuture<'static, ()>>,
    ready: ReadyHandlers,
    tasks: TaskTracker,
    grace: Duration,
    /// Error text for the requests of aborted handlers.
    pub(crate) abort_text: String,
}

/// Shared by the actor and the tasks of its handlers.
struct HandlerEnds<L, E> {
    table: HandlerTable<L>,
    /// Reports to the actor.
    report: Box<dyn Fn(HandlerEnd<E>) + Send + Sync>,
}

/// Report of a handler's task to its actor, which removes the handler from the table. Without an `E`, the handler did not
/// end in its grace time, or its task was dropped.
pub(crate) type HandlerEnd<E> = (HandlerId, Option<E>);

/// Removes a finished handler from the table, and reports any other end. Dropped early, it reports that the handler was
/// aborted.
struct EndGuard<L, E> {
    id: HandlerId,
    pending: Arc<PendingRequest>,
    ends: Arc<HandlerEnds<L, E>>,
    is_over: bool,
    /// The gate counts the handler as beginning.
    is_beginning: bool,
}

impl<L, E> EndGuard<L, E> {
    fn has_begun(&mut self) {
        if std::mem::take(&mut self.is_beginning) {
            self.pending.gate().has_begun();
        }
    }

    /// `None` if the handler did not end in its grace time.
    fn ended(mut self, ended: Option<Option<E>>) {
        self.is_over = true;
        // The registered waker would keep the memory of the task.
        self.pending.cancel.forget_task();
        match ended {
            Some(Some(report)) => (self.ends.report)((self.id, Some(report))),
            Some(None) => drop(self.ends.table.remove(self.id)),
            None => (self.ends.report)((self.id, None)),
        }
    }
}

impl<L, E> Drop for EndGuard<L, E> {
    fn drop(&mut self) {
        self.has_begun();
        if !self.is_over {
            self.pending.cancel.forget_task();
            (self.ends.report)((self.id, None));
        }
    }
}

/// Most quick handlers that are collected before they run.
const MOST: usize = 256;

/// The task of a handler. A hand-written future, because there may be ten thousand, and an `async` block would hold the
/// handler twice.
struct HandlerTask<H, L, E> {
    /// `None` once the handler has ended: dropped before its end is reported.
    handler: Option<H>,
    stage: HandlerStage,
    grace: Duration,
    /// The pace of the handler's tool, if it has one.
    pace: Option<Pace>,
    /// `None` once the end was reported.
    guard: Option<EndGuard<L, E>>,
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

impl<H: Unpin, L, E> Unpin for HandlerTask<H, L, E> {}

impl<H: Future<Output = Option<E>> + Unpin, L, E> Future for HandlerTask<H, L, E> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let Some(guard) = &mut this.guard else { return Poll::Ready(()) };
        let first = matches!(this.stage, HandlerStage::Spawned);
        this.stage.begin(&guard.pending, cx);
        let waits = matches!(this.stage, HandlerStage::WaitsForRoom(_));
        let is_polled = first && !waits && !guard.pending.cancel.is_aborted();
        let began = this.pace.as_ref().filter(|_| is_polled).map(|_| std::time::Instant::now());
        let polled = match &mut this.handler {
            Some(_) if waits && !guard.pending.cancel.is_aborted() => Poll::Pending,
            Some(handler) if !guard.pending.cancel.is_aborted() => Pin::new(handler).poll(cx).map(Some),
            _ => Poll::Ready(None),
        };
        guard.has_begun();
        if let (Some(pace), Some(began)) = (&this.pace, began) {
            pace.note(polled.is_ready(), began.elapsed());
        }
        let cancel = &guard.pending.cancel;
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

impl<L: Send + 'static, E: Send + 'static> HandlerTasks<L, E> {
    /// `report` tells the actor about ends; it is called on the tasks of handlers.
    pub(crate) fn new(
        grace: Duration,
        abort_text: String,
        report: impl Fn(HandlerEnd<E>) + Send + Sync + 'static,
    ) -> Self {
        let ends = Arc::new(HandlerEnds { table: HandlerTable::new(), report: Box::new(report) });
        let tasks = TaskTracker::new();
        let ready = ReadyHandlers::new(tasks.clone(), Pace::QUICK);
        Self { ends, next: 0, quick: Vec::new(), ready, tasks, grace, abort_text }
    }

    /// Starts a handler. Its output is the report for the actor, if any. A handler with a quick pace runs with the next
    /// [`flush`](HandlerTasks::flush), with others of its kind.
    pub(crate) fn start(
        &mut self,
        pending: Arc<PendingRequest>,
        label: L,
        limit: Option<Duration>,
        pace: Option<Pace>,
        handler: impl Future<Output = Option<E>> + Send + Unpin + 'static,
    ) {
        let id = self.next;
        self.next += 1;
        pending.gate().begins();
        let guard = EndGuard {
            id,
            pending: pending.clone(),
            ends: self.ends.clone(),
            is_over: false,
            is_beginning: true,
        };
        let deadline = limit.map(|limit| after(pending.received, limit));
        self.ends.table.insert(id, RunningHandler { pending, label, limit, deadline });
        let is_quick = pace.as_ref().is_some_and(Pace::is_quick);
        let (handler, stage, guard) = (Some(handler), HandlerStage::Spawned, Some(guard));
        let task = HandlerTask { handler, stage, grace: self.grace, pace, guard };
        if is_quick {
            self.quick.push(Box::pin(task));
            if self.quick.len() >= MOST {
                self.flush();
            }
        } else {
            // No handler is spawned before one that was asked for earlier.
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

    /// Removes a handler whose end was reported.
    pub(crate) fn ended(&self, (id, report): HandlerEnd<E>) -> Option<(RunningHandler<L>, Option<E>)> {
        Some((self.ends.table.remove(id)?, report))
    }

    pub(crate) fn table(&self) -> &HandlerTable<L> {
        &self.ends.table
    }

    /// The id of the next handler: ids count up.
    pub(crate) fn next_id(&self) -> HandlerId {
        self.next
    }

    /// Answers all requests with an error, cancels their handlers, and aborts those that outlive their grace time. The
    /// grace time ends early when the session is `killed`. Returns when all tasks have ended, or after `abort_within`:
    /// a handler that blocks its thread cannot be aborted.
    pub(crate) async fn stop(&mut self, abort_within: Duration, killed: &CancellationToken) {
        self.ends.table.refuse_all(&self.abort_text);
        self.tasks.close();
        let ended = tokio::select! {
            ended = tokio::time::timeout(self.grace, self.tasks.wait()) => ended.is_ok(),
            () = killed.cancelled() => false,
        };
        if !ended {
            self.ends.table.abort_all();
            if tokio::time::timeout(abort_within, self.tasks.wait()).await.is_err() {
                tracing::warn!("handlers that block their thread are left behind");
            }
        }
    }
}

impl<L, E> Drop for HandlerTasks<L, E> {
    fn drop(&mut self) {
        self.ends.table.refuse_all(&self.abort_text);
        self.ends.table.abort_all();
        self.ready.clear();
        // A handler that blocks its thread holds the table, and would keep alive what the entries hold.
        self.ends.table.clear();
    }
}
