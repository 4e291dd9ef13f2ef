//! Plays an incarnation of a transcript to its end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use greenroom::transport::Exit;
use serde_json::Value;

use super::differ::{RecordedKind, difference};
use super::{State, lock};
use crate::cli::hand::CliEnd;
use crate::wire::transcript::{Entry, Line, Side, Wire};

pub(super) struct ReplayPlayer {
    end: CliEnd,
    state: Arc<Mutex<State>>,
    patience: Duration,
    /// Frames of the host that correspond to none that was waited for so far.
    early: Vec<Value>,
    /// Ids of the host's requests: recorded id to live id.
    requests: HashMap<String, String>,
    /// Uuids of the host's prompts: recorded uuid to live uuid.
    prompts: HashMap<String, String>,
}

/// The host closed stdin or is gone.
struct HostGone;

impl ReplayPlayer {
    pub(super) fn new(end: CliEnd, state: Arc<Mutex<State>>, patience: Duration) -> Self {
        Self { end, state, patience, early: Vec::new(), requests: HashMap::new(), prompts: HashMap::new() }
    }

    pub(super) async fn play(mut self, entries: impl Iterator<Item = &Entry> + Clone) {
        let total = entries.clone().count();
        let mut played = 0;
        let mut exit = Exit::Code(0);
        for entry in entries {
            match &entry.wire {
                Wire::Opened { .. } => {}
                Wire::Host(line) => {
                    if self.expect(line).await.is_err() {
                        break;
                    }
                }
                Wire::Cli(line) => self.say(line),
                Wire::Closed { by: Side::Host } => self.run_out().await,
                Wire::Closed { by: Side::Cli } => {}
                // The host let go of it: it ends when the host does so again.
                Wire::Ended { exit: None } => self.run_out().await,
                Wire::Ended { exit: Some(ended) } => exit = *ended,
            }
            played += 1;
            lock(&self.state).left -= 1;
        }
        if played == total {
            for frame in std::mem::take(&mut self.early) {
                self.unexpected(&frame);
            }
        }
        lock(&self.state).left -= total - played;
        // Flush all frames before the process exits.
        self.end.flushed().await;
        self.end.exit(exit);
    }

    /// Waits for the frame of today that corresponds to a recorded one.
    async fn expect(&mut self, line: &Line) -> Result<(), HostGone> {
        // Half a line is waited for by nobody: its incarnation ended.
        let Some(recorded) = line.json() else { return Ok(()) };
        let kind = RecordedKind::of(&recorded);
        lock(&self.state).waiting_for = Some(kind.to_string());
        let found = tokio::time::timeout(self.patience, self.find(&kind)).await;
        lock(&self.state).waiting_for = None;
        match found {
            Ok(Some(live)) => {
                self.pair(&recorded, &live);
                if let Some(difference) = difference(&recorded, &live) {
                    lock(&self.state).differences.push(difference);
                }
                Ok(())
            }
            Ok(None) => {
                lock(&self.state).differences.push(format!("{kind} did not come: the host closed its end"));
                Err(HostGone)
            }
            Err(_) => {
                let text = format!("{kind} did not come within {:?}", self.patience);
                lock(&self.state).differences.push(text);
                Err(HostGone)
            }
        }
    }

    async fn find(&mut self, kind: &RecordedKind) -> Option<Value> {
        if let Some(at) = self.early.iter().position(|frame| kind.fits(frame)) {
            return Some(self.early.remove(at));
        }
        loop {
            let frame = self.end.recv().await?;
            if kind.fits(&frame) {
                return Some(frame);
            }
            self.early.push(frame);
        }
    }

    /// Remembers what the host calls now what it called otherwise then.
    fn pair(&mut self, recorded: &Value, live: &Value) {
        let (ids, field) = match recorded["type"].as_str() {
            Some("control_request") => (&mut self.requests, "request_id"),
            Some("user") => (&mut self.prompts, "uuid"),
            _ => return,
        };
        if let (Some(then), Some(now)) = (recorded[field].as_str(), live[field].as_str()) {
            ids.insert(then.to_owned(), now.to_owned());
        }
    }

    fn say(&mut self, line: &Line) {
        let rewritten = line.json().and_then(|frame| self.rewritten(frame));
        let mut bytes =
            rewritten.map_or_else(|| line.bytes().to_vec(), |frame| frame.to_string().into_bytes());
        if line.is_whole() {
            bytes.push(b'\n');
        }
        self.end.send_bytes(bytes);
    }

    /// The frame with the ids of today, if it names any of then.
    fn rewritten(&self, mut frame: Value) -> Option<Value> {
        if frame["type"] == "control_response" {
            let now = self.requests.get(frame["response"]["request_id"].as_str()?)?;
            frame["response"]["request_id"] = Value::from(now.as_str());
            return Some(frame);
        }
        self.rename(&mut frame).then_some(frame)
    }

    fn rename(&self, value: &mut Value) -> bool {
        match value {
            Value::String(text) => match self.prompts.get(text.as_str()) {
                Some(now) => {
                    *text = now.clone();
                    true
                }
                None => false,
            },
            Value::Array(items) => {
                items.iter_mut().filter_map(|item| self.rename(item).then_some(())).count() > 0
            }
            Value::Object(fields) => {
                fields.values_mut().filter_map(|item| self.rename(item).then_some(())).count() > 0
            }
            _ => false,
        }
    }

    /// Waits until the host has closed its end, or has killed the process.
    async fn run_out(&mut self) {
        while let Some(frame) = self.end.recv().await {
            self.early.push(frame);
        }
    }

    fn unexpected(&self, frame: &Value) {
        let text = format!("{} was not recorded: {frame}", RecordedKind::of(frame));
        lock(&self.state).differences.push(text);
    }
}
