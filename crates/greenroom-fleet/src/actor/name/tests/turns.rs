//! The step of a turn, and the end of an activation.

use std::sync::Arc;
use std::time::Duration;

use futures_util::poll;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::actor::cell::NameCell;
use crate::actor::context::FleetShared;
use crate::actor::name::steps::begun::TurnEnd;
use crate::actor::name::steps::give_back;
use crate::actor::name::steps::turn::run_turn;
use crate::actor::retry::NotDone;
use crate::backend::{Backend, MemoryBackend, Requests};
use crate::event::FleetEvent;
use crate::id::{AttemptId, Name};
use crate::limits::FleetLimits;
use crate::record::{InterruptedBy, PromptContent, PromptOutcome, PromptRecord};
use crate::request::{Accept, Accepted, Claim, Claimed, Ownership};
use crate::stage::turn::Played;
use crate::stage::{accept, joined};
use crate::testkit::{Fault, FaultedBackend};

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
        let name = "acme/a".parse::<Name>().unwrap();
        let attempt = AttemptId::new();
        let claim = Claim {
            name: name.clone(),
            node: shared.node,
            attempt,
            losses: 3,
            quota: crate::Quota::default(),
        };
        let Claimed::Won(record) = shared.backend.claim(claim).await.unwrap() else { panic!("not won") };
        let owner = Ownership { name: name.clone(), node: shared.node, term: record.term };
        let (played, cell) = (Played::start().await, NameCell::new(name));
        {
            let mut holdings = cell.holdings();
            (holdings.claim, holdings.owner) = (Some(attempt), Some(owner));
            holdings.session = Some(played.session.clone());
        }
        Self { shared, cell, prompt, played }
    }

    async fn run(&self, interrupt: &CancellationToken) -> Result<TurnEnd, NotDone> {
        run_turn(&self.shared, &self.cell, &mut Vec::new(), &self.prompt, interrupt).await
    }
}

/// A drain cuts a turn off by a kill of its session.
#[tokio::test(start_paused = true)]
async fn a_turn_that_is_cut_off_and_killed_at_once_goes_on_with_its_continuation() {
    let waiting = Waiting::with_continuations(1).await;
    waiting.cell.cut(Duration::ZERO);
    let end = waiting.run(&CancellationToken::new()).await;
    assert!(matches!(end, Ok(TurnEnd::Cut)), "{end:?}");
    assert_eq!(waiting.shared.backend.outcome(waiting.prompt.id).await.unwrap(), None);
}

/// The interrupt comes after the turn has looked for one, and before the session has the prompt: it finds nothing to
/// interrupt.
#[tokio::test(start_paused = true)]
async fn an_interrupt_while_the_session_takes_the_prompt_interrupts_its_turn() {
    let Waiting { shared, cell, prompt, mut played } = Waiting::with_continuations(0).await;
    let interrupt = CancellationToken::new();
    let mut events = shared.events.subscribe();
    let mut tries = Vec::new();
    let mut turn = Box::pin(run_turn(&shared, &cell, &mut tries, &prompt, &interrupt));
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
    let interrupt = CancellationToken::new();
    let mut tries = Vec::new();
    let turn = run_turn(shared, cell, &mut tries, prompt, &interrupt);
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
