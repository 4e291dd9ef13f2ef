//! Many nodes, a tenth of which are lost at once: keepers over one registry, and loops in place of actors and sessions.
//!
//! | variable | default | `.ci/long` |
//! |---|--:|--:|
//! | `GREENROOM_FLEET_NODES` | 20 | 100 |
//! | `GREENROOM_FLEET_NAMES`: names in all, most of them passive | 5,000 | 100,000 |
//! | `GREENROOM_FLEET_OWNED`: names that each node owns; it runs turns of half of them, behind each of which a prompt waits | 40 | 40 |

use std::collections::BTreeMap;

use tokio::task::JoinSet;

use super::*;
use crate::id::NodeId;
use crate::record::NodeState;
use crate::request::Finish;

const TURN: Duration = Duration::from_secs(2);

/// A node: its keeper, and a loop that claims the names that are woken, and runs a turn of each.
struct SimulatedNode {
    shared: Arc<FleetShared>,
    backend: FaultedBackend,
    keeper: Keeper,
    works: Task,
    turns: Arc<Mutex<JoinSet<()>>>,
}

/// Counts that all nodes share.
#[derive(Default)]
struct Tally {
    won: Mutex<usize>,
    lost: Mutex<usize>,
    ended: Mutex<usize>,
}

impl SimulatedNode {
    async fn new(memory: &MemoryBackend, tally: &Arc<Tally>) -> Self {
        let backend = FaultedBackend::new(memory.clone());
        let shared = joined(backend.clone(), FleetLimits::default()).await;
        let (wake, mut woken) = mpsc::unbounded_channel();
        let wakes: WakeNames = Arc::new(move |prompts| {
            // An error: the node was killed.
            wake.send(prompts).ok();
        });
        let (runs, counts) = (shared.clone(), tally.clone());
        let turns = Arc::<Mutex<JoinSet<()>>>::default();
        let spawns = turns.clone();
        let works = spawn(async move {
            while let Some(prompts) = woken.recv().await {
                for prompt in prompts {
                    let mut turns = spawns.lock().unwrap();
                    turns.spawn(turn(runs.clone(), counts.clone(), prompt));
                }
            }
        });
        let keeper = Keeper::start(shared.clone(), wakes, Arc::new(|_, _| {}));
        Self { shared, backend, keeper, works, turns }
    }

    /// Owns a name, and begins with its prompt if it has one.
    async fn owns(&self, name: &str, prompt: Option<crate::id::PromptId>) {
        let name = format!("acme/{}", name).parse::<Name>().unwrap();
        let (owner, claim) = claimed(&self.shared, &name).await.unwrap();
        awake(&self.shared, &name).holdings().claim = Some(claim);
        let Some(prompt) = prompt else { return };
        let begin = Begin {
            owner,
            prompt,
            attempt: AttemptId::new(),
            quota: crate::Quota::default(),
            credential: None,
        };
        assert!(matches!(self.shared.backend.begin(begin).await.unwrap().done(), Some(Some(_))));
    }

    /// As `kill -9`.
    fn kill(self) -> NodeId {
        drop((self.keeper, self.works));
        self.turns.lock().unwrap().abort_all();
        self.shared.node
    }

    /// Returns when the turns have ended; a panic in one of them is a panic here.
    async fn turns_end(self) {
        drop((self.keeper, self.works));
        let mut turns = std::mem::take(&mut *self.turns.lock().unwrap());
        while let Some(turn) = turns.join_next().await {
            turn.unwrap();
        }
    }
}

async fn claimed(shared: &FleetShared, name: &Name) -> Option<(Ownership, AttemptId)> {
    let (node, attempt) = (shared.node, AttemptId::new());
    let claim = Claim { name: name.clone(), node, attempt, losses: 3, quota: crate::Quota::default() };
    match shared.backend.claim(claim).await.unwrap() {
        Claimed::Won(record) => Some((Ownership { name: name.clone(), node, term: record.term }, attempt)),
        _ => None,
    }
}

/// A turn, from the claim to the release.
async fn turn(shared: Arc<FleetShared>, tally: Arc<Tally>, prompt: PromptRecord) {
    let Some((owner, claim)) = claimed(&shared, &prompt.name).await else {
        *tally.lost.lock().unwrap() += 1;
        return;
    };
    *tally.won.lock().unwrap() += 1;
    awake(&shared, &owner.name).holdings().claim = Some(claim);
    let attempt = AttemptId::new();
    let begin = Begin {
        owner: owner.clone(),
        prompt: prompt.id,
        attempt,
        quota: crate::Quota::default(),
        credential: None,
    };
    if let Some(Some(_)) = shared.backend.begin(begin).await.unwrap().done() {
        tokio::time::sleep(TURN).await;
        let outcome = crate::record::PromptOutcome::Completed {
            result: serde_json::Value::Null,
            transcript_lost: false,
        };
        let finish = Finish {
            owner: owner.clone(),
            prompt: prompt.id,
            attempt,
            outcome,
            cost: Some(0),
            usage: None,
            quarantine: None,
        };
        assert!(shared.backend.finish(finish).await.unwrap().done().is_some());
        *tally.ended.lock().unwrap() += 1;
    }
    shared.awake().remove(&owner.name);
    assert!(shared.backend.release(owner).await.unwrap().done().is_some());
}

