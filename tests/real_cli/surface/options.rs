//! Options reach the real CLI and take effect.

use std::path::Path;

use greenroom::options::{
    AgentDefinition, BuiltInTools, Delivery, Effort, EnvPolicy, ExternalServer, OutputFormat, Plugin,
    Sandbox, Skills, SystemPrompt, Thinking, ThinkingDisplay, TraceContext,
};
use greenroom::{ErrorKind, Event, Outcome, PermissionMode, Session};
use greenroom_testkit::{ModelTurn, Script};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::stage::{Stage, answers, event, in_time, outcome, start, stop, text};

#[tokio::test]
async fn a_system_prompt_is_what_the_model_reads() {
    let Some(stage) = Stage::new(Script::new().turn(text("Fine."))).await else { return };
    let blocks = ["Speak in rhymes.", SystemPrompt::DYNAMIC_BOUNDARY, "Today is Friday."].map(str::to_owned);
    let session = start(stage.builder().system_prompt(SystemPrompt::Blocks(blocks.into()))).await;
    answers(&session, "How are you?", "Fine.").await;
    let request = stage.last_request();
    let system = request.body()["system"].to_string();
    assert!(system.contains("Speak in rhymes.") && system.contains("Today is Friday."), "{system}");
    assert!(!system.contains(SystemPrompt::DYNAMIC_BOUNDARY), "{system}");
    stop(&session).await;
}

#[derive(Debug, Deserialize, JsonSchema, PartialEq)]
struct Sum {
    sum: f64,
}

#[tokio::test]
async fn structured_output_is_the_type_that_was_asked_for() {
    let give = |sum: Value| ModelTurn::new().call("StructuredOutput", json!({ "sum": sum }));
    let script = Script::new().turn(give(json!("eight"))).turn(give(json!(8)));
    let script = script.turn(text("It is 8.")).turn(text("I said that it is 8."));
    let Some(stage) = Stage::new(script).await else { return };
    let session = start(stage.builder().output_format::<Sum>()).await;

    let mut turn = in_time("accepting the prompt", session.prompt("What is 5 + 3?")).await.unwrap();
    assert_eq!(in_time("the turn", turn.structured::<Sum>()).await.unwrap(), Sum { sum: 8.0 });
    let requests = stage.model.requests();
    let tools = requests[0].body()["tools"].as_array().unwrap();
    let tool = tools.iter().find(|tool| tool["name"] == "StructuredOutput").expect("the tool for it");
    let OutputFormat::JsonSchema { schema } = OutputFormat::of::<Sum>() else { unreachable!() };
    assert_eq!(tool["input_schema"], schema);
    let corrected = requests[1].tool_results();
    assert!(corrected[0].is_error && corrected[0].text.contains("/sum"), "{corrected:?}");

    // A model that does not call the tool is told once more, and is then left alone.
    let outcome = outcome(&session, "And 4 + 4?").await;
    assert!(outcome.is_completed(), "{outcome:?}");
    assert_eq!(outcome.text(), Some("I said that it is 8."));
    let error = outcome.structured::<Sum>().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TurnFailed);
    assert!(stage.last_request().last_user_text().unwrap().contains("StructuredOutput"));
    stop(&session).await;
}

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// A plugin with one skill.
fn plugin(folder: &Path) -> Plugin {
    write(
        &folder.join(".claude-plugin/plugin.json"),
        r#"{ "name": "press", "version": "1.0.0", "description": "d" }"#,
    );
    let skill = "---\nname: pdf\ndescription: Makes PDFs\n---\nFold the paper twice.\n";
    write(&folder.join("skills/pdf/SKILL.md"), skill);
    Plugin::local(folder)
}

/// The rules for tools, each with its behaviour.
async fn rules(session: &Session) -> Vec<(String, String)> {
    let answer = session.requests().control(json!({ "subtype": "list_permission_rules" })).await.unwrap();
    let rules = answer["state"]["rules"].as_array().unwrap().clone();
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    rules.iter().map(|rule| (word(&rule["behavior"]), word(&rule["rule"]))).collect()
}

const SECRET: &str = "hunter2";

