//! Requests that wait for a tool server, or for its state.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::answer::Answer;
use crate::actor::base::deadlines::{Deadlines, after};

/// Requests that wait, oldest first, each with what it asks for. A request expires `limit` after its
/// arrival.
pub(crate) struct WaitingRequests<T> {
    list: VecDeque<(Answer, T)>,
    limit: Duration,
    timer: Deadlines<()>,
}

impl<T> WaitingRequests<T> {
    /// Fewest entries for which a full list is searched for settled requests.
    const LEAST: usize = 16;

    pub(crate) fn new(limit: Duration) -> Self {
        Self { list: VecDeque::new(), limit, timer: Deadlines::new() }
    }

    pub(crate) fn push(&mut self, answer: Answer, asked: T) {
        if self.list.len() == self.list.capacity() {
            self.drop_settled();
            self.list.reserve_exact(self.list.len().max(Self::LEAST));
        }
        self.list.push_back((answer, asked));
    }

    /// Drops the requests that are settled: a cancelled one leaves its gates at once and stays here, so the gates do not bound
    /// the list.
    pub(crate) fn drop_settled(&mut self) {
        self.list.retain(|(answer, _)| answer.pending().is_open());
    }

    /// Takes all requests. Some may be settled.
    pub(crate) fn take(&mut self) -> VecDeque<(Answer, T)> {
        self.stop_timer();
        std::mem::take(&mut self.list)
    }

    /// Takes the requests that have expired.
    pub(crate) fn take_expired(&mut self, now: Instant) -> Vec<Answer> {
        self.timer.expired(now);
        let limit = self.limit;
        let expired = self.list.iter().take_while(|(answer, _)| deadline(answer, limit) <= now).count();
        self.list.drain(..expired).map(|(answer, _)| answer).collect()
    }

    /// Arranges that `wake` is called when the oldest request expires. Call it after [`push`](Self::push) and after
    /// [`take_expired`](Self::take_expired).
    pub(crate) fn arm(&mut self, wake: impl FnOnce() + Send + 'static) {
        if let Some((answer, _)) = self.list.front() {
            self.timer.insert(deadline(answer, self.limit), ());
            self.timer.arm(wake);
        }
    }

    pub(crate) fn stop_timer(&mut self) {
        self.timer = Deadlines::new();
    }

    /// The requests, newest first.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = (&Answer, &T)> {
        self.list.iter().rev().map(|(answer, asked)| (answer, asked))
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }
}

fn deadline(answer: &Answer, limit: Duration) -> Instant {
    after(answer.pending().received, limit)
}
