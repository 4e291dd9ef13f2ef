//! The spans of a session, and what its metrics take from their ends.
//!
//! A span has all fields of its kind from the beginning: `tracing` fixes them. Names are those of
//! [`names`](crate::telemetry::names).

use std::time::Duration;

use serde_json::{Value, json};
use tracing::Span;
use tracing::field::Empty;

use super::metrics::SessionMetrics;
use crate::error::ErrorKind;
use crate::options::{GenAiSpans, Options};
use crate::prompt::Prompt;
use crate::report::{InterruptedBy, Outcome};
use crate::sessions::variable;
use crate::telemetry::names::*;

/// What the spans of a session have in common.
pub(crate) struct SpanFacts {
    /// Whether spans have the attributes by which a backend recognises an agent's work.
    genai: bool,
    provider: &'static str,
    name: Option<String>,
    id: Option<String>,
    version: Option<String>,
    model: Option<String>,
    payloads: bool,
    metrics: SessionMetrics,
}

/// A span of a turn.
pub(crate) struct TurnSpan<'a> {
    pub(crate) parent: &'a Span,
    pub(crate) prompt: &'a Prompt,
    pub(crate) uuid: &'a str,
    pub(crate) epoch: u64,
    pub(crate) session_id: Option<&'a str>,
}

impl SpanFacts {
    pub(crate) fn new(options: &Options) -> Self {
        let is_set = |name: &str| {
            variable(options, name)
                .is_some_and(|value| !matches!(&*value.to_lowercase(), "" | "0" | "false" | "no" | "off"))
        };
        let provider = match () {
            () if is_set("CLAUDE_CODE_USE_BEDROCK") => "aws.bedrock",
            () if is_set("CLAUDE_CODE_USE_VERTEX") => "gcp.vertex_ai",
            () => "anthropic",
        };
        let exports =
            variable(options, "OTEL_TRACES_EXPORTER").is_some_and(|to| !matches!(&*to, "" | "none"));
        let cli_traces = is_set("CLAUDE_CODE_ENABLE_TELEMETRY")
            && is_set("CLAUDE_CODE_ENHANCED_TELEMETRY_BETA")
            && exports;
        let trace = &options.trace;
        let metrics = SessionMetrics::new(provider, trace.agent_name.as_deref(), options.model.as_deref());
        Self {
            genai: match trace.genai {
                GenAiSpans::Auto => !cli_traces,
                GenAiSpans::On => true,
                GenAiSpans::Off => false,
            },
            provider,
            name: trace.agent_name.clone(),
            id: trace.agent_id.clone(),
            version: trace.agent_version.clone(),
            model: options.model.clone(),
            payloads: options.trace_payloads,
            metrics,
        }
    }

    pub(crate) fn metrics(&self) -> &SessionMetrics {
        &self.metrics
    }

    pub(crate) fn session(&self) -> Span {
        tracing::info_span!(
            parent: None,
            "session",
            session_id = Empty,
            { CONVERSATION_ID } = Empty,
            { PROVIDER } = self.provider,
            { AGENT_NAME } = self.name,
        )
    }

