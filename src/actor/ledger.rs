//! Who owes whom an answer.
//!
//! Every control request of the CLI is one [`Owed`]. It is settled exactly once, by whoever comes first:
//!
//! ```text
//!   Received ── a handler's task starts ──► Dispatched
//!      │                                        │
//!      └────────────────┬───────────────────────┘
//!                       │ settle: the first wins, whoever it is; later ones are counted as late and write nothing
//!      ┌────────────────┼──────────────┬───────────────────┐
//!      ▼                ▼              ▼                   ▼
//!   Answered         Cancelled      Refused             Orphaned
//!   by the one who   with an error  with an error:      not at all: withdrawn, a duplicate,
//!   was asked        or in time     nobody can or may   or its incarnation has ended
//! ```
//!
//! The duty to answer is an [`Answer`]: made with the request, consumed by the first outcome, and an error to the
//! CLI when it is dropped. So a request that is lost (in the mailbox of an actor that died, in a task that was
//! aborted) is answered all the same. An answer goes to the lane of the request's own incarnation and can go
//! nowhere else.
//!
//! The [`Ledger`] lists what is open by `request_id`, for cancelling, for the snapshot, and for the end of an
//! incarnation. JSON-RPC ids are no keys here: they repeat.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use ractor::ActorRef;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::admission::Gate;
use super::lane::Lane;
use super::router::RouterMessage;
use crate::report::counters::Counting;
use crate::wire::envelope::{self, McpResponse};
use crate::wire::rpc::{Response, RpcError};

/// How a request was settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Settled {
    Answered = 2,
    Cancelled = 3,
    Refused = 4,
    Orphaned = 5,
}

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It has come; no handler works at it yet.
    Received,
    /// A handler works at it.
    Dispatched,
    /// It is over.
    Settled(Settled),
}

/// The life of a request: the machine above, without IO, as one atomic number.
#[derive(Debug, Default)]
pub(crate) struct Life(AtomicU8);

impl Life {
    const RECEIVED: u8 = 0;
    const DISPATCHED: u8 = 1;

    pub(crate) fn stage(&self) -> Stage {
        match self.0.load(Ordering::Acquire) {
            Self::RECEIVED => Stage::Received,
            Self::DISPATCHED => Stage::Dispatched,
            settled => Stage::Settled(Settled::from_number(settled)),
        }
    }

    /// A handler starts; false if that is not what happens next in this life.
    pub(crate) fn dispatch(&self) -> bool {
        self.0.compare_exchange(Self::RECEIVED, Self::DISPATCHED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Settles it; false if somebody else was first.
    pub(crate) fn settle(&self, how: Settled) -> bool {
        let open = |now: u8| (now <= Self::DISPATCHED).then_some(how as u8);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, open).is_ok()
    }

    pub(crate) fn is_open(&self) -> bool {
        !matches!(self.stage(), Stage::Settled(_))
    }
}

impl Settled {
    const ALL: [Settled; 4] = [Settled::Answered, Settled::Cancelled, Settled::Refused, Settled::Orphaned];

    fn from_number(number: u8) -> Self {
        // Only the numbers of these are ever written.
        Self::ALL.into_iter().find(|settled| *settled as u8 == number).unwrap_or(Settled::Orphaned)
    }
}

/// A request of the CLI, and everything that is needed to answer it.
pub(crate) struct Owed {
    pub(crate) request_id: String,
    /// What it is: `mcp_message`, `can_use_tool`, …
    pub(crate) kind: &'static str,
    pub(crate) received: Instant,
    /// Cancelled when nobody waits for the answer any more.
    pub(crate) cancel: CancellationToken,
    pub(crate) span: tracing::Span,
    /// For a JSON-RPC request: its id, echoed as it came.
    rpc_id: Option<Box<RawValue>>,
    /// Whether it is an `mcp_message`, whose errors are JSON-RPC errors inside a successful answer.
    mcp: bool,
    life: Life,
    lane: Lane,
    router: ActorRef<RouterMessage>,
    counting: Arc<Counting>,
    gate: Arc<Gate>,
    server_gate: Option<Arc<Gate>>,
}

/// What an [`Owed`] is made from.
pub(crate) struct NewOwed<'a> {
    pub(crate) request_id: String,
    pub(crate) kind: &'static str,
    pub(crate) mcp: bool,
    pub(crate) rpc_id: Option<Box<RawValue>>,
    pub(crate) lane: &'a Lane,
    pub(crate) router: &'a ActorRef<RouterMessage>,
    pub(crate) counting: &'a Arc<Counting>,
    pub(crate) gate: &'a Arc<Gate>,
    /// For an `mcp_message` to a server that is there.
    pub(crate) server_gate: Option<&'a Arc<Gate>>,
    pub(crate) span: tracing::Span,
}

