//! The rules, one by one: what a name may ask, and in which order names are served.

use std::time::Duration;

use super::{AdmissionMessage, Stage};

#[test]
fn a_name_gets_a_slot_a_turn_and_its_next_turn_on_that_slot() {
    let mut stage = Stage::new(1);
    stage.ask("a1");
    assert_eq!(stage.orders(), "activate a1");
    stage.ask("a1");
    assert_eq!(stage.orders(), "", "the turn of its request has been granted");
    stage.started("a1");
    stage.ask("a1");
    assert_eq!(stage.orders(), "", "it runs");
    stage.ended("a1");
    assert_eq!(stage.orders(), "turn a1");
    stage.ended("a1");
    assert_eq!(stage.orders(), "");
}

#[test]
fn asking_twice_is_asking_once() {
    let mut stage = Stage::new(2);
    stage.ask("a1 a1");
    assert_eq!(stage.orders(), "activate a1");
    stage.started("a1");
    stage.ended("a1");
    stage.ask("a1 a1");
    assert_eq!(stage.orders(), "turn a1");
    stage.ended("a1");
    assert_eq!(stage.orders(), "");
}

#[test]
fn names_of_a_tenant_are_served_in_the_order_in_which_they_ask() {
    let mut stage = Stage::new(1);
    stage.ask("a1 a3 a2 a1");
    let mut served = Vec::new();
    for _ in 0..3 {
        let order = stage.orders();
        let name = order.strip_prefix("activate ").unwrap().to_owned();
        stage.started(&name);
        stage.ended(&name);
        stage.freed(&name);
        served.push(name);
    }
    assert_eq!(served, ["a1", "a3", "a2"]);
}

#[test]
fn a_holders_next_turn_queues_behind_other_names_of_its_tenant() {
    let mut stage = Stage::new(1);
    stage.run("a1");
    stage.ask("a1");
    stage.ask("a2");
    stage.ended("a1");
    assert_eq!(stage.orders(), "passivate a1", "a1 asked first, but queues when its turn has ended");
    stage.freed("a1");
    assert_eq!(stage.orders(), "activate a2");
}

#[test]
fn a_holder_goes_on_at_once_if_nobody_can_use_its_slot() {
    // One activation at a time: b1 cannot use a second slot while b2 starts.
    let mut stage = Stage::with(2, 1, &[]);
    stage.run("a1");
    stage.ask("b2 c1");
    assert_eq!(stage.orders(), "activate b2");
    stage.ask("a1");
    stage.ended("a1");
    assert_eq!(stage.orders(), "turn a1");
    // Once c1 can start, the holder yields.
    stage.started("b2");
    stage.ask("a1");
    stage.ended("a1");
    assert_eq!(stage.orders(), "passivate a1");
}

#[test]
fn a_warmed_name_is_idle_when_it_has_started() {
    let mut stage = Stage::new(1);
    stage.warm("a1");
    assert_eq!(stage.orders(), "activate a1");
    stage.started("a1");
    assert_eq!(stage.tally().idle, 1);
    stage.warm("a1");
    assert_eq!(stage.orders(), "", "it is warm");
    stage.ask("a1");
    assert_eq!(stage.orders(), "turn a1");
}

#[test]
fn a_turn_asked_for_while_a_name_is_warmed_is_granted_with_the_slot() {
    let mut stage = Stage::new(1);
    stage.warm("a1");
    assert_eq!(stage.orders(), "activate a1");
    stage.ask("a1");
    stage.started("a1");
    assert_eq!((stage.orders().as_str(), stage.tally().running), ("", 1));
}

#[test]
fn a_turn_replaces_a_request_to_warm_and_keeps_its_place() {
    let mut stage = Stage::new(1);
    stage.idle("b1");
    stage.warm("a1");
    stage.ask("a2 a1");
    stage.warm("a1");
    stage.seconds(5);
    assert_eq!(stage.orders(), "passivate b1");
    stage.freed("b1");
    assert_eq!(stage.orders(), "activate a1");
    stage.started("a1");
    assert_eq!(stage.tally().running, 1);
}

