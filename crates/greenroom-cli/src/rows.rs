//! The lines of lists: their columns, and their JSON.

mod holds;
mod prompts;

use std::time::Duration;

use clap::ValueEnum;
use greenroom_fleet::admin::NodeReport;
use greenroom_fleet::{
    FeedEntry, FeedEvent, Labels, NameFilter, NameRecord, NameState, NodeState, ProcessRecord,
    QuarantineKind, QuestionRecord, Timestamp, Usage, UsageEntry,
};
use serde::Serialize;
use serde_json::Value;

use crate::output::Row;
use crate::text::{age, moment_of};

pub(crate) use holds::HoldRow;
pub(crate) use prompts::PromptRow;

/// A node. Times are in milliseconds.
#[derive(Serialize)]
pub(crate) struct NodeRow {
    id: String,
    host: String,
    state: &'static str,
    lease_age: u64,
    holds_lease: bool,
    live: u32,
    capacity: u32,
    asked_to_drain: bool,
}

impl NodeRow {
    pub(crate) fn of(node: &NodeReport) -> Self {
        let record = &node.record;
        Self {
            id: record.id.to_string(),
            host: record.host.clone(),
            state: match record.state {
                NodeState::Up => "up",
                NodeState::Draining => "draining",
                NodeState::Dead => "dead",
                _ => "unknown",
            },
            lease_age: millis(node.lease_age),
            holds_lease: node.holds_lease,
            live: record.owns,
            capacity: record.capacity,
            asked_to_drain: record.asked_to_drain,
        }
    }
}

impl Row for NodeRow {
    const COLUMNS: &'static [&'static str] = &["NODE", "HOST", "STATE", "LEASE", "LIVE", "CAP", "NOTE"];

    fn cells(&self) -> Vec<String> {
        let over = (!self.holds_lease).then_some("its lease is over");
        let asked = (self.asked_to_drain && self.state == "up").then_some("asked to drain");
        vec![
            self.id.clone(),
            self.host.clone(),
            self.state.to_owned(),
            age(Duration::from_millis(self.lease_age)),
            self.live.to_string(),
            self.capacity.to_string(),
            [over, asked].into_iter().flatten().collect::<Vec<_>>().join(", "),
        ]
    }
}

/// A session. Moments are in milliseconds since 1970.
#[derive(Serialize)]
pub(crate) struct NameRow {
    pub(crate) name: String,
    tenant: String,
    profile: String,
    host: Option<String>,
    pub(crate) state: State,
    /// When it came into the state, as far as that is known; else when it was first used.
    pub(crate) since: u64,
    queued: u32,
    node: Option<String>,
    running: Option<String>,
    failures: usize,
    losses: u32,
    /// The kind of its quarantine.
    kind: Option<QuarantineKind>,
    why: Option<String>,
    labels: Labels,
    #[serde(skip)]
    pub(crate) age: Duration,
}

/// The state of a session, as the command shows it. States with the most to look at come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    Quarantined,
    Deleting,
    Moving,
    /// Its activations fail, or its owners are lost
    Failing,
    /// It runs a turn
    Running,
    /// It is awake, without a turn
    Awake,
    /// Its turn waits for a person
    Parked,
    /// Prompts wait for it
    Waiting,
    Asleep,
}

impl State {
    fn of(record: &NameRecord) -> Self {
        match &record.state {
            NameState::Quarantined { .. } => Self::Quarantined,
            NameState::Deleting { .. } => Self::Deleting,
            NameState::Departing { .. } => Self::Moving,
            _ if record.is_stuck() => Self::Failing,
            NameState::Owned { .. } if record.running.is_some() => Self::Running,
            NameState::Owned { .. } => Self::Awake,
            _ if record.parked.is_some() => Self::Parked,
            _ if record.queued > 0 => Self::Waiting,
            _ => Self::Asleep,
        }
    }