impl Owed {
    pub(crate) fn epoch(&self) -> u64 {
        self.lane.epoch()
    }

    pub(crate) fn lane(&self) -> &Lane {
        &self.lane
    }

    pub(crate) fn is_open(&self) -> bool {
        self.life.is_open()
    }

    /// A handler starts to work at it.
    pub(crate) fn dispatched(&self) {
        self.life.dispatch();
    }

    pub(crate) fn is_dispatched(&self) -> bool {
        self.life.stage() == Stage::Dispatched
    }

    /// Answers a JSON-RPC request with a result, as the one who was asked.
    pub(crate) fn mcp_result(&self, result: impl Serialize) {
        if self.settle(Settled::Answered) {
            self.write_mcp(Response::result(self.rpc_id.as_deref(), result));
        }
    }

    /// Answers a JSON-RPC request with an error, as the one who was asked.
    pub(crate) fn mcp_error(&self, error: &RpcError) {
        if self.settle(Settled::Answered) {
            self.write_error(error, None);
        }
    }

    /// The same in place of the one who was asked, because it took too long.
    pub(crate) fn mcp_timed_out_error(&self, error: &RpcError) {
        if self.settle(Settled::Cancelled) {
            self.write_error(error, None);
        }
    }

    /// Answers a JSON-RPC request with a result in place of the one who was asked, because it took too long.
    pub(crate) fn mcp_timed_out(&self, result: impl Serialize) {
        if self.settle(Settled::Cancelled) {
            self.write_mcp(Response::result(self.rpc_id.as_deref(), result));
        }
    }

    /// Acknowledges a JSON-RPC notification or response.
    pub(crate) fn mcp_ack(&self) {
        if self.settle(Settled::Answered) {
            // No JSON-RPC answer exists for it; this is what the official TypeScript SDK sends.
            self.write_mcp(serde_json::json!({ "jsonrpc": "2.0", "result": {}, "id": 0 }));
        }
    }

    /// Answers a request that is no JSON-RPC one.
    pub(crate) fn success(&self, body: impl Serialize) {
        if self.settle(Settled::Answered) {
            self.write(envelope::success(&self.request_id, body));
        }
    }

    /// The same in place of the one who was asked, because it took too long.
    pub(crate) fn timed_out(&self, body: impl Serialize) {
        if self.settle(Settled::Cancelled) {
            self.write(envelope::success(&self.request_id, body));
        }
    }

    /// Answers with an error for one who cannot or may not answer.
    pub(crate) fn refuse(&self, error: &RpcError) {
        if self.settle(Settled::Refused) {
            self.write_error(error, None);
        }
    }

    /// Answers a request whose subtype is not known.
    pub(crate) fn refuse_unsupported(&self, message: &str) {
        if self.settle(Settled::Refused) {
            self.write_error(&RpcError::internal(message), Some("unsupported_request"));
        }
    }

    /// Answers that it is cancelled, and tells the one who was asked.
    pub(crate) fn cancel(&self) -> bool {
        let first = self.settle(Settled::Cancelled);
        if first {
            self.write_error(&RpcError::cancelled(), None);
        }
        self.cancel.cancel();
        first
    }

    /// Gives the request up without an answer, and tells the one who was asked.
    pub(crate) fn orphan(&self) -> bool {
        let first = self.settle(Settled::Orphaned);
        self.cancel.cancel();
        first
    }

    fn gates(&self) -> impl Iterator<Item = &Gate> {
        [Some(&*self.gate), self.server_gate.as_deref()].into_iter().flatten()
    }

