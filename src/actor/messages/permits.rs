//! Permits that travel with messages of the CLI to the conversation, whose mailbox has no limit of its own.

use tokio::sync::OwnedSemaphorePermit;

/// Permits for the bytes of messages on their way to the conversation (`Limits::message_lane_bytes`). Released when the
/// conversation takes the messages, or ends.
#[derive(Default)]
pub(crate) struct LanePermit(Option<OwnedSemaphorePermit>);

impl LanePermit {
    pub(crate) fn new(permit: Option<OwnedSemaphorePermit>) -> Self {
        Self(permit)
    }

    /// Splits off `count` permits, or all permits if there are fewer.
    pub(crate) fn split(&mut self, count: usize) -> Self {
        let part = self.0.as_mut().and_then(|permit| permit.split(count));
        Self(part.or_else(|| self.0.take()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Semaphore;

    use super::*;

    #[test]
    fn parts_of_a_message_permit_are_released_one_by_one() {
        let lane = Arc::new(Semaphore::new(100));
        let mut whole = LanePermit::new(lane.clone().try_acquire_many_owned(90).ok());
        let part = whole.split(40);
        assert_eq!(lane.available_permits(), 10);
        drop(part);
        assert_eq!(lane.available_permits(), 50);
        // A message larger than the lane holds fewer permits than it has bytes.
        drop(whole.split(1000));
        assert_eq!(lane.available_permits(), 100);
        assert!(whole.split(1).0.is_none());
    }
}
