//! Reports of a session about itself.

mod errors;
mod plain;
