//! The actor of admission: it owns the [`Admission`] and carries out its orders.
//!
//! If it fails, its supervisor starts another one with the names that hold a slot. Each start has a number, the generation, so
//! that a slot granted by an earlier generation is not taken.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::cell::NameCell;
use super::context::FleetShared;
use super::name::NameMessage;
use super::task::Task;
use crate::admission::{Admission, Bounds, Counts, Order, Share, Want};
use crate::id::Name;
use crate::limits::Quota;

/// An order of admission to a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grant {
    /// Start the session: a slot is free for it.
    Activate,
    /// Begin a turn.
    Turn,
    /// End the session: another name needs the slot.
    Passivate,
}

/// A message of a name to admission.
pub(crate) enum AdmissionMessage {
    Ask {
        tenant: String,
        want: Want,
        /// The place of the prompt in the order in which all prompts were accepted.
        order: Option<u64>,
        actor: ActorRef<NameMessage>,
    },
    /// The name holds a slot, and this is its actor.
    Known {
        actor: ActorRef<NameMessage>,
    },
    Withdraw,
    Started,
    TurnEnded,
    /// The name ends its session by itself.
    Leaving,
    Busy(bool),
    /// The slot is free.
    Freed,
    /// The actor of the name has ended. Its slot is free.
    Gone,
}

/// A message to the actor of admission.
pub(crate) enum AdmitterMessage {
    Of(Name, AdmissionMessage),
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

/// The way to the actor of admission, whichever it is.
#[derive(Clone, Default)]
pub(crate) struct AdmissionLink(Arc<Mutex<Link>>);

#[derive(Default)]
struct Link {
    actor: Option<ActorRef<AdmitterMessage>>,
    generation: u64,
}

impl AdmissionLink {
    fn link(&self) -> std::sync::MutexGuard<'_, Link> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new generation begins: what earlier ones have granted and nobody has taken is void.
    pub(crate) fn next_generation(&self) -> u64 {
        let mut link = self.link();
        (link.actor, link.generation) = (None, link.generation + 1);
        link.generation
    }

    pub(crate) fn connect(&self, actor: ActorRef<AdmitterMessage>) {
        self.link().actor = Some(actor);
    }

    /// Tells admission. A message that it misses because it fails is told again by `AskAgain`.
    pub(crate) fn tell(&self, name: &Name, message: AdmissionMessage) {
        self.send(AdmitterMessage::Of(name.clone(), message));
    }

    pub(crate) fn send(&self, message: AdmitterMessage) {
        let actor = self.link().actor.clone();
        if let Some(actor) = actor {
            actor.cast(message).ok();
        }
    }

    /// True until a later generation begins.
    pub(crate) fn is_current(&self, generation: u64) -> bool {
        self.link().generation == generation
    }

    /// Takes the slot that a generation has granted. `false`: another generation has begun, and does not know of it.
    pub(crate) fn take_slot(&self, cell: &NameCell, generation: u64) -> bool {
        // The cell is locked first: a generation that begins now reads the cell after this.
        let mut holdings = cell.holdings();
        if self.link().generation != generation {
            return false;
        }
        holdings.slot = true;
        true
    }
}

/// The actor of admission.
pub(crate) struct Admitter;

pub(crate) struct AdmitterArguments {
    pub(crate) shared: Arc<FleetShared>,
    pub(crate) generation: u64,
    /// Names that hold a slot.
    pub(crate) holders: Vec<Holder>,
}

/// A name that holds a slot when admission is restarted.
pub(crate) struct Holder {
    pub(crate) name: Name,
    pub(crate) tenant: String,
    /// Its session is not up yet.
    pub(crate) starting: bool,
}

pub(crate) struct AdmitterState {
    admission: Admission,
    generation: u64,
    actors: HashMap<Name, ActorRef<NameMessage>>,
    timer: Option<Task>,
}

impl AdmitterState {
    fn told(&mut self, name: Name, message: AdmissionMessage, now: Instant) {
        match message {
            AdmissionMessage::Ask { tenant, want, order, actor } => {
                self.actors.insert(name.clone(), actor);
                self.admission.ask(&name, &tenant, want, order, now);
            }
            AdmissionMessage::Known { actor } => {
                self.actors.insert(name, actor);
            }
            AdmissionMessage::Withdraw => self.admission.withdraw(&name),
            AdmissionMessage::Started => self.admission.started(&name, now),
            AdmissionMessage::TurnEnded => self.admission.turn_ended(&name, now),
            AdmissionMessage::Leaving => self.admission.leaving(&name),
            AdmissionMessage::Busy(busy) => self.admission.busy(&name, busy, now),
            AdmissionMessage::Freed => self.admission.freed(&name),
            AdmissionMessage::Gone => {
                self.actors.remove(&name);
                self.admission.withdraw(&name);
                self.admission.freed(&name);
            }
        }
    }

    fn carry_out(&mut self, myself: &ActorRef<AdmitterMessage>) {
        let now = Instant::now();
        while let Some(order) = self.admission.next(now) {
            let (name, grant) = match order {
                Order::Activate(name) => (name, Grant::Activate),
                Order::Turn(name) => (name, Grant::Turn),
                Order::Passivate(name) => (name, Grant::Passivate),
            };
            let actor = self.actors.get(&name);
            // An error: the actor has ended, and its supervisor says `Gone`.
            actor.map(|actor| actor.cast(NameMessage::Granted(grant, self.generation)).ok());
        }
        let myself = myself.clone();
        self.timer = self.admission.wake_at().map(|at| {
            Task::spawn(async move {
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
    type Arguments = AdmitterArguments;

    async fn pre_start(
        &self,
        _: ActorRef<AdmitterMessage>,
        arguments: AdmitterArguments,
    ) -> Result<AdmitterState, ActorProcessingErr> {
        let AdmitterArguments { shared, generation, holders } = arguments;
        let limits = &shared.limits;
        let bounds = Bounds {
            live: limits.live,
            activations_at_once: limits.activations_at_once,
            idle_before_eviction: limits.idle_before_eviction,
        };
        let share = |quota: &Quota| Share { weight: quota.weight, live: quota.live };
        let shares = shared.quotas.iter().map(|(tenant, quota)| (tenant.clone(), share(quota))).collect();
        let mut admission = Admission::new(bounds, shares, share(&shared.default_quota));
        for Holder { name, tenant, starting } in &holders {
            admission.holds(name, tenant, *starting);
        }
        if shared.draining.is_cancelled() {
            admission.set_draining();
        }
        Ok(AdmitterState { admission, generation, actors: HashMap::new(), timer: None })
    }

    async fn handle(
        &self,
        myself: ActorRef<AdmitterMessage>,
        message: AdmitterMessage,
        state: &mut AdmitterState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            AdmitterMessage::Of(name, message) => state.told(name, message, Instant::now()),
            AdmitterMessage::Timer => {}
            AdmitterMessage::Drain => state.admission.set_draining(),
            AdmitterMessage::Counts(reply) => {
                // An error: nobody waits for the counts any more.
                reply.send(state.admission.counts()).ok();
            }
            #[cfg(feature = "testkit")]
            AdmitterMessage::Panic => panic!("told to panic"),
        }
        state.carry_out(&myself);
        Ok(())
    }
}
