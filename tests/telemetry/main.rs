//! Tests that collect spans.
//!
//! `tracing` decides once for each span in the source, for the whole process, whether a subscriber wants it. So these
//! tests share no process with tests that create spans without a subscriber, and each calls [`spans_are_wanted`] first.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in the helpers of tests, too")]

#[path = "../support/common.rs"]
mod common;
#[path = "../support/timeline.rs"]
mod timeline;
#[path = "../support/wait.rs"]
mod wait;

mod logs;
mod otel;
mod otlp;
mod spans;

use std::sync::LazyLock;

use tracing::Dispatch;
use tracing_subscriber::Registry;

/// Makes `tracing` ask all subscribers of the process about each span, whichever thread creates it first.
///
/// While a process has one subscriber or none, `tracing` asks only the subscriber of the thread that first creates a
/// span: a thread without a subscriber would switch the span off for the test that collects it.
fn spans_are_wanted() {
    static SUBSCRIBERS: LazyLock<[Dispatch; 2]> =
        LazyLock::new(|| std::array::from_fn(|_| Dispatch::new(Registry::default())));
    LazyLock::force(&SUBSCRIBERS);
}
