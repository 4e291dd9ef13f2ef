//! Random reports and requests, checked against a plain model of each name.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use tokio::time::Instant;

use super::{Stage, name, tenant_of};
use crate::admission::{AdmissionMessage, Grant, Want};

const IDLE: Duration = Duration::from_secs(5);
const TENANTS: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Is {
    Away,
    Starting,
    Running,
    Idle(Instant),
    Leaving,
}

#[derive(Clone, Copy, Debug)]
struct One {
    is: Is,
    want: Option<Want>,
    /// The turn that it has if it `started` now.
    turn: bool,
    busy: bool,
}

#[derive(Clone, Debug)]
enum Op {
    Ask(usize, bool),
    Withdraw(usize),
    /// The name goes on from where it is: started, turn ended, freed.
    On(usize),
    Fail(usize),
    Leave(usize),
    Busy(usize, bool),
    Pass(u64),
    /// Takes this many orders; the owner may have more to report before it takes the others.
    Orders(usize),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let one = 0_usize..12;
    let op = prop_oneof![
        6 => (one.clone(), prop::bool::weighted(0.8)).prop_map(|(n, turn)| Op::Ask(n, turn)),
        1 => one.clone().prop_map(Op::Withdraw),
        6 => one.clone().prop_map(Op::On),
        1 => one.clone().prop_map(Op::Fail),
        1 => one.clone().prop_map(Op::Leave),
        1 => (one, any::<bool>()).prop_map(|(n, busy)| Op::Busy(n, busy)),
        2 => (0_u64..7).prop_map(Op::Pass),
        6 => (0_usize..4).prop_map(Op::Orders),
        6 => Just(Op::Orders(usize::MAX)),
    ];
    prop::collection::vec(op, 1..120)
}

struct Bound {
    live: usize,
    at_once: usize,
    caps: [usize; 3],
}

struct Model {
    stage: Stage,
    bound: Bound,
    names: BTreeMap<String, One>,
}

impl Model {
    fn new(bound: Bound, weights: [u32; 3], found: usize) -> Self {
        let shares: Vec<_> = (0..3).map(|t| (TENANTS[t], weights[t], bound.caps[t])).collect();
        let mut stage = Stage::with(bound.live, bound.at_once, &shares);
        let away = One { is: Is::Away, want: None, turn: false, busy: false };
        let mut names: BTreeMap<_, _> = (0..12).map(|n| (Self::text(n), away)).collect();
        for n in 0..found {
            let text = Self::text(n);
            stage.machine.holds(&name(&text), false);
            names.get_mut(&text).unwrap().is = Is::Running;
        }
        Self { stage, bound, names }
    }

    fn text(n: usize) -> String {
        format!("{}{n}", TENANTS[n % 3])
    }

    fn holds(one: &One) -> bool {
        one.is != Is::Away
    }

    fn cap(&self, tenant: &str) -> usize {
        self.bound.caps[TENANTS.iter().position(|t| *t == tenant).unwrap()]
    }

    fn count(&self, of: impl Fn(&str, &One) -> bool) -> usize {
        self.names.iter().filter(|(text, one)| of(text, one)).count()
    }

    fn holders(&self, tenant: &str) -> usize {
        self.count(|text, one| tenant_of(text) == tenant && Self::holds(one))
    }

