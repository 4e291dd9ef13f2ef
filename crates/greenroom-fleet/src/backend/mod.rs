//! Backends: where a fleet keeps its names, prompts and outcomes.
//!
//! | backend | for | keeps its facts |
//! |---|---|---|
//! | [`MemoryBackend`] | tests | until it is dropped |
//! | [`LocalBackend`] | services on one machine | in one file, durable over a power cut |
//! | `PostgresBackend` (feature `postgres`) | services on several machines | in a database of PostgreSQL |
//!
//! Write a [`Backend`] of your own for another database, and check it with the conformance suite of
//! [`testkit`](crate::testkit) (feature `testkit`).

pub(crate) mod local;
mod memory;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;

use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::BoxFuture;
use greenroom::store::SessionKey;
use serde_json::Value;
use tokio::sync::broadcast;

use crate::error::BackendError;
use crate::id::{AttemptId, CommandId, Name, NodeId, PromptId, QuestionId, Term, Timestamp};
use crate::record::{
    CommandRecord, CommandResult, NameRecord, NodeRecord, ProcessRecord, PromptContent, PromptOutcome,
    PromptRecord, QuestionRecord, TenantRecord,
};
use crate::registry::{Lane, Store, Told, run};
use crate::request::{
    Accept, Accepted, ActivationFailed, AfterFailure, Answered, Append, AppendEntries, Appended, Ask, Begin,
    Begun, Change, Claim, Claimed, CommandPut, Deletion, Finish, Finished, Join, Owned, Ownership, Page,
    PutCommand, Quarantined, Renewed, StoredMessage, StoredTranscript, TakeCommand, TranscriptsOf,
    Transition, WaitingNames, WaitingPage, Withdrawn,
};

pub use local::LocalBackend;
pub use memory::MemoryBackend;
#[cfg(feature = "postgres")]
pub use postgres::{PostgresBackend, PostgresOptions};

/// The number of changes or transitions that a slow reader of [`Backend::changes`] or [`Backend::transitions`] may be behind.
const TOLD: usize = 4096;

/// The channels on which a backend tells what it has made durable.
#[derive(Clone, Debug)]
struct Channels {
    changes: broadcast::Sender<Change>,
    transitions: broadcast::Sender<Transition>,
}

impl Channels {
    fn new() -> Self {
        Self { changes: broadcast::Sender::new(TOLD), transitions: broadcast::Sender::new(TOLD) }
    }

    fn tell(&self, told: Told) {
        for transition in told.transitions {
            // An error: nobody listens.
            self.transitions.send(transition).ok();
        }
        for change in told.changes {
            // An error: nobody listens. A change is a hint.
            self.changes.send(change).ok();
        }
    }
}

/// The future of a request to a backend.
pub type Reply<'a, T> = BoxFuture<'a, Result<T, BackendError>>;

