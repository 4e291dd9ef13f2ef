//! Waits until something happens, at most so long: the one helper of all test binaries.
//!
//! A test waits for an event. The limit only ends a test that would hang, so it is far more than anything takes on a busy
//! machine. A state is looked at again and again only where no event tells its change.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::fmt::Display;
use std::panic::Location;
use std::time::{Duration, Instant};

/// Longest wait in real time.
pub(crate) const SOON: Duration = Duration::from_secs(300);

/// Longest wait on tokio's paused clock, where time costs nothing.
const PAUSED: Duration = Duration::from_secs(3 * 3600);

/// Pause between two looks at something that tells no event.
const LOOK: Duration = Duration::from_millis(5);

/// Awaits the work.
///
/// # Panics
/// After `limit` on tokio's clock, with the line that waits.
#[track_caller]
pub(crate) fn within<T>(limit: Duration, work: impl Future<Output = T>) -> impl Future<Output = T> {
    let here = Location::caller();
    async move {
        match tokio::time::timeout(limit, work).await {
            Ok(done) => done,
            Err(_) => panic!("not within {limit:?}: {}", line(here)),
        }
    }
}

/// Awaits the work, which `what` names.
///
/// # Panics
/// After [`SOON`] of real time, or hours on a paused clock, with `what` and the line that waits.
#[track_caller]
pub(crate) fn in_time<T>(what: impl Display, work: impl Future<Output = T>) -> impl Future<Output = T> {
    let here = Location::caller();
    async move {
        // In a box: a pinned future in this one would make it twice as large.
        let mut work = Box::pin(work);
        let begun = Instant::now();
        if let Ok(done) = tokio::time::timeout(SOON, &mut work).await {
            return done;
        }
        // The clock is paused if it has passed the limit before it was over.
        if begun.elapsed() < SOON / 2
            && let Ok(done) = tokio::time::timeout(PAUSED, &mut work).await
        {
            return done;
        }
        panic!("{what}: not within {:?} of real time: {}", begun.elapsed(), line(here))
    }
}

/// Looks until there is something, for states that tell no event.
///
/// # Panics
/// As [`in_time`].
#[track_caller]
pub(crate) fn found<T>(what: impl Display, mut look: impl FnMut() -> Option<T>) -> impl Future<Output = T> {
    in_time(what, async move {
        loop {
            if let Some(found) = look() {
                return found;
            }
            tokio::time::sleep(LOOK).await;
        }
    })
}

/// [`found`] without a runtime.
///
/// # Panics
/// After [`SOON`], with `what` and the line that waits.
#[track_caller]
pub(crate) fn found_by_thread<T>(what: impl Display, mut look: impl FnMut() -> Option<T>) -> T {
    let (begun, here) = (Instant::now(), Location::caller());
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < SOON, "{what}: not within {SOON:?}: {}", line(here));
        std::thread::park_timeout(LOOK);
    }
}

/// The place, and what stands there. Paths are relative to the workspace; tests run in their package's folder.
fn line(here: &Location<'_>) -> String {
    let mut folders = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let text = folders.find_map(|folder| std::fs::read_to_string(folder.join(here.file())).ok());
    let text = text.as_deref().and_then(|text| text.lines().nth(here.line() as usize - 1));
    format!("{here}: {}", text.unwrap_or_default().trim())
}
