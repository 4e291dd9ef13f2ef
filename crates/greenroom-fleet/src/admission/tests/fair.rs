//! Fairness between tenants, measured over what is granted.

use std::collections::{HashMap, VecDeque};

use proptest::prelude::*;

use super::{Stage, tenant_of};
use crate::admission::{Grant, Want};

/// A node on which sessions start and end at once, and turns end one by one in the order in which they began.
struct Node {
    stage: Stage,
    running: VecDeque<String>,
    /// Prompts that wait behind the one for which the name asks.
    backlog: HashMap<String, usize>,
    /// The names that were granted a turn.
    granted: Vec<String>,
}

impl Node {
    fn new(stage: Stage) -> Self {
        Self { stage, running: VecDeque::new(), backlog: HashMap::new(), granted: Vec::new() }
    }

    fn prompts(&mut self, name: &str, prompts: usize) {
        self.backlog.insert(name.to_owned(), prompts - 1);
        self.stage.ask(name);
        self.carry_out();
    }

    /// The oldest turn ends, and its name asks for its next one.
    fn end_a_turn(&mut self) {
        let Some(name) = self.running.pop_front() else {
            self.stage.seconds(5);
            return self.carry_out();
        };
        self.stage.ended(&name);
        if let Some(left) = self.backlog.get_mut(&name).filter(|left| **left > 0) {
            *left -= 1;
            self.stage.ask(&name);
        }
        self.carry_out();
    }

    fn carry_out(&mut self) {
        while let Some((name, grant)) = self.stage.machine.next(self.stage.now) {
            match grant {
                Grant::Activate => self.stage.started(name.session()),
                Grant::Turn => {}
                Grant::Passivate => {
                    self.stage.freed(name.session());
                    continue;
                }
            }
            self.granted.push(name.session().to_owned());
            self.running.push_back(name.session().to_owned());
        }
    }

    /// Grants of each tenant since the first `from` grants.
    fn shares(&self, from: usize) -> HashMap<&str, usize> {
        let mut shares = HashMap::new();
        for name in &self.granted[from..] {
            *shares.entry(tenant_of(name)).or_insert(0) += 1;
        }
        shares
    }

    /// Grants of others from now on until the newcomer has its first turn.
    fn grants_before(&mut self, newcomer: &str) -> usize {
        let from = self.granted.len();
        self.prompts(newcomer, 1);
        for _ in 0..1_000 {
            if let Some(place) = self.granted[from..].iter().position(|name| name == newcomer) {
                return place;
            }
            self.end_a_turn();
        }
        panic!("{newcomer} was never served");
    }
}

const WEIGHTS: [(&str, u32, usize); 2] = [("heavy", 50, usize::MAX), ("b", 1, usize::MAX)];

#[test]
fn a_thousand_prompts_of_one_name_delay_another_tenant_by_one_grant() {
    for weight in ["a", "heavy"] {
        for ended in 0..60 {
            let mut node = Node::new(Stage::with(1, 1, &WEIGHTS));
            node.prompts(&format!("{weight}1"), 1_000);
            (0..ended).for_each(|_| node.end_a_turn());
            let before = node.grants_before("b1");
            assert!(before <= 1, "{weight} had {before} more turns, after {ended}");
        }
    }
}

// Guards: fair
#[test]
fn prompts_of_a_thousand_names_delay_another_tenant_by_one_grant() {
    for weight in ["a", "heavy"] {
        for ended in [0, 1, 2, 7, 49, 50, 51] {
            let mut node = Node::new(Stage::with(2, 2, &WEIGHTS));
            (0..1_000).for_each(|number| node.prompts(&format!("{weight}{number}"), 2));
            (0..ended).for_each(|_| node.end_a_turn());
            let before = node.grants_before("b1");
            assert!(before <= 1, "{weight} had {before} more turns, after {ended}");
        }
    }
}

#[test]
fn a_tenant_that_comes_back_after_silence_is_delayed_by_one_grant() {
    let mut node = Node::new(Stage::with(2, 2, &WEIGHTS));
    node.prompts("b1", 3);
    (0..3).for_each(|_| node.end_a_turn());
    node.prompts("heavy1", 1_000);
    node.prompts("heavy2", 1_000);
    // After a turn of its own, b is due again when the other has had its fifty.
    for silence in [3, 60, 60] {
        (0..silence).for_each(|_| node.end_a_turn());
        let before = node.grants_before("b2");
        assert!(before <= 1, "{before} turns after {silence}");
        node.stage.seconds(5);
    }
}

#[test]
fn silence_saves_no_credit() {
    let mut node = Node::new(Stage::new(1));
    node.prompts("b1", 1);
    node.prompts("a1", 1_000);
    (0..200).for_each(|_| node.end_a_turn());
    node.prompts("b1", 1_000);
    let from = node.granted.len();
    (0..20).for_each(|_| node.end_a_turn());
    assert_eq!(node.shares(from), HashMap::from([("a", 10), ("b", 10)]));
}

#[test]
fn a_tenant_that_is_passed_over_saves_no_credit() {
    let mut stage = Stage::with(2, 1, &[]);
    stage.run("v1");
    stage.ask("x1");
    assert_eq!(stage.orders(), "activate x1");
    // The names of t cannot be started while x1 is, and v goes on.
    stage.ask("t1 t2 t3 t4");
    for _ in 0..20 {
        stage.ask("v1");
        stage.ended("v1");
        assert_eq!(stage.orders(), "turn v1");
    }
    stage.ask("u1");
    stage.freed("x1");
    assert_eq!(stage.orders(), "activate t1");
    stage.started("t1");
    stage.ask("v1");
    stage.ended("v1");
    assert_eq!(stage.orders(), "passivate v1");
    stage.freed("v1");
    assert_eq!(stage.orders(), "activate u1");
}