    /// The narrowest filter that finds all names in this state. It may find others, too. `None`: no filter does.
    pub(crate) fn filter(self) -> Option<NameFilter> {
        match self {
            Self::Quarantined => Some(NameFilter::Quarantined),
            Self::Deleting | Self::Moving | Self::Failing => Some(NameFilter::Stuck),
            Self::Running => Some(NameFilter::Running),
            Self::Awake => Some(NameFilter::Owned),
            Self::Parked => Some(NameFilter::Parked),
            Self::Waiting => Some(NameFilter::Waiting),
            Self::Asleep => None,
        }
    }

    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Quarantined => "quarantined",
            Self::Deleting => "deleting",
            Self::Moving => "moving",
            Self::Failing => "failing",
            Self::Running => "running",
            Self::Awake => "awake",
            Self::Parked => "parked",
            Self::Waiting => "waiting",
            Self::Asleep => "asleep",
        }
    }
}

impl NameRow {
    pub(crate) fn of(record: &NameRecord, now: Timestamp) -> Self {
        let (mut node, mut kind) = (None, None);
        // A quarantine that waits for the end of the session, or the last failure of an activation.
        let waits = record.quarantine.as_ref().map(|quarantine| quarantine.why.clone());
        let mut why = waits.or_else(|| record.last_failure.clone());
        let since = match &record.state {
            NameState::Owned { node: owner, since, .. } => {
                node = Some(owner.to_string());
                *since
            }
            NameState::Quarantined { kind: found, why: because, since, .. } => {
                (kind, why) = (Some(*found), Some(because.clone()));
                *since
            }
            NameState::Deleting { since, .. } => *since,
            NameState::Departing { since, to, .. } => {
                why = Some(format!("to the backend {to}"));
                *since
            }
            _ => record.created_at,
        };
        Self {
            name: record.name.to_string(),
            tenant: record.name.tenant().to_string(),
            profile: record.profile.clone(),
            host: record.host.clone(),
            state: State::of(record),
            since: since.0,
            queued: record.queued,
            node,
            running: record.running.map(|prompt| prompt.to_string()),
            failures: record.failures.len(),
            losses: record.losses,
            kind,
            why,
            labels: record.labels.clone(),
            age: now.since(since),
        }
    }
}

impl Row for NameRow {
    const COLUMNS: &'static [&'static str] =
        &["NAME", "STATE", "SINCE", "QUEUED", "PROFILE", "FAILURES", "LOSSES", "NODE", "WHY"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.name.clone(),
            self.state.text().to_owned(),
            age(self.age),
            self.queued.to_string(),
            self.profile.clone(),
            self.failures.to_string(),
            self.losses.to_string(),
            self.node.clone().unwrap_or_else(|| "-".to_owned()),
            self.why.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    }
}

/// An open question. Moments are in milliseconds since 1970.
#[derive(Serialize)]
pub(crate) struct QuestionRow {
    id: String,
    name: String,
    prompt: String,
    kind: String,
    asked_at: u64,
    deadline: u64,
    parked: bool,
    body: Value,
    #[serde(skip)]
    asks: String,
    #[serde(skip)]
    left: Duration,
}

impl QuestionRow {
    pub(crate) fn of(question: &QuestionRecord, now: Timestamp) -> Self {
        Self {
            id: question.id.to_string(),
            name: question.name.to_string(),
            prompt: question.prompt.to_string(),
            kind: question.inquiry().map_or("unknown", |inquiry| inquiry.kind()).to_owned(),
            asked_at: question.asked_at.0,
            deadline: question.deadline.0,
            parked: question.parked,
            body: question.body.clone(),
            asks: asks(&question.body),
            left: question.deadline.since(now),
        }
    }
}

/// The tool of a permission, or the first question.
fn asks(body: &Value) -> String {
    let texts = ["/request/tool_name", "/questions/0/question", "/request/message", "/request/dialog_kind"];
    let found = texts.iter().find_map(|path| body.pointer(path).and_then(Value::as_str));
    found.unwrap_or("-").to_owned()
}

impl Row for QuestionRow {
    const COLUMNS: &'static [&'static str] = &["QUESTION", "NAME", "KIND", "LEFT", "ASKS"];

    fn cells(&self) -> Vec<String> {
        vec![self.id.clone(), self.name.clone(), self.kind.clone(), age(self.left), self.asks.clone()]
    }
}

