//! A session that is up: its activation, its turns, and the time between them.

use std::sync::Arc;

use greenroom::message::UsageTracker;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::machine::{NameState, Stage};
use super::release::give_back;
use super::steps::{self, Activated};
use super::turn::{self, TurnEnd};
use super::{StepEnd, Watched, watch};
use crate::actor::admitter::AdmissionMessage;
use crate::actor::context::{Activation, shown};
use crate::face::error::FleetError;
use crate::face::event::{FleetEvent, PassivatedBy};
use crate::face::profile::ActivatedFor;

impl NameState {
    pub(super) fn activate(&mut self) {
        self.enter(Stage::Activating);
        self.cell.renew_kill();
        let (name, tenant) = (shown(&self.cell.name), self.tenant.as_str());
        let span = tracing::info_span!("activation", name, tenant, term = tracing::field::Empty);
        let activated_for = if self.next.is_some() { ActivatedFor::Prompt } else { ActivatedFor::Warm };
        let (shared, cell) = (self.shared.clone(), self.cell.clone());
        self.step(async move {
            StepEnd::Activated(Box::new(
                steps::activate(&shared, &cell, activated_for).instrument(span).await,
            ))
        });
    }

    pub(super) fn activated(&mut self, activated: Activated) {
        let why = match activated {
            Activated::Up(activation) => return self.up(activation),
            Activated::Fenced => {
                self.fenced = true;
                self.not_warm("the fleet has lost the session");
                return self.begin_passivating(PassivatedBy::Failure);
            }
            Activated::Failed { why, failures } => {
                self.not_warm(&why);
                return self.back_off(failures);
            }
            Activated::Error(why) => {
                self.not_warm(&why);
                self.errors += 1;
                if self.cell.holdings().owner.is_none() {
                    return self.back_off(self.errors);
                }
                self.failed = Some(self.errors);
                return self.begin_passivating(PassivatedBy::Failure);
            }
            Activated::Stopped => {
                self.not_warm("the session was to end before it had started");
                return self.begin_passivating(PassivatedBy::Request);
            }
            Activated::Needless => {
                self.next = None;
                self.settled();
                return self.look();
            }
            Activated::Quarantined(why) => {
                self.shared.tell_transitions();
                format!("the session is quarantined: {why}")
            }
            Activated::Elsewhere(node) => {
                let (name, tenant) = (self.cell.name.clone(), self.tenant.clone());
                self.shared.tell(FleetEvent::Elsewhere { name, tenant, node });
                self.tell_warm(&FleetError::Elsewhere { node });
                String::new()
            }
            Activated::OtherHost(host) => steps::other_host(&host),
            Activated::Gone => "the session is not known any more".to_owned(),
        };
        self.not_warm(&why);
        self.next = None;
        self.settled();
        self.rest();
    }

    /// There is no session, and none was started.
    fn settled(&mut self) {
        self.free_slot();
        self.enter(Stage::Settled);
        self.passivate = None;
        self.is_passive(false);
    }

    pub(super) fn up(&mut self, activation: Activation) {
        let fence = watch::fence(&self.myself, self.cell.fenced());
        self.processes = Some((watch::processes(&self.shared, &activation), fence));
        self.live = Some((activation, Arc::new(Mutex::new(UsageTracker::new()))));
        for warm in self.warm.drain(..) {
            // An error: the caller waits no more.
            warm.send(Ok(())).ok();
        }
        self.tell_admission(AdmissionMessage::Started);
        self.enter(Stage::Idle);
        // The turn was granted with the slot, if it was asked for.
        if self.wants_turn { self.begin_turn() } else { self.settle_idle() }
    }

    /// Begins the turn that was granted, if its prompt still waits.
    pub(super) fn begin_turn(&mut self) {
        let stopping = self.fenced || self.draining || self.passivate.is_some();
        let Some(next) = self.next.take_if(|_| !stopping) else { return self.settle_idle() };
        let Some((activation, meter)) = self.live.clone() else { return self.settle_idle() };
        let (cut, interrupt) = (self.cell.renew_cut(), CancellationToken::new());
        self.enter(Stage::Running { prompt: next.id, interrupt: interrupt.clone() });
        let (shared, cell) = (self.shared.clone(), self.cell.clone());
        self.step(async move {
            let mut meter = meter.lock().await;
            StepEnd::TurnEnded(
                turn::run_turn(&shared, &cell, &activation, &mut meter, &next, &cut, &interrupt).await,
            )
        });
    }

