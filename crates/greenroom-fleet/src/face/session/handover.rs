//! Prompts that arrive while the fleet drains.

use crate::actor::context::FleetShared;
use crate::backend::Requests;
use crate::id::Name;
use crate::pages::all_nodes;
use crate::profile::Placement;
use crate::record::NodeState;

/// True if the fleet takes a prompt for a session: it is open, or it drains and another node can run the session.
///
/// A backend that does not answer counts as no other node: a prompt that is refused can be sent again elsewhere.
pub(super) async fn takes_prompt(shared: &FleetShared, name: &Name) -> bool {
    if !shared.draining.is_cancelled() {
        return true;
    }
    let has_ended = shared.ended.is_cancelled() || shared.lost.is_cancelled();
    !has_ended && !shared.backend.is_exclusive() && another_node_runs(shared, name).await
}

/// True if a node other than this one holds its lease, takes names, and is on a host on which the session may run.
async fn another_node_runs(shared: &FleetShared, name: &Name) -> bool {
    let Ok(record) = shared.ask(|backend| backend.name_record(name.clone())).await else { return false };
    // A session that is new is bound to this host if the placement says so.
    let here = (shared.placement == Placement::OnHost).then(|| shared.host.clone());
    let host = record.map_or(here, |record| record.host);
    let Ok(nodes) = shared.ask(|backend| Box::pin(all_nodes(backend))).await else { return false };
    let now = shared.backend.now();
    nodes.iter().any(|node| {
        node.id != shared.node
            && node.state == NodeState::Up
            && now < node.lease_until
            && host.as_ref().is_none_or(|host| *host == node.host)
    })
}
