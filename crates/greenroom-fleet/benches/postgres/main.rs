//! Measures what a fleet on PostgreSQL costs, beside raw statements on the same server in the same run.
//! `cargo bench -p greenroom-fleet --bench postgres` prints a table; `docs/performance.md` explains it. It needs PostgreSQL's
//! programs, or `GREENROOM_POSTGRES` with the address of a server.
//!
//! Figures are for reading: a slow machine fails nothing.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "it prints figures, and stops at errors"
)]

#[path = "../../tests/postgres/server.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod server;
#[path = "../../../../tests/support/wait.rs"]
mod wait;

use std::future::Future;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use greenroom::Session;
use greenroom_fleet::backend::{Backend, MemoryBackend, PostgresBackend, PostgresOptions, Requests};
use greenroom_fleet::{
    Accept, Accepted, Append, AttemptId, Begin, Claim, Claimed, Finish, Fleet, FleetBuilder, Join, Name,
    NodeId, Owned, Ownership, PromptContent, PromptId, PromptOutcome, QueueBounds, TurnItem,
};
use greenroom_testkit::{ModelTurn, Script, ScriptedCli};
use serde_json::json;
use sqlx::postgres::{PgListener, PgPoolOptions};
use sqlx::{Executor, PgPool};
use tokio::task::JoinSet;
use uuid::Uuid;

const CALLERS: usize = 16;
const LENGTH: Duration = Duration::from_secs(3);
const HOUR: Duration = Duration::from_secs(3600);
const MESSAGES: usize = 400;
const ACTIVATIONS: usize = 100;

fn main() {
    let Some(address) = server::address() else { return };
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        if std::env::var_os("GREENROOM_POSTGRES").is_none() {
            // The scratch server does not force writes to the disk.
            let mut server = server::raw(&address).await;
            server::run(&mut server, "ALTER SYSTEM SET fsync = on").await;
            server::run(&mut server, "SELECT pg_reload_conf()").await;
        }
        let backend = connect(&address, "bench").await;
        let pool = PgPoolOptions::new().max_connections(CALLERS as u32 + 1).connect(&address).await.unwrap();
        pool.execute("DROP TABLE IF EXISTS bench; CREATE TABLE bench (id text PRIMARY KEY, n bigint NOT NULL, text text)")
            .await
            .unwrap();
        accepts(&backend, &pool).await;
        begins(&backend, &pool).await;
        let (commits, conflicts) = backend.commits();
        println!("{commits} commits so far, {conflicts} of them in conflict with another one and tried again");
        messages(&backend, &address, &pool).await;
        activations(&address).await;
        pool.execute("DROP TABLE bench").await.unwrap();
    });
}

async fn connect(address: &str, schema: &str) -> PostgresBackend {
    let mut options = PostgresOptions::new(address);
    options.schema = schema.into();
    options.connections = CALLERS as u32;
    PostgresBackend::connect(options).await.unwrap()
}

fn accept(name: String) -> Accept {
    Accept {
        prompt: PromptId::new(),
        name: format!("acme/{}", name).parse::<Name>().unwrap(),
        profile: "default".into(),
        conversation: Uuid::new_v4(),
        host: None,
        key: None,
        labels: Default::default(),
        content: PromptContent { prompt: json!("x".repeat(200)), continuation: None },
        continuations: 0,
        not_before: None,
        wait: HOUR,
        quota: greenroom_fleet::Quota::default(),
        bounds: QueueBounds { name: 1_000_000, tenant: 1_000_000, fleet: 1_000_000, ..Default::default() },
    }
}

/// Calls at once, each caller one after another, for a while. Returns the calls in a second.
async fn rate<F: Future<Output = ()> + Send>(call: impl Fn(usize) -> F + Clone + Send + 'static) -> f64 {
    let begin = Instant::now();
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let call = call.clone();
        callers.spawn(async move {
            let mut calls = 0_u32;
            while begin.elapsed() < LENGTH {
                call(caller).await;
                calls += 1;
            }
            calls
        });
    }
    f64::from(callers.join_all().await.into_iter().sum::<u32>()) / begin.elapsed().as_secs_f64()
}

fn row(what: &str, figure: f64, raw_what: &str, raw: f64, unit: &str) {
    println!("{what}: {figure:.2} {unit}; {raw_what}: {raw:.2} {unit}; ratio {:.2}", figure / raw);
}

