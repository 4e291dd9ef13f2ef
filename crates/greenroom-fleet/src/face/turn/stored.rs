//! Reads of the backend for a reader of a turn.

use std::ops::RangeInclusive;
use std::time::Duration;

use backon::Retryable;

use crate::actor::context::FleetShared;
use crate::actor::retry::pauses;
use crate::backend::Reply;
use crate::error::{BackendError, FleetError};
use crate::request::StoredMessage;

/// The time that a backend has for its answer to a reader when the fleet has ended.
const LAST_ANSWER: Duration = Duration::from_secs(2);
/// Messages of the first page.
const FIRST: usize = 64;
/// Messages of a page, fewest and most.
const MESSAGES: RangeInclusive<usize> = 1..=1024;
/// Bytes of a page, as far as the messages of the page before tell.
const BYTES: usize = 1 << 20;

/// The size of the next page of messages. Pages of short messages are large, because each page may wait for a commit, and a
/// reader that is behind is to catch up. A page has at most four times as many messages as the page before.
pub(super) struct PageSize(usize);

impl Default for PageSize {
    fn default() -> Self {
        Self(FIRST)
    }
}

impl PageSize {
    pub(super) fn messages(&self) -> usize {
        self.0
    }

    /// Learns from the messages of a page how many fit the next one.
    pub(super) fn learn(&mut self, page: &[StoredMessage]) {
        let bytes: usize = page.iter().map(|message| message.json.len()).sum();
        if let Some(fit) = page.len().saturating_mul(BYTES).checked_div(bytes) {
            self.0 = fit.min(self.0 * 4).clamp(*MESSAGES.start(), *MESSAGES.end());
        }
    }
}

/// Reads from the backend, and waits while it is unavailable and the fleet runs.
pub(super) async fn read<'a, T>(
    shared: &'a FleetShared,
    mut request: impl FnMut() -> Reply<'a, T>,
) -> Result<T, FleetError> {
    let tell = |error: &BackendError, _| tracing::debug!(%error, "a reader waits for the backend");
    tokio::select! {
        biased;
        () = shared.ended.cancelled() => {}
        answer = (|| request()).retry(pauses()).when(BackendError::is_unavailable).notify(tell) => return Ok(answer?),
    }
    // The backend may hang for ever: that may be the reason why the fleet has ended.
    match tokio::time::timeout(LAST_ANSWER, request()).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(FleetError::Ended),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_a_megabyte_of_messages_or_so() {
        let mut page = PageSize::default();
        let of = |bytes| StoredMessage { seq: 1, json: "x".repeat(bytes) };
        let sizes: Vec<_> = [330, 330, 330, 2_048, 100_000, 1, 1, 1, 1]
            .map(|bytes| {
                page.learn(&[of(bytes), of(bytes)]);
                page.messages()
            })
            .to_vec();
        assert_eq!(sizes, [256, 1_024, 1_024, 512, 10, 40, 160, 640, 1_024]);
        page.learn(&[]);
        assert_eq!(page.messages(), 1_024);
    }
}
