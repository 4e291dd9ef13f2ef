//! Several nodes on one database, and a server that is killed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use greenroom_fleet::backend::{PostgresBackend, PostgresOptions, Requests};
use greenroom_fleet::{
    Accept, Accepted, AttemptId, BackendErrorKind, Begin, Change, Claim, Claimed, FleetEvent, Join, Name,
    NameQuery, NodeId, Owned, Ownership, PromptContent, PromptId, QueueBounds, Tenant, Withdrawn,
};
use serde_json::json;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::server::{self, Server};
use crate::wait::{SOON, in_time};
use crate::{connect, schema};

pub(crate) const HOUR: Duration = Duration::from_secs(3600);

pub(crate) fn accept(to: &str) -> Accept {
    Accept {
        prompt: PromptId::new(),
        name: format!("acme/{}", to).parse::<Name>().unwrap(),
        profile: "support".into(),
        conversation: Uuid::new_v4(),
        host: None,
        key: None,
        labels: Default::default(),
        content: PromptContent { prompt: json!("hello"), continuation: None },
        continuations: 0,
        not_before: None,
        wait: HOUR,
        bounds: QueueBounds { name: 1_000_000, tenant: 1_000_000, fleet: 1_000_000, ..Default::default() },
        quota: greenroom_fleet::Quota::default(),
    }
}

