//! Tests of a name's actor alone, for moments that no fleet can be stopped at.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::poll;
use greenroom::Session;
use greenroom::message::UsageTracker;
use greenroom::testkit::{ModelTurn, Script, ScriptedCli, ScriptedListener};
use ractor::{Actor, ActorRef};
use serde_json::json;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::steps::release::give_back;
use super::steps::turn::{TurnEnd, run_turn};
use super::steps::{NotStarted, of_files};
use super::{NameActor, NameContext, NameMessage};
use crate::actor::admitter::{AdmissionLink, Admitter, AdmitterArguments, AdmitterMessage, Holder};
use crate::actor::cell::NameCell;
use crate::actor::context::FleetShared;
use crate::actor::retry::NotDone;
use crate::actor::stage::{accept, joined, shared};
use crate::actor::turn_stage::{BegunTurn, Played, completed};
use crate::admission::{AdmissionMessage, Grant, Tally, Want};
use crate::backend::{Backend, MemoryBackend, Requests};
use crate::error::FilesError;
use crate::event::FleetEvent;
use crate::files::Folders;
use crate::id::{AttemptId, Name};
use crate::limits::FleetLimits;
use crate::profile::Profile;
use crate::record::{InterruptedBy, PromptContent, PromptOutcome, PromptRecord};
use crate::request::{Accept, Accepted, Claim, Claimed, Join, Ownership};
use crate::testkit::{Fault, FaultedBackend};

/// The new admission reads who holds a slot, then the name frees its slot, and only then admission can be told.
#[tokio::test(start_paused = true)]
async fn a_slot_that_is_freed_while_admission_restarts_is_not_lost() {
    let shared = joined(MemoryBackend::new(), FleetLimits { live: 1, ..FleetLimits::default() }).await;
    let accepted = shared.backend.accept(accept("a", Duration::from_secs(3600))).await.unwrap();
    assert!(matches!(accepted, Accepted::New(_)), "{accepted:?}");
    let mut events = shared.events.subscribe();
    let (name, admission) = (Name::new("a").unwrap(), AdmissionLink::default());
    let holder = Holder { name: name.clone(), tenant: "acme".into(), starting: false };

    // The name holds nothing any more, and nobody hears it ask.
    let cell = NameCell::new(name.clone());
    let cx = NameContext { shared: shared.clone(), cell: cell.clone(), admission: admission.clone() };
    let (actor, _) = Actor::spawn(None, NameActor, (cx, None)).await.unwrap();
    is_in(&cell, "waiting").await;

    let arguments = AdmitterArguments { shared, holders: vec![holder] };
    let (admitter, _) = Actor::spawn(None, Admitter, arguments).await.unwrap();
    admission.connect(Some(admitter.clone()));
    actor.cast(NameMessage::AskAgain).unwrap();
    let starts = async {
        while !matches!(events.recv().await.unwrap(), FleetEvent::Activating { name: of, .. } if of == name) {
        }
    };
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
    let join = Join { node: fleet.node, host: "here".into(), lease: fleet.limits.lease, capacity: 8 };
    backend.join(join).await.unwrap();
    let accepted = backend.accept(accept("a", Duration::from_secs(3600))).await.unwrap();
    assert!(matches!(accepted, Accepted::New(_)), "{accepted:?}");
    let (shared, admission) = (Arc::new(fleet), AdmissionLink::default());
    let admit = async |holders| {
        let arguments = AdmitterArguments { shared: shared.clone(), holders };
        let (admitter, _) = Actor::spawn(None, Admitter, arguments).await.unwrap();
        admission.connect(Some(admitter.clone()));
        admitter
    };
    let before = admit(Vec::new()).await;

    backend.fault_next("record_process", Fault::Hang);
    let (name, cell) = (Name::new("a").unwrap(), NameCell::new(Name::new("a").unwrap()));
    let cx = NameContext { shared: shared.clone(), cell: cell.clone(), admission: admission.clone() };
    let (actor, _) = Actor::spawn(None, NameActor, (cx, None)).await.unwrap();
    backend.wait_for_hanging(1).await;
    before.stop(None);
    admission.connect(None);
    backend.release();
    is_in(&cell, "idle").await;

    let after = admit(vec![Holder { name, tenant: "acme".into(), starting: true }]).await;
    actor.cast(NameMessage::AskAgain).unwrap();
    let counts_as_idle = async || {
        let (reply, counts) = oneshot::channel();
        after.cast(AdmitterMessage::Counts(reply)).unwrap();
        let node = counts.await.unwrap().node;
        (node.starting, node.idle) == (0, 1)
    };
    until("the name counts as idle", counts_as_idle).await;
    actor.stop(None);
    after.stop(None);
}

