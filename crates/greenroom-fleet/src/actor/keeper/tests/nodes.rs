//! Nodes that die, and nodes that live.

use super::*;
use crate::error::BackendErrorKind;
use crate::id::NodeId;
use crate::record::{InterruptedBy, NodeState, PromptOutcome};
use crate::request::{Join, Owned};

const LEASE: Duration = Duration::from_secs(30);

impl Stage {
    /// Another node joins.
    async fn peer(&self) -> NodeId {
        let node = NodeId::new();
        self.backend.join(Join { node, host: "there".into(), lease: LEASE, capacity: 8 }).await.unwrap();
        node
    }

    async fn renew(&self, node: NodeId) {
        let renewed = self.backend.renew(node, LEASE, false).await.unwrap();
        assert!(matches!(renewed, Owned::Done(_)), "the node is dead");
    }

    /// A node runs a turn of a name.
    async fn runs(&self, node: NodeId, name: &str) -> crate::id::PromptId {
        let prompt = self.accept(accept(name, HOUR)).await;
        let (name, attempt) = (crate::stage::name(name), AttemptId::new());
        let claim = Claim { name: name.clone(), node, attempt, losses: 3, quota: crate::Quota::default() };
        let Claimed::Won(record) = self.backend.claim(claim).await.unwrap() else { panic!("not won") };
        let owner = Ownership { name, node, term: record.term };
        let begin = Begin {
            owner,
            prompt,
            attempt: AttemptId::new(),
            quota: crate::Quota::default(),
            credential: None,
        };
        assert!(matches!(self.backend.begin(begin).await.unwrap().done(), Some(Some(_))));
        prompt
    }

