//! Replies, connections and hints that are lost between a node and the server.

use std::time::Duration;

use greenroom_fleet::backend::{PostgresBackend, Requests};
use greenroom_fleet::{
    Accepted, Answered, Append, Ask, AttemptId, BackendError, BackendErrorKind, Begin, Change, Claim,
    Claimed, Finish, InterruptedBy, Name, Owned, Ownership, PromptOutcome, QuestionId, QuestionsOf, Tenant,
    Withdrawn,
};
use serde_json::json;

use crate::nodes::{accept, accepted, joined, owner};
use crate::proxy::Proxy;
use crate::wait::in_time;
use crate::{connect, connect_hastily, schema, server};

const HOUR: Duration = Duration::from_secs(3600);

/// The answer to a repeated request whose first reply was lost after the server had committed.
async fn after_a_lost_reply<T>(
    proxy: &Proxy,
    text: impl ToString,
    mut request: impl AsyncFnMut() -> Result<T, BackendError>,
) -> T {
    let lost = proxy.lost();
    proxy.lose_reply_to(text);
    let Err(error) = request().await else { panic!("the reply was not lost") };
    assert_eq!(error.kind(), BackendErrorKind::Unavailable, "{error}");
    assert_eq!(proxy.lost(), lost + 1, "the server has not answered: {error}");
    request().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_reply_is_lost_is_carried_out_once() {
    let Some(address) = server::address() else { return };
    let schema = schema();
    let proxy = Proxy::to(&address).await;
    let (backend, direct) =
        (connect_hastily(proxy.address(), &schema).await, connect(&address, &schema).await);
    let node = joined(&direct).await;

    let accept = accept("a");
    let (prompt, name) = (accept.prompt, accept.name.clone());
    let answer = after_a_lost_reply(&proxy, prompt, async || backend.accept(accept.clone()).await).await;
    assert!(matches!(answer, Accepted::New(ref kept) if kept.id == prompt), "{answer:?}");
    assert_eq!(direct.queued().await.unwrap(), 1);

    let claim = Claim {
        name: name.clone(),
        node,
        attempt: AttemptId::new(),
        losses: 3,
        quota: greenroom_fleet::Quota::default(),
    };
    let won = after_a_lost_reply(&proxy, claim.attempt, async || backend.claim(claim.clone()).await).await;
    let Claimed::Won(record) = won else { panic!("{won:?}") };
    let owner = Ownership { name: name.clone(), node, term: record.term };
    assert_eq!(direct.name_record(name.clone()).await.unwrap().unwrap().term, owner.term, "claimed twice");

    let attempt = AttemptId::new();
    let begin = Begin {
        owner: owner.clone(),
        prompt,
        attempt,
        quota: greenroom_fleet::Quota::default(),
        credential: None,
    };
    let begun = after_a_lost_reply(&proxy, attempt, async || backend.begin(begin.clone()).await).await;
    assert!(matches!(begun, Owned::Done(Some(_))), "{begun:?}");
    assert_eq!(direct.prompt_record(prompt).await.unwrap().unwrap().begins, 1);

    let append = Append {
        owner: owner.clone(),
        prompt,
        first_seq: 1,
        messages: vec!["\"a message\"".into()],
        bound: 1000,
    };
    let appended =
        after_a_lost_reply(&proxy, "a message", async || backend.append(append.clone()).await).await;
    assert!(matches!(appended, Owned::Done(Some(1))), "{appended:?}");
    assert_eq!(direct.messages(prompt, 0, 10).await.unwrap().len(), 1);

    let question = QuestionId::new();
    let ask = Ask { owner: owner.clone(), question, prompt, wait: HOUR, call: None, body: json!("may I?") };
    let asked = after_a_lost_reply(&proxy, question, async || backend.ask(ask.clone()).await).await;
    assert!(matches!(asked, Owned::Done(Some(ref asked)) if asked.id == question), "{asked:?}");
    assert_eq!(direct.open_questions(QuestionsOf::All, 10).await.unwrap().len(), 1);

    let by = AttemptId::new();
    let answered =
        after_a_lost_reply(&proxy, by, async || backend.answer(question, by, json!("yes")).await).await;
    assert!(matches!(answered, Answered::Decided(_)), "{answered:?}");
    let other = direct.answer(question, AttemptId::new(), json!("no")).await.unwrap();
    assert!(matches!(other, Answered::TooLate(_)), "{other:?}");

    let outcome = PromptOutcome::Interrupted { by: InterruptedBy::User, result: None };
    let finish = Finish { owner, prompt, attempt, outcome, cost: Some(5), usage: None, quarantine: None };
    let finished = after_a_lost_reply(&proxy, attempt, async || backend.finish(finish.clone()).await).await;
    assert!(matches!(finished, Owned::Done(true)), "{finished:?}");
    assert_eq!(
        direct.tenant(Tenant::new("acme").unwrap()).await.unwrap().spent,
        5,
        "the cost was counted twice"
    );

    let second = accepted(&direct, "b").await;
    let withdrawn = after_a_lost_reply(&proxy, second, async || backend.withdraw(second).await).await;
    assert!(matches!(withdrawn, Withdrawn::Unsent), "{withdrawn:?}");
    assert_eq!(direct.queued().await.unwrap(), 0);
}

/// A server that is gone without a word. The connections that wait for it must not keep the node from a new one.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_renews_its_lease_after_connections_fell_silent() {
    let Some(address) = server::address() else { return };
    let proxy = Proxy::to(&address).await;
    let backend = connect_hastily(proxy.address(), &schema()).await;
    let node = joined(&backend).await;
    // Each pool has connections.
    backend.nodes(None, 10).await.unwrap();
    assert!(matches!(backend.renew(node, HOUR, false).await.unwrap(), Owned::Done(_)));
    accepted(&backend, "a").await;
    proxy.silence();
    in_time("a renewal", async { while backend.renew(node, HOUR, false).await.is_err() {} }).await;
    in_time("the nodes", async { while backend.nodes(None, 10).await.is_err() {} }).await;
    in_time("a request", async { while backend.queued().await.is_err() {} }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_that_connects_again_says_that_changes_were_missed() {
    let Some(address) = server::address() else { return };
    let schema = schema();
    let proxy = Proxy::to(&address).await;
    let (here, there) = (connect_hastily(proxy.address(), &schema).await, connect(&address, &schema).await);
    let mut changes = here.changes();
    until_heard(&there, &mut changes, "before").await;
    proxy.cut();
    let missed = async { while changes.recv().await.unwrap() != Change::Missed {} };
    in_time("the word that changes were missed", missed).await;
    // It listens already when it says so.
    accepted(&there, "after").await;
    let name = "acme/after".parse::<Name>().unwrap();
    let heard = async { while changes.recv().await.unwrap() != Change::Queued(name.clone()) {} };
    in_time("the change", heard).await;
}

/// A server that is gone without a word. The connection of the listener waits for it, and may keep nobody from a new one.
#[tokio::test(flavor = "multi_thread")]
async fn changes_are_told_and_heard_after_connections_fell_silent() {
    let Some(address) = server::address() else { return };
    let schema = schema();
    let proxy = Proxy::to(&address).await;
    let (here, there) = (connect_hastily(proxy.address(), &schema).await, connect(&address, &schema).await);
    let (mut heard_here, mut heard_there) = (here.changes(), there.changes());
    until_heard(&there, &mut heard_here, "here").await;
    until_heard(&here, &mut heard_there, "there").await;
    // Twice: each silence leaves a connection that waits.
    for _ in 0..2 {
        proxy.silence();
        let missed = async { while heard_here.recv().await.unwrap() != Change::Missed {} };
        in_time("another connection of the listener", missed).await;
        in_time("a request", async { while here.queued().await.is_err() {} }).await;
        until_heard(&there, &mut heard_here, "here again").await;
        until_heard(&here, &mut heard_there, "there again").await;
    }
}

async fn until_heard(
    there: &PostgresBackend,
    changes: &mut tokio::sync::broadcast::Receiver<Change>,
    name: &str,
) {
    let expected = Change::Queued(format!("acme/{}", name).parse::<Name>().unwrap());
    in_time("a hint", async {
        loop {
            accepted(there, name).await;
            // Hints may be lost while a listener connects, so there is another one.
            match tokio::time::timeout(Duration::from_secs(1), changes.recv()).await {
                Ok(Ok(change)) if change == expected => return,
                _ => {}
            }
        }
    })
    .await;
}

/// A request that waits for a name which something else has locked is given up by the server, and may be repeated.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_behind_a_held_lock_is_given_up_and_repeated() {
    let Some(address) = server::address() else { return };
    let schema = schema();
    let backend = connect_hastily(&address, &schema).await;
    let node = joined(&backend).await;
    let prompt = accepted(&backend, "a").await;
    let owner = owner(&backend, node, "a").await;
    let begin = Begin {
        owner,
        prompt,
        attempt: AttemptId::new(),
        quota: greenroom_fleet::Quota::default(),
        credential: None,
    };

    let mut other = server::raw(&address).await;
    server::run(&mut other, &format!("BEGIN; {}", server::lock_of_name(&schema, "a"))).await;
    let error = backend.begin(begin.clone()).await.unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Unavailable, "{error}");
    // The lease is no part of it.
    assert!(matches!(backend.renew(node, HOUR, false).await.unwrap(), Owned::Done(_)));
    server::run(&mut other, "ROLLBACK").await;
    let begun = backend.begin(begin).await.unwrap();
    assert!(matches!(begun, Owned::Done(Some(_))), "{begun:?}");
}

