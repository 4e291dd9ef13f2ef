//! Replies that are lost, and processes that end between two requests.

use greenroom_fleet::backend::Requests;
use greenroom_fleet::testkit::{Fault, FaultedBackend};
use greenroom_fleet::{InterruptedBy, Name, NameQuery};

use super::*;

/// Runs a prompt while each first reply, or each first request, of a method is lost.
async fn runs_although(method: &'static str, fault: Fault) {
    let world = World::new();
    let backend = FaultedBackend::new(world.backend.clone());
    backend
        .plan(move |request| if request.method == method && request.nth <= 2 { fault } else { Fault::Pass });
    let fleet = start(world.on(backend.clone())).await;
    let keyed = |text: &str| FleetPrompt::new(text).key(text);
    // Without a key: only the ids that the fleet makes tell a repeated request.
    assert_eq!(asks(&fleet, "a", "one").await, "re: one");
    in_time("sleep", named(&fleet, "a").passivate()).await.unwrap();
    assert_eq!(asks(&fleet, "a", keyed("two")).await, "re: two");
    assert!(backend.requests(method) > 2, "{method}: the fault was met");
    assert!(send(&fleet, "a", keyed("two")).await.is_duplicate());
    assert_eq!(world.clis.prompts_of("a"), ["one", "two"]);
    assert_eq!((world.clis.starts_of("a"), world.clis.most_live()), (2, 1));
    drain(&fleet, secs(20)).await;
    let names = world.backend.names(NameQuery::new()).await.unwrap().names;
    assert!(matches!(names[0].state, greenroom_fleet::NameState::Free), "{names:?}");
}

macro_rules! lost_replies {
    ($($test:ident: $method:literal, $fault:expr;)*) => {$(
        #[tokio::test(start_paused = true)]
        async fn $test() {
            runs_although($method, $fault).await;
        }
    )*};
}

lost_replies! {
    an_accept_whose_reply_is_lost_is_one_prompt: "accept", Fault::LoseReply;
    an_accept_that_is_lost_is_repeated: "accept", Fault::Fail;
    a_claim_whose_reply_is_lost_is_one_term: "claim", Fault::LoseReply;
    a_claim_that_is_lost_is_repeated: "claim", Fault::Fail;
    a_begin_whose_reply_is_lost_sends_once: "begin", Fault::LoseReply;
    a_begin_that_is_lost_is_repeated: "begin", Fault::Fail;
    an_append_whose_reply_is_lost_keeps_each_message_once: "append", Fault::LoseReply;
    a_finish_whose_reply_is_lost_is_one_outcome: "finish", Fault::LoseReply;
    a_finish_that_is_lost_is_repeated: "finish", Fault::Fail;
    a_release_whose_reply_is_lost_frees_the_name: "release", Fault::LoseReply;
    a_release_that_is_lost_is_repeated: "release", Fault::Fail;
    a_process_record_whose_reply_is_lost_is_repeated: "record_process", Fault::LoseReply;
}

// Guards: accepted-is-kept
#[tokio::test(start_paused = true)]
async fn an_accept_without_any_reply_is_unknown_and_its_key_finds_it() {
    let world = World::new();
    let backend = FaultedBackend::new(world.backend.clone());
    let fleet = start(world.on(backend.clone())).await;
    backend.plan(|request| if request.method == "accept" { Fault::LoseReply } else { Fault::Pass });
    let keyed = || FleetPrompt::new("one").key("k");
    let unknown = in_time("the accept", named(&fleet, "a").prompt(keyed())).await.unwrap_err();
    let PromptError::Unknown { prompt, key, .. } = unknown else { panic!("{unknown:?}") };
    assert_eq!(key.as_deref(), Some("k"));
    backend.disable();
    assert_eq!(
        outcome(fleet.operator().turn(prompt)).await.text(),
        Some("re: one"),
        "it was accepted, and runs"
    );
    let again = send(&fleet, "a", keyed()).await;
    assert!(again.is_duplicate() && again.prompt_id() == prompt);
}