    pub(crate) fn turn(&self, of: TurnSpan<'_>) -> Span {
        let name = match &self.name {
            Some(name) => format!("invoke_agent {name}"),
            None => "invoke_agent".to_owned(),
        };
        let genai = self.genai;
        let span = tracing::info_span!(
            parent: of.parent,
            "turn",
            prompt_uuid = of.uuid,
            epoch = of.epoch,
            outcome = Empty,
            { OTEL_NAME } = if genai { Some(name) } else { None },
            { OTEL_KIND } = "internal",
            { OTEL_STATUS } = Empty,
            { OPERATION } = if genai { Some("invoke_agent") } else { None },
            { PROVIDER } = if genai { Some(self.provider) } else { None },
            { AGENT_NAME } = if genai { self.name.as_deref() } else { None },
            { AGENT_ID } = if genai { self.id.as_deref() } else { None },
            { AGENT_VERSION } = if genai { self.version.as_deref() } else { None },
            { REQUEST_MODEL } = if genai { self.model.as_deref() } else { None },
            { CONVERSATION_ID } = of.session_id,
            { INPUT_TOKENS } = Empty,
            { CACHE_READ_TOKENS } = Empty,
            { CACHE_CREATION_TOKENS } = Empty,
            { OUTPUT_TOKENS } = Empty,
            { FINISH_REASONS } = Empty,
            { INPUT_MESSAGES } = Empty,
            { OUTPUT_MESSAGES } = Empty,
            { ERROR_TYPE } = Empty,
        );
        if genai && self.payloads && !span.is_disabled() {
            let parts: Vec<Value> = of.prompt.content.iter().map(part).collect();
            span.record(INPUT_MESSAGES, json!([{ "role": "user", "parts": parts }]).to_string());
        }
        span
    }

    /// The end of a turn for the application.
    pub(crate) fn turn_ends(&self, span: &Span, outcome: &Outcome, took: Duration) {
        let error = error_type(outcome);
        span.record("outcome", word(outcome));
        record_end(span, error.as_deref());
        self.metrics.turn(outcome, word(outcome), error.as_deref(), took);
        if !self.genai || span.is_disabled() {
            return;
        }
        if let Some(used) = outcome.usage().map(|usage| usage.total()) {
            span.record(INPUT_TOKENS, used.all_input());
            span.record(CACHE_READ_TOKENS, used.cache_read);
            span.record(CACHE_CREATION_TOKENS, used.cache_creation);
            span.record(OUTPUT_TOKENS, used.output);
        }
        let Some(result) = outcome.result() else { return };
        let reason = result.stop_reason.as_deref();
        if let Some(reason) = reason {
            span.record(FINISH_REASONS, json!([reason]).to_string());
        }
        if let Some(text) = result.result.as_deref().filter(|_| self.payloads) {
            let parts = [json!({ "type": "text", "content": text })];
            let message =
                json!([{ "role": "assistant", "parts": parts, "finish_reason": reason.unwrap_or("stop") }]);
            span.record(OUTPUT_MESSAGES, message.to_string());
        }
    }
}

/// A content block in the shape of the conventions.
fn part(block: &Value) -> Value {
    match block["text"].as_str() {
        Some(text) => json!({ "type": "text", "content": text }),
        None => json!({ "type": block["type"] }),
    }
}

fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Completed { .. } => "completed",
        Outcome::Appended => "appended",
        Outcome::Joined { .. } => "joined",
        Outcome::Deferred { .. } => "deferred",
        Outcome::Interrupted { .. } => "interrupted",
        Outcome::Failed { .. } => "failed",
        Outcome::NotStarted { .. } => "not_started",
    }
}

/// The class of the error with which a turn has ended. An interrupt of the user is none.
fn error_type(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Failed { error, .. } => Some(kind(error.kind())),
        Outcome::Interrupted { by: InterruptedBy::CliExit { .. }, .. } => Some(kind(ErrorKind::CliExited)),
        Outcome::Interrupted { by: InterruptedBy::Limit { .. }, .. } => Some(kind(ErrorKind::Timeout)),
        Outcome::Interrupted { by: InterruptedBy::Stop, .. } => Some(kind(ErrorKind::Stopped)),
        _ => None,
    }
}

/// The kind in snake case, such as `context_full`.
fn kind(kind: ErrorKind) -> String {
    let mut name = String::new();
    for letter in format!("{kind:?}").chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.extend(letter.to_lowercase());
    }
    name
}

pub(crate) fn record_end(span: &Span, error: Option<&str>) {
    match error {
        Some(error) => {
            span.record(ERROR_TYPE, error);
            span.record(OTEL_STATUS, "ERROR");
        }
        None => {
            span.record(OTEL_STATUS, "OK");
        }
    }
}
