//! Runs the operations of a case against a fleet, over restarts of the service.

mod calm;
mod fair;
mod faults;
mod operations;
mod store;
mod takeover;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use greenroom_fleet::backend::{Backend, Requests};
use greenroom_fleet::testkit::{Fault, FaultedBackend, FaultedRequest, FleetFault};
use greenroom_fleet::{
    BackendError, BackendErrorKind, Fleet, FleetEvent, FleetPrompt, FleetSession, Name, NameRecord,
    NameState, NodeRecord, NodeState, PromptError, PromptId, Quota, Refused, TurnItem,
};
pub(crate) use store::Store;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use super::cli::{Caps, Journal};
use super::model::{Answer, Answers, Model, check, stuck, unfinished};
use super::ops::{Ask, Faults, NAMES, Op, Restart, Step, TENANTS, Target};
use super::wait::{SOON, in_time};
use faults::fault;

const LIVE: usize = 6;
const TENANT_LIVE: [usize; 3] = [3, 4, 5];
const STARTING: usize = 2;
const DAY: Duration = Duration::from_secs(24 * 3600);
/// The drain of a fleet whose last handle was dropped.
const DRAIN: Duration = Duration::from_secs(20);
/// The time that the clock may be late.
const LATE: Duration = Duration::from_millis(20);
/// The time in which everything that waits has ended, once nothing disturbs the fleet.
const CALM: Duration = Duration::from_secs(1800);

pub(crate) fn name_of(number: u8) -> String {
    format!("name-{number}")
}

pub(crate) fn full_name(number: u8) -> Name {
    format!("{}/{}", tenant_of(number), name_of(number)).parse().unwrap()
}

pub(crate) fn tenant_of(name: u8) -> &'static str {
    TENANTS[usize::from(name) % TENANTS.len()]
}

/// A case: the facts that outlive a restart of the service.
pub(crate) struct Case {
    store: Store,
    journal: Journal,
    model: Model,
    faults: Arc<Mutex<Faults>>,
    /// Openings so far: after every third one the backend's hints are lost.
    openings: AtomicU64,
}

/// The result of a case.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) violations: Vec<String>,
    pub(crate) answers: Answers,
    pub(crate) launches: u64,
    pub(crate) calls: u64,
}

impl Case {
    pub(crate) fn on(store: Store) -> Self {
        let tenants =
            TENANTS.iter().zip(TENANT_LIVE).map(|(tenant, live)| ((*tenant).to_owned(), live)).collect();
        let answer = if store.is_paused { Duration::from_millis(100) } else { Duration::from_secs(10) };
        let journal = Journal::new(Caps { live: LIVE, starting: STARTING, tenants, answer });
        Self {
            store,
            journal,
            model: Model::default(),
            faults: Arc::new(Mutex::new(Faults::Off)),
            openings: AtomicU64::new(0),
        }
    }

    /// Runs a case. Each life of the service has a runtime of its own: a kill drops it with all that runs.
    pub(crate) fn run(self, steps: &[Step]) -> Report {
        let mut left = steps.iter();
        loop {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .start_paused(self.store.is_paused)
                .build()
                .unwrap();
            let over = runtime.block_on(async {
                self.store.clock.start();
                let over = Life::new(&self).live(&mut left).await;
                self.store.clock.stop();
                over
            });
            drop(runtime);
            if self.journal.count() > 0 {
                self.journal.violate("a stand-in outlives its runtime");
            }
            if over || !self.journal.violations().is_empty() {
                break;
            }
        }
        let state = self.journal.state();
        Report {
            violations: state.violations().to_vec(),
            answers: self.model.state().answers,
            launches: state.launches,
            calls: state.calls,
        }
    }
}

/// The answer to a request, repeated until the backend is there.
async fn repeated<T>(mut request: impl AsyncFnMut() -> Result<T, BackendError>) -> T {
    loop {
        match request().await {
            Err(error) if error.kind() == BackendErrorKind::Unavailable => tokio::task::yield_now().await,
            answer => return answer.unwrap(),
        }
    }
}

