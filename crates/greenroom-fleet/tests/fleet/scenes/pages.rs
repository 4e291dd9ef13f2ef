//! Pages of a service: conversations, sessions, what was used, and what happened.

use greenroom_fleet::{
    FeedCursor, FeedError, FeedEvent, FeedRetention, FleetError, Labels, PromptFilter, PromptQuery, Usage,
    UsageQuery,
};

use super::*;

#[tokio::test(start_paused = true)]
async fn a_conversation_is_shown_again_by_its_list_of_prompts_alone() {
    let world = World::new();
    let fleet = world.fleet(|limits| limits.live = 1).await;
    asks(&fleet, "a", FleetPrompt::new("one").label("ticket", "881")).await;
    let runs = send(&fleet, "a", "hold").await;
    world.clis.read(2).await;
    let waits = send(&fleet, "a", "two").await;
    // As another process would, which knows nothing of this one.
    let page = named(&fleet, "a").prompts(PromptQuery::new()).await.unwrap();
    let texts: Vec<_> = page.prompts.iter().filter_map(|entry| entry.text()).collect();
    assert_eq!(texts, ["two", "hold", "one"]);
    let answers: Vec<_> =
        page.prompts.iter().map(|entry| entry.outcome.as_ref().and_then(|outcome| outcome.text())).collect();
    assert_eq!(answers, [None, None, Some("re: one")]);
    let running = PromptQuery::new().only(PromptFilter::Running);
    let running = named(&fleet, "a").prompts(running).await.unwrap().prompts;
    assert_eq!((running.len(), running[0].record.id), (1, runs.prompt_id()));
    let labelled = named(&fleet, "a").prompts(PromptQuery::new().label("ticket", "881")).await.unwrap();
    assert_eq!(labelled.prompts.iter().filter_map(|entry| entry.text()).collect::<Vec<_>>(), ["one"]);
    assert!(named(&fleet, "a").interrupt().await.unwrap());
    assert_eq!(outcome(waits).await.text(), Some("re: two"));
    drop(runs);
    let many = (0..99).fold(FleetPrompt::new("no"), |prompt, at| prompt.label(at.to_string(), ""));
    let (why, _) = refused(&named(&fleet, "a"), many).await;
    assert!(matches!(&why, Refused::Invalid(why) if why.contains("99 labels")), "{why:?}");
}