pub(crate) async fn accepted(backend: &PostgresBackend, to: &str) -> PromptId {
    match backend.accept(accept(to)).await.unwrap() {
        Accepted::New(prompt) => prompt.id,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn joined(backend: &PostgresBackend) -> NodeId {
    let node = NodeId::new();
    backend.join(Join { node, host: "here".into(), lease: HOUR, capacity: 8 }).await.unwrap();
    node
}

pub(crate) async fn owner(backend: &PostgresBackend, node: NodeId, name: &str) -> Ownership {
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

#[tokio::test(flavor = "multi_thread")]
async fn eight_nodes_that_race_for_names_win_each_name_once() {
    let Some(address) = server::address() else { return };
    let schema = schema();
    let first = connect(&address, &schema).await;
    for name in 0..200 {
        accepted(&first, &name.to_string()).await;
    }
    let mut racing = JoinSet::new();
    for _ in 0..8 {
        let backend = connect(&address, &schema).await;
        racing.spawn(async move {
            let node = joined(&backend).await;
            let mut won = Vec::new();
            for name in 0..200 {
                let name = format!("acme/{}", name).parse::<Name>().unwrap();
                let claim = Claim {
                    name: name.clone(),
                    node,
                    attempt: AttemptId::new(),
                    losses: 3,
                    quota: greenroom_fleet::Quota::default(),
                };
                match backend.claim(claim).await.unwrap() {
                    Claimed::Won(_) => won.push(name),
                    Claimed::Elsewhere(_) => {}
                    other => panic!("{other:?}"),
                }
            }
            won
        });
    }
    let won = racing.join_all().await.concat();
    let names: BTreeSet<_> = won.iter().collect();
    assert_eq!((won.len(), names.len()), (200, 200));
}

/// The withdraw reads the prompt after it has locked the name: otherwise it would end a prompt that has begun since.
#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_is_withdrawn_or_begins_and_never_both() {
    let Some(address) = server::address() else { return };
    let backend = connect(&address, &schema()).await;
    let node = joined(&backend).await;
    let mut begun = 0;
    for round in 0..150 {
        let name = format!("name {round}");
        let prompt = accepted(&backend, &name).await;
        let owner = owner(&backend, node, &name).await;
        let begin = Begin {
            owner,
            prompt,
            attempt: AttemptId::new(),
            quota: greenroom_fleet::Quota::default(),
            credential: None,
        };
        let (other, mut withdrawing) = (backend.clone(), JoinSet::new());
        withdrawing.spawn(async move { other.withdraw(prompt).await.unwrap() });
        let Owned::Done(answer) = backend.begin(begin).await.unwrap() else { panic!("fenced") };
        let withdrawn = withdrawing.join_next().await.unwrap().unwrap();
        match (&answer, &withdrawn) {
            (Some(_), Withdrawn::TooLate(_)) => begun += 1,
            (None, Withdrawn::Unsent) => {}
            other => panic!("{other:?}"),
        }
    }
    println!("{begun} of 150 prompts began");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_at_once_keep_the_counts_and_meet_no_deadlock() {
    let Some(address) = server::address() else { return };
    let (address, schema) = (address, schema());
    let mut working = JoinSet::new();
    for worker in 0..8 {
        let backend = connect(&address, &schema).await;
        working.spawn(async move {
            for round in 0..60 {
                // Names of their own, and names that all workers use.
                let name = if round % 2 == 0 { format!("{}", round % 7) } else { format!("of {worker}") };
                let wait = if round % 3 == 0 { Duration::ZERO } else { HOUR };
                let accepted = backend.accept(Accept { wait, ..accept(&name) }).await.unwrap();
                assert!(matches!(accepted, Accepted::New(_)), "{accepted:?}");
                if round % 5 == 0 {
                    backend.expire_prompts(100).await.unwrap();
                }
            }
        });
    }
    working.join_all().await;
    let backend = connect(&address, &schema).await;
    while backend.expire_prompts(1000).await.unwrap() > 0 {}
    let names = backend.names(NameQuery::new()).await.unwrap().names;
    let queued: u32 = names.iter().map(|name| name.queued).sum();
    assert_eq!(queued, 8 * 40);
    assert_eq!(backend.queued().await.unwrap(), queued);
    assert_eq!(backend.tenant(Tenant::new("acme").unwrap()).await.unwrap().queued, queued);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_has_died_and_owns_nothing_leaves_no_rows() {
    let Some(address) = server::address() else { return };
    let schema = schema();
    let backend = connect(&address, &schema).await;
    let node = joined(&backend).await;
    for name in ["a", "b", "c"] {
        accepted(&backend, name).await;
        owner(&backend, node, name).await;
    }
    backend.leave(node).await.unwrap();
    assert_eq!(backend.nodes(None, 10).await.unwrap()[0].owns, 3);
    assert_eq!(backend.recover(10, 3).await.unwrap().len(), 3);
    let mut plain = server::raw(&address).await;
    let left = format!(
        "SELECT (SELECT count(*) FROM {schema}.rows WHERE get_byte(key, 0) IN (13, 14, 26)) \
         + (SELECT count(*) FROM {schema}.counters WHERE get_byte(key, 0) = 27)"
    );
    assert_eq!(sqlx::query_scalar::<_, i64>(&left).fetch_one(&mut plain).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_start_at_once_make_one_schema() {
    let Some(address) = server::address() else { return };
    let schema = schema();
    let mut starting = JoinSet::new();
    for _ in 0..8 {
        let (address, schema) = (address.clone(), schema.clone());
        starting.spawn(async move { connect(&address, &schema).await });
    }
    let backends = starting.join_all().await;
    let prompt = accepted(&backends[0], "a").await;
    for backend in &backends {
        assert!(backend.prompt_record(prompt).await.unwrap().is_some());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_reach_the_other_nodes_and_transitions_stay() {
    let Some(address) = server::address() else { return };
    let schema = schema();
    let (here, there) = (connect(&address, &schema).await, connect(&address, &schema).await);
    let (mut hints, mut transitions) = (there.changes(), there.transitions());
    let heard = async {
        loop {
            // Hints may be lost while a listener connects, so there is another one.
            accepted(&here, "a\0b").await;
            if let Ok(change) = tokio::time::timeout(Duration::from_secs(1), hints.recv()).await {
                return change.unwrap();
            }
        }
    };
    let change = in_time("the change", heard).await;
    assert_eq!(change, Change::Queued("acme/a\0b".parse::<Name>().unwrap()));
    assert!(transitions.try_recv().is_err(), "transitions are told where they are made");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_future_is_dropped_is_carried_out_and_told() {
    let Some(address) = server::address() else { return };
    let schema = schema();
    let backend = connect(&address, &schema).await;
    accepted(&backend, "a").await;
    let mut transitions = backend.transitions();
    let accept = accept("a");
    let prompt = accept.prompt;
    let mut other = server::raw(&address).await;
    server::run(&mut other, &format!("BEGIN; {}", server::lock_of_name(&schema, "a"))).await;
    let (theirs, mut accepting) = (backend.clone(), JoinSet::new());
    accepting.spawn(async move { theirs.accept(accept).await });
    server::until_a_request_waits_for_a_lock(&address).await;
    accepting.shutdown().await;
    server::run(&mut other, "ROLLBACK").await;
    let told = in_time("the transition", transitions.recv()).await.unwrap();
    assert!(matches!(told, FleetEvent::Accepted { prompt: told, .. } if told == prompt), "{told:?}");
    assert!(backend.prompt_record(prompt).await.unwrap().is_some());
}

// Guards: accepted-is-kept
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_loses_no_prompt_that_was_accepted() {
    let Some(server) = Server::of_its_own() else { return };
    let backend = connect(&server.address(), "fleet").await;
    let is_back = Arc::new(AtomicBool::new(false));
    let mut accepting = JoinSet::new();
    for worker in 0..4 {
        let (backend, is_back) = (backend.clone(), is_back.clone());
        accepting.spawn(async move {
            let (mut kept, mut after) = (Vec::new(), 0);
            while after < 10 {
                let accept = accept(&format!("{worker} {}", kept.len() % 50));
                match backend.accept(accept).await {
                    Ok(Accepted::New(prompt)) => {
                        kept.push(prompt.id);
                        after += usize::from(is_back.load(Ordering::SeqCst));
                    }
                    Ok(other) => panic!("{other:?}"),
                    Err(error) => {
                        assert_eq!(error.kind(), BackendErrorKind::Unavailable, "{error}");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                }
            }
            kept
        });
    }
    in_time("prompts", async { while backend.queued().await.unwrap() < 200 {} }).await;
    let server = tokio::task::spawn_blocking(move || {
        server.kill_and_start();
        server
    })
    .await
    .unwrap();
    is_back.store(true, Ordering::SeqCst);
    let done = in_time("the prompts after the kill", accepting.join_all()).await;
    for prompt in done.into_iter().flatten() {
        assert!(backend.prompt_record(prompt).await.unwrap().is_some(), "{prompt} is lost");
    }
    drop(server);
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_and_schemas_that_cannot_be_used_are_refused() {
    let refused = async |options| PostgresBackend::connect(options).await.unwrap_err();
    let error = refused(PostgresOptions::new("no address")).await;
    assert_eq!(error.kind(), BackendErrorKind::Invalid, "{error}");
    for schema in ["", "Fleet", "1", "a-b", "a;b", "pg_a", &"x".repeat(41)] {
        let mut options = PostgresOptions::new("postgres://127.0.0.1:1/x");
        options.schema = schema.to_owned();
        let error = refused(options).await;
        assert!(error.to_string().contains("is no schema for a fleet"), "{error}");
    }
    let mut options = PostgresOptions::new("postgres://127.0.0.1:1/x");
    options.connect_timeout = Duration::from_secs(1);
    let error = refused(options).await;
    assert_eq!(error.kind(), BackendErrorKind::Unavailable, "{error}");
}

/// A node of this version takes part in a later schema that allows it, and in no other.
#[tokio::test(flavor = "multi_thread")]
async fn a_schema_that_needs_a_later_version_is_refused() {
    let Some(address) = server::address() else { return };
    let schema = schema();
    let backend = connect(&address, &schema).await;
    let mut other = server::raw(&address).await;
    server::run(&mut other, &format!("INSERT INTO {schema}.migrations VALUES (7, 1)")).await;
    let prompt = accepted(&connect(&address, &schema).await, "a").await;
    assert!(backend.prompt_record(prompt).await.unwrap().is_some());

    server::run(&mut other, &format!("INSERT INTO {schema}.migrations VALUES (8, 8)")).await;
    let mut options = PostgresOptions::new(&address);
    options.connect_timeout = crate::wait::SOON;
    options.schema = schema;
    let error = PostgresBackend::connect(options).await.unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Version, "{error}");
    assert!(error.to_string().contains("version 8"), "{error}");
}

/// A schema of which only the list of versions is there, as an earlier version leaves it, is brought forward by one of many nodes.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_start_at_once_bring_an_earlier_schema_forward() {
    let Some(address) = server::address() else { return };
    let schema = schema();
    let mut other = server::raw(&address).await;
    let earlier = format!(
        "CREATE SCHEMA {schema}; CREATE TABLE {schema}.migrations (version integer PRIMARY KEY, min_version integer NOT NULL)"
    );
    server::run(&mut other, &earlier).await;
    let mut starting = JoinSet::new();
    for _ in 0..8 {
        let (address, schema) = (address.clone(), schema.clone());
        starting.spawn(async move { connect(&address, &schema).await });
    }
    for backend in starting.join_all().await {
        accepted(&backend, "a").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_or_database_that_is_not_there_is_refused_at_once() {
    let Some(address) = server::address() else { return };
    let (server, database) = address.rsplit_once('/').unwrap();
    let user = address.replacen("postgres@", "nobody_at_all@", 1);
    for address in [format!("{server}/no_{database}"), user] {
        let mut options = PostgresOptions::new(address);
        // Longer than the test waits: a connection that is tried again would be tried until then.
        options.connect_timeout = SOON * 2;
        let error = in_time("the refusal", PostgresBackend::connect(options)).await.unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::Damaged, "{error}");
        assert!(error.to_string().contains("check the address"), "{error}");
    }
}

/// A schema that somebody has changed answers for good: repeating the request does not help.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_the_schema_cannot_carry_out_is_not_repeated() {
    let Some(address) = server::address() else { return };
    let schema = schema();
    let backend = connect(&address, &schema).await;
    let mut other = server::raw(&address).await;
    server::run(&mut other, &format!("ALTER TABLE {schema}.rows ADD CHECK (value = '')")).await;
    let error = backend.accept(accept("a")).await.unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Damaged, "{error}");
    assert_eq!(backend.queued().await.unwrap(), 0);
}
