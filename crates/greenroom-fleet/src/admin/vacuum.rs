//! Forgets prompts that ended long ago.

use std::time::Duration;

use crate::backend::{Backend, Requests};
use crate::error::BackendError;
use crate::id::Timestamp;

/// Prompts that are forgotten in one request.
const FORGET: usize = 500;

pub(super) async fn vacuum(backend: &dyn Backend, age: Duration, most: usize) -> Result<usize, BackendError> {
    let age = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
    let before = Timestamp(backend.now().0.saturating_sub(age));
    let mut removed = 0;
    while removed < most {
        match backend.forget(before, FORGET.min(most - removed)).await? {
            0 => break,
            forgotten => removed += forgotten,
        }
    }
    Ok(removed)
}
