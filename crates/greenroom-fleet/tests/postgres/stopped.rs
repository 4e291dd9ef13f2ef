//! A node that is stopped at each point of the requests of an owner, until another node has taken its names over.
//!
//! A request stops before one of its reads and commits, or after its answer, for each of them in turn. The server has a statement as a
//! whole or not at all: a node that has sent all of it but its last bytes is not among the points.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use greenroom_fleet::backend::{
    Backend, Channels, Commit, Committed, Lane, PostgresBackend, Reply, Requests, Rows, Wanted,
};
use greenroom_fleet::{
    Accept, Accepted, ActivationFailed, Answered, Append, Ask, AttemptId, BackendError, Begin, Claim,
    Claimed, Counted, Finish, InterruptedBy, Join, Name, NodeId, NodeState, Owned, Ownership, PromptContent,
    PromptId, PromptOutcome, QuarantineKind, QuestionId, Timestamp,
};
use serde_json::json;
use sqlx::PgConnection;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::nodes::{HOUR, accept, accepted, joined, owner};
use crate::proxy::Proxy;
use crate::wait::in_time;
use crate::{connect, connect_hastily, schema, server};

/// Over as soon as anybody looks.
const SHORT: Duration = Duration::from_millis(1);

const REQUESTS: [&str; 10] = [
    "claim",
    "begin",
    "append",
    "ask",
    "answer",
    "finish",
    "release",
    "activation_failed",
    "record_process",
    "renew",
];

/// A point of a request: before or after one of its reads and commits, which are counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    Before(usize),
    After(usize),
}

/// The backend of a node that is stopped at a point.
#[derive(Clone)]
struct Stopping {
    backend: PostgresBackend,
    point: Point,
    calls: Arc<AtomicUsize>,
    stopped: Arc<watch::Sender<bool>>,
    woken: Arc<watch::Sender<bool>>,
    /// Two marks: the request committed before the node woke, and after.
    committed: Arc<[AtomicBool; 2]>,
}

impl Stopping {
    fn new(backend: PostgresBackend, point: Point) -> Self {
        let (calls, stopped, woken, committed) = Default::default();
        Self { backend, point, calls, stopped, woken, committed }
    }

    async fn reach(&self, point: Point) {
        if self.point == point {
            self.stopped.send_replace(true);
            self.woken.subscribe().wait_for(|woken| *woken).await.unwrap();
        }
    }

    async fn call<T>(&self, call: impl Future<Output = Result<T, BackendError>>) -> Result<T, BackendError> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        self.reach(Point::Before(number)).await;
        let answer = call.await;
        self.reach(Point::After(number)).await;
        answer
    }

    fn committed(&self, since_it_woke: bool) -> bool {
        self.committed[usize::from(since_it_woke)].load(Ordering::Relaxed)
    }
}

impl Backend for Stopping {
    fn now(&self) -> Timestamp {
        self.backend.now()
    }

    fn read(&self, lane: Lane, wanted: Wanted) -> Reply<'_, Rows> {
        Box::pin(self.call(self.backend.read(lane, wanted)))
    }

    fn commit(&self, lane: Lane, commit: Commit) -> Reply<'_, Committed> {
        Box::pin(self.call(async move {
            let woken = *self.woken.borrow();
            let committed = self.backend.commit(lane, commit).await?;
            self.committed[usize::from(woken)].fetch_or(committed == Committed::Done, Ordering::Relaxed);
            Ok(committed)
        }))
    }

    fn channels(&self) -> &Channels {
        self.backend.channels()
    }
}

/// The things that a request of the node is about. Its turn can go on elsewhere, with the same prompt.
#[derive(Clone)]
struct Subject {
    node: NodeId,
    name: Name,
    prompt: PromptId,
    owner: Ownership,
    attempt: AttemptId,
    question: QuestionId,
}

fn content() -> PromptContent {
    PromptContent { prompt: json!("hello"), continuation: Some(json!("go on")) }
}

fn append(owner: &Ownership, prompt: PromptId) -> Append {
    let messages = vec![format!("\"of term {}\"", owner.term.0)];
    Append { owner: owner.clone(), prompt, first_seq: 1, messages, bound: 1000 }
}

fn ask(owner: &Ownership, prompt: PromptId, question: QuestionId) -> Ask {
    Ask { owner: owner.clone(), question, prompt, wait: HOUR, call: None, body: json!("may I?") }
}

fn finish(owner: &Ownership, prompt: PromptId, attempt: AttemptId) -> Finish {
    let outcome = PromptOutcome::Interrupted { by: InterruptedBy::User, result: None };
    Finish { owner: owner.clone(), prompt, attempt, outcome, cost: Some(5), usage: None, quarantine: None }
}

