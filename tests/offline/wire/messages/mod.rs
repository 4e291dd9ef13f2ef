//! Messages: recorded sessions come through whole, and what is made of many messages holds for them; prompts that ask
//! nothing; a turn as it is written. The modules have hand-made messages:
//!
//! - [`samples`]: a message of each type and subtype
//! - [`typed`], [`blocks`], [`stream`]: the typed views of whole messages, content blocks and partial messages
//! - [`odd`]: unexpected shapes, and properties of any JSON
//! - [`assembler`]: partial and complete messages, in order and with gaps
//! - [`structured`]: structured output
//! - [`debug`]: the printed text
//! - [`usage`]: money and tokens

use std::fs;
use std::path::Path;

use crate::common::{SOON, start_by_hand, stop, within};
use greenroom::message::{Assembler, ContentBlock, DeltaKind, SystemDetail, UsageTracker};
use greenroom::options::UnreadPartials;
use greenroom::session::{MessageOrGap, Messages};
use greenroom::{Error, Message, Options, Outcome, Prompt, Session};
use greenroom_testkit::ScriptedCli;
use serde_json::{Value, json};

mod assembler;
mod blocks;
mod debug;
mod odd;
mod samples;
mod stream;
mod structured;
mod typed;
mod usage;

fn parse(value: &Value) -> Message {
    Message::parse(&value.to_string()).unwrap()
}

/// An error of the library.
fn refused_option() -> Error {
    let mut options = Options::new();
    options.max_turns = Some(0);
    options.validate().unwrap_err()
}

/// Parses a frame as a message of this type.
macro_rules! view {
    ($variant:ident, $value:expr) => {
        match crate::wire::messages::parse(&$value) {
            greenroom::Message::$variant(message) => message,
            other => panic!("{other:?}"),
        }
    };
}
use view;

/// Recorded sessions of CLI 2.1.328 with a scripted model, without control frames: name and lines.
fn recorded() -> Vec<(String, Vec<String>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded");
    let mut sessions: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let lines = fs::read_to_string(&path).unwrap().lines().map(str::to_owned).collect();
            (path.file_stem().unwrap().to_str().unwrap().to_owned(), lines)
        })
        .collect();
    sessions.sort();
    sessions
}

fn session(name: &str) -> Vec<Message> {
    let sessions = recorded();
    let (_, lines) = sessions.iter().find(|(found, _)| found == name).unwrap();
    lines.iter().map(|line| Message::parse(line).unwrap()).collect()
}

// Guards: lossless
#[test]
fn every_line_of_recorded_sessions_is_known_and_comes_back_unchanged() {
    let mut lines_seen = 0;
    for (name, lines) in recorded() {
        for line in &lines {
            lines_seen += 1;
            let message = Message::parse(line).unwrap();
            assert_eq!(&serde_json::to_string(&message).unwrap(), line, "{name}");
            assert_eq!(message.value(), serde_json::from_str::<Value>(line).unwrap(), "{name}");
            assert!(!matches!(message, Message::Other(_)), "{name}: {message:?}");
            assert_ne!(message.system(), Some(&SystemDetail::Unknown), "{name}: {message}");
            let unknown = message.content().iter().any(|block| matches!(block, ContentBlock::Unknown(_)));
            assert!(!unknown, "{name}: {message}");
            assert!(message.session_id().is_some() && message.uuid().is_some(), "{name}: {message}");
        }
    }
    assert!(lines_seen > 300, "{lines_seen}");
}

#[test]
fn usage_of_a_recorded_session_adds_up_across_a_clear() {
    let mut tracker = UsageTracker::new();
    let turns: Vec<_> =
        session("append_and_clear").iter().filter_map(|message| tracker.feed(message)).collect();
    let costs: Vec<_> = turns.iter().map(|turn| (turn.cost_usd * 1e5).round() as u64).collect();
    // Appending and `/clear` cost nothing.
    assert_eq!(costs, [0, 22, 0, 22, 22, 22, 22, 0, 22]);
    assert_eq!((tracker.total_cost_usd() * 1e5).round() as u64, 132);
    let tokens: u64 = tracker.models().values().map(|used| used.output).sum();
    assert_eq!(tokens, 6 * 9);
}

