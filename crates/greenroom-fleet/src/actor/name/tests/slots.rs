//! The requests of a name's actor to admission, while admission is restarted and while messages cross.

use std::sync::Arc;
use std::time::Duration;

use greenroom::Session;
use greenroom_testkit::{ModelTurn, Script, ScriptedCli, ScriptedListener};
use ractor::{Actor, ActorRef};
use serde_json::json;
use tokio::sync::oneshot;

use crate::actor::admitter::{AdmissionLink, Admitter, AdmitterMessage, Granted};
use crate::actor::cell::{NameCell, StageKind};
use crate::actor::context::FleetShared;
use crate::actor::name::{NameActor, NameContext, NameMessage};
use crate::admission::{Admission, AdmissionMessage, Grant, Tally, Want};
use crate::backend::{MemoryBackend, Requests};
use crate::event::FleetEvent;
use crate::id::Name;
use crate::limits::FleetLimits;
use crate::profile::Profile;
use crate::record::{PromptContent, PromptRecord};
use crate::request::{Accept, Accepted};
use crate::stage::turn::{BegunTurn, completed};
use crate::stage::{accept, join, joined, shared};
use crate::testkit::{Fault, FaultedBackend};

/// Starts an admission in which these names hold a slot. `true`: the name is being started; `false`: it runs a turn.
async fn admit(
    shared: &FleetShared,
    link: &AdmissionLink,
    holders: &[(&str, bool)],
) -> ActorRef<AdmitterMessage> {
    let mut admission = Admission::new(shared.limits.clone(), Arc::default());
    for (name, starting) in holders {
        admission.holds(&format!("acme/{}", *name).parse::<Name>().unwrap(), *starting);
    }
    let (admitter, _) = Actor::spawn(None, Admitter, admission).await.unwrap();
    link.connect(Some(admitter.clone()));
    admitter
}

/// Starts the actor of the name `a`.
async fn start_name(
    shared: &Arc<FleetShared>,
    admission: &AdmissionLink,
) -> (Arc<NameCell>, ActorRef<NameMessage>) {
    let cell = NameCell::new("acme/a".parse::<Name>().unwrap());
    let cx = NameContext { shared: shared.clone(), cell: cell.clone(), admission: admission.clone() };
    let (actor, _) = Actor::spawn(None, NameActor, (cx, None)).await.unwrap();
    (cell, actor)
}

/// The counts of the node, as admission has them.
async fn counts(admitter: &ActorRef<AdmitterMessage>) -> Tally {
    let (reply, counts) = oneshot::channel();
    admitter.cast(AdmitterMessage::Counts(reply)).unwrap();
    counts.await.unwrap().node
}

/// Waits until the actor of a name is in this stage.
async fn is_in(cell: &NameCell, stage: StageKind) {
    until(&format!("{stage:?}"), async || cell.is_in(stage)).await;
}