    /// The moment at which a node is declared dead.
    async fn lost(&mut self, node: NodeId) -> Instant {
        self.event(|event| *event == FleetEvent::NodeLost { node }).await;
        Instant::now()
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_stops_renewing_is_lost_after_its_lease() {
    let mut stage = Stage::new().await;
    let _keeper = stage.keeper();
    let peer = stage.peer().await;
    let runs = stage.runs(peer, "runs").await;
    stage.accept(accept("runs", HOUR)).await;
    for _ in 0..20 {
        tokio::time::sleep(SECOND * 5).await;
        stage.renew(peer).await;
    }
    while stage.woken.try_recv().is_ok() {}
    let last = Instant::now();
    let lost = stage.lost(peer).await.duration_since(last);
    assert!(lost >= LEASE && lost <= LEASE + SECOND, "{lost:?} after the last renewal");
    let until_woken = async { while stage.woken().await != [crate::stage::name("runs")] {} };
    timeout(HOUR, until_woken).await.expect("the name is not woken");
    assert!(last.elapsed() <= LEASE + SECOND * 2, "{:?} after the last renewal", last.elapsed());
    let outcome = stage.backend.outcome(runs).await.unwrap();
    let term = stage.backend.name_record(crate::stage::name("runs")).await.unwrap().unwrap().term;
    let by_owner = PromptOutcome::Interrupted { by: InterruptedBy::OwnerLost { term }, result: None };
    assert_eq!(outcome, Some(by_owner));
    assert!(matches!(stage.backend.renew(peer, LEASE, false).await.unwrap(), Owned::Fenced));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_renews_late_in_its_lease_is_never_lost() {
    let mut stage = Stage::new().await;
    let _keeper = stage.keeper();
    let peer = stage.peer().await;
    for _ in 0..100 {
        tokio::time::sleep(LEASE - SECOND).await;
        stage.renew(peer).await;
    }
    assert_eq!(stage.backend.requests("declare_dead"), 0);
    while let Ok(event) = stage.events.try_recv() {
        assert!(!matches!(event, FleetEvent::NodeLost { .. }));
    }
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_a_node_waits_a_whole_lease_before_another_is_lost() {
    // The renewals of the node itself, its looks at the other nodes, and looks that never end.
    for (method, fault) in [("renew", Fault::Fail), ("nodes", Fault::Fail), ("nodes", Fault::Hang)] {
        let mut stage = Stage::new().await;
        let _keeper = stage.keeper();
        let peer = stage.peer().await;
        tokio::time::sleep(SECOND * 12).await;
        stage.backend.plan(move |request| if request.method == method { fault } else { Fault::Pass });
        tokio::time::sleep(SECOND * 10).await;
        stage.backend.disable();
        stage.backend.release();
        let over = Instant::now();
        let lost = stage.lost(peer).await.duration_since(over);
        assert!(lost >= LEASE - SECOND && lost <= LEASE + SECOND * 3, "{method}, {fault:?}: {lost:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_request_that_fails_keeps_no_dead_node_alive() {
    for method in ["renew", "nodes"] {
        let mut stage = Stage::new().await;
        let _keeper = stage.keeper();
        let (peer, joined) = (stage.peer().await, Instant::now());
        for _ in 0..5 {
            tokio::time::sleep(SECOND * 5).await;
            stage.backend.fault_next(method, Fault::Fail);
        }
        let lost = stage.lost(peer).await.duration_since(joined);
        assert!(lost <= LEASE + SECOND * 3, "{method}: {lost:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_recovery_that_is_refused_keeps_no_other_node_alive() {
    let mut stage = Stage::new().await;
    let (first, second) = (stage.peer().await, stage.peer().await);
    stage.runs(first, "runs").await;
    stage.backend.plan(|request| match request.method {
        "recover" => Fault::Refuse(BackendErrorKind::Damaged),
        _ => Fault::Pass,
    });
    let _keeper = stage.keeper();
    for _ in 0..5 {
        tokio::time::sleep(SECOND * 10).await;
        stage.renew(second).await;
    }
    let last = Instant::now();
    let lost = stage.lost(second).await.duration_since(last);
    assert!(lost <= LEASE + SECOND * 3, "{lost:?} after the last renewal");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_stood_still_declares_nobody_dead_at_once() {
    let limits = FleetLimits { lease: SECOND * 300, ..FleetLimits::default() };
    let mut stage = Stage::on(FaultedBackend::new(MemoryBackend::new()), limits).await;
    let _keeper = stage.keeper();
    let peer = stage.peer().await;
    tokio::time::sleep(SECOND * 8).await;
    // Time passes, and nothing runs meanwhile: neither this node nor its peer.
    tokio::time::advance(LEASE).await;
    let awake = Instant::now();
    let lost = stage.lost(peer).await.duration_since(awake);
    assert!(lost >= LEASE && lost <= LEASE + SECOND, "{lost:?}");
}

#[tokio::test(start_paused = true)]
async fn names_of_a_lost_node_are_recovered_in_batches_with_pauses() {
    let mut stage = Stage::new().await;
    let peer = stage.peer().await;
    for name in 0..640 {
        stage.runs(peer, &format!("name {name}")).await;
    }
    let _keeper = stage.keeper();
    let lost = stage.lost(peer).await;
    let mut most = 0;
    let mut before = 640;
    let until_recovered = async {
        while before > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let nodes = stage.backend.nodes(None, 10).await.unwrap();
            let owns = nodes.into_iter().find(|node| node.id == peer).map_or(0, |node| node.owns);
            most = most.max(before - owns);
            before = owns;
        }
    };
    timeout(HOUR, until_recovered).await.expect("the names are not recovered");
    let left = lost.elapsed();
    assert!(most <= 64, "{most} names at once");
    assert!(left >= SECOND * 9 / 10 && left <= SECOND * 12 / 10, "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn nodes_that_recover_names_together_are_no_faster_than_one() {
    let mut stages = Vec::new();
    let memory = MemoryBackend::new();
    for _ in 0..8 {
        stages.push(Stage::on(FaultedBackend::new(memory.clone()), FleetLimits::default()).await);
    }
    let peer = stages[0].peer().await;
    for name in 0..1_280 {
        stages[0].runs(peer, &format!("name {name}")).await;
    }
    let mut keepers = Vec::new();
    for stage in &stages {
        keepers.push(stage.keeper());
    }
    let state = async || {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let nodes = memory.nodes(None, 10).await.unwrap();
        nodes.into_iter().find(|node| node.id == peer).map(|node| node.state)
    };
    let until_dead = async { while state().await == Some(NodeState::Up) {} };
    timeout(HOUR, until_dead).await.expect("the node is not declared dead");
    let lost = Instant::now();
    let until_recovered = async { while state().await.is_some() {} };
    timeout(HOUR, until_recovered).await.expect("the names are not recovered");
    let took = lost.elapsed();
    assert!(took >= SECOND && took <= SECOND * 4, "{took:?}");
    let shares: Vec<_> = stages.iter().map(|stage| stage.backend.requests("recover")).collect();
    assert!(shares.iter().all(|share| (1..=4).contains(share)), "{shares:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_joins_a_lone_node_and_dies_at_once_is_lost_after_its_lease() {
    for pause in [Duration::from_millis(11_100), Duration::from_millis(13_900)] {
        let mut stage = Stage::new().await;
        let _keeper = stage.keeper();
        tokio::time::sleep(pause).await;
        let (peer, joined) = (stage.peer().await, Instant::now());
        let lost = stage.lost(peer).await.duration_since(joined);
        assert!(lost >= LEASE && lost <= LEASE + SECOND * 2, "{lost:?} after it has joined");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_finds_itself_dead_is_fenced_and_recovers_nothing() {
    let stage = Stage::new().await;
    let node = stage.shared.node;
    stage.runs(node, "runs").await;
    let _keeper = stage.keeper();
    stage.settle().await;
    stage.backend.leave(node).await.unwrap();
    timeout(SECOND, stage.shared.lost.cancelled()).await.expect("the node goes on");
    tokio::time::sleep(SECOND * 10).await;
    assert_eq!(stage.backend.requests("recover"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_node_alone_looks_for_others_each_second() {
    let stage = Stage::new().await;
    let _keeper = stage.keeper();
    tokio::time::sleep(SECOND * 60).await;
    let requests = stage.backend.requests("nodes");
    assert!(requests <= 122, "{requests} requests in a minute: a page, and the empty one behind it");
}
