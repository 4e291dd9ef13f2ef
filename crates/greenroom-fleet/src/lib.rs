//! Fleets of named agent sessions, for services.
//!
//! A service finds a session by its name, such as `customer-42`. A prompt for a name is kept before it is accepted, ends with
//! exactly one outcome, and is sent to a CLI once. A name has one owner at a time.
//!
//! ```
//! use greenroom::Session;
//! use greenroom_testkit::{ModelTurn, Script, ScriptedCli};
//! use greenroom_fleet::backend::LocalBackend;
//! use greenroom_fleet::{Fleet, FleetPrompt, Quota};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let data = folder.path();
//! // A stand-in for the real CLI, which needs `cli_path` in place of `transport`.
//! let cli = ScriptedCli::play(Script::new().turn(ModelTurn::new().text("It arrives on Monday.")));
//! let transport = cli.transport();
//! let fleet = Fleet::builder()
//!     .backend(LocalBackend::open(data.join("fleet.redb")).await?)
//!     .profile("support", move |_| Session::builder().transport(transport.clone()))
//!     .tenant("acme", Quota::default().weight(2))
//!     .start()
//!     .await?;
//!
//! let customer = fleet.tenant("acme")?.session("customer-42")?.profile("support");
//! let prompt = || FleetPrompt::new("Where is my lamp?").key("msg-881");
//! let mut turn = customer.prompt(prompt()).await?;
//! assert_eq!(turn.outcome().await?.text(), Some("It arrives on Monday."));
//! // One prompt, however often it is sent.
//! assert!(customer.prompt(prompt()).await?.is_duplicate());
//! fleet.drain(std::time::Duration::from_secs(20)).await;
//! # Ok(())
//! # }
//! ```
//!
//! | to | see |
//! |---|---|
//! | define a fleet: profiles, tenants, limits | [`FleetBuilder`], [`ActivationContext`], [`Quota`], [`FleetLimits`] |
//! | find a session of a tenant and send it a prompt | [`Fleet::tenant`], [`FleetTenant::session`], [`FleetSession`], [`FleetPrompt`] |
//! | read a turn, now or after a restart | [`FleetTurn`], [`FleetTenant::turn`], [`PromptOutcome`] |
//! | show a turn on a page, from any node | [`FleetTurn::updates`], [`Update`] |
//! | list sessions and prompts, find them by labels | [`FleetTenant::names`], [`FleetSession::prompts`], [`Labels`] |
//! | count money and tokens | [`FleetTenant::usage`], [`FleetSession::usage`], [`PromptRecord::usage`] |
//! | miss nothing of what happens | [`FleetTenant::feed`], [`FleetBuilder::feed`] |
//! | let people decide | [`FleetTenant::questions`], [`FleetTenant::answer`] |
//! | decide what a person may do | [`Authoriser`], [`FleetTenant::on_behalf_of`] |
//! | watch the fleet, over all tenants | [`Fleet::operator`], [`Operator::events`], [`Operator::snapshot`] |
//! | end the fleet | [`Fleet::drain`] |
//! | look after a fleet from another program | [`admin`] |
//! | run each session's CLI as a user of the system of its own | [`FleetBuilder::users`], [`UserPool`] |
//! | keep everything in a file, or in a database of your own | [`backend`] |
//! | let sessions move between hosts with their memory | [`FleetBuilder::transcripts`], on by default where services share a backend |
//!
//! The guide `docs/fleet.md` tells the whole story, with the limits and their defaults. `docs/fleet-nodes.md` is about
//! several nodes on a backend that processes share; [`LocalBackend`](backend::LocalBackend) and
//! [`MemoryBackend`](backend::MemoryBackend) serve one process.
//!
//! # Features
//!
//! - `axum`: extractors, errors and server-sent events for a service with axum (`greenroom_fleet::web`).
//! - `postgres`: the backend for several machines (`backend::PostgresBackend`); `postgres-tls`: the same with TLS.
//! - `socket`: the backend of a service for other programs of its host, over a Unix socket ([`Operator`]`::serve`,
//!   `backend::SocketBackend`).
//! - `testkit`: checks for backends of your own, faults for tests of your service, and with `postgres` a scratch server
//!   (`greenroom_fleet::testkit`).
//! - `cluster`, `async-trait`: to be enabled when any crate of the program enables `ractor`'s feature of that name.

