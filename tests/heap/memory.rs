//! Most memory that a session holds.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::alone;
use crate::bare::{Bare, MIB};
use crate::common::{SOON, within};
use crate::count::{HELD, PEAK};
use greenroom::callback::{DialogAnswer, ElicitationAnswer};
use greenroom::options::Limits;
use greenroom::permission::Answers;
use greenroom::{Hook, NoArgs, PermissionDecision, Session, SessionBuilder, ToolDef, ToolServer, hook};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use serde_json::value::RawValue;

const LARGE: usize = 4 * MIB;

/// Allowance for the allocator, the test and running handlers, beside the results that wait.
const BESIDE: usize = 64 * MIB;

fn large() -> ToolServer {
    ToolServer::new("clock", "1.0.0")
        .tool("now", "The time", async |_: NoArgs| "noon")
        .tool("large", "Much", async |_: NoArgs| "x".repeat(LARGE))
        .add_tool(ToolDef::blocking("blocks", "Much, on a thread", |_: NoArgs, _| "x".repeat(LARGE)))
}

fn call(id: usize, tool: &str) -> String {
    let call = json!({ "type": "control_request", "request_id": format!("r{id}"), "request": {
        "subtype": "mcp_message", "server_name": "clock", "message": {
            "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": tool, "arguments": {} },
        },
    } });
    format!("{call}\n")
}

fn builder() -> SessionBuilder {
    // Handlers that run when the bound is reached go on, so the bound grows with their number.
    Session::builder().mcp_server(large()).configure(|options| {
        options.limits.blocking_calls = 4;
        let short = Duration::from_millis(10);
        (options.timeouts.exit_after_eof, options.timeouts.exit_after_term) = (short, short);
    })
}

/// The most bytes that are held while `run` runs, beyond those held before.
async fn peak(run: impl Future<Output = ()>) -> usize {
    let before = HELD.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    run.await;
    PEAK.load(Ordering::Relaxed).saturating_sub(before)
}

/// 400 results of 4 MiB to a CLI that does not read: in one burst, all accepted.
async fn unread_results_hold_no_more_than_the_bound(tool: &str) {
    let mut cli = Bare::start(builder()).await;
    let bound = Limits::default().outbound_bytes;
    let calls: String = (0..400).map(|id| call(id, tool)).collect();
    let most = peak(async {
        cli.write(calls.as_bytes()).await;
        // No event tells that no more results come, so wait until the queue has been full for a while.
        let mut quiet = 0;
        while quiet < 20 {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let now = within(SOON, cli.session.snapshot()).await.unwrap();
            // A busy machine may not report the CLI in time.
            let full = now.cli.is_some_and(|cli| cli.outbound_bytes >= bound);
            quiet = if full { quiet + 1 } else { 0 };
        }
    })
    .await;
    println!("400 unread results of 4 MiB ({tool}): {} MiB at most", most / MIB);
    assert!(most < bound + BESIDE, "{} MiB", most / MIB);
    within(SOON, cli.session.stop()).await.unwrap();
}

// Guards: control-first
// Guards: the CLI reads more slowly than it is answered
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_results_hold_no_more_than_the_bound_and_64_mib() {
    let _alone = alone().await;
    for tool in ["large", "blocks"] {
        unread_results_hold_no_more_than_the_bound(tool).await;
    }
}

/// The length of the lines: far above every threshold of the reader, which is 1 MiB at most.
const LINE: usize = 16_000_000;

/// A name, and the beginning, the repeated piece and the end of one JSON value.
type Filling = (&'static str, &'static [u8], &'static [u8], &'static [u8]);

/// JSON values that fill a line: many lists, deep nesting, many small strings.
fn fillings() -> [Filling; 3] {
    [
        ("lists", b"[", b"[],", b"1]"),
        ("nesting", b"", b"{\"a\":", b"1"),
        ("small strings", b"[", b"\"a\",", b"1]"),
    ]
}

impl Bare {
    /// Writes a line: `head`, a value of the filling, `tail`. What is written is held nowhere.
    async fn full_line(&mut self, filling: usize, head: &str, tail: &str) {
        let (name, start, part, end) = fillings()[filling];
        let pieces = 4096;
        let many = part.repeat(pieces);
        let level = part.len() + usize::from(name == "nesting");
        let parts = (LINE - head.len() - tail.len()) / level;
        self.write(head.as_bytes()).await;
        self.write(start).await;
        for _ in 0..parts / pieces {
            self.write(&many).await;
        }
        self.write(end).await;
        if name == "nesting" {
            let closing = b"}".repeat(pieces);
            for _ in 0..parts / pieces {
                self.write(&closing).await;
            }
        }
        self.write(tail.as_bytes()).await;
        self.write(b"\n").await;
    }
}

/// The most that a session holds while it reads such a line, answers it if it is a request, and serves the call
/// behind it.
async fn costs_four_times_its_size_at_most(
    what: &str,
    request: Option<&str>,
    head: &str,
    tail: &str,
    builder: impl Fn() -> SessionBuilder,
) {
    for (filling, (name, ..)) in fillings().into_iter().enumerate() {
        let mut cli = Bare::start(builder()).await;
        cli.calls("warm").await;
        let most = peak(async {
            cli.full_line(filling, head, tail).await;
            cli.calls_and_awaits("behind", request).await;
            // The feeder, which reads messages beside the calls, has read the line now.
            within(SOON, cli.session.snapshot()).await.unwrap();
        })
        .await;
        println!("{what} of {name}: {:.2} times the line", most as f64 / LINE as f64);
        assert!(most <= 4 * LINE, "{what} of {name}: {} MiB", most / MIB);
        within(SOON, cli.session.stop()).await.unwrap();
    }
}

