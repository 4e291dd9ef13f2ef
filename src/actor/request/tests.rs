//! Requests of an incarnation without a session.

// Guards: answered-once

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::answer::Answer;
use super::handlers::{HandlerEnd, HandlerTasks};
use super::ledger::Ledger;
use super::pending::{PendingRequest, RequestKind, RequestOrigin, Settled};
use super::waiting::WaitingRequests;
use crate::actor::base::gate::Gate;
use crate::actor::outbound::writer::write_lines;
use crate::actor::outbound::{Outbound, OutboundReceiver};
use crate::tool::run::pace::Pace;
use crate::wire::fast::request_ids::RequestIds;
use crate::wire::rpc::RpcError;

/// An incarnation that asks, and what is written to it.
pub(crate) struct Asking {
    pub(crate) origin: Arc<RequestOrigin>,
    receiver: OutboundReceiver,
}

impl Asking {
    pub(crate) fn incarnation(epoch: u64, ledger: &Arc<Ledger>) -> Self {
        let (outbound, receiver) = Outbound::new(epoch, &crate::options::Limits::default());
        let gate = Arc::new(Gate::new(None, 9));
        let origin = RequestOrigin { outbound, settled: ledger.leaving(), counting: Arc::default(), gate };
        Self { origin: Arc::new(origin), receiver }
    }

    pub(crate) fn asks(&self, kind: RequestKind, request_id: &str) -> Answer {
        let ids = match kind {
            RequestKind::Mcp => RequestIds::rpc(request_id, Some("18446744073709551615")),
            _ => RequestIds::control(request_id),
        };
        Answer::new(PendingRequest::open(&self.origin, ids, kind, None, tracing::info_span!("test")))
    }

    /// All lines that were written.
    pub(crate) async fn written(self) -> Vec<Value> {
        self.origin.outbound.close();
        let mut bytes = Vec::new();
        write_lines(self.receiver, &mut bytes, Duration::from_secs(9)).await.unwrap();
        bytes
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect()
    }
}

#[tokio::test]
async fn the_first_outcome_is_written_and_later_ones_are_counted() {
    let cli = Asking::incarnation(1, &Arc::new(Ledger::new(8)));
    let answer = cli.asks(RequestKind::Mcp, "a");
    let pending = answer.pending().clone();
    answer.pending().mcp_value("first");
    pending.mcp_value("second");
    assert!(!pending.cancel());
    pending.refuse(&RpcError::internal("late"));
    assert!(pending.cancel.is_cancelled(), "the handler is told although the request is settled");
    assert_eq!((cli.origin.counting.answered.get(), cli.origin.counting.late_answers.get()), (1, 3));
    assert_eq!(cli.origin.gate.in_flight.count(), 0);
    let written = cli.written().await;
    assert_eq!(written.len(), 1);
    let expected = serde_json::json!({"jsonrpc": "2.0", "id": 18446744073709551615_u64, "result": "first"});
    assert_eq!(written[0]["response"]["response"]["mcp_response"], expected);
}

proptest::proptest! {
    #[test]
    fn one_of_many_concurrent_outcomes_wins(threads in 2usize..6) {
        let cli = Asking::incarnation(1, &Arc::new(Ledger::new(8)));
        let answer = cli.asks(RequestKind::Hook, "a");
        let pending = answer.pending();
        std::thread::scope(|scope| {
            for n in 0..threads {
                scope.spawn(move || match n % 4 {
                    0 => pending.success(Settled::Answered, 1),
                    1 => drop(pending.cancel()),
                    2 => pending.refuse(&RpcError::internal("no")),
                    _ => pending.orphan(),
                });
            }
        });
        let counting = &cli.origin.counting;
        let outcomes = [&counting.answered, &counting.cancelled, &counting.refused, &counting.orphaned];
        let outcomes: Vec<_> = outcomes.iter().map(|outcome| outcome.get()).collect();
        proptest::prop_assert_eq!(outcomes.iter().sum::<u64>(), 1);
        proptest::prop_assert_eq!(counting.late_answers.get(), threads as u64 - 1);
        proptest::prop_assert_eq!(cli.origin.gate.in_flight.count(), 0);
        proptest::prop_assert_eq!(cli.origin.outbound.queued() as u64, 1 - outcomes[3]);
    }
}

#[tokio::test]
async fn a_dropped_answer_is_an_error_in_the_shape_of_its_request() {
    let cli = Asking::incarnation(1, &Arc::new(Ledger::new(8)));
    drop(cli.asks(RequestKind::Mcp, "a"));
    drop(cli.asks(RequestKind::Hook, "b"));
    assert_eq!(cli.origin.counting.refused.get(), 2);
    let written = cli.written().await;
    assert_eq!(written[0]["response"]["response"]["mcp_response"]["error"]["code"], -32603);
    assert_eq!(written[1]["response"]["subtype"], "error");
}

#[tokio::test]
async fn a_withdrawn_request_is_not_answered() {
    let cli = Asking::incarnation(1, &Arc::new(Ledger::new(8)));
    let answer = cli.asks(RequestKind::Hook, "a");
    answer.pending().orphan();
    answer.pending().success(Settled::Answered, 1);
    cli.asks(RequestKind::Hook, "b").pending().orphan();
    assert_eq!((cli.origin.counting.orphaned.get(), cli.origin.counting.late_answers.get()), (2, 1));
    assert!(cli.written().await.is_empty());
}

