//! Hosts, and the files of sessions on them.

use serde::Serialize;

use crate::backend::{Backend, Requests};
use crate::error::BackendError;
use crate::id::{Name, NodeId};
use crate::pages::all_nodes;
use crate::query::lists::{NamePage, NameQuery};
use crate::request::HostMove;

/// Names in one request.
const NAMES: usize = 64;

/// A host that was forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ForgottenHost {
    /// Sessions that had files there, deleted ones included.
    pub files: usize,
    /// Processes that lost owners had left there.
    pub processes: usize,
    /// Sessions that are bound to the host still: move each to another host, or delete it.
    pub bound: Vec<Name>,
}

/// An operation on a host was not carried out.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// A node of the host is alive, so the host is not gone.
    #[error("the node {node} of the host '{host}' is alive: end it, and wait until its lease is over")]
    Alive {
        /// The host.
        host: String,
        /// The node.
        node: NodeId,
    },
    /// No node of the host is alive.
    #[error("no node of the host '{0}' is alive: check the name of the host, or start a node there")]
    NoNode(String),
    /// The session is not known.
    #[error("the session '{0}' is not known")]
    NotFound(Name),
    /// The session can run on any host.
    #[error("the session '{0}' is bound to no host: it runs on any")]
    NotBound(Name),
    /// The session is not at rest.
    #[error("the session '{0}' is awake, is being deleted, or moves to another backend: have it sleep")]
    NotAtRest(Name),
    /// The backend has failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

pub(crate) async fn forget_host(backend: &dyn Backend, host: &str) -> Result<ForgottenHost, HostError> {
    let nodes = all_nodes(backend).await?;
    if let Some(alive) = nodes.iter().find(|node| node.is_alive() && node.host == host) {
        return Err(HostError::Alive { host: host.to_owned(), node: alive.id });
    }
    let mut forgotten = ForgottenHost::default();
    loop {
        let left = backend.files_left(Some(host.to_owned()), NAMES).await?;
        if left.is_empty() {
            break;
        }
        forgotten.files += left.len();
        let names = left.iter().map(|files| files.name.clone()).collect();
        // Remove these before the rows that lead to them.
        forgotten.processes += backend.forget_files(host.to_owned(), names).await?.processes;
        for files in left {
            backend.files_removed(files).await?;
        }
    }
    let mut query = NameQuery::new().limit(NAMES);
    loop {
        let NamePage { names, next } = backend.names(query.clone()).await?;
        let of = names.iter().map(|record| record.name.clone()).collect();
        let known = backend.forget_files(host.to_owned(), of).await?;
        forgotten.files += known.files;
        forgotten.processes += known.processes;
        let bound = names.iter().filter(|record| record.host.as_deref() == Some(host));
        forgotten.bound.extend(bound.map(|record| record.name.clone()));
        let Some(next) = next else { return Ok(forgotten) };
        query = query.after(next);
    }
}

pub(crate) async fn move_to_host(backend: &dyn Backend, name: Name, host: String) -> Result<(), HostError> {
    match backend.move_to_host(name.clone(), host.clone()).await? {
        HostMove::Done => Ok(()),
        HostMove::NotAtRest => Err(HostError::NotAtRest(name)),
        HostMove::NotBound => Err(HostError::NotBound(name)),
        HostMove::NoNode => Err(HostError::NoNode(host)),
        HostMove::Gone => Err(HostError::NotFound(name)),
    }
}
