//! A stage for unit tests of actors: what a fleet's actors share, over a backend of the test.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use greenroom::Session;
use tokio::sync::broadcast;
use uuid::Uuid;

use super::context::FleetShared;
use crate::backend::{Backend, Requests};
use crate::fence::Fence;
use crate::files::Folders;
use crate::hub::Hub;
use crate::id::{Name, NodeId, PromptId};
use crate::limits::FleetLimits;
use crate::profile::Profile;
use crate::record::PromptContent;
use crate::request::{Accept, Join, QueueBounds};

/// A fleet on a backend, whose node has joined.
pub(crate) async fn joined(backend: impl Backend, limits: FleetLimits) -> Arc<FleetShared> {
    join(shared(Arc::new(backend), limits)).await
}

/// Has the node of a fleet join.
pub(crate) async fn join(shared: FleetShared) -> Arc<FleetShared> {
    let (host, lease) = (shared.host.clone(), shared.limits.lease);
    shared.backend.join(Join { node: shared.node, host, lease, capacity: 8 }).await.unwrap();
    Arc::new(shared)
}

/// A fleet on a backend, whose node has not joined.
pub(crate) fn shared(backend: Arc<dyn Backend>, limits: FleetLimits) -> FleetShared {
    let folders = Folders::at(backend.default_folder().unwrap(), false);
    let profile: Profile = Arc::new(|_| Session::builder());
    FleetShared {
        transitions: backend.transitions().into(),
        hub: Hub::of(&backend),
        backend,
        fence: Fence::new(limits.lease, None),
        limits,
        quotas: HashMap::new(),
        default_quota: Default::default(),
        profiles: HashMap::from([("support".to_owned(), profile)]),
        folders,
        node: NodeId::new(),
        host: "here".into(),
        placement: Default::default(),
        transcripts: false,
        peers: Default::default(),
        awake: Default::default(),
        events: broadcast::Sender::new(1024),
        draining: Default::default(),
        asked_to_drain: Default::default(),
        lost: Default::default(),
        ended: Default::default(),
        tasks: Default::default(),
    }
}

/// A prompt for a name.
pub(crate) fn accept(name: &str, wait: Duration) -> Accept {
    Accept {
        prompt: PromptId::new(),
        name: Name::new(name).unwrap(),
        profile: "support".into(),
        tenant: "acme".into(),
        conversation: Uuid::new_v4(),
        host: None,
        key: None,
        content: PromptContent { prompt: "hello".into(), continuation: None },
        continuations: 0,
        not_before: None,
        wait,
        budget: None,
        bounds: QueueBounds { name: 10_000, tenant: 10_000, fleet: 10_000 },
    }
}
