//! The example exports by OTLP to a collector on loopback, and the collector gets what the conventions require.

use std::collections::{BTreeMap, BTreeSet};

use greenroom::mcp::{ReadResource, ResourceDef};
use greenroom::options::{GenAiSpans, TraceOptions};
use greenroom::{NoArgs, Outcome, Session, SessionBuilder, ToolContext, ToolServer};
use greenroom_testkit::{ModelTurn, Script, ScriptedCli, Usage};
use serde_json::{Value, json};

use crate::common::{SOON, start_by_hand, stop, within};

#[path = "../../examples/otlp/collector.rs"]
mod collector;
#[path = "../../examples/otlp/export.rs"]
mod export;

use collector::Collector;

/// The attributes of a span or of a point of a metric.
fn attributes(of: &Value) -> BTreeMap<String, Value> {
    let all = of["attributes"].as_array().cloned().unwrap_or_default();
    let value = |attribute: &Value| {
        let value = attribute["value"].as_object().unwrap();
        value.values().next().unwrap().clone()
    };
    all.iter().map(|attribute| (attribute["key"].as_str().unwrap().to_owned(), value(attribute))).collect()
}

/// The points of a metric.
fn points(metric: &Value) -> Vec<Value> {
    let kinds = ["sum", "histogram", "gauge"];
    kinds.iter().filter_map(|kind| metric[kind]["dataPoints"].as_array()).flatten().cloned().collect()
}

/// Which span of this library an exported span is.
fn kind_of(span: &Value) -> Option<&'static str> {
    let name = span["name"].as_str().unwrap();
    [("invoke_agent", "turn"), ("tools/call", "tool_call"), ("resources/read", "mcp_request")]
        .into_iter()
        .find_map(|(prefix, kind)| name.starts_with(prefix).then_some(kind))
}

fn is_conventional(attribute: &str) -> bool {
    ["gen_ai.", "mcp.", "jsonrpc.", "network.", "error."].iter().any(|prefix| attribute.starts_with(prefix))
}

fn server() -> ToolServer {
    ToolServer::new("clock", "1.0.0")
        .tool("now", "The time", async |_: NoArgs| "noon")
        .tool("fail", "Fails", async |_: NoArgs| Err::<String, _>("no"))
        .resource(ResourceDef::new("clock://zones", "zones", async |_: ReadResource, _: ToolContext| "UTC"))
}

fn builder() -> SessionBuilder {
    Session::builder().mcp_server(server()).allow_server_tools("clock").configure(|options| {
        options.model = Some("opus".into());
        options.trace_payloads = true;
        options.trace = TraceOptions {
            agent_name: Some("support".into()),
            agent_id: Some("a1".into()),
            agent_version: Some("7".into()),
            genai: GenAiSpans::On,
        };
    })
}

