//! What a session reports about itself.

mod plain;
