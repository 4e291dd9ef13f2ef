//! The steps of a name: what its actor does in tasks of their own. This file has the activation; the files beside it have the other steps.
//!
//! A step writes what it holds into the name's cell as soon as it holds it, so that an actor that fails in the middle of a step
//! leaves nothing behind.

pub(crate) mod left;
pub(super) mod look;
pub(crate) mod losses;
mod memory;
pub(crate) mod release;
pub(super) mod turn;

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;

use futures_util::FutureExt;
use greenroom::{ErrorKind, Session};

use crate::actor::asker;
use crate::actor::cell::NameCell;
use crate::actor::context::{Activation, FleetShared, shown};
use crate::actor::retry::{NotDone, repeat, repeat_owned};
use crate::actor::task::panic_text;
use crate::backend::Requests;
use crate::error::{FilesErrorKind, FleetError};
use crate::event::FleetEvent;
use crate::files::Folders;
use crate::id::AttemptId;
use crate::process;
use crate::profile::{ActivatedFor, ActivationContext};
use crate::record::NameRecord;
use crate::request::{ActivationFailed, AfterFailure, Claim, Claimed, Ownership};
use look::{no_profile, other_host, quarantined, read_queue};
use release::end_session;

/// The end of an attempt to activate a name.
pub(crate) enum Activated {
    /// The session is up.
    Up(Activation),
    /// The session did not start. The name was given back, with this number of failures in the period.
    Failed { why: String, failures: u32 },
    /// The name is quarantined or not known, or another node or host has it.
    Refused(FleetError),
    /// The session was to end at once, before it had started.
    Stopped,
    /// The prompts that waited for the slot have ended meanwhile.
    Needless,
    /// The node has lost its lease, or another owner has the name.
    Fenced,
    /// The backend refuses, or another session has the conversation: try again after a pause. The name may be owned still.
    Error(String),
}

/// Claims the name and starts its session.
pub(super) async fn activate(
    shared: &Arc<FleetShared>,
    cell: &Arc<NameCell>,
    activated_for: ActivatedFor,
) -> Activated {
    if activated_for == ActivatedFor::Prompt {
        match read_queue(shared, cell).await {
            Ok((_, None)) => return Activated::Needless,
            Ok(_) => {}
            Err(not_done) => return not_owned(shared, cell, not_done),
        }
    }
    let claim = Claim {
        name: cell.name.clone(),
        node: shared.node,
        attempt: AttemptId::new(),
        losses: shared.limits.losses,
    };
    // Before the claim is sent: its answer may come long after the backend has counted this node as the owner.
    cell.holdings().claim = Some(claim.attempt);
    let claimed = repeat(shared, || shared.backend.claim(claim.clone())).await;
    if !matches!(claimed, Ok(Claimed::Won(_))) {
        cell.disown();
    }
    let record = match claimed {
        Ok(Claimed::Won(record)) => record,
        Ok(Claimed::Elsewhere(node)) => {
            let (name, tenant) = (cell.name.clone(), cell.holdings().tenant.clone());
            shared.tell(FleetEvent::Elsewhere { name, tenant, node });
            return Activated::Refused(FleetError::Elsewhere { node });
        }
        Ok(Claimed::Quarantined(why)) => return refused_as_quarantined(shared, &why),
        Ok(Claimed::OtherHost(host)) => return Activated::Refused(FleetError::State(other_host(&host))),
        Ok(Claimed::Gone) => {
            let why = "the session is not known any more".to_owned();
            return Activated::Refused(FleetError::State(why));
        }
        Ok(Claimed::NodeDown) => return Activated::Fenced,
        Err(not_done) => return not_owned(shared, cell, not_done),
    };
    let owner = Ownership { name: cell.name.clone(), node: shared.node, term: record.term };
    let running = {
        let mut holdings = cell.holdings();
        holdings.owner = Some(owner.clone());
        holdings.tenant.clone_from(&record.tenant);
        holdings.running.clone()
    };
    tracing::Span::current().record("term", owner.term.0);
    let (name, tenant) = (cell.name.clone(), record.tenant.clone());
    shared.tell(FleetEvent::Activating { name, tenant: tenant.clone(), term: owner.term });
    let claim = claim.attempt;
    // Before there is a process: a fleet that opens after this service was killed waits for the CLI, also if it was starting.
    if let Err(error) = record_process(shared, &owner, process::record(claim, None)).await {
        return not_done(shared, cell, owner, error).await;
    }
    // Also where there is no other node: the opening leaves processes that it could not end, and records that it could not read.
    match left::end_processes(shared, &cell.name).await {
        Ok(None) => {}
        Ok(Some(why)) => return failed(shared, cell, owner, why).await,
        Err(error) => return not_done(shared, cell, owner, error).await,
    }
    let why = match start(shared, cell, &record, activated_for, claim, &owner).await {
        Ok(session) => {
            let process = process::record(claim, session.process().as_ref());
            match record_process(shared, &owner, process).await {
                Ok(()) => {
                    let (name, term) = (cell.name.clone(), owner.term);
                    let resumed = session.snapshot().await.is_ok_and(|snapshot| snapshot.resumed);
                    shared.tell(FleetEvent::Activated { name, tenant: tenant.clone(), term, resumed });
                    return Activated::Up(Activation { owner, claim, tenant, session, running });
                }
                Err(NotDone::Fenced) => return Activated::Fenced,
                Err(NotDone::Error(error)) => error.to_string(),
            }
        }
        Err(_) if shared.lost.is_cancelled() || cell.fenced().is_cancelled() => return Activated::Fenced,
        Err(_) if cell.kill().is_cancelled() => return Activated::Stopped,
        Err(NotStarted { why, by: Blame::Host }) => {
            tell_failed(shared, cell, &why);
            return Activated::Error(why);
        }
        Err(NotStarted { why, by: Blame::Session }) => why,
    };
    end_session(cell).await;
    failed(shared, cell, owner, why).await
}

