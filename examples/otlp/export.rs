//! Exporters for traces and metrics.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use opentelemetry::{global, trace::TracerProvider};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{MetricExporter, Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// The providers of a service.
pub(crate) struct Telemetry {
    traces: SdkTracerProvider,
    metrics: SdkMeterProvider,
}

impl Telemetry {
    /// Exports to a collector: its address, such as `http://127.0.0.1:4318`. Call this before the first session starts.
    pub(crate) fn install(endpoint: &str) -> Result<Self, Error> {
        let resource = Resource::builder().with_service_name("greenroom-otlp-example").build();
        let spans = SpanExporter::builder()
            .with_http()
            .with_http_client(Post)
            .with_protocol(Protocol::HttpJson)
            .with_endpoint(format!("{endpoint}/v1/traces"))
            .build()?;
        let measures = MetricExporter::builder()
            .with_http()
            .with_http_client(Post)
            .with_protocol(Protocol::HttpJson)
            .with_endpoint(format!("{endpoint}/v1/metrics"))
            .build()?;
        let traces =
            SdkTracerProvider::builder().with_batch_exporter(spans).with_resource(resource.clone()).build();
        let metrics =
            SdkMeterProvider::builder().with_periodic_exporter(measures).with_resource(resource).build();
        global::set_meter_provider(metrics.clone());
        let layer = tracing_opentelemetry::layer().with_tracer(traces.tracer("greenroom"));
        // Spans of greenroom alone.
        let wanted = tracing_subscriber::filter::filter_fn(|metadata| {
            metadata.is_span() && metadata.target().starts_with("greenroom")
        });
        tracing_subscriber::registry()
            .with(tracing_subscriber::Layer::with_filter(layer, wanted))
            .try_init()?;
        Ok(Self { traces, metrics })
    }

    /// Exports what is left, and ends the exporters.
    pub(crate) fn shutdown(self) -> Result<(), Error> {
        self.traces.shutdown()?;
        self.metrics.shutdown()?;
        Ok(())
    }
}

/// A client for plain HTTP. The exporters call it on threads of their own, so it may block. A service takes the client of
/// `opentelemetry-otlp` (its feature `reqwest-blocking-client`), which does TLS, too.
#[derive(Debug)]
struct Post;

#[async_trait::async_trait]
impl HttpClient for Post {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let authority = request.uri().authority().ok_or("the endpoint has no host")?.as_str().to_owned();
        let mut stream = TcpStream::connect(&authority)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let mut head =
            format!("POST {} HTTP/1.1\r\nhost: {authority}\r\nconnection: close\r\n", request.uri().path());
        for (name, value) in request.headers() {
            head += &format!("{name}: {}\r\n", value.to_str()?);
        }
        head += &format!("content-length: {}\r\n\r\n", request.body().len());
        stream.write_all(head.as_bytes())?;
        stream.write_all(request.body())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let text = String::from_utf8_lossy(&answer);
        let status = text.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok());
        let status = status.ok_or_else(|| io::Error::other("the collector gave no HTTP answer"))?;
        let body = text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
        Ok(Response::builder().status(status).body(Bytes::from(body))?)
    }
}