    fn settle(&self, how: Settled) -> bool {
        if !self.life.settle(how) {
            self.counting.late_answers.one();
            return false;
        }
        self.gates().for_each(Gate::leave);
        let (counter, outcome) = match how {
            Settled::Answered => (&self.counting.answered, "answered"),
            Settled::Cancelled => (&self.counting.cancelled, "cancelled"),
            Settled::Refused => (&self.counting.refused, "refused"),
            Settled::Orphaned => (&self.counting.orphaned, "orphaned"),
        };
        counter.one();
        self.span.record("outcome", outcome);
        // A router that is gone has no list to take it from.
        self.router
            .cast(RouterMessage::Settled(Closed { request_id: self.request_id.clone(), owed: self.key() }))
            .ok();
        true
    }

    /// Tells this request from another one with the same id.
    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn write_error(&self, error: &RpcError, code: Option<&str>) {
        if self.mcp {
            self.write_mcp(Response::<()>::error(self.rpc_id.as_deref(), error));
        } else {
            self.write(Ok(envelope::error(&self.request_id, &error.message, code)));
        }
    }

    fn write_mcp(&self, message: impl Serialize) {
        self.write(envelope::success(&self.request_id, McpResponse { mcp_response: message }));
    }

    fn write(&self, json: serde_json::Result<Vec<u8>>) {
        let json = json.unwrap_or_else(|error| {
            let message = format!("the answer does not serialise: {error}");
            if self.mcp {
                let error = RpcError::internal(message);
                let response = Response::<()>::error(self.rpc_id.as_deref(), &error);
                envelope::success(&self.request_id, McpResponse { mcp_response: response })
                    .unwrap_or_default()
            } else {
                envelope::error(&self.request_id, &message, None)
            }
        });
        // A lane that has ended belongs to an incarnation that nobody can answer any more.
        if self.lane.send(json).is_err() {
            tracing::debug!(
                request_id = self.request_id,
                epoch = self.epoch(),
                "answered an incarnation that has ended"
            );
        }
    }
}

impl fmt::Debug for Owed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owed")
            .field("request_id", &self.request_id)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// The duty to answer one request. Dropped without an outcome, it answers with an error.
#[derive(Debug)]
pub(crate) struct Answer(Option<Arc<Owed>>);

impl Answer {
    /// Begins to owe an answer.
    pub(crate) fn new(new: NewOwed<'_>) -> Self {
        new.counting.requests.one();
        let owed = Owed {
            request_id: new.request_id,
            kind: new.kind,
            received: Instant::now(),
            cancel: CancellationToken::new(),
            span: new.span,
            rpc_id: new.rpc_id,
            mcp: new.mcp,
            life: Life::default(),
            lane: new.lane.clone(),
            router: new.router.clone(),
            counting: new.counting.clone(),
            gate: new.gate.clone(),
            server_gate: new.server_gate.cloned(),
        };
        owed.gates().for_each(Gate::enter);
        Self(Some(Arc::new(owed)))
    }

    /// What it is that is owed.
    pub(crate) fn owed(&self) -> &Arc<Owed> {
        match &self.0 {
            Some(owed) => owed,
            // `give_up` consumes `self`, and nothing else takes the value.
            None => unreachable!("an answer that was taken is still in use"),
        }
    }

    /// Gives the duty back without an outcome: someone else has it (a second request with the same id), or
    /// there must be no answer.
    pub(crate) fn without_answer(mut self) {
        if let Some(owed) = self.0.take() {
            owed.orphan();
        }
    }

    /// Hands the duty over to a holder of the [`Owed`], who has to settle it.
    pub(crate) fn hand_over(mut self) -> Arc<Owed> {
        match self.0.take() {
            Some(owed) => owed,
            None => unreachable!("an answer is handed over once"),
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(owed) = &self.0
            && owed.is_open()
        {
            owed.refuse(&RpcError::internal(
                "the request was lost before it was answered: what should have answered it has ended",
            ));
            owed.cancel.cancel();
        }
    }
}

/// Says that a request was settled.
#[derive(Debug)]
pub(crate) struct Closed {
    request_id: String,
    owed: usize,
}

/// The open requests of the CLI, by `request_id`.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    open: HashMap<String, Arc<Owed>>,
    /// What the CLI may list as pending though it was settled, because the answer and the list crossed. The oldest go
    /// first.
    settled: VecDeque<String>,
}

