//! The steps of a name: what its actor does in tasks of their own. This file has an activation and its end; the files beside it have the other steps.
//!
//! A step writes what it holds into the name's cell as soon as it holds it, so that an actor that fails in the middle of a step
//! leaves nothing behind.

pub(super) mod begun;
pub(super) mod cli_turn;
mod end;
pub(crate) mod left;
pub(super) mod look;
pub(crate) mod losses;
pub(crate) mod memory;
mod resume;
pub(super) mod trial;
pub(super) mod turn;
mod user;

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;

use futures_util::FutureExt;
use greenroom::{ErrorKind, Session};

use crate::actor::asker;
use crate::actor::cell::NameCell;
use crate::actor::cli_turns::CliTurnQueue;
use crate::actor::context::{FleetShared, shown};
use crate::actor::retry::{NotDone, repeat, repeat_owned};
use crate::actor::task::panic_text;
use crate::backend::Requests;
use crate::error::{FilesErrorKind, FleetError};
use crate::event::FleetEvent;
use crate::files::Folders;
use crate::health::{Held, Try};
use crate::id::AttemptId;
use crate::process;
use crate::profile::{ActivationContext, traced};
use crate::record::{Cause, NameRecord, QuarantineKind};
use crate::request::{ActivationFailed, Claim, Claimed, Counted, Ownership};
use end::end_session;
use look::{PARKED, no_profile, other_host, quarantined, read_queue};

/// The reason why a name was not activated.
pub(crate) enum NotUp {
    /// The session did not start. The name was given back, with this number of failures in the period. `None`: the failure is not the
    /// session's, and the name may be owned still.
    Failed { why: String, failures: Option<u32> },
    /// The name is quarantined or not known, or another node or host has it.
    Refused(FleetError),
    /// The tenant has as many live sessions in the fleet as its quota allows.
    AtCap,
    /// The session was to end at once, before it had started.
    Stopped,
    /// A cause that is not the session's own holds it back on this node. The name was given back.
    Held(Held),
    /// The prompts that waited for the slot have ended meanwhile.
    Needless,
    /// The node has lost its lease, or another owner has the name.
    Fenced,
}

/// Claims the name and starts its session. `for_prompt`: only if a prompt still waits. `tries` has the permits to start in spite of causes, and
/// then those that its first turn needs.
pub(super) async fn activate(
    shared: &Arc<FleetShared>,
    cell: &Arc<NameCell>,
    for_prompt: bool,
    tries: &mut Vec<Try>,
) -> Result<Session, NotUp> {
    let (record, claim) = claim(shared, cell, for_prompt, tries).await?;
    let owner = Ownership { name: record.name.clone(), node: shared.node, term: record.term };
    cell.holdings().owner = Some(owner.clone());
    tracing::Span::current().record("term", owner.term.0);
    shared.tell_of(cell, |name| FleetEvent::Activating { name, term: owner.term });
    Err(match start(shared, cell, &record, claim, &owner).await {
        Ok(session) => {
            let resumed = shared.metrics.started(session.snapshot().await.ok());
            cell.holdings().woken = resumed;
            let term = owner.term;
            shared.tell_of(cell, |name| FleetEvent::Activated { name, term, resumed });
            shared.passed(tries, false);
            return Ok(session);
        }
        Err(NotStarted::Fenced) => NotUp::Fenced,
        Err(_) if shared.is_fenced(cell) => NotUp::Fenced,
        Err(_) if cell.kill().is_cancelled() => NotUp::Stopped,
        Err(NotStarted::NoOpenCall(why)) => resume::end_turn(shared, cell, &record, &owner, why).await,
        Err(NotStarted::ByHost(why)) => failed_by_host(shared, cell, why),
        Err(NotStarted::ByCause(cause, why)) => failed_by_cause(shared, cell, owner, cause, why, tries).await,
        Err(NotStarted::BySession(why)) => failed_by_session(shared, cell, owner, why).await,
    })
}

