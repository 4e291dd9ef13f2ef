//! Pass the current OpenTelemetry span to the CLI (feature `otel`).

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, TraceContextExt};
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::Options;
use crate::options::TraceContext;

/// Sets `Options::trace_context` to the current span, if there is a span and the options name no trace.
pub(super) fn take_current(options: &mut Options) {
    if options.trace_context.is_none() && !options.env.contains_key("TRACEPARENT") {
        options.trace_context = current();
    }
}

fn current() -> Option<TraceContext> {
    // A span of `tracing`, or else a span made with the OpenTelemetry API.
    let of_tracing = tracing::Span::current().context();
    [of_tracing, Context::current()].iter().find_map(|context| written(context.span().span_context()))
}

fn written(span: &SpanContext) -> Option<TraceContext> {
    let (trace_id, span_id) = (span.trace_id(), span.span_id());
    let flags = span.trace_flags().to_u8();
    let context = TraceContext::new(format!("00-{trace_id:032x}-{span_id:016x}-{flags:02x}"));
    let state = span.trace_state().header();
    let context = if state.is_empty() { context } else { context.with_state(state) };
    span.is_valid().then_some(context)
}
