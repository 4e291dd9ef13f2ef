//! Tests of a name's actor alone, for moments that no fleet can be stopped at.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::poll;
use greenroom::Session;
use greenroom::message::UsageTracker;
use greenroom::testkit::{ModelTurn, Script, ScriptedCli};
use ractor::{Actor, ActorRef};
use serde_json::json;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::steps::release::give_back;
use super::steps::turn::{TurnEnd, run_turn};
use super::steps::{Blame, files_failed};
use super::{NameActor, NameArguments, NameMessage};
use crate::actor::admitter::{AdmissionLink, Admitter, AdmitterArguments, AdmitterMessage, Holder};
use crate::actor::cell::NameCell;
use crate::actor::context::{Activation, FleetShared};
use crate::actor::stage::{accept, joined, shared};
use crate::actor::turn_stage::Played;
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
    let generation = admission.next_generation();
    let holder = Holder { name: name.clone(), tenant: "acme".into(), starting: false };

    // The name holds nothing any more, and nobody hears it ask.
    let cell = NameCell::new(name.clone());
    let arguments = NameArguments { shared: shared.clone(), cell, admission: admission.clone(), next: None };
    let (actor, _) = Actor::spawn(None, NameActor, arguments).await.unwrap();
    is_in(&actor, "waiting").await;

    let arguments = AdmitterArguments { shared, generation, holders: vec![holder] };
    let (admitter, _) = Actor::spawn(None, Admitter, arguments).await.unwrap();
    admission.connect(admitter.clone());
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
    let admit = async |generation, holders| {
        let arguments = AdmitterArguments { shared: shared.clone(), generation, holders };
        let (admitter, _) = Actor::spawn(None, Admitter, arguments).await.unwrap();
        admission.connect(admitter.clone());
        admitter
    };
    let before = admit(admission.next_generation(), Vec::new()).await;

    backend.fault_next("record_process", Fault::Hang);
    let (name, cell) = (Name::new("a").unwrap(), NameCell::new(Name::new("a").unwrap()));
    let arguments = NameArguments { shared: shared.clone(), cell, admission: admission.clone(), next: None };
    let (actor, _) = Actor::spawn(None, NameActor, arguments).await.unwrap();
    backend.wait_for_hanging(1).await;
    before.stop(None);
    let generation = admission.next_generation();
    backend.release();
    is_in(&actor, "idle").await;

    let after = admit(generation, vec![Holder { name, tenant: "acme".into(), starting: true }]).await;
    actor.cast(NameMessage::AskAgain).unwrap();
    is_in(&actor, "idle").await;
    let (reply, counts) = oneshot::channel();
    after.cast(AdmitterMessage::Counts(reply)).unwrap();
    let counts = counts.await.unwrap();
    assert_eq!((counts.starting, counts.idle), (0, 1), "{counts:?}");
    actor.stop(None);
    after.stop(None);
}

