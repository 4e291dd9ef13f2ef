//! The metrics of a node as text, for Prometheus.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::{Display, Write};

use greenroom::telemetry::LabelValues;

use super::operator::Operator;
use super::snapshot::{FleetSnapshot, SnapshotQuery};
use crate::actor::metrics::{COUNTERS, Metrics};
use crate::error::FleetError;
use crate::health::Health;
use crate::outcome::snake_case;

/// Chooses what [`Operator::metrics`] writes.
///
/// ```
/// use greenroom_fleet::MetricsQuery;
///
/// let query = MetricsQuery::new().tenants(50);
/// # let _ = query;
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct MetricsQuery {
    tenants: usize,
}

impl MetricsQuery {
    /// The metrics of the node, without tenants.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes live sessions by tenant, too: those of so many tenants, in the order of their ids, and of all others together as `other`. Default: 0.
    #[must_use]
    pub fn tenants(mut self, most: usize) -> Self {
        self.tenants = most;
        self
    }
}

impl Operator {
    /// The metrics of this node as Prometheus reads them (`text/plain; version=0.0.4`): what it has counted since it started,
    /// and its state. Labels have bounded values: an outcome, a reason, a stage, the node. No label has the name of a session, a conversation or
    /// a text.
    ///
    /// Several nodes are several targets for Prometheus: sum over them, except for `greenroom_fleet_queued_prompts`, which each node reports
    /// for the whole fleet.
    ///
    /// # Errors
    /// The errors of [`snapshot`](Self::snapshot).
    pub async fn metrics(&self, query: MetricsQuery) -> Result<String, FleetError> {
        let snapshot = self.snapshot(SnapshotQuery::active().limit(0)).await?;
        let shared = &self.fleet.handle.shared;
        Ok(text(&snapshot, &shared.metrics, shared.fence.left().as_secs_f64(), query))
    }
}

/// The text of one metric after another.
#[derive(Default)]
struct Exposition(String);

impl Exposition {
    fn family(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl IntoIterator<Item = (String, f64)>,
    ) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        // Writing to a string does not fail.
        writeln!(self.0, "# HELP greenroom_fleet_{name} {help}\n# TYPE greenroom_fleet_{name} {kind}").ok();
        for (labels, value) in samples {
            writeln!(self.0, "greenroom_fleet_{name}{labels} {value}").ok();
        }
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.family(name, "gauge", help, [(String::new(), value)]);
    }
}

fn label(name: &str, value: impl Display) -> String {
    let value = value.to_string().replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{{{name}=\"{value}\"}}")
}

fn text(snapshot: &FleetSnapshot, counted: &Metrics, lease: f64, query: MetricsQuery) -> String {
    let mut out = Exposition::default();
    let info = format!("{{node=\"{}\",version=\"{}\"}}", snapshot.node, env!("CARGO_PKG_VERSION"));
    out.family("info", "gauge", "The node and the version of the library.", [(info, 1.0)]);
    let versions =
        counted.values("cli_info").into_iter().map(|(version, _)| (label("version", version), 1.0));
    out.family("cli_info", "gauge", "The versions of CLIs that have started here.", versions);
    for (name, label_name, help) in COUNTERS {
        let values = counted.values(name);
        let values =
            if values.is_empty() && label_name.is_empty() { vec![(String::new(), 0)] } else { values };
        let samples = values.into_iter().map(|(value, count)| {
            let labels = if label_name.is_empty() { String::new() } else { label(label_name, value) };
            (labels, count as f64)
        });
        out.family(name, "counter", help, samples);
    }
    let (waits, waited) = counted.waits();
    let samples = [("_sum", waited.as_secs_f64()), ("_count", waits as f64)];
    writeln!(out.0, "# HELP greenroom_fleet_queue_wait_seconds The time that names have waited for a slot.")
        .ok();
    writeln!(out.0, "# TYPE greenroom_fleet_queue_wait_seconds summary").ok();
    for (part, value) in samples {
        writeln!(out.0, "greenroom_fleet_queue_wait_seconds{part} {value}").ok();
    }

    let used = &snapshot.usage;
    let tokens = [
        ("input", used.input),
        ("output", used.output),
        ("cache_read", used.cache_read),
        ("cache_creation", used.cache_creation),
    ];
    let tokens = tokens.map(|(kind, count)| (label("type", kind), count as f64));
    out.family("tokens_total", "counter", "Tokens by their type. `input` is without cached tokens.", tokens);
    let plain = |value: f64| [(String::new(), value)];
    out.family(
        "cost_usd_total",
        "counter",
        "Money in US dollars, as CLIs estimate it.",
        plain(used.cost_usd()),
    );
    let help = "Runs of turns whose CLI has not told what they have used.";
    out.family("unmetered_turns_total", "counter", help, plain(used.unmetered as f64));

    out.gauge("live_limit", "The most live sessions.", snapshot.live_limit as f64);
    let counts = snapshot.counts;
    let stages = [
        ("starting", counts.starting),
        ("running", counts.running),
        ("idle", counts.idle),
        ("leaving", counts.leaving),
    ];
    let stages = stages.map(|(stage, count)| (label("stage", stage), count as f64));
    out.family("live_sessions", "gauge", "Sessions that hold a slot, by what they do.", stages);
    out.gauge("asking_sessions", "Sessions that wait for a slot or a turn.", counts.asking as f64);
    out.gauge("queued_prompts", "Prompts that wait in the whole fleet.", f64::from(snapshot.queued));
    out.gauge("draining", "1 while the node takes no more prompts.", f64::from(u8::from(snapshot.draining)));
    out.gauge(
        "lease_left_seconds",
        "The time until the node gives its lease up, unless it renews the lease.",
        lease,
    );
    let mut causes: BTreeMap<String, f64> = BTreeMap::new();
    if let Health::Degraded { causes: found } = &snapshot.health {
        for degraded in found {
            *causes.entry(label("reason", snake_case(degraded.cause))).or_default() += 1.0;
        }
    }
    out.family("degradations", "gauge", "Causes that keep sessions from starting on this node.", causes);

    if query.tenants > 0 {
        let bound = LabelValues::new(query.tenants);
        let mut live: BTreeMap<String, f64> = BTreeMap::new();
        for (tenant, tally) in &snapshot.tenants {
            *live.entry(label("tenant", bound.bounded(tenant.as_str()))).or_default() += tally.live() as f64;
        }
        out.family("tenant_live_sessions", "gauge", "Sessions that hold a slot, by tenant.", live);
    }
    out.0
}
