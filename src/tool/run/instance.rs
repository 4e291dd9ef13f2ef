//! A server with its states: runs tool calls.

use std::any::Any;
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use foldhash::fast::RandomState;
use futures_util::future::{BoxFuture, Either};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::blocking::{BlockingLane, run_blocking};
use super::context::CallContext;
use super::erased::{AnyState, Arguments, AsyncRun, CallEnd, ToolRunner};
use super::pace::Pace;
use crate::blocking::caught::{drop_elsewhere, drop_quietly, panic_text};
use crate::tool::define::definition::ToolDefinition;
use crate::tool::registry::Lists;

/// A server with its states.
pub(crate) struct Instance {
    tools: Tools,
    states: Arc<States>,
    blocking: Arc<BlockingLane>,
}

/// The tools of a server by their names.
#[derive(Default)]
pub(crate) struct Tools(HashMap<String, Runnable, RandomState>);

/// The states made for one start of a server. Each call holds the states that it started with, so they outlive a
/// replacement until their last call has ended, and longer than its tools. They are dropped on the blocking
/// pool: the application's drop may block or panic.
#[derive(Default)]
pub(crate) struct States(Vec<AnyState>);

impl Drop for States {
    fn drop(&mut self) {
        if !self.0.is_empty() {
            drop_elsewhere(std::mem::take(&mut self.0));
        }
    }
}

/// A tool with its state and limits.
pub(crate) struct Runnable {
    definition: Arc<ToolDefinition>,
    runner: ToolRunner,
    enabled: bool,
    state: AnyState,
    limit: Option<Arc<Semaphore>>,
    pace: Pace,
}

impl Runnable {
    pub(crate) fn pace(&self) -> &Pace {
        &self.pace
    }

    /// The tool's own limit for a call.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.definition.about.timeout
    }

    /// Whether the handler blocks a thread.
    pub(crate) fn blocks(&self) -> bool {
        matches!(self.definition.runner, ToolRunner::Blocking(_))
    }
}

impl Instance {
    /// `before`: the tools of the instance before, whose calls in flight still count for the tools' limits.
    pub(crate) fn new(
        before: Tools,
        lists: &Lists,
        states: Vec<AnyState>,
        blocking: Arc<BlockingLane>,
    ) -> Self {
        let mut instance = Self { tools: before, states: Arc::new(States(states)), blocking };
        instance.refresh(lists);
        instance
    }

    /// Drops the states, and returns the tools for the next instance.
    pub(crate) fn retire(mut self) -> Tools {
        for tool in self.tools.0.values_mut() {
            tool.state = Arc::new(());
        }
        self.tools
    }

    /// The states, to be held by a call.
    pub(crate) fn states(&self) -> Arc<States> {
        self.states.clone()
    }

    /// Takes the new list of tools. Calls in flight keep their own handler and state.
    pub(crate) fn refresh(&mut self, lists: &Lists) {
        let mut before = std::mem::take(&mut self.tools);
        let tools = lists
            .tools
            .iter()
            .map(|entry| {
                let definition = entry.definition.clone();
                let name = definition.name.clone();
                let is_same = |tool: &Runnable| Arc::ptr_eq(&tool.definition, &definition);
                let same =
                    if before.0.get(&name).is_some_and(is_same) { before.0.remove(&name) } else { None };
                let state = self.state(entry.state);
                let runnable = match same {
                    // An unchanged tool keeps its semaphore, and so the count of its calls.
                    Some(same) => Runnable { enabled: entry.enabled, state, ..same },
                    None => {
                        let limit = definition
                            .max_concurrency
                            .map(|calls| Arc::new(Semaphore::new(calls.min(Semaphore::MAX_PERMITS))));
                        let runner = definition.checked_runner();
                        Runnable {
                            definition,
                            runner,
                            enabled: entry.enabled,
                            state,
                            limit,
                            pace: Pace::default(),
                        }
                    }
                };
                (name, runnable)
            })
            .collect();
        self.tools = Tools(tools);
    }

    /// The state with this index; `()` without an index.
    pub(crate) fn state(&self, index: Option<usize>) -> AnyState {
        index.and_then(|index| self.states.0.get(index)).map_or_else(|| Arc::new(()) as AnyState, Arc::clone)
    }

