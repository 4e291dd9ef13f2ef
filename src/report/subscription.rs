//! A subscription: what is told from now on, until the session is no more.

use std::pin::Pin;

use futures_core::Stream;
use futures_util::StreamExt;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio_util::sync::CancellationToken;

pub(crate) type Subscription<T> = Pin<Box<dyn Stream<Item = T> + Send + Sync>>;

/// The stream of what a receiver gets, with `missed` for what it lost. It ends when all was read and the session
/// is gone, even while handles of the session are still held.
pub(crate) fn subscription<T, S>(
    receiver: Receiver<T>,
    gone: CancellationToken,
    told: fn(T) -> S,
    missed: fn(u64) -> S,
) -> Subscription<S>
where
    T: Clone + Send + 'static,
    S: 'static,
{
    // Fused, for whoever asks on after the end.
    let stream = futures_util::stream::unfold((receiver, gone), move |(mut receiver, gone)| async move {
        let received = tokio::select! {
            biased;
            received = receiver.recv() => received,
            () = gone.cancelled() => match receiver.try_recv() {
                Ok(item) => Ok(item),
                Err(TryRecvError::Lagged(count)) => Err(RecvError::Lagged(count)),
                Err(TryRecvError::Empty | TryRecvError::Closed) => Err(RecvError::Closed),
            },
        };
        match received {
            Ok(item) => Some((told(item), (receiver, gone))),
            Err(RecvError::Lagged(count)) => Some((missed(count), (receiver, gone))),
            Err(RecvError::Closed) => None,
        }
    });
    Box::pin(stream.fuse())
}
