//! Several nodes on one backend.

mod left;
mod lost;

use greenroom_fleet::backend::Backend;
use greenroom_fleet::testkit::{Fault, FaultedBackend, FleetFault};
use greenroom_fleet::{Fleet, FleetEvent};

use crate::scenes::{Log, World, start, within};

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
        let backend = FaultedBackend::new(world.backend.clone());
        let builder = world.on(backend.clone()).host(host).configure(|limits| limits.live = 20);
        let log = Log::new(builder.events());
        Self { fleet: start(builder).await, backend, log }
    }

    /// As `kill -9` of a service: its guardian ends its CLIs, and nothing of it reaches the backend any more.
    async fn kill(&self, world: &World) {
        self.backend.plan(|_| Fault::Hang);
        self.fleet.inject(FleetFault::Supervisor);
        within("the end of the node", self.fleet.wait()).await;
        assert!(!world.backend.nodes(None, 10).await.unwrap().is_empty(), "it has told nobody");
    }

    fn lost_nodes(&self) -> usize {
        self.log.count(|event| matches!(event, FleetEvent::NodeLost { .. }))
    }
}
