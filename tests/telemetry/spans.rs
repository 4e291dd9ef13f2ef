//! Spans nest as they are documented, carry the documented fields and no others, and keep payloads to themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::*;
use greenroom::mcp::{ReadResource, ResourceDef};
use greenroom::options::GenAiSpans;
use greenroom::{NoArgs, PermissionDecision, Session, SessionBuilder, ToolContext, ToolDef, ToolServer};
use greenroom_testkit::CliEnd;
use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry};

/// Observations of one span.
#[derive(Clone, Debug, Default)]
struct Seen {
    name: &'static str,
    parent: Option<u64>,
    declared: BTreeSet<&'static str>,
    fields: BTreeMap<&'static str, String>,
    closed: bool,
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }
}

/// Spans by id, in the order of creation, and events with their span.
#[derive(Clone, Default)]
pub(crate) struct Capture {
    spans: Arc<Mutex<Vec<(u64, Seen)>>>,
    events: Arc<Mutex<Vec<Said>>>,
}

/// An event: its span and its fields.
type Said = (Option<u64>, String);

impl Capture {
    /// Captures what this thread traces until the guard is dropped.
    pub(crate) fn start() -> (Self, DefaultGuard) {
        crate::spans_are_wanted();
        let capture = Self::default();
        let guard = tracing::subscriber::set_default(Registry::default().with(capture.clone()));
        (capture, guard)
    }

    fn change(&self, id: &Id, change: impl FnOnce(&mut Seen)) {
        let mut spans = self.spans.lock().unwrap();
        // Ids are used again after a span is closed.
        let span = spans.iter_mut().rev().find(|(known, _)| *known == id.into_u64());
        change(&mut span.unwrap().1);
    }

    fn all(&self, name: &str) -> Vec<Seen> {
        let spans = self.spans.lock().unwrap();
        spans.iter().filter(|(_, span)| span.name == name).map(|(_, span)| span.clone()).collect()
    }

    fn one(&self, name: &str) -> Seen {
        let all = self.all(name);
        assert_eq!(all.len(), 1, "{name}: {all:?}");
        all[0].clone()
    }

    /// The one span of this name with this field.
    fn with(&self, name: &str, field: &str, value: &str) -> Seen {
        let all = self.all(name);
        let fits = all.iter().filter(|span| span.fields.get(field).is_some_and(|known| known == value));
        match fits.collect::<Vec<_>>()[..] {
            [span] => span.clone(),
            _ => panic!("not one {name} with {field} = {value}: {all:?}"),
        }
    }

    fn parent(&self, span: &Seen) -> Option<Seen> {
        let spans = self.spans.lock().unwrap();
        let id = span.parent?;
        spans.iter().rev().find(|(known, _)| *known == id).map(|(_, span)| span.clone())
    }

