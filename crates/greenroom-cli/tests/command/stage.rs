//! A service with rows in memory, which serves its socket, and runs of the command.

use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use greenroom::Prompt;
use greenroom_fleet::backend::{
    Backend, Channels, Commit, Committed, Lane, MemoryBackend, Reply, Requests, Rows, SocketServer, Wanted,
};
use greenroom_fleet::{
    Accept, Accepted, Ask, AttemptId, Begin, Claim, Claimed, Finish, Join, Marked, Name, NodeId, Owned,
    Ownership, PromptContent, PromptId, PromptOutcome, QuestionId, QueueBounds, Quota, Timestamp, Usage,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use uuid::Uuid;

use crate::wait::in_time;

pub(crate) const FOREVER: Duration = Duration::from_secs(36_000);

/// A backend in memory that counts the rows that are read.
#[derive(Clone)]
pub(crate) struct Counting {
    pub(crate) rows: MemoryBackend,
    pub(crate) read: Arc<AtomicUsize>,
}

impl Backend for Counting {
    fn now(&self) -> Timestamp {
        self.rows.now()
    }

    fn read(&self, lane: Lane, wanted: Wanted) -> Reply<'_, Rows> {
        Box::pin(async move {
            let rows = self.rows.read(lane, wanted).await?;
            let count = rows.values.len() + rows.ranges.values().map(Vec::len).sum::<usize>();
            self.read.fetch_add(count, Ordering::SeqCst);
            Ok(rows)
        })
    }

    fn commit(&self, lane: Lane, commit: Commit) -> Reply<'_, Committed> {
        self.rows.commit(lane, commit)
    }

    fn channels(&self) -> &Channels {
        self.rows.channels()
    }
}

/// A service that serves its socket.
pub(crate) struct Service {
    pub(crate) backend: Counting,
    pub(crate) socket: PathBuf,
    _server: SocketServer,
    _folder: TempDir,
}

impl Service {
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("fleet.sock");
        let backend = Counting { rows: MemoryBackend::new(), read: Arc::default() };
        let server = SocketServer::bind(&socket, backend.clone()).await.unwrap();
        Self { backend, socket, _server: server, _folder: folder }
    }

    /// Runs the command on the socket.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Ended {
        let socket = self.socket.to_str().unwrap();
        run(&[&["--socket", socket], arguments].concat()).await
    }
}

/// A run of the command that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) error: String,
}

impl Ended {
    /// The output of a run that has done it.
    #[track_caller]
    pub(crate) fn done(self) -> String {
        assert!(self.code == 0 && self.error.is_empty(), "{self:?}");
        self.out
    }