/// Servers, settings, managed settings and plugins: told in either way they are in force.
async fn in_force(delivery: Delivery) -> Option<Vec<u8>> {
    let skill = ModelTurn::new().call("Skill", json!({ "skill": "press:pdf" }));
    let shout = ModelTurn::new().call("mcp__outside__shout", json!({ "text": "hello" }));
    let stage = Stage::new(Script::new().turn(skill).turn(shout).turn(text("Done."))).await?;
    let outside = ExternalServer::stdio(env!("CARGO_BIN_EXE_greenroom-fake-cli"), [""; 0])
        .with_env("FAKE_CLI", "mcp-server")
        .with_env("TOKEN", SECRET)
        .with_always_load(true);
    let nowhere = ExternalServer::http("http://127.0.0.1:9/mcp").with_header("Authorization", SECRET);
    let managed = json!({ "permissions": { "deny": ["WebFetch"] } });
    let mut builder = stage
        .builder()
        .external_mcp_server("outside", outside)
        .external_mcp_server("nowhere", nowhere)
        .allow_server_tools("outside")
        .settings(json!({ "env": { "TOKEN": SECRET }, "permissions": { "deny": ["WebSearch"] } }))
        .configure(|options| {
            options.plugins.push(plugin(&stage.home.path().join("press")));
            options.skills = Some(Skills::only(["press:pdf"]));
            options.delivery = delivery;
            options.managed_settings = managed.as_object().cloned();
        });
    let mut events = builder.events();
    let session = start(builder).await;
    let pid = event(&mut events, "a process", |event| match event {
        Event::CliStarted { pid, .. } => *pid,
        _ => None,
    });
    let arguments = std::fs::read(format!("/proc/{}/cmdline", pid.await)).unwrap();

    answers(&session, "Go.", "Done.").await;
    let requests = stage.model.requests();
    let told: Vec<_> = requests.iter().flat_map(|request| request.tool_results()).collect();
    assert!(told.iter().all(|result| !result.is_error), "{told:?}");
    assert!(told.iter().any(|result| result.text == "HELLO"), "{told:?}");
    let all = stage.last_request().body().to_string();
    assert!(all.contains("Fold the paper twice."), "the skill was read: {all}");
    let rules = rules(&session).await;
    for rule in [("deny", "WebFetch"), ("deny", "WebSearch"), ("allow", "Skill(press:pdf)")] {
        assert!(rules.contains(&(rule.0.into(), rule.1.into())), "{rule:?} in {rules:?}");
    }
    let status = session.requests().control(json!({ "subtype": "mcp_status" })).await.unwrap();
    let names: Vec<_> = status["mcpServers"].as_array().unwrap().iter().map(|row| &row["name"]).collect();
    assert!(names.contains(&&json!("outside")) && names.contains(&&json!("nowhere")), "{status}");
    stop(&session).await;
    Some(arguments)
}

fn has_secret(arguments: &[u8]) -> bool {
    arguments.windows(SECRET.len()).any(|part| part == SECRET.as_bytes())
}

// Guards: the CLI takes secrets only by arguments
#[tokio::test]
async fn what_may_be_secret_is_in_force_and_no_other_user_can_read_it() {
    let Some(arguments) = in_force(Delivery::Initialize).await else { return };
    assert!(!has_secret(&arguments), "{}", String::from_utf8_lossy(&arguments));
    // By arguments, it is in files.
    let arguments = in_force(Delivery::Arguments).await.unwrap();
    let shown = String::from_utf8_lossy(&arguments);
    assert!(!has_secret(&arguments) && shown.contains("--mcp-config=/"), "{shown}");
}

#[tokio::test]
async fn how_the_model_thinks_is_in_its_requests() {
    let Some(stage) = Stage::new(Script::new().turn(text("One.")).turn(text("Two."))).await else { return };
    let builder = stage.builder().model("claude-sonnet-4-5").thinking(Thinking::Enabled {
        budget_tokens: Some(2048),
        display: Some(ThinkingDisplay::Summarized),
    });
    let session = start(builder.configure(|options| {
        options.betas = vec!["context-1m-2025-08-07".into(), "made-up-2020-01-01".into()];
    }))
    .await;
    answers(&session, "Think.", "One.").await;
    let request = stage.last_request();
    assert_eq!(request.model(), Some("claude-sonnet-4-5"));
    let thinking = &request.body()["thinking"];
    assert_eq!((&thinking["type"], &thinking["budget_tokens"]), (&json!("enabled"), &json!(2048)));
    stop(&session).await;

    let session = start(stage.builder().configure(|options| {
        options.effort = Some(Effort::Low);
        options.task_budget = Some(50_000);
    }))
    .await;
    answers(&session, "Hurry.", "Two.").await;
    let request = stage.last_request();
    let config = &request.body()["output_config"];
    assert_eq!((&config["effort"], &config["task_budget"]["total"]), (&json!("low"), &json!(50_000)));
    stop(&session).await;
}

