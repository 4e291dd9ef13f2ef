//! Turns that are parked while a person decides, and go on with another CLI.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use greenroom::callback::{Inquiry, InquiryAnswer};
use greenroom::permission::Answers;
use greenroom_fleet::{
    AnswerError, FleetEvents, FleetTurn, PromptFilter, PromptQuery, QuestionAnswer, QuestionQuery,
    QuestionRecord,
};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};

use super::*;

/// Set in the process of a service that is killed: its [`Service`] as JSON.
const SERVICE: &str = "GREENROOM_TEST_PARKED_SERVICE";
const ASKS: &str = "the service has asked";
/// Set to the path of a CLI of another version, which takes the conversation over.
const OTHER_CLI: &str = "GREENROOM_OTHER_CLI";

/// A model that runs a command in the stage's folder, and then says so.
fn runs(file: &Path) -> Script {
    Script::new().turn(bash(file)).otherwise(ModelTurn::new().text("It ran."))
}

fn bash(file: &Path) -> ModelTurn {
    let command = format!("echo ran >> {}", file.display());
    ModelTurn::new().call("Bash", json!({ "command": command, "description": "Do it" }))
}

/// A stage whose model runs a command, and the file that the command writes.
async fn stage() -> Option<(Stage, PathBuf)> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ran.txt");
    let mut stage = Stage::new(runs(&file)).await?;
    // The script names the file, so its folder comes first.
    std::fs::create_dir(folder.path().join("home")).unwrap();
    stage.folder = folder;
    Some((stage, file))
}

fn at_once(limits: &mut FleetLimits) {
    limits.question_holds = Duration::from_millis(100);
}

async fn prompted(fleet: &Fleet, text: &str) -> FleetTurn {
    fleet.tenant("default").unwrap().session("a").unwrap().prompt(text).await.unwrap()
}