/// The node owns the name for three looks of the keeper before its actor hears of it.
#[tokio::test(start_paused = true)]
async fn a_name_whose_claim_is_answered_late_stays_owned() {
    let world = World::new();
    let backend = FaultedBackend::new(world.backend.clone());
    backend.fault_next("claim", Fault::DelayReply(secs(18)));
    let fleet = start(world.on(backend.clone())).await;
    assert_eq!(asks(&fleet, "a", "one").await, "re: one");
    assert_eq!((backend.requests("claim"), backend.requests("release")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_hangs_holds_up_no_caller_for_ever() {
    let world = World::new();
    let backend = FaultedBackend::new(world.backend.clone());
    let fleet = start(world.on(backend.clone())).await;
    asks(&fleet, "a", "one").await;
    let a = named(&fleet, "a");
    backend.fault_next("name_record", Fault::Hang);
    let record = tokio::time::timeout(secs(15), a.record()).await.expect("the hanging request is repeated");
    assert_eq!(record.unwrap().queued, 0);
    backend.plan(|request| if request.method == "accept" { Fault::Hang } else { Fault::Pass });
    let unknown = tokio::time::timeout(secs(60), a.prompt("two")).await.expect("the caller is told");
    assert!(matches!(unknown, Err(PromptError::Unknown { .. })), "{unknown:?}");
}

#[tokio::test(start_paused = true)]
async fn a_turn_runs_without_any_hint() {
    let world = World::new();
    let fleet = start(world.on(FaultedBackend::new(world.backend.clone()).without_changes())).await;
    assert_eq!(asks(&fleet, "a", "one").await, "re: one");
    let reminder = FleetPrompt::new("remember").not_before(std::time::SystemTime::now() + secs(60));
    assert_eq!(asks(&fleet, "b", reminder).await, "re: remember");
}

/// Kills the process when its `nth` request of a method hangs, before or after it was carried out. Every prompt has one outcome
/// then, and none was sent twice.
async fn killed_at(method: &'static str, fault: Fault) {
    let world = World::new();
    let backend = FaultedBackend::new(world.backend.clone());
    let fleet = start(world.on(backend.clone())).await;
    backend.plan(move |request| if request.method == method { fault } else { Fault::Pass });
    let accept = async {
        let accepted =
            tokio::time::timeout(secs(10), named(&fleet, "a").prompt(FleetPrompt::new("one").key("k"))).await;
        accepted.ok().map(|turn| turn.unwrap().prompt_id())
    };
    let (accepted, ()) = tokio::join!(accept, in_time("the request", backend.wait_for_hanging(1)));
    let world = world.killed().await;
    drop(fleet);
    world.clis.gone().await;

    let fleet = world.fleet(|_| {}).await;
    let record = named(&fleet, "a").record().await.ok();
    // An accepted prompt is kept, and one that no backend has heard of is not.
    assert_eq!(record.is_some(), (method, fault) != ("accept", Fault::Hang));
    let again = send(&fleet, "a", FleetPrompt::new("one").key("k")).await;
    assert!(accepted.is_none_or(|prompt| again.is_duplicate() && again.prompt_id() == prompt));
    let outcome = outcome(again).await;
    let sent = world.clis.prompts_of("a").len();
    match &outcome {
        PromptOutcome::Completed { .. } => assert_eq!(sent, 1),
        PromptOutcome::Interrupted { by: InterruptedBy::OwnerLost { .. }, .. } => {
            assert!(sent <= 1, "{sent}")
        }
        other => panic!("{method} {fault:?}: {other:?}"),
    }
    assert_eq!(asks(&fleet, "a", "two").await, "re: two");
    let a = "default/a".parse::<Name>().unwrap();
    let after = world.backend.name_record(a).await.unwrap().unwrap();
    assert_eq!((after.queued, after.running), (0, None));
}

macro_rules! killed {
    ($($test:ident: $method:literal, $fault:expr;)*) => {$(
        #[tokio::test(start_paused = true)]
        async fn $test() {
            killed_at($method, $fault).await;
        }
    )*};
}

killed! {
    a_process_killed_before_an_accept_has_accepted_nothing: "accept", Fault::Hang;
    a_process_killed_after_an_accept_has_kept_the_prompt: "accept", Fault::HangReply;
    a_process_killed_before_a_claim_loses_nothing: "claim", Fault::Hang;
    a_process_killed_after_a_claim_loses_nothing: "claim", Fault::HangReply;
    a_process_killed_before_a_begin_has_sent_nothing: "begin", Fault::Hang;
    a_process_killed_after_a_begin_has_an_interrupted_turn: "begin", Fault::HangReply;
    a_process_killed_before_an_append_has_an_interrupted_turn: "append", Fault::Hang;
    a_process_killed_before_a_finish_has_an_interrupted_turn: "finish", Fault::Hang;
    a_process_killed_after_a_finish_has_its_outcome: "finish", Fault::HangReply;
}

// Guards: one-owner
#[tokio::test(start_paused = true)]
async fn no_cli_starts_before_its_activation_is_recorded() {
    let world = World::new();
    let backend = FaultedBackend::new(world.backend.clone());
    let fleet = start(world.on(backend.clone())).await;
    backend.plan(|request| if request.method == "record_process" { Fault::Fail } else { Fault::Pass });
    let turn = send(&fleet, "a", "one").await;
    tokio::time::sleep(secs(10)).await;
    assert_eq!((stage(&fleet, "a").await, world.clis.starts_of("a")), ("activating", 0));
    backend.disable();
    assert_eq!(outcome(turn).await.text(), Some("re: one"));
}
