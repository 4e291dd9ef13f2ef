//! What the CLI writes besides messages and tool calls, as JSON: no session answers here.

mod elicitation;
mod hooks;
mod inquiry;
mod permission;
mod servers;
