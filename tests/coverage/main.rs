//! Everything that the SDKs can do has a row in `tests/coverage/table.tsv`, and everything that a row promises is there.
//!
//! `names.tsv` holds the names of both SDKs, as `extract.py` finds them, those of the fields of their types among them;
//! `.ci/run` extracts them again from the SDKs that it installs, so that an upgrade is noticed. A field needs a row (in
//! `fields.tsv`) only if it is called otherwise here or is not here. `differs.tsv` says what
//! behaves otherwise than in an SDK. A row says what the name is on the wire and what it is here, or why it
//! is not here. What is here is proven kind by kind: an option reaches the CLI, a request is sent, one of the CLI is
//! answered, a message is read, a hook is typed, and every path is known to the compiler (`paths.rs`).
//!
//! `table.md` is made of the table, for people. `GREENROOM_BLESS=1 cargo test --test coverage` makes it anew.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in the helpers of tests, too")]

mod asked;
#[path = "../support/bless.rs"]
mod bless;
#[path = "../support/common.rs"]
mod common;
mod declared;
mod fields;
mod hooks;
mod mcp;
mod messages;
mod names;
mod options;
mod page;
mod paths;
mod prompts;
mod requests;
mod table;
#[path = "../support/timeline.rs"]
mod timeline;
#[rustfmt::skip]
mod uses;
#[path = "../support/wait.rs"]
mod wait;
