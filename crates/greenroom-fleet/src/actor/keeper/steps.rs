//! The steps of the keeper's duties. Each asks the backend, and says when the duty's next moment is.
//!
//! A command of another node to a session that this node owns:
//!
//! ```text
//!  listed ── take_command ──► taken ── a message to the name's actor ──► its answer ── finish_command ──► the caller reads the result
//!              └── another owner, the deadline ──► withdrawn
//! ```
//!
//! A command is taken before its message is sent, so no other owner carries it out again. If this node is lost in between, nobody
//! carries it out, and the caller learns that its outcome is not known.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::looks::Looks;
use super::quotas::QuotaWatch;
use super::watch::NodeWatch;
use super::{DUTIES, Duty, LOOK, NextMoment, SECOND, SendToName, WakeNames};
use crate::actor::context::{FleetShared, shown};
use crate::actor::deletion::Resumed;
use crate::actor::name::NameMessage;
use crate::actor::retry::repeat;
use crate::backend::Requests;
use crate::error::FleetError;
use crate::id::{AttemptId, CommandId, Name, Term, Timestamp};
use crate::lock::locked;
use crate::pages::{all_holds, all_of};
use crate::record::{CommandKind, CommandRecord, CommandResult};
use crate::request::{Owned, Ownership, Page};

/// Prompts or questions that expire in one request, and requests in one step.
const EXPIRE: usize = 256;
const EXPIRE_ROUNDS: usize = 8;
/// Outcomes that are forgotten in one request.
const FORGET: usize = 500;
/// Requests of a step that forget prompts.
const FORGETS: usize = 16;
/// The time for which commands are kept after their deadline, if the outcomes are kept for so long.
const COMMANDS: Duration = Duration::from_secs(3600);
/// The time for which a credential stays held that nobody tries.
const HOLDS: Duration = Duration::from_secs(7 * 24 * 3600);
/// Deletions of one step.
const DELETE: usize = 16;
const MINUTE: Duration = Duration::from_secs(60);
/// The time for which a session stays asleep after it has made way: the caller quarantines or deletes the name meanwhile.
const MADE_WAY: Duration = Duration::from_secs(2);
/// Characters of an error that are kept for the caller.
const WHY: usize = 1000;

/// The things that all steps share.
pub(crate) struct KeeperContext {
    pub(super) shared: Arc<FleetShared>,
    send: SendToName,
    /// A hint for each duty.
    pub(super) hints: [Notify; DUTIES.len()],
    looks: Looks,
    /// Only the duty that deletes uses them.
    deletions: tokio::sync::Mutex<Resumed>,
    strangers: Mutex<HashSet<(Name, Term)>>,
    /// The commands that the last look has found: they are being carried out.
    commands: Mutex<HashSet<CommandId>>,
    watch: NodeWatch,
    pub(super) quotas: Arc<QuotaWatch>,
}

impl KeeperContext {
    pub(super) fn new(shared: Arc<FleetShared>, wake: WakeNames, send: SendToName) -> Self {
        let quotas = Arc::<QuotaWatch>::default();
        let looks = Looks::new(shared.clone(), wake, send.clone(), quotas.clone());
        let (hints, deletions, strangers, commands, watch) = Default::default();
        Self { shared, send, hints, looks, deletions, strangers, commands, watch, quotas }
    }

    /// Says that there may be something to do for a duty.
    pub(super) fn hint(&self, duty: Duty) {
        self.hints[duty as usize].notify_one();
    }

    /// Says that something may wait for a name; `None`: for any name.
    pub(super) fn hint_to_wake(&self, name: Option<Name>) {
        self.looks.hint(name);
        self.hint(Duty::Wake);
    }

    pub(super) async fn step(&self, duty: Duty, is_hinted: bool) -> NextMoment {
        match duty {
            Duty::Renew => self.watch.renew(&self.shared).await,
            Duty::Expire => self.expire().await,
            Duty::Wake => self.looks.step().await,
            Duty::Forget => self.forget().await,
            Duty::Delete => self.delete().await,
            Duty::Release => self.release().await,
            Duty::Watch => self.watch.look(&self.shared).await,
            Duty::Command => self.carry_out_commands(is_hinted).await,
            Duty::Quotas => self.read_quotas().await,
            Duty::Holds => self.read_holds().await,
        }
    }

