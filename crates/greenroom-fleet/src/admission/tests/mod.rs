//! Names in these tests are a tenant and a number: `a1` is a name of the tenant `a`.

mod fair;
mod random;
mod rules;
mod slots;

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::{Admission, Bounds, Order, Share, Want};
use crate::Name;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn tenant_of(name: &str) -> &str {
    name.trim_end_matches(|c: char| c.is_ascii_digit())
}

/// A machine, and the moment now.
struct Stage {
    machine: Admission,
    now: Instant,
}

impl Stage {
    /// Tenants have the weight 1 and no cap of their own.
    fn new(live: usize) -> Self {
        Self::with(live, live, &[])
    }

    /// `shares`: tenant, weight, cap.
    fn with(live: usize, activations_at_once: usize, shares: &[(&str, u32, usize)]) -> Self {
        let bounds = Bounds { live, activations_at_once, idle_before_eviction: Duration::from_secs(5) };
        let shares: HashMap<_, _> = shares
            .iter()
            .map(|(tenant, weight, live)| (tenant.to_string(), Share { weight: *weight, live: *live }))
            .collect();
        let default = Share { weight: 1, live: usize::MAX };
        Self { machine: Admission::new(bounds, shares, default), now: Instant::now() }
    }

    fn ask(&mut self, names: &str) {
        for text in names.split(' ') {
            self.machine.ask(&name(text), tenant_of(text), Want::Turn, None, self.now);
        }
    }

    /// The name asks for the prompt that was accepted as the `order`th.
    fn ask_for(&mut self, text: &str, order: u64) {
        self.machine.ask(&name(text), tenant_of(text), Want::Turn, Some(order), self.now);
    }

    fn warm(&mut self, text: &str) {
        self.machine.ask(&name(text), tenant_of(text), Want::Warm, None, self.now);
    }

    fn started(&mut self, names: &str) {
        for text in names.split(' ') {
            self.machine.started(&name(text), self.now);
        }
    }

    fn ended(&mut self, names: &str) {
        for text in names.split(' ') {
            self.machine.turn_ended(&name(text), self.now);
        }
    }

    fn freed(&mut self, text: &str) {
        self.machine.freed(&name(text));
    }

    fn busy(&mut self, text: &str, busy: bool) {
        self.machine.busy(&name(text), busy, self.now);
    }

    fn withdraw(&mut self, text: &str) {
        self.machine.withdraw(&name(text));
    }

    fn seconds(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    /// The orders until there is none: `activate a1, turn a2`.
    fn orders(&mut self) -> String {
        let mut orders = Vec::new();
        while let Some(order) = self.machine.next(self.now) {
            orders.push(match order {
                Order::Activate(name) => format!("activate {name}"),
                Order::Turn(name) => format!("turn {name}"),
                Order::Passivate(name) => format!("passivate {name}"),
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