/// Waits until the actor of a name has handled all messages so far, and is in this stage.
async fn is_in(actor: &ActorRef<NameMessage>, stage: &str) {
    let mut seen = "";
    // Far more than the actor needs, and few enough to end soon: time stands still while the test yields.
    for _ in 0..100_000 {
        let (reply, report) = oneshot::channel();
        actor.cast(NameMessage::Report(reply)).unwrap();
        seen = report.await.unwrap().stage;
        if seen == stage {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("the name is {seen}, not {stage}");
}

/// A prompt that waits, and the activation of its name, whose CLI the test plays.
struct Waiting {
    shared: Arc<FleetShared>,
    cell: Arc<NameCell>,
    activation: Activation,
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
        let claim = Claim { name: name.clone(), node: shared.node, attempt: AttemptId::new(), losses: 3 };
        let Claimed::Won(record) = shared.backend.claim(claim).await.unwrap() else { panic!("not won") };
        let owner = Ownership { name: name.clone(), node: shared.node, term: record.term };
        let played = Played::start().await;
        let (session, cell) = (played.session.clone(), NameCell::new(name));
        let (claim, tenant, running) = (AttemptId::new(), "acme".into(), Default::default());
        let activation = Activation { owner, claim, tenant, session, running };
        Self { shared, cell, activation, prompt, played }
    }
}

/// A drain cuts a turn off and then kills its session. Both have come when the turn looks.
#[tokio::test(start_paused = true)]
async fn a_turn_that_is_cut_off_and_killed_at_once_goes_on_with_its_continuation() {
    let Waiting { shared, cell, activation, prompt, .. } = Waiting::with_continuations(1).await;
    let (cut, interrupt, mut meter) =
        (CancellationToken::new(), CancellationToken::new(), UsageTracker::default());
    cut.cancel();
    cell.kill().cancel();
    let end = run_turn(&shared, &cell, &activation, &mut meter, &prompt, &cut, &interrupt).await;
    assert_eq!(end, TurnEnd::Cut);
    assert_eq!(shared.backend.outcome(prompt.id).await.unwrap(), None);
}

/// The interrupt comes after the turn has looked for one, and before the session has the prompt: it finds nothing to
/// interrupt.
#[tokio::test(start_paused = true)]
async fn an_interrupt_while_the_session_takes_the_prompt_interrupts_its_turn() {
    let Waiting { shared, cell, activation, prompt, mut played } = Waiting::with_continuations(0).await;
    let (cut, interrupt, mut meter) =
        (CancellationToken::new(), CancellationToken::new(), UsageTracker::default());
    let mut events = shared.events.subscribe();
    let mut turn = Box::pin(run_turn(&shared, &cell, &activation, &mut meter, &prompt, &cut, &interrupt));
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
    assert_eq!(end, TurnEnd::Ended);
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
    let Waiting { shared, cell, activation, prompt, .. } = Waiting::on(backend, 0).await;
    let (cut, interrupt, mut meter) =
        (CancellationToken::new(), CancellationToken::new(), UsageTracker::default());
    let mut events = shared.events.subscribe();
    let turn = run_turn(&shared, &cell, &activation, &mut meter, &prompt, &cut, &interrupt);
    let end = tokio::time::timeout(Duration::from_secs(3600), turn).await.expect("the turn does not run");
    assert_eq!(end, TurnEnd::Fenced);
    let began =
        std::iter::from_fn(|| events.try_recv().ok()).any(|event| matches!(event, FleetEvent::Begun { .. }));
    assert!(!began);
}

/// The keeper releases a name that no cell holds: a quarantine that is late would find it free.
#[tokio::test(start_paused = true)]
async fn a_name_is_held_until_it_is_given_back() {
    let backend = FaultedBackend::new(MemoryBackend::new());
    let Waiting { shared, cell, activation, .. } = Waiting::on(backend.clone(), 0).await;
    {
        let mut holdings = cell.holdings();
        (holdings.claim, holdings.owner) = (Some(activation.claim), Some(activation.owner));
    }
    backend.fault_next("release", Fault::Hang);
    let looks = async {
        backend.wait_for_hanging(1).await;
        assert_eq!(cell.holdings().claim, Some(activation.claim));
        backend.release();
    };
    tokio::join!(give_back(&shared, &cell, false), looks);
    let holdings = cell.holdings();
    assert!(holdings.claim.is_none() && holdings.owner.is_none());
}

#[tokio::test]
async fn a_folder_of_one_session_that_is_not_writable_is_the_sessions_fault() {
    let root = tempfile::tempdir().unwrap();
    let (works, file) = (root.path().join("data"), root.path().join("file"));
    std::fs::write(&file, "no folder").unwrap();
    let cause = async |root: &Path, kind: io::ErrorKind| {
        let error = FilesError::of("create the folder", &root.join("config"), kind.into());
        files_failed(&Folders::at(root.to_owned()), error).await.by
    };
    for kind in [io::ErrorKind::PermissionDenied, io::ErrorKind::ReadOnlyFilesystem] {
        assert_eq!(cause(&works, kind).await, Blame::Session, "{kind}");
        assert_eq!(cause(&file, kind).await, Blame::Host, "{kind}: other sessions fail as well");
    }
    assert_eq!(cause(&works, io::ErrorKind::StorageFull).await, Blame::Host);
    assert_eq!(cause(&works, io::ErrorKind::DirectoryNotEmpty).await, Blame::Host, "something still writes");
    assert_eq!(cause(&works, io::ErrorKind::NotADirectory).await, Blame::Session);
}
