//! Updates of turns on the owner's node, over a feed and a backend that the test holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use serde_json::{Value, json};

use super::*;
use crate::actor::context::FleetShared;
use crate::backend::MemoryBackend;
use crate::face::scope::Scope;
use crate::hub::{Feed, LiveMessage};
use crate::id::{AttemptId, Timestamp};
use crate::record::{Cause, PromptOutcome};
use crate::request::{Answered, Ask};
use crate::stage::turn::*;
use crate::testkit::{Fault, FaultedBackend};

/// An update in short: `7.2 text hello`, `*delta Hel` with a star if a text begins.
pub(crate) fn short(update: Option<Result<Update, FleetError>>) -> String {
    let update = match update {
        Some(Ok(update)) => update,
        Some(Err(error)) => return format!("{error:?}"),
        None => return "over".to_owned(),
    };
    let id = update.id().map(|id| format!("{id} ")).unwrap_or_default();
    let rest = match &update {
        Update::Delta { text, starts: true } => return format!("*delta {text}"),
        Update::Delta { text, .. } | Update::Text { text, .. } => text.clone(),
        Update::ToolCall { call, name, parent, .. } => {
            format!(
                "{call} {name}{}",
                parent.as_ref().map(|parent| format!(" of {parent}")).unwrap_or_default()
            )
        }
        Update::ToolResult { call, text, is_error, .. } => format!("{call} {text} {is_error}"),
        Update::Asked { question } | Update::Decided { question } => {
            let decision = question.decision.as_ref().map(ToString::to_string);
            [question.body.to_string()].into_iter().chain(decision).collect::<Vec<_>>().join(" ")
        }
        Update::Usage { usage, .. } => format!("{} {:?}", usage.output_tokens, usage.cost_usd),
        Update::Gap { from, to, .. } => format!("{from}-{to}"),
        Update::Held { .. } | Update::Heartbeat => return "heartbeat".to_owned(),
        Update::Outcome { outcome, .. } => outcome.word().to_owned(),
    };
    format!("{id}{} {rest}", update.event_name())
}

/// The updates that come without waiting.
fn ready(updates: &mut TurnUpdates) -> Vec<String> {
    std::iter::from_fn(|| updates.next().now_or_never().map(short))
        .take_while(|short| short != "over")
        .collect()
}

async fn rest(updates: TurnUpdates) -> Vec<String> {
    updates.into_stream().map(|update| short(Some(update))).collect().await
}

/// A turn that runs here.
struct Running {
    shared: Arc<FleetShared>,
    begun: BegunTurn,
    feed: Feed,
    last_seq: u64,
}

impl Running {
    async fn new() -> Self {
        let shared = fleet_on(MemoryBackend::new()).await;
        let begun = BegunTurn::new(&shared, "a").await;
        let feed = shared.hub.open(begun.prompt);
        Self { shared, begun, feed, last_seq: 0 }
    }

    fn updates(&self) -> TurnUpdates {
        FleetTurn::new(self.shared.clone(), Scope::ALL, self.begun.prompt, false).updates()
    }

    /// Keeps and shows a complete message.
    async fn say(&mut self, message: Value) {
        self.begun.append(self.last_seq + 1, vec![message.to_string()]).await;
        self.show(&message, true);
        self.last_seq += 1;
    }

    fn show(&self, message: &Value, complete: bool) {
        let message = Message::parse(&message.to_string()).unwrap();
        self.feed.show([LiveMessage { after: self.last_seq, complete, message }]);
    }

    fn part(&self, text: &str) {
        self.show(&part(text), false);
    }

    fn block(&self) {
        let block = json!({ "type": "text", "text": "" });
        let event = json!({ "type": "content_block_start", "index": 0, "content_block": block });
        self.show(&json!({ "type": "stream_event", "parent_tool_use_id": null, "event": event }), false);
    }

    async fn ask(&self, body: &str) -> QuestionId {
        let (owner, prompt, question) = (self.begun.owner.clone(), self.begun.prompt, QuestionId::new());
        let ask =
            Ask { owner, question, prompt, wait: Duration::from_secs(60), call: None, body: body.into() };
        assert!(self.shared.backend.ask(ask).await.unwrap().done().unwrap().is_some());
        question
    }

    async fn answer(&self, question: QuestionId) {
        let answered = self.shared.backend.answer(question, AttemptId::new(), json!("yes")).await.unwrap();
        assert!(matches!(answered, Answered::Decided(_)), "{answered:?}");
    }

    async fn end(self) -> (Arc<FleetShared>, BegunTurn) {
        self.begun.finish(completed()).await;
        (self.shared, self.begun)
    }
}

