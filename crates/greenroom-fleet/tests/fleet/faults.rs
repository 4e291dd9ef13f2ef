//! Backends with faults: what is carried out, and what the caller learns.

use std::sync::Arc;
use std::time::Duration;

use greenroom_fleet::backend::{MemoryBackend, Requests};
use greenroom_fleet::testkit::{Fault, FaultedBackend, FaultedRequest, backend_conformance};
use greenroom_fleet::{BackendErrorKind, Join, NodeId};
use tokio::time::Instant;

fn join() -> Join {
    Join { node: NodeId::new(), host: "here".to_owned(), lease: Duration::from_secs(30), capacity: 8 }
}

fn faulted(fault: Fault) -> (FaultedBackend, MemoryBackend) {
    let inner = MemoryBackend::new();
    let backend = FaultedBackend::new(inner.clone());
    backend.plan(move |request| if request.method == "join" { fault } else { Fault::Pass });
    (backend, inner)
}

async fn nodes(backend: &MemoryBackend) -> usize {
    backend.nodes(None, 10).await.unwrap().len()
}

#[tokio::test(start_paused = true)]
async fn a_failed_request_is_not_carried_out_and_one_that_lost_its_reply_is() {
    for (fault, carried_out) in [(Fault::Fail, 0), (Fault::LoseReply, 1)] {
        let (backend, inner) = faulted(fault);
        let error = backend.join(join()).await.unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::Unavailable);
        assert_eq!(nodes(&inner).await, carried_out, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_delay_comes_before_or_after_the_request_is_carried_out() {
    let time = Duration::from_secs(3);
    for (fault, meanwhile) in [(Fault::Delay(time), 0), (Fault::DelayReply(time), 1)] {
        let (backend, inner) = faulted(fault);
        let start = Instant::now();
        let looks = async {
            tokio::time::sleep(time / 2).await;
            assert_eq!(nodes(&inner).await, meanwhile, "{fault:?}");
        };
        tokio::join!(backend.join(join()), looks).0.unwrap();
        assert_eq!((start.elapsed(), nodes(&inner).await), (time, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn requests_hang_until_they_are_released() {
    for (fault, meanwhile) in [(Fault::Hang, 0), (Fault::HangReply, 2)] {
        let (backend, inner) = faulted(fault);
        let looks = async {
            backend.wait_for_hanging(2).await;
            assert_eq!(nodes(&inner).await, meanwhile, "{fault:?}");
            backend.release();
        };
        let (first, second, ()) = tokio::join!(backend.join(join()), backend.join(join()), looks);
        first.and(second).unwrap();
        assert_eq!((backend.hanging(), nodes(&inner).await), (0, 2));
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_hangs_and_is_dropped_is_not_carried_out() {
    let (backend, inner) = faulted(Fault::Hang);
    let hangs = tokio::time::timeout(Duration::from_secs(1), backend.join(join())).await;
    assert!(hangs.is_err());
    backend.release();
    assert_eq!((backend.hanging(), nodes(&inner).await), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn faults_are_switched_off_and_on_and_planned_by_number() {
    let backend = FaultedBackend::new(MemoryBackend::new());
    let plan = |request: FaultedRequest| match (request.method, request.nth, request.total) {
        ("queued", 2.., 3..) => Fault::Fail,
        _ => Fault::Pass,
    };
    backend.plan(plan);
    backend.queued().await.unwrap();
    backend.nodes(None, 10).await.unwrap();
    backend.clone().queued().await.unwrap_err();
    backend.disable();
    backend.queued().await.unwrap();
    backend.clone().plan(plan);
    backend.queued().await.unwrap_err();
    assert_eq!((backend.requests("queued"), backend.requests("nodes"), backend.total_requests()), (4, 1, 5));
}

#[tokio::test(start_paused = true)]
async fn faults_for_the_next_requests_of_a_method_queue_up() {
    let backend = FaultedBackend::new(MemoryBackend::new());
    backend.plan(|_| Fault::Fail);
    backend.fault_next("queued", Fault::Pass);
    backend.fault_next("queued", Fault::LoseReply);
    backend.nodes(None, 10).await.unwrap_err();
    backend.queued().await.unwrap();
    let lost = backend.queued().await.unwrap_err();
    assert_eq!(lost.to_string(), "a fault of the test: the request `queued` may have been carried out");
    let failed = backend.queued().await.unwrap_err();
    assert_eq!(failed.to_string(), "a fault of the test: the request `queued` was not carried out");
    backend.fault_next("queued", Fault::LoseReply);
    backend.disable();
    backend.queued().await.unwrap();
}

#[test]
#[should_panic(expected = "no request of a backend is named `begn`")]
fn a_misspelt_request_is_told() {
    let inner = MemoryBackend::with_clock(greenroom_fleet::Clock::system());
    FaultedBackend::new(inner).fault_next("begn", Fault::Fail);
}

#[tokio::test(start_paused = true)]
async fn changes_can_be_lost() {
    let inner = MemoryBackend::new();
    let backend = FaultedBackend::new(inner.clone()).without_changes();
    let (mut silent, mut told) = (backend.changes(), FaultedBackend::new(inner).changes());
    let accept = crate::backends::accept("a");
    assert!(matches!(backend.accept(accept).await.unwrap(), greenroom_fleet::Accepted::New(_)));
    assert!(told.recv().await.is_ok());
    let waited = tokio::time::timeout(Duration::from_secs(1), silent.recv()).await;
    assert!(waited.is_err(), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_backend_without_faults_keeps_the_promises() {
    let kept = backend_conformance(async |_| Arc::new(FaultedBackend::new(MemoryBackend::new())) as _).await;
    assert!(!kept.unwrap().is_empty());
}
