//! Starts the supervisor's children, and notices their ends.

use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef};
use tokio::time::Instant;

use super::{FleetMessage, FleetState, NameChild};
use crate::actor::admitter::{Admitter, AdmitterMessage};
use crate::actor::cell::NameCell;
use crate::actor::context::{FleetShared, shown};
use crate::actor::keeper::Keeper;
use crate::actor::name::steps::give_back;
use crate::actor::name::{NameActor, NameContext, NameMessage, interrupt_turn, steer_turn};
use crate::actor::task::answer;
use crate::admission::Admission;
use crate::event::FleetEvent;
use crate::id::Name;
use crate::record::PromptRecord;

/// Restarts of admission within [`RESTART_PERIOD`], after which the fleet ends.
const RESTARTS: usize = 10;
const RESTART_PERIOD: Duration = Duration::from_secs(60);

type Handled = Result<(), ActorProcessingErr>;

/// Starts the keeper of a fleet.
pub(super) fn start_keeper(shared: &Arc<FleetShared>, fleet: &ActorRef<FleetMessage>) -> Keeper {
    let (wake, send) = (fleet.clone(), fleet.clone());
    let wake = move |prompts: Vec<PromptRecord>| {
        // An error: the fleet has ended.
        wake.cast(FleetMessage::Wake(prompts)).ok();
    };
    let send = move |name, message| {
        // An error: the fleet has ended.
        send.cast(FleetMessage::To { name, message: Box::new(message), start: false }).ok();
    };
    Keeper::start(shared.clone(), Arc::new(wake), Arc::new(send))
}

impl FleetState {
    pub(super) async fn start_admission(&mut self) -> Handled {
        self.admission.connect(None);
        let shared = &self.shared;
        let mut admission = Admission::new(shared.limits.clone(), shared.quotas.clone());
        for child in self.names.values() {
            let holdings = child.cell.holdings();
            if holdings.slot {
                admission.holds(&child.cell.name, holdings.session.is_none());
            }
        }
        if shared.draining.is_cancelled() {
            admission.set_draining();
        }
        let (admitter, _) = Actor::spawn_linked(None, Admitter, admission, self.myself.get_cell()).await?;
        self.admission.connect(Some(admitter));
        self.tell_names(|| NameMessage::AskAgain);
        Ok(())
    }

    pub(super) fn tell_names(&self, message: fn() -> NameMessage) {
        for actor in self.names.values().filter_map(|child| child.actor.as_ref()) {
            // An error: the actor has ended, and holds nothing.
            actor.cast(message()).ok();
        }
    }

    /// Starts a name with a prompt that may begin, or wakes it.
    pub(super) async fn wake(&mut self, next: PromptRecord) -> Handled {
        if self.names.contains_key(&next.name) || self.draining.is_some() {
            return self.send(next.name, NameMessage::Wake(Some(next.id)), false).await;
        }
        self.start_name(next.name.clone(), Some(next)).await.map(drop)
    }

    /// Sends a message to a name, and starts its actor if there is none. A passive name is woken by the keeper, which knows what
    /// waits first.
    pub(super) async fn send(&mut self, name: Name, message: NameMessage, start: bool) -> Handled {
        if let Some(child) = self.names.get_mut(&name) {
            // Only this message makes the actor look: after any other one the mark would stay, and keep further ones from it.
            if matches!(message, NameMessage::Wake(_)) && !child.cell.mark() {
                return Ok(());
            }
            match &child.actor {
                // An error: the actor has ended, and its cell is marked.
                Some(actor) => drop(actor.cast(message).ok()),
                None => child.stand_in(message),
            }
            return Ok(());
        }
        if !start || self.draining.is_some() {
            return Ok(());
        }
        if matches!(message, NameMessage::Wake(_)) {
            self.keeper.iter().for_each(|keeper| keeper.hint(name.clone()));
            return Ok(());
        }
        let actor = self.start_name(name, None).await?;
        // An error: the actor has failed at once, and is started again.
        actor.cast(message).ok();
        Ok(())
    }

