//! Checks that a backend keeps its promises.

mod commands;
mod fences;
mod lost;
mod money;
mod ownership;
mod people;
mod prompts;
mod repeats;
mod stage;
mod terms;
mod turns;

use std::fmt;
use std::panic::AssertUnwindSafe;
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

type Check = fn(Stage) -> BoxFuture<'static, Checked>;

/// Checks every promise of [`Backend`] on backends that `make` makes, an empty one for each promise. A promise also counts as
/// broken if a request fails, panics, or takes longer than 30 s.
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
/// let kept = backend_conformance(async || Arc::new(MemoryBackend::new()) as _).await.unwrap();
/// assert!(kept.contains(&"a key that is used twice is one prompt"));
/// # }
/// ```
pub async fn backend_conformance(
    make: impl AsyncFn() -> std::sync::Arc<dyn Backend>,
) -> Result<Vec<&'static str>, Vec<BackendViolation>> {
    let mut kept = Vec::new();
    let mut broken = Vec::new();
    let promises = [
        prompts::PROMISES,
        ownership::PROMISES,
        turns::PROMISES,
        fences::PROMISES,
        lost::PROMISES,
        people::PROMISES,
        commands::PROMISES,
        terms::PROMISES,
        repeats::PROMISES,
        money::PROMISES,
    ];
    for (promise, check) in promises.into_iter().flatten().copied() {
        let stage = Stage::new(make().await);
        let run = AssertUnwindSafe(async move { check(stage.await?).await }).catch_unwind();
        let seen = match tokio::time::timeout(PATIENCE, run).await {
            Ok(Ok(Ok(()))) => {
                kept.push(promise);
                continue;
            }
            Ok(Ok(Err(seen))) => seen.0,
            Ok(Err(panic)) => {
                panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "a request panicked".to_owned())
            }
            Err(_) => format!("it took longer than {PATIENCE:?}"),
        };
        broken.push(BackendViolation { promise, seen });
    }
    if broken.is_empty() { Ok(kept) } else { Err(broken) }
}