/// Waits until the actor of a name is in this stage.
async fn is_in(cell: &NameCell, stage: &str) {
    until(stage, async || cell.holdings().stage.is_some_and(|(is, _)| is == stage)).await;
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
    async fn start(limits: FleetLimits, holders: Vec<Holder>) -> Self {
        let (transport, listener) = ScriptedCli::by_hand();
        let mut fleet = shared(Arc::new(MemoryBackend::new()), limits);
        let profile: Profile = Arc::new(move |_| Session::builder().transport(transport.clone()));
        fleet.profiles.insert("support".into(), profile);
        fleet.folders.open().await.unwrap();
        let join = Join { node: fleet.node, host: "here".into(), lease: fleet.limits.lease, capacity: 8 };
        fleet.backend.join(join).await.unwrap();
        let (shared, admission) = (Arc::new(fleet), AdmissionLink::default());
        let arguments = AdmitterArguments { shared: shared.clone(), holders };
        let (admitter, _) = Actor::spawn(None, Admitter, arguments).await.unwrap();
        admission.connect(Some(admitter.clone()));
        accept_text(&shared).await;
        let cell = NameCell::new(Name::new("a").unwrap());
        let cx = NameContext { shared: shared.clone(), cell: cell.clone(), admission };
        let (actor, _) = Actor::spawn(None, NameActor, (cx, None)).await.unwrap();
        Self { shared, cell, actor, admitter, listener }
    }

    async fn counts(&self) -> Tally {
        let (reply, counts) = oneshot::channel();
        self.admitter.cast(AdmitterMessage::Counts(reply)).unwrap();
        counts.await.unwrap().node
    }
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

/// A request that was withdrawn too late comes back as a turn that the name does not expect.
#[tokio::test(start_paused = true)]
async fn a_turn_that_is_granted_while_an_interrupt_is_on_its_way_is_given_back() {
    let mut acting = Acting::start(FleetLimits::default(), Vec::new()).await;
    let mut cli = acting.listener.accept().await;
    cli.handshake().await;
    let prompt = cli.expect("user").await;
    let (done, interrupted) = oneshot::channel();
    acting.actor.cast(NameMessage::Interrupt { prompt: None, done }).unwrap();
    let interrupt = cli.expect_request("interrupt").await;
    cli.begin_turn();
    cli.finish_turn(&prompt, "done");
    is_in(&acting.cell, "idle").await;
    let order = Some(accept_text(&acting.shared).await.order);
    acting.actor.cast(NameMessage::Wake(None)).unwrap();
    is_in(&acting.cell, "idle").await;

    let ask = AdmissionMessage::Ask { tenant: "acme".to_owned(), want: Want::Turn, order };
    let ask = AdmitterMessage::Of(Name::new("a").unwrap(), ask, acting.actor.clone());
    acting.admitter.cast(ask).unwrap();
    assert_eq!(acting.counts().await.running, 1, "the turn is granted");
    let is_given_back = async || {
        let counts = acting.counts().await;
        (counts.running, counts.idle) == (0, 1)
    };
    until("the turn is given back", is_given_back).await;
    is_in(&acting.cell, "idle").await;

    cli.answer(&interrupt, json!({ "still_queued": [], "cancelled": [] }));
    assert!(interrupted.await.unwrap().unwrap());
    cli.expect("user").await;
    is_in(&acting.cell, "running").await;
    acting.actor.stop(None);
    acting.admitter.stop(None);
}

/// An admission that was restarted while the name asked may have heard it twice.
#[tokio::test(start_paused = true)]
async fn a_slot_that_is_granted_to_a_name_with_a_slot_stays_taken() {
    let mut acting = Acting::start(FleetLimits::default(), Vec::new()).await;
    let mut cli = acting.listener.accept().await;
    cli.handshake().await;
    cli.expect("user").await;
    acting.actor.cast(NameMessage::Granted(Grant::Activate, acting.admitter.get_id())).unwrap();
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
    let mut acting = Acting::start(FleetLimits::default(), Vec::new()).await;
    let mut cli = acting.listener.accept().await;
    cli.handshake().await;
    let prompt = cli.expect("user").await;
    acting.admitter.cast(AdmitterMessage::Drain).unwrap();
    cli.begin_turn();
    cli.finish_turn(&prompt, "done");
    is_in(&acting.cell, "idle").await;
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
    let holder = Holder { name: Name::new("b").unwrap(), tenant: "acme".into(), starting: false };
    let limits = FleetLimits { live: 1, ..FleetLimits::default() };
    let acting = Acting::start(limits, vec![holder]).await;
    is_in(&acting.cell, "waiting").await;
    // Another one waits, for its turn at the other node.
    let waits = acting.shared.backend.next_prompt(Name::new("a").unwrap()).await.unwrap().unwrap();
    accept_text(&acting.shared).await;
    let mut elsewhere = shared(acting.shared.backend.clone(), FleetLimits::default());
    elsewhere.host = "there".into();
    let join =
        Join { node: elsewhere.node, host: "there".into(), lease: elsewhere.limits.lease, capacity: 8 };
    elsewhere.backend.join(join).await.unwrap();
    let begun = BegunTurn::begin(&Arc::new(elsewhere), "a", waits.id).await;

    acting.actor.cast(NameMessage::NotFound).unwrap();
    acting.actor.wait(Some(Duration::from_secs(60))).await.expect("the actor ends");
    assert_eq!(acting.counts().await.asking, 0);
    begun.finish(completed()).await;
    acting.admitter.stop(None);
}

/// A prompt that waits, and the activation of its name, whose CLI the test plays.
struct Waiting {
    shared: Arc<FleetShared>,
    cell: Arc<NameCell>,
    prompt: PromptRecord,
    played: Played,
}

impl Waiting {
    async fn with_continuations(continuations: u32) -> Self {
        Self::on(MemoryBackend::new(), continuations).await
    }

    async fn on(backend: impl Backend, continuations: u32) -> Self {
        let shared = joined(backend, FleetLimits::default()).await;
        let content = serde_json::to_value(greenroom::Prompt::text("hello")).unwrap();
        let continuation = (continuations > 0).then(|| content.clone());
        let content = PromptContent { prompt: content, continuation };
        let accept = Accept { content, continuations, ..accept("a", Duration::from_secs(3600)) };
        let Accepted::New(prompt) = shared.backend.accept(accept).await.unwrap() else { panic!("refused") };
        let name = Name::new("a").unwrap();
        let attempt = AttemptId::new();
        let claim = Claim { name: name.clone(), node: shared.node, attempt, losses: 3 };
        let Claimed::Won(record) = shared.backend.claim(claim).await.unwrap() else { panic!("not won") };
        let owner = Ownership { name: name.clone(), node: shared.node, term: record.term };
        let (played, cell) = (Played::start().await, NameCell::new(name));
        {
            let mut holdings = cell.holdings();
            (holdings.claim, holdings.owner) = (Some(attempt), Some(owner));
            (holdings.session, holdings.tenant) = (Some(played.session.clone()), record.tenant);
        }
        Self { shared, cell, prompt, played }
    }

    async fn run(&self, interrupt: &CancellationToken) -> Result<TurnEnd, NotDone> {
        run_turn(&self.shared, &self.cell, &mut UsageTracker::default(), &self.prompt, interrupt).await
    }
}

/// A drain cuts a turn off by a kill of its session.
#[tokio::test(start_paused = true)]
async fn a_turn_that_is_cut_off_and_killed_at_once_goes_on_with_its_continuation() {
    let waiting = Waiting::with_continuations(1).await;
    waiting.cell.cut();
    let end = waiting.run(&CancellationToken::new()).await;
    assert!(matches!(end, Ok(TurnEnd::Cut)), "{end:?}");
    assert_eq!(waiting.shared.backend.outcome(waiting.prompt.id).await.unwrap(), None);
}

/// The interrupt comes after the turn has looked for one, and before the session has the prompt: it finds nothing to
/// interrupt.
#[tokio::test(start_paused = true)]
async fn an_interrupt_while_the_session_takes_the_prompt_interrupts_its_turn() {
    let Waiting { shared, cell, prompt, mut played } = Waiting::with_continuations(0).await;
    let (interrupt, mut meter) = (CancellationToken::new(), UsageTracker::default());
    let mut events = shared.events.subscribe();
    let mut turn = Box::pin(run_turn(&shared, &cell, &mut meter, &prompt, &interrupt));
    // `Begun` is told right before the turn looks for an interrupt and hands the prompt over, all in one poll.
    let mut begun = || {
        std::iter::from_fn(|| events.try_recv().ok()).any(|event| matches!(event, FleetEvent::Begun { .. }))
    };
    while !begun() {
        assert!(poll!(turn.as_mut()).is_pending());
        tokio::task::yield_now().await;
    }
    interrupt.cancel();
    let played = async {
        let prompt = played.cli.expect("user").await;
        let interrupts = played.cli.expect("control_request").await;
        assert_eq!(interrupts["request"]["subtype"], "interrupt");
        played.cli.answer(&interrupts, json!({ "still_queued": [], "cancelled": [] }));
        played.cli.begin_turn();
        played.cli.fail_turn(&prompt, "aborted_tools", "interrupted");
    };
    let both = async { tokio::join!(turn, played).0 };
    let end = tokio::time::timeout(Duration::from_secs(60), both).await.expect("the turn is interrupted");
    assert!(matches!(end, Ok(TurnEnd::Ended)), "{end:?}");
    let outcome = shared.backend.outcome(prompt.id).await.unwrap();
    assert!(
        matches!(outcome, Some(PromptOutcome::Interrupted { by: InterruptedBy::User, .. })),
        "{outcome:?}"
    );
}

/// The timer of the fence comes late after a suspend. Here no keeper runs that would have one.
#[tokio::test(start_paused = true)]
async fn a_prompt_whose_begin_is_answered_after_the_lease_is_not_sent() {
    let backend = FaultedBackend::new(MemoryBackend::new());
    let late = FleetLimits::default().lease;
    backend
        .plan(move |request| if request.method == "begin" { Fault::DelayReply(late) } else { Fault::Pass });
    let waiting = Waiting::on(backend, 0).await;
    let mut events = waiting.shared.events.subscribe();
    let interrupt = CancellationToken::new();
    let turn = waiting.run(&interrupt);
    let end = tokio::time::timeout(Duration::from_secs(3600), turn).await.expect("the turn does not run");
    assert!(matches!(end, Err(NotDone::Fenced)), "{end:?}");
    let began =
        std::iter::from_fn(|| events.try_recv().ok()).any(|event| matches!(event, FleetEvent::Begun { .. }));
    assert!(!began);
}

/// The backend takes everything but this outcome, which is large, so the turn ends with a short one.
#[tokio::test(start_paused = true)]
async fn an_outcome_that_the_backend_never_takes_is_replaced_by_a_failure() {
    let backend = FaultedBackend::new(MemoryBackend::new());
    let mut waiting = Waiting::on(backend.clone(), 0).await;
    let (start, lease) = (tokio::time::Instant::now(), waiting.shared.limits.lease);
    // Longer than the large outcome is tried.
    backend.plan(move |request| match request.method {
        "finish" if start.elapsed() < lease * 2 => Fault::Fail,
        _ => Fault::Pass,
    });
    let Waiting { shared, cell, prompt, played } = &mut waiting;
    let (interrupt, mut meter) = (CancellationToken::new(), UsageTracker::default());
    let turn = run_turn(shared, cell, &mut meter, prompt, &interrupt);
    let cli = async {
        let prompt = played.cli.expect("user").await;
        played.cli.finish_turn(&prompt, &"x".repeat(1 << 20));
    };
    let both = async { tokio::join!(turn, cli).0 };
    let end = tokio::time::timeout(lease * 4, both).await.expect("the turn ends");
    assert!(matches!(end, Ok(TurnEnd::Ended)), "{end:?}");
    let outcome = shared.backend.outcome(prompt.id).await.unwrap();
    assert!(
        matches!(&outcome, Some(PromptOutcome::Failed { kind, result: None, .. }) if kind == "unavailable"),
        "{outcome:?}"
    );
}

/// The keeper releases a name that no cell holds: a quarantine that is late would find it free.
#[tokio::test(start_paused = true)]
async fn a_name_is_held_until_it_is_given_back() {
    let backend = FaultedBackend::new(MemoryBackend::new());
    let Waiting { shared, cell, .. } = Waiting::on(backend.clone(), 0).await;
    let claim = cell.holdings().claim;
    backend.fault_next("release", Fault::Hang);
    let looks = async {
        backend.wait_for_hanging(1).await;
        assert_eq!(cell.holdings().claim, claim);
        backend.release();
    };
    tokio::join!(give_back(&shared, &cell), looks);
    let holdings = cell.holdings();
    assert!(holdings.claim.is_none() && holdings.owner.is_none());
}

#[tokio::test]
async fn a_folder_of_one_session_that_is_not_writable_is_the_sessions_fault() {
    let root = tempfile::tempdir().unwrap();
    let (works, file) = (root.path().join("data"), root.path().join("file"));
    std::fs::write(&file, "no folder").unwrap();
    let is_host = async |root: &Path, kind: io::ErrorKind| {
        let error = FilesError::of("create the folder", &root.join("config"), kind.into());
        matches!(
            of_files::<()>(&Folders::at(root.to_owned(), false), Err(error)).await,
            Err(NotStarted::ByHost(_))
        )
    };
    for kind in [io::ErrorKind::PermissionDenied, io::ErrorKind::ReadOnlyFilesystem] {
        assert!(!is_host(&works, kind).await, "{kind}");
        assert!(is_host(&file, kind).await, "{kind}: other sessions fail as well");
    }
    assert!(is_host(&works, io::ErrorKind::StorageFull).await);
    assert!(is_host(&works, io::ErrorKind::DirectoryNotEmpty).await, "something still writes");
    assert!(!is_host(&works, io::ErrorKind::NotADirectory).await);
}