/// A node with a lease that is over soon, at the state before a request.
async fn before(request: &str, backend: &PostgresBackend, name: &str) -> Subject {
    let node = NodeId::new();
    backend.join(Join { node, host: "here".into(), lease: SHORT, capacity: 8 }).await.unwrap();
    let accept = Accept { content: content(), continuations: 1, ..accept(name) };
    let (prompt, name) = (accept.prompt, accept.name.clone());
    assert!(matches!(backend.accept(accept).await.unwrap(), Accepted::New(_)));
    let owner = match request {
        "claim" => Ownership { name: name.clone(), node, term: Default::default() },
        _ => owner(backend, node, name.session()).await,
    };
    let (attempt, question) = (AttemptId::new(), QuestionId::new());
    if !["claim", "begin"].contains(&request) {
        begins(backend, &owner, prompt, attempt).await;
    }
    if request == "answer" {
        let asked = backend.ask(ask(&owner, prompt, question)).await.unwrap();
        assert!(matches!(asked, Owned::Done(Some(_))), "{asked:?}");
    }
    Subject { node, name, prompt, owner, attempt, question }
}

async fn begins(backend: &PostgresBackend, owner: &Ownership, prompt: PromptId, attempt: AttemptId) {
    let begun = backend
        .begin(Begin {
            owner: owner.clone(),
            prompt,
            attempt,
            quota: greenroom_fleet::Quota::default(),
            credential: None,
        })
        .await
        .unwrap();
    assert!(matches!(begun, Owned::Done(Some(_))), "{begun:?}");
}

/// Carries a request out. `true`: it is refused because the node is dead.
async fn carry_out(request: &'static str, backend: Stopping, subject: Subject) -> bool {
    let Subject { node, name, prompt, owner, attempt, question } = subject;
    fn is_fenced<T>(answer: Result<Owned<T>, BackendError>) -> bool {
        matches!(answer.unwrap(), Owned::Fenced)
    }
    match request {
        "claim" => {
            let claim = Claim { name, node, attempt, losses: 3, quota: greenroom_fleet::Quota::default() };
            matches!(backend.claim(claim).await.unwrap(), Claimed::NodeDown)
        }
        "begin" => is_fenced(
            backend
                .begin(Begin {
                    owner,
                    prompt,
                    attempt,
                    quota: greenroom_fleet::Quota::default(),
                    credential: None,
                })
                .await,
        ),
        "append" => is_fenced(backend.append(append(&owner, prompt)).await),
        "ask" => is_fenced(backend.ask(ask(&owner, prompt, question)).await),
        // Anybody may answer, and the question has ended with its turn.
        "answer" => {
            matches!(backend.answer(question, attempt, json!("yes")).await.unwrap(), Answered::Gone)
        }
        "finish" => is_fenced(backend.finish(finish(&owner, prompt, attempt)).await),
        "release" => is_fenced(backend.release(owner).await),
        "activation_failed" => {
            let counted = Counted { kind: QuarantineKind::Activations, period: HOUR, intensity: 3 };
            let failed = ActivationFailed { owner, why: "a test".into(), counted: Some(counted) };
            is_fenced(backend.activation_failed(failed).await)
        }
        "record_process" => is_fenced(backend.record_process(owner, Some(json!({ "pid": 1 }))).await),
        "renew" => matches!(backend.renew(node, SHORT, false).await.unwrap(), Owned::Fenced),
        other => panic!("{other}"),
    }
}

/// A whole turn of another node, up to its last request.
async fn turn(backend: &PostgresBackend, owner: &Ownership, prompt: PromptId) -> AttemptId {
    let attempt = AttemptId::new();
    begins(backend, owner, prompt, attempt).await;
    let last = backend.prompt_record(prompt).await.unwrap().unwrap().last_seq;
    let appended = backend.append(Append { first_seq: last + 1, ..append(owner, prompt) }).await.unwrap();
    assert_eq!(appended, Owned::Done(Some(last + 1)));
    let asked = backend.ask(ask(owner, prompt, QuestionId::new())).await.unwrap();
    assert!(matches!(asked, Owned::Done(Some(_))), "{asked:?}");
    attempt
}

/// Another node finds that the lease is over, takes the name, and runs a turn, which does not end. It has a turn of another name, too.
async fn take_over(backend: &PostgresBackend, other: NodeId, subject: &Subject) {
    loop {
        let nodes = backend.nodes(None, 100).await.unwrap();
        // A dead node that owns nothing has no record.
        let Some(node) = nodes.iter().find(|node| node.id == subject.node) else { break };
        if node.state == NodeState::Dead || backend.declare_dead(node.id, node.renewals).await.unwrap() {
            break;
        }
    }
    let free = format!("{} of the other", subject.name);
    let prompt = accepted(backend, &free).await;
    let owner_of_free = owner(backend, other, &free).await;
    let attempt = turn(backend, &owner_of_free, prompt).await;
    let finished = backend.finish(finish(&owner_of_free, prompt, attempt)).await.unwrap();
    assert!(matches!(finished, Owned::Done(_)), "{finished:?}");
    assert!(matches!(backend.release(owner_of_free).await.unwrap(), Owned::Done(false)));

    let taken = owner(backend, other, subject.name.session()).await;
    let prompt = match backend.next_prompt(subject.name.clone()).await.unwrap() {
        Some(waits) => waits.id,
        // The node had finished it.
        None => accepted(backend, subject.name.session()).await,
    };
    turn(backend, &taken, prompt).await;
    assert!(matches!(backend.renew(other, HOUR, false).await.unwrap(), Owned::Done(_)));
}

