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
fn commands_that_have_not_ended_are_bounded_for_each_tenant_of_a_node() {
    let mut world = World::new(1);
    let (first, _) = running(&mut world);
    let node = first.node;
    let owner_of = |world: &mut World, name: String| {
        let accept = accept(&name, 1, WAIT);
        assert!(matches!(world.step(|step| step.accept(accept.clone())), Accepted::New(_)));
        owner(world, accept.name, node)
    };
    let mut put = 0;
    let full = loop {
        let owner = owner_of(&mut world, format!("greedy/{put}"));
        match put_now(&mut world, &owner) {
            CommandPut::Put(_) => put += 1,
            full => break full,
        }
    };
    assert_eq!((full, put), (CommandPut::Full, CommandRecord::TENANT));
    let other = owner_of(&mut world, "other/a".to_owned());
    assert!(matches!(put_now(&mut world, &other), CommandPut::Put(_)));
}

/// Makes a node the owner of a name.
fn owner(world: &mut World, name: Name, node: NodeId) -> Ownership {
    let attempt = AttemptId::new();
    let quota = crate::Quota::default().live(usize::MAX);
    let claim = Claim { name: name.clone(), node, attempt, losses: 3, quota };
    let Claimed::Won(record) = world.step(|step| step.claim(claim.clone())) else { panic!("not won") };
    Ownership { name, node, term: record.term }
}

#[test]
fn commands_that_have_not_ended_are_bounded_for_each_node() {
    let mut world = World::new(1);
    let (first, _) = running(&mut world);
    let mut owners = vec![first.clone()];
    while owners.len() * CommandRecord::NAME <= CommandRecord::NODE {
        let name = format!("tenant-{}/a", owners.len());
        let accept = accept(&name, 1, WAIT);
        assert!(matches!(world.step(|step| step.accept(accept.clone())), Accepted::New(_)));
        owners.push(owner(&mut world, accept.name, first.node));
    }
    let last = owners.pop().unwrap();
    for owner in owners {
        for _ in 0..CommandRecord::NAME {
            assert!(matches!(put_now(&mut world, &owner), CommandPut::Put(_)));
        }
    }
    for _ in 0..CommandRecord::SHARE {
        assert!(matches!(put_now(&mut world, &last), CommandPut::Put(_)), "the share of a tenant");
    }
    assert_eq!(put_now(&mut world, &last), CommandPut::Full);
    let make_way = CommandRecord::new(last.clone(), CommandKind::MakeWay, world.now.after(WAIT));
    assert!(
        matches!(world.step(|step| step.put_command(make_way.clone())), CommandPut::Put(_)),
        "an operator's"
    );
    let all = CommandRecord::NODE + CommandRecord::SHARE + 1;
    assert_eq!(world.step(|step| step.commands(first.node, usize::MAX)).len(), all);
    assert_eq!(world.step(|step| step.commands(first.node, 3)).len(), 3);
    assert_eq!(world.step(|step| step.forget_commands(Timestamp(u64::MAX), 1000)), all);
    assert!(matches!(put_now(&mut world, &last), CommandPut::Put(_)));
}