/// The nodes that are alive, or own names still.
async fn nodes(backend: &dyn Backend) -> Vec<NodeRecord> {
    in_time("the nodes", repeated(|| backend.nodes(None, 100))).await
}

/// The life of a service process.
struct Life<'a> {
    case: &'a Case,
    backend: Option<Arc<dyn Backend>>,
    faulted: Option<FaultedBackend>,
    fleet: Option<Fleet>,
    /// Ends with the fleet.
    events: Option<JoinHandle<()>>,
    tasks: JoinSet<()>,
    /// Fleets that another process has taken over, until each has ended.
    lost: JoinSet<()>,
}

impl<'a> Life<'a> {
    fn new(case: &'a Case) -> Self {
        Self {
            case,
            backend: None,
            faulted: None,
            fleet: None,
            events: None,
            tasks: JoinSet::new(),
            lost: JoinSet::new(),
        }
    }

    /// Runs operations until the process is killed (`false`) or none is left (`true`).
    async fn live(mut self, left: &mut std::slice::Iter<'_, Step>) -> bool {
        self.open().await;
        for step in left {
            if !self.case.journal.violations().is_empty() {
                return true;
            }
            if self.events.as_ref().is_some_and(JoinHandle::is_finished) {
                self.case.model.state().answers.fenced += 1;
                self.ended("the fleet ended by itself").await;
                self.open().await;
            }
            while self.tasks.try_join_next().is_some() {}
            if let Op::Restart(restart) = step.op {
                self.case.model.state().answers.restarts += 1;
                // Nobody else can open a file that is in use.
                let alone = self.case.store.file.is_some() && restart == Restart::TakeOver;
                if restart == Restart::Kill || alone {
                    self.kill().await;
                    return false;
                }
                self.restart(restart).await;
            } else {
                self.carry_out(&step.op).await;
            }
            if step.settle {
                sleep(Duration::from_millis(1)).await;
            } else {
                tokio::task::yield_now().await;
            }
        }
        self.calm().await;
        true
    }

    fn violate(&self, what: impl Into<String>) {
        self.case.journal.violate(what);
    }

    /// Opens the fleet on what the backend keeps.
    async fn open(&mut self) {
        for attempt in 0..4 {
            if attempt > 0 {
                self.set_faults(Faults::Off);
                // Closes the file of the fleet that could not start: a file is open once in a process.
                (self.backend, self.faulted) = (None, None);
                sleep(Duration::from_millis(500)).await;
            }
            match timeout(Duration::from_secs(60), self.try_open()).await {
                Ok(Ok(())) => return,
                Ok(Err(error)) if attempt == 3 => self.violate(format!("the fleet does not open: {error}")),
                Err(_) if attempt == 3 => self.violate("the fleet does not open in a minute"),
                _ => {}
            }
        }
    }

    async fn try_open(&mut self) -> Result<(), String> {
        let store = &self.case.store;
        let backend = store.open().await?;
        let mut faulted = FaultedBackend::new(backend.clone());
        if self.case.openings.fetch_add(1, Ordering::Relaxed) % 3 == 2 {
            faulted = faulted.without_changes();
        }
        let faults = self.case.faults.clone();
        faulted.plan(move |request| fault(*faults.lock().unwrap(), request));
        (self.backend, self.faulted) = (Some(backend), Some(faulted.clone()));
        let (journal, paused, lease) = (self.case.journal.clone(), store.is_paused, store.lease);
        let process = journal.process();
        let mut builder = Fleet::builder()
            .backend(faulted)
            .host("here")
            .folder(store.folder.path().join("sessions"))
            // Its CLIs are scripted ones in this process.
            .without_watchdog()
            .profile("default", move |cx| journal.activate(cx, process))
            .configure(|limits| {
                limits.lease = lease;
                limits.live = LIVE;
                limits.activations_at_once = STARTING;
                limits.idle_after = Duration::from_secs(if paused { 60 } else { 2 });
                if !paused {
                    limits.idle_before_eviction = Duration::from_millis(50);
                }
                limits.wait = DAY;
                limits.drain = DRAIN;
                limits.retention = 30 * DAY;
                limits.queue.name = 8;
                limits.queue.tenant = 60;
                limits.queue.fleet = 120;
            });
        for (index, tenant) in TENANTS.iter().enumerate() {
            let weight = u32::try_from(index).unwrap() + 1;
            builder = builder.tenant(*tenant, Quota::default().weight(weight).live(TENANT_LIVE[index]));
        }
        let fleet = builder.start().await.map_err(|error| error.to_string())?;
        let (mut events, model, journal) =
            (fleet.operator().events().unwrap(), self.case.model.clone(), self.case.journal.clone());
        self.events = Some(tokio::spawn(async move {
            while let Some(event) = events.next().await {
                match event {
                    Ok(FleetEvent::Activating { name, term, .. }) => {
                        journal.claimed(process, name.session(), term);
                    }
                    Ok(FleetEvent::Ended { prompt, outcome, .. }) => {
                        if let Err(what) = model.state().told_end(prompt, outcome) {
                            journal.violate(what);
                        }
                    }
                    _ => {}
                }
            }
        }));
        self.fleet = Some(fleet);
        Ok(())
    }

