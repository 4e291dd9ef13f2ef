//! Levels of log messages, and the filter that the CLI sets.

use std::sync::atomic::{AtomicU8, Ordering};

use serde::{Deserialize, Serialize};

/// Severity of a log message, in MCP's words (those of syslog).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
#[allow(missing_docs)]
pub enum LogLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

/// The least severe level that the CLI wants (`logging/setLevel`). Default: all levels.
#[derive(Debug, Default)]
pub(crate) struct LevelFilter(AtomicU8);

impl LevelFilter {
    pub(crate) fn set(&self, level: LogLevel) {
        self.0.store(level as u8, Ordering::Relaxed);
    }

    pub(crate) fn reset(&self) {
        self.set(LogLevel::Debug);
    }

    pub(crate) fn lets(&self, level: LogLevel) -> bool {
        level as u8 >= self.0.load(Ordering::Relaxed)
    }
}
