//! A stream over a feed, which ends with the session.

use std::pin::Pin;
use std::task::Poll;

use futures_core::Stream;
use futures_util::StreamExt;
use tokio_util::sync::CancellationToken;

use super::feed::{FeedItem, Subscriber};

pub(crate) type Subscription<T> = Pin<Box<dyn Stream<Item = T> + Send + Sync>>;

/// The items of a feed as a stream; a gap becomes `missed`. The stream ends after the last item of a session that has
/// ended, even while handles of the session still exist.
pub(crate) fn subscription<T, S>(
    subscriber: Subscriber<T>,
    gone: CancellationToken,
    item: fn(T) -> S,
    missed: fn(u64) -> S,
) -> Subscription<S>
where
    T: Clone + Send + 'static,
    S: 'static,
{
    // Fused, so that polling after the end is safe.
    let stream = futures_util::stream::unfold((subscriber, gone), move |(mut subscriber, gone)| async move {
        let received = tokio::select! {
            biased;
            received = subscriber.receive() => received,
            () = gone.cancelled() => match subscriber.try_receive() {
                Poll::Ready(received) => received,
                Poll::Pending => None,
            },
        };
        let next = match received? {
            FeedItem::Item(value) => item(value),
            FeedItem::Missed(count) => missed(count),
        };
        Some((next, (subscriber, gone)))
    });
    Box::pin(stream.fuse())
}
