//! Faults: a backend with requests that fail, are refused, lose their reply, are slow, or hang; and actors that fail.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::backend::{Backend, Channels, Commit, Committed, Lane, METHODS, Reply, Rows, Wanted};
use crate::error::{BackendError, BackendErrorKind};
use crate::id::{Name, Timestamp};
use crate::request::NodeMessage;

/// A backend that passes requests on to another one, with faults by a plan.
///
/// Its clones share the plan, so a test keeps a clone and changes the faults while a fleet runs on the other one. Without a plan
/// every request passes.
///
/// The caller of a request with [`Fault::LoseReply`] does not know whether it was carried out, and repeats it with the same ids:
///
/// ```
/// use greenroom_fleet::backend::{MemoryBackend, Requests};
/// use greenroom_fleet::testkit::{Fault, FaultedBackend};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), greenroom_fleet::BackendError> {
/// # use std::time::Duration;
/// # use greenroom_fleet::{Join, NodeId};
/// let backend = FaultedBackend::new(MemoryBackend::new());
/// backend.fault_next("join", Fault::LoseReply);
/// let join = Join { node: NodeId::new(), host: "here".into(), lease: Duration::from_secs(30), capacity: 8 };
/// assert!(backend.join(join.clone()).await.is_err());
/// assert_eq!(backend.nodes(None, 10).await?.len(), 1);
/// backend.join(join).await?;
/// assert_eq!(backend.nodes(None, 10).await?.len(), 1);
///
/// // Each third request fails from now on.
/// backend.plan(|request| if request.total % 3 == 0 { Fault::Fail } else { Fault::Pass });
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct FaultedBackend {
    backend: Arc<dyn Backend>,
    shared: Arc<Shared>,
}

/// The fate of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The request is passed on.
    Pass,
    /// The request is passed on after this time of tokio's clock.
    Delay(Duration),
    /// The request is carried out, and its reply is given after this time of tokio's clock.
    DelayReply(Duration),
    /// The request is not carried out: [`Unavailable`](BackendErrorKind::Unavailable).
    Fail,
    /// The request is not carried out, and its error has this kind. After any kind but
    /// [`Unavailable`](BackendErrorKind::Unavailable) a fleet does not repeat it.
    Refuse(BackendErrorKind),
    /// The request is carried out, and its answer is replaced by [`Unavailable`](BackendErrorKind::Unavailable).
    LoseReply,
    /// The request is passed on after the next [`release`](FaultedBackend::release).
    Hang,
    /// The request is carried out, and its reply is given after the next [`release`](FaultedBackend::release).
    HangReply,
}

/// A request, as a plan sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FaultedRequest {
    /// The name of the method of [`Requests`](crate::backend::Requests), such as `begin`.
    pub method: &'static str,
    /// The number of requests of this method so far, from 1.
    pub nth: u64,
    /// The number of requests so far, from 1.
    pub total: u64,
}

type Plan = Arc<dyn Fn(FaultedRequest) -> Fault + Send + Sync>;

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Counts releases.
    released: watch::Sender<u64>,
    hanging: watch::Sender<usize>,
    /// Channels without changes, for backends that tell none.
    silent: Option<Channels>,
}

#[derive(Default)]
struct State {
    plan: Option<Plan>,
    /// Faults for the next requests of their methods.
    next: Vec<(&'static str, Fault)>,
    counts: BTreeMap<&'static str, u64>,
    total: u64,
}

impl FaultedBackend {
    /// A backend without faults so far.
    pub fn new(backend: impl Backend) -> Self {
        Self { backend: Arc::new(backend), shared: Arc::default() }
    }

    /// A backend whose [`changes`](crate::backend::Requests::changes) tell nothing, as if every hint was lost, and every message of another
    /// node. It begins without a plan.
    #[must_use]
    pub fn without_changes(self) -> Self {
        let silent = Some(self.backend.channels().without_changes());
        Self { backend: self.backend, shared: Arc::new(Shared { silent, ..Shared::default() }) }
    }

    /// Decides each request that begins from now on, in place of the plan before. Counts go on.
    ///
    /// The plan runs without a lock, at the first poll of a request's future. For faults by chance, have it decide by a random number whose
    /// seed is [`total`](FaultedRequest::total).
    pub fn plan(&self, plan: impl Fn(FaultedRequest) -> Fault + Send + Sync + 'static) {
        self.state().plan = Some(Arc::new(plan));
    }

    /// Decides the next request of a method of [`Requests`](crate::backend::Requests), such as `begin`, in place of the plan. Faults for one method queue up:
    /// the first one is for the next request, the second one for the request after it.
    ///
    /// # Panics
    /// If [`Requests`](crate::backend::Requests) has no request of this name.
    pub fn fault_next(&self, method: &str, fault: Fault) {
        self.state().next.push((known(method), fault));
    }