/// A turn with two calls, a turn that fails, and a read of a resource.
async fn play() {
    let used = Usage {
        cost_usd: 0.25,
        input_tokens: 6,
        output_tokens: 4,
        cache_read_input_tokens: 120_000,
        cache_creation_input_tokens: 5_760,
    };
    let script = Script::new()
        .turn(
            ModelTurn::new()
                .call("mcp__clock__now", json!({}))
                .call("mcp__clock__fail", json!({}))
                .usage(used),
        )
        .turn(ModelTurn::new().text("It is noon."))
        .turn(ModelTurn::new().error(403, "permission_error", "no"));
    let cli = ScriptedCli::play(script);
    let session = within(SOON, builder().transport(cli.transport()).start()).await.unwrap();
    let ask =
        async |prompt: &str| within(SOON, session.prompt(prompt)).await.unwrap().outcome().await.unwrap();
    let first = ask("What time is it?").await;
    assert_eq!(first.text(), Some("It is noon."), "{first:?} {:?}", session.failure());
    assert!(matches!(ask("And now?").await, Outcome::Failed { .. }));
    within(SOON, session.stop()).await.unwrap();

    let (session, mut end, _listener) = start_by_hand(builder()).await;
    let read = json!({ "jsonrpc": "2.0", "id": 9, "method": "resources/read", "params": { "uri": "clock://zones" } });
    let read = end.mcp("clock", read);
    within(SOON, end.answer_to(&read)).await;
    stop(session, end).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_gets_what_the_conventions_require() {
    crate::spans_are_wanted();
    let collector = Collector::start().unwrap();
    let telemetry = export::Telemetry::install(&collector.endpoint()).unwrap();
    play().await;
    let ended = tokio::task::spawn_blocking(move || telemetry.shutdown());
    within(SOON, ended).await.unwrap().unwrap();

    let (spans, metrics) = (collector.spans(), collector.metrics());
    assert!(collector.names().contains("tools/call now"), "{:?}", collector.names());
    let mut seen: BTreeMap<(&str, String), Vec<BTreeMap<String, Value>>> = BTreeMap::new();
    for span in &spans {
        if let Some(kind) = kind_of(span) {
            seen.entry(("span", kind.to_owned())).or_default().push(attributes(span));
        }
    }
    for metric in &metrics {
        let name = metric["name"].as_str().unwrap().to_owned();
        seen.entry(("metric", name)).or_default().extend(points(metric).iter().map(attributes));
    }

    let mut known: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for row in include_str!("conventions.tsv").lines().filter(|row| !row.starts_with('#')) {
        let [signal, name, attribute, level, has] = row.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        let all =
            seen.get(&(signal, name.to_owned())).unwrap_or_else(|| panic!("no {signal} {name}: {seen:?}"));
        let with = all.iter().filter(|attributes| attributes.contains_key(attribute)).count();
        match has {
            "always" => assert_eq!(with, all.len(), "{row}: {all:?}"),
            "error" => assert!(with < all.len(), "{row}: {all:?}"),
            "given" | "payloads" if attribute == "gen_ai.prompt.name" => {}
            "given" | "payloads" => assert!(with > 0, "{row}: {all:?}"),
            other => panic!("{other}"),
        }
        assert!(level != "required" || has == "always", "{row}");
        known.entry((signal.to_owned(), name.to_owned())).or_default().insert(attribute.to_owned());
    }
    for ((signal, name), all) in &seen {
        let known = known.get(&((*signal).to_owned(), name.clone()));
        let known = known.unwrap_or_else(|| panic!("{signal} {name} is not in the table"));
        for attribute in all.iter().flat_map(BTreeMap::keys) {
            let fits = known.contains(attribute) || (*signal == "span" && !is_conventional(attribute));
            assert!(fits, "{signal} {name} has {attribute}");
        }
    }

    // The values of a turn: all input tokens, the status, the kind.
    let turn = spans.iter().find(|span| span["name"] == "invoke_agent support").unwrap();
    let of_turn = attributes(turn);
    assert_eq!(of_turn["gen_ai.usage.input_tokens"].as_str(), Some("125767"), "{of_turn:?}");
    assert_eq!(of_turn["gen_ai.usage.cache_read.input_tokens"].as_str(), Some("120000"));
    assert_eq!((&turn["kind"], &turn["status"]["code"]), (&json!(1), &json!(1)), "{turn}");
    let failed = spans
        .iter()
        .find(|span| attributes(span).contains_key("error.type") && kind_of(span) == Some("turn"));
    assert_eq!(failed.unwrap()["status"]["code"], json!(2));
    let call = spans.iter().find(|span| span["name"] == "tools/call fail").unwrap();
    assert_eq!((&call["kind"], &call["status"]["code"]), (&json!(2), &json!(2)), "{call}");
    let cost = metrics.iter().find(|metric| metric["name"] == "greenroom.cost").unwrap();
    assert_eq!(points(cost).iter().map(|point| point["asDouble"].as_f64().unwrap()).sum::<f64>(), 0.25);
}
