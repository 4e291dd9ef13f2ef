//! One incarnation of the CLI: its process, the reader of its stdout, and how it starts and ends.

pub(crate) mod admit;
pub(crate) mod evidence;
pub(crate) mod feeder;
mod follow;
mod handshake;
pub(crate) mod initialize;
pub(crate) mod port;
pub(crate) mod reader;
mod run;
pub(crate) mod stderr;