async fn accepts(backend: &PostgresBackend, pool: &PgPool) {
    let pool = pool.clone();
    let raw = rate(move |_| {
        let pool = pool.clone();
        async move {
            let insert = sqlx::query("INSERT INTO bench VALUES ($1, 0, $2)")
                .bind(Uuid::new_v4().to_string())
                .bind("x".repeat(400));
            insert.execute(&pool).await.unwrap();
        }
    });
    let raw = raw.await;
    let backend = backend.clone();
    let figure = rate(move |_| {
        let backend = backend.clone();
        async move { drop(backend.accept(accept(Uuid::new_v4().to_string())).await.unwrap()) }
    });
    row("accepts, 16 callers", figure.await, "inserts of a row", raw, "a second");
}

/// A node that owns a name.
async fn owner(backend: &PostgresBackend, node: NodeId, name: &str) -> Ownership {
    let name = format!("acme/{}", name).parse::<Name>().unwrap();
    let claim = Claim {
        name: name.clone(),
        node,
        attempt: AttemptId::new(),
        losses: 3,
        quota: greenroom_fleet::Quota::default(),
    };
    match backend.claim(claim).await.unwrap() {
        Claimed::Won(record) => Ownership { name, node, term: record.term },
        other => panic!("{other:?}"),
    }
}

async fn accepted(backend: &PostgresBackend, name: &str) -> PromptId {
    match backend.accept(accept(name.to_owned())).await.unwrap() {
        Accepted::New(prompt) => prompt.id,
        other => panic!("{other:?}"),
    }
}

async fn begun(backend: &PostgresBackend, owner: &Ownership, prompt: PromptId) -> AttemptId {
    let attempt = AttemptId::new();
    let begin = Begin {
        owner: owner.clone(),
        prompt,
        attempt,
        quota: greenroom_fleet::Quota::default(),
        credential: None,
    };
    assert!(matches!(backend.begin(begin).await.unwrap(), Owned::Done(Some(_))));
    attempt
}

async fn begins(backend: &PostgresBackend, pool: &PgPool) {
    let node = NodeId::new();
    backend.join(Join { node, host: "bench".into(), lease: HOUR, capacity: 8 }).await.unwrap();
    let (mut owners, mut rows) = (Vec::new(), Vec::new());
    for caller in 0..CALLERS {
        let name = format!("begins {caller}");
        accepted(backend, &name).await;
        owners.push(owner(backend, node, &name).await);
        let id = Uuid::new_v4().to_string();
        sqlx::query("INSERT INTO bench VALUES ($1, 0, '')").bind(&id).execute(pool).await.unwrap();
        rows.push(id);
    }
    let (all, id) = (pool.clone(), rows[0].clone());
    let raw = rate(move |caller| {
        let (pool, id) = (all.clone(), rows[caller].clone());
        async move {
            for _ in 0..3 {
                let update = sqlx::query("UPDATE bench SET n = n + 1 WHERE id = $1").bind(&id);
                update.execute(&pool).await.unwrap();
            }
        }
    });
    let raw = raw.await;
    let backend = backend.clone();
    let turns = {
        let (backend, owners) = (backend.clone(), owners.clone());
        rate(move |caller| {
            let (backend, owner) = (backend.clone(), owners[caller].clone());
            async move {
                turn(&backend, &owner).await;
            }
        })
    };
    row("turns (accept, begin, finish), 16 names", turns.await, "three updates of a row", raw, "a second");
    let (mut figures, mut updates) = (Vec::new(), Vec::new());
    for _ in 0..MESSAGES {
        figures.push(turn(&backend, &owners[0]).await);
        let update = sqlx::query("UPDATE bench SET n = n + 1 WHERE id = $1").bind(&id);
        let begin = Instant::now();
        update.execute(pool).await.unwrap();
        updates.push(begin.elapsed());
    }
    let ((middle, slow), (raw_middle, raw_slow)) = (percentiles(figures), percentiles(updates));
    row("begin, p50", middle, "update of a row", raw_middle, "ms");
    row("begin, p99", slow, "update of a row", raw_slow, "ms");
}

/// A whole turn. Returns the time of its begin.
async fn turn(backend: &PostgresBackend, owner: &Ownership) -> Duration {
    let prompt = accepted(backend, owner.name.session()).await;
    let before = Instant::now();
    let attempt = begun(backend, owner, prompt).await;
    let took = before.elapsed();
    let outcome = PromptOutcome::Completed { result: json!("done"), transcript_lost: false };
    let finish = Finish {
        owner: owner.clone(),
        prompt,
        attempt,
        outcome,
        cost: Some(0),
        usage: None,
        quarantine: None,
    };
    assert!(matches!(backend.finish(finish).await.unwrap(), Owned::Done(_)));
    took
}

