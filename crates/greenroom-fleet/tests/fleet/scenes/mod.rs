//! Scenes of a fleet's life: sleep and wake, prompts, quotas, failures, drain.

mod bounds;
mod causes;
mod cli_turns;
mod drain;
mod events;
mod failures;
mod limits;
mod lost_replies;
mod names;
mod pages;
mod prompts;
mod quotas;
mod refusals;
mod restarts;
mod review;
mod sleep;
mod two;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use greenroom::{Session, SessionBuilder};
use greenroom_fleet::backend::{Backend, MemoryBackend};
use greenroom_fleet::{
    Fleet, FleetBuilder, FleetError, FleetEvent, FleetEvents, FleetLimits, FleetPrompt, FleetSession,
    FleetTurn, NameQuery, PromptError, PromptId, PromptOutcome, Refused, SnapshotQuery, Tenant,
};
use tokio::time::Instant;

pub(crate) use crate::clis::Clis;
use crate::timeline;
pub(crate) use crate::wait::in_time;

pub(crate) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The things that outlive a fleet: its backend and the CLIs.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) backend: MemoryBackend,
    pub(crate) clis: Clis,
}

impl World {
    pub(crate) fn new() -> Self {
        Self { backend: MemoryBackend::new(), clis: Clis::default() }
    }

    pub(crate) fn on(&self, backend: impl Backend) -> FleetBuilder {
        let clis = self.clis.clone();
        Fleet::builder().backend(backend).profile("default", move |cx| session(&clis, cx.name.session()))
    }

    pub(crate) fn builder(&self) -> FleetBuilder {
        self.on(self.backend.clone())
    }

    pub(crate) async fn fleet(&self, change: impl FnOnce(&mut FleetLimits)) -> Fleet {
        start(self.builder().configure(change)).await
    }

    /// The facts that a process which is killed now leaves to the next one. A fleet that runs on them is fenced.
    pub(crate) async fn killed(&self) -> World {
        World { backend: self.backend.reopen().await.unwrap(), clis: self.clis.clone() }
    }
}

pub(crate) fn session(clis: &Clis, name: &str) -> SessionBuilder {
    Session::builder().transport(clis.transport(name)).configure(|options| options.restarts.cli.intensity = 0)
}

/// Starts a fleet, whose events are told if the test fails.
pub(crate) async fn start(builder: FleetBuilder) -> Fleet {
    let mut events = builder.events();
    timeline::received("events of a fleet", async move || events.next().await);
    in_time("the start", builder.start()).await.unwrap()
}

pub(crate) fn named(fleet: &Fleet, name: &str) -> FleetSession {
    named_of(fleet, "default", name)
}

pub(crate) fn named_of(fleet: &Fleet, tenant: &str, name: &str) -> FleetSession {
    fleet.tenant(tenant).unwrap().session(name).unwrap()
}

/// Sends a prompt, which is accepted.
pub(crate) async fn send(fleet: &Fleet, name: &str, prompt: impl Into<FleetPrompt>) -> FleetTurn {
    in_time("the accept", named(fleet, name).prompt(prompt)).await.unwrap()
}

/// Sends a prompt, which is refused.
pub(crate) async fn refused(
    session: &FleetSession,
    prompt: impl Into<FleetPrompt>,
) -> (Refused, Option<Duration>) {
    match in_time("the refusal", session.prompt(prompt)).await {
        Err(PromptError::Refused(why)) => {
            let retry_after = why.retry_after();
            (why, retry_after)
        }
        other => panic!("not refused: {other:?}"),
    }
}

pub(crate) async fn outcome(mut turn: FleetTurn) -> PromptOutcome {
    in_time("the outcome", turn.outcome()).await.unwrap()
}

/// Waits until nothing of a prompt is kept.
pub(crate) async fn is_erased(fleet: &Fleet, prompt: PromptId) {
    let outcome = in_time("the outcome", fleet.operator().turn(prompt).outcome()).await;
    assert!(matches!(outcome, Err(FleetError::NotFound { what: "prompt", .. })), "{outcome:?}");
}

