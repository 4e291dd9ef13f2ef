//! The views for people.

use std::time::Duration;

use greenroom_fleet::backend::Requests;
use greenroom_fleet::{
    Accept, Accepted, AttemptId, Begin, Budget, Claim, Claimed, Finish, Marked, Owned, Ownership,
    PromptOutcome, Quota, Withdrawn,
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
    let begun = backend.begin(Begin { owner: owner.clone(), prompt, attempt, quota }).await.unwrap();
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

    let outcome =
        PromptOutcome::Completed { result: json!({ "total_cost_usd": 0.75 }), transcript_lost: false };
    let finish = Finish { owner, prompt, attempt, outcome, cost: Some(750_000), quarantine: None };
    assert_eq!(backend.finish(finish).await.unwrap(), Owned::Done(true));
    assert_eq!(backend.withdraw(waits.prompt).await.unwrap(), Withdrawn::Unsent);
    let outcomes = "SELECT tenant, outcome, why, cost_usd::text, \
                    (ended_at > now() - interval '1 h')::text FROM outcomes ORDER BY 1";
    assert_eq!(
        rows(&mut people, outcomes, 5).await,
        ["acme|completed||0.75|true", "evil|unsent|withdrawn||true"]
    );
    assert_eq!(rows(&mut people, spend, 4).await, ["acme|true|0.75|0.00"]);
}