/// The commits of owners share the row of their node, and a renewal writes another one: they wait for no commit that is on its way.
#[tokio::test(flavor = "multi_thread")]
async fn turns_and_renewals_go_on_while_the_row_of_their_node_is_shared() {
    let Some(address) = server::address() else { return };
    let schema = schema();
    let backend = connect(&address, &schema).await;
    let node = joined(&backend).await;
    let prompt = accepted(&backend, "a").await;
    let mut other = server::raw(&address).await;
    let shared = format!("BEGIN; SELECT FROM {schema}.rows WHERE get_byte(key, 0) = 13 FOR SHARE");
    server::run(&mut other, &shared).await;

    let owner = owner(&backend, node, "a").await;
    let attempt = AttemptId::new();
    let begin = Begin {
        owner: owner.clone(),
        prompt,
        attempt,
        quota: greenroom_fleet::Quota::default(),
        credential: None,
    };
    assert!(matches!(backend.begin(begin).await.unwrap(), Owned::Done(Some(_))));
    assert!(matches!(backend.renew(node, HOUR, false).await.unwrap(), Owned::Done(_)));
    let append =
        Append { owner: owner.clone(), prompt, first_seq: 1, messages: vec!["1".into()], bound: 1000 };
    assert!(matches!(backend.append(append).await.unwrap(), Owned::Done(Some(1))));
    let outcome = PromptOutcome::Interrupted { by: InterruptedBy::User, result: None };
    let finish = Finish {
        owner: owner.clone(),
        prompt,
        attempt,
        outcome,
        cost: Some(0),
        usage: None,
        quarantine: None,
    };
    assert!(matches!(backend.finish(finish).await.unwrap(), Owned::Done(true)));
    assert!(matches!(backend.release(owner).await.unwrap(), Owned::Done(false)));
    assert!(matches!(backend.renew(node, HOUR, true).await.unwrap(), Owned::Done(_)), "it begins to drain");
    server::run(&mut other, "ROLLBACK").await;
}

