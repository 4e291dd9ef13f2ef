//! A session's store: what the CLI writes reaches it before a result is given, and whatever it does harms nothing else.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{SOON, event, settled, start_by_hand, stop, within};
use futures_util::future::BoxFuture;
use greenroom::options::{StoreFlush, TurnRecovery};
use greenroom::report::{Events, InterruptedBy};
use greenroom::session::MessageOrGap;
use greenroom::sessions::TranscriptEntry;
use greenroom::store::{MemoryStore, SessionKey, SessionStore, StoreResult};
use greenroom::transport::Exit;
use greenroom::{ErrorKind, Event, Message, Outcome, Prompt, Session, SessionBuilder, Turn};
use greenroom_testkit::{CliEnd, ScriptedCli, ScriptedListener};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

const ID: &str = "aaaaaaaa-0000-4000-8000-000000000001";

/// Behaviour of a store on an append.
enum Act {
    Take,
    Fail(&'static str),
    Panic,
    /// Fails with an error whose `Display` panics.
    Unspeakable,
    Hang,
    /// Takes the entries once the test says so.
    Wait(oneshot::Receiver<()>),
}

#[derive(Debug)]
struct Unspeakable;

impl std::fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("no word of it")
    }
}

impl std::error::Error for Unspeakable {}

/// A store that follows a list of acts, and tells the test of each append.
struct Told {
    inner: MemoryStore,
    acts: Mutex<VecDeque<Act>>,
    asked: mpsc::UnboundedSender<(Instant, String)>,
}

type Asked = mpsc::UnboundedReceiver<(Instant, String)>;

impl Told {
    fn new(acts: impl IntoIterator<Item = Act>) -> (Arc<Self>, Asked) {
        let (asked, hear) = mpsc::unbounded_channel();
        let acts = Mutex::new(acts.into_iter().collect());
        (Arc::new(Self { inner: MemoryStore::new(), acts, asked }), hear)
    }

    fn uuids(&self, key: &SessionKey) -> String {
        let entries = self.inner.entries(key);
        entries.iter().filter_map(TranscriptEntry::uuid).collect::<Vec<_>>().join(" ")
    }
}

impl SessionStore for Told {
    fn append<'a>(
        &'a self,
        key: &'a SessionKey,
        entries: &'a [TranscriptEntry],
    ) -> BoxFuture<'a, StoreResult<()>> {
        Box::pin(async move {
            let uuids: Vec<_> = entries.iter().filter_map(TranscriptEntry::uuid).collect();
            self.asked.send((Instant::now(), uuids.join(" "))).unwrap();
            let act = self.acts.lock().unwrap().pop_front();
            match act.unwrap_or(Act::Take) {
                Act::Take => {}
                Act::Fail(why) => return Err(why.into()),
                Act::Panic => panic!("the shelf has fallen"),
                Act::Unspeakable => return Err(Unspeakable.into()),
                Act::Hang => std::future::pending().await,
                Act::Wait(told) => told.await?,
            }
            self.inner.append(key, entries).await
        })
    }

    fn load<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, StoreResult<Option<Vec<TranscriptEntry>>>> {
        self.inner.load(key)
    }
}

fn builder(store: Arc<dyn SessionStore>) -> SessionBuilder {
    Session::builder().session_store(store).env("CLAUDE_CONFIG_DIR", "/config")
}

fn key() -> SessionKey {
    SessionKey::new("p", ID)
}

fn agent() -> SessionKey {
    key().with_subpath("subagents/agent-1")
}

/// The CLI writes these entries to the transcript of this key.
fn writes(end: &mut CliEnd, key: &SessionKey, uuids: &[&str]) {
    let entries: Vec<_> = uuids.iter().map(|uuid| json!({"type": "user", "uuid": uuid})).collect();
    end.send(json!({"type": "transcript_mirror", "filePath": format!("/config/projects/{key}.jsonl"), "entries": entries}));
}

async fn prompted(session: &Session, end: &mut CliEnd) -> (Turn, Value) {
    let turn = session.prompt("hello").await.unwrap();
    let prompt = within(SOON, end.expect("user")).await;
    end.begin_turn();
    (turn, prompt)
}

async fn outcome(turn: &mut Turn) -> Outcome {
    within(SOON, turn.outcome()).await.unwrap()
}

async fn asked(hear: &mut Asked) -> String {
    within(SOON, hear.recv()).await.unwrap().1
}

/// The next report of entries that were lost: key, number, reason.
async fn lost(events: &mut Events) -> (Option<SessionKey>, usize, String) {
    event(events, |event| match event {
        Event::MirrorFailed { key, entries, error } => Some((key.clone(), *entries, error.clone())),
        _ => None,
    })
    .await
}

fn is_result(message: &Message) -> bool {
    message.kind() == "result"
}

