//! The whole control surface on the real `claude` CLI: what it can ask and be asked, subject by subject.

mod callbacks;
mod deferral;
mod hook_failures;
mod mcp;
mod messages;
mod options;
mod requests;
mod servers;
mod store;
mod usage;
