//! Random requests: after each one the indexes and the counters agree with the records, a request that is repeated changes
//! nothing, a refused one has written nothing, and no prompt is sent or ended twice.

mod commands;
mod lists;
mod messages;
mod quotas;
mod rules;
mod waiting;
mod world;

use serde_json::json;
use std::{collections::BTreeMap, time::Duration};
use uuid::Uuid;

use super::map::rows;
use super::*;
use crate::backend::{MemoryBackend, Requests};
use crate::clock::Clock;
use crate::id::{AttemptId, NodeId, QuestionId};
use crate::query::lists::NameQuery;
use crate::record::{PromptContent, QuarantineKind};
use crate::request::*;
use world::{WAIT, World};

/// The rule by which `intensity` failed activations in a period quarantine a name.
fn counted(period: Duration, intensity: u32) -> Option<Counted> {
    Some(Counted { kind: QuarantineKind::Activations, period, intensity })
}

fn accept(to: &str, key: impl ToString, wait: Duration) -> Accept {
    Accept {
        prompt: PromptId::new(),
        name: crate::stage::name(to),
        profile: String::new(),
        conversation: Uuid::new_v4(),
        host: None,
        key: Some(key.to_string()),
        labels: Default::default(),
        content: PromptContent { prompt: json!(1), continuation: None },
        continuations: 0,
        not_before: None,
        wait,
        quota: crate::Quota::default(),
        bounds: QueueBounds { name: 9_999, tenant: 9_999, fleet: 9_999, ..Default::default() },
    }
}

/// A name with a turn that runs.
fn running(world: &mut World) -> (Ownership, PromptId) {
    let (accept, node) = (accept("a", 1, WAIT), NodeId::new());
    assert!(matches!(world.step(|step| step.accept(accept.clone())), Accepted::New(_)));
    world.step(|step| step.join(Join { node, host: String::new(), lease: WAIT, capacity: 8 }));
    let (name, attempt) = (accept.name.clone(), AttemptId::new());
    let claim = Claim { name: name.clone(), node, attempt, losses: 3, quota: crate::Quota::default() };
    let Claimed::Won(record) = world.step(|step| step.claim(claim.clone())) else { panic!("not won") };
    let owner = Ownership { name, node, term: record.term };
    let (quota, prompt) = (crate::Quota::default(), accept.prompt);
    let begin = Begin { owner: owner.clone(), prompt, attempt, quota, credential: None };
    assert!(matches!(world.step(|step| step.begin(begin.clone())), Owned::Done(Some(_))));
    (owner, accept.prompt)
}

#[test]
fn random_requests_leave_records_indexes_and_counters_that_agree() {
    let (mut sent, mut ended, mut told, mut parked) = (0, 0, 0, 0);
    for seed in 1..26 {
        let mut world = World::new(seed);
        world.keep_feed();
        for _ in 0..250 {
            world.random_request();
            world.check();
        }
        (sent, ended, parked) =
            (sent + world.sent.len(), ended + world.outcomes.len(), parked + world.parked);
        told += world.check_feeds();
    }
    assert!(
        sent > 80 && ended > 250 && told > 300 && parked > 5,
        "{sent}, {ended}, {told}, {parked}: too tame"
    );
}

#[test]
fn random_requests_that_overlap_leave_records_indexes_and_counters_that_agree() {
    let (mut sent, mut conflicts) = (0, 0);
    for seed in 1..60 {
        let mut world = World::new(seed);
        world.keep_feed();
        world.overlapping = true;
        for _ in 0..250 {
            world.random_request();
            world.check();
        }
        world.overlapping = false;
        world.check_feeds();
        sent += world.sent.len();
        conflicts += world.conflicts;
    }
    assert!(sent > 100 && conflicts > 50, "{sent} sent, {conflicts} conflicts: the requests are too tame");
}

