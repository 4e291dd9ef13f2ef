//! A subscription: what is told from now on, until the session is no more.

use std::pin::Pin;
use std::task::Poll;

use futures_core::Stream;
use futures_util::StreamExt;
use tokio_util::sync::CancellationToken;

use super::feed::{Heard, Listener};

pub(crate) type Subscription<T> = Pin<Box<dyn Stream<Item = T> + Send + Sync>>;

/// The stream of what a listener hears, with `missed` for what it lost. It ends when all was heard and the session
/// is gone, even while handles of the session are still held.
pub(crate) fn subscription<T, S>(
    listener: Listener<T>,
    gone: CancellationToken,
    told: fn(T) -> S,
    missed: fn(u64) -> S,
) -> Subscription<S>
where
    T: Clone + Send + 'static,
    S: 'static,
{
    // Fused, for whoever asks on after the end.
    let stream = futures_util::stream::unfold((listener, gone), move |(mut listener, gone)| async move {
        let heard = tokio::select! {
            biased;
            heard = listener.hear() => heard,
            () = gone.cancelled() => match listener.try_hear() {
                Poll::Ready(heard) => heard,
                Poll::Pending => None,
            },
        };
        let item = match heard? {
            Heard::Told(item) => told(item),
            Heard::Missed(count) => missed(count),
        };
        Some((item, (listener, gone)))
    });
    Box::pin(stream.fuse())
}