/// Makes this node the owner of the name, if something waits for it.
async fn claim(
    shared: &FleetShared,
    cell: &NameCell,
    for_prompt: bool,
    tries: &mut Vec<Try>,
) -> Result<(NameRecord, AttemptId), NotUp> {
    let refused = |not_done| match not_done {
        NotDone::Fenced => NotUp::Fenced,
        NotDone::Error(error) => {
            let why = error.to_string();
            tracing::warn!(name = shown(&cell.name), why, "the backend refuses an activation");
            failed_by_host(shared, cell, why)
        }
    };
    let (record, next) = read_queue(shared, cell).await.map_err(refused)?;
    if for_prompt && next.is_none() {
        return Err(NotUp::Needless);
    }
    if record.is_some() {
        // Not the owner yet: another node may run the session.
        admit(shared, cell, tries).map_err(NotUp::Held)?;
    }
    let (name, attempt) = (cell.name.clone(), AttemptId::new());
    let quota = shared.quotas.given(name.tenant()).clone();
    let claim = Claim { name, node: shared.node, attempt, losses: shared.limits.losses, quota };
    // Before the claim is sent: its answer may come long after the backend has counted this node as the owner.
    cell.holdings().claim = Some(attempt);
    let end = match repeat(shared, || shared.backend.claim(claim.clone())).await {
        Ok(Claimed::Won(record)) => return Ok((record, attempt)),
        Ok(Claimed::Elsewhere(node)) => {
            shared.tell_of(cell, |name| FleetEvent::Elsewhere { name, node });
            NotUp::Refused(FleetError::Elsewhere { node })
        }
        Ok(Claimed::AtCap) => NotUp::AtCap,
        Ok(Claimed::Quarantined(why)) => refused_as_quarantined(shared, &why),
        Ok(Claimed::OtherHost(host)) => NotUp::Refused(FleetError::State(other_host(&host))),
        Ok(Claimed::Parked) => NotUp::Refused(FleetError::State(PARKED.to_owned())),
        Ok(Claimed::Gone) => {
            NotUp::Refused(FleetError::State("the session is not known any more".to_owned()))
        }
        Ok(Claimed::NodeDown) => NotUp::Fenced,
        Err(not_done) => refused(not_done),
    };
    cell.disown();
    Err(end)
}

