//! The measured fast path of a tool call. What it reads and writes is compared in tests with the layers
//! ([`envelope`](super::envelope), [`rpc`](super::rpc), [`outgoing`](super::outgoing), [`line`](super::line)), which
//! define it.
//!
//! - [`call`]: reads a tool call in one pass
//! - [`answer`]: writes the answer of a tool call as one line
//! - [`request_ids`]: the ids of a request in one allocation
//! - [`scan`]: finds the bytes that JSON escapes

pub(crate) mod answer;
pub(crate) mod call;
pub(crate) mod request_ids;
pub(super) mod scan;
