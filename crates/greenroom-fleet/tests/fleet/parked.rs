//! Turns that are parked while a person decides.

use std::time::Duration;

use greenroom::callback::InquiryAnswer;
use greenroom_fleet::backend::{Backend, MemoryBackend, Requests};
use greenroom_fleet::testkit::{Fault, FaultedBackend, FleetFault};
use greenroom_fleet::{
    AnswerError, Fleet, FleetBuilder, FleetEvent, FleetLimits, InterruptedBy, Name, NameState, PromptOutcome,
    PromptState, QuestionId, QuestionQuery, QuestionRecord, Quota, SnapshotQuery, Term, TranscriptsIn,
    TurnItem,
};
use serde_json::json;
use tempfile::TempDir;
use tokio::time::Instant;

use crate::parking::Parking;
use crate::scenes::{Log, asks, drain, in_time, named, outcome, secs, send, stage, start};

const HOLDS: Duration = Duration::from_secs(60);

/// A backend with transcripts, for fleets with folders of their own.
struct Stage {
    backend: MemoryBackend,
    clis: Parking,
    folder: TempDir,
}

struct Node {
    fleet: Fleet,
    backend: FaultedBackend,
    log: Log,
}

impl Stage {
    fn new() -> Self {
        let (backend, clis) = (MemoryBackend::new(), Parking::default());
        Self { backend, clis, folder: tempfile::tempdir().unwrap() }
    }

    async fn node(&self, host: &str) -> Node {
        self.with(host, |builder| builder).await
    }

    async fn with(&self, host: &str, change: impl FnOnce(FleetBuilder) -> FleetBuilder) -> Node {
        let backend = FaultedBackend::new(self.backend.clone());
        let builder = change(self.builder(host, backend.clone()));
        let log = Log::new(builder.events());
        Node { fleet: start(builder).await, backend, log }
    }

    fn builder(&self, host: &str, backend: impl Backend) -> FleetBuilder {
        let clis = self.clis.clone();
        Fleet::builder()
            .backend(backend)
            .transcripts(TranscriptsIn::Backend)
            .host(host)
            .folder(self.folder.path().join(host))
            .profile("default", move |_| clis.session())
    }
}

impl Node {
    async fn asked(&self) -> Instant {
        self.log.wait("the question", |event| matches!(event, FleetEvent::Asked { .. })).await
    }