/// A request with this id is in flight already.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Duplicate;

impl Ledger {
    pub(crate) fn register(&mut self, owed: &Arc<Owed>) -> Result<(), Duplicate> {
        if self.open.get(&owed.request_id).is_some_and(|other| other.is_open()) {
            return Err(Duplicate);
        }
        self.open.insert(owed.request_id.clone(), owed.clone());
        Ok(())
    }

    /// Takes a settled request off the list. One that has since been registered under the same id stays. Of those that
    /// the CLI may list as pending, so many are remembered as may be in flight.
    pub(crate) fn close(&mut self, closed: &Closed, remembered: usize) {
        if self.open.get(&closed.request_id).is_none_or(|owed| owed.key() != closed.owed) {
            return;
        }
        let Some(owed) = self.open.remove(&closed.request_id) else { return };
        if ["can_use_tool", "request_user_dialog", "elicitation"].contains(&owed.kind) {
            self.settled.push_back(owed.request_id.clone());
            if self.settled.len() > remembered {
                self.settled.pop_front();
            }
        }
    }

    /// Whether a request with this id is or was here in this incarnation.
    pub(crate) fn knows(&self, request_id: &str) -> bool {
        self.open.contains_key(request_id) || self.settled.iter().any(|settled| settled == request_id)
    }

    pub(crate) fn get(&self, request_id: &str) -> Option<&Arc<Owed>> {
        self.open.get(request_id).filter(|owed| owed.is_open())
    }

    pub(crate) fn open(&self) -> impl Iterator<Item = &Arc<Owed>> {
        self.open.values().filter(|owed| owed.is_open())
    }

    /// Gives up what an incarnation asked, and all before it.
    pub(crate) fn end_epoch(&mut self, epoch: u64) {
        self.settled.clear();
        self.open.retain(|_, owed| {
            let ended = owed.epoch() <= epoch;
            if ended && owed.is_open() {
                owed.orphan();
            }
            !ended
        });
    }
}