// Guards: the store is slow
#[tokio::test(start_paused = true)]
async fn a_result_waits_for_the_store_and_nothing_else_does() {
    let (open, gate) = oneshot::channel();
    let (store, mut hear) = Told::new([Act::Wait(gate)]);
    let (session, mut end, _listener) = start_by_hand(builder(store.clone())).await;
    assert!(end.launch().args.contains(&"--session-mirror".to_owned()));
    let mut messages = session.messages();
    let (mut turn, prompt) = prompted(&session, &mut end).await;
    writes(&mut end, &key(), &["a", "b"]);
    end.finish_turn(&prompt, "hi");
    end.message(json!({"type": "afterthought"}));
    assert_eq!(asked(&mut hear).await, "a b");
    // Control frames, questions and new prompts do not wait.
    settled(&mut end).await;
    assert!(session.snapshot().await.unwrap().conversation.unwrap().turn_running);
    let mut next = session.prompt("next").await.unwrap();
    assert!(within(SOON, turn.next()).await.unwrap().subtype() == Some("init"));
    let waited = tokio::time::timeout(Duration::from_secs(30), turn.next()).await;
    assert!(waited.is_err(), "the result came before the store had what it is about: {waited:?}");
    open.send(()).unwrap();
    assert!(is_result(&within(SOON, turn.next()).await.unwrap()));
    assert_eq!(store.uuids(&key()), "a b");
    assert!(outcome(&mut turn).await.is_completed());
    let second = within(SOON, end.expect("user")).await;
    end.finish_turn(&second, "again");
    assert!(outcome(&mut next).await.is_completed());
    stop(session, end).await;
    let mut kinds = Vec::new();
    while let Some(received) = messages.next().await {
        kinds.push(match received {
            MessageOrGap::Message(message) => message.to_string(),
            MessageOrGap::Missed(count) => panic!("{count} messages were missed"),
        });
    }
    assert!(!kinds.concat().contains("transcript_mirror"), "it is not for the application");
    let place = |what: &str| kinds.iter().position(|kind| kind.contains(what));
    assert!(place("\"hi\"") < place("afterthought") && place("afterthought") < place("again"), "{kinds:?}");
}

#[tokio::test(start_paused = true)]
async fn an_append_that_fails_is_tried_again_after_its_pauses() {
    let (store, mut hear) = Told::new([Act::Fail("busy"), Act::Panic, Act::Take]);
    let (session, mut end, _listener) = start_by_hand(builder(store.clone())).await;
    let mut events = session.events();
    let (mut turn, prompt) = prompted(&session, &mut end).await;
    writes(&mut end, &key(), &["a"]);
    end.finish_turn(&prompt, "hi");
    assert!(outcome(&mut turn).await.is_completed());
    let mut times = Vec::new();
    for _ in 0..3 {
        times.push(within(SOON, hear.recv()).await.unwrap().0);
    }
    let pauses = [times[1] - times[0], times[2] - times[1]];
    assert_eq!(pauses, [Duration::from_millis(200), Duration::from_millis(800)]);
    assert_eq!(store.uuids(&key()), "a");
    stop(session, end).await;
    while let Some(event) = events.next().await {
        assert!(!matches!(event, Event::MirrorFailed { .. }), "{event:?}");
    }
}

// Guards: the session's store fails, hangs or panics
#[tokio::test(start_paused = true)]
async fn what_a_store_refuses_is_told_before_the_result_and_the_session_goes_on() {
    let fail = || Act::Fail("disk full");
    let (store, mut hear) = Told::new([fail(), fail(), fail()]);
    let (session, mut end, _listener) = start_by_hand(builder(store.clone())).await;
    let mut events = session.events();
    let (mut turn, prompt) = prompted(&session, &mut end).await;
    writes(&mut end, &agent(), &["a", "b"]);
    end.finish_turn(&prompt, "hi");
    let mut seen = Vec::new();
    while let Some(message) = within(SOON, turn.next()).await {
        seen.push(message);
    }
    let told = seen.iter().position(|message| message.subtype() == Some("mirror_error")).unwrap();
    assert!(told < seen.iter().position(is_result).unwrap(), "{seen:?}");
    let value = seen[told].value();
    assert_eq!((&value["error"], &value["key"]["projectKey"]), (&json!("disk full"), &json!("p")));
    assert_eq!(value["key"]["subpath"], "subagents/agent-1");
    assert_eq!(value["session_id"], end.session_id());
    assert!(outcome(&mut turn).await.is_completed());
    assert_eq!(lost(&mut events).await, (Some(agent()), 2, "disk full".into()));
    // The next turn is mirrored as usual.
    let (mut turn, prompt) = prompted(&session, &mut end).await;
    writes(&mut end, &key(), &["c"]);
    end.finish_turn(&prompt, "hi");
    assert!(outcome(&mut turn).await.is_completed());
    assert_eq!((store.uuids(&agent()).as_str(), store.uuids(&key()).as_str()), ("", "c"));
    for _ in 0..4 {
        asked(&mut hear).await;
    }
    assert!(hear.try_recv().is_err(), "three attempts and one");
    stop(session, end).await;
}

