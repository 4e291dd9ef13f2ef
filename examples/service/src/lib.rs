//! A web service with an agent session for each user: copy it as the start of your own.
//!
//! - [`users`]: the sessions of the users, each started with a first prompt, stopped when idle, and resumed later
//! - [`routes`]: HTTP requests as prompts, turns as streams of events, errors as status codes
//! - `main.rs`: arguments, the start, and the end at SIGTERM

pub mod routes;
pub mod users;