/// Waits until a turn is parked and its session is asleep. Returns the question.
async fn parked(fleet: &Fleet, events: &mut FleetEvents) -> QuestionRecord {
    in_time("the park", async {
        while !matches!(events.next().await.unwrap().unwrap(), FleetEvent::Parked { .. }) {}
        while !matches!(events.next().await.unwrap().unwrap(), FleetEvent::Passivated { .. }) {}
    })
    .await;
    // The actor of the name ends after a last look.
    in_time("sleep", async {
        loop {
            let snapshot = fleet.operator().snapshot(SnapshotQuery::active()).await.unwrap();
            if (snapshot.live, snapshot.names.len()) == (0, 0) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    question(fleet).await
}

async fn question(fleet: &Fleet) -> QuestionRecord {
    let questions = fleet.operator().questions(QuestionQuery::new()).await.unwrap();
    let [question] = &*questions else { panic!("{questions:?}") };
    question.clone()
}

async fn completes(turn: &mut FleetTurn, text: &str) {
    let outcome = in_time("the outcome", turn.outcome()).await.unwrap();
    assert_eq!(outcome.text(), Some(text), "{outcome:?}");
}

fn ran(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

// Guards: waits-for-people
#[tokio::test]
async fn a_parked_turn_holds_nothing_and_runs_its_call_once_when_it_is_allowed() {
    let Some((stage, file)) = stage().await else { return };
    let (fleet, backend) = stage.open(at_once).await;
    let mut events = fleet.operator().events().unwrap();
    let mut turn = prompted(&fleet, "Run it.").await;
    let question = parked(&fleet, &mut events).await;
    assert!(question.parked);
    let mut behind = prompted(&fleet, "Did it run?").await;
    let filter = PromptQuery::new().only(PromptFilter::Parked);
    let session = fleet.tenant("default").unwrap().session("a").unwrap();
    let listed = session.prompts(filter).await.unwrap().prompts;
    assert_eq!(listed.iter().map(|entry| entry.record.id).collect::<Vec<_>>(), [turn.prompt_id()]);
    let requests = stage.model.requests().len();
    assert_eq!(ran(&file), "");

    fleet.operator().answer(question.id, InquiryAnswer::allow()).await.unwrap();
    completes(&mut turn, "It ran.").await;
    assert_eq!(ran(&file), "ran\n");
    assert_eq!(stage.model.requests().len() - requests, 1, "only the result of the call goes to the model");
    completes(&mut behind, "It ran.").await;
    let usage = session.prompts(PromptQuery::new()).await.unwrap().prompts[1].record.usage;
    assert!(usage.cost > 0 && usage.unmetered == 0, "{usage:?}");
    close(fleet, backend).await;
}

#[tokio::test]
async fn the_person_may_change_or_deny_a_parked_call_and_answer_questions_of_the_model() {
    let ask = json!({ "questions": [{ "question": "Which port?", "header": "Port", "multiSelect": false,
        "options": [{ "label": "80", "description": "-" }, { "label": "443", "description": "-" }] }] });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ran.txt");
    let script = Script::new()
        .turn(bash(&file))
        .turn(bash(&file))
        .turn(ModelTurn::new().call("AskUserQuestion", ask))
        .otherwise(ModelTurn::new().text("Done."));
    let Some(stage) = Stage::new(script).await else { return };
    let (fleet, backend) = stage.open(at_once).await;
    let mut events = fleet.operator().events().unwrap();
    let mut turn = prompted(&fleet, "Run both.").await;
    let changed = format!("echo changed >> {}", file.display());
    let allow = InquiryAnswer::allow_with(json!({ "command": changed, "description": "-" }));
    let port = Answers::new().answer("Which port?", "443");
    for answer in [allow, InquiryAnswer::deny("Not twice."), InquiryAnswer::Answered(port)] {
        let question = parked(&fleet, &mut events).await;
        assert_eq!(question.prompt, turn.prompt_id());
        fleet.operator().answer(question.id, answer).await.unwrap();
    }
    completes(&mut turn, "Done.").await;
    assert_eq!(ran(&file), "changed\n");
    let requests = stage.model.requests();
    assert_eq!(requests.len(), 4);
    let last = requests.last().unwrap().body().to_string();
    assert!(last.contains("Not twice.") && last.contains("443"), "{last}");
    close(fleet, backend).await;
}

#[tokio::test]
async fn the_model_reads_that_nobody_answered_a_parked_question() {
    let Some((stage, file)) = stage().await else { return };
    let (fleet, backend) = stage
        .open(|limits| {
            at_once(limits);
            limits.question = Duration::from_secs(1);
            limits.question_parked = Duration::from_secs(6);
        })
        .await;
    let mut turn = prompted(&fleet, "Run it.").await;
    completes(&mut turn, "It ran.").await;
    assert_eq!(ran(&file), "");
    assert_eq!(stage.requests_with("no person has answered within 6").len(), 1);
    close(fleet, backend).await;
}

#[tokio::test]
async fn a_drain_parks_a_turn_that_waits_for_a_person_at_once() {
    let Some((stage, file)) = stage().await else { return };
    let (fleet, backend) = stage.open(|_| {}).await;
    let mut events = fleet.operator().events().unwrap();
    let prompt = prompted(&fleet, "Run it.").await.prompt_id();
    in_time("the question", async {
        while !matches!(events.next().await.unwrap().unwrap(), FleetEvent::Asked { .. }) {}
    })
    .await;
    let start = std::time::Instant::now();
    in_time("the drain", fleet.drain(Duration::from_secs(60))).await;
    assert!(start.elapsed() < Duration::from_secs(20), "the drain waits for nobody");
    backend.close().await;

    let (fleet, backend) = stage.open(|_| {}).await;
    let open = question(&fleet).await;
    assert!(open.parked);
    fleet.operator().answer(open.id, InquiryAnswer::allow()).await.unwrap();
    let mut turn = fleet.operator().turn(prompt);
    completes(&mut turn, "It ran.").await;
    assert_eq!(ran(&file), "ran\n");
    close(fleet, backend).await;
}

#[tokio::test]
async fn an_interrupt_ends_a_parked_turn_without_a_cli() {
    let Some((stage, file)) = stage().await else { return };
    let (fleet, backend) = stage.open(at_once).await;
    let mut events = fleet.operator().events().unwrap();
    let mut turn = prompted(&fleet, "Run it.").await;
    let question = parked(&fleet, &mut events).await;
    let mut behind = prompted(&fleet, "Did it run?").await;
    let session = fleet.tenant("default").unwrap().session("a").unwrap();
    assert!(session.interrupt().await.unwrap());
    let outcome = in_time("the outcome", turn.outcome()).await.unwrap();
    assert!(
        matches!(outcome, PromptOutcome::Interrupted { by: InterruptedBy::User, result: None }),
        "{outcome:?}"
    );
    let late = fleet.operator().answer(question.id, InquiryAnswer::allow()).await;
    assert!(matches!(late, Err(AnswerError::Gone(_))), "{late:?}");
    completes(&mut behind, "It ran.").await;
    assert_eq!(ran(&file), "");
    close(fleet, backend).await;
}

/// A service in a process of its own, on the file of the stage.
#[derive(serde::Serialize, serde::Deserialize)]
struct Service {
    folder: PathBuf,
    cli: PathBuf,
    env: std::collections::BTreeMap<String, String>,
}

impl Service {
    fn of(stage: &Stage) -> Self {
        let env = real::env(&stage.model, &stage.folder.path().join("home"));
        Self { folder: stage.folder.path().to_owned(), cli: stage.cli.clone(), env }
    }

    async fn fleet(&self) -> (Fleet, LocalBackend) {
        self.without("WebFetch").await
    }

    /// The fleet with a profile that has not this tool.
    async fn without(&self, tool: &'static str) -> (Fleet, LocalBackend) {
        let backend = LocalBackend::open(self.folder.join("fleet.redb")).await.unwrap();
        let (cli, env) = (self.cli.clone(), self.env.clone());
        let profile = move |_: &_| -> SessionBuilder {
            let builder = Session::builder().cli_path(&cli).envs(env.clone());
            builder.configure(|options| {
                options.env_policy = EnvPolicy::Clean;
                options.disallowed_tools.push(tool.to_owned());
            })
        };
        let builder = Fleet::builder().backend(backend.clone()).profile("default", profile);
        (in_time("the opening", builder.start()).await.unwrap(), backend)
    }
}

/// The process of the service that is killed. Without its variable there is nothing to do.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_asks_and_is_killed_by_another_test() {
    let Ok(service) = std::env::var(SERVICE) else { return };
    let service: Service = serde_json::from_str(&service).unwrap();
    let (fleet, _backend) = service.fleet().await;
    let mut events = fleet.operator().events().unwrap();
    let turn = prompted(&fleet, "Run it.").await;
    while !matches!(events.next().await.unwrap().unwrap(), FleetEvent::Asked { .. }) {}
    // The CLI writes its transcript some time after it asks.
    tokio::time::sleep(Duration::from_secs(2)).await;
    writeln!(std::io::stdout(), "{ASKS} {}", turn.prompt_id()).unwrap();
    std::future::pending::<()>().await;
}

// Guards: waits-for-people
#[tokio::test(flavor = "multi_thread")]
async fn a_question_outlives_kill_9_of_its_service_and_its_call_runs_once() {
    let Some((stage, file)) = stage().await else { return };
    let service = Service::of(&stage);
    #[expect(clippy::disallowed_methods, reason = "a test's own child, which it kills")]
    let mut process = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "parked::a_service_that_asks_and_is_killed_by_another_test"])
        .env(SERVICE, serde_json::to_string(&service).unwrap())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let prompt: PromptId = in_time("the question", async {
        loop {
            let line = lines.next_line().await.unwrap().expect("the service has ended");
            if let Some((_, prompt)) = line.split_once(&format!("{ASKS} ")) {
                return serde_json::from_value(json!(prompt.trim())).unwrap();
            }
        }
    })
    .await;
    in_time("the kill", process.kill()).await.unwrap();
    let requests = stage.model.requests().len();

    let service = Service { cli: other_cli(&stage), ..service };
    let (fleet, backend) = service.fleet().await;
    let open = question(&fleet).await;
    assert!(open.parked && open.prompt == prompt);
    let Some(Inquiry::Permission { request }) = open.inquiry() else { panic!("{open:?}") };
    assert_eq!(request.tool_name, "Bash");
    assert_eq!((ran(&file), stage.model.requests().len()), (String::new(), requests));
    let (first, second) =
        (QuestionAnswer::from(InquiryAnswer::allow()).by("anna"), InquiryAnswer::deny("no"));
    fleet.operator().answer(open.id, first).await.unwrap();
    let late = fleet.operator().answer(open.id, second).await;
    assert!(matches!(late, Err(AnswerError::TooLate { .. })), "{late:?}");
    let mut turn = fleet.operator().turn(prompt);
    completes(&mut turn, "It ran.").await;
    assert_eq!((ran(&file), stage.model.requests().len()), ("ran\n".to_owned(), requests + 1));
    close(fleet, backend).await;
}

#[tokio::test]
async fn a_tool_that_is_gone_when_its_turn_goes_on_is_told_as_such() {
    let Some((stage, file)) = stage().await else { return };
    let (fleet, backend) = stage.open(at_once).await;
    let mut events = fleet.operator().events().unwrap();
    let prompt = prompted(&fleet, "Run it.").await.prompt_id();
    let question = parked(&fleet, &mut events).await;
    close(fleet, backend).await;
    let service = Service::of(&stage);
    let (fleet, backend) = service.without("Bash").await;
    fleet.operator().answer(question.id, InquiryAnswer::allow()).await.unwrap();
    let outcome = in_time("the outcome", fleet.operator().turn(prompt).outcome()).await.unwrap();
    let PromptOutcome::Failed { kind, result: Some(_), .. } = &outcome else { panic!("{outcome:?}") };
    assert_eq!((kind.as_str(), ran(&file)), ("tool_deferred_unavailable", String::new()));
    assert_eq!(asks(&fleet, "a", "Are you there?").await, "It ran.");
    close(fleet, backend).await;
}

/// The CLI that takes over: one of another version, if the environment names it.
fn other_cli(stage: &Stage) -> PathBuf {
    std::env::var_os(OTHER_CLI).map_or_else(|| stage.cli.clone(), PathBuf::from)
}