mod access;
mod actor;
pub mod admin;
mod admission;
pub mod backend;
mod clock;
mod error;
mod event;
mod face;
mod fence;
mod files;
mod health;
mod hub;
mod id;
mod limits;
mod lock;
mod opening;
mod outcome;
mod pages;
mod process;
mod profile;
mod query;
mod question;
mod record;
mod registry;
mod request;
#[cfg(test)]
#[path = "../../../tests/support/root.rs"]
mod root;
#[cfg(test)]
mod stage;
#[cfg(feature = "testkit")]
pub mod testkit;
mod transcripts;
mod update;
mod users;
#[cfg(test)]
#[path = "../../../tests/support/wait.rs"]
mod wait;
#[cfg(feature = "axum")]
pub mod web;

pub use access::{Access, Action, Authoriser, Denied};
pub use admission::Tally;
pub use clock::Clock;
pub use error::{BackendError, BackendErrorKind, FilesError, FilesErrorKind, FleetError, PromptError};
pub use event::{FleetEnd, FleetEvent, FleetEvents, PassivatedBy};
pub use face::builder::FleetBuilder;
pub use face::feed::Feed;
pub use face::fleet::Fleet;
pub use face::metrics::MetricsQuery;
pub use face::operator::Operator;
pub use face::prompt::FleetPrompt;
pub use face::session::FleetSession;
pub use face::snapshot::{FleetSnapshot, NameSnapshot, SnapshotQuery};
pub use face::tenant::FleetTenant;
pub use face::turn::FleetTurn;
pub use face::turn::item::TurnItem;
pub use face::turn::updates::TurnUpdates;
pub use health::{Degradation, Health};
pub use id::{
    AttemptId, CommandId, InvalidName, Name, NodeId, PromptId, QuestionId, Tenant, Term, Timestamp,
};
pub use limits::{Budget, FleetLimits, Quota, Rate};
pub use outcome::erased::{Erased, LeftOn};
pub use profile::{ActivationContext, Placement, TranscriptsIn};
pub use query::feed::{FeedCursor, FeedEntry, FeedError, FeedEvent, FeedPage, FeedRetention};
pub use query::lists::{
    InvalidCursor, NameFilter, NamePage, NameQuery, PromptCursor, PromptEntry, PromptFilter, PromptPage,
    PromptQuery,
};
pub use question::{AnswerError, QuestionAnswer, QuestionQuery};
pub use record::label::Labels;
pub use record::usage::{Usage, UsageEntry, UsageQuery, Wakes};
pub use record::{
    Cause, CommandKind, CommandRecord, CommandResult, CommandState, Credential, Decision, Hold,
    InterruptedBy, InvalidCredential, NameRecord, NameState, NodeRecord, NodeState, ProcessRecord,
    PromptContent, PromptHold, PromptOrigin, PromptOutcome, PromptRecord, PromptState, Quarantine,
    QuarantineKind, QuestionRecord, TenantRecord, Trying, Unsent,
};
pub use request::{
    Accept, Accepted, ActivationFailed, Answered, Append, AppendEntries, Ask, Begin, Change, Claim, Claimed,
    CommandPut, Counted, Departure, Erasure, FilesLeft, Finish, ForgottenFiles, HostMove, Join, Marked,
    NodeMessage, Owned, Ownership, Page, Park, Pause, QuestionsOf, QueueBounds, Refused, Reject, StoredText,
    StoredTranscript, TranscriptsOf, UsedCredential, WaitingCursor, WaitingNames, WaitingPage, Withdrawn,
};
pub use transcripts::Transcripts;
pub use update::{InvalidUpdateId, TurnUsage, Update, UpdateId};
pub use users::UserPool;

/// The programs of the README and of the guide are doc tests.
#[cfg(all(doctest, feature = "testkit"))]
mod guides {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/fleet.md")]
    struct FleetGuide;
    #[doc = include_str!("../../../docs/fleet-nodes.md")]
    struct NodesGuide;
    #[doc = include_str!("../../../docs/fleet-sharding.md")]
    struct ShardingGuide;
    #[cfg(feature = "axum")]
    #[doc = include_str!("../../../docs/service.md")]
    struct ServiceGuide;
    #[cfg(feature = "postgres")]
    #[doc = include_str!("../../../docs/fleet-postgres.md")]
    struct PostgresGuide;
    #[cfg(feature = "socket")]
    #[doc = include_str!("../../../docs/command.md")]
    struct CommandGuide;
}
