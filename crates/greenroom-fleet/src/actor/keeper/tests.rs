//! The keeper's duties, on the paused clock.

mod commands;
mod deletions;
mod looks;
mod many;
mod nodes;
mod retention;

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::{broadcast, mpsc};
use tokio::time::timeout;

use super::*;
use crate::actor::cell::NameCell;
use crate::backend::{Backend, MemoryBackend};
use crate::event::FleetEnd;
use crate::id::{AttemptId, QuestionId};
use crate::limits::FleetLimits;
use crate::record::{NameState, PromptState};
use crate::request::{Accepted, Ask, Begin, Change, Claim, Claimed, Marked, Owned, Ownership};
use crate::stage::{accept, joined};
use crate::testkit::{Fault, FaultedBackend};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

struct Stage {
    shared: Arc<FleetShared>,
    backend: FaultedBackend,
    events: broadcast::Receiver<FleetEvent>,
    woken: mpsc::UnboundedReceiver<Vec<Name>>,
    wake: mpsc::UnboundedSender<Vec<Name>>,
    start: Instant,
}

impl Stage {
    async fn new() -> Self {
        Self::on(FaultedBackend::new(MemoryBackend::new()), FleetLimits::default()).await
    }

    /// A fleet without a keeper so far.
    async fn on(backend: FaultedBackend, limits: FleetLimits) -> Self {
        let shared = joined(backend.clone(), limits).await;
        Self::of(shared, backend)
    }

    fn of(shared: Arc<FleetShared>, backend: FaultedBackend) -> Self {
        let (wake, woken) = mpsc::unbounded_channel();
        let events = shared.events.subscribe();
        let start = Instant::now();
        Self { shared, backend, events, woken, wake, start }
    }

    fn keeper(&self) -> Keeper {
        let wake = self.wake.clone();
        let wake: WakeNames = Arc::new(move |prompts| {
            wake.send(prompts.into_iter().map(|prompt| prompt.name).collect()).unwrap();
        });
        Keeper::start(self.shared.clone(), wake, Arc::new(|_, _| {}))
    }

    /// A name has an actor.
    fn awake(&self, name: &str) -> Arc<NameCell> {
        awake(&self.shared, &format!("acme/{}", name).parse::<Name>().unwrap())
    }

    /// Lets the keeper look at everything once.
    async fn settle(&self) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    async fn accept(&self, request: crate::request::Accept) -> crate::id::PromptId {
        let Accepted::New(prompt) = self.backend.accept(request).await.unwrap() else { panic!("refused") };
        prompt.id
    }

    async fn woken(&mut self) -> Vec<Name> {
        timeout(HOUR, self.woken.recv()).await.expect("nothing is woken").unwrap()
    }

    async fn claim(&self, name: &Name) -> Ownership {
        self.claim_by(name, AttemptId::new()).await
    }

    /// Claims a name, as its actor knows.
    async fn own(&self, name: &Name) -> Ownership {
        let attempt = AttemptId::new();
        self.awake(name.session()).holdings().claim = Some(attempt);
        self.claim_by(name, attempt).await
    }

    async fn claim_by(&self, name: &Name, attempt: AttemptId) -> Ownership {
        let claim = Claim {
            name: name.clone(),
            node: self.shared.node,
            attempt,
            losses: 3,
            quota: crate::Quota::default(),
        };
        let Claimed::Won(record) = self.backend.claim(claim).await.unwrap() else { panic!("not won") };
        Ownership { name: name.clone(), node: self.shared.node, term: record.term }
    }

    async fn event(&mut self, wanted: impl Fn(&FleetEvent) -> bool) -> FleetEvent {
        let found = async {
            loop {
                let event = self.events.recv().await.unwrap();
                if wanted(&event) {
                    return event;
                }
            }
        };
        timeout(HOUR, found).await.expect("the event does not come")
    }
}

fn awake(shared: &FleetShared, name: &Name) -> Arc<NameCell> {
    shared.awake().entry(name.clone()).or_insert_with(|| NameCell::new(name.clone())).clone()
}

/// Milliseconds are the grain of moments and timers.
fn at(moment: Instant, start: Instant, expected: Duration) {
    let since = moment.duration_since(start);
    assert!(since >= expected && since <= expected + Duration::from_millis(2), "{since:?}, not {expected:?}");
}

