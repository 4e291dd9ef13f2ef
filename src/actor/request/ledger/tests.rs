// Guards: answered-once
// Guards: fenced

use std::sync::atomic::{AtomicUsize, Ordering};

use tracing_subscriber::layer::SubscriberExt;

use super::*;
use crate::actor::request::answer::Answer;
use crate::actor::request::pending::RequestKind;
use crate::actor::request::tests::Asking;

const LEAST: usize = SweepMark::LEAST;

fn admit(ledger: &Ledger, answer: &Answer, replayed: bool) -> Admission {
    ledger.admissions(8).unwrap().admit(answer.pending(), replayed)
}

#[tokio::test]
async fn a_request_id_is_free_again_once_its_request_is_settled() {
    let ledger = Arc::default();
    let cli = Asking::incarnation(1, &ledger);
    let first = cli.asks(RequestKind::Hook, "a");
    assert_eq!(admit(&ledger, &first, false), Admission::Admitted);
    let second = cli.asks(RequestKind::Hook, "a");
    assert_eq!(admit(&ledger, &second, false), Admission::Duplicate);
    second.without_answer();
    first.hand_over().success(1);
    let third = cli.asks(RequestKind::Hook, "a");
    assert_eq!(admit(&ledger, &third, false), Admission::Admitted);
    // The sweep removes the first and must leave the third.
    (0..LEAST).for_each(|_| ledger.bell.finish());
    ledger.sweep(8);
    assert!(ledger.get("a").is_some());
    ledger.close();
    assert!(!third.pending().is_open(), "closing the ledger answers open requests");
    assert!(ledger.admissions(8).is_none());
    drop(third);
    assert_eq!(cli.written().await.len(), 2);
}

#[tokio::test]
async fn the_end_of_an_incarnation_orphans_its_requests_and_no_newer_ones() {
    let ledger = Arc::default();
    let (old, new) = (Asking::incarnation(1, &ledger), Asking::incarnation(2, &ledger));
    let (first, second) = (old.asks(RequestKind::Hook, "a"), new.asks(RequestKind::Hook, "b"));
    assert_eq!(admit(&ledger, &first, false), Admission::Admitted);
    assert_eq!(admit(&ledger, &second, false), Admission::Admitted);
    ledger.end_epoch(1);
    assert!(first.pending().cancel.is_cancelled() && !second.pending().cancel.is_cancelled());
    let late = old.asks(RequestKind::Hook, "c");
    assert_eq!(admit(&ledger, &late, false), Admission::Ended);
    late.without_answer();
    first.hand_over().success(1);
    second.hand_over().success(2);
    assert!(old.written().await.is_empty());
    assert_eq!(new.written().await.len(), 1);
}

#[test]
fn settled_requests_are_swept_in_batches_that_grow_with_the_open_ones() {
    let ledger = Arc::new(Ledger::default());
    let woken = Arc::new(AtomicUsize::new(0));
    let wakes = woken.clone();
    ledger.start(0, move || {
        wakes.fetch_add(1, Ordering::Relaxed);
    });
    let cli = Asking::incarnation(1, &ledger);
    let listed = || lock(&ledger.book).open.len();
    let mut answers: Vec<_> = (0..200).map(|n| cli.asks(RequestKind::Hook, &n.to_string())).collect();
    answers.iter().for_each(|answer| assert_eq!(admit(&ledger, answer, false), Admission::Admitted));
    let settle = |answers: &mut Vec<Answer>, count: usize| {
        answers.drain(..count).for_each(|answer| answer.hand_over().success(1));
    };
    settle(&mut answers, LEAST - 1);
    ledger.sweep(8);
    assert_eq!(listed(), 200, "not yet");
    settle(&mut answers, 1);
    ledger.sweep(8);
    assert_eq!((listed(), woken.load(Ordering::Relaxed)), (184, 0), "a router that sweeps is not woken");
    // The next sweep is due at half of the open requests.
    settle(&mut answers, 91);
    ledger.sweep(8);
    assert_eq!(listed(), 184);
    settle(&mut answers, 1);
    ledger.sweep(8);
    assert_eq!(listed(), 92);
    // No new request comes: the router is woken when the last one is settled.
    settle(&mut answers, 91);
    assert_eq!(woken.load(Ordering::Relaxed), 0);
    settle(&mut answers, 1);
    assert_eq!(woken.load(Ordering::Relaxed), 1);
    ledger.sweep(8);
    assert_eq!(listed(), 0);
    // A burst, with a sweep only when the router is woken.
    let mut answers: Vec<_> = (0..1_000).map(|n| cli.asks(RequestKind::Hook, &format!("b{n}"))).collect();
    answers.iter().for_each(|answer| assert_eq!(admit(&ledger, answer, false), Admission::Admitted));
    for _ in 0..1_000 {
        let before = woken.load(Ordering::Relaxed);
        settle(&mut answers, 1);
        if woken.load(Ordering::Relaxed) > before {
            ledger.sweep(8);
        }
    }
    assert!(listed() <= SweepMark::PATIENCE * LEAST, "{} are left", listed());
    assert!(woken.load(Ordering::Relaxed) <= 8, "the router is woken rarely");
    assert!(!SweepMark::is_roomy(lock(&ledger.book).open.capacity(), 0));
}

