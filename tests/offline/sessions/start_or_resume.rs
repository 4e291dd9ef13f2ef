//! The option `conversation`: a session starts its conversation the first time, and resumes it ever after.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use greenroom::options::{EnvPolicy, ResumeLadder};
use greenroom::report::{Events, ExitCause};
use greenroom::sessions::TranscriptEntry;
use greenroom::store::{MemoryStore, SessionKey, SessionStore};
use greenroom::transport::{Connection, Exit, Launch, MemoryTransport, Transport};
use greenroom::{Error, ErrorKind, Event, Outcome, Session, SessionBuilder, conversation_id};
use greenroom_testkit::{CliEnd, ScriptedCli, ScriptedListener};
use serde_json::json;
use tempfile::TempDir;

use crate::common::*;

const KEY: &str = "shop/customer-42";

fn id() -> String {
    conversation_id(KEY)
}

fn builder() -> SessionBuilder {
    Session::builder().conversation(id()).configure(|options| options.restarts.cli.intensity = 0)
}

/// A transport whose CLIs keep their conversations on disk, as far as the session knows.
struct OnDisk(MemoryTransport);

impl Transport for OnDisk {
    fn open(&self, launch: Launch) -> BoxFuture<'static, greenroom::Result<Connection>> {
        self.0.open(launch)
    }
}

/// A home with the transcript of the conversation in the project folder of another directory, if `there`.
fn home(there: bool) -> (TempDir, SessionBuilder) {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join(".claude/projects/-srv-elsewhere");
    if there {
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("{}.jsonl", id())), "{}\n").unwrap();
    }
    let path = home.path().to_str().unwrap().to_owned();
    let builder = builder().configure(|options| {
        options.env_policy = EnvPolicy::Clean;
        options.env.insert("HOME".into(), path);
        options.lock_dir = Some(home.path().join("locks"));
        options.cwd = Some("/no/such/work".into());
    });
    (home, builder)
}

fn has(end: &CliEnd, flag: &str) -> bool {
    end.launch().args.contains(&format!("--{flag}={}", id()))
}

fn begins(end: &CliEnd) -> bool {
    has(end, "session-id") && !has(end, "resume")
}

fn resumes(end: &CliEnd) -> bool {
    has(end, "resume") && !has(end, "session-id")
}

/// A CLI that has a conversation under the id, says so, and exits.
async fn says_in_use(listener: &mut ScriptedListener) -> CliEnd {
    let mut end = within(SOON, listener.accept()).await;
    end.expect_request("initialize").await;
    (end.launch().command.stderr)(&format!("Error: Session ID {} is already in use.", id()));
    end
}

/// A CLI that has no conversation under the id, says so, and exits.
async fn says_not_found(listener: &mut ScriptedListener) -> CliEnd {
    let mut end = within(SOON, listener.accept()).await;
    end.expect_request("initialize").await;
    end.message(json!({
        "type": "result", "subtype": "error_during_execution", "is_error": true, "num_turns": 0,
        "errors": [format!("No conversation found with session ID: {}", id())],
    }));
    // The result is read before the exit is noticed.
    tokio::task::yield_now().await;
    end
}

async fn next(listener: &mut ScriptedListener) -> CliEnd {
    let mut end = within(SOON, listener.accept()).await;
    within(SOON, end.handshake()).await;
    end
}

async fn exchange(session: &Session, end: &mut CliEnd) {
    let mut turn = session.prompt("hello").await.unwrap();
    let prompt = within(SOON, end.expect("user")).await;
    end.begin_turn();
    end.finish_turn(&prompt, "hi");
    assert!(within(SOON, turn.outcome()).await.unwrap().is_completed());
}

async fn opened(events: &mut Events) -> bool {
    event(events, |event| match event {
        Event::ConversationOpened { session_id, resumed } => {
            assert_eq!(*session_id, id());
            Some(*resumed)
        }
        _ => None,
    })
    .await
}

