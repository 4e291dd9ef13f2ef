//! Lists for services: names, prompts, labels and usage, of one tenant or of all.

use std::time::Duration;

use crate::backend::Requests;
use crate::id::{Name, PromptId, QuestionId, Timestamp};
use crate::query::lists::{NameFilter, NameQuery, PromptCursor, PromptFilter, PromptQuery};
use crate::record::label::Labels;
use crate::record::usage::{DAY, Usage};
use crate::record::{PromptContent, PromptOutcome};
use crate::registry::tests::rules::stage::{
    Checked, LEASE, Stage, accept, completed, finish, invalid, name, promises, same, tenant, unexpected,
};
use crate::request::{Accept, Ask, Finish, Owned, QuestionsOf, Withdrawn};

promises! {
    "prompts of a name are listed newest first, in pages, waiting, running and ended" => newest_first,
    "a page of prompts ends when its contents are long" => long_contents,
    "prompts are found by a label, until they are forgotten" => labelled_prompts,
    "names are found by a prefix, a label and a state" => names_by,
    "labels of a name are replaced, and go with the name" => labels_of_names,
    "labels that are too many or too long are refused" => bad_labels,
    "a tenant's lists have nothing of another tenant" => apart,
    "usage is counted by name and tenant, also of turns that were lost" => usage,
    "usage is removed by whole days" => old_usage,
}

/// The prompts of a query, page by page.
async fn prompts(stage: &Stage, of: &str, query: PromptQuery) -> Checked<Vec<PromptId>> {
    let (mut found, mut query) = (Vec::new(), query);
    loop {
        let page = stage.backend.prompts(name(of), query.clone()).await?;
        found.extend(page.prompts.iter().map(|entry| entry.record.id));
        let Some(next) = page.next else { return Ok(found) };
        // A page of a browser keeps the place as text.
        let next: PromptCursor = next.to_string().parse().unwrap();
        query = query.after(next);
    }
}

async fn newest_first(stage: Stage) -> Checked {
    let (owner, running, _) = stage.running(stage.node, "a").await?;
    let withdrawn = stage.prompt("a", "withdrawn").await?;
    same("the withdrawal", stage.backend.withdraw(withdrawn).await?, Withdrawn::Unsent)?;
    let waits = stage.prompt("a", "waits").await?;
    let later = stage.backend.now().after(LEASE);
    let reminder = stage.accepted(Accept { not_before: Some(later), ..accept("a", "later") }).await?;
    stage.prompt("b", "another name's").await?;
    let newest = vec![reminder, waits, withdrawn, running];
    for limit in [1, 2, 4, 100] {
        let query = PromptQuery::new().limit(limit);
        same("the prompts", prompts(&stage, "a", query.clone()).await?, newest.clone())?;
        let only = async |filter| prompts(&stage, "a", query.clone().only(filter)).await;
        same("those that wait", only(PromptFilter::Waiting).await?, vec![reminder, waits])?;
        same("those that run", only(PromptFilter::Running).await?, vec![running])?;
        same("those that have ended", only(PromptFilter::Ended).await?, vec![withdrawn])?;
    }
    let page = stage.backend.prompts(name("a"), PromptQuery::new()).await?;
    let texts: Vec<_> = page.prompts.iter().filter_map(|entry| entry.content.clone()).collect();
    let texts: Vec<_> = texts.iter().filter_map(|content| content.prompt.as_str()).collect();
    // The content of a prompt that was withdrawn is gone.
    same("what was asked", texts, vec!["later", "waits", "run"])?;
    let ended: Vec<_> = page.prompts.iter().map(|entry| entry.outcome.is_some()).collect();
    same("outcomes", ended, vec![false, false, true, false])?;
    same("whether it is released", stage.backend.release(owner).await?, Owned::Done(true))
}

async fn long_contents(stage: Stage) -> Checked {
    let long = || PromptContent { prompt: "x".repeat(700_000).into(), continuation: None };
    for _ in 0..3 {
        stage.accepted(Accept { content: long(), ..accept("a", "") }).await?;
    }
    let page = stage.backend.prompts(name("a"), PromptQuery::new()).await?;
    same("prompts of a page", (page.prompts.len(), page.next.is_some()), (2, true))?;
    same("prompts of all pages", prompts(&stage, "a", PromptQuery::new()).await?.len(), 3)
}

