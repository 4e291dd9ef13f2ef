//! The actor of admission: it owns the [`Admission`] and carries out its orders.
//!
//! If it fails, its supervisor starts another one with the names that hold a slot. A grant carries the id of the actor that has granted it,
//! so that a slot granted by an earlier actor is not taken.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, DerivedActorRef};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::cell::NameCell;
use super::task::{Task, answer, spawn};
use crate::admission::{Admission, AdmissionMessage, Counts, Grant};
use crate::id::{Name, Tenant};
use crate::lock::locked;

/// A message to the actor of admission.
pub(crate) enum AdmitterMessage {
    /// A message of a name, whose actor gets the grants.
    Of(Name, AdmissionMessage, DerivedActorRef<Granted>),
    /// The actor of the name has ended: it wants nothing, and its slot is free.
    Gone(Name),
    /// Names of these tenants may be free on other nodes.
    Lift(Vec<Tenant>),
    /// The quotas of these tenants have changed.
    Requote(Vec<Tenant>),
    /// Time has passed.
    Timer,
    Drain,
    Counts(oneshot::Sender<Counts>),
    /// Panics, to test that the fleet survives it.
    #[cfg(feature = "testkit")]
    Panic,
}

#[cfg(feature = "cluster")]
impl ractor::Message for AdmitterMessage {}

/// A grant to a name, from this actor of admission.
pub(crate) struct Granted {
    pub(crate) grant: Grant,
    pub(crate) by: ActorId,
}

#[cfg(feature = "cluster")]
impl ractor::Message for Granted {}

/// The way to the actor of admission, whichever it is.
#[derive(Clone, Default)]
pub(crate) struct AdmissionLink(Arc<Mutex<Option<ActorRef<AdmitterMessage>>>>);

impl AdmissionLink {
    /// Connects the names with an actor. `None`: the next actor is being started, and all that earlier ones have granted and nobody has
    /// taken is void.
    pub(crate) fn connect(&self, actor: Option<ActorRef<AdmitterMessage>>) {
        *locked(&self.0) = actor;
    }

    /// Tells admission. A message that it misses because it fails is told again by `AskAgain`.
    pub(crate) fn send(&self, message: AdmitterMessage) {
        let actor = locked(&self.0).clone();
        if let Some(actor) = actor {
            actor.cast(message).ok();
        }
    }

    /// True until the next actor is started.
    pub(crate) fn is_current(&self, admitter: ActorId) -> bool {
        locked(&self.0).as_ref().is_some_and(|actor| actor.get_id() == admitter)
    }

    /// Takes the slot that an actor has granted. `false`: the next actor is being started, and does not know of it.
    pub(crate) fn take_slot(&self, cell: &NameCell, admitter: ActorId) -> bool {
        // The cell is locked first: an actor that is started now gets the cell's holdings after this.
        let mut holdings = cell.holdings();
        if !self.is_current(admitter) {
            return false;
        }
        holdings.slot = true;
        true
    }
}

/// The actor of admission.
pub(crate) struct Admitter;

pub(crate) struct AdmitterState {
    admission: Admission,
    actors: HashMap<Name, DerivedActorRef<Granted>>,
    timer: Option<Task>,
}

impl AdmitterState {
    fn carry_out(&mut self, myself: &ActorRef<AdmitterMessage>) {
        let now = Instant::now();
        while let Some((name, grant)) = self.admission.next(now) {
            let actor = self.actors.get(&*name);
            // An error: the actor has ended, and its supervisor says `Gone`.
            actor.map(|actor| actor.cast(Granted { grant, by: myself.get_id() }).ok());
        }
        let myself = myself.clone();
        self.timer = self.admission.wake_at().map(|at| {
            spawn(async move {
                tokio::time::sleep_until(at).await;
                // An error: admission has ended.
                myself.cast(AdmitterMessage::Timer).ok();
            })
        });
    }
}

#[cfg_attr(feature = "async-trait", ractor::async_trait)]
impl Actor for Admitter {
    type Msg = AdmitterMessage;
    type State = AdmitterState;
    /// With the names that hold a slot.
    type Arguments = Admission;

    async fn pre_start(
        &self,
        _: ActorRef<AdmitterMessage>,
        admission: Admission,
    ) -> Result<AdmitterState, ActorProcessingErr> {
        Ok(AdmitterState { admission, actors: HashMap::new(), timer: None })
    }

    async fn handle(
        &self,
        myself: ActorRef<AdmitterMessage>,
        message: AdmitterMessage,
        state: &mut AdmitterState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            AdmitterMessage::Of(name, message, actor) => {
                state.admission.handle(&name, message, Instant::now());
                state.actors.insert(name, actor);
            }
            AdmitterMessage::Gone(name) => {
                state.admission.handle(&name, AdmissionMessage::Withdraw, Instant::now());
                state.admission.handle(&name, AdmissionMessage::Freed, Instant::now());
                state.actors.remove(&name);
            }
            AdmitterMessage::Lift(tenants) => tenants.iter().for_each(|tenant| state.admission.lift(tenant)),
            AdmitterMessage::Requote(tenants) => state.admission.requote(&tenants),
            AdmitterMessage::Timer => {}
            AdmitterMessage::Drain => state.admission.set_draining(),
            AdmitterMessage::Counts(reply) => answer(reply, state.admission.counts()),
            #[cfg(feature = "testkit")]
            AdmitterMessage::Panic => panic!("told to panic"),
        }
        state.carry_out(&myself);
        Ok(())
    }
}
