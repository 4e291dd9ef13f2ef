//! What is asked of the CLI: written under an id, awaited up to a limit, and withdrawn when nobody wants the answer any
//! more. The router's own table; it runs on the router's actor.
//!
//! ```text
//!   ask ──written──► awaited ──answer──────────────► answered | refused
//!                      │  limit passes,                 ▲
//!                      │  or the future is dropped      │ a setting that is in force all the same
//!                      └─ control_cancel_request ──► withdrawn
//!                      (the incarnation ends: CliExited)
//! ```

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ractor::ActorRef;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::deadlines::Deadlines;
use super::lane::Lane;
use super::router::RouterMessage;
use super::settings;
use super::shared::Shared;
use super::work::after;
use crate::error::{Error, ErrorKind, Result};
use crate::wire::envelope::{self, OutRequest, Reply, ReplyError};

/// A request to the CLI.
pub(crate) struct Ask {
    pub(crate) request_id: String,
    /// Its body, with `subtype`.
    pub(crate) body: Value,
    pub(crate) limit: Duration,
    /// Whether it is of the handshake, which asks before anybody else may, and sets what was set before.
    pub(crate) handshake: bool,
    pub(crate) reply: oneshot::Sender<Result<Box<RawValue>>>,
}

/// Asks the CLI through the router of the moment. When the future is dropped, the request is withdrawn.
pub(crate) async fn ask(shared: &Shared, body: Value, limit: Duration) -> Result<Box<RawValue>> {
    send(shared, body, limit, false).await
}

/// The same for the handshake: what it sets is known already.
pub(crate) async fn ask_again(shared: &Shared, body: Value, limit: Duration) -> Result<Box<RawValue>> {
    send(shared, body, limit, true).await
}

async fn send(shared: &Shared, body: Value, limit: Duration, handshake: bool) -> Result<Box<RawValue>> {
    let (reply, answer) = oneshot::channel();
    if shared.gone.is_cancelled() {
        return Err(shared.gone());
    }
    let router = shared.router.borrow().clone();
    let router = router.ok_or_else(not_ready)?.actor;
    let request_id = shared.next_request_id();
    let asked = Ask { request_id: request_id.clone(), body, limit, handshake, reply };
    router.cast(RouterMessage::Ask(asked)).map_err(|_| not_ready())?;
    let mut wanted = Wanted { router: Some(router), request_id };
    let answer = answer.await;
    wanted.router = None;
    answer.unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::NotReady, "the control router ended before the CLI answered"))
    })
}

fn not_ready() -> Error {
    Error::new(ErrorKind::NotReady, "the session has no CLI to talk to at this moment")
}

/// Somebody waits for an answer.
struct Wanted {
    /// `None` once it is there.
    router: Option<ActorRef<RouterMessage>>,
    request_id: String,
}

impl Drop for Wanted {
    fn drop(&mut self) {
        if let Some(router) = self.router.take() {
            let request_id = std::mem::take(&mut self.request_id);
            // A router that has ended awaits nothing.
            router.cast(RouterMessage::Unwanted { request_id }).ok();
        }
    }
}

/// The requests to the CLI that have no answer yet.
pub(crate) struct Asking {
    shared: Arc<Shared>,
    awaited: HashMap<String, Awaited>,
}

struct Awaited {
    reply: oneshot::Sender<Result<Box<RawValue>>>,
    /// Where it was written: what is said of it later goes there, too.
    lane: Lane,
    subtype: String,
    limit: Duration,
    deadline: Instant,
    span: tracing::Span,
}

