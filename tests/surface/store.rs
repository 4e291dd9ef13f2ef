//! Conversations on disk, and in a store.

use std::path::Path;

use greenroom::sessions::{LocalSessions, Page, SessionMessages};
use greenroom::testkit::Script;
use greenroom::{ErrorKind, Message};
use serde_json::json;

use crate::stage::{Stage, answers, calc, call, in_time, start, stop, text};

fn told(messages: &SessionMessages) -> Vec<String> {
    let tell = |message: &Message| match message {
        Message::User(user) if user.tool_results().next().is_some() => "result".to_owned(),
        Message::User(user) => user.text(),
        Message::Assistant(said) if said.tool_uses().next().is_some() => "call".to_owned(),
        message => message.text().unwrap_or_else(|| message.kind().to_owned()),
    };
    messages.messages.iter().map(|said| tell(&said.message)).collect()
}

#[tokio::test]
async fn what_the_cli_has_written_is_listed_read_renamed_forked_and_deleted() {
    let script = Script::new()
        .turn(call("add", json!({"a": 5, "b": 3})))
        .turn(text("5 + 3 is 8."))
        .turn(text("You asked for 5 + 3."))
        .turn(text("I am a fork."));
    let Some(stage) = Stage::new(script).await else { return };
    let session = stage.start(calc()).await;
    answers(&session, "What is 5 + 3?", "5 + 3 is 8.").await;
    stop(&session).await;

    let local = LocalSessions::at(stage.home.path().join(".claude")).in_directory(stage.cwd.path());
    let listed = local.list(Page::ALL).await.unwrap();
    assert_eq!(listed.len(), 1, "{listed:?}");
    let id = listed[0].session_id.as_str();
    assert_eq!((listed[0].summary.as_str(), listed[0].tag.as_deref()), ("What is 5 + 3?", None));
    let cwd = std::fs::canonicalize(stage.cwd.path()).unwrap();
    assert_eq!(listed[0].cwd.as_deref(), Some(Path::new(&cwd)));
    assert!(listed[0].created.unwrap() <= listed[0].modified && listed[0].entrypoint.is_some());
    let messages = local.messages(id, Page::ALL).await.unwrap();
    assert_eq!(told(&messages), ["What is 5 + 3?", "call", "result", "5 + 3 is 8."]);
    assert_eq!(messages.skipped_lines, 0);

    // By its new title the CLI finds it, and goes on with it.
    local.rename(id, "Sums of the day").await.unwrap();
    local.tag(id, Some("sums")).await.unwrap();
    let session =
        start(stage.builder().configure(|options| options.resume = Some("Sums of the day".into()))).await;
    answers(&session, "What did I ask?", "You asked for 5 + 3.").await;
    assert!(stage.last_request().body()["messages"].to_string().contains("What is 5 + 3?"));
    stop(&session).await;
    let info = local.info(id).await.unwrap();
    assert_eq!((info.summary.as_str(), info.tag.as_deref()), ("Sums of the day", Some("sums")));

    // A fork ends where it was cut, and is gone on with by itself.
    let answer = messages.messages.last().unwrap();
    let fork = local.fork(id, Some(&answer.uuid), None).await.unwrap();
    let session = start(stage.builder().configure(|options| options.resume = Some(fork.clone()))).await;
    answers(&session, "Who are you?", "I am a fork.").await;
    let seen = stage.last_request().body()["messages"].to_string();
    assert!(seen.contains("What is 5 + 3?") && !seen.contains("What did I ask?"), "{seen}");
    stop(&session).await;
    let forked = local.messages(&fork, Page::ALL).await.unwrap();
    assert_eq!(told(&forked)[3..], ["5 + 3 is 8.", "Who are you?", "I am a fork."]);
    let grown = local.messages(id, Page::ALL).await.unwrap();
    assert_eq!(told(&grown)[4..], ["What did I ask?", "You asked for 5 + 3."]);
    assert_eq!(local.info(&fork).await.unwrap().summary, "Sums of the day (fork)");

    local.delete(id).await.unwrap();
    assert_eq!(local.list(Page::ALL).await.unwrap().len(), 1);
    let builder = stage.builder().configure(|options| options.resume = Some(id.into()));
    let error = in_time("the refusal", builder.start()).await.unwrap_err();
    assert!(error.to_string().contains(id), "{error}");
    assert_eq!(local.info(id).await.unwrap_err().kind(), ErrorKind::SessionNotFound);
}