    async fn start_name(
        &mut self,
        name: Name,
        next: Option<PromptRecord>,
    ) -> Result<ActorRef<NameMessage>, ActorProcessingErr> {
        let (shared, cell) = (self.shared.clone(), NameCell::new(name.clone()));
        let admission = self.admission.clone();
        let arguments = (NameContext { shared, cell: cell.clone(), admission }, next);
        let (actor, _) = Actor::spawn_linked(None, NameActor, arguments, self.myself.get_cell()).await?;
        self.shared.awake().insert(name.clone(), cell.clone());
        self.by_actor.insert(actor.get_id(), name.clone());
        self.names.insert(name, NameChild { cell, actor: Some(actor.clone()), passive: Vec::new() });
        Ok(actor)
    }

    /// A child has ended; `failed`: its error.
    pub(super) async fn ended(&mut self, id: ActorId, failed: Option<String>) -> Handled {
        if let Some(name) = self.by_actor.remove(&id) {
            return self.name_ended(name, failed).await;
        }
        if !self.admission.is_current(id) || self.left() {
            return Ok(());
        }
        let why = failed.unwrap_or_else(|| "it stopped".to_owned());
        tracing::error!(why, "the admission of the fleet has failed");
        let now = Instant::now();
        self.restarts.retain(|at| now.duration_since(*at) < RESTART_PERIOD);
        self.restarts.push(now);
        if self.restarts.len() > RESTARTS {
            let why = format!("the fleet's admission failed too often, the last time because: {why}");
            self.shared.tell(FleetEvent::Failed { why: why.clone() });
            return Err(why.into());
        }
        self.shared.tell(FleetEvent::ActorRestarted { actor: "admission".to_owned(), why });
        self.start_admission().await
    }

    async fn name_ended(&mut self, name: Name, failed: Option<String>) -> Handled {
        let Some(child) = self.names.get_mut(&name) else { return Ok(()) };
        child.actor = None;
        let cell = child.cell.clone();
        let Some(why) = failed else {
            return self.given_back(name).await;
        };
        tracing::error!(why, name = shown(&name), "the actor of a name has failed");
        self.shared.tell(FleetEvent::ActorRestarted { actor: format!("name {name}"), why });
        let (shared, myself) = (self.shared.clone(), self.myself.clone());
        self.shared.tasks.spawn(async move {
            // A running turn goes on to its outcome.
            cell.steps.close();
            cell.steps.wait().await;
            give_back(&shared, &cell).await;
            // An error: the fleet has ended.
            myself.cast(FleetMessage::GivenBack(name)).ok();
        });
        Ok(())
    }

    /// The actor of a name has ended, and holds nothing.
    pub(super) async fn given_back(&mut self, name: Name) -> Handled {
        let Some(child) = self.names.remove(&name) else { return Ok(()) };
        self.shared.awake().remove(&name);
        child.cell.holdings().slot = false;
        child.passive.into_iter().for_each(|done| answer(done, true));
        self.admission.send(AdmitterMessage::Gone(name.clone()));
        if child.cell.is_dirty() && self.draining.is_none() {
            return self.start_name(name, None).await.map(drop);
        }
        self.check_drained();
        Ok(())
    }

    /// Makes an actor fail, to test that the fleet survives it.
    #[cfg(feature = "testkit")]
    pub(super) async fn inject(&mut self, fault: crate::testkit::FleetFault) -> Handled {
        use crate::testkit::FleetFault;
        match fault {
            FleetFault::Admission => self.admission.send(AdmitterMessage::Panic),
            FleetFault::Name(name) => {
                let failed = NameMessage::Step(Err("told to panic".to_owned()));
                self.send(name, failed, false).await?;
            }
            FleetFault::Supervisor => return Err("told to fail".into()),
        }
        Ok(())
    }
}

impl NameChild {
    /// Carries a request out in place of an actor that has failed: its turn goes on. Messages that are no requests are dropped: the next
    /// actor looks for itself.
    fn stand_in(&mut self, message: NameMessage) {
        match message {
            // Answered when the session is gone. It ends after its turn in any case.
            NameMessage::Passivate { hold, done } => {
                if hold.is_some() {
                    self.cell.kill().cancel();
                }
                self.passive.push(done);
            }
            NameMessage::Interrupt { prompt, done } => {
                let Some(session) = self.cell.in_turn(prompt) else { return answer(done, Ok(false)) };
                self.cell.steps.spawn(async move { interrupt_turn(&session, done).await });
            }
            NameMessage::Steer { prompt, message, done } => {
                let Some(session) = self.cell.in_turn(prompt) else { return answer(done, Ok(false)) };
                self.cell.steps.spawn(async move { steer_turn(&session, *message, done).await });
            }
            _ => {}
        }
    }
}
