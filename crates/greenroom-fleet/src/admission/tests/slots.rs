//! Bounds, and who makes room for whom.

use super::{AdmissionMessage, Stage, name};
use crate::limits::Quota;
use crate::stage::tenant;

// Guards: capped
#[test]
fn holders_never_exceed_live_until_a_slot_is_freed() {
    let mut stage = Stage::new(2);
    stage.ask("a1 b1 c1");
    assert_eq!(stage.orders(), "activate a1, activate b1");
    stage.started("a1 b1");
    stage.ended("a1");
    stage.tell("a1", AdmissionMessage::Leaving);
    assert_eq!(stage.orders(), "", "a holder that leaves still has its slot");
    stage.freed("a1");
    assert_eq!(stage.orders(), "activate c1");
}

#[test]
fn activations_under_way_never_exceed_their_bound() {
    let mut stage = Stage::with(4, 2, &[]);
    stage.ask("a1 b1 c1 d1");
    assert_eq!(stage.orders(), "activate a1, activate b1");
    stage.started("b1");
    assert_eq!(stage.orders(), "activate c1");
    stage.freed("a1");
    assert_eq!(stage.orders(), "activate d1");
}

#[test]
fn a_tenant_at_its_cap_does_not_block_others() {
    let mut stage = Stage::with(3, 3, &[("a", 1, 1)]);
    stage.ask("a1 a2 a3 b1");
    assert_eq!(stage.orders(), "activate a1, activate b1");
}

#[test]
fn a_free_slot_does_not_wait_for_a_tenant_that_frees_its_own() {
    let mut stage = Stage::with(3, 1, &[("a", 1, 1)]);
    stage.idle("a1");
    stage.seconds(5);
    stage.ask("a2");
    assert_eq!(stage.orders(), "passivate a1");
    stage.ask("b1");
    assert_eq!(stage.orders(), "activate b1");
    stage.freed("a1");
    assert_eq!(stage.orders(), "", "b1 is being started");
    stage.started("b1");
    assert_eq!(stage.orders(), "activate a2");
}

#[test]
fn a_tenant_at_its_cap_takes_slots_from_its_own_holders_only() {
    let mut stage = Stage::with(3, 3, &[("a", 1, 1)]);
    stage.idle("b1");
    stage.seconds(1);
    stage.idle("a1");
    stage.seconds(5);
    stage.ask("a2");
    assert_eq!(stage.orders(), "passivate a1", "b1 was idle for longer, but is not the tenant's");
    stage.freed("a1");
    assert_eq!(stage.orders(), "activate a2");
    stage.started("a2");
    stage.ask("a3");
    assert_eq!(stage.orders(), "", "its one slot runs a turn");
}

#[test]
fn a_tenant_without_slots_is_never_granted_anything() {
    let mut stage = Stage::with(1, 1, &[("a", 1, 0)]);
    stage.ask("a1");
    assert_eq!(stage.orders(), "");
    stage.run("b1");
    // A holder of it that is found after a restart does not make room for another of its names.
    stage.machine.holds(&name("a2"), false);
    stage.ended("a2");
    stage.seconds(5);
    assert_eq!(stage.orders(), "");
}

#[test]
fn the_holder_that_was_idle_for_longest_is_evicted() {
    let mut stage = Stage::new(3);
    stage.idle("a1 a2");
    stage.seconds(1);
    stage.idle("a3");
    stage.seconds(1);
    stage.ask("a1");
    assert_eq!(stage.orders(), "turn a1");
    stage.ended("a1");
    stage.warm("a2");
    stage.seconds(9);
    stage.ask("b1");
    assert_eq!(stage.orders(), "passivate a3", "a1 ran since, a2 was warmed since");
}

#[test]
fn a_holder_idle_for_less_than_the_bound_is_not_evicted() {
    let mut stage = Stage::new(1);
    stage.idle("a1");
    stage.ask("b1");
    stage.seconds(4);
    assert_eq!(stage.orders(), "");
    stage.seconds(1);
    assert_eq!(stage.orders(), "passivate a1");
}

#[test]
fn running_and_busy_holders_are_never_evicted() {
    let mut stage = Stage::new(2);
    stage.run("a1 a2");
    stage.busy("a2", true);
    stage.ended("a2");
    stage.seconds(60);
    stage.ask("b1");
    assert_eq!(stage.orders(), "");
    // A busy holder has its next turn on its slot: nobody else could use the slot.
    stage.ask("a2");
    assert_eq!(stage.orders(), "turn a2");
    stage.ended("a2");
    stage.seconds(60);
    stage.busy("a2", false);
    assert_eq!(stage.orders(), "", "it counts as idle from now on");
    stage.seconds(5);
    assert_eq!(stage.orders(), "passivate a2");
}

