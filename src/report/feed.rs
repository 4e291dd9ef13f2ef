//! One tells, many listen: each listener hears what is told from its subscription on, in order, and nobody waits for it.
//!
//! As `tokio::sync::broadcast`, with two differences: nothing is held but what somebody has yet to hear, so a feed that is
//! quiet costs next to nothing whatever its bound is; and the bound is exact. What is told while nobody listens is dropped
//! at once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use tokio::sync::Notify;

/// The telling end. When it is dropped, its listeners hear what is left and then the end.
#[derive(Debug)]
pub(crate) struct Feed<T> {
    hub: Arc<Hub<T>>,
}

/// A listening end.
#[derive(Debug)]
pub(crate) struct Listener<T> {
    hub: Arc<Hub<T>>,
    /// What it hears next, counted from the first that was told.
    next: u64,
}

/// What a listener hears.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard<T> {
    Told(T),
    /// So many before the next are lost to this listener.
    Missed(u64),
}

#[derive(Debug)]
struct Hub<T> {
    state: Mutex<State<T>>,
    news: Notify,
}

#[derive(Debug)]
struct State<T> {
    told: VecDeque<Told<T>>,
    /// The number of the first of them.
    first: u64,
    /// How many of them there may be.
    kept: usize,
    listeners: usize,
    closed: bool,
}

#[derive(Debug)]
struct Told<T> {
    item: T,
    /// How many have yet to hear it. Those who listen later do not count, so it is 0 from front to back.
    unheard: usize,
}

/// Room for more than this is given back once all was heard.
const KEEP: usize = 32;

impl<T> Feed<T> {
    /// With at most this many kept for a slow listener.
    pub(crate) fn new(kept: usize) -> Self {
        let state = State { told: VecDeque::new(), first: 0, kept, listeners: 0, closed: false };
        Self { hub: Arc::new(Hub { state: Mutex::new(state), news: Notify::new() }) }
    }

    /// Tells those who listen.
    pub(crate) fn tell(&self, item: T) {
        let mut state = self.hub.state();
        let unheard = state.listeners;
        if unheard == 0 {
            return;
        }
        if state.told.len() >= state.kept {
            state.told.pop_front();
            state.first += 1;
        }
        state.told.push_back(Told { item, unheard });
        drop(state);
        self.hub.news.notify_waiters();
    }

    /// Whether anybody listens.
    pub(crate) fn is_heard(&self) -> bool {
        self.hub.state().listeners > 0
    }

    /// Listens from now on.
    pub(crate) fn listen(&self) -> Listener<T> {
        let mut state = self.hub.state();
        state.listeners += 1;
        Listener { next: state.end(), hub: self.hub.clone() }
    }
}

impl<T> Drop for Feed<T> {
    fn drop(&mut self) {
        self.hub.state().closed = true;
        self.hub.news.notify_waiters();
    }
}

impl<T: Clone> Listener<T> {
    /// Waits for the next; `None` at the end. Safe to cancel.
    pub(crate) async fn hear(&mut self) -> Option<Heard<T>> {
        loop {
            // Before looking, so that nothing is told unnoticed in between.
            let news = self.hub.news.notified();
            if let Poll::Ready(heard) = self.hub.state().hear(&mut self.next) {
                return heard;
            }
            news.await;
        }
    }

    /// What is there at once.
    pub(crate) fn try_hear(&mut self) -> Poll<Option<Heard<T>>> {
        self.hub.state().hear(&mut self.next)
    }
}

impl<T> Drop for Listener<T> {
    fn drop(&mut self) {
        let mut state = self.hub.state();
        state.listeners -= 1;
        // What was dropped before it was heard is in the list no more.
        let from = usize::try_from(self.next.saturating_sub(state.first)).unwrap_or(usize::MAX);
        state.told.iter_mut().skip(from).for_each(|told| told.unheard -= 1);
        while state.told.front().is_some_and(|told| told.unheard == 0) {
            state.told.pop_front();
            state.first += 1;
        }
        state.give_back();
    }
}

