//! Reports of a session about itself.

mod plain;