#[tokio::test]
async fn an_agent_works_in_its_directories_and_reads_prompts_verbatim() {
    let Some(stage) = Stage::new(Script::new().turn(text("Seen."))).await else { return };
    let other = tempfile::tempdir().unwrap();
    write(&stage.cwd.path().join("notes.txt"), "BODY OF THE FILE");
    let mut reviewer = AgentDefinition::new("Reviews code", "You review like a hawk.");
    reviewer.tools = Some(vec!["Read".into()]);
    let session = start(stage.builder().permission_mode(PermissionMode::Plan).configure(|options| {
        options.agents.insert("reviewer".into(), reviewer);
        options.additional_directories.push(other.path().into());
        options.agent = Some("reviewer".into());
        options.plan_mode_instructions = Some("PLAN BY HEART".into());
        options.tools = Some(BuiltInTools::only(["Read", "Bash"]));
        options.title = Some("A review".into());
        options.verbatim_prompts = true;
    }))
    .await;
    let rules = session.requests().control(json!({ "subtype": "list_permission_rules" })).await.unwrap();
    let directories = rules["state"]["workspaceDirectories"].to_string();
    assert!(directories.contains(other.path().to_str().unwrap()), "{directories}");
    answers(&session, "Look at @notes.txt", "Seen.").await;
    let request = stage.last_request();
    assert!(request.body()["system"].to_string().contains("like a hawk"), "{}", request.body()["system"]);
    let tools = request.tool_names();
    assert!(tools.contains(&"Read") && !tools.contains(&"Bash"), "{tools:?}");
    assert!(!request.body()["messages"].to_string().contains("BODY OF THE FILE"), "the prompt was expanded");
    let status = session.requests().control(json!({ "subtype": "get_status" })).await.unwrap().to_string();
    assert!(status.contains("A review"), "{status}");
    stop(&session).await;
}

#[tokio::test]
async fn a_sandbox_is_there_or_the_session_does_not_start_unless_it_may() {
    let Some(stage) = Stage::new(Script::new().turn(text("Fine."))).await else { return };
    match in_time(
        "the start",
        stage.builder().configure(|options| options.sandbox = Some(Sandbox::enabled())).start(),
    )
    .await
    {
        Ok(session) => stop(&session).await,
        // The machine has not what it needs, and the CLI says so.
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::CliExited);
            assert!(error.to_string().to_lowercase().contains("sandbox required"), "{error}");
        }
    }
    let mut sandbox = Sandbox::enabled();
    sandbox.fail_if_unavailable = Some(false);
    let session = start(
        stage
            .builder()
            .configure(|options| options.sandbox = Some(sandbox))
            .settings(json!({ "model": "haiku" })),
    )
    .await;
    answers(&session, "How are you?", "Fine.").await;
    let settings = session.requests().control(json!({ "subtype": "get_settings" })).await.unwrap();
    assert_eq!(settings["effective"]["sandbox"]["enabled"], true, "{settings}");
    assert_eq!(settings["effective"]["model"], "haiku", "{settings}");
    stop(&session).await;
}

#[tokio::test]
async fn a_clean_environment_is_what_was_given() {
    let env = || ModelTurn::new().call("Bash", json!({ "command": "env", "description": "Show variables" }));
    let script = ["One.", "Two.", "Three."]
        .into_iter()
        .fold(Script::new(), |script, answer| script.turn(env()).turn(text(answer)));
    let Some(stage) = Stage::new(script).await else { return };
    // A variable that cargo sets for tests.
    let of_the_host = "CARGO_MANIFEST_DIR=";
    let policies = [(EnvPolicy::Clean, "One."), (EnvPolicy::Inherit, "Two."), (EnvPolicy::Service, "Three.")];
    for (policy, answer) in policies {
        let builder = stage.builder().env("GIVEN", "yes").allow_tool("Bash");
        let inherits = policy == EnvPolicy::Inherit;
        let session = start(builder.configure(|options| options.env_policy = policy)).await;
        let outcome: Outcome = outcome(&session, "Show the variables.").await;
        assert_eq!(outcome.text(), Some(answer), "{outcome:?}");
        let shown = stage.last_result().text;
        assert!(shown.contains("GIVEN=yes"), "{shown}");
        assert_eq!(shown.contains(of_the_host), inherits, "{shown}");
        stop(&session).await;
    }
}

#[tokio::test]
async fn the_cli_is_told_the_trace_that_it_belongs_to() {
    let shown = ModelTurn::new().call(
        "Bash",
        json!({ "command": "tr '\\0' '\\n' < /proc/$PPID/environ | grep ^TRACE", "description": "Show variables" }),
    );
    let Some(stage) = Stage::new(Script::new().turn(shown).turn(text("Seen."))).await else { return };
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let context = TraceContext::new(parent).with_state("vendor=1");
    let builder = stage.builder().allow_tool("Bash").env("CLAUDE_CODE_PROPAGATE_TRACEPARENT", "1");
    let session = start(builder.configure(|options| options.trace_context = Some(context))).await;
    answers(&session, "Show the trace.", "Seen.").await;
    let seen = stage.last_result().text;
    assert!(
        seen.contains(&format!("TRACEPARENT={parent}")) && seen.contains("TRACESTATE=vendor=1"),
        "{seen}"
    );
    stop(&session).await;
}
