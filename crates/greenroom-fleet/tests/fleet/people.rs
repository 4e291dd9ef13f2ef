//! Questions that sessions ask people: asked, answered, and ended without an answer.

use std::time::Duration;

use greenroom::callback::{Inquiry, InquiryAnswer};
use greenroom::permission::Answers;
use greenroom::{NoArgs, PermissionDecision, Session, SessionBuilder, ToolServer};
use greenroom_fleet::backend::{Backend, MemoryBackend, Requests};
use greenroom_fleet::testkit::{Fault, FaultedBackend};
use greenroom_fleet::{
    ActivationContext, AnswerError, AttemptId, Decision, Fleet, FleetBuilder, FleetEvent, FleetEvents,
    FleetLimits, FleetTurn, InterruptedBy, Name, PromptOutcome, QuestionAnswer, QuestionId, QuestionQuery,
};
use greenroom_testkit::{ModelTurn, Script, ScriptedCli};
use serde_json::json;
use tokio::time::Instant;

use crate::wait::within;

const QUESTION: Duration = Duration::from_secs(600);
const PARKED: Duration = Duration::from_secs(14 * 24 * 3600);
const SOON: Duration = Duration::from_secs(5);

/// A CLI whose model refunds an order, then says so.
fn refunds() -> ScriptedCli {
    let refund = ModelTurn::new().call("mcp__shop__refund", json!({}));
    ScriptedCli::play(Script::new().turn(refund).otherwise(ModelTurn::new().text("Done.")))
}

fn shop() -> SessionBuilder {
    let shop = ToolServer::new("shop", "1.0.0").tool("refund", "Refund", async |_: NoArgs| "refunded");
    Session::builder().mcp_server(shop)
}

fn asking(backend: impl Backend, cli: &ScriptedCli) -> FleetBuilder {
    let transport = cli.transport();
    Fleet::builder().backend(backend).profile("default", move |_| shop().transport(transport.clone()))
}

/// A fleet with a session that has asked for a permission.
struct Desk {
    backend: FaultedBackend,
    cli: ScriptedCli,
    fleet: Fleet,
    events: FleetEvents,
    turn: FleetTurn,
    question: QuestionId,
}

impl Desk {
    async fn open() -> Self {
        Self::over(FaultedBackend::new(MemoryBackend::new())).await
    }

    async fn over(backend: FaultedBackend) -> Self {
        Self::with(backend, |_| {}).await
    }

    async fn with(backend: FaultedBackend, change: impl FnOnce(&mut FleetLimits)) -> Self {
        let cli = refunds();
        let fleet = asking(backend.clone(), &cli).configure(change).start().await.unwrap();
        let mut events = fleet.operator().events().unwrap();
        let customer = fleet.tenant("acme").unwrap().session("customer-42").unwrap();
        let turn = customer.prompt("I want my money back.").await.unwrap();
        let question = asked(&mut events).await;
        Self { backend, cli, fleet, events, turn, question }
    }

    async fn open_questions(&self) -> usize {
        self.fleet.operator().questions(QuestionQuery::new()).await.unwrap().len()
    }

    /// The tool's result once the turn has ended.
    async fn result(&mut self) -> String {
        let outcome = within(SOON, self.turn.outcome()).await.unwrap();
        assert_eq!(outcome.text(), Some("Done."), "{outcome:?}");
        assert_eq!(self.open_questions().await, 0);
        self.cli.tool_results().concat()
    }
}

async fn asked(events: &mut FleetEvents) -> QuestionId {
    let asked = async {
        loop {
            if let FleetEvent::Asked { question, .. } = events.next().await.unwrap().unwrap() {
                return question;
            }
        }
    };
    within(SOON, asked).await
}

async fn decided(events: &mut FleetEvents) -> QuestionId {
    let decided = async {
        loop {
            if let FleetEvent::Decided { question, .. } = events.next().await.unwrap().unwrap() {
                return question;
            }
        }
    };
    within(SOON, decided).await
}