    /// Waits until the turn is parked and its session is asleep.
    async fn parked(&self) -> QuestionRecord {
        let parked = |event: &FleetEvent| matches!(event, FleetEvent::Parked { .. });
        self.log.wait("the park", parked).await;
        in_time("the sleep", async {
            let name = "default/a".parse::<Name>().unwrap();
            while self.backend.name_record(name.clone()).await.unwrap().unwrap().state != NameState::Free {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
        self.question().await
    }

    async fn question(&self) -> QuestionRecord {
        let questions = self.fleet.operator().questions(QuestionQuery::new()).await.unwrap();
        let [question] = &*questions else { panic!("{questions:?}") };
        question.clone()
    }

    async fn answers(&self, question: QuestionId, answer: InquiryAnswer) -> Result<(), AnswerError> {
        in_time("the answer", self.fleet.operator().answer(question, answer)).await
    }

    /// As `kill -9` of a service.
    async fn kill(&self) {
        self.backend.plan(|_| Fault::Hang);
        self.fleet.inject(FleetFault::Supervisor);
        in_time("the end of the node", self.fleet.wait()).await;
    }
}

// Guards: waits-for-people
#[tokio::test(start_paused = true)]
async fn a_question_is_held_for_a_minute_and_then_holds_nothing() {
    let stage_of = Stage::new();
    let node = stage_of.node("one").await;
    asks(&node.fleet, "a", "hello").await;
    named(&node.fleet, "a").passivate().await.unwrap();
    tokio::time::sleep(secs(5)).await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let turn = send(&node.fleet, "a", "run").await;
    let prompt = turn.prompt_id();
    drop(turn);
    let asked = node.asked().await;
    let parked = node.log.wait("the park", |event| matches!(event, FleetEvent::Parked { .. })).await;
    assert!((parked - asked).abs_diff(HOLDS) < secs(1), "{:?}", parked - asked);
    assert!(node.parked().await.parked);
    tokio::time::sleep(secs(3600)).await;
    assert_eq!((stage(&node.fleet, "a").await, tasks()), ("passive", before));
    let record = stage_of.backend.prompt_record(prompt).await.unwrap().unwrap();
    assert!(matches!(record.state, PromptState::Parked { .. }), "{record:?}");
}

#[tokio::test(start_paused = true)]
async fn a_question_that_is_answered_in_time_parks_nothing() {
    let stage = Stage::new();
    let node = stage.node("one").await;
    let turn = send(&node.fleet, "a", "run").await;
    node.asked().await;
    tokio::time::sleep(secs(50)).await;
    node.answers(node.question().await.id, InquiryAnswer::allow()).await.unwrap();
    assert_eq!(outcome(turn).await.text(), Some("ran"));
    assert_eq!(node.log.count(|event| matches!(event, FleetEvent::Parked { .. })), 0);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_goes_on_numbers_its_messages_on_and_has_one_outcome() {
    let stage = Stage::new();
    let node = stage.node("one").await;
    let mut turn = send(&node.fleet, "a", "run").await;
    let behind = send(&node.fleet, "a", "behind").await;
    let question = node.parked().await;
    let changed = InquiryAnswer::allow_with(json!({ "command": "pwd" }));
    node.answers(question.id, changed).await.unwrap();
    let mut numbers = Vec::new();
    while let Some(item) = in_time("a message", turn.next()).await {
        match item.unwrap() {
            TurnItem::Message { seq, .. } => numbers.push(seq),
            other => panic!("{other:?}"),
        }
    }
    assert!(numbers.len() > 4 && numbers.iter().copied().eq(1..=numbers.len() as u64), "{numbers:?}");
    assert_eq!(in_time("the outcome", turn.outcome()).await.unwrap().text(), Some("ran"));
    assert_eq!(
        stage.clis.ran().iter().map(|(_, input)| input.clone()).collect::<Vec<_>>(),
        [json!({ "command": "pwd" })]
    );
    assert_eq!(stage.clis.asked_again().len(), 1);
    let prompt = turn.prompt_id();
    let ends =
        |event: &FleetEvent| matches!(event, FleetEvent::Ended { prompt: ended, .. } if *ended == prompt);
    assert_eq!((outcome(behind).await.text(), node.log.count(ends)), (Some("Here I am."), 1));
}

// Guards: waits-for-people
#[tokio::test(start_paused = true)]
async fn two_people_answer_at_once_from_two_nodes_and_one_decides() {
    let stage = Stage::new();
    let (one, two) = (stage.node("one").await, stage.node("two").await);
    let turn = send(&one.fleet, "a", "run").await;
    let question = one.parked().await;
    let answers = [
        one.answers(question.id, InquiryAnswer::allow()),
        two.answers(question.id, InquiryAnswer::deny("no")),
    ];
    let [first, second] = futures_util::future::join_all(answers).await.try_into().unwrap();
    let allowed = match (&first, &second) {
        (Ok(()), Err(AnswerError::TooLate { .. })) => true,
        (Err(AnswerError::TooLate { .. }), Ok(())) => false,
        both => panic!("{both:?}"),
    };
    assert_eq!(outcome(turn).await.text(), Some(if allowed { "ran" } else { "denied: no" }));
    assert_eq!(stage.clis.ran().len(), usize::from(allowed));
}

// Guards: waits-for-people
#[tokio::test(start_paused = true)]
async fn a_drained_node_leaves_its_question_to_another_node_at_once() {
    let stage = Stage::new();
    let one = stage.node("one").await;
    let prompt = send(&one.fleet, "a", "run").await.prompt_id();
    one.asked().await;
    let two = stage.node("two").await;
    assert!(drain(&one.fleet, secs(28)).await < secs(5));
    let question = two.question().await;
    assert!(question.parked);
    two.answers(question.id, InquiryAnswer::allow()).await.unwrap();
    assert_eq!(outcome(two.fleet.operator().turn(prompt)).await.text(), Some("ran"));
    assert_eq!((stage.clis.ran().len(), stage.clis.asked_again().len()), (1, 1));
}

// Guards: waits-for-people
#[tokio::test(start_paused = true)]
async fn a_question_of_a_killed_node_is_answered_on_another_node() {
    for answered_before in [false, true] {
        let stage = Stage::new();
        let one = stage.node("one").await;
        let prompt = send(&one.fleet, "a", "run").await.prompt_id();
        one.asked().await;
        let two = stage.node("two").await;
        // The transcript has the call.
        tokio::time::sleep(secs(1)).await;
        one.kill().await;
        let question = two.question().await;
        if answered_before {
            // The node that asks is dead, and nobody knows it yet.
            two.answers(question.id, InquiryAnswer::allow()).await.unwrap();
        } else {
            two.log.wait("the loss", |event| matches!(event, FleetEvent::Parked { .. })).await;
            two.answers(question.id, InquiryAnswer::allow()).await.unwrap();
        }
        assert_eq!(outcome(two.fleet.operator().turn(prompt)).await.text(), Some("ran"));
        assert_eq!((stage.clis.ran().len(), stage.clis.asked_again().len()), (1, 1), "{answered_before}");
    }
}

// Guards: waits-for-people
#[tokio::test(start_paused = true)]
async fn a_node_that_dies_before_its_cli_gets_the_decision_leaves_the_call_to_another_one() {
    let stage = Stage::new();
    let one = stage.node("one").await;
    let prompt = send(&one.fleet, "a", "run").await.prompt_id();
    let question = one.parked().await;
    one.backend.plan(|request| if request.method == "hand_over" { Fault::Hang } else { Fault::Pass });
    one.answers(question.id, InquiryAnswer::allow()).await.unwrap();
    let is_begun = |event: &FleetEvent| matches!(event, FleetEvent::Begun { .. });
    one.log.wait_for("the second begin", 2, is_begun).await;
    tokio::time::sleep(secs(1)).await;
    assert_eq!(stage.clis.ran(), []);
    one.kill().await;
    let two = stage.node("two").await;
    assert_eq!(outcome(two.fleet.operator().turn(prompt)).await.text(), Some("ran"));
    assert_eq!((stage.clis.ran().len(), stage.clis.asked_again().len()), (1, 2));
    let record = stage.backend.prompt_record(prompt).await.unwrap().unwrap();
    assert_eq!(record.begins, 3);
}

#[tokio::test(start_paused = true)]
async fn a_question_over_the_tenants_bound_of_parked_turns_holds_its_session() {
    let stage_of = Stage::new();
    let mut quota = Quota::default();
    quota.parked = 1;
    let node = stage_of.with("one", |builder| builder.tenant("default", quota)).await;
    let first = send(&node.fleet, "a", "run").await;
    let parked = node.parked().await;
    let second = send(&node.fleet, "b", "run").await;
    let start = Instant::now();
    assert_eq!(outcome(second).await.text(), Some("denied: no person has answered within 600s"));
    assert!(start.elapsed().abs_diff(secs(600)) < secs(2), "{:?}", start.elapsed());
    node.answers(parked.id, InquiryAnswer::deny("no")).await.unwrap();
    assert_eq!(outcome(first).await.text(), Some("denied: no"));
    assert_eq!(stage_of.clis.ran(), []);
}

#[tokio::test(start_paused = true)]
async fn a_profile_has_its_own_time_after_which_questions_are_deferred() {
    let stage = Stage::new();
    let node = stage.with("one", |builder| builder.question_holds("default", Duration::ZERO)).await;
    let turn = send(&node.fleet, "a", "run").await;
    let asked = node.asked().await;
    let question = node.parked().await;
    let at = node.log.wait("the park", |event| matches!(event, FleetEvent::Parked { .. })).await;
    assert!(at - asked < secs(1), "{:?}", at - asked);
    node.answers(question.id, InquiryAnswer::allow()).await.unwrap();
    assert_eq!(outcome(turn).await.text(), Some("ran"));
}

#[tokio::test(start_paused = true)]
async fn a_fleet_does_not_start_with_times_for_a_profile_that_it_has_not() {
    let builder = Fleet::builder().question_holds("refunds", secs(1));
    let refused = builder.start().await.map(drop).unwrap_err().to_string();
    assert!(refused.contains("the profile 'refunds'"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_parked_question_that_nobody_answers_is_denied_and_the_turn_goes_on() {
    let stage = Stage::new();
    let short = |limits: &mut FleetLimits| limits.question_parked = secs(3600);
    let node = stage.with("one", |builder| builder.configure(short)).await;
    let start = Instant::now();
    let turn = send(&node.fleet, "a", "run").await;
    let text = outcome(turn).await;
    assert_eq!(text.text(), Some("denied: no person has answered within 3600s"));
    assert!(start.elapsed().abs_diff(secs(3600)) < secs(10), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_parked_session_is_not_warmed_and_its_turn_is_interrupted_without_a_cli() {
    let stage = Stage::new();
    let (one, two) = (stage.node("one").await, stage.node("two").await);
    let turn = send(&one.fleet, "a", "run").await;
    let question = one.parked().await;
    let refused = named(&two.fleet, "a").warm().await.unwrap_err().to_string();
    assert!(refused.contains("a turn of the session is parked"), "{refused}");
    let prompt = turn.prompt_id();
    assert!(in_time("the interrupt", named(&two.fleet, "a").interrupt_turn(prompt)).await.unwrap());
    assert!(!in_time("the second one", named(&two.fleet, "a").interrupt()).await.unwrap());
    let ended = outcome(turn).await;
    assert_eq!(ended, PromptOutcome::Interrupted { by: InterruptedBy::User, result: None });
    let late = one.answers(question.id, InquiryAnswer::allow()).await;
    assert!(matches!(late, Err(AnswerError::Gone(_))), "{late:?}");
    assert_eq!(asks(&one.fleet, "a", "hello").await, "Here I am.");
    assert_eq!((stage.clis.ran(), stage.clis.asked_again()), (Vec::new(), Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_parked_session_can_be_quarantined_and_deleted() {
    let stage = Stage::new();
    let node = stage.node("one").await;
    let turn = send(&node.fleet, "a", "run").await;
    let question = node.parked().await;
    let session = named(&node.fleet, "a");
    in_time("the quarantine", session.quarantine("by hand")).await.unwrap();
    node.answers(question.id, InquiryAnswer::allow()).await.unwrap();
    tokio::time::sleep(secs(30)).await;
    assert_eq!(stage.clis.ran(), [], "a quarantined session does nothing");
    session.unquarantine().await.unwrap();
    assert_eq!(outcome(turn).await.text(), Some("ran"));

    let turn = send(&node.fleet, "a", "run").await;
    node.log.wait_for("the park", 2, |event| matches!(event, FleetEvent::Parked { .. })).await;
    in_time("the deletion", session.delete()).await.unwrap();
    drop(turn);
    let questions = node.fleet.operator().questions(QuestionQuery::new()).await.unwrap();
    assert_eq!(questions, []);
    assert_eq!(
        stage.backend.name_record("default/a".parse().unwrap()).await.unwrap().map(|name| name.term),
        None::<Term>
    );
}

// Guards: waits-for-people
#[tokio::test(start_paused = true)]
async fn a_thousand_parked_turns_hold_no_cli_and_no_task() {
    let stage = Stage::new();
    let many = |limits: &mut FleetLimits| {
        (limits.live, limits.activations_at_once, limits.wait) = (8, 8, secs(24 * 3600));
        (limits.queue.tenant, limits.queue.fleet) = (2000, 2000);
    };
    // Without a log, which would miss events of so many turns.
    let builder = stage.builder("one", stage.backend.clone()).configure(many);
    let fleet = builder.question_holds("default", Duration::ZERO).start().await.unwrap();
    asks(&fleet, "first", "hello").await;
    named(&fleet, "first").passivate().await.unwrap();
    tokio::time::sleep(secs(5)).await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    for name in 0..1000 {
        drop(send(&fleet, &format!("name-{name}"), "run").await);
    }
    let parked = async || stage.backend.tenant("default".try_into().unwrap()).await.unwrap().parked;
    while parked().await < 1000 {
        tokio::time::sleep(secs(1)).await;
    }
    tokio::time::sleep(secs(60)).await;
    let snapshot = fleet.operator().snapshot(SnapshotQuery::active()).await.unwrap();
    assert_eq!((snapshot.live, snapshot.names.len(), tasks()), (0, 0, before));
    let question = fleet.operator().questions(QuestionQuery::new().limit(1)).await.unwrap().remove(0);
    fleet.operator().answer(question.id, InquiryAnswer::allow()).await.unwrap();
    assert_eq!(outcome(fleet.operator().turn(question.prompt)).await.text(), Some("ran"));
    assert_eq!((stage.clis.ran().len(), parked().await), (1, 999));
}
