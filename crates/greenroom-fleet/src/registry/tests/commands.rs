//! Bounds of commands to the owner of a name.

use super::*;
use crate::record::{CommandKind, CommandRecord, CommandResult};

fn put(owner: &Ownership, now: Timestamp) -> CommandRecord {
    CommandRecord::new(owner.clone(), CommandKind::Passivate, now.after(WAIT))
}

fn put_now(world: &mut World, owner: &Ownership) -> CommandPut {
    let put = put(owner, world.now);
    world.step(|step| step.put_command(put.clone()))
}

#[test]
fn commands_that_have_not_ended_are_bounded_for_each_name() {
    let mut world = World::new(1);
    let (owner, _) = running(&mut world);
    let first = put(&owner, world.now);
    assert!(matches!(world.step(|step| step.put_command(first.clone())), CommandPut::Put(_)));
    for _ in 1..CommandRecord::NAME {
        assert!(matches!(put_now(&mut world, &owner), CommandPut::Put(_)));
    }
    assert_eq!(put_now(&mut world, &owner), CommandPut::Full);
    // A command that is carried out takes a place until it has ended.
    let attempt = AttemptId::new();
    let take = |step: &mut Step<'_>| step.take_command(first.id, owner.clone(), attempt);
    assert_eq!(world.step(take), Owned::Done(true));
    assert_eq!(put_now(&mut world, &owner), CommandPut::Full);
    assert!(world.step(|step| step.finish_command(first.id, attempt, CommandResult::Done)));
    assert!(matches!(put_now(&mut world, &owner), CommandPut::Put(_)));
}

#[test]
fn commands_that_have_not_ended_are_bounded_for_each_node() {
    let mut world = World::new(1);
    let (first, _) = running(&mut world);
    let mut owners = vec![first.clone()];
    while owners.len() * CommandRecord::NAME <= CommandRecord::NODE {
        let accept = accept(&owners.len().to_string(), 1, WAIT);
        assert!(matches!(world.step(|step| step.accept(accept.clone())), Accepted::New(_)));
        let name = accept.name.clone();
        let claim = Claim {
            name: name.clone(),
            node: first.node,
            attempt: AttemptId::new(),
            losses: 3,
            quota: crate::Quota::default(),
        };
        let Claimed::Won(record) = world.step(|step| step.claim(claim.clone())) else { panic!("not won") };
        owners.push(Ownership { name, node: first.node, term: record.term });
    }
    let last = owners.pop().unwrap();
    for owner in owners {
        for _ in 0..CommandRecord::NAME {
            assert!(matches!(put_now(&mut world, &owner), CommandPut::Put(_)));
        }
    }
    assert_eq!(put_now(&mut world, &last), CommandPut::Full);
    assert_eq!(world.step(|step| step.commands(first.node, usize::MAX)).len(), CommandRecord::NODE);
    assert_eq!(world.step(|step| step.commands(first.node, 3)).len(), 3);
    assert_eq!(world.step(|step| step.forget_commands(Timestamp(u64::MAX), 1000)), CommandRecord::NODE);
    assert!(matches!(put_now(&mut world, &last), CommandPut::Put(_)));
}
