//! Requests of an incarnation without a session.

// Guards: answered-once

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::answer::{Answer, drop_settled};
use super::ledger::Ledger;
use super::life::Settled;
use super::pending::{RequestKind, RequestOrigin};
use crate::actor::base::gate::Gate;
use crate::actor::outbound::writer::write_lines;
use crate::actor::outbound::{Outbound, OutboundReceiver};
use crate::wire::fast::request_ids::RequestIds;
use crate::wire::rpc::RpcError;

/// An incarnation that asks, and what is written to it.
pub(super) struct Asking {
    pub(super) origin: Arc<RequestOrigin>,
    receiver: OutboundReceiver,
}

impl Asking {
    pub(super) fn incarnation(epoch: u64, ledger: &Arc<Ledger>) -> Self {
        let (outbound, receiver) = Outbound::new(epoch, &crate::options::Limits::default());
        let gate = Arc::new(Gate::new(None, 9));
        let ledger_bell = ledger.bell().clone();
        let origin = RequestOrigin { outbound, ledger_bell, counting: Arc::default(), gate };
        Self { origin: Arc::new(origin), receiver }
    }

    pub(super) fn asks(&self, kind: RequestKind, request_id: &str) -> Answer {
        let ids = match kind {
            RequestKind::Mcp => RequestIds::rpc(request_id, Some("18446744073709551615")),
            _ => RequestIds::control(request_id),
        };
        Answer::open(&self.origin, ids, kind, Instant::now(), None, tracing::info_span!("test"))
    }

    /// All lines that were written.
    pub(super) async fn written(self) -> Vec<Value> {
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
    let cli = Asking::incarnation(1, &Arc::default());
    let answer = cli.asks(RequestKind::Mcp, "a");
    let pending = answer.pending().clone();
    answer.hand_over().mcp_value("first");
    pending.mcp_value("second");
    assert!(!pending.cancel());
    pending.refuse(&RpcError::internal("late"));
    assert!(pending.cancel.is_cancelled(), "the handler is told although the request is settled");
    assert_eq!((cli.origin.counting.answered.get(), cli.origin.counting.late_answers.get()), (1, 3));
    assert_eq!(cli.origin.gate.in_flight(), 0);
    let written = cli.written().await;
    assert_eq!(written.len(), 1);
    let expected = serde_json::json!({"jsonrpc": "2.0", "id": 18446744073709551615_u64, "result": "first"});
    assert_eq!(written[0]["response"]["response"]["mcp_response"], expected);
}

#[tokio::test]
async fn a_dropped_answer_is_an_error_in_the_shape_of_its_request() {
    let cli = Asking::incarnation(1, &Arc::default());
    drop(cli.asks(RequestKind::Mcp, "a"));
    drop(cli.asks(RequestKind::Hook, "b"));
    assert_eq!(cli.origin.counting.refused.get(), 2);
    let written = cli.written().await;
    assert_eq!(written[0]["response"]["response"]["mcp_response"]["error"]["code"], -32603);
    assert_eq!(written[1]["response"]["subtype"], "error");
}

#[tokio::test]
async fn a_withdrawn_request_is_not_answered() {
    let cli = Asking::incarnation(1, &Arc::default());
    let answer = cli.asks(RequestKind::Hook, "a");
    answer.pending().orphan();
    answer.hand_over().success(1);
    cli.asks(RequestKind::Hook, "b").without_answer();
    assert_eq!((cli.origin.counting.orphaned.get(), cli.origin.counting.late_answers.get()), (2, 1));
    assert!(cli.written().await.is_empty());
}

#[tokio::test]
async fn a_request_that_times_out_counts_as_cancelled_in_either_shape() {
    let cli = Asking::incarnation(1, &Arc::default());
    cli.asks(RequestKind::Hook, "a").hand_over().timed_out(1);
    cli.asks(RequestKind::Hook, "b").hand_over().fail(Settled::Cancelled, &RpcError::internal("late"));
    let counting = &cli.origin.counting;
    assert_eq!((counting.cancelled.get(), counting.refused.get()), (2, 0));
    let subtypes: Vec<_> =
        cli.written().await.iter().map(|line| line["response"]["subtype"].clone()).collect();
    assert_eq!(subtypes, ["success", "error"]);
}

#[test]
fn a_list_drops_settled_requests_before_it_grows() {
    let mut list = VecDeque::new();
    let mut searches = 0;
    for number in 0..10_000 {
        let mut first = true;
        drop_settled(&mut list, |number: &usize| {
            searches += usize::from(std::mem::take(&mut first));
            number.is_multiple_of(100)
        });
        list.push_back(number);
        assert!(list.len() <= 2 * (number / 100 + 1) + 32, "{} after {number}", list.len());
    }
    assert!(searches < 650, "{searches}");
    assert_eq!(list.iter().filter(|number| number.is_multiple_of(100)).count(), 100, "open requests stay");
}