impl Drop for Ledger {
    /// A router that ends owes nothing: what is open is answered with an error.
    fn drop(&mut self) {
        for owed in self.open.values().filter(|owed| owed.is_open()) {
            owed.refuse(&RpcError::internal("the control router of the host has ended"));
            owed.cancel.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actor::lane::LaneEnd;
    use ractor::{Actor, ActorProcessingErr};
    use serde_json::Value;
    use std::time::Duration;

    /// A router that keeps nothing.
    struct Deaf;

    #[cfg_attr(feature = "async-trait", ractor::async_trait)]
    impl Actor for Deaf {
        type Msg = RouterMessage;
        type State = ();
        type Arguments = ();

        async fn pre_start(&self, _: ActorRef<RouterMessage>, (): ()) -> Result<(), ActorProcessingErr> {
            Ok(())
        }
    }

    struct Desk {
        router: ActorRef<RouterMessage>,
        lane: Lane,
        end: Option<LaneEnd>,
        counting: Arc<Counting>,
        gate: Arc<Gate>,
    }

    impl Desk {
        async fn open(epoch: u64) -> Self {
            let (router, _) = Actor::spawn(None, Deaf, ()).await.unwrap();
            let (lane, end) = Lane::new(epoch, &crate::options::Limits::default());
            Self {
                router,
                lane,
                end: Some(end),
                counting: Arc::default(),
                gate: Arc::new(Gate::new(None, 9)),
            }
        }

        fn asks(&self, request_id: &str, mcp: bool) -> Answer {
            Answer::new(NewOwed {
                request_id: request_id.into(),
                kind: "test",
                mcp,
                rpc_id: mcp.then(|| RawValue::from_string("18446744073709551615".into()).unwrap()),
                lane: &self.lane,
                router: &self.router,
                counting: &self.counting,
                gate: &self.gate,
                server_gate: None,
                span: tracing::Span::none(),
            })
        }

        /// Everything that was written.
        async fn written(mut self) -> Vec<Value> {
            self.router.stop(None);
            self.lane.close();
            let mut bytes = Vec::new();
            let end = self.end.take().unwrap();
            crate::actor::lane::write_lines(end, &mut bytes, Duration::from_secs(9)).await.unwrap();
            bytes
                .split(|byte| *byte == b'\n')
                .filter(|line| !line.is_empty())
                .map(|line| serde_json::from_slice(line).unwrap())
                .collect()
        }
    }

    #[tokio::test]
    async fn the_first_outcome_is_written_and_every_later_one_is_counted() {
        let desk = Desk::open(1).await;
        let answer = desk.asks("a", true);
        let owed = answer.owed().clone();
        answer.hand_over().mcp_result("first");
        owed.mcp_result("second");
        assert!(!owed.cancel());
        owed.refuse(&RpcError::internal("late"));
        assert!(owed.cancel.is_cancelled(), "a handler that is late is told all the same");
        assert_eq!((desk.counting.answered.get(), desk.counting.late_answers.get()), (1, 3));
        assert_eq!(desk.gate.in_flight(), 0);
        let written = desk.written().await;
        assert_eq!(written.len(), 1);
        let expected =
            serde_json::json!({"jsonrpc": "2.0", "id": 18446744073709551615_u64, "result": "first"});
        assert_eq!(written[0]["response"]["response"]["mcp_response"], expected);
    }

    #[tokio::test]
    async fn an_answer_that_is_dropped_is_an_error_in_the_shape_of_its_request() {
        let desk = Desk::open(1).await;
        drop(desk.asks("a", true));
        drop(desk.asks("b", false));
        assert_eq!(desk.counting.refused.get(), 2);
        let written = desk.written().await;
        assert_eq!(written[0]["response"]["response"]["mcp_response"]["error"]["code"], -32603);
        assert_eq!(written[1]["response"]["subtype"], "error");
    }

    #[tokio::test]
    async fn what_was_withdrawn_is_not_answered() {
        let desk = Desk::open(1).await;
        let answer = desk.asks("a", false);
        answer.owed().orphan();
        answer.hand_over().success(1);
        desk.asks("b", false).without_answer();
        assert_eq!((desk.counting.orphaned.get(), desk.counting.late_answers.get()), (2, 1));
        assert!(desk.written().await.is_empty());
    }

    #[tokio::test]
    async fn an_id_may_be_used_again_once_it_is_settled_and_not_before() {
        let desk = Desk::open(1).await;
        let mut ledger = Ledger::default();
        let first = desk.asks("a", false);
        assert_eq!(ledger.register(first.owed()), Ok(()));
        let second = desk.asks("a", false);
        assert_eq!(ledger.register(second.owed()), Err(Duplicate));
        second.without_answer();
        let closed = Closed { request_id: "a".into(), owed: first.owed().key() };
        first.hand_over().success(1);
        let third = desk.asks("a", false);
        assert_eq!(ledger.register(third.owed()), Ok(()));
        // The news that the first is settled comes late, and must not take the third off the list.
        ledger.close(&closed, 8);
        assert!(ledger.get("a").is_some());
        drop(ledger);
        assert!(!third.owed().is_open(), "a ledger that ends answers for what is open");
        drop(third);
        assert_eq!(desk.written().await.len(), 2);
    }

    #[tokio::test]
    async fn the_end_of_an_incarnation_orphans_its_requests_and_no_younger_ones() {
        let (old, new) = (Desk::open(1).await, Desk::open(2).await);
        let mut ledger = Ledger::default();
        let (first, second) = (old.asks("a", false), new.asks("b", false));
        ledger.register(first.owed()).unwrap();
        ledger.register(second.owed()).unwrap();
        ledger.end_epoch(1);
        assert!(first.owed().cancel.is_cancelled() && !second.owed().cancel.is_cancelled());
        first.hand_over().success(1);
        second.hand_over().success(2);
        assert!(old.written().await.is_empty());
        assert_eq!(new.written().await.len(), 1);
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
}