    /// The objects of a run with `--json`.
    #[track_caller]
    pub(crate) fn objects(self) -> Vec<Value> {
        self.done().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

pub(crate) fn command(arguments: &[&str]) -> Command {
    #[allow(clippy::disallowed_methods, reason = "the command under test, which ends with the test")]
    let mut command = Command::new(env!("CARGO_BIN_EXE_greenroom"));
    command
        .args(arguments)
        .env_remove("GREENROOM_DATABASE")
        .env_remove("GREENROOM_TO_DATABASE")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

pub(crate) async fn run(arguments: &[&str]) -> Ended {
    ended(command(arguments)).await
}

pub(crate) async fn ended(mut command: Command) -> Ended {
    let Output { status, stdout, stderr } = in_time("the command", command.output()).await.unwrap();
    let [out, error] = [stdout, stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    Ended { code: status.code().unwrap_or(-1), out, error }
}

pub(crate) fn started(arguments: &[&str]) -> Child {
    command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

pub(crate) fn name(name: &str) -> Name {
    name.parse().unwrap()
}

/// Accepts a prompt for a session.
pub(crate) async fn accepted(backend: &impl Requests, to: &str) -> PromptId {
    accept(backend, to, |_| ()).await
}

/// Accepts a prompt for a session that is bound to a host.
pub(crate) async fn bound(backend: &impl Requests, to: &str, host: &str) {
    accept(backend, to, |accept| accept.host = Some(host.to_owned())).await;
}

/// The content of a prompt.
pub(crate) fn content(text: &str) -> PromptContent {
    PromptContent { prompt: serde_json::to_value(Prompt::from(text)).unwrap(), continuation: None }
}

/// Accepts a prompt for a session, with a change.
pub(crate) async fn accept(backend: &impl Requests, to: &str, change: impl FnOnce(&mut Accept)) -> PromptId {
    let mut accept = Accept {
        prompt: PromptId::new(),
        name: name(to),
        profile: "support".to_owned(),
        conversation: Uuid::new_v4(),
        host: None,
        key: None,
        labels: Default::default(),
        content: content("hello"),
        continuations: 0,
        not_before: None,
        wait: FOREVER,
        quota: Quota::default(),
        bounds: QueueBounds { name: 1000, tenant: 100_000, fleet: 100_000, ..QueueBounds::default() },
    };
    change(&mut accept);
    let prompt = accept.prompt;
    assert!(matches!(backend.accept(accept).await.unwrap(), Accepted::New(_)));
    prompt
}

pub(crate) async fn joined(backend: &impl Requests, host: &str) -> NodeId {
    let node = NodeId::new();
    backend.join(Join { node, host: host.to_owned(), lease: FOREVER, capacity: 8 }).await.unwrap();
    node
}

pub(crate) async fn owned(backend: &impl Requests, of: &str, node: NodeId) -> Ownership {
    let claim = Claim { name: name(of), node, attempt: AttemptId::new(), losses: 3, quota: Quota::default() };
    let Claimed::Won(won) = backend.claim(claim).await.unwrap() else { panic!("{of} is not won") };
    Ownership { name: won.name, node, term: won.term }
}

/// A turn of a session that has ended, with its usage.
pub(crate) async fn used(backend: &impl Requests, to: &str, node: NodeId, usage: Usage) {
    let prompt = accepted(backend, to).await;
    let (owner, attempt) = (owned(backend, to, node).await, AttemptId::new());
    let begin = Begin { owner: owner.clone(), prompt, attempt, quota: Quota::default(), credential: None };
    assert!(matches!(backend.begin(begin).await.unwrap(), Owned::Done(Some(_))));
    let outcome = PromptOutcome::Completed { result: json!(null), transcript_lost: false };
    let (cost, usage) = (Some(usage.cost), Some(usage));
    let finish = Finish { owner, prompt, attempt, outcome, cost, usage, quarantine: None };
    assert!(matches!(backend.finish(finish).await.unwrap(), Owned::Done(_)));
}

pub(crate) async fn quarantined(backend: &impl Requests, session: &str, why: &str) {
    assert_eq!(backend.quarantine(name(session), why.into()).await.unwrap(), Marked::Done);
}

/// A session that runs a turn in which it has asked a question of the model.
pub(crate) async fn asking(backend: &impl Requests, to: &str, node: NodeId, question: &str) -> QuestionId {
    let prompt = accepted(backend, to).await;
    let owner = owned(backend, to, node).await;
    let begin = Begin {
        owner: owner.clone(),
        prompt,
        attempt: AttemptId::new(),
        quota: Quota::default(),
        credential: None,
    };
    assert!(matches!(backend.begin(begin).await.unwrap(), Owned::Done(Some(_))));
    let body = json!({ "kind": "questions", "questions": [
        { "question": question, "header": "Size", "multiSelect": false, "options": [
            { "label": "S", "description": "small" }, { "label": "L", "description": "large" },
        ] },
    ] });
    let id = QuestionId::new();
    let ask = Ask { owner, question: id, prompt, wait: FOREVER, call: None, body };
    assert!(matches!(backend.ask(ask).await.unwrap(), Owned::Done(Some(_))));
    id
}