#[tokio::test]
async fn a_request_that_times_out_counts_as_cancelled_in_either_shape() {
    let cli = Asking::incarnation(1, &Arc::new(Ledger::new(8)));
    cli.asks(RequestKind::Hook, "a").pending().success(Settled::Cancelled, 1);
    cli.asks(RequestKind::Hook, "b").pending().fail(Settled::Cancelled, &RpcError::internal("late"));
    let counting = &cli.origin.counting;
    assert_eq!((counting.cancelled.get(), counting.refused.get()), (2, 0));
    let subtypes: Vec<_> =
        cli.written().await.iter().map(|line| line["response"]["subtype"].clone()).collect();
    assert_eq!(subtypes, ["success", "error"]);
}

#[tokio::test(start_paused = true)]
async fn waiting_requests_expire_one_after_another() {
    let cli = Asking::incarnation(1, &Arc::new(Ledger::new(8)));
    let mut waiting = WaitingRequests::new(Duration::from_secs(5));
    let (wake, woken) = std::sync::mpsc::channel();
    let arm = |waiting: &mut WaitingRequests<u8>| {
        let wake = wake.clone();
        waiting.arm(move || wake.send(Instant::now()).unwrap());
    };
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    waiting.push(cli.asks(RequestKind::Hook, "a"), 1);
    tokio::time::sleep(Duration::from_secs(3)).await;
    waiting.push(cli.asks(RequestKind::Hook, "b"), 2);
    arm(&mut waiting);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(woken.try_iter().collect::<Vec<_>>(), [at(5)]);
    let expired = waiting.take_expired(Instant::now());
    assert_eq!((expired[0].pending().request_id(), expired.len()), ("a", 1));
    let asked: Vec<_> = waiting.newest_first().map(|(_, asked)| *asked).collect();
    assert_eq!(asked, [2]);
    arm(&mut waiting);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(woken.try_iter().collect::<Vec<_>>(), [at(8)]);
    arm(&mut waiting);
    assert_eq!(waiting.take().len(), 1);
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!(woken.try_iter().count(), 0, "nothing waits");
}

#[test]
fn a_list_drops_settled_requests_before_it_grows() {
    let cli = Asking::incarnation(1, &Arc::new(Ledger::new(8)));
    let mut waiting = WaitingRequests::new(Duration::from_secs(5));
    for number in 0..2_000 {
        waiting.push(cli.asks(RequestKind::Hook, &number.to_string()), number);
        if number % 100 > 0 {
            waiting.newest_first().take(1).for_each(|(answer, _)| answer.pending().orphan());
        }
        assert!(waiting.len() <= 2 * (number / 100 + 1) + 32, "{} after {number}", waiting.len());
    }
    let open = waiting.take().iter().filter(|(answer, _)| answer.pending().is_open()).count();
    assert_eq!(open, 20, "open requests stay");
}

/// Starts a handler of a quick tool.
fn start_quick(
    handlers: &mut HandlerTasks<(), ()>,
    answer: Answer,
    handler: impl Future<Output = ()> + Send + 'static,
) {
    let (pending, pace) = (answer.pending().clone(), Pace::default());
    (0..Pace::STREAK).for_each(|_| pace.note(true, Duration::ZERO));
    let handler = Box::pin(async move {
        handler.await;
        answer.pending().success(Settled::Answered, 1);
        None
    });
    handlers.start(pending, (), None, Some(pace), handler);
}

fn handlers() -> (HandlerTasks<(), ()>, mpsc::UnboundedReceiver<HandlerEnd<()>>) {
    let (report, ends) = mpsc::unbounded_channel();
    let report = move |end| report.send(end).unwrap();
    (HandlerTasks::new(Duration::from_secs(9), "ended".into(), report), ends)
}

#[tokio::test]
async fn the_ends_of_quick_handlers_are_those_of_any_other() {
    let cli = Asking::incarnation(1, &Arc::new(Ledger::new(8)));
    let (mut handlers, mut ends) = handlers();
    start_quick(&mut handlers, cli.asks(RequestKind::Hook, "a"), async {});
    start_quick(&mut handlers, cli.asks(RequestKind::Hook, "waits"), std::future::pending());
    start_quick(&mut handlers, cli.asks(RequestKind::Hook, "panics"), async { panic!("on purpose") });
    assert_eq!(handlers.table().running().len(), 3);
    handlers.flush();
    let Some((panicked, None)) = ends.recv().await else { panic!("it has ended") };
    assert_eq!(handlers.table().remove(panicked).unwrap().pending.request_id(), "panics");
    let left: Vec<_> = handlers.table().running();
    assert_eq!((left.len(), left[0].pending.request_id()), (1, "waits"), "who has answered leaves the table");
    let killed = CancellationToken::new();
    killed.cancel();
    handlers.stop(Duration::from_secs(9), &killed).await;
    assert!(!cli.origin.gate.is_beginning());
    let written = cli.written().await;
    let subtypes: Vec<_> = written.iter().map(|line| &line["response"]["subtype"]).collect();
    assert_eq!(subtypes, ["success", "error", "error"], "{written:?}");
}

#[tokio::test]
async fn the_drop_of_an_actor_ends_quick_handlers_that_have_not_run() {
    let cli = Asking::incarnation(1, &Arc::new(Ledger::new(8)));
    let (mut handlers, mut ends) = handlers();
    for n in 0..3 {
        let answer = cli.asks(RequestKind::Hook, &n.to_string());
        start_quick(&mut handlers, answer, async { panic!("it was not to run") });
    }
    drop(handlers);
    for _ in 0..3 {
        assert!(matches!(ends.recv().await, Some((_, None))));
    }
    assert_eq!((cli.origin.gate.in_flight.count(), cli.origin.counting.refused.get()), (0, 3));
    assert!(!cli.origin.gate.is_beginning());
}