impl<T> Hub<T> {
    /// A panic under the lock leaves nothing half done that matters: the clone of an item comes before any change.
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> State<T> {
    /// The number of the next that is told.
    fn end(&self) -> u64 {
        self.first + self.told.len() as u64
    }

    fn give_back(&mut self) {
        if self.told.is_empty() && self.told.capacity() > KEEP {
            self.told = VecDeque::new();
        }
    }
}

impl<T: Clone> State<T> {
    /// What the listener hears that has come to `next`.
    fn hear(&mut self, next: &mut u64) -> Poll<Option<Heard<T>>> {
        if let Some(missed) = self.first.checked_sub(*next).filter(|missed| *missed > 0) {
            *next = self.first;
            return Poll::Ready(Some(Heard::Missed(missed)));
        }
        let at = usize::try_from(*next - self.first).unwrap_or(usize::MAX);
        let Some(told) = self.told.get_mut(at) else {
            return if self.closed { Poll::Ready(None) } else { Poll::Pending };
        };
        let item = if told.unheard > 1 {
            let item = told.item.clone();
            told.unheard -= 1;
            Some(item)
        } else {
            // The last to hear it has heard all before, as all others have: it is the first of the list.
            self.first += 1;
            self.told.pop_front().map(|told| told.item)
        };
        *next += 1;
        self.give_back();
        Poll::Ready(item.map(Heard::Told))
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
        (state.told.len(), state.told.capacity())
    }

    #[test]
    fn what_nobody_has_yet_to_hear_is_not_held() {
        let feed = Feed::new(1 << 20);
        feed.tell(0);
        assert_eq!(kept(&feed), (0, 0), "nobody listens");
        let (mut first, mut second) = (feed.listen(), feed.listen());
        (1..=1000).for_each(|n| feed.tell(n));
        for n in 1..=1000 {
            assert_eq!(first.try_hear(), Poll::Ready(Some(Heard::Told(n))));
        }
        assert_eq!(kept(&feed).0, 1000);
        for n in 1..=500 {
            assert_eq!(second.try_hear(), Poll::Ready(Some(Heard::Told(n))));
        }
        assert_eq!(kept(&feed).0, 500);
        drop(second);
        assert_eq!(kept(&feed), (0, 0), "and the room is given back");
        assert_eq!(first.try_hear(), Poll::Pending);
    }

    #[tokio::test]
    async fn a_listener_wakes_and_hears_the_rest_before_the_end() {
        let feed = Feed::new(2);
        let mut listener = feed.listen();
        {
            let mut waiting = Box::pin(listener.hear());
            assert!(poll!(&mut waiting).is_pending());
            feed.tell('a');
            assert_eq!(waiting.await, Some(Heard::Told('a')));
        }
        ['b', 'c', 'd'].into_iter().for_each(|item| feed.tell(item));
        drop(feed);
        assert_eq!(listener.hear().await, Some(Heard::Missed(1)));
        assert_eq!(listener.hear().await, Some(Heard::Told('c')));
        assert_eq!(listener.hear().await, Some(Heard::Told('d')));
        assert_eq!(listener.hear().await, None);
        assert_eq!(listener.hear().await, None);
    }

    #[tokio::test]
    async fn the_end_wakes_whoever_waits() {
        let feed = Feed::<()>::new(1);
        let mut listener = feed.listen();
        let mut waiting = Box::pin(listener.hear());
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(feed);
        assert_eq!(waiting.await, None);
    }

    #[derive(Clone, Copy, Debug)]
    enum Act {
        Tell,
        Listen,
        Hear(usize),
        Leave(usize),
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            4 => Just(Act::Tell),
            1 => Just(Act::Listen),
            4 => (0usize..4).prop_map(Act::Hear),
            1 => (0usize..4).prop_map(Act::Leave),
        ]
    }

    proptest! {
        #[test]
        fn it_says_what_a_broadcast_channel_says(acts in proptest::collection::vec(act(), 0..200), shift in 0u32..4) {
            let kept = 1usize << shift;
            let feed = Feed::new(kept);
            let sender = broadcast::channel(kept).0;
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for (n, act) in acts.into_iter().enumerate() {
                match act {
                    Act::Tell => {
                        feed.tell(n);
                        sender.send(n).ok();
                    }
                    Act::Listen => {
                        ours.push(feed.listen());
                        theirs.push(sender.subscribe());
                    }
                    Act::Hear(at) if at < ours.len() => {
                        let expected = match theirs[at].try_recv() {
                            Ok(item) => Poll::Ready(Some(Heard::Told(item))),
                            Err(TryRecvError::Lagged(missed)) => Poll::Ready(Some(Heard::Missed(missed))),
                            Err(TryRecvError::Closed) => Poll::Ready(None),
                            Err(TryRecvError::Empty) => Poll::Pending,
                        };
                        prop_assert_eq!(ours[at].try_hear(), expected);
                    }
                    Act::Leave(at) if at < ours.len() => {
                        ours.remove(at);
                        theirs.remove(at);
                    }
                    Act::Hear(_) | Act::Leave(_) => {}
                }
                prop_assert_eq!(feed.hub.state().told.len(), sender.len());
            }
        }
    }
}