fn labelled(to: &str, labels: Labels) -> Accept {
    Accept { labels, key: Some(labels_key()), ..accept(to, "hello") }
}

fn labels_key() -> String {
    uuid::Uuid::new_v4().to_string()
}

async fn labelled_prompts(stage: Stage) -> Checked {
    let ticket = |number: &str| Labels::new().with("ticket", number).with("kind", "mail");
    let mut of_one = Vec::new();
    for number in ["1", "2", "1", "11"] {
        let prompt = stage.accepted(labelled("a", ticket(number))).await?;
        of_one.extend((number == "1").then_some(prompt));
    }
    stage.accepted(labelled("b", ticket("1"))).await?;
    of_one.reverse();
    let query = PromptQuery::new().label("ticket", "1");
    same("prompts with the label", prompts(&stage, "a", query.clone().limit(1)).await?, of_one.clone())?;
    let mail = PromptQuery::new().label("kind", "mail");
    same("prompts with the other label", prompts(&stage, "a", mail).await?.len(), 4)?;
    for prompt in &of_one {
        same("the withdrawal", stage.backend.withdraw(*prompt).await?, Withdrawn::Unsent)?;
    }
    same("ended prompts with the label", prompts(&stage, "a", query.clone()).await?, of_one)?;
    while stage.backend.forget(Timestamp(u64::MAX), 10).await? > 0 {}
    same("prompts after that", prompts(&stage, "a", query).await?, Vec::new())
}

/// The names of a query, page by page.
async fn names(stage: &Stage, query: NameQuery) -> Checked<Vec<String>> {
    let (mut found, mut query) = (Vec::new(), query);
    loop {
        let page = stage.backend.names(query.clone()).await?;
        found.extend(page.names.iter().map(|record| record.name.to_string()));
        let Some(next) = page.next else { return Ok(found) };
        query = query.after(next);
    }
}

async fn names_by(stage: Stage) -> Checked {
    for to in ["b-2", "a-1", "a-2", "a\0", "c"] {
        stage.prompt(to, "hello").await?;
    }
    stage.accepted(Accept { name: of("other", "a-1"), ..accept("a", "hello") }).await?;
    for (to, plan) in [("a-1", "pro"), ("b-2", "pro"), ("a-2", "free")] {
        let labels = Labels::new().with("plan", plan).with("region", "eu");
        same("whether it is known", stage.backend.set_labels(name(to), labels).await?, true)?;
    }
    let labels = Labels::new().with("plan", "pro");
    same("whether it is known", stage.backend.set_labels(of("other", "a-1"), labels).await?, true)?;
    let (_, running, _) = stage.running(stage.node, "runs").await?;
    let quarantined = stage.backend.quarantine(name("c"), "it loops".into()).await?;
    same("the answer", quarantined, crate::request::Marked::Done)?;
    for limit in [1, 2, 100] {
        let own = || NameQuery::new().tenant(tenant("acme")).limit(limit);
        let all = async |query| names(&stage, query).await;
        same("a prefix", all(own().prefix("a-")).await?, text(&["acme/a-1", "acme/a-2"]))?;
        same("a short prefix", all(own().prefix("a")).await?, text(&["acme/a\0", "acme/a-1", "acme/a-2"]))?;
        same("a label", all(own().label("plan", "pro")).await?, text(&["acme/a-1", "acme/b-2"]))?;
        let both = own().label("region", "eu").prefix("a");
        same("a label and a prefix", all(both).await?, text(&["acme/a-1", "acme/a-2"]))?;
        same("a state", all(own().only(NameFilter::Running)).await?, text(&["acme/runs"]))?;
        same("quarantined", all(own().only(NameFilter::Quarantined)).await?, text(&["acme/c"]))?;
        let of_all = all(NameQuery::new().label("plan", "pro").limit(limit)).await?;
        same("a label of all tenants", of_all, text(&["acme/a-1", "acme/b-2", "other/a-1"]))?;
        let of_all = all(NameQuery::new().prefix("a-1").limit(limit)).await?;
        same("a prefix of all tenants", of_all, text(&["acme/a-1", "other/a-1"]))?;
    }
    same("whether it has begun", stage.outcome(running).await?, None)
}

