//! Conversations on disk, and in a store.

use std::path::Path;

use std::sync::Arc;

use greenroom::sessions::{LocalSessions, Page, SessionMessages, project_key};
use greenroom::store::{MemoryStore, SessionKey, SessionStore, StoredSessions};
use greenroom::{ErrorKind, Event, Message, Outcome, Session, ToolServer, conversation_id};
use greenroom_testkit::Script;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::snapshot::reported_cli;
use crate::stage::{Stage, answers, calc, call, event, hang, hears, in_time, start, stop, text};

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
    assert!(error.kind() == ErrorKind::SessionNotFound && error.to_string().contains(id), "{error}");
    assert_eq!(local.info(id).await.unwrap_err().kind(), ErrorKind::SessionNotFound);
}

#[tokio::test]
async fn a_session_goes_on_from_its_store_on_a_machine_that_never_saw_it() {
    let script = Script::new()
        .turn(call("add", json!({"a": 5, "b": 3})))
        .turn(text("5 + 3 is 8."))
        .turn(text("You asked for 5 + 3."))
        .turn(text("And I still know it."));
    let Some(mut stage) = Stage::new(script).await else { return };
    let store: Arc<dyn SessionStore> = Arc::new(MemoryStore::new());
    let session =
        start(stage.builder().mcp_server(calc()).allow_server_tools("calc").session_store(store.clone()))
            .await;
    let mut events = session.events();
    answers(&session, "What is 5 + 3?", "5 + 3 is 8.").await;
    let captured = |event: &Event| match event {
        Event::SessionCaptured { session_id } => Some(session_id.clone()),
        _ => None,
    };
    let id = event(&mut events, "the session's id", captured).await;
    // The result was given, so the store has what was said.
    let stored = StoredSessions::new(store.clone(), project_key(stage.cwd.path()));
    let said = ["What is 5 + 3?", "call", "result", "5 + 3 is 8."];
    assert_eq!(told(&stored.messages(&id, Page::ALL).await.unwrap()), said);
    stop(&session).await;
    let local = LocalSessions::at(stage.home.path().join(".claude"));
    let (there, here) =
        (stored.messages(&id, Page::ALL).await.unwrap(), local.messages(&id, Page::ALL).await.unwrap());
    let raw = |messages: &SessionMessages| {
        messages.messages.iter().map(|said| said.message.value()).collect::<Vec<_>>()
    };
    assert_eq!(raw(&there), raw(&here), "the store has what is on the disk");

    // Another machine: nothing of the first home is left.
    stage.home = tempfile::tempdir().unwrap();
    let resumed = stage.builder().session_store(store.clone()).resume(&id);
    let session = start(resumed.clone()).await;
    let mut events = session.events();
    answers(&session, "What did I ask?", "You asked for 5 + 3.").await;
    let seen = stage.last_request().body()["messages"].to_string();
    assert!(seen.contains("What is 5 + 3?") && seen.contains("5 + 3 is 8."), "{seen}");
    let pid = reported_cli(&session).await.pid.unwrap();
    // A crash goes on in the same place.
    kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
    event(&mut events, "the restart", |event| matches!(event, Event::CliRestarted { .. }).then_some(()))
        .await;
    answers(&session, "Still?", "And I still know it.").await;
    assert!(stage.last_request().body()["messages"].to_string().contains("What did I ask?"));
    stop(&session).await;
    let grown = told(&stored.messages(&id, Page::ALL).await.unwrap());
    assert_eq!(grown.first().map(String::as_str), Some(said[0]), "{grown:?}");
    assert_eq!(grown.last().map(String::as_str), Some("And I still know it."), "{grown:?}");
    let left: Vec<_> = std::fs::read_dir(std::env::temp_dir())
        .unwrap()
        .flatten()
        .filter(|entry| {
            entry.path().join(format!("projects/{}/{id}.jsonl", project_key(stage.cwd.path()))).exists()
        })
        .collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(!stage.home.path().join(".claude/projects").exists(), "nothing was written to the user's own");

    stored.delete(&id).await.unwrap();
    assert!(store.load(&SessionKey::new(project_key(stage.cwd.path()), &id)).await.unwrap().is_none());
    let error = in_time("the refusal", resumed.start()).await.unwrap_err();
    assert!(error.kind() == ErrorKind::SessionNotFound && error.to_string().contains(&id), "{error}");
}