fn blocks(kind: &str, parent: Option<&str>, content: Value) -> Value {
    json!({ "type": kind, "parent_tool_use_id": parent, "message": { "model": "m", "content": content } })
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn call(id: &str) -> Value {
    json!({ "type": "tool_use", "id": id, "name": "look", "input": {} })
}

fn answered(id: &str) -> Value {
    json!({ "type": "tool_result", "tool_use_id": id, "content": "found", "is_error": false })
}

/// A turn with a subagent, what a reader saw of it meanwhile, and all its updates.
async fn whole_turn() -> (Running, TurnUpdates, Vec<&'static str>) {
    let mut turn = Running::new().await;
    let mut live = turn.updates();
    assert_eq!(ready(&mut live), [""; 0]);
    turn.say(json!({ "type": "system", "subtype": "init" })).await;
    turn.say(blocks("assistant", None, json!([text("I look."), call("1"), call("2"), text("Wait.")]))).await;
    turn.say(blocks("assistant", Some("2"), json!([text("I help."), call("3")]))).await;
    turn.say(blocks("user", Some("2"), json!([text("help"), answered("3")]))).await;
    turn.say(blocks("user", None, json!([answered("1"), answered("2")]))).await;
    turn.say(said("Found.")).await;
    turn.say(json!({ "type": "result", "subtype": "success", "usage": { "output_tokens": 9 },
        "model_usage_since_last_result": { "m": { "costUSD": 0.25, "outputTokens": 9 }, "n": { "costUSD": 0.5, "outputTokens": 4 } } }))
        .await;
    let updates = vec![
        "2.1 text I look.",
        "2.2 tool_call 1 look",
        "2.3 tool_call 2 look",
        "2.4 text Wait.",
        "3.1 tool_call 3 look of 2",
        "4.1 tool_result 3 found false",
        "5.1 tool_result 1 found false",
        "5.2 tool_result 2 found false",
        "6.1 text Found.",
        "7.1 usage 13 Some(0.75)",
        "end outcome completed",
    ];
    (turn, live, updates)
}

#[tokio::test]
async fn updates_are_the_same_live_and_kept_and_end_with_one_outcome() {
    let (turn, mut live, expected) = whole_turn().await;
    let kept = turn.updates();
    let (outcome, before) = expected.split_last().unwrap();
    assert_eq!(ready(&mut live), before);
    turn.end().await;
    assert_eq!(rest(live).await, [*outcome]);
    assert_eq!(rest(kept).await, expected);
}

#[tokio::test]
async fn a_reader_goes_on_after_each_id_without_loss_or_double() {
    let (turn, _, expected) = whole_turn().await;
    let (shared, begun) = turn.end().await;
    let updates = || FleetTurn::new(shared.clone(), Scope::ALL, begun.prompt, false).updates();
    for (index, update) in expected.iter().enumerate() {
        let id: UpdateId = update.split(' ').next().unwrap().parse().unwrap();
        assert_eq!(rest(updates().after(id)).await, expected[index + 1..], "after {id}");
    }
    assert_eq!(rest(updates().after(None)).await, expected);
    assert_eq!(rest(updates().after("1.7".parse::<UpdateId>().unwrap())).await, expected);
}

#[tokio::test]
async fn deltas_come_as_they_are_written_and_none_after_its_text() {
    let mut turn = Running::new().await;
    let mut early = turn.updates();
    assert_eq!(ready(&mut early), [""; 0]);
    turn.block();
    turn.part("Hel");
    assert_eq!(ready(&mut early), ["*delta Hel"]);
    // A page that is loaded now has every delta from now on.
    let mut late = turn.updates();
    assert_eq!(ready(&mut late), [""; 0]);
    turn.part("lo");
    let subagents =
        json!({ "type": "stream_event", "parent_tool_use_id": "2", "event": part("no")["event"] });
    turn.show(&subagents, false);
    turn.say(said("Hello")).await;
    turn.block();
    turn.part("You");
    for updates in [&mut early, &mut late] {
        assert_eq!(ready(updates), ["delta lo", "1.1 text Hello", "*delta You"]);
    }
    // The text is kept, so a new page does not get its deltas.
    assert_eq!(ready(&mut turn.updates()), ["1.1 text Hello"]);
}

#[tokio::test]
async fn deltas_behind_a_hole_are_left_out_until_the_next_text() {
    let mut turn = Running::new().await;
    let mut slow = turn.updates();
    assert_eq!(ready(&mut slow), [""; 0]);
    turn.block();
    // More than a reader may be behind.
    for _ in 0..5000 {
        turn.part("x");
    }
    assert_eq!(ready(&mut slow), [""; 0]);
    turn.part("x");
    assert_eq!(ready(&mut slow), [""; 0]);
    turn.block();
    turn.part("y");
    assert_eq!(ready(&mut slow), ["*delta y"]);
    turn.say(said("y")).await;
    turn.part("z");
    assert_eq!(ready(&mut slow), ["1.1 text y", "delta z"]);
}

#[tokio::test(start_paused = true)]
async fn each_question_is_asked_and_decided_once_and_again_after_a_reconnect() {
    let turn = Running::new().await;
    let mut updates = turn.updates();
    assert_eq!(ready(&mut updates), [""; 0]);
    let first = turn.ask("first").await;
    tokio::task::yield_now().await;
    assert_eq!(ready(&mut updates), [r#"asked "first""#]);
    tokio::time::advance(Duration::from_millis(1)).await;
    turn.ask("second").await;
    turn.answer(first).await;
    tokio::task::yield_now().await;
    let mut two = ready(&mut updates);
    two.sort();
    assert_eq!(two, [r#"asked "second""#, r#"decided "first" by another answer"#]);
    let again = turn.updates().after("7.1".parse::<UpdateId>().unwrap());
    turn.end().await;
    let expected = [r#"decided "second""#, "end outcome completed"];
    assert_eq!(rest(updates).await, expected);
    // What was decided is kept, and what has ended with the turn is not.
    assert_eq!(rest(again).await, [r#"decided "first" by another answer"#, "end outcome completed"]);
}

#[tokio::test(start_paused = true)]
async fn a_question_is_asked_after_another_was_decided() {
    let turn = Running::new().await;
    let mut updates = turn.updates();
    assert_eq!(ready(&mut updates), [""; 0]);
    let first = turn.ask("first").await;
    tokio::task::yield_now().await;
    assert_eq!(ready(&mut updates), [r#"asked "first""#]);
    turn.answer(first).await;
    tokio::task::yield_now().await;
    assert_eq!(ready(&mut updates), [r#"decided "first" by another answer"#]);
    turn.ask("second").await;
    tokio::task::yield_now().await;
    assert_eq!(ready(&mut updates), [r#"asked "second""#]);
    turn.end().await;
}

#[test]
fn the_json_of_an_outcome_is_for_the_people_of_a_tenant() {
    let json = |outcome| {
        serde_json::to_value(Update::Outcome { id: UpdateId::END, outcome: Box::new(outcome) }).unwrap()
    };
    let failed = PromptOutcome::Failed {
        kind: "rate_limited".to_owned(),
        message: "/var/lib/agents is full".to_owned(),
        result: Some(json!({ "session_id": "s" })),
    };
    let expected = json!({ "type": "outcome", "id": "end", "outcome": "failed", "why": "rate_limited" });
    assert_eq!(json(failed), expected);
    let expected = json!({ "type": "outcome", "id": "end", "outcome": "completed", "text": "done" });
    assert_eq!(json(completed()), expected);
}

#[test]
fn an_id_is_read_as_it_is_written_and_nothing_else_is() {
    for id in ["0.0", "7.2", "18446744073709551614.4294967294", "end"] {
        assert_eq!(id.parse::<UpdateId>().unwrap().to_string(), id);
    }
    for text in
        ["", "7", "7.", ".2", "+7.2", "7.-1", "7.2.1", "end ", "99999999999999999999.1", "7.99999999999"]
    {
        assert!(text.parse::<UpdateId>().is_err(), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_turn_beats_and_a_beat_takes_no_update() {
    let mut running = Running::new().await;
    let mut updates = running.updates();
    for _ in 0..2 {
        let begun = tokio::time::Instant::now();
        assert_eq!(short(updates.next().await), "heartbeat");
        assert_eq!(begun.elapsed(), SILENT);
    }
    running.say(blocks("assistant", None, json!([text("hello")]))).await;
    assert_eq!(short(updates.next().await), "1.1 text hello");
    assert_eq!(short(updates.next().await), "heartbeat");
}

#[tokio::test(start_paused = true)]
async fn a_hold_of_another_credential_makes_no_reader_read() {
    let backend = FaultedBackend::new(MemoryBackend::new());
    let shared = fleet_on(backend.clone()).await;
    let prompt = accepted(&backend, accept("a")).await;
    let mut updates = FleetTurn::new(shared.clone(), Scope::ALL, prompt, false).updates();
    assert_eq!(ready(&mut updates), Vec::<String>::new());
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = reads.clone();
    backend.plan(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        Fault::Pass
    });
    let name = shared.backend.prompt_record(prompt).await.unwrap().unwrap().name;
    let own =
        shared.credential(&name, &shared.backend.name_record(name.clone()).await.unwrap().unwrap().profile);
    reads.store(0, Ordering::Relaxed);
    for (credential, wanted) in [(Credential::Key { name: "other".into() }, None), (own, Some("heartbeat"))] {
        let (cause, since) = (Cause::Overloaded, Timestamp(1));
        let hold = Hold {
            credential: credential.clone(),
            cause,
            why: "no".into(),
            since,
            until: Timestamp(2),
            resets_at: None,
            tries: 1,
            trying: None,
        };
        shared.health.learn(Some(&credential), vec![hold], since, shared.node);
        assert_eq!(ready(&mut updates), wanted.map(str::to_owned).into_iter().collect::<Vec<_>>());
        assert_eq!(reads.load(Ordering::Relaxed) > 0, wanted.is_some());
    }
}
