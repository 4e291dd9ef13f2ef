//! Requests to a node that does not own the session.

use greenroom::callback::InquiryAnswer;
use greenroom_fleet::{ActivationContext, NameState, Placement, TurnItem};
use tokio::time::{Instant, sleep};

use super::*;
use crate::scenes::{asks, named, outcome, secs, send, stage};

/// Two nodes, the first of which owns the session `a`.
async fn two(world: &World) -> [Node; 2] {
    let first = Node::new(world).await;
    asks(&first.fleet, "a", "one").await;
    [first, Node::new(world).await]
}

#[tokio::test(start_paused = true)]
async fn a_turn_is_read_on_another_node_than_its_owner() {
    let world = World::new();
    let [first, second] = two(&world).await;
    let deaf = Node::deaf(&world).await;
    let begun = Instant::now();
    let prompt = send(&second.fleet, "a", "wait 10").await.prompt_id();
    for (node, late) in [(&first, 0), (&second, 0), (&deaf, 1)] {
        let mut turn = node.fleet.operator().turn(prompt);
        let mut texts = Vec::new();
        while let Some(item) = in_time("the next message", turn.next()).await {
            if let TurnItem::Message { message, .. } = item.unwrap() {
                texts.extend(message.text());
            }
        }
        assert_eq!(texts, ["re: wait 10"]);
        assert_eq!(in_time("the outcome", turn.outcome()).await.unwrap().text(), Some("re: wait 10"));
        let took = begun.elapsed();
        assert!(took >= secs(10) && took <= secs(10 + late) + secs(1) / 10, "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn commands_for_a_session_that_nobody_owns_do_nothing() {
    let world = World::new();
    let [first, second] = two(&world).await;
    let turn = send(&second.fleet, "a", "hold").await;
    world.clis.read(2).await;
    let there = named(&second.fleet, "a");
    assert!(named(&first.fleet, "a").interrupt().await.unwrap());
    assert_eq!(outcome(turn).await.word(), "interrupted");
    named(&first.fleet, "a").passivate().await.unwrap();
    assert!(!there.interrupt().await.unwrap(), "nobody owns it");
    there.passivate().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn commands_name_no_owner_that_is_dead() {
    let world = World::new();
    let [first, second] = two(&world).await;
    sleep(secs(10)).await;
    second.backend.plan(|request| if request.method == "recover" { Fault::Hang } else { Fault::Pass });
    first.kill(&world).await;
    second.log.wait("the end of the lease", |event| matches!(event, FleetEvent::NodeLost { .. })).await;
    let a = named(&second.fleet, "a");
    assert!(matches!(a.record().await.unwrap().state, NameState::Owned { .. }), "it is recovered");
    assert!(!a.interrupt().await.unwrap());
    a.passivate().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn passivate_reaches_the_owner_where_the_session_waits_for_a_slot() {
    let world = World::new();
    let small = async || {
        let backend = FaultedBackend::new(world.backend.clone());
        Node::with(&world, backend, |builder| builder.configure(|limits| limits.live = 1)).await
    };
    let first = small().await;
    let leaves = send(&first.fleet, "c", "hold").await;
    world.clis.read(1).await;
    let second = small().await;
    let stays = send(&second.fleet, "b", "hold").await;
    world.clis.read(2).await;
    let waits = send(&second.fleet, "a", "hold").await;
    sleep(secs(10)).await;
    // The session waits for a slot on both nodes, and the first one gets one.
    named(&first.fleet, "c").interrupt().await.unwrap();
    named(&first.fleet, "c").passivate().await.unwrap();
    world.clis.read(3).await;
    assert_eq!(stage(&second.fleet, "a").await, "waiting");
    let waiting = named(&second.fleet, "a");
    let asleep = tokio::spawn(async move { waiting.passivate().await });
    sleep(secs(5)).await;
    assert!(!asleep.is_finished(), "its turn runs there");
    assert!(named(&first.fleet, "a").interrupt().await.unwrap());
    in_time("passivate", asleep).await.unwrap().unwrap();
    assert!(named(&second.fleet, "b").interrupt().await.unwrap());
    for turn in [leaves, waits, stays] {
        assert_eq!(outcome(turn).await.word(), "interrupted");
    }
}

/// A slot would be of no use: a session would be evicted for it, and its tenant would pay.
#[tokio::test(start_paused = true)]
async fn a_session_that_runs_elsewhere_waits_for_no_slot_here() {
    let world = World::new();
    let first = Node::new(&world).await;
    let backend = FaultedBackend::new(world.backend.clone());
    let second = Node::with(&world, backend, |builder| builder.configure(|limits| limits.live = 1)).await;
    // The first node does not look until the session waits on the second one.
    first.backend.plan(|request| if request.method == "waiting" { Fault::Hang } else { Fault::Pass });
    let stays = send(&second.fleet, "b", "hold").await;
    world.clis.read(1).await;
    let runs = send(&second.fleet, "a", "hold").await;
    let next = send(&second.fleet, "a", "two").await;
    second
        .log
        .wait(
            "the wait for a slot",
            |event| matches!(event, FleetEvent::Waiting { name, .. } if name.session() == "a"),
        )
        .await;
    first.backend.disable();
    first.backend.release();
    world.clis.read(2).await;
    sleep(secs(6)).await;
    assert_eq!(stage(&second.fleet, "a").await, "passive");
    assert_eq!(stage(&first.fleet, "a").await, "running");
    assert!(named(&first.fleet, "a").interrupt().await.unwrap());
    assert_eq!(outcome(runs).await.word(), "interrupted");
    assert_eq!(outcome(next).await.text(), Some("re: two"));
    assert!(named(&second.fleet, "b").interrupt().await.unwrap());
    assert_eq!(outcome(stays).await.word(), "interrupted");
}

#[tokio::test(start_paused = true)]
async fn warm_of_a_session_of_another_node_waits_for_no_slot_here() {
    let world = World::new();
    let first = Node::new(&world).await;
    asks(&first.fleet, "a", "one").await;
    let backend = FaultedBackend::new(world.backend.clone());
    let second = Node::with(&world, backend, |builder| builder.configure(|limits| limits.live = 1)).await;
    let runs = send(&second.fleet, "b", "hold").await;
    asks(&first.fleet, "c", "one").await;
    let begun = Instant::now();
    for name in ["a", "c"] {
        in_time("warm", named(&second.fleet, name).warm()).await.unwrap();
    }
    assert!(begun.elapsed() < secs(1), "{:?}", begun.elapsed());
    assert!(named(&second.fleet, "b").interrupt().await.unwrap());
    assert_eq!(outcome(runs).await.word(), "interrupted");
}

#[tokio::test(start_paused = true)]
async fn a_question_is_answered_on_another_node() {
    for deaf in [false, true] {
        let world = World::new();
        let first = if deaf { Node::deaf(&world).await } else { Node::new(&world).await };
        asks(&first.fleet, "a", "one").await;
        let second = if deaf { Node::deaf(&world).await } else { Node::new(&world).await };
        let turn = send(&second.fleet, "a", "ask").await;
        let question = in_time("the question", async {
            loop {
                if let [question] = &*named(&second.fleet, "a").questions().await.unwrap() {
                    return question.id;
                }
                sleep(secs(1)).await;
            }
        })
        .await;
        let answered = Instant::now();
        second.fleet.operator().answer(question, InquiryAnswer::allow()).await.unwrap();
        assert_eq!(outcome(turn).await.text(), Some("re: ask allow"));
        assert!(answered.elapsed() <= secs(if deaf { 7 } else { 1 }), "{:?}", answered.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_bound_to_a_host_runs_on_its_nodes_only() {
    let world = World::new();
    let on = async |host: &str| {
        let change = |builder: FleetBuilder| builder.host(host).placement(Placement::OnHost);
        Node::with(&world, FaultedBackend::new(world.backend.clone()), change).await
    };
    let (here, there) = (on("here").await, on("there").await);
    assert_eq!(asks(&here.fleet, "a", "one").await, "re: one");
    assert_eq!(named(&there.fleet, "a").record().await.unwrap().host.as_deref(), Some("here"));
    // Accepted there, run here.
    assert_eq!(asks(&there.fleet, "a", "two").await, "re: two");
    in_time("the drain", here.fleet.drain(secs(5))).await;
    let waits = send(&there.fleet, "a", "three").await.prompt_id();
    sleep(secs(60)).await;
    assert_eq!(world.clis.prompts_of("a"), ["one", "two"]);
    let warm = in_time("warm", named(&there.fleet, "a").warm()).await.unwrap_err();
    assert_eq!(warm.to_string(), "the session belongs to the host 'here'");
    let back = on("here").await;
    assert_eq!(outcome(back.fleet.operator().turn(waits)).await.text(), Some("re: three"));
    assert_eq!(world.clis.starts_of("a"), 2);
}

#[tokio::test(start_paused = true)]
async fn files_of_a_deleted_session_are_removed_on_its_own_host() {
    let (world, folders) = (World::new(), tempfile::tempdir().unwrap());
    let on = async |host: &str| {
        let folder = folders.path().join(host);
        let change = |builder: FleetBuilder| builder.host(host).folder(folder).placement(Placement::OnHost);
        Node::with(&world, FaultedBackend::new(world.backend.clone()), change).await
    };
    let (here, there) = (on("here").await, on("there").await);
    asks(&here.fleet, "a", "one").await;
    named(&here.fleet, "a").passivate().await.unwrap();
    let files = || std::fs::read_dir(folders.path().join("here")).unwrap().count();
    assert!(files() > 0);
    in_time("the drain", here.fleet.drain(secs(5))).await;

    let deleted = in_time("the delete", named(&there.fleet, "a").delete()).await.unwrap_err();
    assert!(deleted.to_string().contains("its files are on the host 'here'"), "{deleted}");
    sleep(secs(120)).await;
    let record = named(&there.fleet, "a").record().await.unwrap();
    assert!(matches!(record.state, NameState::Deleting { .. }), "{record:?}");
    assert!(files() > 0, "nobody else removes them");

    let _back = on("here").await;
    assert!(named(&there.fleet, "a").record().await.is_err(), "the opening has finished the deletion");
    assert_eq!(files(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_node_without_the_profile_of_a_session_leaves_it_to_the_others() {
    let world = World::new();
    let old = Node::new(&world).await;
    let older = Node::new(&world).await;
    // Until each node has seen the others.
    sleep(secs(10)).await;
    let clis = world.clis.clone();
    let change = |builder: FleetBuilder| {
        let profile = move |cx: &ActivationContext| crate::scenes::session(&clis, cx.name.session());
        builder.profile("new", profile).configure(|limits| limits.live = 1)
    };
    let new = Node::with(&world, FaultedBackend::new(world.backend.clone()), change).await;
    let (busy, waits) = (named(&new.fleet, "a").profile("new"), named(&new.fleet, "b").profile("new"));
    let hold = in_time("the accept", busy.prompt("hold")).await.unwrap();
    world.clis.read(1).await;
    // The new node has no free slot, and the others have not the profile.
    let turn = in_time("the accept", waits.prompt("one")).await.unwrap();
    sleep(secs(30)).await;
    for node in [&old, &older] {
        let claims = node.log.count(|event| matches!(event, FleetEvent::Activating { .. }));
        assert_eq!(claims, 0, "it has claimed a name that it cannot run");
    }
    let refused = named(&old.fleet, "b").profile("new").warm().await.unwrap_err().to_string();
    assert!(refused.contains("no profile 'new'"), "{refused}");
    assert!(busy.interrupt().await.unwrap());
    assert_eq!(outcome(hold).await.word(), "interrupted");
    assert_eq!(outcome(turn).await.text(), Some("re: one"));
    drop((old, older));
}
