//! One incarnation of the CLI: its process, the reader of its stdout, and how it starts and ends.

mod dispatch;
pub(crate) mod evidence;
pub(crate) mod feeder;
mod handshake;
pub(crate) mod initialize;
pub(crate) mod port;
pub(crate) mod reader;
pub(crate) mod run;
pub(crate) mod stderr;
