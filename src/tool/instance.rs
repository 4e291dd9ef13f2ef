//! A server's definition together with one state, on which calls can be run.

use std::any::Any;
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use foldhash::fast::RandomState;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::context::Call;
use super::def::{AnyState, Arguments, AsyncRun, Definition, Lane, Ran};
use super::dispatch::{Outcome, Start};
use super::registry::Lists;
use crate::wire::{CallToolResult, RpcError};

/// A server that can run calls.
///
/// The drop of a state is code of the application: it may block or panic. It happens on a thread of the blocking
/// pool, wherever the instance is dropped.
pub(crate) struct Instance {
    tools: HashMap<String, Runnable, RandomState>,
    /// Also those that no tool uses.
    states: Vec<AnyState>,
    blocking: Arc<BlockingLane>,
}

/// A tool that can be called.
pub(crate) struct Runnable {
    definition: Arc<Definition>,
    lane: Lane,
    enabled: bool,
    state: AnyState,
    limit: Option<Arc<Semaphore>>,
}

impl Runnable {
    /// How long a call may take, if the tool says so.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.definition.timeout
    }

    /// Whether it runs on the blocking lane.
    pub(crate) fn blocks(&self) -> bool {
        matches!(self.definition.lane, Lane::Blocking(_))
    }
}

/// The lane of the handlers that block their thread.
#[derive(Debug)]
pub(crate) struct BlockingLane {
    places: Arc<Semaphore>,
    running: AtomicUsize,
    abandoned: AtomicU64,
}

impl BlockingLane {
    pub(crate) fn new(places: usize) -> Arc<Self> {
        Arc::new(Self {
            places: Arc::new(Semaphore::new(places.min(Semaphore::MAX_PERMITS))),
            running: AtomicUsize::new(0),
            abandoned: AtomicU64::new(0),
        })
    }

    /// Handlers that occupy a thread now, abandoned ones among them.
    pub(crate) fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// Handlers that were left behind on their thread since the start.
    pub(crate) fn abandoned(&self) -> u64 {
        self.abandoned.load(Ordering::Relaxed)
    }
}

/// How a call ended on the tool's side.
#[derive(Debug)]
pub(crate) enum Ended {
    /// It returned; an error that it returned is a result too.
    Returned(CallToolResult),
    /// Its arguments did not fit; the handler was not called.
    BadArguments(CallToolResult),
    /// It panicked with this text.
    Panicked(String),
    /// It was cancelled while it waited for its place; the handler was not called.
    NotBegun,
}

impl Ended {
    /// What the model reads.
    pub(crate) fn result(self, tool: &str) -> CallToolResult {
        match self {
            Ended::Returned(result) | Ended::BadArguments(result) => result,
            Ended::Panicked(text) => CallToolResult::error(format!("tool '{tool}' panicked: {text}")),
            Ended::NotBegun => CallToolResult::error(format!("tool '{tool}' was cancelled before it began")),
        }
    }
}

impl Instance {
    pub(crate) fn new(lists: &Lists, states: Vec<AnyState>, blocking: Arc<BlockingLane>) -> Self {
        let mut instance = Self { tools: HashMap::default(), states, blocking };
        instance.refresh(lists);
        instance
    }

    /// Takes over what has changed in the list of tools. Calls in flight have what they need.
    pub(crate) fn refresh(&mut self, lists: &Lists) {
        let mut before = std::mem::take(&mut self.tools);
        self.tools = lists
            .tools
            .iter()
            .map(|entry| {
                let definition = entry.definition.clone();
                let name = definition.name.clone();
                let is_same = |tool: &Runnable| Arc::ptr_eq(&tool.definition, &definition);
                let same = if before.get(&name).is_some_and(is_same) { before.remove(&name) } else { None };
                let runnable = match same {
                    // The same tool as before keeps count of its calls.
                    Some(same) => Runnable { enabled: entry.enabled, ..same },
                    None => {
                        let limit = definition
                            .max_concurrency
                            .map(|calls| Arc::new(Semaphore::new(calls.min(Semaphore::MAX_PERMITS))));
                        let (state, lane) = (self.state(entry.state), definition.runs());
                        Runnable { definition, lane, enabled: entry.enabled, state, limit }
                    }
                };
                (name, runnable)
            })
            .collect();
        if !before.is_empty() {
            drop_elsewhere(before);
        }
    }

    /// The state of a handler.
    pub(crate) fn state(&self, index: Option<usize>) -> AnyState {
        index.and_then(|index| self.states.get(index)).map_or_else(|| Arc::new(()) as AnyState, Arc::clone)
    }

    /// Drops the states and waits for that.
    pub(crate) async fn end(mut self) {
        let held = (std::mem::take(&mut self.tools), std::mem::take(&mut self.states));
        // A panic in there is the application's; the states are gone all the same.
        tokio::task::spawn_blocking(move || drop_quietly(held)).await.ok();
    }

    /// A tool that may be called.
    pub(crate) fn tool(&self, name: &str) -> Option<&Runnable> {
        self.tools.get(name).filter(|tool| tool.enabled)
    }