// Guards: a message of very many values, or nested without end
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_costs_four_times_its_line_at_most() {
    let _alone = alone().await;
    for (what, head, tail) in [
        ("an assistant message", r#"{"type":"assistant","message":{"content":"#, "}}"),
        (
            "a tool's input",
            r#"{"type":"assistant","message":{"content":[{"type":"tool_use","id":"t","name":"n","input":{"a":"#,
            "}}]}}",
        ),
        ("a result", r#"{"type":"result","subtype":"success","structured_output":"#, "}"),
    ] {
        costs_four_times_its_size_at_most(what, None, head, tail, builder).await;
    }
}

/// The front of a control request.
fn request(body: &str) -> String {
    format!(r#"{{"type":"control_request","request_id":"much","request":{{{body}"#)
}

// Guards: a permission request with very many values
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permission_request_costs_four_times_its_line_at_most() {
    let _alone = alone().await;
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let asked = || {
        builder().can_use_tool(async |request, _| {
            ASKED.fetch_add(usize::from(request.input.raw().get().len() > LINE / 2), Ordering::Relaxed);
            PermissionDecision::deny("no")
        })
    };
    let head = request(r#""subtype":"can_use_tool","tool_name":"Bash","tool_use_id":"t","input":{"a":"#);
    costs_four_times_its_size_at_most("a permission request", Some("much"), &head, "}}}", asked).await;
    // Two of three: arguments that are nested too deep for `Value` are refused without asking.
    assert_eq!(ASKED.load(Ordering::Relaxed), 2);
}

// Guards: a hook's input, an elicitation or a dialog with very many values
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_input_of_a_hook_costs_four_times_its_line_at_most() {
    let _alone = alone().await;
    static SEEN: AtomicUsize = AtomicUsize::new(0);
    fn seen(json: &RawValue) {
        SEEN.fetch_add(usize::from(json.get().len() > LINE / 2), Ordering::Relaxed);
    }
    let hooked = || {
        builder()
            .hook(Hook::on(hook::PostToolUse, async |input, _| {
                seen(input.tool_response.raw());
                hook::PostToolUseOutput::pass()
            }))
            .hook(Hook::new("PostToolUse", async |input, _| {
                assert_eq!((input.event(), input.field("tool_name")), ("PostToolUse", &json!("Grep")));
                seen(input.raw());
                hook::HookOutput::pass()
            }))
            .hook(Hook::on(hook::PostToolBatch, async |input, _| {
                seen(input.tool_calls[0].tool_response.as_ref().unwrap().raw());
                hook::PostToolBatchOutput::pass()
            }))
            .hook(Hook::on(hook::Stop, async |_, _| hook::StopOutput::pass()))
    };
    let call = r#""hook_event_name":"PostToolUse","tool_name":"Grep","tool_input":{},"tool_use_id":"t""#;
    for (what, index, fields, tail, times) in [
        ("a result", 0, format!(r#"{call},"tool_response":"#), "}}}", 2),
        ("an input as JSON", 1, format!(r#"{call},"tool_response":"#), "}}}", 2),
        ("a result of a batch", 2, format!(r#""tool_calls":[{{{call},"tool_response":"#), "}]}}}", 2),
        ("an unknown field", 3, format!(r#"{call},"stop_hook_active":true,"of_tomorrow":"#), "}}}", 0),
    ] {
        SEEN.store(0, Ordering::Relaxed);
        let head = format!(r#""subtype":"hook_callback","callback_id":"hook_{index}","input":{{{fields}"#);
        costs_four_times_its_size_at_most(what, Some("much"), &request(&head), tail, hooked).await;
        // JSON that is nested too deep for `Value`, and an unknown field with too many values, fail the hook.
        assert_eq!(SEEN.load(Ordering::Relaxed), times, "{what}");
    }
}

// Guards: a hook's input, an elicitation or a dialog with very many values
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn questions_to_a_person_cost_four_times_their_line_at_most() {
    let _alone = alone().await;
    let asked = || {
        builder()
            .on_elicitation(async |_, _| ElicitationAnswer::Decline)
            .on_dialog(["retry"], async |_, _| DialogAnswer::Cancelled)
            .on_question(async |_, _| Answers::new())
    };
    for (what, head, tail) in [
        (
            "a schema",
            r#""subtype":"elicitation","mcp_server_name":"s","message":"m","requested_schema":"#,
            "}}",
        ),
        (
            "an elicitation",
            r#""subtype":"elicitation","mcp_server_name":"s","message":"m","of_tomorrow":"#,
            "}}",
        ),
        ("a payload", r#""subtype":"request_user_dialog","dialog_kind":"retry","payload":"#, "}}"),
        (
            "questions",
            r#""subtype":"can_use_tool","tool_name":"AskUserQuestion","input":{"questions":"#,
            "}}}",
        ),
    ] {
        costs_four_times_its_size_at_most(what, Some("much"), &request(head), tail, asked).await;
    }
}

/// Arguments whose value the tool ignores.
#[derive(Deserialize, JsonSchema)]
struct Much {
    #[allow(dead_code, reason = "it is read and dropped")]
    #[schemars(with = "serde_json::Value")]
    a: IgnoredAny,
}

// Guards: a call with very many values
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arguments_cost_four_times_their_line_at_most() {
    let _alone = alone().await;
    let called = || {
        let much = ToolServer::new("much", "1").tool("takes", "Takes much", async |_: Much| "taken");
        builder().mcp_server(much)
    };
    let message = r#""subtype":"mcp_message","server_name":"much","message":{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"takes","arguments":{"a":"#;
    costs_four_times_its_size_at_most("arguments", Some("much"), &request(message), "}}}}}", called).await;
}
