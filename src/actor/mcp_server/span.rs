//! The span of a handler, from its start to its end.

use std::sync::Arc;

use tokio::time::Instant;
use tracing::Span;

use crate::actor::context::Shared;
use crate::actor::spans::record_end;
use crate::tool::run::context::CallContext;

/// The span of a handler. A handler that is dropped before it ends was cancelled.
pub(crate) struct HandlerSpan {
    span: Span,
    shared: Arc<Shared>,
    call: Arc<CallContext>,
    method: &'static str,
    received: Instant,
    ended: bool,
}

impl HandlerSpan {
    pub(crate) fn new(
        span: Span,
        shared: Arc<Shared>,
        call: Arc<CallContext>,
        method: &'static str,
        received: Instant,
    ) -> Self {
        Self { span, shared, call, method, received, ended: false }
    }

    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    pub(crate) fn ends(&mut self, outcome: &str, error: Option<&str>) {
        self.ended = true;
        self.span.record("outcome", outcome);
        record_end(&self.span, error);
        self.shared.spans.metrics().handler(&self.call, self.method, error, self.received);
    }
}

impl Drop for HandlerSpan {
    fn drop(&mut self) {
        if !self.ended {
            self.ends("cancelled", Some("cancelled"));
        }
    }
}
