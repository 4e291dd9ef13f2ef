//! Prompts, as an application gives them to a session.

mod deferral;
mod prompt;