    /// The names from a span up to the root.
    fn path(&self, span: &Seen) -> Vec<&'static str> {
        let mut path = vec![span.name];
        let mut at = self.parent(span);
        while let Some(span) = at {
            path.push(span.name);
            at = self.parent(&span);
        }
        path
    }

    /// The event with this text: the name of its span, and its fields.
    pub(crate) fn event(&self, text: &str) -> (Option<String>, String) {
        let events = self.events.lock().unwrap();
        let (span, fields) = events.iter().find(|(_, fields)| fields.contains(text)).unwrap().clone();
        let spans = self.spans.lock().unwrap();
        let name = spans.iter().rev().find(|(id, _)| Some(*id) == span).map(|(_, span)| span.name.to_owned());
        (name, fields)
    }

    fn everything(&self) -> String {
        format!("{:?} {:?}", self.spans.lock().unwrap(), self.events.lock().unwrap())
    }
}

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Capture {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, cx: Context<'_, S>) {
        if !attributes.metadata().target().starts_with("greenroom") && attributes.metadata().name() != "mine"
        {
            return;
        }
        let mut seen = Seen {
            name: attributes.metadata().name(),
            parent: cx.span(id).and_then(|span| span.parent().map(|parent| parent.id().into_u64())),
            declared: attributes.metadata().fields().iter().map(|field| field.name()).collect(),
            ..Seen::default()
        };
        attributes.record(&mut seen);
        self.spans.lock().unwrap().push((id.into_u64(), seen));
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, _: Context<'_, S>) {
        if self.spans.lock().unwrap().iter().any(|(known, _)| *known == id.into_u64()) {
            self.change(id, |span| record.record(span));
        }
    }

    fn on_event(&self, event: &tracing::Event<'_>, cx: Context<'_, S>) {
        let mut seen = Seen::default();
        event.record(&mut seen);
        let span = cx.event_span(event).map(|span| span.id().into_u64());
        self.events.lock().unwrap().push((span, format!("{:?}", seen.fields)));
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        if self.spans.lock().unwrap().iter().any(|(known, _)| *known == id.into_u64()) {
            self.change(&id, |span| span.closed = true);
        }
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Secret {
    secret: String,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Number {
    number: usize,
}

fn builder() -> SessionBuilder {
    let server = ToolServer::new("calc", "1.0.0")
        .tool("ok", "Answers", async |args: Secret| {
            tracing::info!("a word of the handler");
            tracing::info_span!("mine").in_scope(|| {});
            format!("{} and back", args.secret)
        })
        .tool("error", "Fails", async |_: NoArgs| Err::<String, _>("no"))
        .tool("panic", "Panics", async |_: NoArgs| -> String { panic!("kaboom") })
        .add_tool(
            ToolDef::new("hang", "Hangs", |_: NoArgs| std::future::pending::<String>())
                .timeout(Duration::from_secs(1)),
        )
        .resource(ResourceDef::new("calc://sums", "sums", async |_: ReadResource, _: ToolContext| "1, 2, 3"));
    Session::builder().mcp_server(server).can_use_tool(async |_, _| PermissionDecision::allow())
}

/// Plays a turn with a call of each kind, and a request to the CLI.
async fn play(builder: SessionBuilder) -> (Session, CliEnd, impl Sized) {
    let (session, mut end, listener) = start_by_hand(builder).await;
    let outside = end.request(json!({ "subtype": "can_use_tool", "tool_name": "Bash", "input": {} }));
    within(SOON, end.answer_to(&outside)).await;
    let mut turn = session.prompt("go").await.unwrap();
    let prompt = within(SOON, end.expect("user")).await;
    end.begin_turn();
    within(SOON, turn.next()).await.unwrap();
    for (tool, arguments) in [
        ("ok", json!({ "secret": "hunter2" })),
        ("ok", json!({ "secret": 5 })),
        ("error", json!({})),
        ("panic", json!({})),
        ("hang", json!({})),
    ] {
        call(&mut end, "calc", tool, arguments).await;
    }
    let read =
        json!({ "jsonrpc": "2.0", "id": 90, "method": "resources/read", "params": { "uri": "calc://sums" } });
    let read = end.mcp("calc", read);
    within(SOON, end.answer_to(&read)).await;
    let ((), status) = within(SOON, async {
        tokio::join!(
            async {
                let request = end.expect_request("mcp_status").await;
                end.answer(&request, json!({}));
            },
            session.requests().control(json!({ "subtype": "mcp_status" }))
        )
    })
    .await;
    status.unwrap();
    end.finish_turn(&prompt, "done");
    within(SOON, turn.outcome()).await.unwrap();
    (session, end, listener)
}

#[tokio::test(start_paused = true)]
async fn a_tool_call_is_in_its_request_in_its_turn_in_its_session() {
    let (capture, _guard) = Capture::start();
    let (session, end, _listener) = play(builder()).await;
    for call in capture.all("tool_call") {
        assert_eq!(capture.path(&call), ["tool_call", "control_request", "turn", "session"]);
        let request = capture.parent(&call).unwrap();
        assert_eq!(request.fields["request_id"], call.fields["request_id"]);
        assert_eq!(request.fields["kind"], "mcp_message");
    }
    let outside = capture.with("control_request", "kind", "can_use_tool");
    assert_eq!(capture.path(&outside), ["control_request", "session"], "there was no turn");
    let to_cli = capture.with("control_request", "kind", "mcp_status");
    assert_eq!(capture.path(&to_cli), ["control_request", "session"]);
    let mine = capture.one("mine");
    assert_eq!(capture.path(&mine)[..2], ["mine", "tool_call"], "a handler runs in the span of its call");
    let said = capture.events.lock().unwrap().iter().find(|(_, said)| said.contains("a word")).cloned();
    assert_eq!(said.unwrap().0, mine.parent, "and what it logs is of that span");
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn spans_say_what_happened() {
    let (capture, _guard) = Capture::start();
    let (session, end, _listener) = play(builder()).await;

    let session_span = capture.one("session");
    assert_eq!(session_span.fields["session_id"], end.session_id());
    assert_eq!(session_span.fields["gen_ai.conversation.id"], end.session_id());
    assert_eq!(session_span.fields["gen_ai.provider.name"], "anthropic");

    let turn = capture.one("turn");
    assert_eq!((&*turn.fields["outcome"], &*turn.fields["epoch"]), ("completed", "1"));
    assert_eq!(turn.fields["gen_ai.operation.name"], "invoke_agent");
    assert_eq!(turn.fields["gen_ai.usage.input_tokens"], "1");
    assert_eq!(turn.fields["gen_ai.usage.output_tokens"], "1");
    for (field, value) in [
        ("otel.name", "invoke_agent"),
        ("otel.kind", "internal"),
        ("otel.status_code", "OK"),
        ("gen_ai.provider.name", "anthropic"),
        ("gen_ai.usage.cache_read.input_tokens", "0"),
    ] {
        assert_eq!(turn.fields[field], value, "{field}");
    }

    let calls = capture.all("tool_call");
    let outcome = |index: usize| {
        let field = |name| calls[index].fields.get(name).map(String::as_str);
        (field("tool").unwrap(), field("outcome"), field("error.type"))
    };
    assert_eq!(outcome(0), ("ok", Some("ok"), None));
    assert_eq!(outcome(1), ("ok", Some("bad_arguments"), Some("bad_arguments")));
    assert_eq!(outcome(2), ("error", Some("error"), Some("tool_error")));
    assert_eq!(outcome(3), ("panic", Some("panic"), Some("panic")));
    assert_eq!(outcome(4), ("hang", None, None), "it is in its grace time");
    let requests: Vec<_> = calls
        .iter()
        .map(|call| capture.parent(call).unwrap().fields.get("outcome").cloned().unwrap())
        .collect();
    assert_eq!(requests, ["answered", "answered", "answered", "answered", "cancelled"]);
    let first = &calls[0].fields;
    for (field, value) in [
        ("server", "calc"),
        ("epoch", "1"),
        ("tool_use_id", "toolu_2"),
        ("gen_ai.tool.call.id", "toolu_2"),
        ("gen_ai.operation.name", "execute_tool"),
        ("gen_ai.tool.name", "ok"),
        ("gen_ai.tool.type", "function"),
        ("otel.name", "tools/call ok"),
        ("otel.kind", "server"),
        ("otel.status_code", "OK"),
        ("mcp.protocol.version", "2025-11-25"),
        ("network.transport", "pipe"),
        ("mcp.method.name", "tools/call"),
        ("jsonrpc.request.id", "2"),
    ] {
        assert_eq!(first[field], value, "{field}");
    }
    let read = capture.one("mcp_request");
    assert_eq!(capture.path(&read), ["mcp_request", "control_request", "turn", "session"]);
    for (field, value) in [
        ("server", "calc"),
        ("subject", "calc://sums"),
        ("mcp.method.name", "resources/read"),
        ("mcp.resource.uri", "calc://sums"),
        ("otel.name", "resources/read"),
        ("jsonrpc.request.id", "90"),
        ("outcome", "ok"),
    ] {
        assert_eq!(read.fields[field], value, "{field}");
    }
    assert_eq!(capture.with("control_request", "kind", "mcp_status").fields["outcome"], "answered");
    stop(session, end).await;
    let aborted = capture.with("tool_call", "tool", "hang");
    for (field, value) in
        [("outcome", "cancelled"), ("error.type", "cancelled"), ("otel.status_code", "ERROR")]
    {
        assert_eq!(aborted.fields[field], value, "{field}");
    }
    for (_, span) in capture.spans.lock().unwrap().iter() {
        assert!(span.closed, "the session is gone and this is still open: {span:?}");
    }
}

/// A CLI that exports spans makes one of each turn, too.
#[tokio::test(start_paused = true)]
async fn a_turn_is_one_of_an_agent_unless_the_cli_says_so_itself() {
    let traced = |exporter: &'static str| {
        builder().configure(move |options| {
            for (name, value) in [
                ("CLAUDE_CODE_ENABLE_TELEMETRY", "1"),
                ("CLAUDE_CODE_ENHANCED_TELEMETRY_BETA", "1"),
                ("OTEL_TRACES_EXPORTER", exporter),
                ("CLAUDE_CODE_USE_VERTEX", "1"),
            ] {
                options.env.insert(name.into(), value.into());
            }
        })
    };
    let with = |genai| traced("otlp").configure(move |options| options.trace.genai = genai);
    for (builder, is_agent) in [
        (traced("otlp"), false),
        (traced("none"), true),
        (with(GenAiSpans::On), true),
        (builder().configure(|options| options.trace.genai = GenAiSpans::Off), false),
    ] {
        let (capture, _guard) = Capture::start();
        let (session, end, _listener) = play(builder).await;
        let turn = capture.one("turn").fields;
        for field in
            ["gen_ai.operation.name", "gen_ai.usage.input_tokens", "gen_ai.provider.name", "otel.name"]
        {
            assert_eq!(turn.contains_key(field), is_agent, "{field}: {turn:?}");
        }
        // For the join of both.
        assert!(turn.contains_key("prompt_uuid"), "{turn:?}");
        stop(session, end).await;
    }
    let (capture, _guard) = Capture::start();
    let (session, end, _listener) = play(with(GenAiSpans::On)).await;
    assert_eq!(capture.one("turn").fields["gen_ai.provider.name"], "gcp.vertex_ai");
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn the_spans_of_a_call_close_with_its_answer_while_others_are_in_flight() {
    const CALLS: usize = 200;
    let (capture, _guard) = Capture::start();
    let (wake, _) = tokio::sync::broadcast::channel::<usize>(CALLS);
    let waker = wake.clone();
    let server = ToolServer::new("calc", "1.0.0").tool("wait", "Waits", move |args: Number| {
        let mut woken = wake.subscribe();
        async move {
            while woken.recv().await.unwrap() != args.number {}
            args.number
        }
    });
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let calls: Vec<_> =
        (0..CALLS).map(|number| end.call_tool("calc", "wait", json!({ "number": number }))).collect();
    let closed = |name| {
        let of_calls = |span: &&Seen| span.fields.get("kind").is_none_or(|kind| kind == "mcp_message");
        capture.all(name).iter().filter(of_calls).filter(|span| span.closed).count()
    };
    while waker.receiver_count() < CALLS {
        tokio::task::yield_now().await;
    }
    for (number, request_id) in calls.iter().enumerate() {
        waker.send(number).unwrap();
        within(SOON, end.answer_to(request_id)).await;
        // The answer is read before the task of the handler is dropped.
        for _ in 0..9 {
            tokio::task::yield_now().await;
        }
        assert_eq!((closed("tool_call"), closed("control_request")), (number + 1, number + 1));
    }
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn spans_have_the_fields_that_are_documented_and_no_others() {
    let (capture, _guard) = Capture::start();
    let (session, end, _listener) = play(builder()).await;
    let mut documented = BTreeMap::new();
    for line in include_str!("../../src/telemetry.rs").lines() {
        // | `span` | level | parent | fields |
        let columns: Vec<&str> = line.trim_start_matches("//! |").split('|').map(str::trim).collect();
        if let [span, "info", _, fields, ""] = columns[..] {
            // Values stand in brackets.
            let names =
                fields.split('`').skip(1).step_by(2).filter(|name| !fields.contains(&format!("(`{name}`)")));
            documented.insert(span.trim_matches('`').to_owned(), names.collect::<BTreeSet<_>>());
        }
    }
    assert_eq!(documented.len(), 5, "{documented:?}");
    for (span, mut fields) in documented {
        if span == "tool_call" {
            fields.extend(["gen_ai.tool.call.arguments", "gen_ai.tool.call.result"]);
        }
        let all = capture.all(&span);
        assert!(!all.is_empty());
        for seen in all {
            assert_eq!(seen.declared, fields, "{span}");
        }
    }
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn payloads_are_traced_only_when_asked_for() {
    let (capture, guard) = Capture::start();
    let (session, end, _listener) = play(builder()).await;
    assert!(!capture.everything().contains("hunter2"), "{}", capture.everything());
    for call in capture.all("tool_call") {
        assert!(!call.fields.keys().any(|field| field.starts_with("gen_ai.tool.call.r")), "{call:?}");
        assert!(!call.fields.contains_key("gen_ai.tool.call.arguments"), "{call:?}");
    }
    stop(session, end).await;
    drop(guard);

    let (capture, _guard) = Capture::start();
    let (session, end, _listener) = play(builder().configure(|options| options.trace_payloads = true)).await;
    let call = &capture.all("tool_call")[0];
    assert_eq!(call.fields["gen_ai.tool.call.arguments"], r#"{"secret":"hunter2"}"#);
    assert!(call.fields["gen_ai.tool.call.result"].contains("hunter2 and back"), "{call:?}");
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn without_a_subscriber_nothing_is_missing() {
    crate::spans_are_wanted();
    let (session, end, _listener) = play(builder()).await;
    assert_eq!(counters(&session).await.panics, 1);
    stop(session, end).await;
}