    async fn read_quotas(&self) -> NextMoment {
        let changed = self.quotas.look(&self.shared).await?;
        if !changed.is_empty() {
            // A tenant may have money or slots that it had not.
            self.looks.requote(&changed);
            self.hint_to_wake(None);
        }
        Ok(Instant::now() + LOOK)
    }

    async fn read_holds(&self) -> NextMoment {
        self.shared.learn_holds(None).await?;
        Ok(Instant::now() + LOOK)
    }

    async fn expire(&self) -> NextMoment {
        let backend = &self.shared.backend;
        for _ in 0..EXPIRE_ROUNDS {
            let prompts = backend.expire_prompts(EXPIRE).await?;
            let questions = backend.expire_questions(EXPIRE).await?;
            if prompts < EXPIRE && questions.len() < EXPIRE {
                let next = backend.next_expiry().await?;
                let pause = next.map_or(LOOK, |at| LOOK.min(at.since(backend.now())));
                return Ok(Instant::now() + pause);
            }
        }
        Ok(Instant::now())
    }

    async fn forget(&self) -> NextMoment {
        let (backend, retention) = (&self.shared.backend, self.shared.limits.retention);
        let start = Timestamp::default();
        let before = |time| start.after(backend.now().since(start).saturating_sub(time));
        let mut forgotten = 0;
        // A request does a bounded amount of work, so only 0 says that nothing is left.
        for _ in 0..FORGETS {
            match backend.forget(before(retention), FORGET).await? {
                0 => break,
                some => forgotten += some,
            }
        }
        forgotten = forgotten.max(backend.forget_commands(before(retention.min(COMMANDS)), FORGET).await?);
        let mut holds = all_holds(&**backend).await?;
        holds.retain(|hold| hold.until < before(HOLDS));
        for hold in holds.into_iter().take(FORGET) {
            forgotten += usize::from(backend.forget_hold(hold.credential, before(HOLDS)).await?);
        }
        backend.seal_feed().await?;
        for _ in 0..FORGETS {
            let usage = backend.forget_usage(before(self.shared.limits.usage)).await?;
            let feed = backend.forget_feed().await?;
            if usage + feed == 0 {
                break;
            }
            forgotten = forgotten.max(usage + feed);
        }
        let pause = if forgotten == 0 { (retention / 10).clamp(SECOND, MINUTE) } else { SECOND };
        Ok(Instant::now() + pause)
    }

    /// Removes files of deleted names on this host, and goes on with deletions that a crash, or files that could not be removed, have left.
    async fn delete(&self) -> NextMoment {
        let mut deletions = self.deletions.lock().await;
        deletions.resume(&self.shared, DELETE).await?;
        Ok(deletions.next_step())
    }

    /// Releases names that the backend counts for this node by a claim that no actor knows, if two looks in a row have found
    /// them.
    async fn release(&self) -> NextMoment {
        let shared = &self.shared;
        let listed = all_of(|last: Option<&(Name, Term, AttemptId)>| {
            let page = Page { after: last.map(|(name, ..)| name.clone()), limit: Page::MOST };
            shared.backend.owned_names(shared.node, page)
        });
        let listed = listed.await?;
        let strangers: HashSet<_> = {
            // Read after the answers of the backend, so that a claim that was answered meanwhile is known.
            let awake = shared.awake();
            let claim_of = |name: &Name| awake.get(name).and_then(|cell| cell.holdings().claim);
            let strangers = listed.into_iter().filter(|(name, _, claim)| claim_of(name) != Some(*claim));
            strangers.map(|(name, term, _)| (name, term)).collect()
        };
        let before = std::mem::replace(&mut *locked(&self.strangers), strangers.clone());
        for (name, term) in strangers.intersection(&before) {
            let owner = Ownership { name: name.clone(), node: shared.node, term: *term };
            // `Fenced`: somebody else has released it.
            if let Owned::Done(_) = shared.backend.release(owner).await? {
                tracing::warn!(name = shown(name), %term, "released a name without an owner");
            }
        }
        Ok(Instant::now() + LOOK)
    }