#[tokio::test]
async fn a_store_has_all_that_a_killed_cli_has_written() {
    let script = Script::new()
        .turn(text("First."))
        .turn(call("hang", json!({})))
        .turn(text("I was cut off."))
        .turn(text("You said first."));
    let Some(mut stage) = Stage::new(script).await else { return };
    let store = Arc::new(MemoryStore::new());
    let (tool, mut hear) = hang();
    let server = ToolServer::new("calc", "1.0.0").add_tool(tool);
    let builder = stage.builder().mcp_server(server).allow_server_tools("calc").session_store(store.clone());
    let session = start(builder).await;
    let mut events = session.events();
    answers(&session, "Say first.", "First.").await;
    let mut turn = in_time("accepting the prompt", session.prompt("Hang.")).await.unwrap();
    hears(&mut hear, "called").await;
    let pid = reported_cli(&session).await.pid.unwrap();
    kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
    assert!(matches!(in_time("the turn", turn.outcome()).await.unwrap(), Outcome::Interrupted { .. }));
    event(&mut events, "the restart", |event| matches!(event, Event::CliRestarted { .. }).then_some(()))
        .await;
    answers(&session, "What happened?", "I was cut off.").await;
    stop(&session).await;
    let local = LocalSessions::at(stage.home.path().join(".claude"));
    let id = local.list(Page::ALL).await.unwrap()[0].session_id.clone();
    let stored = StoredSessions::new(store.clone(), project_key(stage.cwd.path()));
    let there = stored.messages(&id, Page::ALL).await.unwrap();
    let here = local.messages(&id, Page::ALL).await.unwrap();
    assert_eq!(told(&there), told(&here));
    assert_eq!(told(&there)[0], "Say first.");
    stage.home = tempfile::tempdir().unwrap();
    let session = start(stage.builder().session_store(store).resume(&id)).await;
    answers(&session, "What did I say?", "You said first.").await;
    assert!(stage.last_request().body()["messages"].to_string().contains("Say first."));
    stop(&session).await;
}

// Guards: the session to resume is not there
#[tokio::test]
async fn what_is_to_be_resumed_and_is_not_there_is_named() {
    let Some(stage) = Stage::new(Script::new().turn(text("Fine."))).await else { return };
    let session = start(stage.builder()).await;
    answers(&session, "How are you?", "Fine.").await;
    stop(&session).await;
    let local = LocalSessions::at(stage.home.path().join(".claude"));
    let id = local.list(Page::ALL).await.unwrap()[0].session_id.clone();
    let nowhere = "11111111-2222-4333-8444-555555555555";
    for (resume, flag, named) in [
        (nowhere, None, nowhere),
        ("No such title", None, "No such title"),
        (nowhere, Some(("fork-session", None)), nowhere),
        (&*id, Some(("resume-session-at", Some(nowhere))), nowhere),
    ] {
        let builder = stage.builder().resume(resume).configure(|options| {
            let flag = flag.map(|(name, value): (&str, Option<&str>)| (name.into(), value.map(Into::into)));
            options.extra_args.extend(flag);
        });
        let error = in_time("the refusal", builder.start()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::SessionNotFound, "{error}");
        assert!(error.to_string().contains(named), "{error}");
    }
}

