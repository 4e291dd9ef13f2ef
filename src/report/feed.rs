//! A broadcast channel: each subscriber gets the items from its subscription on, in order, and the sender never waits.
//!
//! Unlike `tokio::sync::broadcast`, a feed holds only items that a subscriber has not received yet, so an idle feed
//! takes almost no memory at any limit; and the limits, in items and in bytes, are exact. An item without subscribers is
//! dropped at once. An item for several subscribers is held, and counted, once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use tokio::sync::Notify;

/// The sending end. When it is dropped, subscribers receive the remaining items and then the end.
#[derive(Debug)]
pub(crate) struct Feed<T> {
    hub: Arc<Hub<T>>,
}

/// A receiving end.
#[derive(Debug)]
pub(crate) struct Subscriber<T> {
    hub: Arc<Hub<T>>,
    /// Number of the next item, counted from the first item of the feed.
    next: u64,
}

/// An item, or a gap.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FeedItem<T> {
    Item(T),
    /// Number of items that this subscriber has lost before the next item.
    Missed(u64),
}

#[derive(Debug)]
struct Hub<T> {
    state: Mutex<FeedState<T>>,
    news: Notify,
}

#[derive(Debug)]
struct FeedState<T> {
    items: VecDeque<Unreceived<T>>,
    /// Number of the first item in `items`.
    first: u64,
    /// Bytes of `items`.
    bytes: usize,
    /// Limit of items.
    limit: usize,
    /// Limit of bytes. A larger item is held alone.
    byte_limit: usize,
    subscribers: usize,
    closed: bool,
}

#[derive(Debug)]
struct Unreceived<T> {
    item: T,
    bytes: usize,
    /// Subscribers that have not received the item. Later subscribers do not count, so items reach 0 from front to
    /// back.
    unreceived: usize,
}

/// Capacity beyond this is released when the feed is empty.
const KEEP: usize = 32;

impl<T> Feed<T> {
    /// A feed that holds at most `limit` items of at most `byte_limit` bytes for slow subscribers. A single item may be
    /// larger if it is the only one held.
    pub(crate) fn new(limit: usize, byte_limit: usize) -> Self {
        let state = FeedState {
            items: VecDeque::new(),
            first: 0,
            bytes: 0,
            limit,
            byte_limit,
            subscribers: 0,
            closed: false,
        };
        Self { hub: Arc::new(Hub { state: Mutex::new(state), news: Notify::new() }) }
    }

    /// Sends an item that takes so many bytes to all current subscribers. Drops the oldest items past the limits.
    pub(crate) fn send(&self, item: T, bytes: usize) {
        let mut state = self.hub.state();
        let unreceived = state.subscribers;
        if unreceived == 0 {
            return;
        }
        while state.items.len() >= state.limit || state.bytes.saturating_add(bytes) > state.byte_limit {
            if state.pop().is_none() {
                break;
            }
        }
        state.bytes += bytes;
        state.items.push_back(Unreceived { item, bytes, unreceived });
        drop(state);
        self.hub.news.notify_waiters();
    }

    /// Whether there is a subscriber.
    pub(crate) fn has_subscribers(&self) -> bool {
        self.hub.state().subscribers > 0
    }

    /// Subscribes from now on.
    pub(crate) fn subscribe(&self) -> Subscriber<T> {
        let mut state = self.hub.state();
        state.subscribers += 1;
        Subscriber { next: state.end(), hub: self.hub.clone() }
    }
}

impl<T> Drop for Feed<T> {
    fn drop(&mut self) {
        self.hub.state().closed = true;
        self.hub.news.notify_waiters();
    }
}

impl<T: Clone> Subscriber<T> {
    /// Waits for the next item; `None` at the end. Cancel-safe.
    pub(crate) async fn receive(&mut self) -> Option<FeedItem<T>> {
        loop {
            // Created before the check, so that no notification is missed in between.
            let news = self.hub.news.notified();
            if let Poll::Ready(received) = self.hub.state().receive(&mut self.next) {
                return received;
            }
            news.await;
        }
    }

