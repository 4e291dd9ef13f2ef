//! Definitions of tool servers, and what they answer.

mod define;
mod direct_calls;
mod errors;
mod identity;
mod mcp;
mod tools;
