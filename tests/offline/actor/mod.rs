//! Sessions whose CLI is played: calls, turns, requests, crashes and restarts.

mod answers;
mod backpressure;
mod bursts;
mod cancellation;
mod cli_turns;
mod drops;
mod failures;
mod isolation;
mod lifecycle;
mod outbound;
mod panics;
mod recovery;
mod requests;
mod requests_limits;
mod results;
mod server_states;
mod servers;
mod settings;
mod steering;
mod turn_cancel;