    /// The next item, if it is there already.
    pub(crate) fn try_receive(&mut self) -> Poll<Option<FeedItem<T>>> {
        self.hub.state().receive(&mut self.next)
    }
}

impl<T> Drop for Subscriber<T> {
    fn drop(&mut self) {
        let mut state = self.hub.state();
        state.subscribers -= 1;
        // Items that were dropped before this subscriber received them are no longer in the list.
        let from = usize::try_from(self.next.saturating_sub(state.first)).unwrap_or(usize::MAX);
        state.items.iter_mut().skip(from).for_each(|item| item.unreceived -= 1);
        while state.items.front().is_some_and(|item| item.unreceived == 0) {
            state.pop();
        }
        state.give_back();
    }
}

impl<T> Hub<T> {
    /// A poisoned lock is safe to use: only the clone of an item may panic, and it comes before any change.
    fn state(&self) -> MutexGuard<'_, FeedState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> FeedState<T> {
    /// Number of the next item that will be sent.
    fn end(&self) -> u64 {
        self.first + self.items.len() as u64
    }

    /// Removes the oldest item.
    fn pop(&mut self) -> Option<T> {
        let Unreceived { item, bytes, .. } = self.items.pop_front()?;
        self.first += 1;
        self.bytes -= bytes;
        Some(item)
    }

    fn give_back(&mut self) {
        if self.items.is_empty() && self.items.capacity() > KEEP {
            self.items = VecDeque::new();
        }
    }
}