#[test]
fn a_reminder_that_becomes_ready_while_a_turn_ends_can_run() {
    let mut world = World::new(1);
    let (owner, _) = running(&mut world);
    let reminder = Accept { not_before: Some(world.now.after(WAIT / 2)), ..accept("a", 2, WAIT) };
    assert!(matches!(world.step(|step| step.accept(reminder.clone())), Accepted::New(_)));
    world.now = world.now.after(WAIT / 2);
    let (node, of, without) = (owner.node, None, Vec::new());
    let page = WaitingPage { node, of, without, profiles: None, after: None, limit: 10 };
    let look = |world: &mut World| world.step(|step| step.waiting(page.clone())).prompts;
    let release = |step: &mut Step<'_>| step.release(owner.clone());
    let released = world.overlap(release, |world| drop(look(world))).unwrap().0;
    assert_eq!((released, world.conflicts), (Owned::Done(true), 1));
    assert_eq!(look(&mut world).iter().map(|prompt| prompt.id).collect::<Vec<_>>(), [reminder.prompt]);
}

#[test]
fn an_account_is_not_closed_while_a_new_name_spends_from_it() {
    let mut world = World::new(1);
    let budget = Some(crate::Budget { amount: 100, period: Duration::from_secs(3600), reserve: 60 });
    let quota = crate::Quota { budget, ..crate::Quota::default() };
    let close = |step: &mut Step<'_>| step.close_account(crate::stage::tenant("acme"));
    let closed = world.overlap(close, |world| {
        let (owner, _) = running(world);
        let second = accept("a", 2, WAIT);
        assert!(matches!(world.step(|step| step.accept(second.clone())), Accepted::New(_)));
        assert_eq!(world.step(|step| step.release(owner.clone())), Owned::Done(true));
        let claim = Claim {
            name: owner.name,
            node: owner.node,
            attempt: AttemptId::new(),
            losses: 3,
            quota: crate::Quota::default(),
        };
        let Claimed::Won(record) = world.step(|step| step.claim(claim.clone())) else { panic!("not won") };
        let owner = Ownership { name: record.name, node: owner.node, term: record.term };
        let quota = quota.clone();
        let (prompt, attempt) = (second.prompt, AttemptId::new());
        let begin = Begin { owner, prompt, attempt, quota, credential: None };
        assert!(matches!(world.step(|step| step.begin(begin.clone())), Owned::Done(Some(_))));
    });
    assert_eq!((closed.unwrap().0, world.conflicts), (false, 1));
    assert_eq!(world.step(|step| step.tenant(crate::stage::tenant("acme"))).reserved, 60);
}