/// Starts a session while `play` plays its CLI.
async fn start(
    builder: SessionBuilder,
    transport: impl Transport + 'static,
    play: impl Future<Output = CliEnd>,
) -> (greenroom::Result<Session>, CliEnd) {
    within(SOON, async { tokio::join!(builder.transport(transport).start(), play) }).await
}

#[test]
fn an_id_depends_on_the_key_alone_and_never_changes() {
    // Ids that are in use: another value here would lose every conversation.
    assert_eq!(id(), "d593a506-ccdf-54c3-89b5-3521e13faeb6");
    assert_ne!(id(), conversation_id("shop/customer-43"));
    assert_eq!(conversation_id("").len(), 36);
}

#[tokio::test(start_paused = true)]
async fn a_new_conversation_is_started_under_its_id_and_resumed_after_a_crash() {
    let mut builder = builder().configure(|options| options.restarts.cli.intensity = 5);
    let mut events = builder.events();
    let (session, mut end, mut listener) = start_by_hand(builder).await;
    assert!(begins(&end), "{:?}", end.launch().args);
    assert!(!opened(&mut events).await);
    assert_eq!(session.session_id(), Some(id()));
    assert!(!within(SOON, session.snapshot()).await.unwrap().resumed);
    exchange(&session, &mut end).await;
    event(&mut events, |event| matches!(event, Event::SessionCaptured { .. }).then_some(())).await;
    end.exit(Exit::Signal(9));

    let mut end = next(&mut listener).await;
    assert!(resumes(&end), "{:?}", end.launch().args);
    exchange(&session, &mut end).await;
    assert!(!within(SOON, session.snapshot()).await.unwrap().resumed, "the session began with a new one");
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_cli_that_dies_before_it_writes_leaves_a_conversation_to_start() {
    for prompted in [false, true] {
        let builder = builder().configure(|options| options.restarts.cli.intensity = 1);
        let (session, mut end, mut listener) = start_by_hand(builder).await;
        let mut turn = None;
        if prompted {
            turn = Some(session.prompt("hello").await.unwrap());
            within(SOON, end.expect("user")).await;
            end.begin_turn();
            settled(&mut end).await;
        }
        end.exit(Exit::Signal(9));
        let end = says_not_found(&mut listener).await;
        assert!(resumes(&end), "{:?}", end.launch().args);
        end.exit(Exit::Code(1));
        let mut end = next(&mut listener).await;
        assert!(begins(&end), "{:?}", end.launch().args);
        if let Some(mut turn) = turn {
            let ended = within(SOON, turn.outcome()).await.unwrap();
            assert!(matches!(ended, Outcome::Interrupted { .. }), "{ended:?}");
        }
        exchange(&session, &mut end).await;
        stop(session, end).await;
    }
}

// Guards: a conversation to start exists, or one to resume does not
#[tokio::test(start_paused = true)]
async fn a_conversation_that_exists_after_all_is_resumed_without_a_crash() {
    let (transport, mut listener) = ScriptedCli::by_hand();
    let mut builder = builder();
    let mut events = builder.events();
    let (session, mut end) = start(builder, transport, async {
        let end = says_in_use(&mut listener).await;
        assert!(begins(&end), "{:?}", end.launch().args);
        end.exit(Exit::Code(1));
        next(&mut listener).await
    })
    .await;
    let session = session.unwrap();
    assert!(resumes(&end), "{:?}", end.launch().args);
    let exists = event(&mut events, |event| match event {
        Event::CliExited { epoch: 1, cause } => Some(matches!(cause, ExitCause::ConversationExists { .. })),
        _ => None,
    });
    assert!(exists.await);
    event(&mut events, |event| {
        matches!(event, Event::ResumeStep { epoch: 2, step: ResumeLadder::SameId, .. }).then_some(())
    })
    .await;
    assert!(opened(&mut events).await);
    let snapshot = within(SOON, session.snapshot()).await.unwrap();
    assert!(snapshot.resumed && snapshot.counters.cli_restarts == 0);
    exchange(&session, &mut end).await;
    stop(session, end).await;
}

// Guards: a conversation to start exists, or one to resume does not
#[tokio::test(start_paused = true)]
async fn a_cli_that_refuses_both_ways_fails_the_start_with_both_reasons() {
    // The policy does not matter: a start never replaces a conversation.
    for ladder in [ResumeLadder::SameId, ResumeLadder::Fresh] {
        let (transport, mut listener) = ScriptedCli::by_hand();
        let builder = builder().configure(|options| options.resume_ladder = ladder);
        let starting = builder.transport(transport).start();
        let (session, ()) = within(SOON, async {
            tokio::join!(starting, async {
                says_in_use(&mut listener).await.exit(Exit::Code(1));
                says_not_found(&mut listener).await.exit(Exit::Code(1));
                assert!(listener.try_accept().await.is_none(), "there is no third try");
            })
        })
        .await;
        let error = session.unwrap_err();
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::CliExited, "{text}");
        assert!(
            text.contains("a conversation with this id exists") && text.contains("No conversation found"),
            "{text}"
        );
        assert!(error.help().unwrap().contains("LocalSessions::delete"), "{error:?}");
    }
}

