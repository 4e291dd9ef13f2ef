//! The views for people.

use std::time::Duration;

use greenroom_fleet::backend::Requests;
use greenroom_fleet::{
    Accept, Accepted, AttemptId, Begin, Budget, Claim, Claimed, FeedRetention, Finish, Marked, Owned,
    Ownership, PromptOutcome, Quota, Usage, Withdrawn,
};
use serde_json::json;
use sqlx::Row;
use uuid::Uuid;

use crate::tenants::{accept, joined};
use crate::{connect, schema, server};

/// The columns of a query as texts, a line for each row.
async fn rows(connection: &mut sqlx::PgConnection, query: &str, columns: usize) -> Vec<String> {
    let rows = sqlx::query(query).fetch_all(connection).await.unwrap();
    let text = |row: &sqlx::postgres::PgRow, at| row.get::<Option<String>, _>(at).unwrap_or_default();
    rows.iter().map(|row| (0..columns).map(|at| text(row, at)).collect::<Vec<_>>().join("|")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn names_prompts_outcomes_and_money_are_shown_with_plain_columns() {
    let Some(address) = server::address() else { return };
    let schema = schema();
    let backend = connect(&address, &schema).await;
    backend.set_feed(Some(FeedRetention::new())).await.unwrap();
    let node = joined(&backend).await;
    let first = accept("a\0b", Uuid::new_v4());
    assert!(matches!(backend.accept(first.clone()).await.unwrap(), Accepted::New(_)));
    let waits = Accept { key: Some("a key".to_owned()), ..accept("evil/waits", Uuid::new_v4()) };
    assert!(matches!(backend.accept(waits.clone()).await.unwrap(), Accepted::New(_)));
    let quarantined = backend.quarantine(waits.name.clone(), "it loops".into()).await.unwrap();
    assert_eq!(quarantined, Marked::Done);
    let claim = Claim {
        name: first.name.clone(),
        node,
        attempt: AttemptId::new(),
        losses: 3,
        quota: greenroom_fleet::Quota::default(),
    };
    let Claimed::Won(record) = backend.claim(claim).await.unwrap() else { panic!("not won") };
    let owner = Ownership { name: first.name.clone(), node, term: record.term };
    let (prompt, attempt) = (first.prompt, AttemptId::new());
    let mut quota = Quota::default();
    quota.budget = Some(Budget { amount: 9_000_000, period: Duration::from_secs(3600), reserve: 2_500_000 });
    let begun = backend
        .begin(Begin { owner: owner.clone(), prompt, attempt, quota, credential: None })
        .await
        .unwrap();
    assert!(matches!(begun, Owned::Done(Some(_))), "{begun:?}");

    let mut people = server::raw(&address).await;
    server::run(&mut people, &format!("SET search_path = {schema}")).await;
    let names =
        "SELECT name, tenant, state, node::text, why, queued::text, running::text FROM names ORDER BY name";
    let expected = [
        format!("a\u{fffd}b|acme|owned|{}||0|{}", node.0, prompt.0),
        "waits|evil|quarantined||it loops|1|".to_owned(),
    ];
    assert_eq!(rows(&mut people, names, 7).await, expected);
    let prompts = "SELECT id::text, key, state, begins::text FROM prompts WHERE tenant = 'evil'";
    assert_eq!(rows(&mut people, prompts, 4).await, [format!("{}|a key|queued|0", waits.prompt.0)]);
    let spend = "SELECT tenant, (period > now() - interval '2 h' AND period <= now())::text, spent_usd::numeric(9, 2)::text, \
                 reserved_usd::numeric(9, 2)::text FROM spend";
    assert_eq!(rows(&mut people, spend, 4).await, ["acme|true|0.00|2.50"]);

    let outcome = PromptOutcome::Completed { result: json!({}), transcript_lost: false };
    let mut used = Usage::default();
    (used.cost, used.output) = (750_000, 7);
    let finish =
        Finish { owner, prompt, attempt, outcome, cost: Some(750_000), usage: Some(used), quarantine: None };
    assert_eq!(backend.finish(finish).await.unwrap(), Owned::Done(true));
    assert_eq!(backend.withdraw(waits.prompt).await.unwrap(), Withdrawn::Unsent);
    let outcomes = "SELECT tenant, outcome, why, cost_usd::numeric(9, 2)::text, \
                    (ended_at > now() - interval '1 h')::text FROM outcomes ORDER BY 1";
    assert_eq!(
        rows(&mut people, outcomes, 5).await,
        ["acme|completed||0.75|true", "evil|unsent|withdrawn||true"]
    );
    assert_eq!(rows(&mut people, spend, 4).await, ["acme|true|0.75|0.00"]);
    let usage = "SELECT tenant, (hour <= now() AND hour > now() - interval '2 h')::text, turns::text, \
                 cost_usd::numeric(9, 2)::text, output_tokens::text FROM usage";
    assert_eq!(rows(&mut people, usage, 5).await, ["acme|true|1|0.75|7"]);
    let feed = "SELECT tenant, name, number::text, event, prompt::text, what FROM feed ORDER BY 1, 2, number";
    let entry = |name: &str, number: u32, event: &str, prompt: String, what: &str| {
        format!("{name}|{number}|{event}|{prompt}|{what}")
    };
    let (a, b) = (prompt.0.to_string(), waits.prompt.0.to_string());
    let expected = [
        entry("acme|a\u{fffd}b", 1, "accepted", a.clone(), ""),
        entry("acme|a\u{fffd}b", 2, "begun", a.clone(), ""),
        entry("acme|a\u{fffd}b", 3, "ended", a, "completed"),
        entry("evil|waits", 1, "accepted", b.clone(), ""),
        entry("evil|waits", 2, "quarantined", String::new(), "it loops"),
        entry("evil|waits", 3, "ended", b, "unsent"),
    ];
    assert_eq!(rows(&mut people, feed, 6).await, expected);
}