#[tokio::test]
async fn a_request_ends_although_each_look_at_the_clock_shows_another_moment() {
    let ticks = std::sync::atomic::AtomicU64::new(1);
    let tick = move || Timestamp(ticks.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
    let backend = MemoryBackend::with_clock(Clock::new(tick));
    assert_eq!(backend.expire_prompts(10).await.unwrap(), 0);
}

#[test]
fn a_look_ends_whatever_number_of_tenants_it_leaves_out() {
    let mut world = World::new(1);
    let tenants: Vec<_> = (0..300).map(|number| crate::stage::tenant(&format!("tenant {number}"))).collect();
    for tenant in &tenants {
        let accept = accept(&format!("{tenant}/a"), 1, WAIT);
        assert!(matches!(world.step(|step| step.accept(accept.clone())), Accepted::New(_)));
    }
    let (node, of, without) = (NodeId::new(), None, tenants[1..].to_vec());
    let page = WaitingPage { node, of, without, profiles: None, after: None, limit: 1_000 };
    let names = world.step(|step| step.waiting(page.clone()));
    assert_eq!((names.prompts.len(), names.next), (1, None));
}

#[test]
fn a_request_sees_its_writes_in_place_of_the_rows() {
    let mut map = MemoryMap::default();
    for key in [b"a", b"b", b"c", b"d"] {
        map.put(key, b"old").unwrap();
    }
    let request = |step: &mut Step<'_>| {
        step.txn.delete(b"a");
        step.txn.put(b"bb", b"new");
        step.txn.put(b"c", b"new");
        let keys = |limit| {
            let rows = step.txn.scan(Part::Values, b"a", b"d", limit);
            Ok(rows
                .into_iter()
                .map(|(key, value)| String::from_utf8([key, value].concat()).unwrap())
                .collect::<Vec<_>>())
        };
        Ok((keys(2)?, keys(usize::MAX)?, step.txn.get(b"a"), step.txn.get(b"d")))
    };
    let (rows, now) = (Rows::default(), Timestamp(1));
    let wanted = rows::try_on(&rows, now, request).lacking;
    let rows = read_rows(&map, wanted).unwrap();
    let rows::Attempt { answer, commit, lacking, .. } = rows::try_on(&rows, now, request);
    assert_eq!(lacking, Wanted::default());
    let (answer, made) = (answer.unwrap(), commit.unwrap());
    assert_eq!(answer.0, ["bold", "bbnew"]);
    assert_eq!(answer.1, ["bold", "bbnew", "cnew"]);
    assert_eq!((answer.2, answer.3), (None, Some(b"old".to_vec())));
    assert_eq!(map.0.len(), 4, "before the commit");
    assert_eq!(commit_rows(&mut map, &made).unwrap(), Committed::Done);
    assert_eq!(map.0.len(), 4, "one row more, and one less");
}

#[test]
fn a_record_that_cannot_be_read_hides_no_other_one_from_the_lists() {
    let mut world = World::new(1);
    let mut accepted = |to: &str, wait| {
        let accept = accept(to, "key", wait);
        assert!(matches!(world.step(|step| step.accept(accept.clone())), Accepted::New(_)));
        accept.prompt
    };
    let (spoilt, fine) = (accepted("a", Duration::ZERO), accepted("b", Duration::from_millis(1)));
    world.map.put(Key::of(Table::Prompts).prompt(spoilt).bytes(), b"spoilt").unwrap();
    let page = WaitingPage {
        node: NodeId::new(),
        of: None,
        without: Vec::new(),
        profiles: None,
        after: None,
        limit: 10,
    };
    let waiting = world.step(|step| step.waiting(page.clone()));
    assert_eq!(waiting.prompts.into_iter().map(|prompt| prompt.id).collect::<Vec<_>>(), [fine]);
    world.now = world.now.after(WAIT);
    world.step(|step| step.expire_prompts(10));
    assert!(world.step(|step| step.outcome(fine)).is_some());
    assert_eq!(world.step(|step| step.next_expiry()), None);
    let prompts = [Table::Prompts, Table::Contents, Table::Keys].map(|table| world.rows(table).len());
    assert_eq!(prompts, [2; 3], "a node of a later version may read the other one");
    assert_eq!(world.step(|step| step.forget(Timestamp(u64::MAX), 10)), 1);
    assert_eq!(world.rows(Table::Prompts).len(), 1);
}

#[test]
fn a_prompt_that_cannot_be_read_any_more_is_forgotten_as_a_whole() {
    let mut world = World::new(1);
    let accept = accept("a", 1, WAIT);
    assert!(matches!(world.step(|step| step.accept(accept.clone())), Accepted::New(_)));
    assert_eq!(world.step(|step| step.withdraw(accept.prompt)), Withdrawn::Unsent);
    world.map.put(Key::of(Table::Prompts).prompt(accept.prompt).bytes(), b"spoilt").unwrap();
    assert_eq!(world.step(|step| step.forget(Timestamp(u64::MAX), 10)), 1);
    for table in
        [Table::Prompts, Table::Contents, Table::Keys, Table::Outcomes, Table::Ended, Table::PromptsOf]
    {
        assert_eq!(world.rows(table), BTreeMap::new(), "rows of table {}", table as u8);
    }
}