async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    // Far more than the actors need, and few enough to end soon: time stands still while the test yields.
    for _ in 0..100_000 {
        if is_so().await {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("not seen: {what}");
}

async fn accept_text(shared: &FleetShared) -> PromptRecord {
    let prompt = serde_json::to_value(greenroom::Prompt::text("hello")).unwrap();
    let content = PromptContent { prompt, continuation: None };
    let accept = Accept { content, ..accept("a", Duration::from_secs(3600)) };
    match shared.backend.accept(accept).await.unwrap() {
        Accepted::New(record) => record,
        other => panic!("not accepted: {other:?}"),
    }
}

/// The new admission reads who holds a slot, then the name frees its slot, and only then admission can be told.
#[tokio::test(start_paused = true)]
async fn a_slot_that_is_freed_while_admission_restarts_is_not_lost() {
    let shared = joined(MemoryBackend::new(), FleetLimits { live: 1, ..FleetLimits::default() }).await;
    accept_text(&shared).await;
    let mut events = shared.events.subscribe();
    let admission = AdmissionLink::default();

    // The name holds nothing any more, and nobody hears it ask.
    let (cell, actor) = start_name(&shared, &admission).await;
    is_in(&cell, StageKind::Waiting).await;

    let admitter = admit(&shared, &admission, &[("a", false)]).await;
    actor.cast(NameMessage::AskAgain).unwrap();
    let starts = async { while !matches!(events.recv().await.unwrap(), FleetEvent::Activating { .. }) {} };
    tokio::time::timeout(Duration::from_secs(60), starts).await.expect("the name gets its slot again");
    actor.stop(None);
    admitter.stop(None);
}

/// The session comes up when the old admission has ended and the new one cannot be told yet.
#[tokio::test(start_paused = true)]
async fn a_session_that_comes_up_while_admission_restarts_counts_as_started() {
    let backend = FaultedBackend::new(MemoryBackend::new());
    let cli = ScriptedCli::play(Script::new().turn(ModelTurn::new().text("hello")));
    let mut fleet = shared(Arc::new(backend.clone()), FleetLimits::default());
    let profile: Profile = Arc::new(move |_| Session::builder().transport(cli.transport()));
    fleet.profiles.insert("support".into(), profile);
    fleet.folders.open().await.unwrap();
    let (shared, admission) = (join(fleet).await, AdmissionLink::default());
    accept_text(&shared).await;
    let before = admit(&shared, &admission, &[]).await;

    backend.fault_next("record_process", Fault::Hang);
    let (cell, actor) = start_name(&shared, &admission).await;
    backend.wait_for_hanging(1).await;
    before.stop(None);
    admission.connect(None);
    backend.release();
    is_in(&cell, StageKind::Idle).await;

    let after = admit(&shared, &admission, &[("a", true)]).await;
    actor.cast(NameMessage::AskAgain).unwrap();
    let counts_as_idle = async || {
        let node = counts(&after).await;
        (node.starting, node.idle) == (0, 1)
    };
    until("the name counts as idle", counts_as_idle).await;
    actor.stop(None);
    after.stop(None);
}

/// The actor of the name `a` with an admission of its own. The test plays the CLI.
struct Acting {
    shared: Arc<FleetShared>,
    cell: Arc<NameCell>,
    actor: ActorRef<NameMessage>,
    admitter: ActorRef<AdmitterMessage>,
    listener: ScriptedListener,
}

impl Acting {
    /// Starts the actor with a prompt that waits. The holders have slots.
    async fn start(limits: FleetLimits, holders: &[(&str, bool)]) -> Self {
        let (transport, listener) = ScriptedCli::by_hand();
        let mut fleet = shared(Arc::new(MemoryBackend::new()), limits);
        let profile: Profile = Arc::new(move |_| Session::builder().transport(transport.clone()));
        fleet.profiles.insert("support".into(), profile);
        fleet.folders.open().await.unwrap();
        let (shared, admission) = (join(fleet).await, AdmissionLink::default());
        let admitter = admit(&shared, &admission, holders).await;
        accept_text(&shared).await;
        let (cell, actor) = start_name(&shared, &admission).await;
        Self { shared, cell, actor, admitter, listener }
    }

    async fn counts(&self) -> Tally {
        counts(&self.admitter).await
    }
}

/// A request that was withdrawn too late comes back as a turn that the name does not expect.
#[tokio::test(start_paused = true)]
async fn a_turn_that_is_granted_while_an_interrupt_is_on_its_way_is_given_back() {
    let mut acting = Acting::start(FleetLimits::default(), &[]).await;
    let mut cli = acting.listener.accept().await;
    cli.handshake().await;
    let prompt = cli.expect("user").await;
    let (done, interrupted) = oneshot::channel();
    acting.actor.cast(NameMessage::Interrupt { prompt: None, done }).unwrap();
    let interrupt = cli.expect_request("interrupt").await;
    cli.begin_turn();
    cli.finish_turn(&prompt, "done");
    is_in(&acting.cell, StageKind::Idle).await;
    let order = Some(accept_text(&acting.shared).await.order);
    acting.actor.cast(NameMessage::Wake(None)).unwrap();
    is_in(&acting.cell, StageKind::Idle).await;

    let ask = AdmissionMessage::Ask { want: Want::Turn, order };
    let ask = AdmitterMessage::Of("acme/a".parse::<Name>().unwrap(), ask, acting.actor.get_derived());
    acting.admitter.cast(ask).unwrap();
    assert_eq!(acting.counts().await.running, 1, "the turn is granted");
    let is_given_back = async || {
        let counts = acting.counts().await;
        (counts.running, counts.idle) == (0, 1)
    };
    until("the turn is given back", is_given_back).await;
    is_in(&acting.cell, StageKind::Idle).await;

    cli.answer(&interrupt, json!({ "still_queued": [], "cancelled": [] }));
    assert!(interrupted.await.unwrap().unwrap());
    cli.expect("user").await;
    is_in(&acting.cell, StageKind::Running).await;
    acting.actor.stop(None);
    acting.admitter.stop(None);
}

/// An admission that was restarted while the name asked may have heard it twice.
#[tokio::test(start_paused = true)]
async fn a_slot_that_is_granted_to_a_name_with_a_slot_stays_taken() {
    let mut acting = Acting::start(FleetLimits::default(), &[]).await;
    let mut cli = acting.listener.accept().await;
    cli.handshake().await;
    cli.expect("user").await;
    acting
        .actor
        .cast(NameMessage::Granted(Granted { grant: Grant::Activate, by: acting.admitter.get_id() }))
        .unwrap();
    let (done, up) = oneshot::channel();
    acting.actor.cast(NameMessage::Warm(done)).unwrap();
    up.await.unwrap().unwrap();
    let counts = acting.counts().await;
    assert_eq!((counts.live(), counts.running), (1, 1), "{counts:?}");
    acting.actor.stop(None);
    acting.admitter.stop(None);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_ends_in_a_drain_waits_for_no_slot() {
    let mut acting = Acting::start(FleetLimits::default(), &[]).await;
    let mut cli = acting.listener.accept().await;
    cli.handshake().await;
    let prompt = cli.expect("user").await;
    acting.admitter.cast(AdmitterMessage::Drain).unwrap();
    cli.begin_turn();
    cli.finish_turn(&prompt, "done");
    is_in(&acting.cell, StageKind::Idle).await;
    accept_text(&acting.shared).await;
    acting.actor.cast(NameMessage::Wake(None)).unwrap();
    while acting.counts().await.asking == 0 {
        tokio::task::yield_now().await;
    }

    let mut events = acting.shared.events.subscribe();
    acting.shared.draining.cancel();
    acting.actor.cast(NameMessage::End).unwrap();
    let ended = acting.actor.wait(Some(Duration::from_secs(60)));
    let (ended, ()) = tokio::join!(ended, cli.run_out());
    ended.expect("the actor ends");
    let waits = |event: &FleetEvent| matches!(event, FleetEvent::Waiting { .. });
    assert!(!std::iter::from_fn(|| events.try_recv().ok()).any(|event| waits(&event)));
    assert_eq!(acting.counts().await.asking, 0);
    acting.admitter.stop(None);
}

/// A slot would be of no use: a session would be evicted for it, and its tenant would pay.
#[tokio::test(start_paused = true)]
async fn a_name_whose_prompt_runs_elsewhere_asks_for_no_slot() {
    let limits = FleetLimits { live: 1, ..FleetLimits::default() };
    let acting = Acting::start(limits, &[("b", false)]).await;
    is_in(&acting.cell, StageKind::Waiting).await;
    // Another one waits, for its turn at the other node.
    let waits = acting.shared.backend.next_prompt("acme/a".parse::<Name>().unwrap()).await.unwrap().unwrap();
    accept_text(&acting.shared).await;
    let mut elsewhere = shared(acting.shared.backend.clone(), FleetLimits::default());
    elsewhere.host = "there".into();
    let elsewhere = join(elsewhere).await;
    let begun = BegunTurn::begin(&elsewhere, "a", waits.id).await;

    acting.actor.cast(NameMessage::Wake(None)).unwrap();
    acting.actor.wait(Some(Duration::from_secs(60))).await.expect("the actor ends");
    assert_eq!(acting.counts().await.asking, 0);
    begun.finish(completed()).await;
    acting.admitter.stop(None);
}
