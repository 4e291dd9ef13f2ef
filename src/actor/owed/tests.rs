//! One request on a desk of its own.

use super::*;
use crate::actor::lane::LaneEnd;
use crate::wire::head::Parts;
use serde_json::Value;
use std::time::Duration;

/// An incarnation without a session.
pub(in crate::actor) struct Desk {
    pub(in crate::actor) asker: Arc<Asker>,
    end: LaneEnd,
}

impl Desk {
    pub(in crate::actor) fn open(epoch: u64, ledger: &Arc<Ledger>) -> Self {
        let (lane, end) = Lane::new(epoch, &crate::options::Limits::default());
        let gate = Arc::new(Gate::new(None, 9));
        let asker = Asker { lane, ledger: ledger.clone(), counting: Arc::default(), gate };
        Self { asker: Arc::new(asker), end }
    }

    pub(in crate::actor) fn asks(&self, request_id: &str, mcp: bool) -> Answer {
        self.new_request("test", request_id, mcp)
    }

    pub(in crate::actor) fn asks_as(&self, kind: &'static str, request_id: &str) -> Answer {
        self.new_request(kind, request_id, false)
    }

    fn new_request(&self, kind: &'static str, request_id: &str, mcp: bool) -> Answer {
        let rpc_id = mcp.then_some("18446744073709551615");
        let new = NewOwed {
            head: Head::new(Parts { request_id, rpc_id, ..Parts::default() }),
            kind,
            mcp,
            received: Instant::now(),
            server_gate: None,
            span: tracing::Span::none(),
        };
        Answer::new(&self.asker, new)
    }

    /// Everything that was written.
    pub(in crate::actor) async fn written(self) -> Vec<Value> {
        self.asker.lane.close();
        let mut bytes = Vec::new();
        crate::actor::lane::write_lines(self.end, &mut bytes, Duration::from_secs(9)).await.unwrap();
        bytes
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect()
    }
}

#[tokio::test]
async fn the_first_outcome_is_written_and_every_later_one_is_counted() {
    let desk = Desk::open(1, &Arc::default());
    let answer = desk.asks("a", true);
    let owed = answer.owed().clone();
    answer.hand_over().mcp_value("first");
    owed.mcp_value("second");
    assert!(!owed.cancel());
    owed.refuse(&RpcError::internal("late"));
    assert!(owed.cancel.is_cancelled(), "a handler that is late is told all the same");
    assert_eq!((desk.asker.counting.answered.get(), desk.asker.counting.late_answers.get()), (1, 3));
    assert_eq!(desk.asker.gate.in_flight(), 0);
    let written = desk.written().await;
    assert_eq!(written.len(), 1);
    let expected = serde_json::json!({"jsonrpc": "2.0", "id": 18446744073709551615_u64, "result": "first"});
    assert_eq!(written[0]["response"]["response"]["mcp_response"], expected);
}

#[tokio::test]
async fn an_answer_that_is_dropped_is_an_error_in_the_shape_of_its_request() {
    let desk = Desk::open(1, &Arc::default());
    drop(desk.asks("a", true));
    drop(desk.asks("b", false));
    assert_eq!(desk.asker.counting.refused.get(), 2);
    let written = desk.written().await;
    assert_eq!(written[0]["response"]["response"]["mcp_response"]["error"]["code"], -32603);
    assert_eq!(written[1]["response"]["subtype"], "error");
}

#[tokio::test]
async fn what_was_withdrawn_is_not_answered() {
    let desk = Desk::open(1, &Arc::default());
    let answer = desk.asks("a", false);
    answer.owed().orphan();
    answer.hand_over().success(1);
    desk.asks("b", false).without_answer();
    assert_eq!((desk.asker.counting.orphaned.get(), desk.asker.counting.late_answers.get()), (2, 1));
    assert!(desk.written().await.is_empty());
}

#[test]
fn every_transition_of_a_life_is_as_drawn() {
    let fresh = Life::default;
    let dispatched = || {
        let life = Life::default();
        assert!(life.dispatch());
        life
    };
    assert_eq!(fresh().stage(), Stage::Received);
    assert_eq!(dispatched().stage(), Stage::Dispatched);
    assert!(!dispatched().dispatch(), "it is dispatched once");
    for how in Settled::ALL {
        for life in [fresh(), dispatched()] {
            assert!(life.is_open() && life.settle(how));
            assert_eq!(life.stage(), Stage::Settled(how));
            assert!(!life.dispatch(), "what is over is not begun");
            for late in Settled::ALL {
                assert!(!life.settle(late));
                assert_eq!(life.stage(), Stage::Settled(how), "the first wins");
            }
        }
    }
}

proptest::proptest! {
    #[test]
    fn a_life_is_settled_once_whoever_tries_in_whatever_order(steps in proptest::collection::vec(0usize..5, 1..30)) {
        let life = Life::default();
        let mut settled = None;
        for step in steps {
            match step.checked_sub(1).map(|n| Settled::ALL[n]) {
                None => proptest::prop_assert_eq!(life.stage() == Stage::Received, life.dispatch()),
                Some(how) => {
                    proptest::prop_assert_eq!(life.settle(how), settled.is_none());
                    settled.get_or_insert(how);
                }
            }
            proptest::prop_assert_eq!(life.is_open(), settled.is_none());
        }
    }

    #[test]
    fn of_many_who_settle_at_once_one_wins(threads in 2usize..6) {
        let life = Life::default();
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