    pub(super) fn turn_ended(&mut self, end: TurnEnd) {
        match end {
            TurnEnd::Ended => {
                self.errors = 0;
                self.settle_idle();
            }
            TurnEnd::NoSession => {
                let session = self.live.as_ref().map(|(activation, _)| &activation.session);
                // A session that was stopped by a limit of its profile may be started again at once.
                if session.is_some_and(|session| session.failure().is_some()) {
                    self.errors += 1;
                    self.failed = Some(self.errors);
                }
                self.begin_passivating(PassivatedBy::Failure);
            }
            TurnEnd::TranscriptLost => self.begin_passivating(PassivatedBy::Failure),
            TurnEnd::Cut => self.begin_passivating(PassivatedBy::Drain),
            TurnEnd::Fenced => {
                self.fenced = true;
                self.cell.kill().cancel();
                self.begin_passivating(PassivatedBy::Failure);
            }
            TurnEnd::Error(why) => {
                tracing::warn!(why, "the backend refuses a turn's request");
                self.errors += 1;
                self.failed = Some(self.errors);
                // The session is killed: nobody would write down its further work.
                self.cell.kill().cancel();
                self.begin_passivating(PassivatedBy::Failure);
            }
        }
    }

    /// The session has no turn: watches it, and looks at what waits.
    pub(super) fn settle_idle(&mut self) {
        self.tell_admission(AdmissionMessage::TurnEnded);
        self.enter(Stage::Idle);
        self.watch_idle();
        self.look();
        self.decide();
    }

    pub(super) fn watch_idle(&mut self) {
        if let Some((activation, _)) = &self.live {
            let session = activation.session.clone();
            self.watch = Some(watch::session(&self.myself, self.watches, session, &self.shared.limits));
        }
    }

    pub(super) fn watched(&mut self, what: Watched, number: u64) {
        if number != self.watches {
            return;
        }
        match what {
            Watched::Busy => self.tell_admission(AdmissionMessage::Busy(true)),
            Watched::Quiet => self.tell_admission(AdmissionMessage::Busy(false)),
            Watched::IdleOver if self.asked => {}
            Watched::IdleOver => self.begin_passivating(PassivatedBy::Idle),
            Watched::BackgroundOver => self.begin_passivating(PassivatedBy::Background),
            Watched::SessionEnded => self.begin_passivating(PassivatedBy::Failure),
            Watched::BackoffOver => {
                self.enter(Stage::Settled);
                self.look();
            }
        }
    }

    pub(super) fn begin_passivating(&mut self, by: PassivatedBy) {
        self.enter(Stage::Passivating);
        self.tell_admission(AdmissionMessage::Leaving);
        let (name, tenant) = (self.cell.name.clone(), self.tenant.clone());
        self.shared.tell(FleetEvent::Passivating { name, tenant, why: by });
        (self.live, self.processes) = (None, None);
        let (shared, cell, fenced) = (self.shared.clone(), self.cell.clone(), self.fenced);
        self.step(async move {
            give_back(&shared, &cell, fenced).await;
            StepEnd::Passivated
        });
    }

    pub(super) fn passivated(&mut self) {
        let (name, tenant) = (self.cell.name.clone(), self.tenant.clone());
        self.shared.tell(FleetEvent::Passivated { name, tenant });
        self.passivate = None;
        self.is_passive(true);
        if let Some(failures) = self.failed.take() {
            return self.back_off(failures);
        }
        if self.is_held() && !self.draining && !self.fenced {
            self.withdraw();
            self.free_slot();
            return self.hold();
        }
        if std::mem::take(&mut self.asked) {
            // Asked before the slot is free: the name keeps its place.
            self.enter(Stage::Waiting);
            self.ask();
        } else {
            self.enter(Stage::Settled);
        }
        self.free_slot();
        self.look();
    }
}
