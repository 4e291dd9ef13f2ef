//! The JSON-RPC dispatch of a tool server: a message on each line of the input. Every request is answered once, under
//! its id; notifications and responses are not; nothing panics.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use greenroom::internals::McpDispatch;
use greenroom::tool::LogLevel;
use greenroom::{NoArgs, ToolContext, ToolDef, ToolServer};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::runtime::{Builder, Runtime};

#[derive(Deserialize, JsonSchema)]
struct Add {
    a: f64,
    b: f64,
}

#[derive(Deserialize, JsonSchema)]
struct Save {
    path: String,
    #[serde(default)]
    lines: Vec<String>,
    mode: Option<Mode>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Mode {
    Append,
    Replace { backup: bool },
}

fn server() -> ToolServer {
    ToolServer::new("fuzz", "1.0.0")
        .tool("add", "Add two numbers", async |args: Add| args.a + args.b)
        .tool("save", "Save lines", async |args: Save| match args.mode {
            Some(Mode::Replace { backup: false }) => Err("that would lose what is there"),
            Some(Mode::Append | Mode::Replace { .. }) | None => {
                Ok(format!("{}: {}", args.path, args.lines.len()))
            }
        })
        .tool("next", "The next number", |_: NoArgs, cx: ToolContext<AtomicU64>| async move {
            cx.log(LogLevel::Info, "counting").await;
            cx.progress(1.0, None, None).await;
            cx.state().fetch_add(1, Ordering::Relaxed)
        })
        .add_tool(ToolDef::new("one", "One at a time", async |_: NoArgs| ()).max_concurrency(1))
        .state(|| AtomicU64::new(1))
}

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Builder::new_current_thread().build().expect("a runtime"))
}

/// Whether a message must be answered, and under which id.
enum Expected {
    Id(Value),
    Nothing,
}

/// Reads JSON-RPC 2.0 in the plainest way. A null id counts as no id.
fn expected(message: &Value) -> Expected {
    let Value::Object(fields) = message else { return Expected::Id(Value::Null) };
    let id = fields.get("id").filter(|id| !id.is_null());
    let is_response = fields.get("result").or(fields.get("error")).is_some_and(|value| !value.is_null());
    match (fields.get("method"), id) {
        (Some(Value::String(_)), None) => Expected::Nothing,
        (Some(Value::String(_)), Some(id)) if id.is_string() || id.is_number() => Expected::Id(id.clone()),
        (None | Some(Value::Null), None) if is_response => Expected::Nothing,
        (None | Some(Value::Null), Some(id)) if is_response && (id.is_string() || id.is_number()) => {
            Expected::Nothing
        }
        _ => Expected::Id(Value::Null),
    }
}

pub(crate) fn check(input: &[u8]) {
    let server = server();
    let mut dispatch = McpDispatch::new(&server);
    for line in input.split(|byte| *byte == b'\n') {
        if let Ok(raw) = serde_json::from_slice::<&RawValue>(line)
            && let Some(id) = dispatch.answered_under(raw)
        {
            // The id is the request's id, as it was written.
            assert!(id == "null" || raw.get().contains(&id), "{id} is in no {raw}");
            assert!(!id.contains(['\n', '\r']), "{id:?} would tear the line that it is written in");
        }
        let Ok(message) = serde_json::from_slice::<Value>(line) else { continue };
        let answer = runtime().block_on(server.handle(message.clone()));
        match (expected(&message), answer) {
            (Expected::Nothing, None) => {}
            (Expected::Id(id), Some(Value::Object(answer))) => {
                assert_eq!(answer.get("jsonrpc"), Some(&Value::from("2.0")));
                assert_eq!(answer.get("id"), Some(&id), "{message} is answered with {answer:?}");
                let one = answer.contains_key("result") != answer.contains_key("error");
                assert!(one && answer.len() == 3, "{message} is answered with {answer:?}");
                if let Some(error) = answer.get("error") {
                    assert!(error["code"].is_i64() && error["message"].is_string(), "{error}");
                }
            }
            (Expected::Nothing, Some(answer)) => panic!("{message} is answered with {answer}"),
            (Expected::Id(_), answer) => panic!("{message} is answered with {answer:?}"),
        }
    }
}