#[tokio::test(start_paused = true)]
async fn a_call_that_a_person_allows_runs() {
    let mut desk = Desk::open().await;
    let open = desk.fleet.operator().questions(QuestionQuery::new()).await.unwrap();
    let [question] = &*open else { panic!("{open:?}") };
    assert_eq!((question.id, question.name.clone()), (desk.question, "acme/customer-42".parse().unwrap()));
    assert_eq!(question.prompt, desk.turn.prompt_id());
    assert_eq!(question.deadline.since(question.asked_at), PARKED);
    let Some(Inquiry::Permission { request }) = question.inquiry() else { panic!("{question:?}") };
    assert_eq!(request.tool_name, "mcp__shop__refund");
    assert!(desk.cli.tool_results().is_empty());

    let start = Instant::now();
    desk.fleet.operator().answer(desk.question, InquiryAnswer::allow()).await.unwrap();
    assert_eq!(desk.result().await, "refunded");
    // The change is told: nobody waits for the next look at the question.
    assert!(start.elapsed() < Duration::from_millis(500), "{:?}", start.elapsed());
    assert_eq!(decided(&mut desk.events).await, desk.question);
}

#[tokio::test(start_paused = true)]
async fn the_model_reads_why_a_person_denies_a_call() {
    let mut desk = Desk::open().await;
    desk.fleet.operator().answer(desk.question, InquiryAnswer::deny("ask on Monday")).await.unwrap();
    assert_eq!(desk.result().await, "error: ask on Monday");
}

#[tokio::test(start_paused = true)]
async fn of_many_answers_one_decides_and_the_others_learn_whose() {
    let mut desk = Desk::open().await;
    let operator = desk.fleet.operator();
    let answers = (0..8).map(|person: u32| {
        let denied = InquiryAnswer::deny(person.to_string());
        operator.answer(desk.question, QuestionAnswer::new(denied).by(person.to_string()))
    });
    let mut winners = Vec::new();
    let mut told = Vec::new();
    for (person, answered) in futures_util::future::join_all(answers).await.into_iter().enumerate() {
        match answered {
            Ok(()) => winners.push(person.to_string()),
            Err(AnswerError::TooLate { decision, .. }) => told.extend(decision.answer().unwrap().by),
            Err(error) => panic!("{error}"),
        }
    }
    let [winner] = &*winners else { panic!("{winners:?}") };
    assert_eq!(told, vec![winner.clone(); 7]);
    assert_eq!(desk.result().await, format!("error: {winner}"));
}