#[tokio::test(start_paused = true)]
async fn a_tenants_pages_show_nothing_of_another_tenant() {
    let world = World::new();
    let fleet = start(world.builder().feed(FeedRetention::new())).await;
    for tenant in ["acme", "umbrella"] {
        let session = named_of(&fleet, tenant, "42");
        let prompt = FleetPrompt::new("cost 0.5").label("secret", tenant);
        outcome(session.prompt(prompt).await.unwrap()).await;
        session.set_labels(Labels::new().with("plan", tenant)).await.unwrap();
    }
    let umbrella = fleet.tenant("umbrella").unwrap();
    let foreign = named_of(&fleet, "acme", "42").name().clone();
    for query in [
        NameQuery::new(),
        NameQuery::new().tenant(foreign.tenant().clone()),
        NameQuery::new().after(foreign.clone()),
    ] {
        let names = umbrella.names(query).await.unwrap().names;
        assert!(names.iter().all(|name| name.name.tenant() == umbrella.id()), "{names:?}");
    }
    assert_eq!(umbrella.names(NameQuery::new().label("plan", "acme")).await.unwrap().names, []);
    let own = umbrella.session("42").unwrap();
    assert_eq!(own.prompts(PromptQuery::new()).await.unwrap().prompts.len(), 1);
    assert_eq!(own.prompts(PromptQuery::new().label("secret", "acme")).await.unwrap().prompts, []);
    let used: Usage = umbrella.usage(UsageQuery::new()).await.unwrap().iter().map(|day| day.usage).sum();
    assert_eq!((used.turns, used.cost), (1, 500_000));
    let mut feed = umbrella.feed(FeedCursor::default());
    for _ in 0..3 {
        let entry = in_time("the feed", feed.next()).await.unwrap().unwrap();
        assert_eq!(entry.name.tenant(), umbrella.id());
    }
    drain(&fleet, secs(20)).await;
    assert!(in_time("the end of the feed", feed.next()).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn usage_is_told_by_prompt_session_tenant_and_node() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    for (tenant, name, prompt) in [("t", "a", "cost 0.5"), ("t", "a", "cost 0.25"), ("t", "b", "cost 1.5")] {
        outcome(named_of(&fleet, tenant, name).prompt(prompt).await.unwrap()).await;
    }
    let dollars = |usage: &[greenroom_fleet::UsageEntry]| {
        usage.iter().map(|entry| entry.usage).sum::<Usage>().cost_usd()
    };
    let tenant = fleet.tenant("t").unwrap();
    assert_eq!(dollars(&tenant.usage(UsageQuery::new()).await.unwrap()), 2.25);
    assert_eq!(dollars(&tenant.usage(UsageQuery::new().by_hour()).await.unwrap()), 2.25);
    assert_eq!(dollars(&named_of(&fleet, "t", "a").usage(UsageQuery::new()).await.unwrap()), 0.75);
    assert_eq!(dollars(&fleet.operator().usage(UsageQuery::new()).await.unwrap()), 2.25);
    let old = UsageQuery::since(std::time::UNIX_EPOCH).until(std::time::UNIX_EPOCH + secs(9));
    assert_eq!(tenant.usage(old).await.unwrap(), []);
    let page = named_of(&fleet, "t", "a").prompts(PromptQuery::new()).await.unwrap();
    let costs: Vec<_> = page.prompts.iter().map(|entry| entry.record.usage.cost_usd()).collect();
    assert_eq!(costs, [0.25, 0.5]);
    let snapshot = fleet.operator().snapshot(SnapshotQuery::active()).await.unwrap();
    assert_eq!((snapshot.usage.turns, snapshot.usage.cost_usd()), (3, 2.25));
    // A turn whose CLI was killed.
    let turn = named_of(&fleet, "t", "a").prompt("hold").await.unwrap();
    world.clis.read(4).await;
    drain(&fleet, secs(0)).await;
    let prompt = turn.prompt_id();
    let fleet = world.killed().await.fleet(|_| {}).await;
    outcome(fleet.operator().turn(prompt)).await;
    let used: Usage =
        fleet.tenant("t").unwrap().usage(UsageQuery::new()).await.unwrap().iter().map(|day| day.usage).sum();
    assert_eq!((used.turns, used.unmetered, used.cost), (4, 1, 2_250_000));
}

#[tokio::test(start_paused = true)]
async fn labels_belong_to_a_session_from_its_first_prompt_on() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let session = named(&fleet, "a");
    let unknown = session.set_labels(Labels::new()).await;
    assert!(matches!(unknown, Err(FleetError::NotFound { .. })), "{unknown:?}");
    asks(&fleet, "a", "one").await;
    let labels = Labels::new().with("plan", "pro");
    session.set_labels(labels.clone()).await.unwrap();
    asks(&fleet, "a", "two").await;
    assert_eq!(session.labels().await.unwrap(), labels);
    let deleted = session.delete().await;
    assert!(deleted.is_ok(), "{deleted:?}");
    let found = fleet.operator().names(NameQuery::new().label("plan", "pro")).await.unwrap();
    assert_eq!(found.names, []);
}

#[tokio::test(start_paused = true)]
async fn a_feed_goes_on_after_a_restart_and_says_what_is_missing() {
    let world = World::new();
    let fleet = start(world.builder().feed(FeedRetention::new().time(secs(3600)))).await;
    asks(&fleet, "a", "one").await;
    let mut feed = fleet.operator().feed(FeedCursor::default());
    let mut kept = FeedCursor::default();
    let mut seen = Vec::new();
    while seen.len() < 2 {
        let entry = in_time("the feed", feed.next()).await.unwrap().unwrap();
        seen.push(entry.number);
        kept = entry.cursor;
    }
    drain(&fleet, secs(20)).await;
    // A later start of the service, which need not say so again.
    let fleet = world.fleet(|_| {}).await;
    asks(&fleet, "a", "two").await;
    let mut feed = fleet.operator().feed(kept.clone());
    loop {
        let entry = in_time("the feed", feed.next()).await.unwrap().unwrap();
        seen.push(entry.number);
        if seen.len() == 6 {
            assert!(matches!(&entry.event, FeedEvent::Ended { outcome, .. } if outcome == "completed"));
            break;
        }
    }
    assert_eq!(seen, [1, 2, 3, 4, 5, 6]);
    tokio::time::sleep(secs(3 * 3600)).await;
    let mut feed = fleet.operator().feed(kept);
    let gap = in_time("the feed", feed.next()).await;
    assert!(matches!(gap, Err(FeedError::Gap)), "{gap:?}");
    let later = send(&fleet, "a", "three").await;
    let entry = in_time("the feed", feed.next()).await.unwrap().unwrap();
    assert_eq!((entry.number, entry.event), (7, FeedEvent::Accepted { prompt: later.prompt_id() }));
    outcome(later).await;
}
