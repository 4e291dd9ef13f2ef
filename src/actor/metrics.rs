//! The metrics of sessions (feature `metrics`), by the global meter of OpenTelemetry.

use std::time::Duration;

use tokio::time::Instant;

use crate::report::{Event, Outcome};
use crate::tool::run::context::CallContext;

#[cfg(feature = "metrics")]
pub(crate) use on::SessionMetrics;

#[cfg(not(feature = "metrics"))]
pub(crate) use off::SessionMetrics;

#[cfg(not(feature = "metrics"))]
mod off {
    use super::{CallContext, Duration, Event, Instant, Outcome};

    /// Without the feature nothing is measured.
    #[derive(Clone)]
    pub(crate) struct SessionMetrics;

    impl SessionMetrics {
        pub(crate) fn new(_: &'static str, _: Option<&str>, _: Option<&str>) -> Self {
            Self
        }

        pub(crate) fn turn(&self, _: &Outcome, _: &'static str, _: Option<&str>, _: Duration) {}

        pub(crate) fn handler(&self, _: &CallContext, _: &'static str, _: Option<&str>, _: Instant) {}

        pub(crate) fn event(&self, _: &Event) {}
    }
}

#[cfg(feature = "metrics")]
mod on {
    use std::sync::{Arc, LazyLock};

    use opentelemetry::metrics::{Counter, Histogram};
    use opentelemetry::{KeyValue, global};

    use super::{CallContext, Duration, Event, Instant, Outcome};
    use crate::telemetry::LabelValues;
    use crate::telemetry::names::*;

    /// The buckets of the conventions for durations, in seconds.
    const BUCKETS: [f64; 14] =
        [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
    /// The same for requests to tool servers.
    const MCP_BUCKETS: [f64; 14] =
        [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];

    /// Made with the first session: an application sets its meter provider before.
    static INSTRUMENTS: LazyLock<Instruments> = LazyLock::new(Instruments::new);

    /// Names of tools and agents that are labels. An application may define new tools for ever.
    static TOOLS: LabelValues = LabelValues::new(256);
    static AGENTS: LabelValues = LabelValues::new(256);
    static MODELS: LabelValues = LabelValues::new(64);

    struct Instruments {
        turns: Histogram<f64>,
        tools: Histogram<f64>,
        requests: Histogram<f64>,
        tokens: [Counter<u64>; 4],
        cost: Counter<f64>,
        restarts: Counter<u64>,
        panics: Counter<u64>,
    }

    impl Instruments {
        fn new() -> Self {
            let meter = global::meter("greenroom");
            let seconds = |name: &'static str, buckets: &[f64]| {
                meter.f64_histogram(name).with_unit("s").with_boundaries(buckets.to_vec()).build()
            };
            let tokens = [USAGE_INPUT, USAGE_CACHE_READ, USAGE_CACHE_CREATION, USAGE_OUTPUT];
            Self {
                turns: seconds(INVOKE_AGENT_DURATION, &BUCKETS),
                tools: seconds(EXECUTE_TOOL_DURATION, &BUCKETS),
                requests: seconds(MCP_DURATION, &MCP_BUCKETS),
                tokens: tokens.map(|name| meter.u64_counter(name).with_unit("{token}").build()),
                cost: meter.f64_counter(COST).with_unit("USD").build(),
                restarts: meter.u64_counter(CLI_RESTARTS).with_unit("{restart}").build(),
                panics: meter.u64_counter(TOOL_PANICS).with_unit("{panic}").build(),
            }
        }
    }

    /// The metrics of a session. No attribute has a name, a conversation or a text of a person.
    #[derive(Clone)]
    pub(crate) struct SessionMetrics {
        common: Arc<[KeyValue]>,
    }

    impl SessionMetrics {
        pub(crate) fn new(provider: &'static str, agent: Option<&str>, model: Option<&str>) -> Self {
            let agent = agent.map(|agent| KeyValue::new(AGENT_NAME, AGENTS.bounded(agent)));
            let model = model.map(|model| KeyValue::new(REQUEST_MODEL, MODELS.bounded(model)));
            Self {
                common: [KeyValue::new(PROVIDER, provider)].into_iter().chain(agent).chain(model).collect(),
            }
        }

        fn with(&self, more: impl IntoIterator<Item = KeyValue>) -> Vec<KeyValue> {
            self.common.iter().cloned().chain(more).collect()
        }

        pub(crate) fn turn(
            &self,
            outcome: &Outcome,
            word: &'static str,
            error: Option<&str>,
            took: Duration,
        ) {
            let error = error.map(|error| KeyValue::new(ERROR_TYPE, error.to_owned()));
            let of_turn = [KeyValue::new(OPERATION, "invoke_agent"), KeyValue::new(OUTCOME, word)];
            let of_turn = self.with(of_turn.into_iter().chain(error));
            INSTRUMENTS.turns.record(took.as_secs_f64(), &of_turn);
            let Some(used) = outcome.usage().map(|usage| usage.total()) else { return };
            let of_tokens = self.with([KeyValue::new(OPERATION, "invoke_agent")]);
            let counts = [used.all_input(), used.cache_read, used.cache_creation, used.output];
            for (counter, count) in INSTRUMENTS.tokens.iter().zip(counts) {
                counter.add(count, &of_tokens);
            }
            INSTRUMENTS.cost.add(used.cost_usd.max(0.0), &of_tokens);
        }

        pub(crate) fn handler(
            &self,
            call: &CallContext,
            method: &'static str,
            error: Option<&str>,
            received: Instant,
        ) {
            let is_tool = method == "tools/call";
            let tool = is_tool.then(|| KeyValue::new(TOOL_NAME, TOOLS.bounded(call.subject())));
            let error = error.map(|error| KeyValue::new(ERROR_TYPE, error.to_owned()));
            let of_call: Vec<_> = tool.into_iter().chain(error).collect();
            let of_request = [KeyValue::new(MCP_METHOD, method), KeyValue::new(TRANSPORT, "pipe")];
            let seconds = received.elapsed().as_secs_f64();
            INSTRUMENTS.requests.record(seconds, &self.with(of_request.into_iter().chain(of_call.clone())));
            if is_tool {
                let operation = KeyValue::new(OPERATION, "execute_tool");
                INSTRUMENTS.tools.record(seconds, &self.with([operation].into_iter().chain(of_call)));
            }
        }

        pub(crate) fn event(&self, event: &Event) {
            match event {
                Event::CliStarted { epoch, .. } if *epoch > 1 => INSTRUMENTS.restarts.add(1, &self.common),
                Event::CallPanicked { .. } => INSTRUMENTS.panics.add(1, &self.common),
                _ => {}
            }
        }
    }
}