/// The transactions that have locked a row, or may have.
async fn transactions(connection: &mut PgConnection, schema: &str) -> i64 {
    let locked = format!(
        "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE backend_type = 'client backend' \
         AND relation IN ('{schema}.rows'::regclass, '{schema}.counters'::regclass)"
    );
    sqlx::query_scalar(&locked).fetch_one(connection).await.unwrap()
}

/// All rows, and the sums of the counters.
async fn rows(connection: &mut PgConnection, schema: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let all = format!(
        "SELECT key, value FROM {schema}.rows UNION ALL \
         SELECT key, int8send(sum(value)::bigint) FROM {schema}.counters GROUP BY key ORDER BY key"
    );
    sqlx::query_as(&all).fetch_all(connection).await.unwrap()
}

// Guards: one-owner
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_stopped_anywhere_holds_up_nobody_and_writes_nothing_when_it_wakes() {
    let Some(address) = server::address() else { return };
    let schema = schema();
    let (theirs, backend) = (connect(&address, &schema).await, connect(&address, &schema).await);
    let other = joined(&backend).await;
    let mut raw = server::raw(&address).await;
    for request in REQUESTS {
        let mut points = 0;
        for point in (1..).flat_map(|number| [Point::Before(number), Point::After(number)]) {
            let at = format!("{request}, {point:?}");
            let subject = before(request, &backend, &format!("{request} {points}")).await;
            let stopping = Stopping::new(theirs.clone(), point);
            let mut stopped = stopping.stopped.subscribe();
            let mut running = JoinSet::new();
            running.spawn(carry_out(request, stopping.clone(), subject.clone()));
            let reached = async {
                tokio::select! {
                    reached = stopped.wait_for(|stopped| *stopped) => reached.is_ok(),
                    Some(done) = running.join_next() => {
                        assert!(!done.unwrap(), "{at}: the node was not stopped, and is refused");
                        false
                    }
                }
            };
            if !in_time(&at, reached).await {
                break;
            }
            points += 1;
            assert_eq!(transactions(&mut raw, &schema).await, 0, "{at}: a stopped node has a transaction");
            in_time(&at, take_over(&backend, other, &subject)).await;
            let before = rows(&mut raw, &schema).await;
            stopping.woken.send_replace(true);
            let refused = in_time(&at, running.join_next()).await.unwrap().unwrap();
            assert!(rows(&mut raw, &schema).await == before, "{at}: the node has written when it woke");
            assert!(!stopping.committed(true), "{at}: the node has committed when it woke");
            assert_eq!(refused, !stopping.committed(false), "{at}: the answer to the node");
        }
        println!("{request}: {points} points");
        assert!(points >= 4, "{request}: a read and a commit have two points each");
    }
}

/// The server has carried the commit out, but does not have the end of the message.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_stopped_before_the_end_of_its_commit_holds_up_nobody() {
    let Some(address) = server::address() else { return };
    let schema = schema();
    let proxy = Proxy::to(&address).await;
    let (theirs, backend) =
        (connect(proxy.address(), &schema).await, connect_hastily(&address, &schema).await);
    let other = joined(&backend).await;
    let subject = before("begin", &backend, "a").await;
    let held = proxy.hold_end_of(&subject.attempt.to_string());
    let Subject { owner, prompt, attempt, .. } = subject.clone();
    let begin = Begin { owner, prompt, attempt, quota: greenroom_fleet::Quota::default(), credential: None };
    let mut beginning = JoinSet::new();
    beginning.spawn(async move { theirs.begin(begin).await });
    in_time("all but the end of a begin", held).await;
    let mut raw = server::raw(&address).await;
    let carried_out = async { while backend.prompt_record(prompt).await.unwrap().unwrap().begins == 0 {} };
    in_time("the commit", carried_out).await;
    in_time("the other node", take_over(&backend, other, &subject)).await;
    let before = rows(&mut raw, &schema).await;
    proxy.go_on();
    let begun = in_time("the begin", beginning.join_next()).await.unwrap().unwrap().unwrap();
    assert!(matches!(begun, Owned::Done(Some(_))), "{begun:?}");
    assert!(rows(&mut raw, &schema).await == before, "the node has written when it woke");
}