#[test]
fn spans_close_at_once_while_the_router_is_woken_rarely() {
    let closed = Arc::new(AtomicUsize::new(0));
    let subscriber = tracing_subscriber::registry().with(Closed(closed.clone()));
    let _guard = tracing::subscriber::set_default(subscriber);
    let ledger = Arc::new(Ledger::default());
    let woken = Arc::new(AtomicUsize::new(0));
    let wakes = woken.clone();
    ledger.start(0, move || {
        wakes.fetch_add(1, Ordering::Relaxed);
    });
    let cli = Asking::incarnation(1, &ledger);
    // Other tests create this span on threads without a subscriber. If such a test is the first, the callsite caches
    // the span as disabled: create it here, and rebuild the cache.
    cli.asks(RequestKind::Hook, "first").without_answer();
    tracing::callsite::rebuild_interest_cache();
    closed.store(0, Ordering::Relaxed);
    let answers: Vec<_> = (0..1_000).map(|n| cli.asks(RequestKind::Hook, &n.to_string())).collect();
    answers.iter().for_each(|answer| assert_eq!(admit(&ledger, answer, false), Admission::Admitted));
    for (settled, answer) in answers.into_iter().enumerate() {
        let before = woken.load(Ordering::Relaxed);
        answer.hand_over().success(1);
        assert_eq!(closed.load(Ordering::Relaxed), settled + 1, "a span is open after its request");
        if woken.load(Ordering::Relaxed) > before {
            ledger.sweep(8);
        }
    }
    // Each wake-up is a full scan of the list.
    assert!(woken.load(Ordering::Relaxed) <= 8, "{} scans", woken.load(Ordering::Relaxed));
}

/// Counts the spans that were closed.
struct Closed(Arc<AtomicUsize>);

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Closed {
    fn on_close(&self, _: tracing::span::Id, _: tracing_subscriber::layer::Context<'_, S>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn requests_the_cli_may_list_are_remembered_up_to_a_bound() {
    let ledger = Arc::new(Ledger::default());
    let cli = Asking::incarnation(1, &ledger);
    for n in 0..LEAST {
        let answer = cli.asks(RequestKind::Permission, &n.to_string());
        assert_eq!(admit(&ledger, &answer, false), Admission::Admitted);
        answer.hand_over().success(1);
    }
    ledger.sweep(8);
    assert_eq!(lock(&ledger.book).settled.len(), 8);
    let again = lock(&ledger.book).settled[0].clone();
    assert_eq!(admit(&ledger, &cli.asks(RequestKind::Hook, &again), true), Admission::Known);
    assert_eq!(admit(&ledger, &cli.asks(RequestKind::Hook, &again), false), Admission::Admitted);
    ledger.end_epoch(1);
    assert!(lock(&ledger.book).settled.is_empty(), "the next CLI does not list them");
}