/// Defines [`Backend`], and the macros `by_rows` and `by_passing_on`, which implement it.
macro_rules! backend {
    ($($(#[$doc:meta])* fn $method:ident($($arg:ident: $type:ty),* $(,)?) -> $answer:ty;)*) => {
        /// The authority of a fleet: it decides who owns a name, and keeps what was accepted.
        ///
        /// # What a backend promises
        ///
        /// - **Atomic**: a request happens as a whole or not at all, and requests happen one after another.
        /// - **Durable**: a change is kept over a power cut before its answer is given.
        /// - **Repeatable**: a request with an id that the caller made (a prompt, an attempt, a question to ask, a command, a term) changes
        ///   nothing more when it is repeated, and gives the same answer. The id of another prompt or question, or of a node with
        ///   another host or a dead one, is refused as [`Invalid`](crate::BackendErrorKind::Invalid). So after
        ///   [`Unavailable`](crate::BackendErrorKind::Unavailable) the caller repeats the request as it was.
        ///   `unquarantine`, `renew`, `forget` and the requests that expire things have no such id: a repeated one may find
        ///   that the first one has done the work.
        /// - **Conditional on the term**: a request of an owner whose term is not the name's last one, or whose node is dead,
        ///   writes nothing and answers [`Owned::Fenced`].
        ///
        /// Dropping the future of a request may leave the request carried out: repeat it to find out. A backend measures time on
        /// its own clock, [`Backend::now`]; moments in requests and records are on that clock.
        ///
        /// # A clock that is set
        ///
        /// The order of a session's prompts, terms and ownership never depend on the clock; the order of prompts of different
        /// sessions does, and within a millisecond it is that of their names. If the clock is set back, prompts without a moment of their own
        /// begin as before; reminders, the ends of waiting prompts and the deadlines of questions come when the clock shows
        /// their moment again, so they are late by the step. If it is set forward, prompts and questions expire early.
        pub trait Backend: Send + Sync + 'static {
            /// The moment now on the backend's clock.
            fn now(&self) -> Timestamp;

            /// Changes as they become durable. A reader that is too slow gets
            /// [`Lagged`](broadcast::error::RecvError::Lagged) and reads the records again.
            fn changes(&self) -> broadcast::Receiver<Change>;

            /// Transitions that requests to this value of the backend and to its clones have made, from now on: each one once, in
            /// the order in which they became durable, before the answer of its request. Transitions that other processes have made on
            /// the same database are not told. The fleet tells them to the application as events.
            fn transitions(&self) -> broadcast::Receiver<Transition>;

            /// The folder for the files of the sessions, if the builder of the fleet names none. Default: none, so the builder has
            /// to name one.
            fn default_folder(&self) -> Option<PathBuf> {
                None
            }

            /// True while nobody outside of this process can use what the backend keeps, as with a file that is locked.
            /// A node then keeps its names although it cannot renew its lease, for instance because the disk is full.
            /// Default: `false`.
            fn is_exclusive(&self) -> bool {
                false
            }

            /// True if other processes can use what the backend keeps. A fleet then has a watchdog, which ends its CLIs when its lease is
            /// over, also while its process is stopped. Default: the opposite of [`is_exclusive`](Self::is_exclusive).
            fn is_shared(&self) -> bool {
                !self.is_exclusive()
            }

            $($(#[$doc])* fn $method(&self, $($arg: $type),*) -> Reply<'_, $answer>;)*
        }

        /// Implements [`Backend`] for a [`Store`](crate::registry::Store) of rows.
        macro_rules! by_rows {
            ($backend:ty) => {
                impl Backend for $backend {
                    fn now(&self) -> Timestamp {
                        Store::now(self)
                    }

                    fn changes(&self) -> broadcast::Receiver<Change> {
                        self.channels().changes.subscribe()
                    }

                    fn transitions(&self) -> broadcast::Receiver<Transition> {
                        self.channels().transitions.subscribe()
                    }

                    fn default_folder(&self) -> Option<PathBuf> {
                        self.folder()
                    }

                    fn is_exclusive(&self) -> bool {
                        self.exclusive()
                    }

                    fn is_shared(&self) -> bool {
                        self.shared()
                    }

                    $(fn $method(&self, $($arg: $type),*) -> Reply<'_, $answer> {
                        let lane = Lane::of(stringify!($method));
                        Box::pin(run(self, lane, move |step| step.$method($($arg.clone()),*)))
                    })*
                }
            };
        }

        /// The names of the requests.
        #[cfg(feature = "testkit")]
        pub(crate) const METHODS: &[&str] = &[$(stringify!($method)),*];

        /// The requests of [`Backend`] for a type with `pass_on`, which gets the request's name and a function that makes the
        /// request to another backend.
        #[cfg(feature = "testkit")]
        macro_rules! by_passing_on {
            () => {
                $(fn $method(&self, $($arg: $type),*) -> Reply<'_, $answer> {
                    Box::pin(self.pass_on(stringify!($method), move |backend| backend.$method($($arg),*)))
                })*
            };
        }
    };
}

backend! {
    /// Adds a node, which can claim names from now on. The id of a dead node is refused as
    /// [`Invalid`](crate::BackendErrorKind::Invalid), as long as the node owns names.
    fn join(join: Join) -> NodeRecord;
    /// Renews the lease of a node. `draining`: the node takes no further names.
    fn renew(node: NodeId, lease: Duration, draining: bool) -> Renewed;
    /// Asks a node to drain. The mark is in the node's record, and the node finds it with its next renewal. `false`: the node is dead
    /// or not known.
    fn ask_to_drain(node: NodeId) -> bool;
    /// Ends a node that has ended all its sessions. Names that it still owns can be claimed.
    fn leave(node: NodeId) -> ();
    /// Says that a node is dead, because its counter stood still at `renewals` for a whole lease. `false`: the node has
    /// renewed its lease since, or the lease is not over on the backend's clock. A clock that was set back behind the last renewal
    /// is not asked.
    fn declare_dead(node: NodeId, renewals: u64) -> bool;
    /// A page of nodes that are alive, and of dead ones that still own names, in the order of their ids: up to `limit` nodes
    /// after `after`, at most [`Page::MOST`]. The last page is an empty one.
    fn nodes(after: Option<NodeId>, limit: usize) -> Vec<NodeRecord>;
    /// A page of names that a node owns, with the terms and the claims that made it the owner, in the order of the names' bytes.
    fn owned_names(node: NodeId, page: Page) -> Vec<(Name, Term, AttemptId)>;

    /// Accepts a prompt, or finds the prompt that has its key.
    fn accept(accept: Accept) -> Accepted;
    /// Takes back a prompt that waits. Its outcome is [`Unsent::Withdrawn`](crate::Unsent::Withdrawn), or
    /// [`Interrupted`](PromptOutcome::Interrupted) if a lost owner had begun with it.
    fn withdraw(prompt: PromptId) -> Withdrawn;
    /// [`withdraw`](Backend::withdraw) for an operator: a prompt that no CLI has begun with ends as
    /// [`Unsent::Dropped`](crate::Unsent::Dropped) with the reason.
    fn drop_prompt(prompt: PromptId, why: String) -> Withdrawn;
    /// Makes a node the owner of a name. The turn that a lost owner had begun goes on with its continuation, or ends.
    fn claim(claim: Claim) -> Claimed;
    /// Writes down that a prompt begins. Nothing of the prompt is sent before the answer [`Begun::Send`].
    fn begin(begin: Begin) -> Owned<Begun>;
    /// Keeps messages of the running turn.
    fn append(append: Append) -> Owned<Appended>;
    /// Gives the running turn its outcome.
    fn finish(finish: Finish) -> Owned<Finished>;
    /// Gives a name back. `true`: a prompt waits.
    fn release(owner: Ownership) -> Owned<bool>;
    /// Gives a name back whose session could not be started. Too many failures quarantine the name.
    fn activation_failed(failed: ActivationFailed) -> Owned<AfterFailure>;

    /// Keeps the identity of the process group that runs an owner's session. `None`: no process runs any more.
    ///
    /// A release removes it, and so does `None`. If the owner is lost, the identity stays: later claims and owners of the name
    /// leave it alone, until `process_ended` is called for it.
    fn record_process(owner: Ownership, process: Option<Value>) -> Owned<()>;
    /// Processes that lost owners have left behind. A fleet that starts waits until they have ended before it claims a name,
    /// because two CLIs would act on one conversation otherwise, and tells the backend by `process_ended`.
    fn left_processes(limit: usize) -> Vec<ProcessRecord>;
    /// Processes that lost owners of a name have left behind, in the order of their terms. A record that cannot be read fails the
    /// request as [`Damaged`](crate::BackendErrorKind::Damaged): its process may run.
    fn left_processes_of(name: Name) -> Vec<ProcessRecord>;
    /// Removes the identity of a process that has ended, also one that cannot be read. `false`: its owner is alive and no lost
    /// one, and nothing is removed.
    fn process_ended(name: Name, term: Term) -> bool;
    /// Takes up to `limit` names from dead nodes. A turn that runs there goes on with its continuation, or ends as interrupted.
    /// The name is free then, or quarantined if it has lost `losses` owners in a row. Answers with the names: fewer than
    /// `limit` if no dead node owns any more. A claim does the same for its one name.
    fn recover(limit: usize, losses: u32) -> Vec<Name>;

    /// Quarantines a name: its prompts wait until `unquarantine`, and new ones are refused.
    fn quarantine(name: Name, why: String) -> Quarantined;
    /// Lets a quarantined name be activated again. `false`: the name is not quarantined.
    fn unquarantine(name: Name) -> bool;
    /// Marks a name as being deleted, and ends its prompts, the first ones of a long queue.
    fn delete(name: Name) -> Deletion;
    /// Removes a name that is marked as being deleted. `false`: prompts or keys are left, so call it again. A call does a bounded
    /// amount of work.
    fn deleted(name: Name) -> bool;
    /// Names that are marked as being deleted.
    fn deleting(limit: usize) -> Vec<Name>;

    /// Keeps a question. `Done(None)`: its turn does not run. A turn that has 256 open questions gets no further one:
    /// [`Invalid`](crate::BackendErrorKind::Invalid).
    fn ask(ask: Ask) -> Owned<Option<QuestionRecord>>;
    /// Answers a question. The first answer before the deadline decides. An answer that is repeated with its attempt learns whether
    /// it decided, until the prompt is forgotten.
    fn answer(question: QuestionId, attempt: AttemptId, answer: Value) -> Answered;
    /// A question: an open one until its turn ends, a decided one until its prompt is forgotten.
    fn question(question: QuestionId) -> Option<QuestionRecord>;
    /// Open questions, the nearest deadline first.
    fn open_questions(limit: usize) -> Vec<QuestionRecord>;
    /// Decides open questions whose deadline has passed.
    fn expire_questions(limit: usize) -> Vec<QuestionRecord>;

    /// Keeps a command for the owner of a name. The owner takes it before its deadline, or nobody does.
    fn put_command(put: PutCommand) -> CommandPut;
    /// Up to `limit` commands that wait for a node, at most [`PutCommand::NODE`]. An owner takes each of them, or withdraws it.
    fn commands(node: NodeId, limit: usize) -> Vec<CommandRecord>;
    /// Takes a command: its owner is about to carry it out. `Done(false)`: somebody else has taken it, it has ended, or its deadline
    /// has passed, so it is not carried out.
    fn take_command(take: TakeCommand) -> Owned<bool>;
    /// Gives a command its result. `attempt`: the one that has taken it; its owner may have given the name back since.
    /// `false`: the attempt has not taken it, or the command has another result.
    fn finish_command(command: CommandId, attempt: AttemptId, result: CommandResult) -> bool;
    /// Ends a command that nobody has taken, as [`Withdrawn`](CommandResult::Withdrawn). Answers with the command as it is then.
    fn withdraw_command(command: CommandId) -> Option<CommandRecord>;
    /// A command, until it is forgotten.
    fn command(command: CommandId) -> Option<CommandRecord>;
    /// Removes up to `limit` commands whose deadline was before `before`. Answers with their number.
    fn forget_commands(before: Timestamp, limit: usize) -> usize;

    /// Ends prompts that have waited for too long. Answers with their number.
    fn expire_prompts(limit: usize) -> usize;
    /// Removes up to `limit` prompts that ended before `before`, with their keys, messages, decided questions and outcomes.
    /// A call does a bounded amount of work. Answers with the number of prompts that it worked at: the last one may not be removed yet.
    /// `0`: nothing is left.
    fn forget(before: Timestamp, limit: usize) -> usize;
    /// The earliest moment at which a prompt or a question expires.
    fn next_expiry() -> Option<Timestamp>;

    /// A name's record.
    fn name_record(name: Name) -> Option<NameRecord>;
    /// A page of names, in the order of their bytes. Names whose records cannot be read are passed over.
    fn names(page: Page) -> Vec<NameRecord>;
    /// A prompt's record.
    fn prompt_record(prompt: PromptId) -> Option<PromptRecord>;
    /// The content of a prompt.
    fn content(prompt: PromptId) -> Option<PromptContent>;
    /// The outcome of a prompt that has ended.
    fn outcome(prompt: PromptId) -> Option<PromptOutcome>;
    /// Kept messages of a turn with numbers after `after`, in order.
    fn messages(prompt: PromptId, after: u64, limit: usize) -> Vec<StoredMessage>;
    /// The first prompts that wait for a name, in their order.
    fn queue(name: Name, limit: usize) -> Vec<PromptRecord>;
    /// A page of names that a node can run now: for each name the prompt with which it goes on, or the first one that may begin.
    ///
    /// A prompt may begin unless it is a reminder whose moment has not come, or has waited for too long. Names are passed over
    /// that are quarantined, are being deleted, run a turn, are owned by another living node, are bound to another host, or have
    /// a profile that the page leaves out. The work of a page does not grow with names that are passive, quarantined or of tenants
    /// that the page leaves out.
    fn waiting(page: WaitingPage) -> WaitingNames;
    /// The earliest moment after `after` for which a reminder waits.
    fn next_due(after: Timestamp) -> Option<Timestamp>;
    /// Prompts that wait in the whole fleet.
    fn queued() -> u32;
    /// The account of a tenant.
    fn tenant(tenant: String) -> TenantRecord;

    /// Appends entries to a transcript, in this order. An entry whose uuid the transcript has already is passed over. An owner appends to
    /// the conversation of its name only: the [`project_key`](SessionKey::project_key) is the id of the conversation.
    fn append_entries(append: AppendEntries) -> Owned<()>;
    /// Up to `limit` entries of a transcript after its first `after` ones, in order. The last page is an empty one.
    fn entries(key: SessionKey, after: u64, limit: usize) -> Vec<String>;
    /// A page of transcripts after the one of a key, in the order of their keys' bytes. The last page is an empty one.
    fn transcripts(of: TranscriptsOf, after: Option<SessionKey>, limit: usize) -> Vec<StoredTranscript>;
    /// Removes transcripts. `false`: some are left, so call it again. A call does a bounded amount of work.
    fn delete_transcripts(of: TranscriptsOf) -> bool;
}

#[cfg(feature = "testkit")]
pub(crate) use by_passing_on;

by_rows!(MemoryBackend);
by_rows!(LocalBackend);
#[cfg(feature = "postgres")]
by_rows!(PostgresBackend);