/// The middle and the 99th of a hundred, in milliseconds.
fn percentiles(mut times: Vec<Duration>) -> (f64, f64) {
    times.sort();
    let of = |part: usize| times[(times.len() - 1) * part / 100].as_secs_f64() * 1000.0;
    (of(50), of(99))
}

async fn messages(backend: &PostgresBackend, address: &str, pool: &PgPool) {
    let mut listener = PgListener::connect(address).await.unwrap();
    listener.listen("bench").await.unwrap();
    let mut raw = Vec::new();
    for _ in 0..MESSAGES {
        let begin = Instant::now();
        let notify = sqlx::query(
            "WITH kept AS (INSERT INTO bench VALUES ($1, 0, '') RETURNING id) \
                                  SELECT pg_notify('bench', id) FROM kept",
        );
        notify.bind(Uuid::new_v4().to_string()).execute(pool).await.unwrap();
        listener.recv().await.unwrap();
        raw.push(begin.elapsed());
    }
    let folder = tempfile::tempdir().unwrap();
    let reading =
        builder(connect(address, "bench").await, folder.path()).without_watchdog().start().await.unwrap();
    let node = NodeId::new();
    backend.join(Join { node, host: "writes".into(), lease: HOUR, capacity: 8 }).await.unwrap();
    let prompt = accepted(backend, "messages").await;
    let owner = owner(backend, node, "messages").await;
    begun(backend, &owner, prompt).await;
    let mut turn = reading.operator().turn(prompt);
    let mut times = Vec::new();
    for first_seq in 1..=MESSAGES as u64 {
        let message = json!({"type": "system", "subtype": "status", "status": null, "session_id": "s", "uuid": Uuid::new_v4()});
        let begin = Instant::now();
        let append = Append {
            owner: owner.clone(),
            prompt,
            first_seq,
            messages: vec![message.to_string()],
            bound: 1 << 30,
        };
        assert!(matches!(backend.append(append).await.unwrap(), Owned::Done(_)));
        match turn.next().await.unwrap().unwrap() {
            TurnItem::Message { seq, .. } => assert_eq!(seq, first_seq),
            other => panic!("{other:?}"),
        }
        times.push(begin.elapsed());
    }
    let ((middle, slow), (raw_middle, raw_slow)) = (percentiles(times), percentiles(raw));
    row("message at another node, p50", middle, "insert, notify, listen", raw_middle, "ms");
    row("message at another node, p99", slow, "insert, notify, listen", raw_slow, "ms");
    reading.drain(Duration::ZERO).await;
}

fn builder(backend: impl Backend, folder: &std::path::Path) -> FleetBuilder {
    // A CLI plays as long as it is kept.
    let clis = Mutex::new(Vec::new());
    Fleet::builder().backend(backend).host("here").folder(folder).profile("default", move |_| {
        let cli = ScriptedCli::play(Script::new().otherwise(ModelTurn::new().text("done")));
        let transport = cli.transport();
        clis.lock().unwrap().push(cli);
        Session::builder().transport(transport)
    })
}

/// The median time in which a session that sleeps is up, in milliseconds.
async fn activation(fleet: &Fleet) -> f64 {
    let session = fleet.tenant("default").unwrap().session("sleeps").unwrap();
    session.prompt("hello").await.unwrap().outcome().await.unwrap();
    let mut times = Vec::new();
    for _ in 0..ACTIVATIONS {
        session.passivate().await.unwrap();
        let begin = Instant::now();
        session.warm().await.unwrap();
        times.push(begin.elapsed());
    }
    percentiles(times).0
}

async fn activations(address: &str) {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let memory = builder(MemoryBackend::new(), folders[0].path()).start().await.unwrap();
    let postgres = builder(connect(address, "bench_activations").await, folders[1].path())
        .without_watchdog()
        .start()
        .await
        .unwrap();
    let (raw, figure) = (activation(&memory).await, activation(&postgres).await);
    row("activation of a session that sleeps", figure, "the same in memory", raw, "ms");
    memory.drain(Duration::ZERO).await;
    postgres.drain(Duration::ZERO).await;
}