/// Requests of nodes so far, by kind.
fn requests(nodes: &[SimulatedNode]) -> BTreeMap<&'static str, u64> {
    let kinds =
        ["renew", "nodes", "declare_dead", "recover", "waiting", "claim", "begin", "finish", "release"];
    let sum = |kind| nodes.iter().map(|node| node.backend.requests(kind)).sum();
    kinds.into_iter().map(|kind| (kind, sum(kind))).collect()
}

// Guards: isolated
#[tokio::test(start_paused = true)]
async fn a_tenth_of_many_nodes_is_lost_at_once_without_a_herd() {
    let set =
        |variable: &str, default| std::env::var(variable).map_or(default, |value| value.parse().unwrap());
    let count: usize = set("GREENROOM_FLEET_NODES", 20);
    let names = set("GREENROOM_FLEET_NAMES", 5_000) / count;
    let owned = set("GREENROOM_FLEET_OWNED", 40);
    let running = owned / 2;
    let (memory, tally) = (MemoryBackend::new(), Arc::<Tally>::default());
    let real = std::time::Instant::now();
    let request = |name: &str| {
        let bounds = crate::request::QueueBounds {
            name: 100,
            tenant: u32::MAX,
            fleet: u32::MAX,
            ..Default::default()
        };
        crate::request::Accept { bounds, ..accept(name, HOUR) }
    };
    let mut nodes = Vec::new();
    for _ in 0..count {
        nodes.push(SimulatedNode::new(&memory, &tally).await);
    }
    // No keeper looks meanwhile: no time passes and no task runs.
    let mut waits = Vec::new();
    for (node, simulated) in nodes.iter().enumerate() {
        for number in 0..names {
            let name = format!("name {node} {number}");
            let Accepted::New(prompt) = memory.accept(request(&name)).await.unwrap() else {
                panic!("refused")
            };
            if number >= running {
                assert_eq!(memory.withdraw(prompt.id).await.unwrap(), crate::request::Withdrawn::Unsent);
            }
            if number < owned {
                simulated.owns(&name, (number < running).then_some(prompt.id)).await;
            }
            if number < running {
                let Accepted::New(prompt) = memory.accept(request(&name)).await.unwrap() else {
                    panic!("refused")
                };
                waits.push((node, prompt.id));
            }
        }
    }
    let built = real.elapsed();
    tokio::time::sleep(SECOND * 7).await;
    let killed: Vec<_> = nodes.drain(..count / 10).map(SimulatedNode::kill).collect();
    let (begun, before, real) = (Instant::now(), requests(&nodes), std::time::Instant::now());
    let lost = killed.len() * owned;

    let dead = async || {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let listed = memory.nodes(None, 1024).await.unwrap();
        listed.into_iter().filter(|node| killed.contains(&node.id)).map(|node| node.state).collect::<Vec<_>>()
    };
    let until_dead = async { while dead().await.contains(&NodeState::Up) {} };
    timeout(HOUR, until_dead).await.expect("the nodes are not declared dead");
    let declared = begun.elapsed();
    let until_recovered = async { while !dead().await.is_empty() {} };
    timeout(HOUR, until_recovered).await.expect("the names are not recovered");
    let recovered = begun.elapsed();
    let mut left: Vec<_> =
        waits.iter().filter(|(node, _)| *node < killed.len()).map(|(_, prompt)| *prompt).collect();
    let orphans = left.len();
    let until_run = async {
        while let Some(prompt) = left.last() {
            match memory.outcome(*prompt).await.unwrap() {
                Some(_) => drop(left.pop()),
                None => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    timeout(HOUR, until_run).await.expect("the prompts do not run");
    let ran = begun.elapsed();
    let after = requests(&nodes);
    println!("{count} nodes, {} names, {} nodes lost with {lost} names", count * names, killed.len());
    println!("declared dead after {declared:?}, recovered after {recovered:?}, prompts run after {ran:?}");
    let (won, lost_claims) = (*tally.won.lock().unwrap(), *tally.lost.lock().unwrap());
    println!("{won} claims won, {lost_claims} lost; built in {built:?}, simulated in {:?}", real.elapsed());
    for (kind, count) in &after {
        println!("{kind:>14}: {}", count - before[kind]);
    }
    assert!(declared >= LEASE - SECOND * 3 && declared <= LEASE + SECOND, "{declared:?}");
    println!("{orphans} prompts waited behind a turn that was lost");
    // The names that are lost, at the rate of all nodes together, and a second for the last turns.
    let rate = Duration::from_millis(100).mul_f64(lost as f64 / 64.0);
    assert!(recovered <= declared + rate * 2 + SECOND * 2, "{recovered:?}");
    assert!(ran <= recovered + TURN + SECOND, "{ran:?}");
    assert_eq!((won, *tally.ended.lock().unwrap()), (orphans, orphans));
    // Two nodes may have the same moment. With claims at once each node but one claims in vain.
    assert!(lost_claims <= orphans * 2, "{lost_claims} claims in vain for {orphans} names");
    for node in nodes {
        timeout(HOUR, node.turns_end()).await.expect("a turn does not end");
    }
}

const LEASE: Duration = Duration::from_secs(30);