#[test]
fn warming_costs_a_tenant_as_much_as_a_turn() {
    let mut stage = Stage::with(2, 2, &[]);
    stage.run("z1 z2");
    for request in ["a1", "a2", "a3"] {
        stage.warm(request);
    }
    stage.ask("b1 b2");
    let mut order = Vec::new();
    for freed in ["z1", "z2", "a1", "b1", "a2"] {
        stage.freed(freed);
        order.push(stage.orders());
    }
    assert_eq!(order.join(", "), "activate a1, activate b1, activate a2, activate b2, activate a3");
}

#[test]
fn a_withdrawn_request_is_never_granted() {
    let mut stage = Stage::new(1);
    stage.run("b1");
    stage.ask("a1 a2");
    stage.withdraw("a1");
    stage.ended("b1");
    stage.freed("b1");
    assert_eq!(stage.orders(), "activate a2");
    stage.started("a2");
    stage.ask("a2");
    stage.withdraw("a2");
    stage.ended("a2");
    assert_eq!(stage.orders(), "");
    assert_eq!(stage.tally().idle, 1, "the slot stays");
}

#[test]
fn a_slot_promised_to_a_withdrawn_request_goes_to_the_next() {
    let mut stage = Stage::new(1);
    stage.idle("b1");
    stage.seconds(5);
    stage.ask("a1");
    assert_eq!(stage.orders(), "passivate b1");
    stage.withdraw("a1");
    stage.ask("c1");
    assert_eq!(stage.orders(), "", "a slot is on its way");
    stage.freed("b1");
    assert_eq!(stage.orders(), "activate c1");
}

#[test]
fn a_name_whose_turn_is_withdrawn_while_it_starts_is_idle_then() {
    let mut stage = Stage::new(1);
    stage.ask("a1");
    assert_eq!(stage.orders(), "activate a1");
    stage.withdraw("a1");
    stage.started("a1");
    assert_eq!((stage.tally().idle, stage.tally().running), (1, 0));
}

#[test]
fn a_failed_activation_frees_its_slot_and_spends_its_request() {
    let mut stage = Stage::new(1);
    stage.ask("a1 a2");
    assert_eq!(stage.orders(), "activate a1");
    stage.freed("a1");
    assert_eq!(stage.orders(), "activate a2");
    stage.ask("a1");
    stage.freed("a2");
    assert_eq!(stage.orders(), "activate a1");
}

#[test]
fn a_name_that_asks_while_it_leaves_is_activated_after_freed() {
    let mut stage = Stage::new(2);
    stage.idle("a1");
    stage.tell("a1", AdmissionMessage::Leaving);
    stage.ask("a1");
    assert_eq!(stage.orders(), "", "there is a free slot, but its own session is still there");
    stage.freed("a1");
    assert_eq!(stage.orders(), "activate a1");
}

#[test]
fn a_crashed_holder_that_asks_for_its_next_turn_is_activated_again() {
    let mut stage = Stage::new(1);
    stage.run("a1");
    stage.ask("a1");
    stage.freed("a1");
    assert_eq!(stage.orders(), "activate a1");
}

#[test]
fn reports_about_unknown_names_and_in_the_wrong_state_change_nothing() {
    let mut stage = Stage::new(1);
    stage.started("a1");
    stage.ended("a1");
    stage.busy("a1", true);
    stage.freed("a1");
    stage.tell("a1", AdmissionMessage::Leaving);
    stage.withdraw("a1");
    assert_eq!(stage.machine.counts(), Default::default());
    stage.run("a1");
    stage.started("a1");
    assert_eq!(stage.tally().running, 1);
    stage.ended("a1");
    stage.ended("a1");
    assert_eq!(stage.tally().idle, 1);
}

#[test]
fn a_draining_machine_grants_nothing() {
    let mut stage = Stage::new(1);
    stage.idle("a1");
    stage.seconds(5);
    stage.ask("a1 b1");
    stage.machine.set_draining();
    assert_eq!((stage.orders().as_str(), stage.machine.wake_at()), ("", None));
    stage.freed("a1");
    assert_eq!(stage.orders(), "");
}

#[test]
fn names_and_tenants_that_neither_hold_nor_ask_are_forgotten() {
    let mut stage = Stage::new(1);
    stage.ask("a1 b1 c1");
    stage.warm("d1");
    stage.withdraw("b1");
    assert_eq!(stage.orders(), "activate a1");
    stage.started("a1");
    stage.ended("a1");
    stage.freed("a1");
    assert_eq!(stage.orders(), "activate c1");
    stage.withdraw("d1");
    stage.freed("c1");
    let machine = &stage.machine;
    assert_eq!(machine.counts(), Default::default());
    assert_eq!((machine.seats.len(), machine.tenants.len()), (0, 0));
    let ring = &machine.ring;
    let lists = [&ring.ready, &ring.open, &ring.capped, &ring.yielding];
    assert!(lists.iter().all(|list| list.is_empty()));
    assert!(machine.promised.is_empty() && machine.resting.is_empty() && machine.rested.is_empty());
}

