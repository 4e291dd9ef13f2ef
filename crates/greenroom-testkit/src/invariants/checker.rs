//! Checks the entries of a transcript one after the other.

use std::collections::{BTreeMap, HashMap};

use super::frame::WireObject;
use super::{Counts, Report, Violation};
use crate::wire::transcript::{Entry, Line, Wire};

/// Requests for another machine, which a host must not answer.
const SILENT: [&str; 4] =
    ["remote_tool_call", "remote_plumbing_call", "remote_tools_probe", "remote_tools_reannounce"];

/// Most requests, open at the end of their incarnation, whose ids are kept.
const OPEN_KEPT: usize = 1000;

/// Checks a transcript that is too long to be kept: feed it entry by entry. It forgets an incarnation when that ends.
/// For a whole transcript use [`check`](super::check).
///
/// ```
/// use greenroom_testkit::{Recorder, invariants::Checker};
///
/// fn look(recorder: &Recorder, checker: &mut Checker) {
///     for entry in &recorder.take().entries {
///         checker.observe(entry);
///     }
///     checker.report().assert_fine();
/// }
/// # let _ = look;
/// ```
#[derive(Clone, Debug, Default)]
pub struct Checker {
    living: BTreeMap<u64, CheckedIncarnation>,
    prompts: HashMap<String, CheckedPrompt>,
    /// Requests without an answer at the end of their incarnation: its epoch, and the request id.
    open_at_end: Vec<(u64, String)>,
    violations: Vec<Violation>,
    counts: Counts,
}

#[derive(Clone, Debug, Default)]
struct CheckedIncarnation {
    asked: HashMap<String, RequestState>,
    /// A line of the host without an end; no line may follow it.
    cut: Option<String>,
    /// The last prompt, until the CLI shows that its turn has started.
    waiting: Option<String>,
}

/// The requests with one id.
#[derive(Clone, Debug, Default)]
struct RequestState {
    subtype: String,
    silent: bool,
    /// Number of requests and of answers.
    asks: u32,
    answers: u32,
    /// Requests that need no answer: the id was in flight, or the request was withdrawn.
    excused: u32,
    /// The JSON-RPC ids that answers may have.
    rpc_ids: Vec<Option<String>>,
}

impl RequestState {
    fn in_flight(&self) -> u32 {
        self.asks.saturating_sub(self.answers)
    }

    fn is_open(&self) -> bool {
        !self.silent && self.asks > self.answers + self.excused
    }
}

#[derive(Clone, Debug)]
struct CheckedPrompt {
    epoch: u64,
    begun: bool,
}

impl Checker {
    /// A checker without any entries.
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks the next entry.
    pub fn observe(&mut self, entry: &Entry) {
        let epoch = entry.epoch;
        match &entry.wire {
            Wire::Opened { .. } => self.opened(epoch),
            Wire::Host(line) => self.host(epoch, line),
            Wire::Cli(line) => self.cli(epoch, line),
            Wire::Ended { .. } => self.ended(epoch),
        }
    }

    /// The result so far. Open requests of a running incarnation count as unanswered, so call this when no request is
    /// in flight.
    pub fn report(&self) -> Report {
        let mut violations = self.violations.clone();
        for (epoch, incarnation) in &self.living {
            if let Some(line) = &incarnation.cut {
                violations.push(Violation::TornLine { epoch: *epoch, line: line.clone() });
            }
            let mut open: Vec<_> = incarnation.asked.iter().filter(|(_, asked)| asked.is_open()).collect();
            open.sort_by_key(|(id, _)| *id);
            violations.extend(open.into_iter().map(|(request_id, asked)| Violation::Unanswered {
                epoch: *epoch,
                request_id: request_id.clone(),
                subtype: asked.subtype.clone(),
            }));
        }
        Report { violations, counts: self.counts, open_at_end: self.open_at_end.clone() }
    }

    fn opened(&mut self, epoch: u64) {
        self.counts.incarnations += 1;
        for living in self.living.keys().copied() {
            self.violations.push(Violation::TwoAtOnce { epoch, living });
        }
        self.living.insert(epoch, CheckedIncarnation::default());
    }

    fn ended(&mut self, epoch: u64) {
        let Some(incarnation) = self.living.remove(&epoch) else { return };
        self.counts.cut += u64::from(incarnation.cut.is_some());
        let mut open: Vec<_> = incarnation
            .asked
            .into_iter()
            .filter(|(_, asked)| asked.is_open())
            .map(|(id, _)| (epoch, id))
            .collect();
        open.sort_unstable();
        self.counts.open_at_end += open.len() as u64;
        self.open_at_end.extend(open);
        self.open_at_end.drain(..self.open_at_end.len().saturating_sub(OPEN_KEPT));
    }