// Guards: another live session has the conversation
#[tokio::test]
async fn a_second_session_on_a_live_conversation_is_refused() {
    let script = Script::new().turn(text("Hello.")).turn(text("I am a fork.")).turn(text("Hello again."));
    let Some(stage) = Stage::new(script).await else { return };
    let session = start(stage.builder()).await;
    answers(&session, "Hello?", "Hello.").await;
    let id = session.session_id().unwrap();
    let error = stage.builder().resume(&id).start().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SessionInUse, "{error}");
    assert!(error.to_string().contains(&id), "{error}");

    let fork = stage.builder().resume(&id).configure(|options| options.fork_session = true);
    let fork = start(fork).await;
    answers(&fork, "Who are you?", "I am a fork.").await;
    stop(&fork).await;
    stop(&session).await;
    let session = start(stage.builder().resume(&id)).await;
    answers(&session, "And now?", "Hello again.").await;
    stop(&session).await;
}

async fn resumed(session: &Session) -> bool {
    session.snapshot().await.unwrap().resumed
}

#[tokio::test]
async fn a_conversation_of_a_key_is_started_once_and_resumed_ever_after() {
    let script =
        ["One.", "Two.", "Three.", "Four."].iter().fold(Script::new(), |script, say| script.turn(text(say)));
    let Some(mut stage) = Stage::new(script).await else { return };
    let id = conversation_id("shop/customer-42");
    let session = start(stage.builder().conversation(&id)).await;
    assert!(!resumed(&session).await);
    answers(&session, "What is first?", "One.").await;
    assert_eq!(session.session_id().as_deref(), Some(&*id));
    stop(&session).await;

    let session = start(stage.builder().conversation(&id)).await;
    assert!(resumed(&session).await);
    let mut events = session.events();
    answers(&session, "And then?", "Two.").await;
    assert!(stage.last_request().body()["messages"].to_string().contains("What is first?"));
    let pid = reported_cli(&session).await.pid.unwrap();
    kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
    event(&mut events, "the restart", |event| matches!(event, Event::CliRestarted { .. }).then_some(()))
        .await;
    answers(&session, "Still there?", "Three.").await;
    stop(&session).await;

    // The program has moved to another directory.
    stage.cwd = tempfile::tempdir().unwrap();
    let session = start(stage.builder().conversation(&id)).await;
    assert!(resumed(&session).await);
    answers(&session, "And here?", "Four.").await;
    let seen = stage.last_request().body()["messages"].to_string();
    assert!(seen.contains("What is first?") && seen.contains("Still there?"), "{seen}");
    stop(&session).await;
    let local = LocalSessions::at(stage.home.path().join(".claude"));
    assert_eq!(local.list(Page::ALL).await.unwrap().len(), 1, "it is one conversation");
}

#[tokio::test]
async fn the_cli_has_the_last_word_on_whether_a_conversation_exists() {
    let Some(stage) = Stage::new(Script::new().turn(text("One.")).turn(text("Two."))).await else { return };
    let id = conversation_id("shop/customer-42");
    let store: Arc<dyn SessionStore> = Arc::new(MemoryStore::new());
    let session = start(stage.builder().conversation(&id)).await;
    answers(&session, "What is first?", "One.").await;
    stop(&session).await;
    // The store does not have it, so the CLI is told to start it.
    let session = start(stage.builder().conversation(&id).session_store(store.clone())).await;
    assert!(resumed(&session).await);
    answers(&session, "And then?", "Two.").await;
    stop(&session).await;
    let stored = StoredSessions::new(store, project_key(stage.cwd.path()));
    let messages = stored.messages(&id, Page::ALL).await.unwrap();
    assert_eq!(told(&messages), ["What is first?", "One.", "And then?", "Two."]);

    // A transcript without a message can be neither resumed nor started.
    let empty = conversation_id("shop/customer-43");
    let folder = stage.home.path().join(".claude/projects").join(project_key(stage.cwd.path()));
    std::fs::write(folder.join(format!("{empty}.jsonl")), "").unwrap();
    let error = in_time("the refusal", stage.builder().conversation(&empty).start()).await.unwrap_err();
    assert!(error.to_string().contains("neither resumes nor starts"), "{error}");
    assert!(error.help().unwrap().contains("LocalSessions::delete"), "{error:?}");
}