/// Sends a prompt and waits for its answer.
pub(crate) async fn asks(fleet: &Fleet, name: &str, prompt: impl Into<FleetPrompt>) -> String {
    let outcome = outcome(send(fleet, name, prompt).await).await;
    outcome.text().unwrap_or_else(|| panic!("no answer: {outcome:?}")).to_owned()
}

pub(crate) async fn drain(fleet: &Fleet, limit: Duration) -> Duration {
    let begun = Instant::now();
    in_time("the drain", fleet.drain(limit)).await;
    begun.elapsed()
}

/// What the name does, as a snapshot tells it; `passive` if it sleeps, and `unknown` if it has no row.
pub(crate) async fn stage(fleet: &Fleet, name: &str) -> &'static str {
    let operator = fleet.operator();
    let snapshot = in_time("the snapshot", operator.snapshot(SnapshotQuery::active())).await.unwrap();
    if let Some(found) = snapshot.names.iter().find(|found| found.record.name.session() == name) {
        return found.stage;
    }
    let names = in_time("the names", operator.names(NameQuery::new())).await.unwrap().names;
    if names.iter().any(|found| found.name.session() == name) { "passive" } else { "unknown" }
}

/// The events of a fleet, from the moment of the subscription.
pub(crate) struct Log(Arc<Mutex<Vec<(Instant, FleetEvent)>>>, Arc<tokio::sync::Notify>);

impl Log {
    pub(crate) fn of(fleet: &Fleet) -> Self {
        Self::new(fleet.operator().events().unwrap())
    }

    pub(crate) fn new(events: FleetEvents) -> Self {
        let log = Self(Arc::default(), Arc::default());
        let (seen, changed) = (log.0.clone(), log.1.clone());
        tokio::spawn(async move {
            let mut events = events;
            while let Some(event) = events.next().await {
                seen.lock().unwrap().push((Instant::now(), event.expect("no event is missed")));
                changed.notify_waiters();
            }
        });
        log
    }

    pub(crate) fn all(&self) -> Vec<(Instant, FleetEvent)> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn count(&self, fits: impl Fn(&FleetEvent) -> bool) -> usize {
        self.all().iter().filter(|(_, event)| fits(event)).count()
    }

    /// Waits for the event, and returns its moment.
    pub(crate) async fn wait(&self, what: &str, fits: impl Fn(&FleetEvent) -> bool) -> Instant {
        self.wait_for(what, 1, fits).await
    }

    /// Waits for the end of a prompt, and returns the word for its outcome.
    pub(crate) async fn end_of(&self, of: PromptId) -> &'static str {
        let ended = |event: &FleetEvent| matches!(event, FleetEvent::Ended { prompt, .. } if *prompt == of);
        self.wait("the end of the prompt", ended).await;
        let word = |event: &FleetEvent| match event {
            FleetEvent::Ended { prompt, outcome, .. } if *prompt == of => Some(*outcome),
            _ => None,
        };
        self.all().iter().find_map(|(_, event)| word(event)).unwrap()
    }

    /// Waits for as many such events, and returns the moment of the last one.
    pub(crate) async fn wait_for(
        &self,
        what: &str,
        count: usize,
        fits: impl Fn(&FleetEvent) -> bool,
    ) -> Instant {
        in_time(what, async {
            loop {
                let changed = self.1.notified();
                let all = self.all();
                if let Some((at, _)) = all.iter().filter(|(_, event)| fits(event)).nth(count - 1) {
                    return *at;
                }
                changed.await;
            }
        })
        .await
    }
}

pub(crate) fn is_passivated(event: &FleetEvent, of: &str) -> bool {
    matches!(event, FleetEvent::Passivated { name, .. } if name.session() == of)
}