// Guards: the session's store fails, hangs or panics
#[tokio::test(start_paused = true)]
async fn an_append_that_takes_too_long_is_given_up_and_not_tried_again() {
    let (store, mut hear) = Told::new([Act::Hang]);
    let (session, mut end, _listener) = start_by_hand(builder(store.clone())).await;
    let mut events = session.events();
    let (mut turn, prompt) = prompted(&session, &mut end).await;
    let begun = Instant::now();
    writes(&mut end, &key(), &["a"]);
    end.finish_turn(&prompt, "hi");
    assert!(outcome(&mut turn).await.is_completed());
    assert_eq!(begun.elapsed(), Duration::from_secs(60));
    let (_, entries, error) = lost(&mut events).await;
    assert!(entries == 1 && error.contains("more than 60s"), "{error}");
    asked(&mut hear).await;
    let (mut turn, prompt) = prompted(&session, &mut end).await;
    writes(&mut end, &key(), &["b"]);
    end.finish_turn(&prompt, "hi");
    assert!(outcome(&mut turn).await.is_completed());
    assert_eq!((asked(&mut hear).await.as_str(), store.uuids(&key()).as_str()), ("b", "b"));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn entries_keep_their_order_in_one_append_for_each_file() {
    let (store, mut hear) = Told::new([]);
    let (session, mut end, _listener) = start_by_hand(builder(store.clone())).await;
    let (mut turn, prompt) = prompted(&session, &mut end).await;
    writes(&mut end, &key(), &["a"]);
    writes(&mut end, &agent(), &["x"]);
    writes(&mut end, &key(), &["b", "c"]);
    writes(&mut end, &agent(), &[]);
    writes(&mut end, &agent(), &["y"]);
    end.finish_turn(&prompt, "hi");
    assert!(outcome(&mut turn).await.is_completed());
    assert_eq!((asked(&mut hear).await, asked(&mut hear).await), ("a b c".into(), "x y".into()));
    stop(session, end).await;
    assert!(hear.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn an_eager_store_is_given_each_frame_at_once_and_by_itself() {
    let (store, mut hear) = Told::new([]);
    let eager = builder(store.clone()).configure(|options| options.store.flush = StoreFlush::Eager);
    let (session, mut end, _listener) = start_by_hand(eager).await;
    let (_turn, _) = prompted(&session, &mut end).await;
    for uuids in [["a", "b"], ["c", "d"]] {
        writes(&mut end, &key(), &uuids);
    }
    assert_eq!((asked(&mut hear).await, asked(&mut hear).await), ("a b".into(), "c d".into()));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_full_batch_does_not_wait_for_a_result() {
    let (store, mut hear) = Told::new([]);
    let small = builder(store.clone()).configure(|options| {
        options.store.batch_entries = 3;
        options.store.batch_bytes = 10_000;
        options.store.project_key = Some("tenant".into());
    });
    let (session, mut end, _listener) = start_by_hand(small).await;
    let (_turn, _) = prompted(&session, &mut end).await;
    writes(&mut end, &key(), &["a", "b", "c"]);
    settled(&mut end).await;
    assert!(hear.try_recv().is_err(), "as many as may wait");
    writes(&mut end, &key(), &["d"]);
    assert_eq!(asked(&mut hear).await, "a b c d");
    let long = "x".repeat(10_001);
    writes(&mut end, &key(), &[&long]);
    assert_eq!(asked(&mut hear).await, long);
    assert_eq!(store.inner.keys(), [SessionKey::new("tenant", ID)], "the scope is that of the options");
    stop(session, end).await;
}

// Guards: the store is slow
#[tokio::test(start_paused = true)]
async fn what_waits_for_a_slow_store_has_a_bound_and_holds_up_no_control_frame() {
    let (open, gate) = oneshot::channel();
    let (store, mut hear) = Told::new([Act::Wait(gate)]);
    let bounded = builder(store.clone()).configure(|options| {
        options.store.flush = StoreFlush::Eager;
        options.store.queue_bytes = 1000;
    });
    let (session, mut end, _listener) = start_by_hand(bounded).await;
    let mut events = session.events();
    let (mut turn, prompt) = prompted(&session, &mut end).await;
    writes(&mut end, &key(), &["a"]);
    asked(&mut hear).await;
    for number in 0..100 {
        writes(&mut end, &key(), &[&format!("n{number}")]);
    }
    settled(&mut end).await;
    open.send(()).unwrap();
    let (at, entries, error) = lost(&mut events).await;
    assert!(error.contains("store.queue_bytes") && at == Some(key()), "{error}");
    end.finish_turn(&prompt, "hi");
    assert!(outcome(&mut turn).await.is_completed());
    let kept = store.inner.entries(&key()).len();
    assert_eq!(kept + entries, 101);
    assert!((3..10).contains(&kept), "{kept} of about 150 bytes each fit");
    // There is room again.
    let (mut turn, prompt) = prompted(&session, &mut end).await;
    writes(&mut end, &key(), &["z"]);
    end.finish_turn(&prompt, "hi");
    assert!(outcome(&mut turn).await.is_completed());
    assert!(store.uuids(&key()).ends_with(" z"));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_result_waits_no_longer_when_too_much_waits_behind_it() {
    let (_open, gate) = oneshot::channel();
    let (store, mut hear) = Told::new([Act::Wait(gate)]);
    let bounded = builder(store.clone()).configure(|options| options.store.held_bytes = 4000);
    let (session, mut end, _listener) = start_by_hand(bounded).await;
    let (mut turn, prompt) = prompted(&session, &mut end).await;
    let begun = Instant::now();
    writes(&mut end, &key(), &["a"]);
    end.finish_turn(&prompt, "hi");
    asked(&mut hear).await;
    for _ in 0..20 {
        end.message(json!({"type": "chatter", "text": "x".repeat(300)}));
    }
    assert!(outcome(&mut turn).await.is_completed());
    assert_eq!(begun.elapsed(), Duration::ZERO);
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_file_of_another_place_and_a_frame_that_cannot_be_read_are_told() {
    let (store, _hear) = Told::new([]);
    let (session, mut end, _listener) = start_by_hand(builder(store.clone())).await;
    let mut events = session.events();
    let (mut turn, prompt) = prompted(&session, &mut end).await;
    let frame = |path: &str, entries: Value| json!({"type": "transcript_mirror", "filePath": path, "entries": entries});
    end.send(frame("/elsewhere/projects/p/s.jsonl", json!([{"uuid": "a"}])));
    end.send(frame("/config/projects/../p/s.jsonl", json!([{"uuid": "a"}])));
    end.finish_turn(&prompt, "hi");
    assert!(outcome(&mut turn).await.is_completed());
    for _ in 0..2 {
        let (at, entries, error) = lost(&mut events).await;
        assert!(at.is_none() && entries == 1 && error.contains("is not below /config/projects"), "{error}");
    }
    end.send(json!({"type": "transcript_mirror", "filePath": 7}));
    assert!(lost(&mut events).await.2.contains("cannot be read"));
    end.send(frame("/config/projects/p/s.jsonl", json!([7, {"uuid": "b"}])));
    let (at, entries, _) = lost(&mut events).await;
    assert_eq!((at, entries), (Some(SessionKey::new("p", "s")), 1));
    stop(session, end).await;
    assert_eq!(store.uuids(&SessionKey::new("p", "s")), "b", "the rest of it is kept");
}

#[tokio::test(start_paused = true)]
async fn entries_of_a_dead_cli_are_stored_and_its_last_result_counts() {
    let (open, gate) = oneshot::channel();
    let (store, mut hear) = Told::new([Act::Wait(gate)]);
    let (session, mut end, mut listener) = start_by_hand(builder(store.clone())).await;
    let (mut turn, prompt) = prompted(&session, &mut end).await;
    writes(&mut end, &key(), &["a"]);
    end.finish_turn(&prompt, "hi");
    asked(&mut hear).await;
    writes(&mut end, &key(), &["b"]);
    end.exit(Exit::Signal(9));
    let mut end = within(SOON, listener.accept()).await;
    within(SOON, end.handshake()).await;
    assert!(end.launch().args.contains(&"--session-mirror".to_owned()));
    open.send(()).unwrap();
    // The turn's result came before the CLI's exit.
    assert!(outcome(&mut turn).await.is_completed());
    assert_eq!(asked(&mut hear).await, "b");
    let (mut turn, prompt) = prompted(&session, &mut end).await;
    writes(&mut end, &key(), &["c"]);
    end.finish_turn(&prompt, "hi");
    assert!(outcome(&mut turn).await.is_completed());
    assert_eq!(store.uuids(&key()), "a b c");
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn an_error_that_cannot_say_what_it_is_harms_nothing() {
    let (store, _hear) = Told::new([Act::Unspeakable]);
    let builder = builder(store.clone()).configure(|options| options.store.retry_pauses.clear());
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let mut events = session.events();
    for uuid in ["a", "b"] {
        let (mut turn, prompt) = prompted(&session, &mut end).await;
        writes(&mut end, &key(), &[uuid]);
        end.finish_turn(&prompt, "hi");
        assert!(outcome(&mut turn).await.is_completed());
    }
    assert!(lost(&mut events).await.2.contains("no word of it"));
    assert_eq!(store.uuids(&key()), "b");
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn entries_lost_to_a_busy_store_are_told_before_result_and_end() {
    let (open, gate) = oneshot::channel();
    let (store, mut hear) = Told::new([Act::Wait(gate), Act::Hang]);
    let bounded = builder(store.clone()).configure(|options| {
        options.store.flush = StoreFlush::Eager;
        options.store.queue_bytes = 200;
    });
    let (session, mut end, _listener) = start_by_hand(bounded).await;
    let mut events = session.events();
    let (mut turn, prompt) = prompted(&session, &mut end).await;
    let long = "x".repeat(200);
    writes(&mut end, &key(), &["a"]);
    asked(&mut hear).await;
    writes(&mut end, &key(), &[&long]);
    end.finish_turn(&prompt, "hi");
    settled(&mut end).await;
    open.send(()).unwrap();
    let mut seen = Vec::new();
    while let Some(message) = within(SOON, turn.next()).await {
        seen.push(message);
    }
    let told = seen.iter().position(|message| message.subtype() == Some("mirror_error"));
    assert!(told.is_some() && told < seen.iter().position(is_result), "{seen:?}");
    assert!(lost(&mut events).await.2.contains("store.queue_bytes"));
    // Now entries are lost while nobody waits any longer for the hanging store.
    writes(&mut end, &key(), &["b"]);
    asked(&mut hear).await;
    writes(&mut end, &key(), &[&long]);
    settled(&mut end).await;
    let (stopped, ()) = tokio::join!(session.stop(), end.run_out());
    stopped.unwrap();
    let reasons =
        [lost(&mut events).await, lost(&mut events).await].map(|(_, entries, reason)| (entries, reason));
    for reason in ["store.queue_bytes", "store.stop"] {
        assert!(reasons.iter().any(|(entries, told)| *entries == 1 && told.contains(reason)), "{reasons:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_fills_no_batch() {
    let (store, mut hear) = Told::new([]);
    let small = builder(store.clone()).configure(|options| options.store.batch_entries = 3);
    let (session, mut end, _listener) = start_by_hand(small).await;
    let mut events = session.events();
    let (_turn, _) = prompted(&session, &mut end).await;
    let path = format!("/config/projects/{}.jsonl", key());
    end.send(json!({"type": "transcript_mirror", "filePath": path, "entries": [1, 2, 3, 4]}));
    assert_eq!(lost(&mut events).await.1, 4);
    writes(&mut end, &key(), &["a"]);
    settled(&mut end).await;
    assert!(hear.try_recv().is_err(), "one entry is no batch");
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn an_outcome_without_a_result_waits_for_the_store_as_well() {
    let (open, gate) = oneshot::channel();
    let (open_again, gate_again) = oneshot::channel();
    let (store, mut hear) = Told::new([Act::Wait(gate), Act::Wait(gate_again)]);
    let (session, mut end, mut listener) = start_by_hand(builder(store.clone())).await;
    let waits = Duration::from_secs(30);
    // A prompt that asks nothing.
    let mut noted =
        session.prompt(Prompt { should_query: Some(false), ..Prompt::text("note") }).await.unwrap();
    let prompt = within(SOON, end.expect("user")).await;
    writes(&mut end, &key(), &["a"]);
    end.message(json!({"type": "command_lifecycle", "command_uuid": prompt["uuid"], "state": "completed"}));
    assert_eq!(asked(&mut hear).await, "a");
    assert!(tokio::time::timeout(waits, noted.outcome()).await.is_err(), "it came before the store had it");
    open.send(()).unwrap();
    assert!(matches!(outcome(&mut noted).await, Outcome::Appended));
    // A turn whose CLI dies.
    let (mut turn, _) = prompted(&session, &mut end).await;
    writes(&mut end, &key(), &["b"]);
    end.exit(Exit::Signal(9));
    assert_eq!(asked(&mut hear).await, "b");
    let mut end = within(SOON, listener.accept()).await;
    within(SOON, end.handshake()).await;
    while tokio::time::timeout(waits, turn.next()).await.is_ok_and(|message| message.is_some()) {}
    assert!(
        tokio::time::timeout(waits / 2, turn.outcome()).await.is_err(),
        "it came before the store had it"
    );
    open_again.send(()).unwrap();
    assert!(matches!(outcome(&mut turn).await, Outcome::Interrupted { .. }));
    assert_eq!(store.uuids(&key()), "a b");
    stop(session, end).await;
}

/// A session whose CLI has written these entries to its transcript. Returns the path of that, and its key, too.
async fn written(
    config: &Path,
    builder: SessionBuilder,
    uuids: &[&str],
) -> (Session, CliEnd, ScriptedListener, PathBuf, SessionKey) {
    let builder = builder
        .env("CLAUDE_CONFIG_DIR", config.to_str().unwrap())
        .configure(|options| options.cwd = Some("/no/such/work".into()));
    let (session, end, listener) = start_by_hand(builder).await;
    let id = end.session_id().to_owned();
    let main = config.join("projects/-no-such-work").join(format!("{id}.jsonl"));
    std::fs::create_dir_all(main.parent().unwrap()).unwrap();
    let line = |uuid: &&str| format!("{}\n", json!({"type": "user", "uuid": uuid}));
    std::fs::write(&main, uuids.iter().map(line).collect::<String>()).unwrap();
    (session, end, listener, main, SessionKey::new("-no-such-work", &id))
}

fn tells(end: &mut CliEnd, path: &Path, uuid: &str) {
    let entries = json!([{"type": "user", "uuid": uuid}]);
    end.send(json!({"type": "transcript_mirror", "filePath": path, "entries": entries}));
}

#[tokio::test]
async fn what_an_append_has_lost_is_caught_up_with_as_well() {
    let config = tempfile::tempdir().unwrap();
    let (store, mut hear) = Told::new([Act::Take, Act::Fail("busy"), Act::Take]);
    let builder = builder(store.clone()).configure(|options| options.store.retry_pauses.clear());
    let (session, mut end, mut listener, main, key) = written(config.path(), builder, &["a", "b", "c"]).await;
    for uuid in ["a", "b", "c"] {
        let (mut turn, prompt) = prompted(&session, &mut end).await;
        tells(&mut end, &main, uuid);
        end.finish_turn(&prompt, "hi");
        assert!(outcome(&mut turn).await.is_completed());
        assert_eq!(asked(&mut hear).await, uuid);
    }
    assert_eq!(store.uuids(&key), "a c");
    end.exit(Exit::Signal(9));
    assert_eq!(asked(&mut hear).await, "b c");
    let mut end = within(SOON, listener.accept()).await;
    within(SOON, end.handshake()).await;
    stop(session, end).await;
    assert_eq!(store.uuids(&key), "a c b");
}

#[tokio::test]
async fn what_the_next_cli_tells_comes_behind_what_the_last_one_did_not() {
    let config = tempfile::tempdir().unwrap();
    let (open, gate) = oneshot::channel();
    let (store, mut hear) = Told::new([Act::Wait(gate)]);
    let (session, mut end, mut listener, main, key) =
        written(config.path(), builder(store.clone()), &["a", "b", "c"]).await;
    let (mut turn, prompt) = prompted(&session, &mut end).await;
    tells(&mut end, &main, "a");
    end.finish_turn(&prompt, "hi");
    assert_eq!(asked(&mut hear).await, "a");
    end.exit(Exit::Signal(9));
    let mut end = within(SOON, listener.accept()).await;
    within(SOON, end.handshake()).await;
    tells(&mut end, &main, "d");
    settled(&mut end).await;
    open.send(()).unwrap();
    assert!(outcome(&mut turn).await.is_completed());
    stop(session, end).await;
    assert_eq!(store.uuids(&key), "a b c d");
}

#[tokio::test]
async fn a_search_that_a_stop_cuts_off_is_told_with_what_it_had_found() {
    let config = tempfile::tempdir().unwrap();
    let (store, mut hear) = Told::new([Act::Hang]);
    let builder = builder(store).configure(|options| options.store.stop = Duration::from_millis(1));
    let (session, mut end, mut listener, _, key) = written(config.path(), builder, &["a", "b"]).await;
    let mut events = session.events();
    let (mut turn, prompt) = prompted(&session, &mut end).await;
    end.finish_turn(&prompt, "hi");
    assert!(outcome(&mut turn).await.is_completed());
    end.exit(Exit::Signal(9));
    assert_eq!(asked(&mut hear).await, "a b");
    let mut end = within(SOON, listener.accept()).await;
    within(SOON, end.handshake()).await;
    let (stopped, ()) = tokio::join!(session.stop(), end.run_out());
    stopped.unwrap();
    let (at, entries, error) = lost(&mut events).await;
    assert!((at, entries) == (Some(key), 2) && error.contains("store.stop"), "{error}");
}

#[tokio::test]
async fn what_a_killed_cli_wrote_and_did_not_tell_is_caught_up_with() {
    let config = tempfile::tempdir().unwrap();
    let folder = config.path().join("projects/-no-such-work");
    let (store, mut hear) = Told::new([]);
    let builder = builder(store.clone())
        .env("CLAUDE_CONFIG_DIR", config.path().to_str().unwrap())
        .configure(|options| options.cwd = Some("/no/such/work".into()));
    let (session, mut end, mut listener) = start_by_hand(builder).await;
    let id = end.session_id().to_owned();
    let (main, agent) =
        (folder.join(format!("{id}.jsonl")), folder.join(format!("{id}/subagents/agent-1.jsonl")));
    std::fs::create_dir_all(agent.parent().unwrap()).unwrap();
    let line = |uuid: &str| format!("{}\n", json!({"type": "user", "uuid": uuid}));
    let lines = |uuids: &[&str]| uuids.iter().map(|uuid| line(uuid)).collect::<String>();
    let torn = "{\"type\":\"mode\"}\n{\"type\":\"us";
    std::fs::write(&main, lines(&["a", "b", "c"]) + torn).unwrap();
    std::fs::write(&agent, lines(&["x", "y", "z"])).unwrap();
    let (mut turn, _) = prompted(&session, &mut end).await;
    tells(&mut end, &agent, "x");
    settled(&mut end).await;
    end.exit(Exit::Signal(9));
    assert!(matches!(outcome(&mut turn).await, Outcome::Interrupted { .. }));
    let mut end = within(SOON, listener.accept()).await;
    within(SOON, end.handshake()).await;
    let (mut turn, prompt) = prompted(&session, &mut end).await;
    tells(&mut end, &main, "d");
    end.finish_turn(&prompt, "hi");
    assert!(outcome(&mut turn).await.is_completed());
    let key = SessionKey::new("-no-such-work", &id);
    assert_eq!(store.uuids(&key), "a b c d");
    assert_eq!(store.uuids(&key.with_subpath("subagents/agent-1")), "x y z");
    stop(session, end).await;
    hear.close();
    while let Some((_, uuids)) = hear.recv().await {
        assert!(["x", "y z", "a b c", "d"].contains(&&*uuids), "only what was missing: {uuids}");
    }
}

#[tokio::test(start_paused = true)]
async fn stop_waits_for_the_store_up_to_its_limit() {
    let (open, gate) = oneshot::channel();
    let (store, mut hear) = Told::new([Act::Wait(gate)]);
    let (session, mut end, _listener) = start_by_hand(builder(store.clone())).await;
    let (stopped, ()) = tokio::join!(session.stop(), async {
        // The end of the transcript is written when stdin is closed.
        assert!(within(SOON, end.recv()).await.is_none());
        writes(&mut end, &key(), &["last"]);
        end.exit(Exit::Code(0));
        assert_eq!(asked(&mut hear).await, "last");
        open.send(()).unwrap();
    });
    stopped.unwrap();
    assert_eq!(store.uuids(&key()), "last");

    let (store, mut hear) = Told::new([Act::Hang]);
    let (session, mut end, _listener) = start_by_hand(builder(store.clone())).await;
    let mut events = session.events();
    writes(&mut end, &key(), &["lost"]);
    let begun = Instant::now();
    let (stopped, ()) = tokio::join!(session.stop(), end.run_out());
    stopped.unwrap();
    assert!(begun.elapsed() <= session.shutdown_bound(), "{:?}", begun.elapsed());
    assert_eq!(asked(&mut hear).await, "lost");
    let (at, entries, error) = lost(&mut events).await;
    assert!((at, entries) == (Some(key()), 1) && error.contains("store.stop"), "{error}");
}

/// A store that never loads anything.
struct Stuck(mpsc::UnboundedSender<()>);

impl SessionStore for Stuck {
    fn append<'a>(&'a self, _: &'a SessionKey, _: &'a [TranscriptEntry]) -> BoxFuture<'a, StoreResult<()>> {
        Box::pin(async { panic!("nothing was said yet") })
    }

    fn load<'a>(&'a self, _: &'a SessionKey) -> BoxFuture<'a, StoreResult<Option<Vec<TranscriptEntry>>>> {
        self.0.send(()).unwrap();
        Box::pin(std::future::pending())
    }
}

// Guards: the owner of the session is fenced, and calls `kill`
#[tokio::test(start_paused = true)]
async fn a_kill_switch_ends_a_start_that_waits_for_the_store() {
    let (asked, mut hear) = mpsc::unbounded_channel();
    let (transport, mut listener) = ScriptedCli::by_hand();
    let mut builder = builder(Arc::new(Stuck(asked))).resume(ID).transport(transport);
    let switch = builder.kill_switch();
    let begun = Instant::now();
    let (started, ()) = within(SOON, async {
        tokio::join!(builder.start(), async {
            hear.recv().await.unwrap();
            switch.kill().await;
        })
    })
    .await;
    assert_eq!(started.unwrap_err().kind(), ErrorKind::Stopped);
    assert!(begun.elapsed() < Duration::from_millis(50), "{:?}", begun.elapsed());
    assert!(within(SOON, listener.try_accept()).await.is_none(), "a CLI was started");
}

/// Kills the session, which must take no time.
async fn kill(session: &Session) {
    let begun = Instant::now();
    within(SOON, session.kill()).await;
    assert!(begun.elapsed() < Duration::from_millis(50), "{:?}", begun.elapsed());
}

// Guards: the owner of the session is fenced, and calls `kill`
#[tokio::test(start_paused = true)]
async fn a_kill_aborts_the_append_and_the_result_behind_it_counts_no_more() {
    let (open, gate) = oneshot::channel();
    let (store, mut hear) = Told::new([Act::Wait(gate)]);
    let (session, mut end, _listener) = start_by_hand(builder(store.clone())).await;
    let mut events = session.events();
    let (mut turn, prompt) = prompted(&session, &mut end).await;
    writes(&mut end, &key(), &["a", "b"]);
    end.finish_turn(&prompt, "hi");
    assert_eq!(asked(&mut hear).await, "a b");
    writes(&mut end, &agent(), &["c"]);
    settled(&mut end).await;
    kill(&session).await;
    assert!(open.is_closed(), "the append goes on");
    assert!(matches!(outcome(&mut turn).await, Outcome::Interrupted { by: InterruptedBy::Stop, .. }));
    let why = "the session was killed before the store had taken them".to_owned();
    assert_eq!(lost(&mut events).await, (Some(key()), 2, why.clone()));
    assert_eq!(lost(&mut events).await, (Some(agent()), 1, why));
    assert!(hear.try_recv().is_err() && store.uuids(&key()).is_empty());
}

// Guards: the owner of the session is fenced, and calls `kill`
#[tokio::test(start_paused = true)]
async fn an_append_is_not_tried_again_after_a_kill() {
    let (store, mut hear) = Told::new([Act::Fail("busy")]);
    let (session, mut end, _listener) = start_by_hand(builder(store.clone())).await;
    let (_turn, prompt) = prompted(&session, &mut end).await;
    writes(&mut end, &key(), &["a"]);
    end.finish_turn(&prompt, "hi");
    assert_eq!(asked(&mut hear).await, "a");
    kill(&session).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(hear.try_recv().is_err() && store.uuids(&key()).is_empty());
}

// Guards: the owner of the session is fenced, and calls `kill`
#[tokio::test(start_paused = true)]
async fn a_kill_ends_the_wait_of_a_stop_for_the_store() {
    let (store, mut hear) = Told::new([Act::Hang]);
    let (session, mut end, _listener) = start_by_hand(builder(store.clone())).await;
    writes(&mut end, &key(), &["a"]);
    settled(&mut end).await;
    let stopped = async {
        tokio::join!(session.stop(), end.run_out(), async {
            assert_eq!(asked(&mut hear).await, "a");
            kill(&session).await;
        })
    };
    within(SOON, stopped).await.0.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_session_without_a_store_asks_for_no_mirror() {
    let (session, end, _listener) = start_by_hand(Session::builder()).await;
    assert!(!end.launch().args.contains(&"--session-mirror".to_owned()));
    stop(session, end).await;
}

/// A session in a store, and the options to resume it on a machine that has only this home.
async fn resumable(home: &Path) -> (Arc<MemoryStore>, SessionBuilder) {
    let store = Arc::new(MemoryStore::new());
    let entry = TranscriptEntry::parse(r#"{"type":"user","uuid":"a"}"#).unwrap();
    store.append(&SessionKey::new("-no-such-work", ID), &[entry]).await.unwrap();
    let builder = Session::builder()
        .session_store(store.clone())
        .configure(|options| {
            options.env_policy = greenroom::options::EnvPolicy::Clean;
            options.cwd = Some("/no/such/work".into());
        })
        .env("HOME", home.to_str().unwrap())
        .resume(ID);
    (store, builder)
}

fn config_dir(end: &CliEnd) -> PathBuf {
    PathBuf::from(&end.launch().command.env["CLAUDE_CONFIG_DIR"])
}

fn transcript(end: &CliEnd) -> PathBuf {
    config_dir(end).join(format!("projects/-no-such-work/{ID}.jsonl"))
}

#[tokio::test]
async fn a_session_from_a_store_keeps_one_folder_and_removes_it() {
    let home = tempfile::tempdir().unwrap();
    let (store, builder) = resumable(home.path()).await;
    let (session, mut end, mut listener) = start_by_hand(builder).await;
    assert!(end.launch().args.contains(&format!("--resume={ID}")));
    let folder = config_dir(&end);
    assert!(transcript(&end).exists());
    // New entries are mirrored under the key that the session was loaded from.
    let (mut turn, prompt) = prompted(&session, &mut end).await;
    let path = transcript(&end);
    end.send(
        json!({"type": "transcript_mirror", "filePath": path, "entries": [{"type": "user", "uuid": "b"}]}),
    );
    end.finish_turn(&prompt, "hi");
    assert!(outcome(&mut turn).await.is_completed());
    assert_eq!(store.entries(&SessionKey::new("-no-such-work", ID)).len(), 2);
    end.exit(Exit::Signal(9));
    let mut end = within(SOON, listener.accept()).await;
    within(SOON, end.handshake()).await;
    assert_eq!(config_dir(&end), folder);
    assert!(transcript(&end).exists());
    stop(session, end).await;
    assert!(!folder.exists());
}

#[tokio::test]
async fn the_folder_of_a_session_that_fails_to_start_or_is_dropped_is_removed() {
    let home = tempfile::tempdir().unwrap();
    let (_store, builder) = resumable(home.path()).await;
    let (transport, mut listener) = ScriptedCli::by_hand();
    let (failed, folder) = tokio::join!(builder.clone().transport(transport).start(), async {
        let end = listener.accept().await;
        let folder = config_dir(&end);
        assert!(folder.exists());
        end.exit(Exit::Code(1));
        folder
    });
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::CliExited);
    assert!(!folder.exists());

    let (session, end, _listener) = start_by_hand(builder).await;
    let folder = config_dir(&end);
    let mut events = session.events();
    drop(session);
    end.run_out().await;
    while within(SOON, events.next()).await.is_some() {}
    assert!(!folder.exists());
}

// Guards: the session to resume is not there
#[tokio::test]
async fn what_the_store_does_not_have_is_said_before_a_cli_is_started() {
    let home = tempfile::tempdir().unwrap();
    let (_store, builder) = resumable(home.path()).await;
    let (transport, _listener) = ScriptedCli::by_hand();
    let other = "bbbbbbbb-0000-4000-8000-000000000002";
    let error = builder.resume(other).transport(transport).start().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SessionNotFound);
    assert!(error.to_string().contains(other), "{error}");
}

#[tokio::test]
async fn what_does_not_go_with_a_store_is_refused() {
    let (store, _hear) = Told::new([]);
    let checkpoints = builder(store.clone()).configure(|options| options.enable_file_checkpointing = true);
    let unwritten = builder(store).configure(|options| options.persist_session = Some(false));
    for (builder, named) in [(checkpoints, "enable_file_checkpointing"), (unwritten, "persist_session")] {
        let (transport, _listener) = ScriptedCli::by_hand();
        let error = builder.transport(transport).start().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOption);
        assert!(error.to_string().contains(named), "{error}");
    }
}

// Guards: fenced
#[tokio::test(start_paused = true)]
async fn a_message_into_a_turn_is_written_to_no_cli_but_its_own() {
    let (release, released) = oneshot::channel();
    let (store, mut hear) = Told::new([Act::Wait(released)]);
    let (session, mut end, mut listener) = start_by_hand(builder(store)).await;
    let (mut turn, prompt) = prompted(&session, &mut end).await;
    end.message(json!({"type": "command_lifecycle", "command_uuid": prompt["uuid"], "state": "started"}));
    writes(&mut end, &key(), &["a"]);
    settled(&mut end).await;
    end.exit(Exit::Signal(9));
    assert_eq!(asked(&mut hear).await, "a");
    // The turn runs until the store has taken the entry; meanwhile the next CLI begins with its handshake.
    let mut end = within(SOON, listener.accept()).await;
    drop(session.steer("Faster.").await.unwrap());
    let written = settled(&mut end).await;
    assert!(written.iter().all(|frame| frame["type"] != "user"), "{written:?}");
    release.send(()).unwrap();
    assert!(matches!(outcome(&mut turn).await, Outcome::Interrupted { .. }));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_is_cancelled_while_the_end_of_its_cli_waits_for_the_store() {
    let (open, gate) = oneshot::channel();
    let (store, mut hear) = Told::new([Act::Wait(gate)]);
    let continuing = builder(store).configure(|options| {
        options.turn_recovery = TurnRecovery::Continue { prompt: "Go on.".into() };
    });
    let (session, mut end, mut listener) = start_by_hand(continuing).await;
    let (mut first, prompt) = prompted(&session, &mut end).await;
    end.finish_turn(&prompt, "hi");
    assert!(outcome(&mut first).await.is_completed());
    let (mut turn, _) = prompted(&session, &mut end).await;
    writes(&mut end, &key(), &["a"]);
    // Waits for the store, and ends no turn: it is about other work. The end of the CLI waits behind it.
    end.finish_turn(&json!({ "uuid": "00000000-0000-4000-8000-000000000000" }), "other work");
    assert_eq!(asked(&mut hear).await, "a");
    let mut events = session.events();
    end.exit(Exit::Signal(9));
    event(&mut events, |event| matches!(event, Event::CliExited { .. }).then_some(())).await;
    within(SOON, async { tokio::join!(turn.cancel(), async { open.send(()).unwrap() }) }).await;
    let ended = outcome(&mut turn).await;
    assert!(matches!(ended, Outcome::Interrupted { by: InterruptedBy::User, .. }), "{ended:?}");
    let mut end = within(SOON, listener.accept()).await;
    within(SOON, end.handshake()).await;
    assert!(settled(&mut end).await.iter().all(|frame| frame["type"] != "user"), "the turn went on");
    stop(session, end).await;
}