#[test]
fn counts_tell_what_names_of_each_tenant_do() {
    let mut stage = Stage::new(4);
    stage.run("a1");
    stage.idle("a2");
    stage.ask("b1 b2 b3");
    stage.ask("a1");
    assert_eq!(stage.orders(), "activate b1, activate b2");
    stage.tell("b2", AdmissionMessage::Leaving);
    let counts = stage.machine.counts();
    let node = counts.node;
    let all = (node.live(), node.starting, node.running, node.idle, node.leaving, node.asking);
    assert_eq!(all, (4, 1, 1, 1, 1, 2));
    let (a, b) = (counts.tenants["a"], counts.tenants["b"]);
    assert_eq!((a.live(), a.running, a.idle, a.asking), (2, 1, 1, 1));
    assert_eq!((b.live(), b.starting, b.leaving, b.asking), (2, 1, 1, 1));
}

#[test]
fn the_machine_wakes_when_a_holder_becomes_old_enough() {
    let mut stage = Stage::new(1);
    stage.idle("a1");
    let due = stage.now + Duration::from_secs(5);
    assert_eq!(stage.machine.wake_at(), None, "nobody asks");
    stage.ask("b1");
    assert_eq!(stage.orders(), "");
    assert_eq!(stage.machine.wake_at(), Some(due));
    stage.now = due - Duration::from_nanos(1);
    assert_eq!(stage.orders(), "");
    stage.now = due;
    assert_eq!(stage.orders(), "passivate a1");
    assert_eq!(stage.machine.wake_at(), None);
}

#[test]
fn the_names_of_a_tenant_come_in_the_order_in_which_their_prompts_were_accepted() {
    let mut stage = Stage::new(1);
    stage.run("a9");
    for (name, order) in [("a3", 30), ("a1", 10), ("a4", 40), ("a2", 20)] {
        stage.ask_for(name, order);
    }
    // A later prompt of the holder does not go before earlier ones of others; an earlier one would.
    stage.ask_for("a9", 35);
    stage.ended("a9");
    assert_eq!(stage.orders(), "passivate a9");
    stage.freed("a9");
    for (name, next) in [("a1", "a2"), ("a2", "a3"), ("a3", "a9"), ("a9", "a4")] {
        assert_eq!(stage.orders(), format!("activate {name}"));
        stage.started(name);
        stage.ended(name);
        stage.seconds(5);
        assert_eq!(stage.orders(), format!("passivate {name}"), "for {next}");
        stage.freed(name);
    }
    assert_eq!(stage.orders(), "activate a4");
}

#[test]
fn a_name_whose_first_prompt_is_gone_moves_to_the_place_of_its_next_one() {
    let mut stage = Stage::new(1);
    stage.run("a9");
    stage.ask_for("a1", 10);
    stage.ask_for("a2", 20);
    stage.ask_for("a1", 30);
    stage.ended("a9");
    stage.seconds(5);
    assert_eq!(stage.orders(), "passivate a9");
    stage.freed("a9");
    assert_eq!(stage.orders(), "activate a2");
}

#[test]
fn a_request_to_warm_comes_after_the_prompts_that_wait_and_before_later_ones() {
    let mut stage = Stage::new(1);
    stage.run("a9");
    stage.ask_for("a2", 20);
    stage.warm("a5");
    stage.ask_for("a3", 30);
    stage.ask_for("a1", 10);
    stage.ended("a9");
    stage.seconds(5);
    assert_eq!(stage.orders(), "passivate a9");
    stage.freed("a9");
    for name in ["a1", "a2", "a5"] {
        assert_eq!(stage.orders(), format!("activate {name}"));
        stage.started(name);
        stage.ended(name);
        stage.seconds(5);
        assert_eq!(stage.orders(), format!("passivate {name}"));
        stage.freed(name);
    }
    assert_eq!(stage.orders(), "activate a3");
}