    /// Begins to carry out the commands that wait for this node.
    async fn carry_out_commands(&self, is_hinted: bool) -> NextMoment {
        let shared = &self.shared;
        let next = Instant::now() + if shared.has_peers() { SECOND } else { LOOK };
        // Other nodes give commands to owners only. Programs of operators do so over an exclusive backend, too, and their hints are not lost.
        let may_wait = shared.has_peers() && !shared.awake().is_empty();
        if !(is_hinted || may_wait) {
            return Ok(next);
        }
        let listed = shared.backend.commands(shared.node, CommandRecord::NODE).await?;
        // A command stays listed until it is taken.
        let ids = listed.iter().map(|command| command.id).collect();
        let begun = std::mem::replace(&mut *locked(&self.commands), ids);
        for command in listed.into_iter().filter(|command| !begun.contains(&command.id)) {
            let (fleet, send) = (shared.clone(), self.send.clone());
            shared.tasks.spawn(async move { carry_out(&fleet, &send, command).await });
        }
        Ok(next)
    }
}

/// Takes a command, carries it out, and writes its result.
async fn carry_out(shared: &FleetShared, send: &SendToName, command: CommandRecord) {
    let (id, attempt) = (command.id, AttemptId::new());
    match repeat(shared, || shared.backend.take_command(id, command.owner.clone(), attempt)).await {
        Ok(Owned::Done(true)) => {}
        refused => {
            // Nobody takes the command any more, so the caller need not wait for its deadline.
            tracing::debug!(command = %id, ?refused, "a command could not be taken");
            if let Err(error) = repeat(shared, || shared.backend.withdraw_command(id)).await {
                tracing::debug!(command = %id, %error, "a command could not be withdrawn; its caller does so");
            }
            return;
        }
    }
    if !shared.holds_lease() {
        // The session is being killed, and its turn ends with its owner.
        return;
    }
    let is_to_make_way = command.kind == CommandKind::MakeWay;
    // The session is not activated while the guard is kept.
    let (_guard, hold) = oneshot::channel();
    let result = result_of(send, command, hold).await;
    if let Err(error) = repeat(shared, || shared.backend.finish_command(id, attempt, result.clone())).await {
        tracing::warn!(command = %id, %error, "the result of a command could not be kept; its caller does not learn it");
    }
    if is_to_make_way {
        tokio::time::sleep(MADE_WAY).await;
    }
}

/// Has the name's actor do it.
async fn result_of(send: &SendToName, command: CommandRecord, hold: oneshot::Receiver<()>) -> CommandResult {
    let name = command.owner.name;
    // An error: the name is passive, or its actor has ended before it read the message.
    let answer = match command.kind {
        CommandKind::Interrupt { prompt } => {
            let (done, answer) = oneshot::channel();
            send(name, NameMessage::Interrupt { prompt: Some(prompt), done });
            answer.await.unwrap_or(Ok(false))
        }
        CommandKind::Steer { prompt, message } => match serde_json::from_str(&message) {
            Ok(message) => {
                let (done, answer) = oneshot::channel();
                send(name, NameMessage::Steer { prompt: Some(prompt), message, done });
                answer.await.unwrap_or(Ok(false))
            }
            Err(error) => Err(FleetError::State(format!("the owner cannot read the message: {error}"))),
        },
        CommandKind::Warm => {
            let (done, answer) = oneshot::channel();
            send(name, NameMessage::Warm(done));
            answer.await.map_or(Ok(false), |warm| warm.map(|()| true))
        }
        CommandKind::Passivate | CommandKind::MakeWay => {
            let hold = (command.kind == CommandKind::MakeWay).then_some(hold);
            let (done, answer) = oneshot::channel();
            send(name, NameMessage::Passivate { hold, done });
            Ok(answer.await.unwrap_or(false))
        }
    };
    match answer {
        Ok(true) => CommandResult::Done,
        Ok(false) => CommandResult::Nothing,
        Err(error) => CommandResult::Failed { why: error.to_string().chars().take(WHY).collect() },
    }
}
