//! The states of a request, without IO: see the drawing in [`request`](super).

use std::sync::atomic::{AtomicU8, Ordering};

/// The way a request was settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Settled {
    Answered = 2,
    Cancelled = 3,
    Refused = 4,
    Orphaned = 5,
}

impl Settled {
    pub(super) const ALL: [Settled; 4] =
        [Settled::Answered, Settled::Cancelled, Settled::Refused, Settled::Orphaned];

    fn from_number(number: u8) -> Self {
        // Only the numbers of `ALL` are ever stored.
        Self::ALL.into_iter().find(|settled| *settled as u8 == number).unwrap_or(Settled::Orphaned)
    }

    /// Value of the span's field `outcome`.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Settled::Answered => "answered",
            Settled::Cancelled => "cancelled",
            Settled::Refused => "refused",
            Settled::Orphaned => "orphaned",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestStage {
    /// No handler works at the request yet.
    Received,
    /// A handler works at the request.
    Dispatched,
    Settled(Settled),
}

/// The stage of a request, as one atomic number.
#[derive(Debug, Default)]
pub(super) struct RequestLife(AtomicU8);

impl RequestLife {
    const RECEIVED: u8 = 0;
    const DISPATCHED: u8 = 1;

    pub(super) fn stage(&self) -> RequestStage {
        match self.0.load(Ordering::Acquire) {
            Self::RECEIVED => RequestStage::Received,
            Self::DISPATCHED => RequestStage::Dispatched,
            settled => RequestStage::Settled(Settled::from_number(settled)),
        }
    }

    /// Received → Dispatched; false in any other stage.
    pub(super) fn dispatch(&self) -> bool {
        self.0.compare_exchange(Self::RECEIVED, Self::DISPATCHED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Settles the request; false if it is settled already.
    pub(super) fn settle(&self, how: Settled) -> bool {
        let open = |now: u8| (now <= Self::DISPATCHED).then_some(how as u8);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, open).is_ok()
    }

    pub(super) fn is_open(&self) -> bool {
        !matches!(self.stage(), RequestStage::Settled(_))
    }
}

// Guards: answered-once
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_transition_is_as_drawn() {
        let fresh = RequestLife::default;
        let dispatched = || {
            let life = RequestLife::default();
            assert!(life.dispatch());
            life
        };
        assert_eq!(fresh().stage(), RequestStage::Received);
        assert_eq!(dispatched().stage(), RequestStage::Dispatched);
        assert!(!dispatched().dispatch(), "a request is dispatched once");
        for how in Settled::ALL {
            for life in [fresh(), dispatched()] {
                assert!(life.is_open() && life.settle(how));
                assert_eq!(life.stage(), RequestStage::Settled(how));
                assert!(!life.dispatch(), "a settled request is not dispatched");
                for late in Settled::ALL {
                    assert!(!life.settle(late));
                    assert_eq!(life.stage(), RequestStage::Settled(how), "the first outcome wins");
                }
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn a_request_is_settled_once_in_any_order_of_attempts(
            steps in proptest::collection::vec(0usize..5, 1..30),
        ) {
            let life = RequestLife::default();
            let mut settled = None;
            for step in steps {
                match step.checked_sub(1).map(|n| Settled::ALL[n]) {
                    None => proptest::prop_assert_eq!(life.stage() == RequestStage::Received, life.dispatch()),
                    Some(how) => {
                        proptest::prop_assert_eq!(life.settle(how), settled.is_none());
                        settled.get_or_insert(how);
                    }
                }
                proptest::prop_assert_eq!(life.is_open(), settled.is_none());
            }
        }

        #[test]
        fn one_of_many_concurrent_outcomes_wins(threads in 2usize..6) {
            let life = RequestLife::default();
            let wins = std::thread::scope(|scope| {
                let tries: Vec<_> = (0..threads).map(|n| scope.spawn({
                    let life = &life;
                    move || life.settle(Settled::ALL[n % 4])
                })).collect();
                tries.into_iter().map(|attempt| attempt.join().unwrap()).filter(|won| *won).count()
            });
            proptest::prop_assert_eq!(wins, 1);
        }
    }
}
