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
use crate::actor::context::{FleetShared, shown};
use crate::actor::retry::{NotDone, repeat, repeat_owned};
use crate::actor::task::panic_text;
use crate::backend::Requests;
use crate::error::{FilesErrorKind, FleetError};
use crate::event::FleetEvent;
use crate::files::Folders;
use crate::id::AttemptId;
use crate::process;
use crate::profile::ActivationContext;
use crate::record::NameRecord;
use crate::request::{AfterFailure, Claim, Claimed, Ownership};
use look::{no_profile, other_host, quarantined, read_queue};
use release::{end_session, give_back_failed};

/// The end of an attempt to activate a name.
pub(crate) enum Activated {
    /// The session is up.
    Up(Session),
    /// The session did not start. The name was given back, with this number of failures in the period. `None`: the failure is not the
    /// session's, and the name may be owned still.
    Failed { why: String, failures: Option<u32> },
    /// The name is quarantined or not known, or another node or host has it.
    Refused(FleetError),
    /// The session was to end at once, before it had started.
    Stopped,
    /// The prompts that waited for the slot have ended meanwhile.
    Needless,
    /// The node has lost its lease, or another owner has the name.
    Fenced,
}

/// Claims the name and starts its session. `for_prompt`: only if a prompt still waits.
pub(super) async fn activate(shared: &Arc<FleetShared>, cell: &Arc<NameCell>, for_prompt: bool) -> Activated {
    let (record, claim) = match claim(shared, cell, for_prompt).await {
        Ok(claimed) => claimed,
        Err(end) => return end,
    };
    let owner = Ownership { name: record.name.clone(), node: shared.node, term: record.term };
    cell.holdings().owner = Some(owner.clone());
    tracing::Span::current().record("term", owner.term.0);
    shared.tell_of(cell, |name, tenant| FleetEvent::Activating { name, tenant, term: owner.term });
    match start(shared, cell, &record, claim, &owner).await {
        Ok(session) => {
            let resumed = session.snapshot().await.is_ok_and(|snapshot| snapshot.resumed);
            let term = owner.term;
            shared.tell_of(cell, |name, tenant| FleetEvent::Activated { name, tenant, term, resumed });
            Activated::Up(session)
        }
        Err(NotStarted::Fenced) => Activated::Fenced,
        Err(_) if shared.is_fenced(cell) => Activated::Fenced,
        Err(_) if cell.kill().is_cancelled() => Activated::Stopped,
        Err(NotStarted::ByHost(why)) => {
            tell_failed(shared, cell, &why);
            Activated::Failed { why, failures: None }
        }
        Err(NotStarted::BySession(why)) => failed(shared, cell, owner, why).await,
    }
}

/// Makes this node the owner of the name, if something waits for it.
async fn claim(
    shared: &FleetShared,
    cell: &NameCell,
    for_prompt: bool,
) -> Result<(NameRecord, AttemptId), Activated> {
    let refused = |not_done| match not_done {
        NotDone::Fenced => Activated::Fenced,
        NotDone::Error(error) => {
            let why = error.to_string();
            tracing::warn!(name = shown(&cell.name), why, "the backend refuses an activation");
            tell_failed(shared, cell, &why);
            Activated::Failed { why, failures: None }
        }
    };
    if for_prompt && read_queue(shared, cell).await.map_err(refused)?.1.is_none() {
        return Err(Activated::Needless);
    }
    let (name, attempt) = (cell.name.clone(), AttemptId::new());
    let claim = Claim { name, node: shared.node, attempt, losses: shared.limits.losses };
    // Before the claim is sent: its answer may come long after the backend has counted this node as the owner.
    cell.holdings().claim = Some(attempt);
    let end = match repeat(shared, || shared.backend.claim(claim.clone())).await {
        Ok(Claimed::Won(record)) => {
            cell.holdings().tenant.clone_from(&record.tenant);
            return Ok((record, attempt));
        }
        Ok(Claimed::Elsewhere(node)) => {
            shared.tell_of(cell, |name, tenant| FleetEvent::Elsewhere { name, tenant, node });
            Activated::Refused(FleetError::Elsewhere { node })
        }
        Ok(Claimed::Quarantined(why)) => refused_as_quarantined(shared, &why),
        Ok(Claimed::OtherHost(host)) => Activated::Refused(FleetError::State(other_host(&host))),
        Ok(Claimed::Gone) => {
            Activated::Refused(FleetError::State("the session is not known any more".to_owned()))
        }
        Ok(Claimed::NodeDown) => Activated::Fenced,
        Err(not_done) => refused(not_done),
    };
    cell.disown();
    Err(end)
}

/// Keeps the record of an activation's processes: of its CLI as well, once there is one.
pub(super) async fn record_process(shared: &FleetShared, cell: &NameCell) -> Result<(), NotDone> {
    let (owner, record) = {
        let holdings = cell.holdings();
        let (Some(owner), Some(claim)) = (holdings.owner.clone(), holdings.claim) else {
            return Err(NotDone::Fenced);
        };
        let process = holdings.session.as_ref().and_then(Session::process);
        (owner, process::record(claim, process.as_ref()))
    };
    repeat_owned(shared, || shared.backend.record_process(owner.clone(), Some(record.clone()))).await
}

