//! Whole lists, read page by page.

use crate::backend::{Backend, Reply, Requests};
use crate::error::Result;
use crate::record::NodeRecord;
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
