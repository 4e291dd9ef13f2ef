//! Names in these tests are a tenant and a number: `a1` is a name of the tenant `a`.

mod fair;
mod random;
mod rules;
mod slots;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Admission, AdmissionMessage, Grant, Tally, Want};
use crate::Name;
use crate::limits::{FleetLimits, Quota, Quotas};

fn name(text: &str) -> Name {
    format!("{}/{text}", tenant_of(text)).parse().unwrap()
}

fn tenant_of(name: &str) -> &str {
    name.trim_end_matches(|c: char| c.is_ascii_digit())
}

/// A machine, and the moment now.
struct Stage {
    machine: Admission,
    quotas: Arc<Quotas>,
    now: Instant,
}

impl Stage {
    /// Tenants have the weight 1 and no cap of their own.
    fn new(live: usize) -> Self {
        Self::with(live, live, &[])
    }

    /// `shares`: tenant, weight, cap.
    fn with(live: usize, activations_at_once: usize, shares: &[(&str, u32, usize)]) -> Self {
        let limits = FleetLimits { live, activations_at_once, ..FleetLimits::default() };
        let quotas: HashMap<_, _> = shares
            .iter()
            .map(|(tenant, weight, live)| {
                (crate::stage::tenant(tenant), Quota::default().weight(*weight).live(*live))
            })
            .collect();
        let quotas = Arc::new(Quotas::new(quotas, Quota::default()));
        Self { machine: Admission::new(limits, quotas.clone()), quotas, now: Instant::now() }
    }

    fn tell(&mut self, text: &str, message: AdmissionMessage) {
        self.machine.handle(&name(text), message, self.now);
    }

    fn asks(&mut self, text: &str, want: Want, order: Option<u64>) {
        self.tell(text, AdmissionMessage::Ask { want, order });
    }

    fn tally(&self) -> Tally {
        self.machine.counts().node
    }

    fn ask(&mut self, names: &str) {
        for text in names.split(' ') {
            self.asks(text, Want::Turn, None);
        }
    }

    /// The name asks for the prompt that was accepted as the `order`th.
    fn ask_for(&mut self, text: &str, order: u64) {
        self.asks(text, Want::Turn, Some(order));
    }

    fn warm(&mut self, text: &str) {
        self.asks(text, Want::Warm, None);
    }

    fn started(&mut self, names: &str) {
        for text in names.split(' ') {
            self.tell(text, AdmissionMessage::Started);
        }
    }

    fn ended(&mut self, names: &str) {
        for text in names.split(' ') {
            self.tell(text, AdmissionMessage::TurnEnded);
        }
    }

    fn freed(&mut self, text: &str) {
        self.tell(text, AdmissionMessage::Freed);
    }

    fn busy(&mut self, text: &str, busy: bool) {
        self.tell(text, AdmissionMessage::Busy(busy));
    }

    fn withdraw(&mut self, text: &str) {
        self.tell(text, AdmissionMessage::Withdraw);
    }

    fn seconds(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    /// The orders until there is none: `activate a1, turn a2`.
    fn orders(&mut self) -> String {
        let mut orders = Vec::new();
        while let Some((name, grant)) = self.machine.next(self.now) {
            let name = name.session();
            orders.push(match grant {
                Grant::Activate => format!("activate {name}"),
                Grant::Turn => format!("turn {name}"),
                Grant::Passivate => format!("passivate {name}"),
            });
        }
        orders.join(", ")
    }

    /// The names ask, get their slots and run.
    fn run(&mut self, names: &str) {
        for text in names.split(' ') {
            self.ask(text);
            assert_eq!(self.orders(), format!("activate {text}"));
            self.started(text);
        }
    }

    /// The names ask, get their slots, run and are idle.
    fn idle(&mut self, names: &str) {
        self.run(names);
        self.ended(names);
    }
}
