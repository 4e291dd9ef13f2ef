// Guards: answered-once
// Guards: fenced

use std::sync::atomic::{AtomicUsize, Ordering};

use tracing_subscriber::layer::SubscriberExt;

use super::*;
use crate::actor::request::answer::Answer;
use crate::actor::request::pending::{RequestKind, Settled};
use crate::actor::request::tests::Asking;

fn enter(ledger: &Ledger, answer: &Answer, replayed: bool) -> Admission {
    ledger.enter(answer.pending(), replayed)
}

#[tokio::test]
async fn a_request_id_is_free_again_once_its_request_is_settled() {
    let ledger = Arc::new(Ledger::new(8));
    let cli = Asking::incarnation(1, &ledger);
    let first = cli.asks(RequestKind::Hook, "a");
    assert_eq!(enter(&ledger, &first, false), Admission::Admitted);
    let second = cli.asks(RequestKind::Hook, "a");
    assert_eq!(enter(&ledger, &second, false), Admission::Duplicate);
    second.pending().orphan();
    assert!(ledger.get("a").is_some(), "a duplicate does not remove the request whose id it has");
    first.pending().success(Settled::Answered, 1);
    assert!(ledger.get("a").is_none() && lock(&ledger.book).open.is_empty());
    let third = cli.asks(RequestKind::Hook, "a");
    assert_eq!(enter(&ledger, &third, false), Admission::Admitted);
    drop(third);
    assert!(lock(&ledger.book).open.is_empty());
    assert_eq!(cli.written().await.len(), 2);
}

#[tokio::test]
async fn the_end_of_an_incarnation_orphans_its_requests_and_no_newer_ones() {
    let ledger = Arc::new(Ledger::new(8));
    let (old, new) = (Asking::incarnation(1, &ledger), Asking::incarnation(2, &ledger));
    let (first, second) = (old.asks(RequestKind::Hook, "a"), new.asks(RequestKind::Hook, "b"));
    assert_eq!(enter(&ledger, &first, false), Admission::Admitted);
    assert_eq!(enter(&ledger, &second, false), Admission::Admitted);
    ledger.end_epoch(1);
    assert!(first.pending().cancel.is_cancelled() && !second.pending().cancel.is_cancelled());
    let late = old.asks(RequestKind::Hook, "c");
    assert_eq!(enter(&ledger, &late, false), Admission::Ended);
    late.pending().orphan();
    first.pending().success(Settled::Answered, 1);
    second.pending().success(Settled::Answered, 2);
    assert!(old.written().await.is_empty());
    assert_eq!(new.written().await.len(), 1);
}

#[test]
fn the_memory_for_a_burst_is_freed_with_its_requests() {
    let ledger = Arc::new(Ledger::new(8));
    let cli = Asking::incarnation(1, &ledger);
    let answers: Vec<_> = (0..10_000).map(|n| cli.asks(RequestKind::Hook, &n.to_string())).collect();
    answers.iter().for_each(|answer| assert_eq!(enter(&ledger, answer, false), Admission::Admitted));
    assert!(lock(&ledger.book).open.capacity() >= 10_000);
    for (settled, answer) in answers.into_iter().enumerate() {
        answer.pending().success(Settled::Answered, 1);
        let book = lock(&ledger.book);
        assert_eq!(book.open.len(), 9_999 - settled);
        assert!(
            !is_roomy(book.open.capacity(), book.open.len()),
            "{} for {}",
            book.open.capacity(),
            book.open.len()
        );
    }
}

#[test]
fn a_span_closes_with_its_request() {
    let closed = Arc::new(AtomicUsize::new(0));
    let subscriber = tracing_subscriber::registry().with(Closed(closed.clone()));
    let _guard = tracing::subscriber::set_default(subscriber);
    let ledger = Arc::new(Ledger::new(8));
    let cli = Asking::incarnation(1, &ledger);
    // Other tests create this span on threads without a subscriber. If such a test is the first, the callsite caches
    // the span as disabled: create it here, and rebuild the cache.
    cli.asks(RequestKind::Hook, "first").pending().orphan();
    tracing::callsite::rebuild_interest_cache();
    closed.store(0, Ordering::Relaxed);
    let answers: Vec<_> = (0..100).map(|n| cli.asks(RequestKind::Hook, &n.to_string())).collect();
    answers.iter().for_each(|answer| assert_eq!(enter(&ledger, answer, false), Admission::Admitted));
    for (settled, answer) in answers.into_iter().enumerate() {
        answer.pending().success(Settled::Answered, 1);
        assert_eq!(closed.load(Ordering::Relaxed), settled + 1, "a span is open after its request");
    }
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
    let ledger = Arc::new(Ledger::new(8));
    let cli = Asking::incarnation(1, &ledger);
    for n in 0..16 {
        let answer = cli.asks(RequestKind::Permission, &n.to_string());
        assert_eq!(enter(&ledger, &answer, false), Admission::Admitted);
        assert_eq!(
            enter(&ledger, &cli.asks(RequestKind::Permission, &n.to_string()), true),
            Admission::Known
        );
        answer.pending().success(Settled::Answered, 1);
    }
    let remembered = |n: usize| enter(&ledger, &cli.asks(RequestKind::Hook, &n.to_string()), true);
    assert_eq!((remembered(8), remembered(15)), (Admission::Known, Admission::Known));
    assert_eq!(remembered(7), Admission::Admitted);
    assert_eq!(enter(&ledger, &cli.asks(RequestKind::Hook, "8"), false), Admission::Admitted);
    ledger.end_epoch(1);
    assert!(lock(&ledger.book).settled.is_empty(), "the next CLI does not list them");
}
