//! Fleets of named agent sessions, for services.
//!
//! A service finds a session by its name, such as `customer-42`. A prompt for a name is kept before it is accepted, ends with
//! exactly one outcome, and is sent to a CLI once. A name has one owner at a time.
//!
//! The crate is under construction. There is so far:
//!
//! - [`backend`]: the authority that decides who owns a name and keeps what was accepted, in memory
//!   ([`MemoryBackend`](backend::MemoryBackend)) or in one file ([`LocalBackend`](backend::LocalBackend));
//! - `testkit` (feature `testkit`): a conformance suite for backends, and a backend with faults.
//!
//! The fleet itself, which starts sessions, puts them to sleep and wakes them, is not there yet.
//!
//! ```
//! use std::time::Duration;
//!
//! use greenroom_fleet::backend::{Backend, LocalBackend};
//! use greenroom_fleet::{Accept, Accepted, Name, PromptContent, PromptId, QueueBounds};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("fleet.redb");
//! let backend = LocalBackend::open(&path).await?;
//! let accept = Accept {
//!     prompt: PromptId::new(),
//!     name: Name::new("customer-42")?,
//!     profile: "support".into(),
//!     tenant: "acme".into(),
//!     conversation: uuid::Uuid::new_v4(),
//!     host: None,
//!     key: Some("msg-881".into()),
//!     content: PromptContent { prompt: "Hello".into(), continuation: None },
//!     continuations: 0,
//!     not_before: None,
//!     wait: Duration::from_secs(300),
//!     bounds: QueueBounds { name: 16, tenant: 256, fleet: 4096 },
//! };
//! // Durable from here on, and one prompt however often it is sent.
//! assert!(matches!(backend.accept(accept.clone()).await?, Accepted::New(_)));
//! let again = Accept { prompt: PromptId::new(), ..accept };
//! assert!(matches!(backend.accept(again).await?, Accepted::Duplicate(_)));
//! # Ok(())
//! # }
//! ```

#[allow(dead_code, unused_imports, reason = "the actor that carries out its orders is not there yet")]
mod admission;
pub mod backend;
mod clock;
mod error;
mod id;
mod record;
mod registry;
mod request;
#[cfg(feature = "testkit")]
pub mod testkit;

pub use clock::Clock;
pub use error::{BackendError, BackendErrorKind};
pub use id::{AttemptId, InvalidName, Name, NodeId, PromptId, QuestionId, Term, Timestamp};
pub use record::{
    Decision, InterruptedBy, NameRecord, NameState, NodeRecord, NodeState, ProcessRecord, PromptContent,
    PromptOutcome, PromptRecord, PromptState, QuestionRecord, TenantRecord, Unsent,
};
pub use request::{
    Accept, Accepted, ActivationFailed, AfterFailure, Answered, Append, Appended, Ask, Begin, Begun, Change,
    Claim, Claimed, Deletion, Finish, Finished, Join, Owned, Ownership, Page, Quarantined, QueueBounds,
    Refused, Renewed, Reserve, StoredMessage, Withdrawn,
};