impl Asking {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, awaited: HashMap::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.awaited.len()
    }

    /// Writes a request.
    pub(crate) fn ask(&mut self, asked: Ask, lane: Option<&Lane>, deadlines: &mut Deadlines<String>) {
        let Ask { request_id, body, limit, handshake, reply } = asked;
        let subtype = body.get("subtype").and_then(Value::as_str).unwrap_or_default().to_owned();
        let setting = (!handshake && settings::is_setting(&body)).then(|| body.clone());
        let json = serde_json::to_vec(&OutRequest::new(&request_id, body));
        let lane = lane.filter(|lane| handshake || lane.is_ready());
        let written = match (lane, json) {
            (_, Err(error)) => Err(Error::invalid_option(format!("the request does not serialise: {error}"))),
            (None, _) => Err(not_ready()),
            (Some(lane), Ok(json)) => lane
                .send(json)
                .map_err(|_| Error::new(ErrorKind::CliExited, "the CLI has just ended"))
                .map(|()| lane.clone()),
        };
        match written {
            Ok(lane) => {
                let span = tracing::info_span!(
                    parent: &self.shared.span, "control_request", request_id, kind = subtype, epoch = lane.epoch(),
                    outcome = tracing::field::Empty,
                );
                let deadline = after(Instant::now(), limit);
                deadlines.insert(deadline, request_id.clone());
                if let Some(setting) = setting {
                    self.shared.settings_asked().push((request_id.clone(), setting));
                }
                let awaited = Awaited { reply, lane, subtype, limit, deadline, span };
                self.awaited.insert(request_id, awaited);
            }
            Err(error) => {
                // Whoever asked may have stopped waiting.
                reply.send(Err(error)).ok();
            }
        }
    }

    /// Takes an answer of the CLI; false if nobody has asked.
    pub(crate) fn reply(&mut self, reply: Reply, deadlines: &mut Deadlines<String>) -> bool {
        // Whether or not the one who asked still waits: it is in force.
        let was_setting = self.setting_answered(&reply);
        let Some(awaited) = self.take(&reply.request_id) else {
            return was_setting;
        };
        deadlines.remove(awaited.deadline, reply.request_id);
        awaited.span.record("outcome", if reply.outcome.is_ok() { "answered" } else { "refused" });
        let outcome = reply.outcome.map_err(|error| refused(&awaited.subtype, error));
        awaited.reply.send(outcome).ok();
        true
    }

    /// Notes what is in force by this answer; false if it is not that of a setting.
    fn setting_answered(&self, reply: &Reply) -> bool {
        let setting = {
            let mut asked = self.shared.settings_asked();
            let at = asked.iter().position(|(request_id, _)| *request_id == reply.request_id);
            at.map(|at| asked.remove(at).1)
        };
        let Some(setting) = setting else { return false };
        if let Ok(answer) = &reply.outcome {
            let answer = serde_json::from_str(answer.get()).unwrap_or_default();
            if settings::took_effect(&setting, &answer).is_ok() {
                self.shared.note_setting(&settings::as_taken(&setting, &answer));
            }
        }
        true
    }

    /// Nobody waits for this answer any more.
    pub(crate) fn unwanted(&mut self, request_id: &str, deadlines: &mut Deadlines<String>) {
        if let Some(awaited) = self.withdraw(request_id, "withdrawn") {
            deadlines.remove(awaited.deadline, request_id.to_owned());
        }
    }

    /// A limit has passed, if it was that of a request.
    pub(crate) fn expired(&mut self, request_id: &str) {
        let Some(awaited) = self.withdraw(request_id, "timed_out") else { return };
        let message = format!("the CLI did not answer '{}' within {:?}", awaited.subtype, awaited.limit);
        let error = Error::new(ErrorKind::Timeout, message).with_help(
            "give it more time: `timeouts.control_request`, `long_request` or `with_request_timeout`",
        );
        awaited.reply.send(Err(error)).ok();
    }

    /// Takes one off the list. Requests are few, so an empty list holds no room for more.
    fn take(&mut self, request_id: &str) -> Option<Awaited> {
        let awaited = self.awaited.remove(request_id);
        if self.awaited.is_empty() {
            self.awaited = HashMap::new();
        }
        awaited
    }

    fn withdraw(&mut self, request_id: &str, outcome: &str) -> Option<Awaited> {
        let awaited = self.take(request_id)?;
        // If the incarnation has just ended there is nothing to withdraw.
        awaited.lane.send(envelope::cancel(request_id)).ok();
        awaited.span.record("outcome", outcome);
        // If the CLI answers after all, it is in force. Of those that nobody waits for, the last of each thing is kept.
        let mut asked = self.shared.settings_asked();
        if let Some((_, setting)) = asked.iter().find(|(asked, _)| asked == request_id).cloned() {
            asked.retain(|(other, earlier)| {
                other == request_id || self.awaited.contains_key(other) || !settings::same(earlier, &setting)
            });
        }
        drop(asked);
        Some(awaited)
    }

    /// The incarnation that was asked has ended.
    pub(crate) fn ended(&mut self) {
        self.shared.settings_asked().clear();
        for (_, awaited) in self.awaited.drain() {
            let text = format!("the CLI ended before it answered '{}'", awaited.subtype);
            // The one who asked may have stopped waiting.
            awaited.reply.send(Err(Error::new(ErrorKind::CliExited, text))).ok();
        }
    }
}

/// The CLI's error, as ours.
fn refused(subtype: &str, error: ReplyError) -> Error {
    let ReplyError { message, code } = error;
    // Older CLIs say it in words only.
    let unknown = code.as_deref() == Some("unsupported_request")
        || message.starts_with("Unsupported control request subtype");
    if unknown {
        let text = format!("the CLI does not know the control request '{subtype}': {message}");
        return Error::new(ErrorKind::Unsupported, text).with_code(code);
    }
    let shown = code.as_ref().map(|code| format!(" ({code})")).unwrap_or_default();
    Error::new(ErrorKind::Refused, format!("the CLI refused '{subtype}': {message}{shown}")).with_code(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_the_cli_keeps_its_code_and_what_it_does_not_know_is_told_apart() {
        let error = |message: &str, code: Option<&str>| {
            refused("set_x", ReplyError { message: message.into(), code: code.map(str::to_owned) })
        };
        let busy = error("not now", Some("reload_plugins_busy"));
        assert_eq!((busy.kind(), busy.code()), (ErrorKind::Refused, Some("reload_plugins_busy")));
        assert_eq!(busy.to_string(), "the CLI refused 'set_x': not now (reload_plugins_busy)");
        let unknown = error("What?", Some("unsupported_request"));
        assert_eq!((unknown.kind(), unknown.code()), (ErrorKind::Unsupported, Some("unsupported_request")));
        let old = error("Unsupported control request subtype: set_x", None);
        assert_eq!((old.kind(), old.code()), (ErrorKind::Unsupported, None));
        assert!(old.to_string().contains("'set_x'") && old.is_cli());
    }
}
