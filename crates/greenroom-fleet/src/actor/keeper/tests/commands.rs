//! Commands of other nodes.

use super::*;
use crate::id::{CommandId, NodeId};
use crate::record::{CommandKind, CommandRecord, CommandResult, CommandState};
use crate::request::{CommandPut, Join};

impl Stage {
    /// This node owns a name, and another node commands that it sleeps.
    async fn commanded(&self, name: &str) -> (Ownership, CommandId) {
        self.accept(accept(name, HOUR)).await;
        let owner = self.own(&format!("acme/{}", name).parse::<Name>().unwrap()).await;
        let command = self.put(&owner).await;
        (owner, command)
    }

    async fn put(&self, owner: &Ownership) -> CommandId {
        let deadline = self.backend.now().after(SECOND * 10);
        let command = CommandRecord::new(owner.clone(), CommandKind::Passivate, deadline);
        assert!(matches!(self.backend.put_command(command.clone()).await.unwrap(), CommandPut::Put(_)));
        command.id
    }

    async fn result(&self, command: CommandId) -> Option<CommandResult> {
        match self.backend.command(command).await.unwrap().unwrap().state {
            CommandState::Ended { result, .. } => Some(result),
            _ => None,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_command_is_carried_out_at_once_after_its_hint() {
    let stage = Stage::new().await;
    let _keeper = stage.keeper();
    stage.settle().await;
    let (owner, command) = stage.commanded("a").await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    // The stage has no actors of names.
    assert_eq!(stage.result(command).await, Some(CommandResult::Nothing));
    let looks = stage.backend.requests("commands");
    for _ in 0..3 {
        stage.put(&owner).await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(stage.backend.requests("commands") <= looks + 2, "a flood of hints is no flood of looks");
    assert_eq!(stage.backend.requests("take_command"), 4);
}

#[tokio::test(start_paused = true)]
async fn a_command_without_a_hint_is_found_within_a_second() {
    let backend = FaultedBackend::new(MemoryBackend::new()).without_changes();
    let stage = Stage::on(backend, FleetLimits::default()).await;
    let _keeper = stage.keeper();
    let join = Join { node: NodeId::new(), host: "there".into(), lease: HOUR, capacity: 8 };
    stage.backend.join(join).await.unwrap();
    stage.awake("a");
    tokio::time::sleep(SECOND * 12).await;
    let (_, command) = stage.commanded("a").await;
    tokio::time::sleep(SECOND + Duration::from_millis(50)).await;
    assert_eq!(stage.result(command).await, Some(CommandResult::Nothing));
}

#[tokio::test(start_paused = true)]
async fn a_node_alone_or_asleep_looks_for_no_commands() {
    let stage = Stage::new().await;
    let _keeper = stage.keeper();
    stage.awake("a");
    tokio::time::sleep(SECOND * 60).await;
    assert_eq!(stage.backend.requests("commands"), 0, "it is alone");
    stage.shared.awake().clear();
    let join = Join { node: NodeId::new(), host: "there".into(), lease: HOUR, capacity: 8 };
    stage.backend.join(join).await.unwrap();
    tokio::time::sleep(SECOND * 60).await;
    assert_eq!(stage.backend.requests("commands"), 0, "no name is awake here");
}

#[tokio::test(start_paused = true)]
async fn a_command_to_a_name_that_was_given_back_is_withdrawn_at_once() {
    let stage = Stage::new().await;
    let (owner, command) = stage.commanded("a").await;
    assert_eq!(stage.shared.backend.release(owner).await.unwrap(), crate::request::Owned::Done(true));
    stage.awake("a");
    let join = Join { node: NodeId::new(), host: "there".into(), lease: HOUR, capacity: 8 };
    stage.backend.join(join).await.unwrap();
    let _keeper = stage.keeper();
    tokio::time::sleep(SECOND * 7).await;
    assert_eq!(stage.result(command).await, Some(CommandResult::Withdrawn));
}

#[tokio::test(start_paused = true)]
async fn old_commands_are_forgotten_after_an_hour() {
    let stage = Stage::new().await;
    let _keeper = stage.keeper();
    let (_, command) = stage.commanded("a").await;
    tokio::time::sleep(SECOND * 3500).await;
    assert!(stage.backend.command(command).await.unwrap().is_some());
    tokio::time::sleep(SECOND * 200).await;
    assert_eq!(stage.backend.command(command).await.unwrap(), None);
}
