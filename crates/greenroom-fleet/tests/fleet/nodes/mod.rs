//! Several nodes on one backend.

mod commands;
mod elsewhere;
mod erasure;
mod feed;
mod handover;
mod left;
mod limits;
mod lost;
mod quotas;
mod steer;
mod updates;

use greenroom_fleet::backend::{Backend, Requests};
use greenroom_fleet::testkit::{Fault, FaultedBackend, FleetFault};
use greenroom_fleet::{Fleet, FleetBuilder, FleetEvent};

use crate::scenes::{Log, World, asks, in_time, start};

/// A fleet that shares its backend with others, and can be killed.
struct Node {
    fleet: Fleet,
    backend: FaultedBackend,
    log: Log,
}

impl Node {
    async fn new(world: &World) -> Self {
        Self::on_host(world, "local").await
    }

    async fn on_host(world: &World, host: &str) -> Self {
        Self::with(world, FaultedBackend::new(world.backend.clone()), |builder| builder.host(host)).await
    }

    /// A node that hears of no change, so it has to look.
    async fn deaf(world: &World) -> Self {
        let backend = FaultedBackend::new(world.backend.clone()).without_changes();
        Self::with(world, backend, |builder| builder).await
    }

    async fn with(
        world: &World,
        backend: FaultedBackend,
        change: impl FnOnce(FleetBuilder) -> FleetBuilder,
    ) -> Self {
        let builder = change(world.on(backend.clone()).configure(|limits| limits.live = 20));
        let log = Log::new(builder.events());
        Self { fleet: start(builder).await, backend, log }
    }

    /// As `kill -9` of a service: its guardian ends its CLIs, and nothing of it reaches the backend any more.
    async fn kill(&self, world: &World) {
        self.backend.plan(|_| Fault::Hang);
        self.fleet.inject(FleetFault::Supervisor);
        in_time("the end of the node", self.fleet.wait()).await;
        assert!(!world.backend.nodes(None, 10).await.unwrap().is_empty(), "it has told nobody");
    }

    fn lost_nodes(&self) -> usize {
        self.log.count(|event| matches!(event, FleetEvent::NodeLost { .. }))
    }
}

/// Two nodes, the first of which owns the session `a`. `deaf`: they hear of no change.
async fn two(world: &World, deaf: bool) -> [Node; 2] {
    let first = if deaf { Node::deaf(world).await } else { Node::new(world).await };
    asks(&first.fleet, "a", "one").await;
    let second = if deaf { Node::deaf(world).await } else { Node::new(world).await };
    [first, second]
}
