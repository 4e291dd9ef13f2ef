//! The duty to know the quotas that were set, and the tenants that are at their caps on all nodes together.
//!
//! ```text
//!  a claim is refused: at its cap ──► noted, and admission grants it no further slots here
//!    ▲                                  │ a name of it is freed, or five seconds: its account is read
//!    │                                  ▼
//!    └───────────────────────────── below its cap: admission may grant it slots
//! ```

use std::collections::{BTreeMap, HashSet};
use std::sync::Mutex;

use crate::actor::admitter::AdmitterMessage;
use crate::actor::context::FleetShared;
use crate::backend::Requests;
use crate::error::{BackendError, BackendErrorKind};
use crate::id::Tenant;
use crate::limits::Quota;
use crate::lock::locked;
use crate::pages::all_of;
use crate::request::Page;

/// The knowledge of a node about quotas.
#[derive(Default)]
pub(super) struct QuotaWatch {
    /// The number of quotas that were set by the last read. `None`: none was read.
    set: Mutex<Option<u64>>,
    /// Tenants at their caps of which a name was freed since the last look.
    freed: Mutex<HashSet<Tenant>>,
}

impl QuotaWatch {
    /// Notes that a name of a tenant is free. `true`: the tenant is at its cap.
    pub(super) fn freed(&self, shared: &FleetShared, tenant: &Tenant) -> bool {
        let is_at_cap = locked(&shared.at_cap).contains(tenant);
        if is_at_cap {
            locked(&self.freed).insert(tenant.clone());
        }
        is_at_cap
    }

    /// Reads the quotas that were set, if another one was set since. Answers with the tenants whose quotas have changed.
    pub(super) async fn look(&self, shared: &FleetShared) -> Result<Vec<Tenant>, BackendError> {
        let set = shared.backend.quotas_set().await?;
        if *locked(&self.set) == Some(set) {
            return Ok(Vec::new());
        }
        let after = |last: Option<&(Tenant, Quota)>| last.map(|(tenant, _)| tenant.clone());
        let rows = all_of(|last| shared.backend.quotas(after(last), Page::MOST)).await?;
        let changed = shared.quotas.replace(rows.into_iter().collect::<BTreeMap<_, _>>());
        *locked(&self.set) = Some(set);
        if !changed.is_empty() {
            shared.admission.send(AdmitterMessage::Requote(changed.clone()));
        }
        Ok(changed)
    }

    /// Reads the accounts of tenants that were at their caps, and lets admission grant slots to those that are below them. `are_all`: also of
    /// tenants of which no name is known to be free.
    pub(super) async fn lift(&self, shared: &FleetShared, are_all: bool) -> Result<(), BackendError> {
        let freed = std::mem::take(&mut *locked(&self.freed));
        let tenants: Vec<_> = {
            let at_cap = locked(&shared.at_cap);
            at_cap.iter().filter(|tenant| are_all || freed.contains(*tenant)).cloned().collect()
        };
        for tenant in tenants {
            let account = match shared.backend.tenant(tenant.clone()).await {
                Err(error) if error.kind() == BackendErrorKind::Damaged => {
                    tracing::error!(tenant = tenant.as_str(), %error, "a tenant stays at its cap: its account cannot be read");
                    continue;
                }
                account => account?,
            };
            if (account.live as usize) < shared.quotas.of(&tenant).live {
                locked(&shared.at_cap).remove(&tenant);
                shared.admission.send(AdmitterMessage::Lift(vec![tenant]));
            }
        }
        Ok(())
    }
}