    fn cli(&mut self, epoch: u64, line: &Line) {
        let Some(incarnation) = self.living.get_mut(&epoch) else { return };
        let frame = line.is_whole.then(|| WireObject::parse(&line.bytes)).flatten();
        let Some(frame) = frame else {
            self.counts.noise += 1;
            return;
        };
        if frame.begins_turn()
            && let Some(prompt) = incarnation.waiting.take().and_then(|uuid| self.prompts.get_mut(&uuid))
        {
            prompt.begun = true;
        }
        match (frame.kind.as_deref(), &frame.request_id) {
            (Some("control_request"), Some(id)) => {
                self.counts.requests += 1;
                let body = frame.asked();
                let asked = incarnation.asked.entry(id.clone()).or_default();
                if asked.in_flight() > 0 {
                    self.counts.duplicates += 1;
                    asked.excused += 1;
                }
                asked.asks += 1;
                asked.rpc_ids.push(body.as_ref().and_then(WireObject::asked_id));
                asked.subtype = body.and_then(|body| body.subtype).unwrap_or_default();
                asked.silent = SILENT.contains(&asked.subtype.as_str());
                self.counts.silent += u64::from(asked.silent);
            }
            (Some("control_cancel_request"), Some(id)) => {
                if let Some(asked) = incarnation.asked.get_mut(id).filter(|asked| asked.is_open()) {
                    asked.excused += 1;
                    self.counts.withdrawn += 1;
                }
            }
            _ => {}
        }
    }

    fn host(&mut self, epoch: u64, line: &Line) {
        // Lines to an ended incarnation reach nobody.
        let Some(incarnation) = self.living.get_mut(&epoch) else { return };
        let torn = incarnation.cut.take();
        if !line.is_whole {
            incarnation.cut = Some(line.text());
        }
        let frame = line.is_whole.then(|| WireObject::parse(&line.bytes)).flatten();
        if let Some(line) = torn {
            self.violations.push(Violation::TornLine { epoch, line });
        }
        let Some(frame) = frame else {
            if line.is_whole {
                self.violations.push(Violation::TornLine { epoch, line: line.text() });
            }
            return;
        };
        match frame.kind.as_deref() {
            Some("control_response") => self.answer(epoch, &frame),
            Some("user") => self.prompt(epoch, &frame),
            _ => {}
        }
    }

    fn answer(&mut self, epoch: u64, frame: &WireObject<'_>) {
        self.counts.answers += 1;
        let Some(answered) = frame.answered() else { return };
        let request_id = answered.request_id.clone().unwrap_or_default();
        let asked =
            self.living.get_mut(&epoch).and_then(|incarnation| incarnation.asked.get_mut(&request_id));
        let Some(asked) = asked else {
            let asked_by =
                self.open_at_end.iter().rev().find(|(_, id)| *id == request_id).map(|(epoch, _)| *epoch);
            return self.violations.push(Violation::NotAsked { epoch, request_id, asked_by });
        };
        if asked.silent {
            let subtype = asked.subtype.clone();
            return self.violations.push(Violation::AnsweredSilent { epoch, request_id, subtype });
        }
        if asked.in_flight() == 0 {
            return self.violations.push(Violation::AnsweredTwice { epoch, request_id });
        }
        asked.answers += 1;
        // The answer to a message without an id is an acknowledgement, whose id has no meaning.
        let Some(answered) = answered.answered_id() else { return };
        match asked.rpc_ids.iter().position(|id| id.is_none() || *id == answered) {
            Some(at) => drop(asked.rpc_ids.remove(at)),
            None => {
                let asked = asked.rpc_ids.first().cloned().flatten();
                self.violations.push(Violation::OtherRpcId { epoch, request_id, asked, answered });
            }
        }
    }

    fn prompt(&mut self, epoch: u64, frame: &WireObject<'_>) {
        self.counts.prompts += 1;
        let Some(uuid) = frame.uuid.clone() else { return };
        if let Some(before) = self.prompts.get(&uuid) {
            self.counts.prompts_again += 1;
            let (first, begun) = (before.epoch, before.begun);
            if first == epoch || self.living.contains_key(&first) {
                self.violations.push(Violation::PromptTwice { epoch, uuid: uuid.clone(), first });
            } else if begun {
                self.violations.push(Violation::PromptAgainAfterBegin { epoch, uuid: uuid.clone(), first });
            }
        }
        self.prompts.insert(uuid.clone(), CheckedPrompt { epoch, begun: false });
        if let Some(incarnation) = self.living.get_mut(&epoch) {
            incarnation.waiting = Some(uuid);
        }
    }
}