#[test]
fn a_turn_that_the_cli_begins_keeps_the_slot_until_its_end_and_is_paid_for() {
    let mut stage = Stage::new(1);
    stage.run("a1");
    stage.ended("a1");
    stage.tell("a1", AdmissionMessage::BegunByCli);
    stage.ask("b1");
    stage.seconds(60);
    assert_eq!(stage.orders(), "", "it runs");
    stage.ended("a1");
    stage.seconds(5);
    assert_eq!(stage.orders(), "passivate a1");
    // It comes too late for a slot that was taken back.
    stage.tell("a1", AdmissionMessage::BegunByCli);
    stage.freed("a1");
    assert_eq!(stage.orders(), "activate b1");
}

#[test]
fn a_busy_holder_whose_time_is_up_in_its_turn_yields_to_an_earlier_request() {
    let mut stage = Stage::new(1);
    stage.run("a1");
    stage.busy("a1", true);
    stage.ended("a1");
    stage.ask("b1");
    stage.ask("a1");
    assert_eq!(stage.orders(), "turn a1", "its background work keeps the slot");
    stage.busy("a1", false);
    stage.ended("a1");
    stage.ask("a1");
    assert_eq!(stage.orders(), "passivate a1");
    stage.freed("a1");
    assert_eq!(stage.orders(), "activate b1");
}

#[test]
fn a_session_that_ended_busy_is_not_busy_when_it_is_started_again() {
    let mut stage = Stage::new(1);
    stage.run("a1");
    stage.busy("a1", true);
    stage.ask("a1");
    stage.freed("a1");
    assert_eq!(stage.orders(), "activate a1");
    stage.started("a1");
    stage.ended("a1");
    stage.seconds(5);
    stage.ask("b1");
    assert_eq!(stage.orders(), "passivate a1");
}

#[test]
fn a_holder_between_turns_yields_to_a_tenant_that_is_next() {
    let mut stage = Stage::new(1);
    stage.run("a1");
    stage.ask("b1");
    stage.ask("a1");
    stage.ended("a1");
    assert_eq!(stage.orders(), "passivate a1");
    stage.freed("a1");
    assert_eq!(stage.orders(), "activate b1");
    stage.started("b1");
    stage.ended("b1");
    stage.freed("b1");
    assert_eq!(stage.orders(), "activate a1", "it asks again by itself");
}

#[test]
fn a_holder_that_yields_keeps_its_place_in_the_queue() {
    let mut stage = Stage::new(1);
    stage.run("a1");
    stage.ask("b1");
    stage.ask("a1");
    stage.ended("a1");
    stage.ask("a2");
    assert_eq!(stage.orders(), "passivate a1");
    stage.freed("a1");
    assert_eq!(stage.orders(), "activate b1");
    stage.freed("b1");
    assert_eq!(stage.orders(), "activate a1", "a2 asked after it");
}

#[test]
fn an_old_idle_holder_is_evicted_before_one_between_turns() {
    let mut stage = Stage::new(2);
    stage.idle("c1");
    stage.run("a1");
    stage.seconds(5);
    stage.ask("b1");
    stage.ask("a1");
    stage.ended("a1");
    assert_eq!(stage.orders(), "passivate c1, turn a1");
}

#[test]
fn the_holder_whose_next_turn_is_last_in_order_yields() {
    let mut stage = Stage::new(3);
    stage.run("c1 a1 a2");
    // The tenant c asks again first, so a's next turns come later, and a1's is the last of a.
    stage.ask("b1");
    stage.ask("a1 a2 c1");
    stage.ended("c1 a2 a1");
    assert_eq!(stage.orders(), "passivate a1, turn c1, turn a2");
}

#[test]
fn as_many_holders_are_evicted_as_there_are_requests() {
    let mut stage = Stage::new(4);
    stage.idle("a1 a2 a3 a4");
    stage.seconds(5);
    stage.ask("b1");
    assert_eq!(stage.orders(), "passivate a1");
    stage.ask("b2");
    assert_eq!(stage.orders(), "passivate a2", "the first slot is for b1");
    assert_eq!(stage.orders(), "");
    stage.freed("a1");
    stage.freed("a2");
    assert_eq!(stage.orders(), "activate b1, activate b2");
}

#[test]
fn a_slot_on_its_way_is_used_before_a_holder_is_evicted() {
    let mut stage = Stage::new(2);
    stage.idle("a1 a2");
    stage.seconds(5);
    stage.tell("a2", AdmissionMessage::Leaving);
    stage.ask("b1");
    assert_eq!(stage.orders(), "");
    stage.freed("a2");
    assert_eq!(stage.orders(), "activate b1");
}

