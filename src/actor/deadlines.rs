//! Deadlines of many things with one timer.

use std::collections::BTreeSet;

use tokio::time::Instant;

use super::work::Task;

/// Deadlines by key, and the one timer that is set for the next of them.
#[derive(Debug)]
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

    pub(crate) fn clear(&mut self) {
        self.at.clear();
    }

    /// Makes `wake` be called at the next deadline, if there is one and it is not arranged already. Call it after
    /// [`insert`](Deadlines::insert) and after [`expired`](Deadlines::expired).
    pub(crate) fn arm(&mut self, wake: impl FnOnce() + Send + 'static) {
        let Some((next, _)) = self.at.first() else { return };
        let next = *next;
        if self.timer.as_ref().is_some_and(|(at, task)| *at <= next && !task.is_finished()) {
            return;
        }
        let task = Task::spawn(async move {
            tokio::time::sleep_until(next).await;
            wake();
        });
        self.timer = Some((next, task));
    }

    /// Takes out those that have passed, in order. Called when the timer has woken, which is spent by that.
    pub(crate) fn expired(&mut self, now: Instant) -> Vec<K> {
        let mut expired = Vec::new();
        while self.at.first().is_some_and(|(deadline, _)| *deadline <= now) {
            expired.extend(self.at.pop_first().map(|(_, key)| key));
        }
        self.timer = None;
        if self.at.is_empty() {
            // Its room too: that many may be due at once but rarely.
            self.at = BTreeSet::new();
        }
        expired
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn one_timer_wakes_for_the_next_deadline_whatever_is_added_and_removed() {
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
