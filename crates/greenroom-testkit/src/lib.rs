//! Stand-ins for the CLI and for the model, and tools to break a session on purpose: to test tools and agents offline
//! and at no cost.
//!
//! - [`ScriptedCli`] plays a [`Script`] over an in-memory transport: no CLI, no process, no network, and it runs on
//!   tokio's paused clock. [`ScriptedCli::by_hand`] gives the CLI's end of the pipe to the test itself.
//! - [`ScriptedClis`] has a `ScriptedCli` for each session of a service.
//! - [`ScriptedModel`] plays the same script as a Messages API on loopback, to the real `claude` CLI.
//! - [`FaultPlan`] says what is to break and when, from a seed; [`Chaos`] plays it against a session of yours and looks
//!   whether every promise holds; [`LeakCheck`] says whether tasks were left behind.
//! - [`Delivered`] is what a session would tell its CLI when it starts it.
//! - [`Fault`] breaks a part of a running session on purpose.
//! - [`Recorder`] keeps what goes over the wire as a [`Transcript`].
//! - [`store_conformance`] says whether a session store of yours keeps its promises.
//! - [`WakeCheck`] says whether sessions of your profile keep the prompt cache when they wake.
//! - [`invariants`] are the promises of the library as checkers over a transcript.

mod base;
mod chaos;
mod cli;
pub mod invariants;
mod leak;
mod model;
#[cfg(feature = "sessions")]
mod store;
#[cfg(feature = "sessions")]
mod wake;
mod wire;

pub use chaos::plan::{FaultKind, FaultMix, FaultPlan, Step};
pub use chaos::{Chaos, Run};
pub use cli::ScriptedCli;
pub use cli::clis::ScriptedClis;
pub use cli::hand::{CliEnd, ScriptedListener};
pub use cli::model_turn::{Item, ModelError, ModelTurn};
pub use cli::script::Script;
pub use cli::usage::Usage;
pub use greenroom::testing::{CallFault, Delivered, Fault};
pub use leak::LeakCheck;
pub use model::{MAX_REQUEST_BYTES, ModelRequest, PrefixChange, ScriptedModel, ToolResultSeen};
#[cfg(feature = "sessions")]
pub use store::{StoreViolation, store_conformance};
#[cfg(feature = "sessions")]
pub use wake::{Wake, WakeCheck, WakePlace, WakeReport};
pub use wire::record::Recorder;
pub use wire::transcript::{Entry, Line, Transcript, Wire};

/// The program of the README is a doc test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