#[test]
fn no_more_holders_are_evicted_than_can_be_started() {
    let mut stage = Stage::with(3, 1, &[]);
    stage.idle("a1 a2 a3");
    stage.seconds(5);
    stage.ask("b1 b2 b3");
    assert_eq!(stage.orders(), "passivate a1");
    stage.freed("a1");
    assert_eq!(stage.orders(), "activate b1");
    stage.started("b1");
    assert_eq!(stage.orders(), "passivate a2");
}

#[test]
fn holders_found_after_a_restart_count_and_run() {
    let mut stage = Stage::new(2);
    for holder in ["a1", "a2"] {
        stage.machine.holds(&name(holder), false);
    }
    stage.ask("b1");
    assert_eq!(stage.orders(), "");
    stage.ended("a1");
    stage.freed("a1");
    assert_eq!(stage.orders(), "activate b1");
}

#[test]
fn holders_that_start_during_a_restart_count_as_starting() {
    let mut stage = Stage::with(4, 1, &[]);
    stage.machine.holds(&name("a1"), true);
    stage.ask("b1");
    assert_eq!(stage.orders(), "", "a1 starts");
    stage.started("a1");
    assert_eq!(stage.orders(), "activate b1");
}

#[test]
fn holders_over_the_bound_after_a_restart_leave_one_by_one() {
    let mut stage = Stage::new(1);
    for holder in ["a1", "a2", "a3"] {
        stage.machine.holds(&name(holder), false);
    }
    stage.ask("b1");
    stage.ended("a1 a2 a3");
    stage.seconds(5);
    assert_eq!(stage.orders(), "passivate a1, passivate a2, passivate a3");
    stage.freed("a1");
    stage.freed("a2");
    assert_eq!(stage.orders(), "", "a3 has the slot");
    stage.freed("a3");
    assert_eq!(stage.orders(), "activate b1");
}

#[test]
fn a_holder_found_late_takes_back_a_promised_slot() {
    let mut stage = Stage::new(1);
    stage.idle("a1");
    stage.seconds(5);
    stage.ask("b1");
    assert_eq!(stage.orders(), "passivate a1");
    stage.machine.holds(&name("a2"), false);
    stage.freed("a1");
    assert_eq!(stage.orders(), "", "a2 has the slot");
    stage.ended("a2");
    stage.seconds(5);
    assert_eq!(stage.orders(), "passivate a2");
    stage.freed("a2");
    assert_eq!(stage.orders(), "activate b1");
}

#[test]
fn a_tenant_at_its_cap_elsewhere_waits_and_takes_no_slot() {
    let mut stage = Stage::with(2, 2, &[("a", 1, 2)]);
    stage.idle("b1");
    stage.seconds(60);
    stage.ask("a1 a2");
    assert_eq!(stage.orders(), "activate a1, passivate b1");
    stage.tell("a1", AdmissionMessage::AtCap);
    stage.freed("b1");
    assert_eq!((stage.orders(), stage.tally().asking), (String::new(), 2), "nor one that was promised to it");
    // Another tenant has the slots meanwhile.
    stage.idle("b1 b2");
    stage.seconds(60);
    assert_eq!(stage.orders(), "");
    stage.machine.lift(&tenant("a"));
    assert_eq!(stage.orders(), "passivate b1, passivate b2", "at its place again");
}

#[test]
fn a_tenant_at_its_cap_elsewhere_gets_slots_in_place_of_its_own() {
    let mut stage = Stage::with(4, 4, &[("a", 1, 3)]);
    stage.idle("a1");
    stage.ask("a2");
    assert_eq!(stage.orders(), "activate a2");
    stage.tell("a2", AdmissionMessage::AtCap);
    assert_eq!(stage.orders(), "", "it was idle for too short a time");
    stage.seconds(60);
    assert_eq!(stage.orders(), "passivate a1");
    stage.freed("a1");
    assert_eq!(stage.orders(), "activate a2");
}

#[test]
fn a_grant_that_is_refused_costs_nothing() {
    let mut stage = Stage::with(1, 1, &[]);
    stage.ask("a1");
    assert_eq!(stage.orders(), "activate a1");
    stage.ask("a2 b1 b2");
    stage.tell("a1", AdmissionMessage::AtCap);
    stage.machine.lift(&tenant("a"));
    assert_eq!(stage.orders(), "activate a2", "its tenant is first again");
    stage.freed("a2");
    assert_eq!(stage.orders(), "activate b1", "and has paid now");
}

#[test]
fn a_quota_that_changes_counts_for_the_next_grant() {
    let mut stage = Stage::with(4, 4, &[("a", 1, 1)]);
    stage.run("a1");
    stage.ask("a2");
    assert_eq!(stage.orders(), "");
    stage.quotas.replace([(tenant("a"), Quota::default().live(2))].into());
    stage.machine.requote(&[tenant("a")]);
    assert_eq!(stage.orders(), "activate a2");
}
