//! The trace that a session belongs to (W3C Trace Context).

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// What the spans and the metrics of a session say of it.
///
/// ```
/// use greenroom::options::TraceOptions;
///
/// let trace = TraceOptions { agent_name: Some("support".into()), ..TraceOptions::default() };
/// # let _ = trace;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TraceOptions {
    /// The name of the agent (`gen_ai.agent.name`): a word for all sessions of a kind, never the name of a session or of a person, because it is a
    /// label of metrics. A fleet sets it to the profile. Default: none.
    pub agent_name: Option<String>,
    /// The agent's id (`gen_ai.agent.id`), only in spans. Default: none.
    pub agent_id: Option<String>,
    /// The agent's version (`gen_ai.agent.version`), only in spans. Default: none.
    pub agent_version: Option<String>,
    /// Whether the span of a turn is one of an agent for backends of traces. Default: [`Auto`](GenAiSpans::Auto).
    pub genai: GenAiSpans,
}

/// Whether the `turn` span has the attributes by which backends count turns of agents (`gen_ai.operation.name`), and usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GenAiSpans {
    /// Unless the CLI exports spans itself. Its `claude_code.interaction` is an `invoke_agent` too, and hangs beside the `turn` under the
    /// same parent, so a backend would count each turn twice. Both have `gen_ai.conversation.id`.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// The parent of the CLI's own spans, as a W3C Trace Context.
///
/// With the feature `otel` a session takes it from the OpenTelemetry span in which it starts, unless the options set
/// it.
/// ```
/// use greenroom::options::TraceContext;
///
/// let context = TraceContext::new("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").with_state("vendor=1");
/// assert_eq!(context.tracestate.as_deref(), Some("vendor=1"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TraceContext {
    /// Version, trace id, span id and flags, in lower-case hexadecimal digits separated by dashes (`$TRACEPARENT`).
    pub traceparent: String,
    /// Vendor data: up to 32 members `key=value`, separated by commas (`$TRACESTATE`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracestate: Option<String>,
}

impl TraceContext {
    /// The context of this `traceparent`, which is validated when the session starts.
    pub fn new(traceparent: impl Into<String>) -> Self {
        Self { traceparent: traceparent.into(), tracestate: None }
    }

    /// Adds a `tracestate`.
    pub fn with_state(mut self, tracestate: impl Into<String>) -> Self {
        self.tracestate = Some(tracestate.into());
        self
    }

    /// # Errors
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption) if a value is not in the form of W3C Trace Context.
    pub(crate) fn validate(&self) -> Result<()> {
        if !is_traceparent(&self.traceparent) {
            return Err(Error::invalid_option("option `trace_context`: the `traceparent` is not valid")
                .with_help("give it like `00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`"));
        }
        if self.tracestate.as_deref().is_some_and(|state| !is_tracestate(state)) {
            return Err(Error::invalid_option("option `trace_context`: the `tracestate` is not valid")
                .with_help("give up to 32 different members like `vendor=value`, separated by commas"));
        }
        Ok(())
    }
}

fn is_traceparent(text: &str) -> bool {
    let hex = |part: &str, digits: usize| {
        part.len() == digits && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let id = |part: &str, digits| hex(part, digits) && part.bytes().any(|byte| byte != b'0');
    let mut parts = text.split('-');
    let (Some(version), Some(trace), Some(span), Some(flags)) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    // A later version may have more parts.
    let rest =
        text.bytes().all(|byte| byte.is_ascii_graphic()) && (version != "00" || parts.next().is_none());
    hex(version, 2) && version != "ff" && id(trace, 32) && id(span, 16) && hex(flags, 2) && rest
}

fn is_tracestate(text: &str) -> bool {
    let mut keys = Vec::new();
    for member in text.split(',').map(|member| member.trim_matches([' ', '\t'])) {
        // Empty members are allowed.
        if member.is_empty() {
            continue;
        }
        let Some((key, value)) = member.split_once('=') else { return false };
        let sign = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'_' | b'-' | b'*' | b'/' | b'@');
        let is_key = key.len() <= 256
            && key.bytes().all(sign)
            && key.starts_with(|first: char| first.is_ascii_lowercase() || first.is_ascii_digit());
        let is_value = (1..=256).contains(&value.len())
            && value.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'=');
        if !is_key || !is_value || keys.contains(&key) {
            return false;
        }
        keys.push(key);
    }
    (1..=32).contains(&keys.len())
}
