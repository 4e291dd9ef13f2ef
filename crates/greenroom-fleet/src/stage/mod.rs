//! A stage for unit tests of actors: what a fleet's actors share, over a backend of the test.

pub(crate) mod turn;

use std::sync::Arc;
use std::time::Duration;

use greenroom::Session;
use uuid::Uuid;

use crate::actor::context::FleetShared;
use crate::backend::{Backend, Requests};
use crate::face::fleet::Fleet;
use crate::id::{Name, PromptId, Tenant};
use crate::limits::FleetLimits;
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
    let builder = Fleet::builder().configure(|fleet| *fleet = limits);
    let mut builder = builder.profile("support", |_| Session::builder()).host("here");
    builder.backend = Some(backend);
    builder.shared().unwrap()
}

/// A name of the tenant `acme`, or of the tenant before a `/`.
pub(crate) fn name(name: &str) -> Name {
    if name.contains('/') { name.parse().unwrap() } else { format!("acme/{name}").parse().unwrap() }
}

pub(crate) fn tenant(tenant: &str) -> Tenant {
    Tenant::new(tenant).unwrap()
}

/// A prompt for a name.
pub(crate) fn accept(name: &str, wait: Duration) -> Accept {
    Accept {
        prompt: PromptId::new(),
        name: self::name(name),
        profile: "support".into(),
        conversation: Uuid::new_v4(),
        host: None,
        key: None,
        labels: Default::default(),
        content: PromptContent { prompt: "hello".into(), continuation: None },
        continuations: 0,
        not_before: None,
        wait,
        quota: crate::Quota::default(),
        bounds: QueueBounds { name: 10_000, tenant: 10_000, fleet: 10_000, ..Default::default() },
    }
}