/// Keeps the record of an activation's processes.
pub(super) async fn record_process(
    shared: &FleetShared,
    owner: &Ownership,
    record: serde_json::Value,
) -> Result<(), NotDone> {
    repeat_owned(shared, || shared.backend.record_process(owner.clone(), Some(record.clone()))).await
}

/// The reason why a session did not start.
pub(super) struct NotStarted {
    why: String,
    pub(super) by: Blame,
}

/// The side at fault for a start that has failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Blame {
    /// The session: the failure counts, and too many quarantine the name.
    Session,
    /// The host: its disk is full or can only be read, or another session on it has the conversation, for some seconds perhaps.
    /// Other names fail as well, so none is quarantined for it: each is tried again after a pause.
    Host,
}

impl From<String> for NotStarted {
    fn from(why: String) -> Self {
        Self { why, by: Blame::Session }
    }
}

/// The cause of an error of the files. A folder that may not be written to is the session's own fault if the folder of all
/// sessions may be: its agent writes there too.
pub(super) async fn files_failed(folders: &Folders, error: impl Into<FleetError>) -> NotStarted {
    let error = error.into();
    let kind = if let FleetError::Files(error) = &error { error.kind() } else { FilesErrorKind::Other };
    let by = match kind {
        FilesErrorKind::Full | FilesErrorKind::InUse => Blame::Host,
        FilesErrorKind::ReadOnly | FilesErrorKind::NotAllowed if folders.open().await.is_err() => Blame::Host,
        _ => Blame::Session,
    };
    NotStarted { why: error.to_string(), by }
}

impl From<greenroom::Error> for NotStarted {
    fn from(error: greenroom::Error) -> Self {
        // A transcript that cannot be read is no fault of the session either.
        let is_host = matches!(error.kind(), ErrorKind::SessionInUse | ErrorKind::Store);
        let by = if is_host { Blame::Host } else { Blame::Session };
        Self { why: error.to_string(), by }
    }
}