/// A process that a lost owner has left.
#[derive(Serialize)]
pub(crate) struct ProcessRow {
    name: String,
    term: u64,
    node: String,
    host: String,
    process: Value,
}

impl ProcessRow {
    pub(crate) fn of(left: &ProcessRecord) -> Self {
        Self {
            name: left.name.to_string(),
            term: left.term.0,
            node: left.node.to_string(),
            host: left.host.clone(),
            process: left.process.clone(),
        }
    }
}

impl Row for ProcessRow {
    const COLUMNS: &'static [&'static str] = &["TERM", "HOST", "NODE", "PROCESS"];

    fn cells(&self) -> Vec<String> {
        vec![self.term.to_string(), self.host.clone(), self.node.clone(), self.process.to_string()]
    }
}

/// The usage of a tenant or a session in a day or an hour.
#[derive(Serialize)]
pub(crate) struct UsageRow {
    start: u64,
    tenant: String,
    turns: u64,
    unmetered: u64,
    cost_usd: f64,
    input: u64,
    output: u64,
    cache_read: u64,
    cache_creation: u64,
}

impl UsageRow {
    pub(crate) fn of(entry: &UsageEntry) -> Self {
        let Usage { turns, unmetered, input, output, cache_read, cache_creation, .. } = entry.usage;
        Self {
            start: entry.start.0,
            tenant: entry.tenant.to_string(),
            turns,
            unmetered,
            cost_usd: entry.usage.cost_usd(),
            input,
            output,
            cache_read,
            cache_creation,
        }
    }
}

impl Row for UsageRow {
    const COLUMNS: &'static [&'static str] = &[
        "START",
        "TENANT",
        "TURNS",
        "UNMETERED",
        "COST_USD",
        "INPUT",
        "OUTPUT",
        "CACHE_READ",
        "CACHE_CREATION",
    ];

    fn cells(&self) -> Vec<String> {
        let counts =
            [self.turns, self.unmetered, self.input, self.output, self.cache_read, self.cache_creation];
        let mut cells = vec![moment_of(self.start), self.tenant.clone()];
        cells.extend(counts.map(|count| count.to_string()));
        cells.insert(4, format!("{:.6}", self.cost_usd));
        cells
    }
}

/// An entry of the feed.
#[derive(Serialize)]
#[serde(transparent)]
pub(crate) struct FeedRow(FeedEntry);

impl FeedRow {
    pub(crate) fn of(entry: FeedEntry) -> Self {
        Self(entry)
    }
}

impl Row for FeedRow {
    const COLUMNS: &'static [&'static str] = &["AT", "NAME", "NUMBER", "EVENT", "PROMPT", "NOTE"];

    fn cells(&self) -> Vec<String> {
        let entry = &self.0;
        let (event, prompt, note) = match &entry.event {
            FeedEvent::Accepted { prompt } => ("accepted", Some(prompt), String::new()),
            FeedEvent::Begun { prompt } => ("begun", Some(prompt), String::new()),
            FeedEvent::BegunByCli { prompt } => ("begun_by_cli", Some(prompt), String::new()),
            FeedEvent::Parked { prompt, question } => ("parked", Some(prompt), question.to_string()),
            FeedEvent::Continues { prompt } => ("continues", Some(prompt), String::new()),
            FeedEvent::Held { prompt } => ("held", Some(prompt), String::new()),
            FeedEvent::Ended { prompt, outcome, .. } => ("ended", Some(prompt), outcome.clone()),
            FeedEvent::Asked { prompt, question } => ("asked", Some(prompt), question.to_string()),
            FeedEvent::Decided { prompt, question } => ("decided", Some(prompt), question.to_string()),
            FeedEvent::Quarantined { why, .. } => ("quarantined", None, why.clone()),
            FeedEvent::Unquarantined => ("unquarantined", None, String::new()),
            FeedEvent::Deleting => ("deleting", None, String::new()),
            FeedEvent::Deleted => ("deleted", None, String::new()),
            _ => ("unknown", None, String::new()),
        };
        vec![
            moment_of(entry.at.0),
            entry.name.to_string(),
            entry.number.to_string(),
            event.to_owned(),
            prompt.map_or_else(|| "-".to_owned(), ToString::to_string),
            note,
        ]
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