/// The reason why a session did not start, by the side at fault.
#[derive(Debug)]
pub(super) enum NotStarted {
    /// The session: the failure counts, and too many quarantine the name.
    BySession(String),
    /// The host: its disk is full or can only be read, or another session on it has the conversation, for some seconds perhaps.
    /// Other names fail as well, so none is quarantined for it: each is tried again after a pause.
    ByHost(String),
    /// The node has lost its lease, or another owner has the name.
    Fenced,
}

impl From<String> for NotStarted {
    fn from(why: String) -> Self {
        Self::BySession(why)
    }
}

impl From<NotDone> for NotStarted {
    fn from(not_done: NotDone) -> Self {
        match not_done {
            NotDone::Fenced => Self::Fenced,
            NotDone::Error(error) => Self::BySession(error.to_string()),
        }
    }
}

/// Finds the side at fault for an error of the files. A folder that may not be written to is the session's own fault if the folder of
/// all sessions may be: its agent writes there too.
pub(super) async fn of_files<T>(
    folders: &Folders,
    result: Result<T, impl Into<FleetError>>,
) -> Result<T, NotStarted> {
    let error = match result {
        Ok(done) => return Ok(done),
        Err(error) => error.into(),
    };
    let kind = if let FleetError::Files(error) = &error { error.kind() } else { FilesErrorKind::Other };
    let is_host = match kind {
        FilesErrorKind::Full | FilesErrorKind::InUse => true,
        FilesErrorKind::ReadOnly | FilesErrorKind::NotAllowed => folders.open().await.is_err(),
        _ => false,
    };
    let by = if is_host { NotStarted::ByHost } else { NotStarted::BySession };
    Err(by(error.to_string()))
}

impl From<greenroom::Error> for NotStarted {
    fn from(error: greenroom::Error) -> Self {
        // A transcript that cannot be read is no fault of the session either.
        let is_host = matches!(error.kind(), ErrorKind::SessionInUse | ErrorKind::Store);
        let by = if is_host { Self::ByHost } else { Self::BySession };
        by(error.to_string())
    }
}

/// Builds and starts the session of a name.
async fn start(
    shared: &Arc<FleetShared>,
    cell: &Arc<NameCell>,
    record: &NameRecord,
    claim: AttemptId,
    owner: &Ownership,
) -> Result<Session, NotStarted> {
    // Before there is a process: a fleet that opens after this service was killed waits for the CLI, also if it was starting.
    record_process(shared, cell).await?;
    // Also where there is no other node: the opening leaves processes that it could not end, and records that it could not read.
    if let Some(why) = left::end_processes(shared, &cell.name).await? {
        return Err(why.into());
    }
    let Some(profile) = shared.profiles.get(&record.profile) else {
        let why = no_profile(&record.profile);
        // Another node may have the profile, for instance while a new version of a service takes over.
        return Err(if shared.has_peers() { NotStarted::ByHost(why) } else { why.into() });
    };
    let folders = of_files(&shared.folders, shared.folders.create(record).await).await?;
    let cx = ActivationContext {
        name: cell.name.clone(),
        tenant: record.tenant.clone(),
        conversation: record.conversation,
        term: record.term,
        working_directory: folders.work,
        config_directory: folders.config,
    };
    // The application's code: a panic in it is a failed activation, and no failed actor.
    let builder = std::panic::catch_unwind(AssertUnwindSafe(|| profile(&cx)))
        .map_err(|panic| format!("the profile '{}' panicked: {}", record.profile, panic_text(&*panic)))?;
    let builder = memory::attach(shared, cell, builder, &cx, owner).map_err(|error| error.to_string())?;
    let builder = of_files(&shared.folders, shared.folders.apply(builder, &cx).await).await?;
    let mut builder = process::mark(asker::attach(shared, cell, builder, owner), claim);
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
    record_process(shared, cell).await?;
    Ok(session)
}

fn tell_failed(shared: &FleetShared, cell: &NameCell, why: &str) {
    shared.tell_of(cell, |name, tenant| FleetEvent::ActivationFailed { name, tenant, why: why.to_owned() });
}

fn refused_as_quarantined(shared: &FleetShared, why: &str) -> Activated {
    shared.tell_transitions();
    Activated::Refused(FleetError::State(quarantined(why)))
}

/// Ends the session of a failed activation, counts the failure, and gives the name back.
async fn failed(shared: &FleetShared, cell: &NameCell, owner: Ownership, why: String) -> Activated {
    end_session(cell).await;
    tell_failed(shared, cell, &why);
    match give_back_failed(shared, owner, why.clone(), shared.limits.failures).await {
        Ok(after) => {
            cell.disown();
            match after {
                AfterFailure::Free(failures) => Activated::Failed { why, failures: Some(failures) },
                AfterFailure::Quarantined => refused_as_quarantined(shared, &why),
            }
        }
        Err(NotDone::Fenced) => Activated::Fenced,
        Err(NotDone::Error(error)) => Activated::Failed { why: error.to_string(), failures: None },
    }
}
