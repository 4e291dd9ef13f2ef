//! Stand-ins for the CLI and for the model, and tools to break a session on purpose: to test tools and agents offline
//! and at no cost.
//!
//! - [`ScriptedCli`] plays a [`Script`] over an in-memory transport: no CLI, no process, no network, and it runs on
//!   tokio's paused clock. [`ScriptedCli::by_hand`] gives the CLI's end of the pipe to the test itself.
//! - [`FakeCli`] plays the same script as a real process, which misbehaves as a test asks for.
//! - [`ScriptedModel`] plays the same script as a Messages API on loopback, to the real `claude` CLI.
//! - [`FaultPlan`] says what is to break and when, from a seed; [`Chaos`] plays it against a session of yours and looks
//!   whether every promise holds; [`LeakCheck`] says what was left behind.
//! - [`Delivered`] is what a session would tell its CLI when it starts it.
//! - [`Fault`] breaks a part of a running session on purpose.
//! - [`Probe`] waits for events and states of a session, and says what came instead.
//! - [`Recorder`] keeps what goes over the wire as a [`Transcript`], with what is secret [redacted](Redact);
//!   [`Replay`] plays the CLI's side of it back.
//! - [`store_conformance`] says whether a session store of yours keeps its promises.
//! - [`invariants`] are the promises of the library as checkers over a transcript.

mod chaos;
mod cli;
mod delivered;
mod fake_cli;
mod fault;
mod hand;
pub mod invariants;
mod leak;
mod model;
mod plan;
mod play;
mod probe;
mod record;
mod redact;
mod replay;
mod script;
mod store;
mod transcript;

pub use chaos::{Chaos, Progress, Run};
pub use cli::ScriptedCli;
pub use delivered::Delivered;
pub use fake_cli::{FakeCli, FakeCliTransport, main_if_asked};
pub use fault::Fault;
pub use hand::{CliEnd, ScriptedListener};
pub use leak::{Leak, LeakCheck};
pub use model::{MAX_REQUEST_BYTES, ModelRequest, ScriptedModel, ToolResultSeen};
pub use plan::{FaultKind, FaultMix, FaultPlan, Step};
pub use probe::Probe;
pub use record::Recorder;
pub use redact::Redact;
pub use replay::Replay;
pub use script::{Item, ModelError, ModelTurn, Script};
pub use store::{StoreViolation, store_conformance};
pub use transcript::{Entry, Line, Side, Transcript, Wire};