#[test]
fn the_earlier_cost_of_a_resumed_conversation_does_not_count() {
    // Totals, and the cost since the last result if the CLI reports it.
    let costs = |results: &[(f64, Option<f64>)]| {
        let mut tracker = UsageTracker::new();
        let usage = |cost: f64| json!({ "m": { "costUSD": cost, "outputTokens": (cost * 8.0) as u64 } });
        for (total, since) in results {
            let mut result = json!({ "type": "result", "subtype": "success", "total_cost_usd": total });
            result["modelUsage"] = usage(*total);
            if let Some(since) = since {
                result["model_usage_since_last_result"] =
                    if *since > 0.0 { usage(*since) } else { json!({}) };
            }
            let message = Message::parse(&result.to_string()).unwrap();
            let turn = tracker.feed_result(message.result().unwrap());
            let by_models: f64 = turn.models.values().map(|used| used.cost_usd).sum();
            assert_eq!(by_models, turn.cost_usd, "{turn:?}");
        }
        let tokens: u64 = tracker.models().values().map(|used| used.output).sum();
        (tracker.total_cost_usd(), tokens)
    };
    assert_eq!(costs(&[(10.5, Some(0.5)), (11.0, Some(0.5))]), (1.0, 8));
    // Commands of the CLI, without a model call, come first.
    assert_eq!(costs(&[(0.0, Some(0.0)), (10.0, Some(0.0)), (10.5, Some(0.5))]), (0.5, 4));
    // A CLI that does not say it, and a conversation that starts again.
    assert_eq!(costs(&[(10.5, None), (11.0, None), (0.5, None)]), (11.5, 92));
    assert_eq!(costs(&[(1.0, Some(1.0)), (0.5, Some(0.25))]), (1.25, 10));
    // The CLI was killed and resumed: its totals went on where the last orderly exit had left them.
    assert_eq!(costs(&[(3.0, Some(1.0)), (3.5, Some(1.5))]), (2.5, 20));
}

