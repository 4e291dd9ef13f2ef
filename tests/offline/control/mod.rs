//! Permissions, hooks, elicitations and dialogs: as JSON, and in a session.

mod callbacks;
mod elicitation;
mod hook_failures;
mod hooks;
mod inquiries;
mod inquiry;
mod permission;
mod servers;
