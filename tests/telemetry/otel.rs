//! The span in which a session is started reaches the CLI (feature `otel`).

use std::collections::BTreeMap;

use crate::common::{start_by_hand, stop};
use greenroom::options::TraceContext;
use greenroom::{Session, SessionBuilder};
use opentelemetry::Context;
use opentelemetry::trace::{
    SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState, TracerProvider,
};
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Instrument;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const BY_HAND: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// A remote span with this state, of another process.
fn remote(state: &str) -> Context {
    Context::new().with_remote_span_context(SpanContext::new(
        TraceId::from_hex(TRACE).unwrap(),
        SpanId::from_hex("00f067aa0ba902b7").unwrap(),
        TraceFlags::SAMPLED,
        true,
        state.parse::<TraceState>().unwrap(),
    ))
}

/// The environment of a CLI that is started in this thread's span.
async fn env(builder: SessionBuilder) -> BTreeMap<String, String> {
    let (session, end, _listener) = start_by_hand(builder).await;
    let env = end.launch().command.env.clone();
    stop(session, end).await;
    env
}

#[tokio::test(start_paused = true)]
async fn the_cli_gets_the_span_in_which_the_session_is_started() {
    crate::spans_are_wanted();
    let provider = SdkTracerProvider::builder().build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let _guard = tracing::subscriber::set_default(Registry::default().with(layer));
    let span = tracing::info_span!("request");
    span.set_parent(remote("vendor=1")).unwrap();
    let told = env(Session::builder()).instrument(span.clone()).await;
    let context = span.context();
    let own = context.span().span_context().span_id();
    assert_eq!(told["TRACEPARENT"], format!("00-{TRACE}-{own}-01"));
    assert_eq!(told["TRACESTATE"], "vendor=1");
    // Outside of all spans no trace context is passed on.
    let told = env(Session::builder()).await;
    assert!(!told.contains_key("TRACEPARENT") && !told.contains_key("TRACESTATE"), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_span_that_was_made_without_tracing_does_as_well() {
    crate::spans_are_wanted();
    let _attached = remote("").attach();
    let told = env(Session::builder()).await;
    assert_eq!((told["TRACEPARENT"].as_str(), told.get("TRACESTATE")), (BY_HAND, None));
}

#[tokio::test(start_paused = true)]
async fn what_the_application_says_of_a_trace_wins_over_the_span() {
    crate::spans_are_wanted();
    let _attached = remote("vendor=1").attach();
    let other = "00-11111111111111111111111111111111-2222222222222222-00";
    let by_hand =
        Session::builder().configure(|options| options.trace_context = Some(TraceContext::new(other)));
    let told = env(by_hand).await;
    assert_eq!((told["TRACEPARENT"].as_str(), told.get("TRACESTATE")), (other, None));
    let told = env(Session::builder().env("TRACEPARENT", other)).await;
    assert_eq!((told["TRACEPARENT"].as_str(), told.get("TRACESTATE")), (other, None));
}