// Guards: lossless
#[test]
fn deltas_of_a_recorded_session_add_up_to_its_messages() {
    for (name, _) in recorded() {
        let (mut assembler, mut told, mut said) = (Assembler::new(), String::new(), String::new());
        for message in session(&name) {
            if message.is_main_thread() {
                said.extend(message.text());
            }
            for delta in assembler.feed(&message) {
                let replaced = matches!(delta.kind, DeltaKind::BlockReplaced { .. });
                assert!(!replaced, "{name}: {delta:?}");
                told.extend(delta.text().filter(|_| delta.is_main_thread()));
            }
        }
        // Deltas of a message that is cut off were delivered; the complete message may never come.
        assert!(told.starts_with(&said) || told.contains(&said), "{name}: {told:?} {said:?}");
        if !name.starts_with("interrupted") {
            assert_eq!(told, said, "{name}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_prompt_without_a_query_ends_with_its_result_or_its_lifecycle() {
    let (session, mut end, _listener) = start_by_hand(Session::builder()).await;
    let aside = |text| Prompt { should_query: Some(false), ..Prompt::text(text) };
    let mut noted = session.prompt(aside("note")).await.unwrap();
    let mut again = session.prompt(aside("more")).await.unwrap();
    let mut asked = session.prompt("and now?").await.unwrap();

    // As CLI 2.1.328 does it.
    let prompt = within(SOON, end.expect("user")).await;
    assert_eq!(prompt["shouldQuery"], false);
    let done = |uuid: &Value, state: &str| json!({"type": "command_lifecycle", "command_uuid": uuid, "state": state});
    end.message(done(&prompt["uuid"], "started"));
    end.finish_turn(&prompt, "");
    end.message(done(&prompt["uuid"], "completed"));
    let outcome = within(SOON, noted.outcome()).await.unwrap();
    assert!(outcome.is_completed() && outcome.text() == Some(""), "{outcome:?}");

    // And one that gives no result.
    let prompt = within(SOON, end.expect("user")).await;
    end.message(done(&prompt["uuid"], "started"));
    end.message(done(&prompt["uuid"], "completed"));
    let outcome = within(SOON, again.outcome()).await.unwrap();
    assert!(matches!(outcome, Outcome::Appended), "{outcome:?}");
    assert!(outcome.into_result().is_err());

    // A prompt that asks waits for its result.
    let prompt = within(SOON, end.expect("user")).await;
    assert_eq!(prompt.get("shouldQuery"), None);
    end.message(done(&prompt["uuid"], "completed"));
    end.finish_turn(&prompt, "Now.");
    let outcome = within(SOON, asked.outcome()).await.unwrap();
    assert_eq!(outcome.text(), Some("Now."), "{outcome:?}");
    stop(session, end).await;
}

fn piece(text: &str) -> Value {
    json!({"type": "stream_event", "event": {"type": "content_block_delta", "index": 0,
        "delta": {"type": "text_delta", "text": text}}})
}

#[tokio::test(start_paused = true)]
async fn a_turn_is_read_as_it_is_written_whatever_was_dropped_of_it() {
    let builder = Session::builder().configure(|options| {
        options.limits.unread_bytes = 20_000;
        options.include_partial_messages = true;
        options.unread_partials = UnreadPartials::DropFirst;
    });
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let mut turn = session.prompt("Say it.").await.unwrap();
    let prompt = within(SOON, end.expect("user")).await;
    end.begin_turn();
    end.message(json!({"type": "stream_event", "event": {"type": "message_start", "message": {"id": "m1", "content": []}}}));
    end.message(json!({"type": "stream_event", "event": {"type": "content_block_start", "index": 0,
        "content_block": {"type": "text", "text": ""}}}));
    end.message(piece("It "));
    let mut deltas = turn.deltas();
    assert_eq!(within(SOON, deltas.next_text()).await.as_deref(), Some("It "));
    // More messages than a slow subscriber keeps.
    let words: Vec<String> = (0..300).map(|number| format!("is {number} ")).collect();
    for word in &words {
        end.message(piece(word));
    }
    let full = format!("It {}", words.concat());
    end.message(
        json!({"type": "assistant", "message": {"id": "m1", "content": [{"type": "text", "text": full}]}}),
    );
    end.finish_turn(&prompt, &full);
    crate::common::settled(&mut end).await;
    let mut said = String::from("It ");
    while let Some(text) = within(SOON, deltas.next_text()).await {
        said += &text;
    }
    assert_eq!(said, full);
    assert!(turn.missed_partials() > 0);
    stop(session, end).await;
}

/// The next message, or the number of messages that were missed.
async fn next(messages: &mut Messages) -> Result<String, u64> {
    match within(SOON, messages.next()).await.unwrap() {
        MessageOrGap::Message(message) => Ok(message.field("content").unwrap().as_str().unwrap().to_owned()),
        MessageOrGap::Missed(count) => Err(count),
    }
}

fn notice(content: &str) -> Value {
    json!({ "type": "system", "subtype": "informational", "level": "warning", "content": content })
}

// Guards: the CLI warns or runs hooks before `start` returns
#[tokio::test(start_paused = true)]
async fn messages_of_the_start_reach_the_subscriber_of_the_builder() {
    let (transport, mut listener) = ScriptedCli::by_hand();
    let mut builder = Session::builder().transport(transport);
    let mut from_the_start = builder.messages();
    let (session, mut end) = tokio::join!(builder.start(), async {
        let mut end = listener.accept().await;
        end.message(notice("during the start"));
        end.handshake().await;
        end.message(notice("after the start"));
        end
    });
    let session = session.unwrap();
    for expected in ["during the start", "after the start"] {
        assert_eq!(next(&mut from_the_start).await, Ok(expected.into()));
    }
    let mut from_now_on = session.messages();
    end.message(notice("later"));
    for messages in [&mut from_the_start, &mut from_now_on] {
        assert_eq!(next(messages).await, Ok("later".into()));
    }
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn the_replay_of_a_prompt_is_a_message_of_its_turn() {
    let builder = Session::builder().configure(|options| options.replay_user_messages = true);
    let (session, mut end, _listener) = start_by_hand(builder).await;
    assert!(end.launch().args.contains(&"--replay-user-messages".to_owned()));
    let mut turn = session.prompt("Hello").await.unwrap();
    let mut prompt = within(SOON, end.expect("user")).await;
    prompt["isReplay"] = json!(true);
    end.message(prompt.clone());
    end.finish_turn(&prompt, "Hi.");
    let Some(Message::User(replay)) = within(SOON, turn.next()).await else { panic!("no replay") };
    assert!(replay.is_replay);
    assert_eq!((replay.uuid(), replay.text().as_str()), (Some(turn.prompt_uuid()), "Hello"));
    assert_eq!(within(SOON, turn.outcome()).await.unwrap().text(), Some("Hi."));
    stop(session, end).await;
}