#[tokio::test(start_paused = true)]
async fn a_question_is_denied_at_its_deadline_and_the_turn_goes_on() {
    for (changes, parks) in [(true, false), (false, false), (true, true)] {
        let backend = FaultedBackend::new(MemoryBackend::new());
        let backend = if changes { backend } else { backend.without_changes() };
        // This CLI writes no transcript, so its questions cannot be deferred.
        let parked = if parks { PARKED } else { Duration::ZERO };
        let mut desk = Desk::with(backend, |limits| limits.question_parked = parked).await;
        let start = Instant::now();
        assert_eq!(desk.turn.outcome().await.unwrap().text(), Some("Done."));
        let waited = start.elapsed();
        // The session looks for the call in files, and the paused clock runs meanwhile.
        let late = Duration::from_secs(if parks { 120 } else { 1 });
        assert!(waited.abs_diff(QUESTION) < late, "{waited:?}");
        assert_eq!(desk.cli.tool_results(), ["error: no person has answered within 600s"]);
        assert_eq!(decided(&mut desk.events).await, desk.question);
        let late = desk.fleet.operator().answer(desk.question, InquiryAnswer::allow()).await.unwrap_err();
        let AnswerError::TooLate { decision, .. } = late else { panic!("{late:?}") };
        // Before the deadline of a question that can be deferred, the session takes it back.
        let is_expired = matches!(decision, Decision::Expired { .. });
        assert!(is_expired != parks && decision.answer().is_none(), "{decision:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_ends_with_its_turn() {
    let mut desk = Desk::open().await;
    assert!(desk.fleet.tenant("acme").unwrap().session("customer-42").unwrap().interrupt().await.unwrap());
    let outcome = within(SOON, desk.turn.outcome()).await.unwrap();
    assert!(matches!(outcome, PromptOutcome::Interrupted { .. }), "{outcome:?}");
    assert_eq!(desk.open_questions().await, 0);
    assert_eq!(decided(&mut desk.events).await, desk.question);
    let late = desk.fleet.operator().answer(desk.question, InquiryAnswer::allow()).await.unwrap_err();
    assert!(!matches!(late, AnswerError::Unknown { .. } | AnswerError::Misfit(_)), "{late:?}");
    assert_eq!(desk.cli.tool_results(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_question_is_answered_on_another_handle_of_the_backend() {
    let mut desk = Desk::open().await;
    let other = asking(desk.backend.clone(), &desk.cli).start().await.unwrap();
    let open = other.tenant("acme").unwrap().session("customer-42").unwrap().questions().await.unwrap();
    assert_eq!(open[0].id, desk.question);
    other.operator().answer(open[0].id, InquiryAnswer::allow()).await.unwrap();
    assert_eq!(desk.result().await, "refunded");
}

#[tokio::test(start_paused = true)]
async fn a_turn_whose_conversation_has_lost_its_call_ends_as_interrupted_when_it_is_answered() {
    let backend = MemoryBackend::new();
    let desk = Desk::over(FaultedBackend::new(backend.clone())).await;
    let fleet = asking(backend.reopen().await.unwrap(), &desk.cli).start().await.unwrap();
    let questions = fleet.operator().questions(QuestionQuery::new()).await.unwrap();
    assert!(questions[0].parked && questions[0].id == desk.question, "{questions:?}");
    fleet.operator().answer(desk.question, InquiryAnswer::allow()).await.unwrap();
    // This CLI writes no transcript. The CLI of the first fleet goes on in this test, and its host denies the call.
    let outcome = within(SOON, fleet.operator().turn(desk.turn.prompt_id()).outcome()).await.unwrap();
    let PromptOutcome::Interrupted { by: InterruptedBy::Session { cause }, .. } = outcome else {
        panic!("{outcome:?}")
    };
    assert!(cause.contains("cannot go on with the call"), "{cause}");
    let denied = "error: no person can be asked: this process does not own the session any more";
    assert_eq!(desk.cli.tool_results(), [denied]);
    let session = fleet.tenant("acme").unwrap().session("customer-42").unwrap();
    let mut next = session.prompt("Are you there?").await.unwrap();
    assert!(within(SOON, next.outcome()).await.unwrap().is_completed());
}

#[tokio::test(start_paused = true)]
async fn the_profile_decides_first_and_people_decide_what_it_leaves_open() {
    for (money, result) in
        [("little", "refunded"), ("none", "error: by the profile"), ("much", "error: by a person")]
    {
        let cli = refunds();
        let transport = cli.transport();
        let profile = move |_: &_| {
            shop().transport(transport.clone()).can_use_tool(move |_, _| async move {
                match money {
                    "little" => PermissionDecision::allow(),
                    "none" => PermissionDecision::deny("by the profile"),
                    _ => PermissionDecision::undecided(),
                }
            })
        };
        let fleet = Fleet::builder().profile("default", profile).start().await.unwrap();
        let mut events = fleet.operator().events().unwrap();
        let mut turn = fleet
            .tenant("default")
            .unwrap()
            .session("customer-42")
            .unwrap()
            .prompt("My money.")
            .await
            .unwrap();
        if money == "much" {
            let question = asked(&mut events).await;
            fleet.operator().answer(question, InquiryAnswer::deny("by a person")).await.unwrap();
        }
        within(SOON, turn.outcome()).await.unwrap();
        assert_eq!(cli.tool_results(), [result]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_fit_leaves_the_question_open() {
    let port = json!({ "questions": [{ "question": "Which port?", "header": "Port", "options": [] }] });
    let ask = ModelTurn::new().call("AskUserQuestion", port);
    let cli = ScriptedCli::play(Script::new().turn(ask).turn(ModelTurn::new().text("Done.")));
    let fleet = asking(MemoryBackend::new(), &cli).start().await.unwrap();
    let mut events = fleet.operator().events().unwrap();
    let mut turn =
        fleet.tenant("default").unwrap().session("customer-42").unwrap().prompt("Serve it.").await.unwrap();
    let question = asked(&mut events).await;
    let misfit = fleet.operator().answer(question, InquiryAnswer::allow()).await.unwrap_err();
    assert!(matches!(misfit, AnswerError::Misfit(_)), "{misfit:?}");
    assert_eq!(
        misfit.to_string(),
        "the question is a `questions`, and `allowed` answers a `permission` only: deny it or dismiss it instead"
    );

    let open = fleet.operator().questions(QuestionQuery::new()).await.unwrap();
    let Some(Inquiry::Questions { questions }) = open[0].inquiry() else { panic!("{open:?}") };
    assert_eq!((open.len(), &*questions[0].question), (1, "Which port?"));
    let answers = Answers::new().answer("Which port?", "8080");
    fleet.operator().answer(question, InquiryAnswer::Answered(answers)).await.unwrap();
    within(SOON, turn.outcome()).await.unwrap();
    assert!(cli.tool_results()[0].contains("\"Which port?\"=\"8080\""), "{:?}", cli.tool_results());
}

#[tokio::test(start_paused = true)]
async fn a_foreign_answer_in_the_backend_denies_with_a_text() {
    let completed = json!({ "answer": { "kind": "completed", "result": 1 } });
    for (stored, result) in
        [(json!("yes"), "cannot be read"), (completed, "`completed` answers a `dialog` only")]
    {
        let mut desk = Desk::open().await;
        let _ = desk.backend.answer(desk.question, AttemptId::new(), stored).await.unwrap();
        let said = desk.result().await;
        assert!(said.starts_with("error: the person's answer") && said.contains(result), "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_survives_a_backend_that_is_away() {
    let backend = FaultedBackend::new(MemoryBackend::new()).without_changes();
    backend.plan(|request| match (request.method, request.nth) {
        ("ask", 1..=3) | ("question", 3..=6) => Fault::Fail,
        ("ask", 4) | ("answer", 1) => Fault::LoseReply,
        _ => Fault::Pass,
    });
    let mut desk = Desk::over(backend).await;
    // The request whose reply is lost has asked, and is repeated.
    let repeated = async {
        while desk.backend.requests("ask") < 5 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within(SOON, repeated).await;
    assert_eq!(desk.open_questions().await, 1);
    desk.fleet.operator().answer(desk.question, InquiryAnswer::allow()).await.unwrap();
    assert_eq!(desk.result().await, "refunded");
}

#[tokio::test(start_paused = true)]
async fn the_time_for_which_the_backend_was_away_counts_for_the_deadline() {
    let backend = FaultedBackend::new(MemoryBackend::new());
    backend.plan(|request| if request.method == "ask" { Fault::Fail } else { Fault::Pass });
    let cli = refunds();
    let no_park = |limits: &mut FleetLimits| limits.question_parked = Duration::ZERO;
    let fleet = asking(backend.clone(), &cli).configure(no_park).start().await.unwrap();
    let mut events = fleet.operator().events().unwrap();
    let mut turn =
        fleet.tenant("default").unwrap().session("customer-42").unwrap().prompt("My money.").await.unwrap();
    let start = Instant::now();
    tokio::time::sleep(Duration::from_secs(100)).await;
    backend.disable();
    asked(&mut events).await;
    assert_eq!(turn.outcome().await.unwrap().text(), Some("Done."));
    assert!(start.elapsed().abs_diff(QUESTION) < Duration::from_secs(1), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_unknown_answer_is_repeated_with_its_attempt() {
    let mut desk = Desk::open().await;
    desk.backend.plan(|request| if request.method == "answer" { Fault::LoseReply } else { Fault::Pass });
    let unknown = desk.fleet.operator().answer(desk.question, InquiryAnswer::allow()).await.unwrap_err();
    let AnswerError::Unknown { attempt, .. } = unknown else { panic!("{unknown:?}") };
    desk.backend.disable();
    let again = QuestionAnswer::new(InquiryAnswer::allow());
    desk.fleet.operator().answer(desk.question, again.clone().attempt(attempt)).await.unwrap();
    let other = desk.fleet.operator().answer(desk.question, again).await.unwrap_err();
    assert!(matches!(other, AnswerError::TooLate { .. }), "{other:?}");
    assert_eq!(desk.result().await, "refunded");
}

#[tokio::test(start_paused = true)]
async fn nobody_is_asked_if_the_backend_refuses_or_stays_away() {
    for fault in [Fault::Fail, Fault::Hang, Fault::HangReply] {
        let backend = FaultedBackend::new(MemoryBackend::new());
        backend.plan(move |request| if request.method == "ask" { fault } else { Fault::Pass });
        let cli = refunds();
        let fleet = asking(backend, &cli).start().await.unwrap();
        let mut turn = fleet
            .tenant("default")
            .unwrap()
            .session("customer-42")
            .unwrap()
            .prompt("My money.")
            .await
            .unwrap();
        assert_eq!(turn.outcome().await.unwrap().text(), Some("Done."));
        let result = cli.tool_results().concat();
        assert_eq!(result, "error: no person can be asked: the host's backend does not answer");
        assert_eq!(fleet.operator().questions(QuestionQuery::new()).await.unwrap(), []);
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_is_asked_if_questions_have_no_time() {
    let cli = refunds();
    let fleet = asking(MemoryBackend::new(), &cli).configure(|limits| limits.question = Duration::ZERO);
    let fleet = fleet.start().await.unwrap();
    let mut turn =
        fleet.tenant("default").unwrap().session("customer-42").unwrap().prompt("My money.").await.unwrap();
    within(SOON, turn.outcome()).await.unwrap();
    assert!(cli.tool_results()[0].contains("you haven't granted it"), "{:?}", cli.tool_results());
}

#[tokio::test(start_paused = true)]
async fn questions_are_listed_by_tenant_by_name_and_up_to_a_limit() {
    let clis = [("a", refunds()), ("b", refunds()), ("c", refunds())];
    let transports = clis.each_ref().map(|(name, cli)| (*name, cli.transport()));
    let profile = move |cx: &ActivationContext| {
        let (_, transport) = transports.iter().find(|(name, _)| *name == cx.name.session()).unwrap();
        shop().transport(transport.clone())
    };
    let fleet = Fleet::builder().profile("default", profile).configure(|limits| limits.live = 3);
    let fleet = fleet.start().await.unwrap();
    let mut events = fleet.operator().events().unwrap();
    for (name, tenant) in [("a", "acme"), ("b", "beta"), ("c", "acme")] {
        let session = fleet.tenant(tenant).unwrap().session(name).unwrap();
        drop(session.prompt("My money.").await.unwrap());
        asked(&mut events).await;
        // Each has a deadline of its own.
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    let listed = async |query: QuestionQuery| {
        let questions = fleet.operator().questions(query).await.unwrap();
        questions.iter().map(|question| question.name.session().to_owned()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(listed(QuestionQuery::new()).await, "a b c");
    assert_eq!(listed(QuestionQuery::new().tenant("acme".try_into().unwrap())).await, "a c");
    assert_eq!(listed(QuestionQuery::new().tenant("acme".try_into().unwrap()).limit(1)).await, "a");
    assert_eq!(listed(QuestionQuery::new().session("beta/b".parse::<Name>().unwrap())).await, "b");
    assert_eq!(listed(QuestionQuery::new().limit(2)).await, "a b");
    assert_eq!(listed(QuestionQuery::new().limit(0)).await, "");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_the_cli_takes_back_is_no_question_any_more() {
    let (transport, mut listener) = ScriptedCli::by_hand();
    let profile = move |_: &_| Session::builder().transport(transport.clone());
    let fleet = Fleet::builder().profile("default", profile).start().await.unwrap();
    let mut events = fleet.operator().events().unwrap();
    let mut turn =
        fleet.tenant("default").unwrap().session("customer-42").unwrap().prompt("My money.").await.unwrap();
    let mut end = listener.accept().await;
    end.handshake().await;
    let prompt = end.expect("user").await;
    end.begin_turn();
    let request = end.request(json!({ "subtype": "can_use_tool", "tool_name": "Bash", "input": {} }));
    let question = asked(&mut events).await;
    end.send(json!({ "type": "control_cancel_request", "request_id": request }));
    assert_eq!(decided(&mut events).await, question);
    assert_eq!(fleet.operator().questions(QuestionQuery::new()).await.unwrap(), []);
    let late = fleet.operator().answer(question, InquiryAnswer::allow()).await.unwrap_err();
    assert!(matches!(late, AnswerError::TooLate { .. }), "{late:?}");
    assert!(late.to_string().ends_with("by the session, which took it back"), "{late}");

    end.finish_turn(&prompt, "Done.");
    assert_eq!(within(SOON, turn.outcome()).await.unwrap().text(), Some("Done."));
    // Outside a turn nobody is asked.
    let elicitation =
        json!({ "subtype": "elicitation", "mcp_server_name": "crm", "message": "Who are you?" });
    let request = end.request(elicitation);
    assert_eq!(within(SOON, end.answer_to(&request)).await, json!({ "action": "decline" }));
}