impl<T: Clone> FeedState<T> {
    /// The item with the number `next`.
    fn receive(&mut self, next: &mut u64) -> Poll<Option<FeedItem<T>>> {
        if let Some(missed) = self.first.checked_sub(*next).filter(|missed| *missed > 0) {
            *next = self.first;
            return Poll::Ready(Some(FeedItem::Missed(missed)));
        }
        let at = usize::try_from(*next - self.first).unwrap_or(usize::MAX);
        let Some(found) = self.items.get_mut(at) else {
            return if self.closed { Poll::Ready(None) } else { Poll::Pending };
        };
        let item = if found.unreceived > 1 {
            let item = found.item.clone();
            found.unreceived -= 1;
            Some(item)
        } else {
            // All subscribers have received all items before this item, so it is the first in the list.
            self.pop()
        };
        *next += 1;
        self.give_back();
        Poll::Ready(item.map(FeedItem::Item))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{FutureExt, poll};
    use proptest::prelude::*;
    use tokio::sync::broadcast::{self, error::TryRecvError};

    fn kept<T>(feed: &Feed<T>) -> (usize, usize) {
        let state = feed.hub.state();
        (state.items.len(), state.items.capacity())
    }

    #[test]
    fn items_that_all_subscribers_received_are_not_held() {
        let feed = Feed::new(1 << 20, usize::MAX);
        feed.send(0, 1);
        assert_eq!(kept(&feed), (0, 0), "no subscribers");
        let (mut first, mut second) = (feed.subscribe(), feed.subscribe());
        (1..=1000).for_each(|n| feed.send(n, 1));
        for n in 1..=1000 {
            assert_eq!(first.try_receive(), Poll::Ready(Some(FeedItem::Item(n))));
        }
        assert_eq!(kept(&feed).0, 1000);
        for n in 1..=500 {
            assert_eq!(second.try_receive(), Poll::Ready(Some(FeedItem::Item(n))));
        }
        assert_eq!(kept(&feed).0, 500);
        drop(second);
        assert_eq!(kept(&feed), (0, 0), "and the room is given back");
        assert_eq!(first.try_receive(), Poll::Pending);
    }

    #[tokio::test]
    async fn a_subscriber_wakes_and_gets_the_rest_before_the_end() {
        let feed = Feed::new(2, usize::MAX);
        let mut subscriber = feed.subscribe();
        {
            let mut waiting = Box::pin(subscriber.receive());
            assert!(poll!(&mut waiting).is_pending());
            feed.send('a', 1);
            assert_eq!(waiting.await, Some(FeedItem::Item('a')));
        }
        ['b', 'c', 'd'].into_iter().for_each(|item| feed.send(item, 1));
        drop(feed);
        assert_eq!(subscriber.receive().await, Some(FeedItem::Missed(1)));
        assert_eq!(subscriber.receive().await, Some(FeedItem::Item('c')));
        assert_eq!(subscriber.receive().await, Some(FeedItem::Item('d')));
        assert_eq!(subscriber.receive().await, None);
        assert_eq!(subscriber.receive().await, None);
    }

    #[test]
    fn past_the_bytes_the_oldest_are_missed_and_a_large_item_is_held_alone() {
        let feed = Feed::new(100, 10);
        let mut slow = feed.subscribe();
        let mut quick = feed.subscribe();
        let mut sent = |item, bytes| {
            feed.send(item, bytes);
            assert_eq!(
                quick.try_receive(),
                Poll::Ready(Some(FeedItem::Item(item))),
                "one that is up to date"
            );
        };
        sent('a', 5);
        sent('b', 5);
        sent('c', 1);
        assert_eq!(slow.try_receive(), Poll::Ready(Some(FeedItem::Missed(1))));
        assert_eq!(slow.try_receive(), Poll::Ready(Some(FeedItem::Item('b'))));
        // Received items leave room.
        sent('d', 9);
        assert_eq!(slow.try_receive(), Poll::Ready(Some(FeedItem::Item('c'))));
        sent('e', 1000);
        assert_eq!(slow.try_receive(), Poll::Ready(Some(FeedItem::Missed(1))));
        assert_eq!(slow.try_receive(), Poll::Ready(Some(FeedItem::Item('e'))));
        assert_eq!((kept(&feed).0, feed.hub.state().bytes), (0, 0));
        sent('f', 10);
        assert_eq!(slow.try_receive(), Poll::Ready(Some(FeedItem::Item('f'))));
    }

    #[tokio::test]
    async fn the_end_wakes_a_waiting_subscriber() {
        let feed = Feed::<()>::new(1, usize::MAX);
        let mut subscriber = feed.subscribe();
        let mut waiting = Box::pin(subscriber.receive());
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(feed);
        assert_eq!(waiting.await, None);
    }

    #[derive(Clone, Copy, Debug)]
    enum Act {
        Send,
        Subscribe,
        Receive(usize),
        Leave(usize),
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            4 => Just(Act::Send),
            1 => Just(Act::Subscribe),
            4 => (0usize..4).prop_map(Act::Receive),
            1 => (0usize..4).prop_map(Act::Leave),
        ]
    }

    proptest! {
        #[test]
        fn it_behaves_like_a_broadcast_channel(acts in proptest::collection::vec(act(), 0..200), shift in 0u32..4) {
            let limit = 1usize << shift;
            let feed = Feed::new(limit, usize::MAX);
            let sender = broadcast::channel(limit).0;
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for (n, act) in acts.into_iter().enumerate() {
                match act {
                    Act::Send => {
                        feed.send(n, 1);
                        sender.send(n).ok();
                    }
                    Act::Subscribe => {
                        ours.push(feed.subscribe());
                        theirs.push(sender.subscribe());
                    }
                    Act::Receive(at) if at < ours.len() => {
                        let expected = match theirs[at].try_recv() {
                            Ok(item) => Poll::Ready(Some(FeedItem::Item(item))),
                            Err(TryRecvError::Lagged(missed)) => Poll::Ready(Some(FeedItem::Missed(missed))),
                            Err(TryRecvError::Closed) => Poll::Ready(None),
                            Err(TryRecvError::Empty) => Poll::Pending,
                        };
                        prop_assert_eq!(ours[at].try_receive(), expected);
                    }
                    Act::Leave(at) if at < ours.len() => {
                        ours.remove(at);
                        theirs.remove(at);
                    }
                    Act::Receive(_) | Act::Leave(_) => {}
                }
                prop_assert_eq!(feed.hub.state().items.len(), sender.len());
            }
        }
    }
}
