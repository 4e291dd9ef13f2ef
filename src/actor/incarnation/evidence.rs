//! Evidence in the lines of an incarnation for why it ended.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::lock::lock;
use crate::wire::Message;

/// Evidence for why the CLI exited. Written by the reader and the feeder, read by the incarnation.
#[derive(Debug, Default)]
pub(crate) struct ExitEvidence {
    /// Number of lines that were not frames.
    noise: AtomicU64,
    /// An error result after which the CLI may exit on purpose.
    last_error: Mutex<Option<ErrorResult>>,
    /// Whether `last_error` is set. Most messages only check that it is not.
    has_error: AtomicBool,
}

#[derive(Clone, Debug)]
pub(crate) struct ErrorResult {
    pub(crate) text: String,
    /// Whether the error is about the start of the CLI: its sandbox, its settings.
    pub(crate) of_start: bool,
}

impl ExitEvidence {
    pub(crate) fn noise(&self) -> u64 {
        self.noise.load(Ordering::Relaxed)
    }

    pub(super) fn note_noise(&self) {
        self.noise.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn last_error(&self) -> Option<ErrorResult> {
        lock(&self.last_error).clone()
    }

    /// Notes an error result, or that a message followed it. Only the feeder's task calls this.
    pub(super) fn note(&self, message: &Message) {
        let error = match message {
            Message::Result(result) if !result.is_success() => {
                let of_start = result.startup_failure_reason.is_some();
                result.error_text().map(|text| ErrorResult { text, of_start })
            }
            // The CLI may send these between an error result and its exit.
            Message::System(system)
                if matches!(
                    &*system.subtype,
                    "session_state_changed" | "session_writes_lost" | "plugin_install"
                ) =>
            {
                return;
            }
            Message::CommandLifecycle(_) => return,
            _ => None,
        };
        if error.is_some() || self.has_error.load(Ordering::Relaxed) {
            self.has_error.store(error.is_some(), Ordering::Relaxed);
            *lock(&self.last_error) = error;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_result_is_noted_until_a_message_follows() {
        let evidence = ExitEvidence::default();
        let note = |line: &str| {
            evidence.note(&Message::parse(line).unwrap());
            evidence.last_error().map(|error| error.text)
        };
        let error = r#"{"type":"result","subtype":"error_during_execution","is_error":true,"errors":["no"]}"#;
        assert_eq!(note(r#"{"type":"assistant","message":{"content":[]}}"#), None);
        assert_eq!(note(error).as_deref(), Some("no"));
        let state = r#"{"type":"system","subtype":"session_state_changed","state":"idle"}"#;
        assert_eq!(note(state).as_deref(), Some("no"), "the CLI sends its state before it exits");
        assert_eq!(note(r#"{"type":"stream_event","event":{"type":"ping"}}"#), None);
        assert_eq!(note(error).as_deref(), Some("no"));
        assert_eq!(note(r#"{"type":"result","subtype":"success","is_error":false,"result":""}"#), None);
    }
}
