//! Follows the session's router across its restarts.

use std::sync::Arc;

use tokio::sync::watch;

use crate::actor::context::Shared;
use crate::actor::messages::router::RouterLink;
use crate::actor::outbound::Outbound;
use crate::actor::request::ledger::Ledger;
use crate::actor::request::pending::RequestOrigin;
use crate::actor::router::routes::{Route, Routes};

/// The current router, as the reader of one incarnation needs it.
pub(super) struct FollowedRouter {
    shared: Arc<Shared>,
    outbound: Outbound,
    routers: watch::Receiver<Option<RouterLink>>,
    /// `None` before the first router, and while there is no next one.
    current: Option<(RouterLink, Arc<RequestOrigin>)>,
    routes: Arc<Routes>,
}

impl FollowedRouter {
    pub(super) fn new(shared: Arc<Shared>, outbound: Outbound) -> Self {
        let routers = shared.router.subscribe();
        let mut router = Self { shared, outbound, routers, current: None, routes: Arc::default() };
        router.take_latest();
        router
    }

    pub(super) fn route(&self, server: &str) -> Option<&Arc<Route>> {
        self.routes.get(server)
    }

    pub(super) fn link(&self) -> Option<&RouterLink> {
        self.current.as_ref().map(|(link, _)| link)
    }

    /// Takes over a new router, or the routes that the current one has published.
    pub(super) fn refresh(&mut self) {
        if self.routers.has_changed().unwrap_or(false) {
            self.take_latest();
        } else if let Some((link, _)) = &mut self.current
            && link.routes.has_changed().unwrap_or(false)
        {
            self.routes = link.routes.borrow_and_update().clone();
        }
    }

    /// The ledger and the origin for new requests, if the current router lives.
    pub(super) fn ledger_now(&self) -> Option<(Arc<Ledger>, Arc<RequestOrigin>)> {
        let (link, origin) = self.current.as_ref().filter(|(link, _)| !link.ledger.is_closed())?;
        Some((link.ledger.clone(), origin.clone()))
    }

    /// The ledger and the origin for new requests; waits for the next router if the current one has ended. Without a
    /// next one the ledger is closed, and requests are answered by their drop.
    pub(super) async fn ledger(&mut self) -> (Arc<Ledger>, Arc<RequestOrigin>) {
        self.refresh();
        while self.current.is_some() {
            if let Some(found) = self.ledger_now() {
                return found;
            }
            self.next().await;
        }
        let closed = Arc::<Ledger>::default();
        closed.close();
        let origin = self.new_origin(&closed);
        (closed, origin)
    }

    fn new_origin(&self, ledger: &Ledger) -> Arc<RequestOrigin> {
        Arc::new(RequestOrigin {
            outbound: self.outbound.clone(),
            ledger_bell: ledger.bell().clone(),
            counting: self.shared.counting.clone(),
            gate: self.shared.gate.clone(),
        })
    }

    /// Waits up to `timeouts.child_stop` for the router that follows the current one, which has ended.
    pub(super) async fn next(&mut self) {
        let ended = self.current.take().map(|(link, _)| link.actor.get_id());
        let limit = self.shared.options().timeouts.child_stop;
        let is_next = |router: &Option<RouterLink>| {
            router.as_ref().is_some_and(|router| Some(router.actor.get_id()) != ended)
        };
        let next = tokio::time::timeout(limit, self.routers.wait_for(is_next)).await;
        if matches!(next, Ok(Ok(_))) {
            drop(next);
            self.take_latest();
        }
    }

    fn take_latest(&mut self) {
        let router = self.routers.borrow_and_update().clone();
        if let Some(mut link) = router {
            // The router may not have been told yet that the incarnation before this one has ended.
            link.ledger.end_epoch(self.outbound.epoch().saturating_sub(1));
            self.routes = link.routes.borrow_and_update().clone();
            let origin = self.new_origin(&link.ledger);
            self.current = Some((link, origin));
        }
    }
}
