//! Prompts, as an application gives them to a session.

mod prompt;