/// Keeps the record of an activation's processes: of its CLI as well, once there is one.
pub(super) async fn record_process(shared: &FleetShared, cell: &NameCell) -> Result<(), NotDone> {
    let (owner, record) = {
        let holdings = cell.holdings();
        let (owner, claim) = holdings.owner.clone().zip(holdings.claim).ok_or(NotDone::Fenced)?;
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
    /// A cause that keeps other sessions from starting, too.
    ByCause(Cause, String),
    /// The host: another session on it has the conversation, for some seconds perhaps, or its transcript cannot be read. The name is tried
    /// again after a pause, and is not quarantined for it.
    ByHost(String),
    /// The conversation has no longer the call with which a turn was to go on: the turn has ended.
    NoOpenCall(String),
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

/// Finds the side at fault for an error before the start. A folder that may not be written to is the session's own fault if the folder of
/// all sessions may be: its agent writes there too.
pub(super) async fn of_files<T>(
    folders: &Folders,
    result: Result<T, impl Into<FleetError>>,
) -> Result<T, NotStarted> {
    let error = match result {
        Ok(done) => return Ok(done),
        Err(error) => error.into(),
    };
    let why = error.to_string();
    let kind = match error {
        FleetError::Files(error) => error.kind(),
        FleetError::Invalid(why) => return Err(NotStarted::ByCause(Cause::ProfileUnfit, why)),
        _ => FilesErrorKind::Other,
    };
    Err(match kind {
        FilesErrorKind::InUse => NotStarted::ByHost(why),
        FilesErrorKind::Full => NotStarted::ByCause(Cause::DiskFull, why),
        FilesErrorKind::ReadOnly | FilesErrorKind::NotAllowed if folders.open().await.is_err() => {
            NotStarted::ByCause(Cause::DiskFull, why)
        }
        _ => NotStarted::BySession(why),
    })
}

impl From<greenroom::Error> for NotStarted {
    fn from(error: greenroom::Error) -> Self {
        let why = error.to_string();
        match (Cause::of_session(&error), error.kind()) {
            (Some(cause), _) => Self::ByCause(cause, why),
            // A transcript that cannot be read is no fault of the session either.
            (None, ErrorKind::NoOpenCall) => Self::NoOpenCall(why),
            (None, ErrorKind::SessionInUse | ErrorKind::Store) => Self::ByHost(why),
            (None, _) => Self::BySession(why),
        }
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
    // Before the folders: what the service creates from now on is given to the user.
    let new_owner = user::take(shared, cell, record.conversation).await?;
    let folders = of_files(&shared.folders, shared.folders.create(record).await).await?;
    let cx = ActivationContext {
        name: cell.name.clone(),
        conversation: record.conversation,
        term: record.term,
        working_directory: folders.work.clone(),
        config_directory: folders.config.clone(),
    };
    // Beside the profile, which gives the login: it may have changed since the look.
    let credential = shared.credential(&cell.name, &record.profile);
    cell.holdings().credential = Some(credential);
    // The application's code: a panic in it is a failed activation, and no failed actor.
    let builder = std::panic::catch_unwind(AssertUnwindSafe(|| profile(&cx)))
        .map_err(|panic| format!("the profile '{}' panicked: {}", record.profile, panic_text(&*panic)))?;
    let attached = memory::attach(shared, cell, traced(builder, &record.profile), &cx, owner);
    let builder = of_files(&shared.folders, attached).await?;
    let user = new_owner.as_ref().map(|owner| owner.user);
    let builder = of_files(&shared.folders, shared.folders.apply(builder, &cx, user).await).await?;
    if let Some(new_owner) = new_owner {
        of_files(&shared.folders, shared.folders.open_to(&folders, new_owner).await).await?;
    }
    let builder = resume::attach(shared, cell, builder, record).await?;
    let mut builder = process::mark(asker::attach(shared, cell, builder, owner), claim);
    if let Some(watchdog) = &shared.fence.watchdog {
        builder = builder.watchdog(watchdog);
    }
    cell.holdings().cli_turns = Some(Arc::new(CliTurnQueue::new(builder.cli_turns())));
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

/// Finds out if a cause holds a name back. A name whose record was not read is let through.
pub(super) fn admit(shared: &FleetShared, cell: &NameCell, tries: &mut Vec<Try>) -> Result<(), Held> {
    cell.membership().map_or(Ok(()), |of| shared.health.admit(tries, &of))
}

fn tell_failed(shared: &FleetShared, cell: &NameCell, why: &str, cause: Option<Cause>) {
    let why = why.to_owned();
    shared.tell_of(cell, |name| FleetEvent::ActivationFailed { name, why, cause });
}

fn failed_by_host(shared: &FleetShared, cell: &NameCell, why: String) -> NotUp {
    tell_failed(shared, cell, &why, None);
    NotUp::Failed { why, failures: None }
}

/// Ends the session of an activation that has failed by a cause, gives the name back, and has it wait until the node tries again.
async fn failed_by_cause(
    shared: &FleetShared,
    cell: &NameCell,
    owner: Ownership,
    cause: Cause,
    why: String,
    tries: &mut Vec<Try>,
) -> NotUp {
    end_session(shared, cell).await;
    tell_failed(shared, cell, &why, Some(cause));
    let in_words = format!("{cause}: {why}");
    // Before the name is free: whoever starts next is held back.
    let queues = shared.failed_by(cause, why.clone(), cell, tries);
    match give_back_failed(shared, owner, in_words, None).await {
        Ok(_) => cell.disown(),
        Err(NotDone::Fenced) => return NotUp::Fenced,
        Err(NotDone::Error(error)) => return NotUp::Failed { why: error.to_string(), failures: None },
    }
    match admit(shared, cell, tries) {
        Err(held) if queues => NotUp::Held(held),
        _ => NotUp::Failed { why, failures: None },
    }
}

fn refused_as_quarantined(shared: &FleetShared, why: &str) -> NotUp {
    shared.tell_transitions();
    NotUp::Refused(FleetError::State(quarantined(why)))
}

/// Ends the session of a failed activation, counts the failure, and gives the name back.
async fn failed_by_session(shared: &FleetShared, cell: &NameCell, owner: Ownership, why: String) -> NotUp {
    end_session(shared, cell).await;
    tell_failed(shared, cell, &why, None);
    let counted = counted(shared, QuarantineKind::Activations, shared.limits.failures);
    let given_back = give_back_failed(shared, owner, why.clone(), counted).await;
    if given_back.is_ok() {
        cell.disown();
    }
    match given_back {
        Ok(Some(failures)) => NotUp::Failed { why, failures: Some(failures) },
        Ok(None) => refused_as_quarantined(shared, &why),
        Err(NotDone::Fenced) => NotUp::Fenced,
        Err(NotDone::Error(error)) => NotUp::Failed { why: error.to_string(), failures: None },
    }
}

/// Gives back what a name holds, but its slot: ends the session, then releases the name, or writes nothing if the name is fenced.
pub(crate) async fn give_back(shared: &FleetShared, cell: &NameCell) {
    end_session(shared, cell).await;
    let loss = cell.loss().await.filter(|loss| !loss.is_after_kill);
    let Some(owner) = cell.holdings().owner.clone() else { return };
    if shared.is_fenced(cell) {
        cell.disown();
        return shared.tell_of(cell, |name| FleetEvent::Fenced { name, term: owner.term });
    }
    let given_back = match loss {
        // The transcript has a gap: no owner goes on with it before a person has looked.
        Some(loss) => {
            let counted = counted(shared, QuarantineKind::Transcript, 1);
            give_back_failed(shared, owner, loss.why, counted).await.map(drop)
        }
        None => repeat_owned(shared, || shared.backend.release(owner.clone())).await.map(drop),
    };
    // Not before: the keeper releases a name that nobody holds, and a quarantine would find no owner then.
    cell.disown();
    if let Err(not_done) = given_back {
        // Somebody else owns the name, or the keeper releases it when the backend answers again.
        tracing::warn!(?not_done, "a name could not be released");
    }
}

/// The rule by which `intensity` failures in a period quarantine a name.
fn counted(shared: &FleetShared, kind: QuarantineKind, intensity: u32) -> Option<Counted> {
    Some(Counted { kind, period: shared.limits.failure_period, intensity })
}

/// Gives a name back with a failure.
async fn give_back_failed(
    shared: &FleetShared,
    owner: Ownership,
    why: String,
    counted: Option<Counted>,
) -> Result<Option<u32>, NotDone> {
    let failed = ActivationFailed { owner, why, counted };
    repeat_owned(shared, || shared.backend.activation_failed(failed.clone())).await
}