fn of(of: &str, session: &str) -> Name {
    Name::new(tenant(of), session).unwrap()
}

fn text(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

async fn labels_of_names(stage: Stage) -> Checked {
    let pro = || NameQuery::new().label("plan", "pro");
    same("a name without a row", stage.backend.set_labels(name("a"), Labels::new()).await?, false)?;
    stage.prompt("a", "hello").await?;
    for labels in [Labels::new().with("plan", "pro"), Labels::new().with("plan", "free")] {
        same("whether it is known", stage.backend.set_labels(name("a"), labels.clone()).await?, true)?;
        let record = stage.backend.name_record(name("a")).await?;
        same("its labels", record.map(|record| record.labels), Some(labels.clone()))?;
        let found = labels.get("plan") == Some("pro");
        same("whether it is found", names(&stage, pro()).await?.is_empty(), !found)?;
    }
    stage.backend.set_labels(name("a"), Labels::new().with("plan", "pro")).await?;
    stage.delete("a").await?;
    while !stage.deleted("a").await? {}
    stage.prompt("a", "again").await?;
    same("names after a deletion", names(&stage, pro()).await?, Vec::new())
}

async fn bad_labels(stage: Stage) -> Checked {
    stage.prompt("a", "hello").await?;
    let many = (0..=Labels::MOST).fold(Labels::new(), |labels, at| labels.with(at.to_string(), ""));
    let long = "x".repeat(Labels::VALUE_BYTES + 1);
    for labels in [many, Labels::new().with("", "1"), Labels::new().with("a", long)] {
        invalid("labels of a prompt", stage.backend.accept(labelled("a", labels.clone())).await)?;
        invalid("labels of a name", stage.backend.set_labels(name("a"), labels).await)?;
    }
    // The longest ones fit into a key, also if each byte is escaped.
    let name = of(&"t".repeat(128), &"\0".repeat(Name::MAX_BYTES));
    let labels = Labels::new().with("\0".repeat(Labels::KEY_BYTES), "\0".repeat(Labels::VALUE_BYTES));
    let accept = Accept { name: name.clone(), labels: labels.clone(), ..accept("a", "hello") };
    stage.accepted(accept).await?;
    same("whether it is known", stage.backend.set_labels(name, labels).await?, true)
}

async fn apart(stage: Stage) -> Checked {
    let (foreign, label) = (of("b", "x"), Labels::new().with("plan", "pro"));
    stage.accepted(Accept { name: foreign.clone(), labels: label.clone(), ..accept("a", "secret") }).await?;
    stage.backend.set_labels(foreign.clone(), label).await?;
    let (owner, prompt, _) = stage.running(stage.node, "a").await?;
    let ask = Ask { owner, question: QuestionId::new(), prompt, wait: LEASE, call: None, body: "?".into() };
    stage.backend.ask(ask).await?.done();
    for after in [None, Some(of("a", "a")), Some(foreign.clone()), Some(of("z", "z"))] {
        for query in [
            NameQuery::new(),
            NameQuery::new().label("plan", "pro"),
            NameQuery::new().only(NameFilter::Stuck),
        ] {
            let query = NameQuery { after: after.clone(), ..query.tenant(tenant("ab")) };
            same("names of a tenant without any", names(&stage, query).await?, Vec::new())?;
        }
    }
    let own = NameQuery { after: Some(of("a", "a")), ..NameQuery::new().tenant(tenant("b")) };
    same("names of the other tenant", names(&stage, own).await?, text(&["b/x"]))?;
    let open = async |of| {
        Ok::<_, crate::registry::tests::rules::stage::Broken>(
            stage.backend.open_questions(of, 10).await?.len(),
        )
    };
    same("questions of the tenant", open(QuestionsOf::Tenant(tenant("acme"))).await?, 1)?;
    same("questions of the session", open(QuestionsOf::Session(name("a"))).await?, 1)?;
    same("questions of the other tenant", open(QuestionsOf::Tenant(tenant("b"))).await?, 0)?;
    same("questions of its session", open(QuestionsOf::Session(foreign.clone())).await?, 0)?;
    let by_label = PromptQuery::new().label("plan", "pro");
    same("prompts of a session without any", prompts(&stage, "x", by_label).await?, Vec::new())
}

async fn usage(stage: Stage) -> Checked {
    let told = Usage { cost: 5, input: 10, output: 3, ..Usage::default() };
    let end = Timestamp(u64::MAX);
    let of_tenant = async |of: &str| {
        let hours = stage.backend.usage(Some(tenant(of)), Timestamp(0), end, None).await?;
        Ok::<_, crate::registry::tests::rules::stage::Broken>(
            hours.into_iter().map(|entry| entry.usage).sum::<Usage>(),
        )
    };
    same("usage at first", of_tenant("acme").await?, Usage::default())?;
    for usage in [Some(told), Some(told), None] {
        let (owner, prompt, attempt) = stage.running(stage.node, "a").await?;
        let finish = Finish { usage, ..finish(&owner, prompt, attempt, completed()) };
        let repeated = finish.clone();
        same("the answer", stage.backend.finish(finish).await?, Owned::Done(true))?;
        same("the answer again", stage.backend.finish(repeated).await?, Owned::Done(true))?;
        stage.backend.release(owner).await?.done();
        let mut used = usage.unwrap_or_default();
        (used.turns, used.unmetered) = (1, u64::from(usage.is_none()));
        let record = stage.backend.prompt_record(prompt).await?;
        same("usage of the prompt", record.map(|record| record.usage), Some(used))?;
    }
    // A lost owner: its run counts as one that told nothing, and the turn once.
    let node = stage.short_lived_node().await?;
    let accept =
        Accept { name: name("b"), ..crate::registry::tests::rules::stage::accept_with_continuation("b") };
    let prompt = stage.accepted(accept).await?;
    let owner = stage.own_by(node, "b").await?;
    stage.begin(&owner, prompt).await?;
    stage.kill(node).await?;
    let owner = stage.own("b").await?;
    let (attempt, _) = stage.begin(&owner, prompt).await?;
    let finish = Finish { usage: Some(told), ..finish(&owner, prompt, attempt, completed()) };
    same("the answer", stage.backend.finish(finish).await?, Owned::Done(true))?;
    let expected = Usage { turns: 4, unmetered: 2, cost: 15, input: 30, output: 9, ..Usage::default() };
    same("usage of the tenant", of_tenant("acme").await?, expected)?;
    same("usage of another one", of_tenant("acm").await?, Usage::default())?;
    let all = stage.backend.usage(None, Timestamp(0), end, None).await?;
    same("usage of all", all.into_iter().map(|entry| entry.usage).sum::<Usage>(), expected)?;
    let of_name = stage.backend.usage_of_name(name("b"), Timestamp(0), end).await?;
    let of_name: Usage = of_name.into_iter().map(|entry| entry.usage).sum();
    same("usage of the name", of_name, Usage { turns: 1, unmetered: 1, ..told })
}

async fn old_usage(stage: Stage) -> Checked {
    let (owner, prompt, attempt) = stage.running(stage.node, "a").await?;
    let outcome = PromptOutcome::Completed { result: serde_json::Value::Null, transcript_lost: false };
    let usage = Some(Usage { cost: 1, ..Usage::default() });
    let finish = Finish { usage, ..finish(&owner, prompt, attempt, outcome) };
    same("the answer", stage.backend.finish(finish).await?, Owned::Done(true))?;
    same("what is removed of today", stage.backend.forget_usage(Timestamp(u64::MAX)).await?, 0)?;
    let hours = stage.backend.usage(Some(tenant("acme")), Timestamp(0), Timestamp(u64::MAX), None).await?;
    let Some(hour) = hours.first().map(|entry| entry.start) else { return unexpected("the usage", hours) };
    let before = stage.backend.usage(Some(tenant("acme")), Timestamp(0), hour, None).await?;
    same("usage before that hour", before, Vec::new())?;
    let after = hour.after(Duration::from_millis(1));
    let after = stage.backend.usage(Some(tenant("acme")), after, Timestamp(u64::MAX), None).await?;
    same("usage after that hour", after, Vec::new())?;
    let tomorrow = hour.period(DAY).after(DAY);
    same(
        "usage of tomorrow",
        stage.backend.usage(None, tomorrow, Timestamp(u64::MAX), None).await?,
        Vec::new(),
    )
}
