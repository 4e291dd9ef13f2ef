//! Read messages of the model and of the CLI: text, tool calls, results, cost.
//!
//! Each [`Message`] keeps its exact JSON ([`Message::raw`]), and serialising a message writes that JSON again.
//!
//! Typed views are lenient. A field of an unexpected shape counts as missing; a field that a type does not declare is
//! in its `extra`; a word that an enum does not know is in its `Other`, as the CLI spells it. Fields are named as on
//! the wire. Times are in milliseconds unless a field says otherwise.
//!
//! ```
//! use greenroom::message::{TaskStatus, TaskUpdated};
//!
//! let json = r#"{"task_id": "t1", "run_id": 7, "mood": "good", "patch": {"status": "asleep"}}"#;
//! let task: TaskUpdated = serde_json::from_str(json)?;
//! assert_eq!((task.task_id.as_str(), &task.run_id), ("t1", &None));
//! assert_eq!(task.extra["mood"], "good");
//! assert_eq!(task.patch.status, Some(TaskStatus::Other("asleep".into())));
//! # Ok::<(), serde_json::Error>(())
//! ```
//!
//! | to | use |
//! |---|---|
//! | read text and tool calls | [`Message::text`], [`Message::content`], [`ContentBlock`] |
//! | show an answer while the model writes | [`Turn::deltas`](crate::Turn::deltas), [`Assembler`] |
//! | know the cost | [`ResultMessage`], [`UsageTracker`] |
//! | watch the session | [`SystemMessage::detail`] |
//! | list the known frames | [`Message::TYPES`], [`SystemMessage::SUBTYPES`] |

// - `types`: a file for each type of message, and for parts of several messages
// - `views`: views over many messages
// - `definition`: the types of messages, and how a line is read
// - `typed`, `view`, `read`, `parse`, `abridge`: what all messages have, and parts of reading them

pub(crate) mod abridge;
pub(crate) mod definition;
mod parse;
pub(crate) mod read;
pub(crate) mod typed;
mod types;
mod view;
mod views;

pub(crate) use definition::Message;
pub use typed::Typed;
pub use types::aside::*;
pub use types::assistant::{ApiMessage, AssistantMessage};
pub use types::content::{ContentBlock, ToolResultContent, ToolResultRef, ToolUseRef};
pub use types::origin::Origin;
pub use types::other::OtherMessage;
pub use types::reason::*;
pub use types::result::{DeferredToolUse, InvalidConfigFile, PermissionDenial, ResultMessage};
pub use types::stream::{ApiEvent, BlockDelta, StreamEvent};
pub use types::system::*;
pub use types::usage::*;
pub use types::user::UserMessage;
pub use views::assemble::{Assembler, Delta, DeltaKind};
pub use views::tracker::tokens::TokenUsage;
pub(crate) use views::tracker::{AGENT_METADATA, SaidUsage, of_mirror_frame};
pub use views::tracker::{AgentUsage, TurnUsage, UsageTracker};
