//! Subscribers for hosts whose calls are traced.

use std::time::Duration;

use opentelemetry::Context;
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, Span, SpanData, SpanProcessor};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::greenroom_host::Result;
use super::rows::{FMT, OTEL, REGISTRY};

/// Installs the subscriber of this host; a host without one is not traced.
pub(crate) fn install(host: &str) -> Result<()> {
    match host {
        REGISTRY => tracing_subscriber::registry().with(LevelFilter::INFO).try_init()?,
        FMT => {
            let fmt = tracing_subscriber::fmt::layer().with_writer(std::io::sink);
            tracing_subscriber::registry().with(LevelFilter::INFO).with(fmt).try_init()?;
        }
        OTEL => {
            let provider = SdkTracerProvider::builder().with_span_processor(Discard).build();
            let spans = tracing_opentelemetry::layer().with_tracer(provider.tracer("pipe"));
            tracing_subscriber::registry().with(LevelFilter::INFO).with(spans).try_init()?;
        }
        _ => {}
    }
    Ok(())
}

/// Takes every span that has ended and exports none.
#[derive(Debug)]
struct Discard;

impl SpanProcessor for Discard {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        std::hint::black_box(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}
