//! Checks that a backend keeps its promises.

mod at_once;
mod one_by_one;
mod stage;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::backend::Backend;
use crate::error::debug_as_report;
use stage::Stage;

/// A promise of [`Backend`] that a backend has broken.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{promise}: {seen}")]
#[non_exhaustive]
pub struct BackendViolation {
    /// The promise.
    pub promise: &'static str,
    /// The behaviour that was seen instead.
    pub seen: String,
}

debug_as_report!(BackendViolation);

/// The time that a promise may take on a slow backend.
const PATIENCE: Duration = Duration::from_secs(30);

type Check = for<'a> fn(&'a Stage) -> BoxFuture<'a, ()>;

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
    let mut note = |promise, seen| match seen {
        None => kept.push(promise),
        Some(seen) => broken.push(BackendViolation { promise, seen }),
    };
    let stage = async |store| {
        let backend = open(store).await;
        // Without a second process, two handles of one store.
        let other = if backend.is_shared() { open(store).await } else { backend.clone() };
        Stage { backend, other }
    };
    // Each promise has a store of its own.
    let promises = [one_by_one::PROMISES, at_once::PROMISES].concat();
    for (store, (promise, check)) in promises.iter().enumerate() {
        note(*promise, seen(check(&stage(store).await)).await);
    }
    let first = stage(promises.len()).await;
    if first.backend.is_exclusive() || first.backend.is_shared() {
        let mut seen_first = seen(Box::pin(one_by_one::leave_rows(&first))).await;
        drop(first);
        if seen_first.is_none() {
            seen_first = seen(Box::pin(one_by_one::find_rows(&stage(promises.len()).await))).await;
        }
        note("what was committed is there when the store is opened again", seen_first);
    }
    if broken.is_empty() { Ok(kept) } else { Err(broken) }
}

/// The behaviour that was seen in place of the promise. `None`: the promise was kept.
async fn seen(check: BoxFuture<'_, ()>) -> Option<String> {
    match tokio::time::timeout(PATIENCE, AssertUnwindSafe(check).catch_unwind()).await {
        Ok(Ok(())) => None,
        Ok(Err(panic)) => {
            Some(panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "a request panicked".to_owned()))
        }
        Err(_) => Some(format!("it took longer than {PATIENCE:?}")),
    }
}