    fn apply(&mut self, op: &Op) {
        let now = self.stage.now;
        match *op {
            Op::Ask(n, turn) => {
                let text = Self::text(n);
                if turn {
                    self.stage.ask(&text);
                } else {
                    self.stage.warm(&text);
                }
                let one = self.names.get_mut(&text).unwrap();
                match (one.is, turn) {
                    (Is::Starting, turn) => one.turn |= turn,
                    (_, true) => one.want = Some(Want::Turn),
                    (Is::Away | Is::Leaving, false) => one.want = one.want.or(Some(Want::Warm)),
                    (Is::Idle(_), false) if one.want.is_none() => one.is = Is::Idle(now),
                    _ => {}
                }
            }
            Op::Withdraw(n) => {
                let text = Self::text(n);
                self.stage.withdraw(&text);
                let one = self.names.get_mut(&text).unwrap();
                (one.want, one.turn) = (None, false);
            }
            Op::On(n) => self.on(&Self::text(n)),
            Op::Fail(n) => self.free(&Self::text(n)),
            Op::Leave(n) => {
                let text = Self::text(n);
                self.stage.tell(&text, AdmissionMessage::Leaving);
                let one = self.names.get_mut(&text).unwrap();
                if Self::holds(one) {
                    (one.is, one.turn) = (Is::Leaving, false);
                }
            }
            Op::Busy(n, busy) => {
                let text = Self::text(n);
                self.stage.busy(&text, busy);
                let one = self.names.get_mut(&text).unwrap();
                if matches!(one.is, Is::Idle(_)) && one.busy && !busy {
                    one.is = Is::Idle(now);
                }
                one.busy = busy && Self::holds(one);
            }
            Op::Pass(seconds) => self.stage.seconds(seconds),
            Op::Orders(most) => {
                for _ in 0..most {
                    if !self.order() {
                        break;
                    }
                }
            }
        }
        self.compare();
    }

    fn on(&mut self, text: &str) {
        let now = self.stage.now;
        let one = self.names.get_mut(text).unwrap();
        match one.is {
            Is::Starting => {
                self.stage.started(text);
                one.is = if one.turn { Is::Running } else { Is::Idle(now) };
                one.turn = false;
            }
            Is::Running => {
                self.stage.ended(text);
                one.is = Is::Idle(now);
            }
            Is::Leaving => self.free(text),
            Is::Away | Is::Idle(_) => {}
        }
    }

    fn free(&mut self, text: &str) {
        self.stage.freed(text);
        let one = self.names.get_mut(text).unwrap();
        (one.is, one.turn, one.busy) = (Is::Away, false, false);
    }

    /// Takes one order and checks that it was allowed. False: there was none, and there could be none.
    fn order(&mut self) -> bool {
        let now = self.stage.now;
        let Some((name, grant)) = self.stage.machine.next(now) else {
            self.nothing_is_left_undone();
            return false;
        };
        match grant {
            Grant::Activate => {
                let text = name.session().to_owned();
                let tenant = tenant_of(&text);
                assert!(self.count(|_, one| Self::holds(one)) < self.bound.live, "capped: {text}");
                assert!(self.holders(tenant) < self.cap(tenant), "capped for {tenant}: {text}");
                assert!(self.count(|_, one| one.is == Is::Starting) < self.bound.at_once, "{text}");
                let one = self.names.get_mut(&text).unwrap();
                assert!(one.is == Is::Away && one.want.is_some(), "{text}: {one:?}");
                (one.is, one.turn) = (Is::Starting, one.want.take() == Some(Want::Turn));
            }
            Grant::Turn => {
                let one = self.names.get_mut(name.session()).unwrap();
                assert!(matches!(one.is, Is::Idle(_)) && one.want == Some(Want::Turn), "{name}: {one:?}");
                (one.is, one.want) = (Is::Running, None);
            }
            Grant::Passivate => {
                let text = name.session().to_owned();
                let one = self.names[&text];
                let Is::Idle(since) = one.is else { panic!("{text}: {one:?}") };
                assert!(!one.busy, "{text} is busy");
                assert!(one.want.is_some() || now - since >= IDLE, "{text} is idle since just now");
                let needs = |text: &str, one: &One| {
                    let own = tenant_of(text) == name.tenant().as_str();
                    let room = self.holders(tenant_of(text)) < self.cap(tenant_of(text));
                    one.is == Is::Away && one.want.is_some() && (own || room || self.leaves(tenant_of(text)))
                };
                assert!(self.count(needs) > 0, "nobody can use the slot of {text}");
                let over = self.count(|_, one| Self::holds(one)) > self.bound.live;
                if self.bound.caps.iter().all(|cap| *cap >= 12) && !over {
                    let leaving = self.count(|_, one| one.is == Is::Leaving);
                    let asking = self.count(|_, one| one.is == Is::Away && one.want.is_some());
                    assert!(leaving < asking, "one eviction too many: {text}");
                }
                self.names.get_mut(&text).unwrap().is = Is::Leaving;
            }
        }
        self.compare();
        true
    }

