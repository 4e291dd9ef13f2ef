//! A stream over a feed, which ends with the session.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use futures_util::StreamExt;
use futures_util::stream::unfold;
use tokio_util::sync::CancellationToken;

use super::feed::{FeedItem, Subscriber};

/// Events or messages of a session from the subscription on. A [`Stream`] that ends with the session.
pub struct Subscription<T>(Pin<Box<dyn Stream<Item = T> + Send + Sync>>);

impl<T: 'static> Subscription<T> {
    /// The items of the feed; a gap becomes `missed`. The stream ends after the last item of a session that has ended,
    /// even while handles of the session still exist.
    pub(crate) fn new<F: Clone + Send + 'static>(
        subscriber: Subscriber<F>,
        gone: CancellationToken,
        item: fn(F) -> T,
        missed: fn(u64) -> T,
    ) -> Self {
        let stream = unfold((subscriber, gone), move |(mut subscriber, gone)| async move {
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
        // Fused, so that polling after the end is safe.
        Self(Box::pin(stream.fuse()))
    }

    /// Waits for the next item; `None` after the last item of a session that has ended. Cancel-safe.
    pub async fn next(&mut self) -> Option<T> {
        StreamExt::next(&mut self.0).await
    }
}

impl<T> Stream for Subscription<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        self.0.as_mut().poll_next(cx)
    }
}

impl<T> fmt::Debug for Subscription<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Subscription")
    }
}
