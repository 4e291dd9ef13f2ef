//! The CLI in memory.

mod memory;