    fn leaves(&self, tenant: &str) -> bool {
        self.count(|text, one| tenant_of(text) == tenant && one.is == Is::Leaving) > 0
    }

    /// There was no order: no slot could serve a request that is allowed.
    fn nothing_is_left_undone(&self) {
        let live = self.count(|_, one| Self::holds(one));
        let may_start = self.count(|_, one| one.is == Is::Starting) < self.bound.at_once;
        let leaving = self.count(|_, one| one.is == Is::Leaving);
        let old =
            |one: &One| matches!(one.is, Is::Idle(since) if self.stage.now - since >= IDLE && !one.busy);
        for (text, one) in &self.names {
            assert!(!matches!(one.is, Is::Idle(_)) || one.want.is_none(), "{text} could go on");
            if one.is != Is::Away || one.want.is_none() || !may_start {
                continue;
            }
            let tenant = tenant_of(text);
            let (mine, cap) = (self.holders(tenant), self.cap(tenant));
            assert!(live >= self.bound.live || mine >= cap, "there is a slot for {text}");
            if leaving == 0 && cap > 0 {
                let victims = self.count(|other, one| old(one) && (mine < cap || tenant_of(other) == tenant));
                assert_eq!(victims, 0, "a holder could make room for {text}");
                let young = |other: &str, one: &One| {
                    matches!(one.is, Is::Idle(_)) && !one.busy && (mine < cap || tenant_of(other) == tenant)
                };
                if self.count(young) > 0 {
                    let wake =
                        self.stage.machine.wake_at().expect("somebody waits for a holder to be old enough");
                    assert!(wake > self.stage.now && wake <= self.stage.now + IDLE);
                }
            }
        }
    }

    fn compare(&self) {
        let (counts, node) = (self.stage.machine.counts(), self.stage.tally());
        let is = |wanted: fn(&Is) -> bool| self.count(|_, one| wanted(&one.is));
        assert_eq!(node.live(), self.count(|_, one| Self::holds(one)));
        assert_eq!(node.starting, is(|is| *is == Is::Starting));
        assert_eq!(node.running, is(|is| *is == Is::Running));
        assert_eq!(node.idle, is(|is| matches!(is, Is::Idle(_))));
        assert_eq!(node.leaving, is(|is| *is == Is::Leaving));
        assert_eq!(node.asking, self.count(|_, one| one.want.is_some()));
        for tenant in TENANTS {
            let known =
                self.count(|text, one| tenant_of(text) == tenant && (Self::holds(one) || one.want.is_some()));
            assert_eq!(counts.tenants.contains_key(tenant), known > 0, "{tenant}");
            let live = counts.tenants.get(tenant).map_or(0, |tally| tally.live());
            assert_eq!(live, self.holders(tenant));
        }
    }

    /// All that is under way ends, nobody asks anew: every request is served in a bounded number of rounds.
    fn finish(&mut self) {
        let texts: Vec<_> = self.names.keys().cloned().collect();
        for round in 0.. {
            while self.order() {}
            let asks = |text: &str, one: &One| one.want.is_some() && self.cap(tenant_of(text)) > 0;
            if self.count(asks) == 0 {
                break;
            }
            assert!(round < 60, "not served: {:?}", self.names);
            for text in &texts {
                self.stage.busy(text, false);
                let (now, one) = (self.stage.now, self.names.get_mut(text).unwrap());
                if matches!(one.is, Is::Idle(_)) && one.busy {
                    one.is = Is::Idle(now);
                }
                one.busy = false;
                self.on(text);
            }
            self.stage.seconds(5);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    // Guards: capped
    #[test]
    fn bounds_hold_and_every_request_is_served_whatever_happens(
        live in 1_usize..6,
        at_once in 1_usize..4,
        caps in prop_oneof![Just([12; 3]), prop::array::uniform3(0_usize..4)],
        weights in prop::array::uniform3(1_u32..5),
        found in prop_oneof![3 => Just(0_usize), 1 => 0_usize..6],
        ops in ops(),
    ) {
        let mut model = Model::new(Bound { live, at_once, caps }, weights, found);
        for op in &ops {
            model.apply(op);
        }
        model.finish();
    }
}