#[test]
fn the_end_of_a_long_queue_reads_a_few_rows_for_each_prompt() {
    let mut world = World::new(1);
    for key in 0..BATCH {
        let accept = accept("a", key, WAIT);
        assert!(matches!(world.step(|step| step.accept(accept.clone())), Accepted::New(_)));
    }
    world.now = world.now.after(WAIT);
    let (expire, mut rows) = (|step: &mut Step<'_>| step.expire_prompts(BATCH), Rows::default());
    let expired = loop {
        let attempt = rows::try_on(&rows, world.now, expire);
        if attempt.lacking == Wanted::default() {
            break attempt.answer.unwrap();
        }
        rows = read_rows(&world.map, attempt.all).unwrap();
    };
    assert_eq!(expired, BATCH);
    let read = rows.values.len() + rows.ranges.values().map(Vec::len).sum::<usize>();
    assert!(read < 8 * BATCH, "{read} rows for {BATCH} prompts");
}

#[test]
fn a_name_with_a_long_queue_is_deleted_in_bounded_steps() {
    let mut world = World::new(1);
    let prompts = BATCH * 2 + 1;
    for key in 0..prompts {
        let accept = accept("a", key, WAIT);
        assert!(matches!(world.step(|step| step.accept(accept.clone())), Accepted::New(_)));
    }
    let name = "acme/a".parse::<Name>().unwrap();
    assert_eq!(world.step(|step| step.delete(name.clone())), Marked::Done);
    let record = world.step(|step| step.name(&name)).unwrap();
    assert_eq!(record.queued as usize, prompts - BATCH);
    let mut calls = 1;
    while !world.step(|step| step.deleted(name.clone(), record.conversation)) {
        calls += 1;
        world.check();
    }
    assert!(calls > prompts / 32, "{calls} calls for {prompts} prompts");
    for table in [Table::Names, Table::Keys, Table::Prompts, Table::Outcomes, Table::Ended, Table::PromptsOf]
    {
        assert_eq!(world.rows(table).len(), 0, "table {}", table as u8);
    }
}

#[test]
fn rows_of_names_and_nodes_that_cannot_be_read_hide_no_others() {
    let mut world = World::new(1);
    for to in ["a", "b", "c", "d"] {
        let accept = accept(to, 1, WAIT);
        assert!(matches!(world.step(|step| step.accept(accept.clone())), Accepted::New(_)));
    }
    let nodes = [NodeId::new(), NodeId::new()];
    for node in nodes {
        world.step(|step| step.join(Join { node, host: String::new(), lease: WAIT, capacity: 8 }));
        let name = format!("acme/{}", if node == nodes[0] { "d" } else { "c" }).parse::<Name>().unwrap();
        let claim =
            Claim { name, node, attempt: AttemptId::new(), losses: 3, quota: crate::Quota::default() };
        assert!(matches!(world.step(|step| step.claim(claim.clone())), Claimed::Won(_)));
    }
    for to in ["a", "b"] {
        world
            .map
            .put(
                Key::of(Table::Names).name(&format!("acme/{}", to).parse::<Name>().unwrap()).bytes(),
                b"spoilt",
            )
            .unwrap();
    }
    world.map.put(Key::of(Table::Nodes).node(nodes[0]).bytes(), b"spoilt").unwrap();
    let names = world.step(|step| step.names(NameQuery::new().limit(2))).names;
    assert_eq!(names.iter().map(|record| record.name.session()).collect::<Vec<_>>(), ["c", "d"]);
    assert_eq!(
        world.step(|step| step.nodes(None, 10)).iter().map(|node| node.id).collect::<Vec<_>>(),
        [nodes[1]]
    );
    // A restart mends the node's row, so that its name is not lost with it.
    world.step(|step| step.all_dead());
    assert_eq!(world.step(|step| step.recover(10, 3)).len(), 2);
    assert_eq!(world.step(|step| step.nodes(None, 10)), []);
}

#[test]
fn a_page_of_names_is_bounded() {
    let mut world = World::new(1);
    for to in 0..Page::MOST + 1 {
        let accept = accept(&to.to_string(), 1, WAIT);
        assert!(matches!(world.step(|step| step.accept(accept.clone())), Accepted::New(_)));
    }
    let page = world.step(|step| step.names(NameQuery::new().limit(usize::MAX)));
    assert_eq!(page.names.len(), NameQuery::MOST);
    assert_eq!(page.next, page.names.last().map(|record| record.name.clone()));
}

#[test]
fn pages_of_nodes_and_of_their_names_are_bounded() {
    let mut world = World::new(1);
    let node = NodeId::new();
    world.step(|step| step.join(Join { node, host: String::new(), lease: WAIT, capacity: 8 }));
    for to in 0..Page::MOST + 1 {
        let (accept, attempt) = (accept(&to.to_string(), 1, WAIT), AttemptId::new());
        assert!(matches!(world.step(|step| step.accept(accept.clone())), Accepted::New(_)));
        let claim =
            Claim { name: accept.name.clone(), node, attempt, losses: 3, quota: crate::Quota::default() };
        assert!(matches!(world.step(|step| step.claim(claim.clone())), Claimed::Won(_)));
        let node = NodeId::new();
        world.step(|step| step.join(Join { node, host: String::new(), lease: WAIT, capacity: 8 }));
    }
    let page = Page { after: None, limit: usize::MAX };
    assert_eq!(world.step(|step| step.owned_names(node, page.clone())).len(), Page::MOST);
    assert_eq!(world.step(|step| step.nodes(None, usize::MAX)).len(), Page::MOST);
}

#[test]
fn names_of_many_dead_nodes_are_recovered_up_to_the_limit() {
    let mut world = World::new(1);
    for to in 0..100 {
        let (accept, attempt, node) = (accept(&to.to_string(), 1, WAIT), AttemptId::new(), NodeId::new());
        assert!(matches!(world.step(|step| step.accept(accept.clone())), Accepted::New(_)));
        world.step(|step| step.join(Join { node, host: String::new(), lease: WAIT, capacity: 8 }));
        if to % 2 == 0 {
            let claim =
                Claim { name: accept.name.clone(), node, attempt, losses: 3, quota: crate::Quota::default() };
            assert!(matches!(world.step(|step| step.claim(claim.clone())), Claimed::Won(_)));
            world.step(|step| step.leave(node));
        }
    }
    for recovered in [30, 20, 0] {
        assert_eq!(world.step(|step| step.recover(30, 3)).len(), recovered);
    }
}

#[test]
fn the_open_questions_of_a_turn_are_bounded_and_decided_ones_make_room() {
    let mut world = World::new(1);
    let (owner, prompt) = running(&mut world);
    let question = QuestionId::new();
    let first = Ask { owner: owner.clone(), question, prompt, wait: WAIT, call: None, body: json!({}) };
    let ask = || Ask { question: QuestionId::new(), ..first.clone() };
    assert!(matches!(world.step(|step| step.ask(first.clone())), Owned::Done(Some(_))));
    for ask in std::iter::repeat_with(ask).take(BATCH - 1) {
        assert!(matches!(world.step(|step| step.ask(ask.clone())), Owned::Done(Some(_))));
    }
    let last = ask();
    let error = world.try_step(|step| step.ask(last.clone())).unwrap_err();
    assert_eq!(error.to_string(), "the turn has 256 open questions: ask again when some are decided");
    let answer = world.step(|step| step.answer(question, AttemptId::new(), json!("yes")));
    assert!(matches!(answer, Answered::Decided(_)));
    assert!(matches!(world.step(|step| step.ask(last.clone())), Owned::Done(Some(_))));
    let _: Owned<bool> = world.step(|step| step.release(owner.clone()));
    assert!(world.rows(Table::QuestionsOfPrompt).is_empty());
    assert_eq!(world.rows(Table::Questions).len(), 1);
}