/// A commit checks the row of its name under a lock: a name that is taken over at this moment has a turn of the old owner or none.
#[tokio::test(flavor = "multi_thread")]
async fn a_begin_waits_for_a_claim_and_is_then_refused() {
    let Some(address) = server::address() else { return };
    let schema = schema();
    let backend = connect(&address, &schema).await;
    let node = joined(&backend).await;
    let prompt = accepted(&backend, "a").await;
    let owner = owner(&backend, node, "a").await;
    // Another node claims the name: its request is not committed yet.
    let mut other = server::raw(&address).await;
    let (key, later) =
        (server::key_of_name("a"), r#"replace(convert_from(value, 'UTF8'), '"term":', '"term":1')"#);
    let claims =
        format!("BEGIN; UPDATE {schema}.rows SET value = convert_to({later}, 'UTF8') WHERE key = '{key}'");
    server::run(&mut other, &claims).await;
    let begin = Begin {
        owner,
        prompt,
        attempt: AttemptId::new(),
        quota: greenroom_fleet::Quota::default(),
        credential: None,
    };
    let mut beginning = tokio::task::JoinSet::new();
    let theirs = backend.clone();
    beginning.spawn(async move { theirs.begin(begin).await });
    server::until_a_request_waits_for_a_lock(&address).await;
    server::run(&mut other, "COMMIT").await;
    let begun = beginning.join_next().await.unwrap().unwrap().unwrap();
    assert!(matches!(begun, Owned::Fenced), "{begun:?}");
}

/// A commit that has waited for its name finds that the prompt is another one, and the request runs again.
#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_that_expires_while_its_begin_waits_is_not_sent() {
    let Some(address) = server::address() else { return };
    let schema = schema();
    let backend = connect(&address, &schema).await;
    let node = joined(&backend).await;
    let prompt = accepted(&backend, "a").await;
    let owner = owner(&backend, node, "a").await;
    let mut other = server::raw(&address).await;
    server::run(&mut other, &format!("BEGIN; {}", server::lock_of_name(&schema, "a"))).await;
    let begin = Begin {
        owner,
        prompt,
        attempt: AttemptId::new(),
        quota: greenroom_fleet::Quota::default(),
        credential: None,
    };
    let (theirs, mut beginning) = (backend.clone(), tokio::task::JoinSet::new());
    beginning.spawn(async move { theirs.begin(begin).await });
    server::until_a_request_waits_for_a_lock(&address).await;
    // The prompt expires now, when begin waits.
    let past = r#"regexp_replace(convert_from(value, 'UTF8'), '"expires_at":\d+', '"expires_at":1')"#;
    let expires = format!(
        "UPDATE {schema}.rows SET value = convert_to({past}, 'UTF8') WHERE key = '\\x04'::bytea || uuid_send('{prompt}'); COMMIT"
    );
    server::run(&mut other, &expires).await;
    let begun = beginning.join_next().await.unwrap().unwrap().unwrap();
    assert!(matches!(begun, Owned::Done(None)), "{begun:?}");
}
