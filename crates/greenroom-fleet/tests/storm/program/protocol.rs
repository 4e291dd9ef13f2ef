//! What the driver, the service and the CLIs of the storm say to each other, one JSON value a line.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

use greenroom_fleet::{Name, NodeId, PromptId, PromptOutcome};
use serde::{Deserialize, Serialize};

/// The variable that names the scratch folder for the service and its CLIs. Every process of the storm has it, so that
/// none is overlooked at the end.
pub(crate) const SCRATCH: &str = "GREENROOM_STORM_SCRATCH";
/// The variables of a CLI: the session's name, the life of the service that started it, and the seed of its character.
pub(crate) const NAME: &str = "GREENROOM_STORM_NAME";
pub(crate) const LIFE: &str = "GREENROOM_STORM_LIFE";
pub(crate) const SEED: &str = "GREENROOM_STORM_SEED";

/// The time for which each CLI goes on after SIGTERM, in milliseconds, out of reach of its guardian. Not set: CLIs
/// differ.
pub(crate) const LINGER: &str = "GREENROOM_STORM_LINGER";
/// The time that each CLI takes for a turn, in milliseconds. Not set: CLIs differ.
pub(crate) const PACE: &str = "GREENROOM_STORM_PACE";
/// A [`RealCli`] as JSON: the service starts it instead of this program.
pub(crate) const REAL: &str = "GREENROOM_STORM_REAL";

/// A [`NodeOf`] as JSON: the service is one of several nodes, and not alone on a file.
pub(crate) const NODE: &str = "GREENROOM_STORM_NODE";
/// The folder with the slots of the service's CLIs, below the scratch folder.
pub(crate) const SLOTS: &str = "GREENROOM_STORM_SLOTS";

/// A node of a fleet on PostgreSQL.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NodeOf {
    pub(crate) database: String,
    pub(crate) schema: String,
    /// The node's host. Each node has one of its own, though all share this machine.
    pub(crate) host: String,
    pub(crate) lease: std::time::Duration,
}

/// The real CLI, and everything that it sees of its environment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RealCli {
    pub(crate) program: std::path::PathBuf,
    pub(crate) env: std::collections::BTreeMap<String, String>,
}

/// The cap of live CLIs.
pub(crate) const LIVE: usize = 8;

/// A request of the driver to the service.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) id: u64,
    pub(crate) wish: Wish,
}

/// What the driver asks for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Wish {
    Prompt {
        name: Name,
        key: String,
        text: String,
        /// How often the prompt may go on with its continuation.
        continuations: u32,
    },
    Delete(Name),
    Passivate(Name),
    Interrupt(Name),
    /// The states of these prompts.
    Look(Vec<PromptId>),
    /// The outcome of a prompt, as soon as it has one.
    Outcome(PromptId),
    /// Ends the service.
    Drain,
}

/// A line of the service.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Line {
    /// The fleet is open.
    Ready,
    /// The kind of an event of the fleet.
    Event(String),
    /// The node has joined.
    Joined(NodeId),
    /// The node has declared another one dead.
    Lost(NodeId),
    Reply {
        id: u64,
        reply: Reply,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Accepted {
        prompt: PromptId,
        is_duplicate: bool,
    },
    /// Nothing of the prompt is kept.
    Refused(String),
    Seen(Vec<Seen>),
    Ended(PromptOutcome),
    Done,
    Failed(String),
}

/// The state of a prompt.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Seen {
    Missing,
    /// It waits or runs.
    Open,
    Ended(PromptOutcome),
}

/// A line of the journal, to which all CLIs append.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Entry {
    /// A CLI has started, and holds a slot.
    Started { pid: u32, started: u64, name: Name, life: u64, slot: usize },
    /// A CLI has started another process, which holds its slot as well.
    Child { pid: u32, started: u64 },
    /// A CLI was given a prompt.
    Prompted { pid: u32, uuid: String, text: String },
    /// More CLIs live than may.
    OverTheCap { pid: u32, name: Name, life: u64 },
    /// Another CLI of the name lives.
    TwoOfAName { pid: u32, name: Name, life: u64 },
    /// Something else that must not happen.
    Fault(String),
}

pub(crate) fn journal(scratch: &Path) -> std::path::PathBuf {
    scratch.join("journal")
}

/// Appends a line in one write, so that the lines of several processes do not mix.
pub(crate) fn note(scratch: &Path, entry: &Entry) -> io::Result<()> {
    let line = format!("{}\n", serde_json::to_string(entry)?);
    OpenOptions::new().append(true).create(true).open(journal(scratch))?.write_all(line.as_bytes())
}

/// The start of a process in clock ticks since the boot; `None` if there is no such process, or only its zombie.
pub(crate) fn started(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // `PID (NAME) STATE …`: fields 3 and 22 of proc_pid_stat(5).
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    let ended = matches!(fields.next()?, "Z" | "X" | "x");
    fields.nth(18)?.parse().ok().filter(|_| !ended)
}

/// Random numbers that a seed decides (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.throw() % bound
    }

    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}
