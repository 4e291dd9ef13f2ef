//! Many deadlines with one timer.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use super::task::Task;
use crate::options::FOREVER;

/// Deadlines by key, and one timer for the next of them.
pub(crate) struct Deadlines<K> {
    at: BTreeSet<(Instant, K)>,
    timer: Option<(Instant, Task)>,
}

impl<K: Ord> Deadlines<K> {
    pub(crate) fn new() -> Self {
        Self { at: BTreeSet::new(), timer: None }
    }

    pub(crate) fn insert(&mut self, deadline: Instant, key: K) {
        self.at.insert((deadline, key));
    }

    pub(crate) fn remove(&mut self, deadline: Instant, key: K) {
        self.at.remove(&(deadline, key));
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(&K) -> bool) {
        self.at.retain(|(_, key)| keep(key));
        if self.at.is_empty() {
            self.timer = None;
        }
    }

    pub(crate) fn has(&self, key: &K) -> bool {
        self.at.iter().any(|(_, other)| other == key)
    }

    pub(crate) fn clear(&mut self) {
        self.at.clear();
    }

    /// Arranges that `wake` is called at the next deadline, unless the timer is set for it already. Call it after
    /// [`insert`](Deadlines::insert) and after [`expired`](Deadlines::expired).
    pub(crate) fn arm(&mut self, wake: impl FnOnce() + Send + 'static) {
        let Some((next, _)) = self.at.first() else { return };
        let next = *next;
        if self.timer.as_ref().is_some_and(|(at, task)| *at <= next && !task.is_finished()) {
            return;
        }
        let timer = async move {
            tokio::time::sleep_until(next).await;
            wake();
        };
        self.timer = Some((next, Task::spawn(timer)));
    }

    /// Removes the deadlines that have passed, and returns their keys in order. Call it when the timer has woken.
    pub(crate) fn expired(&mut self, now: Instant) -> Vec<K> {
        let mut expired = Vec::new();
        while self.at.first().is_some_and(|(deadline, _)| *deadline <= now) {
            expired.extend(self.at.pop_first().map(|(_, key)| key));
        }
        self.timer = None;
        if self.at.is_empty() {
            // Frees the memory of a burst.
            self.at = BTreeSet::new();
        }
        expired
    }
}

/// The moment `limit` after `moment`; a limit that is too long for the clock counts as for ever.
pub(crate) fn after(moment: Instant, limit: Duration) -> Instant {
    moment + limit.min(FOREVER)
}

/// A duration in whole milliseconds.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn one_timer_wakes_for_the_next_deadline() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let (woken, wakes) = mpsc::channel();
        let mut deadlines = Deadlines::new();
        let arm = |deadlines: &mut Deadlines<u8>| {
            let woken = woken.clone();
            deadlines.arm(move || woken.send(Instant::now()).unwrap());
        };
        deadlines.insert(at(5), 1);
        arm(&mut deadlines);
        deadlines.insert(at(3), 2);
        arm(&mut deadlines);
        deadlines.insert(at(3), 3);
        arm(&mut deadlines);
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert_eq!(wakes.try_iter().collect::<Vec<_>>(), [at(3)]);
        assert_eq!(deadlines.expired(Instant::now()), [2, 3]);
        arm(&mut deadlines);
        deadlines.remove(at(5), 1);
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert_eq!(wakes.try_iter().count(), 1, "a timer may wake for nothing");
        assert!(deadlines.expired(Instant::now()).is_empty());
    }
}
