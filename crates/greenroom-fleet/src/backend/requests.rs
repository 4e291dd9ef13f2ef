//! The requests of a fleet to its backend.

use std::time::Duration;

use greenroom::store::SessionKey;
use serde_json::Value;
use tokio::sync::broadcast;
use uuid::Uuid;

use super::run::request;
use super::{Backend, Reply};
use crate::event::FleetEvent;
use crate::id::{AttemptId, CommandId, Name, NodeId, PromptId, QuestionId, Tenant, Term, Timestamp};
use crate::limits::Quota;
use crate::query::feed::{FeedCursor, FeedPage, FeedRetention};
use crate::query::lists::{NamePage, NameQuery, PromptPage, PromptQuery};
use crate::record::label::Labels;
use crate::record::usage::UsageEntry;
use crate::record::*;
use crate::request::*;

/// Defines [`Requests`]. Each line is a request; its rule is the method of the same name of [`Step`], which runs again with clones of its
/// arguments when it lacks rows and after a conflict. [`Lane::of`] says on which connections it runs.
macro_rules! requests {
    ($($(#[$doc:meta])* fn $method:ident($($arg:ident: $type:ty),* $(,)?) -> $answer:ty;)*) => {
        /// The requests of a fleet to its backend, each of them a rule over rows. Every backend has them.
        ///
        /// # What a request promises
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
        /// Dropping the future of a request may leave the request carried out: repeat it to find out.
        pub trait Requests: Backend {
            /// Changes as they become durable. A reader that is too slow gets
            /// [`Lagged`](broadcast::error::RecvError::Lagged) and reads the records again.
            fn changes(&self) -> broadcast::Receiver<Change> {
                self.channels().changes.subscribe()
            }

            /// Transitions that requests to this value of the backend and to its clones have made, from now on: each one once, in
            /// the order in which the backend tells them, before the answer of its request. Transitions that other processes have made
            /// on the same database are not told, nor are those of a commit whose reply was lost on the network. The fleet tells
            /// transitions to the application as events.
            fn transitions(&self) -> broadcast::Receiver<FleetEvent> {
                self.channels().transitions.subscribe()
            }

            $($(#[$doc])* fn $method(&self, $($arg: $type),*) -> Reply<'_, $answer> {
                Box::pin(request(self, stringify!($method), move |step| step.$method($($arg.clone()),*)))
            })*
        }

        impl<B: Backend + ?Sized> Requests for B {}

        /// The names of the requests.
        #[cfg(feature = "testkit")]
        pub(crate) const METHODS: &[&str] = &[$(stringify!($method)),*];
    };
}

requests! {
    /// Adds a node, which can claim names from now on. The id of a dead node is refused as
    /// [`Invalid`](crate::BackendErrorKind::Invalid), as long as the node owns names.
    fn join(join: Join) -> NodeRecord;
    /// Renews the lease of a node. `draining`: the node takes no further names. `Fenced`: the node counts as dead. It has to end its
    /// sessions, and joins again with a new id.
    fn renew(node: NodeId, lease: Duration, draining: bool) -> Owned<NodeRecord>;
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
    /// Takes back a prompt that waits. Its outcome is [`Unsent::Withdrawn`], or
    /// [`Interrupted`](PromptOutcome::Interrupted) if a lost owner had begun with it.
    fn withdraw(prompt: PromptId) -> Withdrawn;
    /// [`withdraw`](Requests::withdraw) for an operator: a prompt that no CLI has begun with ends as
    /// [`Unsent::Dropped`] with the reason.
    fn drop_prompt(prompt: PromptId, why: String) -> Withdrawn;
    /// Makes a node the owner of a name. The turn that a lost owner had begun goes on with its continuation, or ends.
    fn claim(claim: Claim) -> Claimed;
    /// Writes down that a prompt begins, and answers with what is sent, now and never again: the prompt, or its continuation. `Done(None)`: it
    /// may not begin. It does not wait or is not due, another prompt of the name runs or goes on first, its credential is held, or the tenant
    /// has no money for it. A prompt that has waited for too long ends as unsent.
    fn begin(begin: Begin) -> Owned<Option<Value>>;
    /// Writes down a turn that the session's CLI has begun by itself, under an id that the owner has made: it runs from now on, beside a prompt
    /// that runs. Money is set aside for it. `false`: the tenant has none left, and nothing was set aside; the owner ends the turn.
    fn begin_cli_turn(begin: Begin) -> Owned<bool>;
    /// Keeps messages of the running turn. Answers with the number up to which all messages are kept or counted. `Done(None)`: nothing was
    /// kept, because the turn does not run by this owner, or messages before the first one are missing.
    fn append(append: Append) -> Owned<Option<u64>>;
    /// Gives the running turn its outcome. `Done(true)`: the prompt has this outcome now, or had it already from this attempt. `Done(false)`:
    /// the prompt does not run by this attempt, has ended with another outcome, or is not known.
    fn finish(finish: Finish) -> Owned<bool>;
    /// Parks the running turn, whose CLI has ended while a person decides on a tool call. Its prompt waits to go on once the question is
    /// decided, or at once if it is. `Done(true)`: the turn is parked, or was by this attempt. `Done(false)`: it does not run by this attempt, or
    /// has not exactly one open tool call.
    fn park(park: Park) -> Owned<bool>;
    /// Ends a turn that the API has rejected, and holds its credential on all nodes. The prompt waits again at its place, as if it had not
    /// begun, or has its outcome. Answers as [`finish`](Requests::finish).
    fn reject(reject: Reject) -> Owned<bool>;
    /// Ends the try of an attempt. `answered`: the model has answered, so the credential is held no more. `false`: the attempt does not try.
    fn end_try(credential: Credential, attempt: AttemptId, answered: bool) -> bool;
    /// The hold of a credential.
    fn hold(credential: Credential) -> Option<Hold>;
    /// A page of the credentials that are held. The last page is an empty one.
    fn holds(after: Option<Credential>, limit: usize) -> Vec<Hold>;
    /// Lets the prompts of a credential begin. Answers with the hold that it had.
    fn release_hold(credential: Credential) -> Option<Hold>;
    /// Removes a hold whose next try was due before `before`: nobody uses its credential. `false`: it is not held, or was tried since.
    fn forget_hold(credential: Credential, before: Timestamp) -> bool;
    /// Gives a name back. `true`: a prompt waits.
    fn release(owner: Ownership) -> Owned<bool>;
    /// Gives a name back whose session could not be started. Answers with the number of failures in the period. `Done(None)`: there were too
    /// many, and the name is quarantined.
    fn activation_failed(failed: ActivationFailed) -> Owned<Option<u32>>;
    /// Notes the cause for which a node does not start the session of a name, in words, for prompts that expire meanwhile; and the credential
    /// that is held, so that they do not expire before.
    fn held_back(name: Name, credential: Option<Credential>, why: String) -> ();

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
    fn quarantine(name: Name, quarantine: Quarantine) -> Marked;
    /// Lets a quarantined name be activated again. `false`: the name is not quarantined.
    fn unquarantine(name: Name) -> bool;
    /// Marks a name as being deleted, and ends its prompts, the first ones of a long queue.
    fn delete(name: Name) -> Marked;
    /// Removes the prompts, with all that belongs to them, the keys and the commands of a name that is marked as being deleted. `false`:
    /// something is left, so call it again. A call does a bounded amount of work.
    fn erase(name: Name) -> bool;
    /// [`erase`](Requests::erase), and then removes the name. Does nothing if the name was made anew since, with another conversation. Files of
    /// it that are left stay listed by [`files_left`](Requests::files_left).
    fn deleted(name: Name, conversation: Uuid) -> bool;
    /// The deletion of a name that is marked as being deleted.
    fn erasure(name: Name) -> Option<Erasure>;
    /// The hosts of a deletion that have not removed their files, also after the name has gone.
    fn hosts_left(of: Erasure) -> Vec<String>;
    /// Up to `limit` files of deleted names on a host, or on all hosts.
    fn files_left(host: Option<String>, limit: usize) -> Vec<FilesLeft>;
    /// Notes that a host has removed the files of a deleted name, or is gone with them.
    fn files_removed(files: FilesLeft) -> ();
    /// Drops the rows about files of names on a host that is gone for ever, and about processes that lost owners have left there.
    fn forget_files(host: String, names: Vec<Name>) -> ForgottenFiles;
    /// Binds a name that is bound to a host to another one.
    fn move_to_host(name: Name, host: String) -> HostMove;
    /// Names that are marked as being deleted.
    fn deleting(limit: usize) -> Vec<Name>;

    /// Keeps a question. `Done(None)`: its turn does not run. A turn that has 256 open questions gets no further one:
    /// [`Invalid`](crate::BackendErrorKind::Invalid).
    fn ask(ask: Ask) -> Owned<Option<QuestionRecord>>;
    /// Answers a question. The first answer before the deadline decides. An answer that is repeated with its attempt learns whether
    /// it decided, until the prompt is forgotten.
    fn answer(question: QuestionId, attempt: AttemptId, answer: Value) -> Answered;
    /// Notes that the owner's CLI is about to get the decision on a question with a [`call`](QuestionRecord::call). From then on no other owner
    /// goes on with the call. `Done(false)`: the question is not decided, its turn does not run by this owner, or another owner has noted it.
    fn hand_over(owner: Ownership, question: QuestionId) -> Owned<bool>;
    /// A question: an open one until its turn ends, a decided one until its prompt is forgotten.
    fn question(question: QuestionId) -> Option<QuestionRecord>;
    /// The questions of a turn: all open ones, then up to `decided` decided ones in the order of their ids, at most [`Page::MOST`].
    fn questions_of(prompt: PromptId, decided: usize) -> Vec<QuestionRecord>;
    /// Open questions, the nearest deadline first.
    fn open_questions(of: QuestionsOf, limit: usize) -> Vec<QuestionRecord>;
    /// Decides open questions whose deadline has passed.
    fn expire_questions(limit: usize) -> Vec<QuestionRecord>;

    /// Keeps a command for the owner of a name. The owner takes it before its deadline, or nobody does.
    fn put_command(command: CommandRecord) -> CommandPut;
    /// Up to `limit` commands that wait for a node, at most [`CommandRecord::NODE`]. An owner takes each of them, or withdraws it.
    fn commands(node: NodeId, limit: usize) -> Vec<CommandRecord>;
    /// Takes a command: its owner is about to carry it out. `Done(false)`: somebody else has taken it, it has ended, or its deadline
    /// has passed, so it is not carried out.
    fn take_command(command: CommandId, owner: Ownership, attempt: AttemptId) -> Owned<bool>;
    /// Gives a command its result. `attempt`: the one that has taken it; its owner may have given the name back since.
    /// `false`: the attempt has not taken it, or the command has another result.
    fn finish_command(command: CommandId, attempt: AttemptId, result: CommandResult) -> bool;
    /// Ends a command that nobody has taken, as [`Withdrawn`](CommandResult::Withdrawn). Answers with the command as it is then.
    fn withdraw_command(command: CommandId) -> Option<CommandRecord>;
    /// A command, until it is forgotten.
    fn command(command: CommandId) -> Option<CommandRecord>;
    /// Removes up to `limit` commands whose deadline was before `before`. Answers with their number.
    fn forget_commands(before: Timestamp, limit: usize) -> usize;

    /// Ends prompts that have waited for too long. The time for which the credential of their session is held does not count: their expiry is
    /// moved. Answers with the number of both.
    fn expire_prompts(limit: usize) -> usize;
    /// Removes up to `limit` prompts that ended before `before`, with their keys, messages, decided questions and outcomes.
    /// A name stays until it is deleted. A call does a bounded amount of work. Answers with the number of prompts that it worked at: the last one may not be removed yet.
    /// `0`: nothing is left.
    fn forget(before: Timestamp, limit: usize) -> usize;
    /// The earliest moment at which a prompt or a question expires.
    fn next_expiry() -> Option<Timestamp>;

    /// A name's record.
    fn name_record(name: Name) -> Option<NameRecord>;
    /// A page of names. A page of one tenant reads no names of others.
    fn names(query: NameQuery) -> NamePage;
    /// A page of the prompts of a name, the newest first. Also those of a name that was deleted, until they are forgotten.
    fn prompts(name: Name, query: PromptQuery) -> PromptPage;
    /// Sets the labels of a name, in place of those that it has. `false`: the name is not known, or is being deleted. Labels that are too
    /// many or too long, and those of a name that moves to another backend, are [`Invalid`](crate::BackendErrorKind::Invalid).
    fn set_labels(name: Name, labels: Labels) -> bool;
    /// A prompt's record.
    fn prompt_record(prompt: PromptId) -> Option<PromptRecord>;
    /// The records of prompts that are known and can be read.
    fn prompt_records(prompts: Vec<PromptId>) -> Vec<PromptRecord>;
    /// The content of a prompt.
    fn content(prompt: PromptId) -> Option<PromptContent>;
    /// The outcome of a prompt that has ended.
    fn outcome(prompt: PromptId) -> Option<PromptOutcome>;
    /// Kept messages of a turn with numbers after `after`, in order: up to `limit`, as many as have 1 MiB, and at least one. The last page
    /// is an empty one.
    fn messages(prompt: PromptId, after: u64, limit: usize) -> Vec<StoredText>;
    /// The prompt of a name that may begin now: the one with which the name goes on, or the first one that may begin.
    fn next_prompt(name: Name) -> Option<PromptRecord>;
    /// A page of names that a node can run now: for each name the prompt with which it goes on, or the first one that may begin.
    ///
    /// A prompt may begin unless it is a reminder whose moment has not come, or has waited for too long. Names are passed over
    /// that are quarantined, are being deleted, run a turn, are owned by another living node, are bound to another host, or have
    /// a profile that the page leaves out. The work of a page does not grow with names that are passive, quarantined or of tenants
    /// that the page leaves out.
    fn waiting(page: WaitingPage) -> WaitingNames;
    /// The earliest moment after `after` for which a reminder waits.
    fn next_due(after: Timestamp) -> Option<Timestamp>;
    /// Prompts that wait in the whole fleet, without reminders.
    fn queued() -> u32;
    /// The account of a tenant.
    fn tenant(tenant: Tenant) -> TenantRecord;
    /// The quota that was set for a tenant.
    fn quota(tenant: Tenant) -> Option<Quota>;
    /// Sets the quota of a tenant; `None` removes it. A quota that cannot work is refused as [`Invalid`](crate::BackendErrorKind::Invalid).
    fn set_quota(tenant: Tenant, quota: Option<Quota>) -> ();
    /// A page of quotas that were set, in the order of the tenants' bytes. The last page is an empty one.
    fn quotas(after: Option<Tenant>, limit: usize) -> Vec<(Tenant, Quota)>;
    /// A number that grows with each quota that is set.
    fn quotas_set() -> u64;

    /// The usage of tenants, or of one, by the hours that begin in a time, in the order of the hours and of the tenants: a page of them after
    /// an hour and a tenant. The last page is an empty one.
    fn usage(
        of: Option<Tenant>,
        from: Timestamp,
        to: Timestamp,
        after: Option<(Timestamp, Tenant)>,
    ) -> Vec<UsageEntry>;
    /// The usage of a name by the days that begin in a time.
    fn usage_of_name(name: Name, from: Timestamp, to: Timestamp) -> Vec<UsageEntry>;
    /// Removes the usage of days that ended before `before`. A call does a bounded amount of work. `0`: nothing is left.
    fn forget_usage(before: Timestamp) -> usize;
    /// Adds the usage that a tenant has had at the backend with an id, by hours in their order, each of them once. `None`: all of it has come.
    fn take_usage(tenant: Tenant, from: Uuid, usage: Option<Vec<UsageEntry>>) -> ();
    /// Removes the usage of a tenant in these hours: another backend has it.
    fn usage_taken(tenant: Tenant, hours: Vec<Timestamp>) -> ();

    /// Keeps a feed from now on, on all nodes. `None`: keeps none, and removes its entries in time.
    fn set_feed(retention: Option<FeedRetention>) -> ();
    /// A page of what happened after a place, to names of all tenants or of one: up to `limit` entries, at most 256.
    fn feed(of: Option<Tenant>, after: FeedCursor, limit: usize) -> FeedPage;
    /// Makes the entries that were written so far readable, unless that was done half a second ago. `false`: there are none, or it was.
    fn seal_feed() -> bool;
    /// Removes entries that are over the retention of the feed. A call does a bounded amount of work. `0`: nothing is left.
    fn forget_feed() -> usize;

    /// Appends entries to a transcript, in this order. An entry whose uuid the transcript has already is passed over. An owner appends to
    /// the conversation of its name only: the [`project_key`](SessionKey::project_key) is the id of the conversation.
    fn append_entries(append: AppendEntries) -> Owned<()>;
    /// Entries of a transcript with numbers after `after`, in order: as many as have 4 MiB, and at least one. The last page is an empty
    /// one. A page may begin behind the next number if others append and remove the transcript meanwhile.
    fn entries(key: SessionKey, after: u64) -> Vec<StoredText>;
    /// A page of transcripts after the one of a key, in the order of their keys' bytes. The last page is an empty one.
    fn transcripts(of: TranscriptsOf, after: Option<SessionKey>, limit: usize) -> Vec<StoredTranscript>;
    /// Removes transcripts: after the first call nobody reads them. `false`: something is left, so call it again. A call does a bounded
    /// amount of work.
    fn delete_transcripts(of: TranscriptsOf) -> bool;

    /// The id of the backend: `id`, unless it was given one before.
    fn identify(id: Uuid) -> Uuid;
    /// Marks a name that moves to the backend with an id. It stays as it is: nobody claims it, and it accepts no prompt.
    fn depart(name: Name, to: Uuid) -> Departure;
    /// Makes a name of a record that departs from another backend. The rows of its prompts and transcripts are copied before. `false`:
    /// another session has the name, or the same one is on its way from there.
    fn arrive(record: NameRecord) -> bool;
    /// Notes that a name that departs has arrived, and removes it with its prompts. `false`: something is left, so call it again. A call
    /// does a bounded amount of work.
    fn departed(name: Name) -> bool;
    /// Gives a tenant the money that it has spent at another backend. `false`: the tenant has an account of the same period here.
    fn open_account(tenant: Tenant, period: Timestamp, spent: u64) -> bool;
    /// Forgets the money of a tenant without names. `false`: the tenant has names.
    fn close_account(tenant: Tenant) -> bool;
}
