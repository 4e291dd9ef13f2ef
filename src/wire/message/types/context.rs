//! Usage of the session, and kinds of tokens in the context window.

use std::collections::BTreeMap;

use super::usage::ModelUsage;
use crate::wire::objects::objects;
use crate::wire::words::words;

objects! {
    /// Usage of the session since its CLI was started.
    part SessionUsage {
        /// An estimate of the CLI, in US dollars.
        total_cost_usd: f64,
        /// Time spent waiting for the API.
        total_api_duration_ms: u64,
        total_duration_ms: u64,
        /// Lines of code.
        total_lines_added: u64,
        /// Lines of code.
        total_lines_removed: u64,
        model_usage: BTreeMap<String, ModelUsage>,
    }
}

words! {
    /// Use of a category of tokens in the context window.
    pub enum ContextKind or "" {
        Used = "used",
        Free = "free",
        /// Kept free for a compaction.
        Buffer = "buffer",
        /// Outside of the window: tools that the model loads when it searches for them.
        Deferred = "deferred",
    }
}