    /// Drops the states, and waits until they are dropped.
    pub(crate) async fn end(self) {
        drop(self.tools);
        // Abandoned blocking calls drop the states themselves.
        let states = Arc::into_inner(self.states).map(|mut states| std::mem::take(&mut states.0));
        // `drop_quietly` catches a panic of the application's drop.
        tokio::task::spawn_blocking(move || drop_quietly(states)).await.ok();
    }

    /// The tool of this name, if it is enabled.
    pub(crate) fn tool(&self, name: &str) -> Option<&Runnable> {
        self.tools.0.get(name).filter(|tool| tool.enabled)
    }

    /// The future of a call; it catches the handler's panic. Dropping it ends an async handler and abandons a blocking
    /// one.
    pub(crate) fn run(
        &self,
        tool: &Runnable,
        call: Arc<CallContext>,
        arguments: Arguments,
    ) -> impl Future<Output = CallEnd> + Send + Unpin + use<> {
        let state = tool.state.clone();
        match (&tool.runner, &tool.limit) {
            // Almost every call: kept small, because each call holds a future of this size.
            (ToolRunner::Async(run), None) => {
                Either::Left(RunAsync::Begins { run: run.clone(), state, call, arguments })
            }
            (runner, limit) => {
                let (runner, limit, blocking) = (runner.clone(), limit.clone(), self.blocking.clone());
                Either::Right(Box::pin(run_with_permits(runner, limit, blocking, state, call, arguments)))
            }
        }
    }
}

/// The call of an async handler. The first poll calls the handler, so that a panic before its future exists is caught
/// too.
enum RunAsync {
    Begins { run: AsyncRun, state: AnyState, call: Arc<CallContext>, arguments: Arguments },
    Runs(BoxFuture<'static, CallEnd>),
    Ended,
}

impl Future for RunAsync {
    type Output = CallEnd;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CallEnd> {
        let this = std::mem::replace(&mut *self, RunAsync::Ended);
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let mut running = match this {
                RunAsync::Begins { run, state, call, arguments } => run(state, call, arguments),
                RunAsync::Runs(running) => running,
                RunAsync::Ended => return None,
            };
            match running.as_mut().poll(cx) {
                Poll::Ready(ran) => Some(Ok(ran)),
                Poll::Pending => Some(Err(running)),
            }
        }));
        match polled {
            Ok(Some(Ok(ran))) => Poll::Ready(ended(Ok(ran))),
            Ok(Some(Err(running))) => {
                *self = RunAsync::Runs(running);
                Poll::Pending
            }
            Ok(None) => Poll::Ready(CallEnd::NotBegun),
            Err(panic) => Poll::Ready(ended(Err(panic))),
        }
    }
}

/// Runs a call of a blocking tool, or of one with a limit of concurrent calls.
async fn run_with_permits(
    runner: ToolRunner,
    limit: Option<Arc<Semaphore>>,
    blocking: Arc<BlockingLane>,
    state: AnyState,
    call: Arc<CallContext>,
    arguments: Arguments,
) -> CallEnd {
    let of_tool = match limit {
        Some(limit) => match acquire(limit, &call).await {
            Some(permit) => Some(permit),
            None => return CallEnd::NotBegun,
        },
        None => None,
    };
    match runner {
        ToolRunner::Async(run) => {
            let _permit = of_tool;
            RunAsync::Begins { run, state, call, arguments }.await
        }
        ToolRunner::Blocking(run) => {
            let Some(permit) = acquire(blocking.permits.clone(), &call).await else {
                return CallEnd::NotBegun;
            };
            let permits = (permit, of_tool);
            ended(run_blocking(blocking, permits, move || run(state, call, arguments)).await)
        }
    }
}

fn ended(ran: Result<CallEnd, Box<dyn Any + Send>>) -> CallEnd {
    ran.unwrap_or_else(|panic| CallEnd::Panicked(panic_text(&*panic)))
}

/// Waits for a permit, and then for room for the answer, because the CLI may have stopped reading meanwhile. `None` if
/// the call is cancelled first.
async fn acquire(permits: Arc<Semaphore>, call: &CallContext) -> Option<OwnedSemaphorePermit> {
    let acquiring = async {
        // A semaphore that is never closed always gives a permit.
        let permit = permits.acquire_owned().await.ok();
        call.request.room().await;
        permit
    };
    tokio::select! {
        biased;
        () = call.cancel().token().cancelled() => None,
        permit = acquiring => permit,
    }
}
