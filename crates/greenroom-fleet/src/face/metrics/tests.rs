//! The text for Prometheus, and the dashboard.

use std::collections::BTreeSet;

use greenroom::{Prompt, Session};
use greenroom_testkit::{ModelTurn, Script, ScriptedClis, Usage};

use super::*;
use crate::backend::MemoryBackend;
use crate::{Fleet, FleetPrompt};

/// The series of a text, each with its labels, without the values.
fn series(text: &str) -> BTreeSet<String> {
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples.map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect()
}

fn value(text: &str, series: &str) -> f64 {
    let line = text.lines().find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')));
    line.unwrap_or_else(|| panic!("no {series} in {text}")).rsplit_once(' ').unwrap().1.parse().unwrap()
}

async fn fleet() -> Fleet {
    let usage = Usage { cost_usd: 0.25, input_tokens: 6, cache_read_input_tokens: 100, ..Usage::default() };
    let clis =
        ScriptedClis::new(move |_| Script::new().otherwise(ModelTurn::new().text("Yes.").usage(usage)));
    let builder = Fleet::builder()
        .backend(MemoryBackend::new())
        .configure(|limits| limits.live = 2)
        .profile("support", move |cx| Session::builder().transport(clis.transport(cx.name.to_string())));
    builder.start().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_node_counts_its_turns_and_says_so_to_prometheus() {
    let fleet = fleet().await;
    let before = series(&fleet.operator().metrics(MetricsQuery::new()).await.unwrap());
    for number in 0..3 {
        let session = fleet.tenant("acme").unwrap().session(format!("c{number}")).unwrap().profile("support");
        let mut turn = session.prompt(FleetPrompt::from(Prompt::text("Hello"))).await.unwrap();
        assert_eq!(turn.outcome().await.unwrap().text(), Some("Yes."));
    }
    let stranger = fleet.tenant("acme").unwrap().session("c0").unwrap().profile("sales");
    stranger.prompt("Hello").await.unwrap_err();
    let text = fleet.operator().metrics(MetricsQuery::new().tenants(10)).await.unwrap();
    for (series, expected) in [
        ("greenroom_fleet_prompts_accepted_total", 3.0),
        ("greenroom_fleet_prompts_refused_total{reason=\"unknown_profile\"}", 1.0),
        ("greenroom_fleet_turns_begun_total", 3.0),
        ("greenroom_fleet_turns_total{outcome=\"completed\"}", 3.0),
        ("greenroom_fleet_activations_total{wake=\"cold\"}", 3.0),
        ("greenroom_fleet_passivations_total{reason=\"eviction\"}", 1.0),
        ("greenroom_fleet_queue_wait_seconds_count", 3.0),
        ("greenroom_fleet_tokens_total{type=\"cache_read\"}", 300.0),
        ("greenroom_fleet_cost_usd_total", 0.75),
        ("greenroom_fleet_unmetered_turns_total", 0.0),
        ("greenroom_fleet_live_limit", 2.0),
        ("greenroom_fleet_tenant_live_sessions{tenant=\"acme\"}", 2.0),
    ] {
        assert_eq!(value(&text, series), expected, "{series} in {text}");
    }
    assert!(value(&text, "greenroom_fleet_lease_left_seconds") > 0.0);
    let now = series(&text);
    assert!(before.is_subset(&now), "{before:?} and {now:?}");
    fleet.drain(std::time::Duration::from_secs(20)).await;
}

/// Each event of a name is counted, and none makes a series of its own.
#[test]
fn ten_thousand_names_make_no_more_series_than_one() {
    use crate::event::{FleetEvent, PassivatedBy};
    use crate::id::{Name, PromptId, QuestionId, Tenant, Term};
    use crate::record::QuarantineKind;

    let counted = Metrics::default();
    let mut counts = BTreeSet::new();
    for number in 0..10_000 {
        let tenant = Tenant::new(format!("t{number}")).unwrap();
        let name = Name::new(tenant.clone(), format!("n{number}")).unwrap();
        let (prompt, question, why) = (PromptId::new(), QuestionId::new(), format!("because of {number}"));
        for event in [
            FleetEvent::Accepted { name: name.clone(), prompt },
            FleetEvent::Begun { name: name.clone(), prompt },
            FleetEvent::Ended { name: name.clone(), prompt, outcome: "failed" },
            FleetEvent::Activated { name: name.clone(), term: Term(number), resumed: true },
            FleetEvent::ActivationFailed { name: name.clone(), why: why.clone(), cause: None },
            FleetEvent::Passivating { name: name.clone(), why: PassivatedBy::Idle },
            FleetEvent::Quarantined { name: name.clone(), kind: QuarantineKind::Losses, why: why.clone() },
            FleetEvent::Asked { name: name.clone(), prompt, question },
            FleetEvent::BudgetSpent { tenant, spent: 1, budget: 1 },
            FleetEvent::ActorRestarted { actor: name.to_string(), why },
        ] {
            counted.event(&event);
        }
        counted.cli(&format!("2.1.{number}"));
        let all: usize = COUNTERS.iter().map(|(name, ..)| counted.values(name).len()).sum();
        counts.insert(all + counted.values("cli_info").len());
    }
    // Ten counters, and eight versions with `other`.
    assert_eq!(counts.last(), Some(&(10 + 9)), "{counts:?}");
    assert_eq!(counted.values("turns_total"), [("failed".to_owned(), 10_000)]);
}

/// Each metric in a query of the dashboard is one that a fleet or a session exports.
#[tokio::test(start_paused = true)]
async fn the_dashboard_names_metrics_that_exist() {
    let fleet = fleet().await;
    let text = fleet.operator().metrics(MetricsQuery::new().tenants(1)).await.unwrap();
    let typed = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let mut known: BTreeSet<String> = typed.map(str::to_owned).collect();
    known.extend(COUNTERS.iter().map(|(name, ..)| format!("greenroom_fleet_{name}")));
    known.extend(
        ["greenroom_fleet_cli_info", "greenroom_fleet_degradations", "greenroom_fleet_tenant_live_sessions"]
            .map(str::to_owned),
    );
    known.extend(["_sum", "_count"].map(|part| format!("greenroom_fleet_queue_wait_seconds{part}")));
    // As Prometheus names the metrics of a meter.
    use greenroom::telemetry::names::*;
    for seconds in [INVOKE_AGENT_DURATION, EXECUTE_TOOL_DURATION, MCP_DURATION] {
        let name = seconds.replace('.', "_");
        known.extend(["_bucket", "_sum", "_count"].map(|part| format!("{name}_seconds{part}")));
    }
    for counter in
        [USAGE_INPUT, USAGE_OUTPUT, USAGE_CACHE_READ, USAGE_CACHE_CREATION, CLI_RESTARTS, TOOL_PANICS]
    {
        known.insert(format!("{}_total", counter.replace('.', "_")));
    }
    known.insert(format!("{}_USD_total", COST.replace('.', "_")));

    let dashboard: serde_json::Value =
        serde_json::from_str(include_str!("../../../../../docs/grafana-fleet.json")).unwrap();
    let mut named = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let words = target["expr"].as_str().unwrap();
            let words = words.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
            let is_metric = |word: &&str| {
                ["greenroom_", "gen_ai_", "mcp_"].iter().any(|prefix| word.starts_with(prefix))
                    && !["gen_ai_tool_name", "gen_ai_agent_name", "greenroom_outcome"].contains(word)
            };
            named.extend(words.filter(is_metric).map(str::to_owned));
        }
    }
    let unknown: Vec<_> = named.difference(&known).collect();
    assert!(unknown.is_empty() && named.len() >= 20, "{unknown:?} of {named:?}");
    fleet.drain(std::time::Duration::from_secs(20)).await;
}