#[tokio::test(start_paused = true)]
async fn a_reminder_wakes_its_name_at_its_moment() {
    let mut stage = Stage::new().await;
    let _keeper = stage.keeper();
    for (name, wait) in [("later", 97), ("sooner", 41)] {
        let not_before = Some(stage.backend.now().after(SECOND * wait));
        stage.accept(crate::request::Accept { not_before, ..accept(name, HOUR) }).await;
    }
    assert_eq!(stage.woken().await, ["acme/sooner".parse::<Name>().unwrap()]);
    at(Instant::now(), stage.start, SECOND * 41);
    let of = |name: &str, names: &[Name]| names.iter().any(|woken| woken.session() == name);
    // The sooner one waits still, so each look finds it again.
    while !of("later", &stage.woken().await) {}
    at(Instant::now(), stage.start, SECOND * 97);
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_waits_wakes_its_name_at_once_and_after_a_restart() {
    let mut stage = Stage::new().await;
    let keeper = stage.keeper();
    stage.settle().await;
    let before = Instant::now();
    stage.accept(accept("a", HOUR)).await;
    assert_eq!(stage.woken().await, ["acme/a".parse::<Name>().unwrap()]);
    at(Instant::now(), before, Duration::ZERO);

    drop(keeper);
    while stage.woken.try_recv().is_ok() {}
    let before = Instant::now();
    let _keeper = stage.keeper();
    assert_eq!(stage.woken().await, ["acme/a".parse::<Name>().unwrap()]);
    at(Instant::now(), before, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_was_freed_is_woken_for_its_next_prompt() {
    let mut stage = Stage::new().await;
    let _keeper = stage.keeper();
    stage.accept(accept("a", HOUR)).await;
    let name = "acme/a".parse::<Name>().unwrap();
    let owner = stage.claim(&name).await;
    stage.settle().await;
    while stage.woken.try_recv().is_ok() {}
    let before = Instant::now();
    assert_eq!(stage.shared.backend.release(owner).await.unwrap().done(), Some(true));
    assert_eq!(stage.woken().await, [name]);
    at(Instant::now(), before, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_lost_hint_is_found_by_the_next_look() {
    let backend = FaultedBackend::new(MemoryBackend::new()).without_changes();
    let mut stage = Stage::on(backend, FleetLimits::default()).await;
    let _keeper = stage.keeper();
    stage.settle().await;
    stage.accept(accept("a", HOUR)).await;
    assert_eq!(stage.woken().await, ["acme/a".parse::<Name>().unwrap()]);
    assert!(stage.start.elapsed() <= SECOND * 6, "{:?}", stage.start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_prompts_is_no_flood_of_requests() {
    let mut stage = Stage::new().await;
    let _keeper = stage.keeper();
    tokio::time::sleep(SECOND).await;
    let before = stage.backend.total_requests();
    for prompt in 0..900 {
        stage.accept(accept(&format!("name {}", prompt % 90), HOUR)).await;
        tokio::task::yield_now().await;
    }
    stage.settle().await;
    // Two steps, of 90 names at most.
    let requests = stage.backend.total_requests() - before - 900;
    assert!(requests < 300, "{requests} requests");
    let mut woken = HashSet::new();
    while woken.len() < 90 {
        woken.extend(stage.woken().await);
    }
    assert!(stage.start.elapsed() < SECOND * 2, "{:?}", stage.start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_draining_fleet_wakes_nobody() {
    let mut stage = Stage::new().await;
    stage.shared.draining.cancel();
    let _keeper = stage.keeper();
    stage.accept(accept("a", HOUR)).await;
    tokio::time::sleep(SECOND * 60).await;
    assert!(stage.woken.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn prompts_and_questions_expire_at_their_moments() {
    let stage = Stage::new().await;
    let _keeper = stage.keeper();
    stage.settle().await;
    let mut changes = stage.backend.changes();
    let mut next = async |wanted: Change| {
        let found = async { while changes.recv().await.unwrap() != wanted {} };
        timeout(HOUR, found).await.expect("the change does not come");
        Instant::now()
    };
    let before = Instant::now();
    let expires = stage.accept(accept("a", SECOND * 13)).await;
    at(next(Change::Ended(expires)).await, before, SECOND * 13);

    let runs = stage.accept(accept("b", HOUR)).await;
    let owner = stage.claim(&"acme/b".parse::<Name>().unwrap()).await;
    let begin = Begin {
        owner: owner.clone(),
        prompt: runs,
        attempt: AttemptId::new(),
        quota: crate::Quota::default(),
        credential: None,
    };
    assert!(matches!(stage.backend.begin(begin).await.unwrap().done(), Some(Some(_))));
    let question = QuestionId::new();
    let before = Instant::now();
    let ask = Ask { owner, question, prompt: runs, wait: SECOND * 3, call: None, body: "may I?".into() };
    assert!(stage.backend.ask(ask).await.unwrap().done().unwrap().is_some());
    at(next(Change::Decided(runs, question)).await, before, SECOND * 3);
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_renewals_fail_gives_up_after_four_fifths_of_its_lease() {
    for fault in [Fault::Fail, Fault::Hang] {
        let stage = Stage::new().await;
        // The lease counts from the sending of a renewal, however late its reply comes.
        stage.backend.plan(|request| match request.method {
            "renew" => Fault::DelayReply(SECOND),
            _ => Fault::Pass,
        });
        let _keeper = stage.keeper();
        // The last renewal that succeeds is sent after 10 s.
        tokio::time::sleep(SECOND * 12).await;
        stage.backend.plan(move |request| if request.method == "renew" { fault } else { Fault::Pass });
        timeout(HOUR, stage.shared.lost.cancelled()).await.expect("the node does not give up");
        at(Instant::now(), stage.start, SECOND * 34);
        assert!(!stage.shared.holds_lease());
    }
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_fails_for_less_than_that_fences_nobody() {
    let stage = Stage::new().await;
    let _keeper = stage.keeper();
    tokio::time::sleep(SECOND * 12).await;
    stage.backend.plan(|request| if request.method == "renew" { Fault::Hang } else { Fault::Pass });
    tokio::time::sleep(SECOND * 20).await;
    assert!(stage.shared.holds_lease(), "20 s after the fault");
    stage.backend.disable();
    tokio::time::sleep(SECOND * 60).await;
    assert!(stage.shared.holds_lease());
    assert!(!stage.shared.lost.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_counts_as_dead_is_fenced_at_its_next_renewal() {
    let stage = Stage::new().await;
    let _keeper = stage.keeper();
    stage.settle().await;
    stage.backend.leave(stage.shared.node).await.unwrap();
    timeout(SECOND * 6, stage.shared.lost.cancelled()).await.expect("the node goes on");
    let requests = stage.backend.total_requests();
    tokio::time::sleep(SECOND * 60).await;
    assert_eq!(stage.backend.total_requests(), requests, "a fenced node asks nothing any more");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_after_the_node_has_left_is_no_lost_lease() {
    let stage = Stage::new().await;
    let _keeper = stage.keeper();
    stage.settle().await;
    stage.shared.end.set(FleetEnd::Drained).unwrap();
    stage.backend.leave(stage.shared.node).await.unwrap();
    tokio::time::sleep(SECOND * 6).await;
    assert!(!stage.shared.lost.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_step_is_told_and_the_duty_goes_on() {
    let mut stage = Stage::new().await;
    stage.backend.plan(|request| match (request.method, request.nth) {
        ("waiting", 1) => panic!("the first look panics"),
        _ => Fault::Pass,
    });
    stage.accept(accept("a", HOUR)).await;
    let _keeper = stage.keeper();
    let event = stage.event(|event| matches!(event, FleetEvent::ActorRestarted { .. })).await;
    let FleetEvent::ActorRestarted { actor, why } = event else { unreachable!() };
    assert_eq!(
        (actor.as_str(), why.as_str()),
        ("keeper, at its duty to wake names", "the first look panics")
    );
    assert_eq!(stage.woken().await, ["acme/a".parse::<Name>().unwrap()]);
    at(Instant::now(), stage.start, SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_step_that_does_not_wait_is_told() {
    let mut stage = Stage::new().await;
    assert_eq!(step_of("fence the node", &stage.shared, || false), Some(false));
    let panicked = step_of("fence the node", &stage.shared, || -> bool { panic!("a subscriber panics") });
    assert_eq!(panicked, None);
    let event = stage.event(|event| matches!(event, FleetEvent::ActorRestarted { .. })).await;
    let FleetEvent::ActorRestarted { actor, why } = event else { unreachable!() };
    assert_eq!(
        (actor.as_str(), why.as_str()),
        ("keeper, at its duty to fence the node", "a subscriber panics")
    );
}

#[tokio::test(start_paused = true)]
async fn names_without_an_owner_are_released_and_others_are_not() {
    let stage = Stage::new().await;
    let (stranger, known) = ("acme/stranger".parse::<Name>().unwrap(), "acme/known".parse::<Name>().unwrap());
    for name in ["stranger", "known"] {
        stage.accept(accept(name, HOUR)).await;
    }
    stage.own(&known).await;
    stage.claim(&stranger).await;
    let state = async |name: &Name| stage.backend.name_record(name.clone()).await.unwrap().unwrap().state;
    let _keeper = stage.keeper();
    tokio::time::sleep(SECOND).await;
    assert!(matches!(state(&stranger).await, NameState::Owned { .. }), "its claim may be in flight");
    tokio::time::sleep(SECOND * 5).await;
    assert_eq!(state(&stranger).await, NameState::Free);
    tokio::time::sleep(SECOND * 30).await;
    assert!(matches!(state(&known).await, NameState::Owned { .. }));
}