/// Builds and starts the session of a name.
async fn start(
    shared: &Arc<FleetShared>,
    cell: &Arc<NameCell>,
    record: &NameRecord,
    activated_for: ActivatedFor,
    claim: AttemptId,
    owner: &Ownership,
) -> Result<Session, NotStarted> {
    let Some(profile) = shared.profiles.get(&record.profile) else {
        let why = no_profile(&record.profile);
        // Another node may have the profile, for instance while a new version of a service takes over.
        let by = if shared.has_peers() { Blame::Host } else { Blame::Session };
        return Err(NotStarted { why, by });
    };
    let created = match shared.transcripts {
        true => shared.folders.create_for_term(record).await,
        false => shared.folders.create(record).await,
    };
    let folders = match created {
        Ok(folders) => folders,
        Err(error) => return Err(files_failed(&shared.folders, error).await),
    };
    let cx = ActivationContext {
        name: cell.name.clone(),
        tenant: record.tenant.clone(),
        conversation: record.conversation,
        term: record.term,
        activated_for,
        work: folders.work,
        config: folders.config,
    };
    // The application's code: a panic in it is a failed activation, and no failed actor.
    let builder = std::panic::catch_unwind(AssertUnwindSafe(|| profile(&cx)))
        .map_err(|panic| format!("the profile '{}' panicked: {}", record.profile, panic_text(&*panic)))?;
    let builder = memory::attach(shared, cell, builder, &cx, owner).map_err(|error| error.to_string())?;
    let builder = match shared.folders.apply(builder, &cx).await {
        Ok(builder) => builder,
        Err(error) => return Err(files_failed(&shared.folders, error).await),
    };
    let mut builder = process::mark(asker::attach(shared, cell, builder), claim);
    if let Some(watchdog) = shared.fence.watchdog() {
        builder = builder.watchdog(watchdog);
    }
    let (switch, kill) = (builder.kill_switch(), cell.kill());
    let mut starting = pin!(AssertUnwindSafe(builder.start()).catch_unwind());
    let killing = async {
        kill.cancelled().await;
        switch.kill().await;
    };
    // A start that is dropped would end its CLI some time later, so it is awaited also when the session is killed.
    let started = tokio::select! {
        started = &mut starting => started,
        () = killing => starting.await,
    };
    let session = started.map_err(|panic| format!("the start panicked: {}", panic_text(&*panic)))??;
    cell.holdings().session = Some(session.clone());
    Ok(session)
}

fn tell_failed(shared: &FleetShared, cell: &NameCell, why: &str) {
    let (name, tenant) = (cell.name.clone(), cell.holdings().tenant.clone());
    shared.tell(FleetEvent::ActivationFailed { name, tenant, why: why.to_owned() });
}

/// The end of an activation whose request was not carried out before the name had an owner.
fn not_owned(shared: &FleetShared, cell: &NameCell, not_done: NotDone) -> Activated {
    let NotDone::Error(error) = not_done else { return Activated::Fenced };
    let why = error.to_string();
    tracing::warn!(name = shown(&cell.name), why, "the backend refuses an activation");
    tell_failed(shared, cell, &why);
    Activated::Error(why)
}

/// The end of an activation whose request was not carried out for the owner.
async fn not_done(shared: &FleetShared, cell: &NameCell, owner: Ownership, not_done: NotDone) -> Activated {
    match not_done {
        NotDone::Fenced => Activated::Fenced,
        NotDone::Error(error) => failed(shared, cell, owner, error.to_string()).await,
    }
}

fn refused_as_quarantined(shared: &FleetShared, why: &str) -> Activated {
    shared.tell_transitions();
    Activated::Refused(FleetError::State(quarantined(why)))
}

/// Counts a failed activation, and gives the name back.
async fn failed(shared: &FleetShared, cell: &NameCell, owner: Ownership, why: String) -> Activated {
    tell_failed(shared, cell, &why);
    let request = ActivationFailed {
        owner,
        why: why.clone(),
        period: shared.limits.failure_period,
        intensity: shared.limits.failures,
    };
    let after = repeat_owned(shared, || shared.backend.activation_failed(request.clone())).await;
    match after {
        Ok(after) => {
            cell.disown();
            match after {
                AfterFailure::Free(failures) => Activated::Failed { why, failures },
                AfterFailure::Quarantined => refused_as_quarantined(shared, &why),
            }
        }
        Err(NotDone::Fenced) => Activated::Fenced,
        Err(NotDone::Error(error)) => Activated::Error(error.to_string()),
    }
}