    fn set_faults(&self, faults: Faults) {
        *self.case.faults.lock().unwrap() = faults;
        if let Some(faulted) = &self.faulted {
            faulted.release();
        }
    }

    fn session(&self, name: u8) -> Option<FleetSession> {
        let fleet = self.fleet.as_ref()?;
        Some(fleet.tenant(tenant_of(name)).unwrap().session(name_of(name)).unwrap())
    }

    async fn restart(&mut self, restart: Restart) {
        let Some(fleet) = self.fleet.clone() else { return };
        match restart {
            Restart::Drain(millis) => {
                let (limit, began) = (Duration::from_millis(millis.into()), Instant::now());
                if timeout(limit + DAY, fleet.drain(limit)).await.is_err() {
                    self.violate("drain-bounded: the drain does not end");
                }
                if began.elapsed() > limit + LATE && self.is_paused() {
                    self.violate(format!("drain-bounded: {:?} for a drain of {limit:?}", began.elapsed()));
                }
                drop(fleet);
                self.ended("drain-bounded: after a drain").await;
            }
            Restart::Abandon => {
                // The tasks hold handles.
                self.tasks.shutdown().await;
                drop(fleet);
                drop(self.fleet.take());
                self.ended("drain-bounded: after the last handle was dropped").await;
            }
            Restart::Supervisor => {
                fleet.inject(FleetFault::Supervisor);
                drop(fleet);
                self.tasks.shutdown().await;
                drop(self.fleet.take());
                self.ended("drain-bounded: after the supervisor failed").await;
            }
            Restart::TakeOver => {
                drop(fleet);
                self.take_over().await;
            }
            Restart::Backend(millis, carried_out) => return self.restart_backend(millis, carried_out),
            Restart::Kill => {}
        }
        self.open().await;
    }

    fn is_paused(&self) -> bool {
        self.case.store.is_paused
    }

    /// A limit that holds on the paused clock; on the real one it is far longer, as the machine may be busy.
    fn limit(&self, paused: Duration) -> Duration {
        if self.is_paused() { paused } else { SOON }
    }

    /// The fleet ends, or has ended: nothing is left of it.
    async fn ended(&mut self, how: &str) {
        if let Some(mut events) = self.events.take()
            && timeout(self.limit(DRAIN + Duration::from_secs(1)), &mut events).await.is_err()
        {
            self.violate(format!("{how}: the fleet has not ended after {DRAIN:?}"));
            events.abort();
        }
        let live = self.case.journal.live();
        if !live.is_empty() {
            sleep(Duration::from_secs(1)).await;
            let later = self.case.journal.live();
            self.violate(format!("{how}: live CLIs are left: {live:?}; a second later {later:?}"));
        }
        self.tasks.shutdown().await;
        (self.fleet, self.faulted, self.backend) = (None, None, None);
    }
}
