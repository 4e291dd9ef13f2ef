//! A node that begins as many turns as it can, and requests that have much to do.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use greenroom::Session;
use greenroom_fleet::backend::{Backend, PostgresBackend, PostgresOptions, Requests};
use greenroom_fleet::{
    ActivationContext, AttemptId, Begin, Finish, Fleet, FleetPrompt, Join, NodeId, Owned, Page,
    PromptOutcome, Timestamp, Withdrawn,
};
use greenroom_testkit::{ModelTurn, Script, ScriptedCli};
use serde_json::json;
use tokio::task::JoinSet;

use crate::nodes::{accepted, owner};
use crate::wait::in_time;
use crate::{connect, schema, server};

/// A renewal is due after a sixth of it, and the node gives up after four fifths: a busy machine has seconds between them.
const LEASE: Duration = Duration::from_secs(12);

const NAMES: usize = 32;

/// The load goes on for as many renewals and turns, however long they take.
const RENEWALS: u64 = 6;
const TURNS: u64 = 200;

/// A lock that turns take on the row of the node would delay its renewals. The node would fence itself, which ends the load with an
/// error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_under_load_renews_its_lease_in_time() {
    let Some(address) = server::address() else { return };
    let (schema, folder) = (schema(), tempfile::tempdir().unwrap());
    let clis = Mutex::new(Vec::new());
    let profile = move |_: &ActivationContext| {
        let cli = ScriptedCli::play(Script::new().otherwise(ModelTurn::new().text("done")));
        let transport = cli.transport();
        clis.lock().unwrap().push(cli);
        Session::builder().transport(transport)
    };
    let builder = Fleet::builder()
        .without_watchdog()
        .backend(connect(&address, &schema).await)
        .host("here")
        .folder(folder.path())
        .profile("default", profile)
        .configure(|limits| (limits.live, limits.lease) = (NAMES, LEASE));
    let fleet = builder.start().await.unwrap();
    let (ended, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut load = JoinSet::new();
    for name in 0..NAMES {
        let session = fleet.tenant("default").unwrap().session(format!("customer-{name}")).unwrap();
        let (ended, over) = (ended.clone(), over.clone());
        load.spawn(async move {
            while !over.load(Ordering::Relaxed) {
                let mut turn = session.prompt(FleetPrompt::new("go")).await.unwrap();
                turn.outcome().await.unwrap();
                ended.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    // The renewals, as another node sees them.
    let watching = connect(&address, &schema).await;
    let renewals = async || {
        let nodes = watching.nodes(None, Page::MOST).await.unwrap();
        assert_eq!(nodes.len(), 1, "the node lives");
        nodes[0].renewals
    };
    let before = renewals().await;
    in_time("renewals and turns", async {
        while renewals().await < before + RENEWALS || ended.load(Ordering::Relaxed) < TURNS {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    over.store(true, Ordering::Relaxed);
    in_time("the end of the load", load.join_all()).await;
    println!("{} turns in {RENEWALS} renewals", ended.load(Ordering::Relaxed));
    fleet.drain(Duration::from_secs(20)).await;
}

/// Begins of turns, five milliseconds apart: two hundred a second, or fewer on a slow machine.
const BEGINS: u32 = 2000;
const PACE: Duration = Duration::from_millis(5);

/// The node's requests without its sessions, which would take most of the time of a slow machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_renews_its_lease_in_time_under_two_hundred_begins_a_second() {
    let Some(address) = server::address() else { return };
    let mut options = PostgresOptions::new(&address);
    options.connect_timeout = crate::wait::SOON;
    options.schema = schema();
    let backend = PostgresBackend::connect(options).await.unwrap();
    let node = NodeId::new();
    backend.join(Join { node, host: "here".into(), lease: LEASE, capacity: 8 }).await.unwrap();
    let (next, begin) = (Arc::new(AtomicU32::new(0)), Instant::now());
    let mut load = JoinSet::new();
    for name in 0..NAMES {
        let (backend, next, name) = (backend.clone(), next.clone(), name.to_string());
        load.spawn(async move {
            let mut owned = None;
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= BEGINS {
                    return;
                }
                tokio::time::sleep_until((begin + PACE * number).into()).await;
                let (prompt, attempt) = (accepted(&backend, &name).await, AttemptId::new());
                let owner = match &owned {
                    Some(owner) => owner,
                    None => owned.insert(owner(&backend, node, &name).await),
                };
                let request = Begin {
                    owner: owner.clone(),
                    prompt,
                    attempt,
                    quota: greenroom_fleet::Quota::default(),
                    credential: None,
                };
                let begun = backend.begin(request).await.unwrap();
                assert!(matches!(begun, Owned::Done(Some(_))), "{begun:?}");
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
                assert!(backend.finish(finish).await.unwrap().done().is_some());
            }
        });
    }
    let (mut renewed, mut longest) = (begin, Duration::ZERO);
    while next.load(Ordering::Relaxed) < BEGINS {
        tokio::time::sleep(LEASE / 6).await;
        let answer = backend.renew(node, LEASE, false).await.unwrap();
        assert!(matches!(answer, Owned::Done(_)), "{answer:?}");
        longest = longest.max(renewed.elapsed());
        renewed = Instant::now();
    }
    load.join_all().await;
    println!("{BEGINS} begins in {:.2?}; renewed after {longest:.2?} at the latest", begin.elapsed());
    assert!(longest < LEASE * 4 / 5, "a renewal came {longest:?} after the one before");
    backend.close().await;
}

/// A request that removes more than fits into the statement timeout would fail again and again.
#[tokio::test(flavor = "multi_thread")]
async fn one_request_forgets_a_bounded_number_of_bytes() {
    let Some(address) = server::address() else { return };
    let schema = schema();
    let backend = connect(&address, &schema).await;
    let mut plain = server::raw(&address).await;
    server::run(&mut plain, &format!("SET search_path = {schema}")).await;
    let mut prompts = Vec::new();
    for name in ["a", "b", "c", "d"] {
        let prompt = accepted(&backend, name).await;
        assert_eq!(backend.withdraw(prompt).await.unwrap(), Withdrawn::Unsent);
        // Prompts are forgotten in the order of their ends.
        let ended = backend.now();
        in_time("the next millisecond", async { while backend.now() == ended {} }).await;
        prompts.push(prompt);
    }
    let long = |megabytes: u32| format!("convert_to(repeat('x', {megabytes} << 20), 'UTF8')");
    let messages = format!(
        "INSERT INTO rows SELECT '\\x07'::bytea || uuid_send('{}') || int8send(seq), {} FROM generate_series(1, 7) AS seq",
        prompts[0],
        long(3)
    );
    server::run(&mut plain, &messages).await;
    for prompt in &prompts[1..] {
        let content =
            format!("INSERT INTO rows VALUES ('\\x05'::bytea || uuid_send('{prompt}'), {})", long(5));
        server::run(&mut plain, &content).await;
    }
    let mut left: Vec<(i64, i64)> = Vec::new();
    while left.last() != Some(&(0, 0)) {
        let worked = backend.forget(Timestamp(u64::MAX), 100).await.unwrap();
        assert!(worked > 0, "{left:?}");
        let counts = "SELECT count(*) FILTER (WHERE get_byte(key, 0) = 7), count(*) FILTER (WHERE get_byte(key, 0) = 5) FROM rows";
        left.push(sqlx::query_as(counts).fetch_one(&mut plain).await.unwrap());
    }
    assert_eq!(
        left,
        [(4, 3), (1, 3), (0, 2), (0, 0)],
        "messages and contents of prompts, after each request"
    );
}