// Guards: fair
#[test]
fn weights_of_two_to_one_give_two_turns_to_one() {
    for (live, shape) in [(1, 1), (2, 2), (3, 5), (4, 1)] {
        let mut node = Node::new(Stage::with(live, live, &[("a", 2, usize::MAX)]));
        for tenant in ["a", "b"] {
            (0..shape * live).for_each(|number| node.prompts(&format!("{tenant}{number}"), 10_000));
        }
        let from = node.granted.len();
        (0..600).for_each(|_| node.end_a_turn());
        let shares = node.shares(from);
        assert!(shares["a"].abs_diff(400) <= 2 && shares["b"].abs_diff(200) <= 2, "{live}: {shares:?}");
    }
}

#[test]
fn a_stream_of_new_tenants_does_not_starve_the_others() {
    let mut node = Node::new(Stage::with(1, 1, &WEIGHTS));
    node.prompts("a1", 1_000);
    node.prompts("heavy1", 1_000);
    node.end_a_turn();
    let from = node.granted.len();
    for newcomer in 0..=255 {
        // Two wait at each moment, and none of them comes back.
        let [first, second] = [newcomer / 20, newcomer % 20].map(|letter| char::from(b'a' + letter));
        node.prompts(&format!("new{first}{second}1"), 1);
        if newcomer > 0 {
            let running = node.running.front().cloned().unwrap();
            node.end_a_turn();
            if running.starts_with("new") {
                node.stage.freed(&running);
                node.carry_out();
            }
        }
    }
    let shares = node.shares(from);
    // More newcomers come than there are turns, and each has its first before anybody's second.
    assert!(shares["a"] >= 4 && shares["heavy"] >= 16, "{} {}", shares["a"], shares["heavy"]);
}

#[test]
fn a_hundred_thousand_names_that_ask_are_all_served() {
    let mut stage = Stage::new(40);
    for number in 0..100_000 {
        let tenant = format!("t{}x", number % 1_000);
        stage.asks(&format!("{tenant}{number}"), Want::Turn, None);
    }
    let mut running = VecDeque::new();
    for _ in 0..100_000 {
        while let Some((name, grant)) = stage.machine.next(stage.now) {
            assert_eq!(grant, Grant::Activate);
            stage.started(name.session());
            running.push_back(name);
        }
        let name = running.pop_front().unwrap();
        stage.ended(name.session());
        stage.freed(name.session());
    }
    assert_eq!(stage.machine.counts(), Default::default());
}

proptest! {
    /// Tenants of any weights with endless prompts; a newcomer comes at any moment.
    #[test]
    fn each_tenant_has_one_grant_at_most_before_a_newcomer(
        live in 1_usize..6,
        tenants in prop::collection::vec((1_u32..100, 1_usize..8, any::<bool>()), 1..6),
        ended in prop::collection::vec(0_usize..80, 1..6),
    ) {
        let ids: Vec<String> = (0..tenants.len()).map(|n| format!("{}x", "t".repeat(n + 1))).collect();
        let shares: Vec<_> =
            ids.iter().zip(&tenants).map(|(id, (weight, _, _))| (id.as_str(), *weight, usize::MAX)).collect();
        let mut node = Node::new(Stage::with(live, live, &shares));
        for (id, (_, names, _)) in ids.iter().zip(&tenants) {
            (0..*names).for_each(|number| node.prompts(&format!("{id}{number}"), 100_000));
        }
        for (newcomer, turns) in ended.into_iter().enumerate() {
            (0..turns).for_each(|_| node.end_a_turn());
            let from = node.granted.len();
            let id = format!("n{}n", "o".repeat(newcomer));
            let before = node.grants_before(&format!("{id}1"));
            let mut shares = node.shares(from);
            prop_assert!(before <= tenants.len(), "{before} grants");
            prop_assert_eq!(shares.remove(id.as_str()), Some(1));
            // The newcomer's grant can be followed by others in the same round of orders.
            let mut had: HashMap<&str, usize> = HashMap::new();
            for name in &node.granted[from..from + before] {
                *had.entry(tenant_of(name)).or_insert(0) += 1;
            }
            prop_assert!(had.values().all(|grants| *grants <= 1), "{:?}", had);
        }
    }

    /// Over a long window, tenants that always ask have turns in proportion to their weights.
    #[test]
    fn turns_are_in_proportion_to_weights(
        live in 1_usize..4,
        weights in prop::collection::vec(1_u32..8, 2..5),
        single in any::<bool>(),
    ) {
        // The tenant of a single name asks nothing while its turn runs.
        let live = if single { 1 } else { live };
        let ids: Vec<String> = (0..weights.len()).map(|n| format!("{}x", "t".repeat(n + 1))).collect();
        let shares: Vec<_> = ids.iter().zip(&weights).map(|(id, w)| (id.as_str(), *w, usize::MAX)).collect();
        let mut node = Node::new(Stage::with(live, live, &shares));
        for id in &ids {
            (0..if single { 1 } else { live * 2 }).for_each(|number| node.prompts(&format!("{id}{number}"), 100_000));
        }
        (0..20).for_each(|_| node.end_a_turn());
        let (from, all) = (node.granted.len(), weights.iter().sum::<u32>() as usize);
        (0..all * 10).for_each(|_| node.end_a_turn());
        let shares = node.shares(from);
        for (id, weight) in ids.iter().zip(&weights) {
            let (had, due) = (shares.get(id.as_str()).copied().unwrap_or(0), *weight as usize * 10);
            prop_assert!(had.abs_diff(due) <= 2, "{id}: {had} of {due}, {weights:?}");
        }
    }
}