// Guards: a conversation to start exists, or one to resume does not
#[tokio::test(start_paused = true)]
async fn a_conversation_of_another_directory_is_resumed_if_the_cli_can() {
    for found in [false, true] {
        let (_home, builder) = home(found);
        let (transport, mut listener) = ScriptedCli::by_hand();
        let (session, end) = start(builder, OnDisk(transport), next(&mut listener)).await;
        assert_eq!((begins(&end), resumes(&end)), (!found, found), "{:?}", end.launch().args);
        let session = session.unwrap();
        assert_eq!(within(SOON, session.snapshot()).await.unwrap().resumed, found);
        stop(session, end).await;
    }

    // A CLI that finds a conversation only in its own folder starts one there.
    let (_home, mut builder) = home(true);
    let mut events = builder.events();
    let (transport, mut listener) = ScriptedCli::by_hand();
    let (session, mut end) = start(builder, OnDisk(transport), async {
        says_not_found(&mut listener).await.exit(Exit::Code(1));
        next(&mut listener).await
    })
    .await;
    let session = session.unwrap();
    assert!(begins(&end), "{:?}", end.launch().args);
    assert!(!opened(&mut events).await);
    exchange(&session, &mut end).await;
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_resumed_conversation_whose_transcript_is_gone_is_not_started_again() {
    let (_home, builder) = home(true);
    let builder = builder.configure(|options| options.restarts.cli.intensity = 5);
    let (transport, mut listener) = ScriptedCli::by_hand();
    let (session, end) = start(builder, OnDisk(transport), next(&mut listener)).await;
    let session = session.unwrap();
    end.exit(Exit::Signal(9));
    says_not_found(&mut listener).await.exit(Exit::Code(1));
    within(SOON, session.wait()).await;
    let failure = session.failure().unwrap();
    assert!(failure.to_string().contains("No conversation found"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn the_id_is_written_as_the_cli_writes_it() {
    let upper = Session::builder().conversation(id().to_uppercase());
    let (session, end, _listener) = start_by_hand(upper).await;
    assert!(begins(&end), "{:?}", end.launch().args);
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_live_session_has_its_conversation_alone() {
    let (transport, mut listener) = ScriptedCli::by_hand();
    let (session, end) = start(builder(), transport.clone(), next(&mut listener)).await;
    let second = within(SOON, builder().transport(transport).start()).await;
    let error = second.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SessionInUse, "{error}");
    assert!(error.to_string().contains(&id()), "{error}");
    stop(session.unwrap(), end).await;
}

#[tokio::test(start_paused = true)]
async fn an_id_that_exists_is_named_to_a_session_that_was_to_start_it() {
    let (transport, mut listener) = ScriptedCli::by_hand();
    let builder = Session::builder().configure(|options| options.session_id = Some(id()));
    let starting = builder.transport(transport).start();
    let (session, ()) =
        tokio::join!(starting, async { says_in_use(&mut listener).await.exit(Exit::Code(1)) });
    let error: Error = session.unwrap_err();
    assert!(error.to_string().contains(&id()), "{error}");
    assert!(error.help().unwrap().contains("`conversation`"), "{error:?}");
}

fn entry(uuid: &str) -> TranscriptEntry {
    json!({ "type": "user", "uuid": uuid }).try_into().unwrap()
}

async fn uuids(store: &MemoryStore, key: &SessionKey) -> Vec<String> {
    let entries = store.load(key).await.unwrap().unwrap_or_default();
    entries.iter().filter_map(|entry| entry.uuid().map(str::to_owned)).collect()
}

#[tokio::test]
async fn a_conversation_is_resumed_from_the_store_if_the_store_has_it() {
    let key = SessionKey::new("-no-such-work", id());
    for stored in [false, true] {
        // What is on this machine's disk does not count.
        let (_home, builder) = home(!stored);
        let store = Arc::new(MemoryStore::new());
        if stored {
            store.append(&key, &[entry("u")]).await.unwrap();
        }
        let (session, end, _listener) = start_by_hand(builder.session_store(store.clone())).await;
        assert_eq!((begins(&end), resumes(&end)), (!stored, stored), "{:?}", end.launch().args);
        assert_eq!(end.launch().command.env.contains_key("CLAUDE_CONFIG_DIR"), stored);
        assert_eq!(within(SOON, session.snapshot()).await.unwrap().resumed, stored);
        stop(session, end).await;
    }
}

#[tokio::test]
async fn a_conversation_that_the_store_has_is_never_started_again() {
    let (_home, builder) = home(false);
    let store = Arc::new(MemoryStore::new());
    store.append(&SessionKey::new("-no-such-work", id()), &[entry("u")]).await.unwrap();
    let (transport, mut listener) = ScriptedCli::by_hand();
    let starting = builder.session_store(store).transport(transport).start();
    let (session, ()) = within(SOON, async {
        tokio::join!(starting, async {
            says_not_found(&mut listener).await.exit(Exit::Code(1));
            assert!(listener.try_accept().await.is_none(), "its entries would be mixed with the stored ones");
        })
    })
    .await;
    let error = session.unwrap_err();
    assert!(error.to_string().contains("No conversation found"), "{error}");
}

#[tokio::test]
async fn a_conversation_that_only_the_disk_has_reaches_the_store_whole() {
    let key = SessionKey::new("-no-such-work", id());
    let (home, builder) = home(false);
    let folder = home.path().join(".claude/projects/-no-such-work");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join(format!("{}.jsonl", id()));
    fs::write(&path, "{\"type\":\"user\",\"uuid\":\"old\"}\n").unwrap();
    let store = Arc::new(MemoryStore::new());
    let (transport, mut listener) = ScriptedCli::by_hand();
    let (session, mut end) = start(builder.session_store(store.clone()), transport, async {
        says_in_use(&mut listener).await.exit(Exit::Code(1));
        next(&mut listener).await
    })
    .await;
    let session = session.unwrap();
    assert!(resumes(&end), "{:?}", end.launch().args);
    mirrored(&mut end, &path, "new");
    exchange(&session, &mut end).await;
    assert_eq!(uuids(&store, &key).await, ["old", "new"]);
    stop(session, end).await;
}

/// The CLI writes an entry down, and mirrors it.
fn mirrored(end: &mut CliEnd, path: &Path, uuid: &str) {
    end.message(json!({
        "type": "transcript_mirror", "filePath": path, "entries": [{ "type": "user", "uuid": uuid }],
    }));
}
