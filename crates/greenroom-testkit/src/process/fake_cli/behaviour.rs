//! Misbehaviour of a fake CLI, as plain data.

use greenroom::transport::Exit;
use serde::{Deserialize, Serialize};

/// All that one process does besides playing its script.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Behaviour {
    pub(super) stderr: Vec<String>,
    pub(super) flood_stderr: usize,
    pub(super) start: Option<Start>,
    pub(super) stop_reading: bool,
    pub(super) ignore_sigterm: bool,
    pub(super) fork: bool,
    pub(super) exit_code: i32,
    pub(super) ask_twice: bool,
    /// In the order in which they were asked for.
    pub(super) deeds: Vec<(At, Deed)>,
}

/// A start that does not become a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Start {
    Exit(i32),
    Garbage,
    HangInitialize,
}

/// When something is done: right after the line was written that shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum At {
    Prompt(u64),
    EachPrompt,
    Call(u64),
}

impl At {
    pub(super) fn is(self, moment: At) -> bool {
        self == moment || matches!((self, moment), (At::EachPrompt, At::Prompt(_)))
    }
}

/// The misbehaviour.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Deed {
    Bytes(Vec<u8>),
    LongLine(usize),
    Flood { line: String, times: u64 },
    CloseStdout,
    End(Exit),
}
