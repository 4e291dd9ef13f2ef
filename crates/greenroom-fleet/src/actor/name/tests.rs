//! Tests of a name's actor alone, for moments that no fleet can be stopped at.

use std::time::Duration;

use futures_util::poll;
use greenroom::message::UsageTracker;
use ractor::Actor;
use serde_json::json;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::turn::{TurnEnd, run_turn};
use super::{NameActor, NameArguments, NameMessage};
use crate::actor::admitter::{AdmissionLink, Admitter, AdmitterArguments, Holder};
use crate::actor::cell::NameCell;
use crate::actor::context::Activation;
use crate::actor::stage::{accept, joined};
use crate::actor::turn_stage::Played;
use crate::backend::MemoryBackend;
use crate::face::event::FleetEvent;
use crate::face::limits::FleetLimits;
use crate::id::{AttemptId, Name};
use crate::record::{InterruptedBy, PromptContent, PromptOutcome};
use crate::request::{Accept, Accepted, Claim, Claimed, Ownership};

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
    loop {
        let (reply, report) = oneshot::channel();
        actor.cast(NameMessage::Report(reply)).unwrap();
        if report.await.unwrap().stage == "waiting" {
            break;
        }
        tokio::task::yield_now().await;
    }

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

/// The interrupt comes after the turn has looked for one, and before the session has the prompt: it finds nothing to
/// interrupt.
#[tokio::test(start_paused = true)]
async fn an_interrupt_while_the_session_takes_the_prompt_interrupts_its_turn() {
    let shared = joined(MemoryBackend::new(), FleetLimits::default()).await;
    let content = serde_json::to_value(greenroom::Prompt::text("hello")).unwrap();
    let content = PromptContent { prompt: content, continuation: None };
    let accept = Accept { content, ..accept("a", Duration::from_secs(3600)) };
    let Accepted::New(prompt) = shared.backend.accept(accept).await.unwrap() else { panic!("refused") };
    let name = Name::new("a").unwrap();
    let claim = Claim { name: name.clone(), node: shared.node, attempt: AttemptId::new(), losses: 3 };
    let Claimed::Won { record, .. } = shared.backend.claim(claim).await.unwrap() else { panic!("not won") };
    let owner = Ownership { name: name.clone(), node: shared.node, term: record.term };
    let mut played = Played::start().await;
    let (session, cell) = (played.session.clone(), NameCell::new(name));
    let activation = Activation {
        owner,
        claim: AttemptId::new(),
        tenant: "acme".into(),
        session,
        running: Default::default(),
    };
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
