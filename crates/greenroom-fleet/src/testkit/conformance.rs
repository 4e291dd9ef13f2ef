//! Checks that a backend keeps its promises.

mod at_once;
mod commits;
mod reads;
mod stage;

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::backend::Backend;
use stage::{Checked, Stage};

/// A promise of [`Backend`] that a backend has broken.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackendViolation {
    /// The promise.
    pub promise: &'static str,
    /// The behaviour that was seen instead.
    pub seen: String,
}

impl fmt::Display for BackendViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.promise, self.seen)
    }
}

/// The time that a promise may take on a slow backend.
const PATIENCE: Duration = Duration::from_secs(30);

type Check = for<'a> fn(&'a Stage) -> BoxFuture<'a, Checked>;

/// Checks every promise of [`Backend`]. A promise also counts as broken if a read or a commit fails, panics, or takes longer than 30 s.
///
/// `open` opens the store of a number. Stores of different numbers share nothing, and a store is empty when it is opened for the first
/// time. A backend that is [shared](Backend::is_shared) is opened twice, as two processes do it, and one that is
/// [exclusive](Backend::is_exclusive) once more after all clones of it are dropped.
///
/// Returns the promises, all of them kept.
///
/// # Errors
/// The promises that were broken.
///
/// ```
/// use std::sync::Arc;
///
/// use greenroom_fleet::backend::MemoryBackend;
/// use greenroom_fleet::testkit::backend_conformance;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let kept = backend_conformance(async |_| Arc::new(MemoryBackend::new()) as _).await.unwrap();
/// assert!(kept.contains(&"a commit that is in conflict writes nothing"));
/// # }
/// ```
pub async fn backend_conformance(
    open: impl AsyncFn(usize) -> Arc<dyn Backend>,
) -> Result<Vec<&'static str>, Vec<BackendViolation>> {
    let (mut kept, mut broken) = (Vec::new(), Vec::new());
    let promises = [reads::PROMISES, commits::PROMISES, at_once::PROMISES];
    for (store, (promise, check)) in promises.into_iter().flatten().copied().enumerate() {
        let backend = open(store).await;
        // Without a second process, two handles of one store.
        let other = if backend.is_shared() { open(store).await } else { backend.clone() };
        let stage = Stage { backend, other };
        match seen(check(&stage)).await {
            None => kept.push(promise),
            Some(seen) => broken.push(BackendViolation { promise, seen }),
        }
    }
    // Each promise had a store of its own.
    let (promise, store) =
        ("what was committed is there when the store is opened again", kept.len() + broken.len());
    let backend = open(store).await;
    if backend.is_exclusive() || backend.is_shared() {
        let stage = Stage { other: backend.clone(), backend };
        let mut seen_first = seen(Box::pin(commits::leave_rows(&stage))).await;
        drop(stage);
        if seen_first.is_none() {
            let backend = open(store).await;
            let stage = Stage { other: backend.clone(), backend };
            seen_first = seen(Box::pin(commits::find_rows(&stage))).await;
        }
        match seen_first {
            None => kept.push(promise),
            Some(seen) => broken.push(BackendViolation { promise, seen }),
        }
    }
    if broken.is_empty() { Ok(kept) } else { Err(broken) }
}

/// The behaviour that was seen in place of the promise. `None`: the promise was kept.
async fn seen(check: BoxFuture<'_, Checked>) -> Option<String> {
    match tokio::time::timeout(PATIENCE, AssertUnwindSafe(check).catch_unwind()).await {
        Ok(Ok(Ok(()))) => None,
        Ok(Ok(Err(seen))) => Some(seen.0),
        Ok(Err(panic)) => {
            Some(panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "a request panicked".to_owned()))
        }
        Err(_) => Some(format!("it took longer than {PATIENCE:?}")),
    }
}