    /// The future that runs a call to its end, whatever the handler does. Dropping it abandons a handler on the blocking
    /// lane and ends any other.
    pub(crate) fn run(
        &self,
        tool: &Runnable,
        call: Arc<Call>,
        arguments: Arguments,
    ) -> impl Future<Output = Ended> + Send + Unpin + use<> {
        let state = tool.state.clone();
        match (&tool.lane, &tool.limit) {
            // By far the most frequent, and so the one that is small: every call is a task of this size.
            (Lane::Async(run), None) => {
                Either::Left(RunAsync::Begins { run: run.clone(), state, call, arguments })
            }
            (lane, limit) => {
                let (lane, limit, blocking) = (lane.clone(), limit.clone(), self.blocking.clone());
                Either::Right(Box::pin(run_in_place(lane, limit, blocking, state, call, arguments)))
            }
        }
    }
}

/// A call of a tool that runs as a task. The handler is called when it is polled first: what it does before its future is
/// there is code of the application, too.
enum RunAsync {
    Begins {
        run: AsyncRun,
        state: AnyState,
        call: Arc<Call>,
        arguments: Arguments,
    },
    Runs(BoxFuture<'static, Ran>),
    /// Nothing is done with it any more.
    Ended,
}

impl Future for RunAsync {
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended> {
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
            Ok(None) => Poll::Ready(Ended::NotBegun),
            Err(panic) => Poll::Ready(ended(Err(panic))),
        }
    }
}

/// The same for a tool that has to wait for its place.
async fn run_in_place(
    lane: Lane,
    limit: Option<Arc<Semaphore>>,
    blocking: Arc<BlockingLane>,
    state: AnyState,
    call: Arc<Call>,
    arguments: Arguments,
) -> Ended {
    let place_of_tool = match limit {
        Some(limit) => match place(limit, &call).await {
            Some(place) => Some(place),
            None => return Ended::NotBegun,
        },
        None => None,
    };
    match lane {
        Lane::Async(run) => {
            let _place = place_of_tool;
            RunAsync::Begins { run, state, call, arguments }.await
        }
        Lane::Blocking(run) => {
            let Some(place) = place(blocking.places.clone(), &call).await else {
                return Ended::NotBegun;
            };
            let places = (place, place_of_tool);
            ended(run_blocking(blocking, places, move || run(state, call, arguments)).await)
        }
    }
}

fn ended(ran: Result<Ran, Box<dyn Any + Send>>) -> Ended {
    match ran {
        Ok(Ran::Returned(result)) => Ended::Returned(result),
        Ok(Ran::BadArguments(error)) => Ended::BadArguments(CallToolResult::error(error)),
        Err(panic) => Ended::Panicked(panic_text(&*panic)),
    }
}

/// Runs a handler that is no tool's to its end; `Err` is the text of its panic.
pub(crate) async fn run_caught(start: Start, state: AnyState, call: Arc<Call>) -> Result<Outcome, String> {
    AssertUnwindSafe(async move { start(state, call).await })
        .catch_unwind()
        .await
        .map_err(|panic| panic_text(&*panic))
}

/// What the CLI is told when a handler that is no tool's has panicked.
pub(crate) fn panicked(label: &str, text: &str) -> RpcError {
    RpcError::internal(format!("the handler of '{label}' panicked: {text}"))
}

impl Drop for Instance {
    fn drop(&mut self) {
        let held = (std::mem::take(&mut self.tools), std::mem::take(&mut self.states));
        if held.0.is_empty() && held.1.is_empty() {
            return;
        }
        drop_elsewhere(held);
    }
}

/// Drops what is the application's, a state or a handler, where it may block and panic: on a thread of the blocking pool.
pub(crate) fn drop_elsewhere(held: impl Send + 'static) {
    match tokio::runtime::Handle::try_current() {
        // Nobody waits for it: the pool ends it, or the runtime does.
        Ok(runtime) => drop(runtime.spawn_blocking(move || drop_quietly(held))),
        Err(_) => drop_quietly(held),
    }
}

fn drop_quietly(held: impl Send) {
    if let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(move || drop(held))) {
        tracing::warn!(
            message = panic_text(&*panic),
            "a state or a handler of a tool server panicked when it was dropped"
        );
    }
}

/// Waits for a place; `None` if the call is cancelled first.
async fn place(places: Arc<Semaphore>, call: &Call) -> Option<OwnedSemaphorePermit> {
    tokio::select! {
        biased;
        () = call.cancel().token().cancelled() => None,
        // A semaphore that is never closed always gives a permit.
        place = places.acquire_owned() => place.ok(),
    }
}

/// Runs a handler on the blocking pool. Its places are given back when the handler returns, not when the
/// caller stops waiting: that is what bounds the number of abandoned ones.
async fn run_blocking(
    lane: Arc<BlockingLane>,
    places: (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>),
    run: impl FnOnce() -> Ran + Send + 'static,
) -> Result<Ran, Box<dyn Any + Send>> {
    let running = Running::enter(lane.clone());
    let handler = tokio::task::spawn_blocking(move || {
        let _held = (places, running);
        run()
    });
    let mut waiting = Waiting { lane: Some(lane) };
    let ended = handler.await;
    waiting.lane = None;
    match ended {
        Ok(ran) => Ok(ran),
        Err(error) if error.is_panic() => Err(error.into_panic()),
        // The runtime shuts down and took the handler before it ran.
        Err(_) => Err(Box::new("the runtime is shutting down")),
    }
}

struct Running(Arc<BlockingLane>);

impl Running {
    fn enter(lane: Arc<BlockingLane>) -> Self {
        lane.running.fetch_add(1, Ordering::Relaxed);
        Self(lane)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts a handler as abandoned when it is dropped before the handler has returned.
struct Waiting {
    lane: Option<Arc<BlockingLane>>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(lane) = &self.lane {
            lane.abandoned.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The text of a panic.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a text".to_owned())
}
