//! Lists that take several requests, for the handles of a fleet and for operations from outside.

use std::collections::BTreeMap;

use crate::backend::{Backend, Reply, Requests};
use crate::error::Result;
use crate::id::{Tenant, Timestamp};
use crate::query::feed::{FeedCursor, FeedPage};
use crate::record::usage::{Usage, UsageEntry, UsageQuery};
use crate::record::{Hold, NodeRecord};
use crate::request::Page;

/// All items of a list, by requests for those after the last one. The last page is an empty one.
pub(crate) async fn all_of<'a, T>(page: impl Fn(Option<&T>) -> Reply<'a, Vec<T>>) -> Result<Vec<T>> {
    let mut all = Vec::new();
    loop {
        let page = page(all.last()).await?;
        if page.is_empty() {
            return Ok(all);
        }
        all.extend(page);
    }
}

/// The nodes that are alive, and dead ones that still own names, in the order of their ids.
pub(crate) async fn all_nodes(backend: &dyn Backend) -> Result<Vec<NodeRecord>> {
    all_of(|last: Option<&NodeRecord>| backend.nodes(last.map(|node| node.id), Page::MOST)).await
}

/// The credentials that are held.
pub(crate) async fn all_holds(backend: &dyn Backend) -> Result<Vec<Hold>> {
    all_of(|last: Option<&Hold>| backend.holds(last.map(|hold| hold.credential.clone()), Page::MOST)).await
}

/// The usage of tenants in the periods of a query, summed up from requests for a page of hours after an hour and a tenant.
pub(crate) async fn usage_by_period<'a>(
    query: UsageQuery,
    page: impl Fn(Timestamp, Timestamp, Option<(Timestamp, Tenant)>) -> Reply<'a, Vec<UsageEntry>>,
) -> Result<Vec<UsageEntry>> {
    let (from, to) = query.span(query.period);
    let mut sums = BTreeMap::<(Timestamp, Tenant), Usage>::new();
    let mut after = None;
    loop {
        let page = page(from, to, after).await?;
        let Some(last) = page.last() else { break };
        after = Some((last.start, last.tenant.clone()));
        for entry in page {
            let start = entry.start.period(query.period);
            *sums.entry((start, entry.tenant)).or_default() += entry.usage;
        }
    }
    let entry = |((start, tenant), usage)| UsageEntry { start, tenant, usage };
    Ok(sums.into_iter().map(entry).collect())
}

/// A page of the feed. A page without entries has the newest ones sealed, and is read again.
pub(crate) async fn feed_page(
    backend: &dyn Backend,
    of: Option<Tenant>,
    after: FeedCursor,
    limit: usize,
) -> Result<FeedPage> {
    let page = backend.feed(of.clone(), after.clone(), limit).await?;
    match &page {
        FeedPage::Entries { entries, .. } if entries.is_empty() && backend.seal_feed().await? => {
            backend.feed(of, after, limit).await
        }
        _ => Ok(page),
    }
}
