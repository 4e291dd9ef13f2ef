//! Turns of a session whose CLI the test plays, written down over a backend with faults.

mod large;

use std::sync::Mutex;
use std::time::Duration;

use greenroom::{NoArgs, Session, ToolServer};
use serde_json::{Value, json};

use super::*;
use crate::actor::task::spawn;
use crate::backend::{Backend, MemoryBackend, Requests};
use crate::error::BackendErrorKind;
use crate::face::scope::Scope;
use crate::face::turn::FleetTurn;
use crate::face::turn::tests::{rest, short};
use crate::id::*;
use crate::limits::FleetLimits;
use crate::record::*;
use crate::request::*;
use crate::stage::joined;
use crate::stage::turn::*;
use crate::testkit::{Fault, FaultedBackend};

async fn read(turn: &mut FleetTurn, count: usize) -> Vec<String> {
    let mut items = Vec::new();
    for _ in 0..count {
        items.push(short(turn.next().await));
    }
    items
}

#[tokio::test(start_paused = true)]
async fn complete_messages_are_numbered_and_durable_before_they_are_shown() {
    let backend = FaultedBackend::new(MemoryBackend::new());
    let shared = fleet_on(backend.clone()).await;
    let begun = BegunTurn::new(&shared, "a").await;
    let mut played = Played::start().await;
    let (writing, prompt) = played.run(&begun, 0).await;
    let writing = spawn(writing);
    let mut turn = FleetTurn::new(shared.clone(), Scope::ALL, begun.prompt, false);
    played.say_part("a");
    assert_eq!(read(&mut turn, 1).await, ["part a"]);

    backend.plan(|request| if request.method == "append" { Fault::HangReply } else { Fault::Pass });
    played.say("ab");
    played.say_part("c");
    backend.wait_for_hanging(1).await;
    played.cli.flushed().await;
    let early = tokio::time::timeout(Duration::from_millis(10), turn.next()).await;
    assert!(early.is_err(), "{early:?} is shown before the append is answered");
    backend.disable();
    backend.release();
    assert_eq!(read(&mut turn, 2).await, ["1 assistant", "part c"]);

    played.say("cd");
    played.cli.finish_turn(&prompt, "abcd");
    assert_eq!(rest(&mut turn).await, ["2 assistant", "3 result"]);
    assert_eq!(turn.outcome().await.unwrap().text(), Some("abcd"));
    assert_eq!(writing.await.unwrap().unwrap().text(), Some("abcd"));

    let kept = begun.kept().await;
    assert_eq!(kept.iter().map(|message| message.number).collect::<Vec<_>>(), [1, 2, 3]);
    let first: Value = serde_json::from_str(&kept[0].json).unwrap();
    assert_eq!(first["message"], said("ab")["message"]);
    assert_eq!(shared.hub.audiences(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_continuation_goes_on_with_the_numbers_of_its_prompt() {
    let shared = fleet_on(MemoryBackend::new()).await;
    let begun = BegunTurn::new(&shared, "a").await;
    begun.append(1, vec![said("from the first owner").to_string()]).await;
    let mut turn = FleetTurn::new(shared.clone(), Scope::ALL, begun.prompt, false);
    let mut played = Played::start().await;
    let (writing, prompt) = played.run(&begun, 1).await;
    played.say("from the second one");
    played.cli.finish_turn(&prompt, "done");
    let (items, written) = tokio::join!(rest(&mut turn), writing);
    written.unwrap();
    assert_eq!(items, ["1 assistant", "2 assistant", "3 result"]);
}

/// The owner's count is out of date: its first message would pass for a repeated one, and be lost.
#[tokio::test(start_paused = true)]
async fn a_turn_that_is_counted_from_a_number_of_the_past_is_fenced() {
    let shared = fleet_on(MemoryBackend::new()).await;
    let begun = BegunTurn::new(&shared, "a").await;
    begun.append(1, vec![said("one").to_string(), said("two").to_string()]).await;
    let mut played = Played::start().await;
    let (writing, _prompt) = played.run(&begun, 0).await;
    played.say("three");
    let written = tokio::time::timeout(Duration::from_secs(60), writing).await.expect("it is not fenced");
    assert!(matches!(written, Err(NotDone::Fenced)));
    assert_eq!(begun.kept().await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_fenced_owner_writes_and_shows_nothing_more() {
    let backend = MemoryBackend::new();
    let shared = fleet_on(backend.clone()).await;
    let begun = BegunTurn::new(&shared, "a").await;
    let mut played = Played::start().await;
    let (writing, prompt) = played.run(&begun, 0).await;
    let writing = spawn(writing);
    let mut turn = FleetTurn::new(shared.clone(), Scope::ALL, begun.prompt, false);
    played.say("mine");
    assert_eq!(read(&mut turn, 1).await, ["1 assistant"]);

    // The node loses its lease, and another one claims the name.
    backend.leave(shared.node).await.unwrap();
    let other = fleet_on(backend.clone()).await;
    let claim = Claim {
        name: begun.owner.name.clone(),
        node: other.node,
        attempt: AttemptId::new(),
        losses: 3,
        quota: crate::Quota::default(),
    };
    assert!(matches!(backend.claim(claim).await.unwrap(), Claimed::Won(_)));
    played.say("late");
    played.cli.finish_turn(&prompt, "late");
    assert!(matches!(writing.await.unwrap(), Err(NotDone::Fenced)));
    assert_eq!(rest(&mut turn).await, [""; 0]);
    assert_eq!(begun.kept().await.len(), 1);
    let outcome = turn.outcome().await.unwrap();
    assert!(
        matches!(outcome, PromptOutcome::Interrupted { by: InterruptedBy::OwnerLost { .. }, .. }),
        "{outcome:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_without_a_lease_stops_writing_while_the_backend_is_away() {
    let backend = FaultedBackend::new(MemoryBackend::new());
    let shared = fleet_on(backend.clone()).await;
    let begun = BegunTurn::new(&shared, "a").await;
    let mut played = Played::start().await;
    let (writing, _prompt) = played.run(&begun, 0).await;
    let writing = spawn(writing);
    backend.plan(|request| if request.method == "append" { Fault::Hang } else { Fault::Pass });
    played.say("never kept");
    backend.wait_for_hanging(1).await;
    shared.lost.cancel();
    assert!(matches!(writing.await.unwrap(), Err(NotDone::Fenced)));

    // And while it waits for the CLI.
    let (writing, _prompt) = {
        let mut played = Played::start().await;
        played.run(&begun, 0).await
    };
    assert!(matches!(writing.await, Err(NotDone::Fenced)));
    backend.disable();
    assert_eq!(begun.kept().await, []);
}

#[tokio::test(start_paused = true)]
async fn messages_over_the_bound_are_shown_live_and_are_a_gap_afterwards() {
    let limits = FleetLimits { turn_bytes: 1_000, ..FleetLimits::default() };
    let shared = joined(MemoryBackend::new(), limits).await;
    let begun = BegunTurn::new(&shared, "a").await;
    let mut played = Played::start().await;
    let (writing, prompt) = played.run(&begun, 0).await;
    let mut live = FleetTurn::new(shared.clone(), Scope::ALL, begun.prompt, false);
    let speaking = async {
        played.say("short");
        let mut items = read(&mut live, 1).await;
        played.say(&"long".repeat(300));
        played.say("short again");
        played.cli.finish_turn(&prompt, "done");
        items.extend(rest(&mut live).await);
        items
    };
    let (seen, written) = tokio::join!(speaking, writing);
    written.unwrap();
    assert_eq!(seen, ["1 assistant", "2 assistant", "3 assistant", "4 result"]);

    let read_later =
        |from| FleetTurn::new(shared.clone(), Scope::ALL, begun.prompt, false).messages_from(from);
    assert_eq!(rest(&mut read_later(1)).await, ["1 assistant", "gap 2-4"]);
    assert_eq!(rest(&mut read_later(3)).await, ["gap 3-4"]);
    assert_eq!(rest(&mut read_later(5)).await, [""; 0]);
    assert_eq!(read_later(5).outcome().await.unwrap().text(), Some("done"));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_cannot_be_kept_is_a_gap_and_the_turn_goes_on() {
    // The batch is refused, and then its second message alone.
    let backend = FaultedBackend::new(MemoryBackend::new());
    backend.plan(|request| match (request.method, request.nth) {
        ("append", 1 | 3) => Fault::Refuse(BackendErrorKind::Invalid),
        _ => Fault::Pass,
    });
    let shared = fleet_on(backend).await;
    let begun = BegunTurn::new(&shared, "a").await;
    let mut played = Played::start().await;
    let (writing, prompt) = played.run(&begun, 0).await;
    played.say("one");
    played.say("two");
    played.say("three");
    played.cli.finish_turn(&prompt, "done");
    played.cli.flushed().await;
    // Until the session has read what was written.
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(writing.await.unwrap().text(), Some("done"));
    let seqs: Vec<_> = begun.kept().await.iter().map(|kept| kept.number).collect();
    assert_eq!(seqs, [1, 2, 3, 4], "numbers have no gap in the backend");
    let mut turn = FleetTurn::new(shared.clone(), Scope::ALL, begun.prompt, false);
    assert_eq!(rest(&mut turn).await, ["1 assistant", "gap 2-2", "3 assistant", "4 result"]);
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_hangs_delays_no_tool_call_and_no_message_is_lost() {
    let backend = FaultedBackend::new(MemoryBackend::new());
    let shared = fleet_on(backend.clone()).await;
    let begun = BegunTurn::new(&shared, "a").await;
    let clock = ToolServer::new("clock", "1.0.0").tool("now", "The time", async |_: NoArgs| "noon");
    let mut played = Played::start_with(Session::builder().mcp_server(clock)).await;
    let (writing, prompt) = played.run(&begun, 0).await;
    let writing = spawn(writing);
    backend.plan(|request| if request.method == "append" { Fault::Hang } else { Fault::Pass });
    played.say("0");
    backend.wait_for_hanging(1).await;
    for count in 1..600 {
        played.say(&count.to_string());
    }
    let start = tokio::time::Instant::now();
    let answer = played.cli.call("clock", "now", json!({})).await;
    assert_eq!(answer["result"]["content"][0]["text"], "noon", "{answer}");
    assert_eq!(start.elapsed(), Duration::ZERO);
    played.cli.finish_turn(&prompt, "done");
    backend.disable();
    backend.release();
    assert_eq!(writing.await.unwrap().unwrap().text(), Some("done"));
    let kept = begun.kept().await;
    let texts: Vec<_> = kept.iter().filter_map(|kept| Message::parse(&kept.json).unwrap().text()).collect();
    assert_eq!(texts, (0..600).map(|count| count.to_string()).collect::<Vec<_>>());
    assert!(backend.requests("append") <= 6, "{} appends", backend.requests("append"));
}

#[tokio::test(start_paused = true)]
async fn an_append_whose_reply_is_lost_is_repeated_without_a_double() {
    let backend = FaultedBackend::new(MemoryBackend::new());
    let shared = fleet_on(backend.clone()).await;
    let begun = BegunTurn::new(&shared, "a").await;
    backend.plan(|request| match (request.method, request.nth) {
        ("append", 1) => Fault::LoseReply,
        ("append", 2) => Fault::Fail,
        _ => Fault::Pass,
    });
    let mut played = Played::start().await;
    let (writing, prompt) = played.run(&begun, 0).await;
    let mut turn = FleetTurn::new(shared.clone(), Scope::ALL, begun.prompt, false);
    let events = Mutex::new(shared.events.subscribe());
    played.say("one");
    played.cli.finish_turn(&prompt, "done");
    let (items, written) = tokio::join!(rest(&mut turn), writing);
    written.unwrap();
    assert_eq!(items, ["1 assistant", "2 result"]);
    assert_eq!(begun.kept().await.len(), 2);
    let mut events = events.lock().unwrap();
    let mut told = std::iter::from_fn(|| events.try_recv().ok());
    assert!(told.any(|event| matches!(event, crate::FleetEvent::BackendUnavailable { .. })));
}

/// Bytes of messages that the session holds for the scribe, when nothing moves any more.
async fn unread(played: &mut Played) -> usize {
    played.cli.flushed().await;
    // The paused clock goes on when nothing is left to do.
    tokio::time::sleep(Duration::from_millis(1)).await;
    played.session.snapshot().await.unwrap().conversation.unwrap().unread_bytes
}

#[tokio::test(start_paused = true)]
async fn the_next_batch_is_read_while_one_is_kept() {
    let backend = FaultedBackend::new(MemoryBackend::new());
    let shared = fleet_on(backend.clone()).await;
    let begun = BegunTurn::new(&shared, "a").await;
    let mut played = Played::start().await;
    let (writing, prompt) = played.run(&begun, 0).await;
    let writing = spawn(writing);
    let mut turn = FleetTurn::new(shared.clone(), Scope::ALL, begun.prompt, false);
    backend.plan(|request| if request.method == "append" { Fault::HangReply } else { Fault::Pass });
    played.say("1");
    backend.wait_for_hanging(1).await;
    played.say_part("2");
    played.say("2");
    played.say("3");
    assert_eq!(unread(&mut played).await, 0, "read while the first batch is being kept");
    backend.disable();
    backend.release();
    assert_eq!(read(&mut turn, 4).await, ["1 assistant", "part 2", "2 assistant", "3 assistant"]);
    assert_eq!(backend.requests("append"), 2, "the rest is one batch");
    played.cli.finish_turn(&prompt, "done");
    assert_eq!(rest(&mut turn).await, ["4 result"]);
    assert_eq!(writing.await.unwrap().unwrap().text(), Some("done"));
}

#[tokio::test(start_paused = true)]
async fn one_batch_is_read_ahead_while_the_backend_hangs() {
    for (text, ahead) in [("x".to_owned(), BATCH), ("x".repeat(BATCH_BYTES / 4), 4)] {
        let backend = FaultedBackend::new(MemoryBackend::new());
        let shared = fleet_on(backend.clone()).await;
        let begun = BegunTurn::new(&shared, "a").await;
        let mut played = Played::start().await;
        let (writing, prompt) = played.run(&begun, 0).await;
        let writing = spawn(writing);
        backend.plan(|request| if request.method == "append" { Fault::Hang } else { Fault::Pass });
        played.say(&text);
        backend.wait_for_hanging(1).await;
        for _ in 0..ahead + 3 {
            played.say(&text);
        }
        let left = unread(&mut played).await;
        backend.disable();
        backend.release();
        played.cli.finish_turn(&prompt, "done");
        assert_eq!(writing.await.unwrap().unwrap().text(), Some("done"));
        let kept = begun.kept().await;
        assert_eq!(left, 3 * kept[0].json.len(), "three messages wait in the session");
        assert_eq!(kept.len(), 1 + ahead + 3 + 1);
    }
}

#[tokio::test(start_paused = true)]
async fn messages_read_ahead_are_dropped_when_the_owner_is_fenced() {
    let backend = FaultedBackend::new(MemoryBackend::new());
    let shared = fleet_on(backend.clone()).await;
    let begun = BegunTurn::new(&shared, "a").await;
    let mut played = Played::start().await;
    let (writing, _prompt) = played.run(&begun, 0).await;
    let writing = spawn(writing);
    let mut turn = FleetTurn::new(shared.clone(), Scope::ALL, begun.prompt, false);
    backend.fault_next("append", Fault::HangReply);
    played.say("kept");
    backend.wait_for_hanging(1).await;
    played.say("read ahead");
    assert_eq!(unread(&mut played).await, 0);
    backend.leave(shared.node).await.unwrap();
    let other = fleet_on(backend.clone()).await;
    let claim = Claim {
        name: begun.owner.name.clone(),
        node: other.node,
        attempt: AttemptId::new(),
        losses: 3,
        quota: crate::Quota::default(),
    };
    assert!(matches!(backend.claim(claim).await.unwrap(), Claimed::Won(_)));
    backend.release();
    assert!(matches!(writing.await.unwrap(), Err(NotDone::Fenced)));
    assert_eq!(rest(&mut turn).await, ["1 assistant"]);
    assert_eq!(begun.kept().await.len(), 1);
}