    /// Lets all requests pass that begin from now on, until the next [`plan`](Self::plan): the plan and the faults for next requests are gone.
    /// Requests that hang or are delayed stay so.
    pub fn disable(&self) {
        let mut state = self.state();
        state.plan = None;
        state.next.clear();
    }

    /// Lets all requests go on that hang now.
    pub fn release(&self) {
        self.shared.released.send_modify(|releases| *releases += 1);
    }

    /// Requests that hang now.
    pub fn hanging(&self) -> usize {
        *self.shared.hanging.borrow()
    }

    /// Waits until at least `count` requests hang.
    pub async fn wait_for_hanging(&self, count: usize) {
        let mut hanging = self.shared.hanging.subscribe();
        // The sender lives as long as this backend.
        hanging.wait_for(|hanging| *hanging >= count).await.ok();
    }

    /// Requests of a method of [`Requests`](crate::backend::Requests) so far, such as `begin`.
    ///
    /// # Panics
    /// If [`Requests`](crate::backend::Requests) has no request of this name.
    pub fn requests(&self, method: &str) -> u64 {
        self.state().counts.get(known(method)).copied().unwrap_or(0)
    }

    /// Requests so far.
    pub fn total_requests(&self) -> u64 {
        self.state().total
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn decide(&self, method: &'static str) -> Fault {
        let mut state = self.state();
        state.total += 1;
        let count = state.counts.entry(method).or_default();
        *count += 1;
        let request = FaultedRequest { method, nth: *count, total: state.total };
        if let Some(at) = state.next.iter().position(|(next, _)| *next == method) {
            return state.next.remove(at).1;
        }
        let plan = state.plan.clone();
        drop(state);
        plan.map_or(Fault::Pass, |plan| plan(request))
    }

    async fn hang(&self) {
        let mut released = self.shared.released.subscribe();
        self.shared.hanging.send_modify(|hanging| *hanging += 1);
        let _hanging = Hanging(&self.shared.hanging);
        // The sender lives as long as this backend.
        released.changed().await.ok();
    }
}

/// A request that hangs, until this is dropped.
struct Hanging<'a>(&'a watch::Sender<usize>);

impl Drop for Hanging<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Backend for FaultedBackend {
    fn now(&self) -> Timestamp {
        self.backend.now()
    }

    fn read(&self, lane: Lane, wanted: Wanted) -> Reply<'_, Rows> {
        self.backend.read(lane, wanted)
    }

    fn commit(&self, lane: Lane, commit: Commit) -> Reply<'_, Committed> {
        self.backend.commit(lane, commit)
    }

    fn channels(&self) -> &Channels {
        self.shared.silent.as_ref().unwrap_or_else(|| self.backend.channels())
    }

    fn publish(&self, message: NodeMessage) {
        self.backend.publish(message);
    }

    fn default_folder(&self) -> Option<PathBuf> {
        self.backend.default_folder()
    }

    fn is_exclusive(&self) -> bool {
        self.backend.is_exclusive()
    }

    fn is_shared(&self) -> bool {
        self.backend.is_shared()
    }

    fn carry_out<'a>(&'a self, request: &'static str, run: BoxFuture<'a, ()>) -> Reply<'a, ()> {
        Box::pin(async move {
            let fault = self.decide(request);
            let failed = |kind, fate: &str| {
                Err(BackendError::new(kind, format!("a fault of the test: the request `{request}` {fate}")))
            };
            match fault {
                Fault::Fail => return failed(BackendErrorKind::Unavailable, "was not carried out"),
                Fault::Refuse(kind) => return failed(kind, &format!("is refused as {kind:?}")),
                Fault::Delay(time) => tokio::time::sleep(time).await,
                Fault::Hang => self.hang().await,
                _ => {}
            }
            self.backend.carry_out(request, run).await?;
            match fault {
                Fault::LoseReply => {
                    return failed(BackendErrorKind::Unavailable, "may have been carried out");
                }
                Fault::DelayReply(time) => tokio::time::sleep(time).await,
                Fault::HangReply => self.hang().await,
                _ => {}
            }
            Ok(())
        })
    }
}

impl fmt::Debug for FaultedBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultedBackend").finish_non_exhaustive()
    }
}

/// The name of a request. A misspelt one would never meet its fault.
fn known(method: &str) -> &'static str {
    METHODS
        .iter()
        .find(|known| **known == method)
        .unwrap_or_else(|| panic!("no request of a backend is named `{method}`"))
}

/// An actor of a fleet that is made to fail: see [`Fleet::inject`](crate::Fleet::inject).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FleetFault {
    /// The actor that grants slots and turns.
    Admission,
    /// The actor of a name.
    Name(Name),
    /// The supervisor: the fleet ends.
    Supervisor,
}
