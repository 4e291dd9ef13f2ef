//! Commands between fleets on one database.

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use greenroom::Session;
use greenroom_fleet::backend::{Backend, Requests};
use greenroom_fleet::testkit::{Fault, FaultedBackend, FleetFault};
use greenroom_fleet::{
    ActivationContext, AttemptId, CommandKind, CommandPut, CommandRecord, CommandResult, CommandState, Fleet,
    FleetError, FleetPrompt, InterruptedBy, NameState, Owned, PromptOutcome, SnapshotQuery,
};
use greenroom_testkit::{ModelTurn, Script, ScriptedCli};
use tokio::task::JoinSet;

use crate::nodes::{HOUR, accepted, joined, owner};
use crate::wait::{SOON, within};
use crate::{connect, schema, server};

/// A node whose turns take an hour.
struct Node {
    fleet: Fleet,
    backend: FaultedBackend,
}

impl Node {
    async fn new(address: &str, schema: &str, folder: &Path, deaf: bool) -> Self {
        // A CLI plays as long as it is kept.
        let clis = Mutex::new(Vec::new());
        let profile = move |_: &ActivationContext| {
            let turn = ModelTurn::new().text("done").pause_before(HOUR);
            let cli = ScriptedCli::play(Script::new().otherwise(turn));
            let transport = cli.transport();
            clis.lock().unwrap().push(cli);
            Session::builder().transport(transport)
        };
        let backend = FaultedBackend::new(connect(address, schema).await);
        let backend = if deaf { backend.without_changes() } else { backend };
        // Its CLIs are scripted ones in this process.
        let builder = Fleet::builder()
            .without_watchdog()
            .backend(backend.clone())
            .host("here")
            .folder(folder)
            .profile("default", profile)
            .configure(|limits| (limits.live, limits.lease) = (4, Duration::from_secs(20)));
        Self { fleet: within(SOON, builder.start()).await.unwrap(), backend }
    }

    /// Waits until the session runs a turn.
    async fn runs(&self, name: &str) {
        let session = self.fleet.tenant("default").unwrap().session(name).unwrap();
        within(SOON, async {
            while !matches!(session.record().await, Ok(record) if record.running.is_some()) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupt_and_passivate_reach_the_owner_through_postgres() {
    let Some(address) = server::address() else { return };
    for deaf in [false, true] {
        let (schema, folder) = (schema(), tempfile::tempdir().unwrap());
        let first = Node::new(&address, &schema, folder.path(), deaf).await;
        let second = Node::new(&address, &schema, folder.path(), deaf).await;
        let here = first.fleet.tenant("default").unwrap().session("a\0b").unwrap();
        let mut turn = within(SOON, here.prompt(FleetPrompt::new("hello"))).await.unwrap();
        let names = [&first, &second];
        first.runs("a\0b").await;
        // Either node may have claimed the session.
        let snapshot = within(SOON, first.fleet.operator().snapshot(SnapshotQuery::active())).await.unwrap();
        let owner = usize::from(!snapshot.names.iter().any(|name| name.stage == "running"));
        let (owner, other) = (names[owner], names[1 - owner]);
        let there = other.fleet.tenant("default").unwrap().session("a\0b").unwrap();
        assert!(within(SOON, there.interrupt()).await.unwrap());
        let outcome = within(SOON, turn.outcome()).await.unwrap();
        assert!(matches!(outcome, PromptOutcome::Interrupted { by: InterruptedBy::User, .. }), "{outcome:?}");
        assert!(!within(SOON, there.interrupt_turn(turn.prompt_id())).await.unwrap(), "the turn has ended");
        within(SOON, there.passivate()).await.unwrap();
        let record = here.record().await.unwrap();
        assert!(matches!(record.state, NameState::Free), "{record:?}");
        assert_eq!(owner.backend.requests("take_command"), 2);
        for node in names {
            within(SOON, node.fleet.drain(Duration::from_secs(20))).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_killed_with_a_command_is_told_to_the_caller_on_postgres() {
    let Some(address) = server::address() else { return };
    let (schema, folder) = (schema(), tempfile::tempdir().unwrap());
    let first = Node::new(&address, &schema, folder.path(), false).await;
    let here = first.fleet.tenant("default").unwrap().session("a").unwrap();
    let turn = within(SOON, here.prompt(FleetPrompt::new("hello"))).await.unwrap().prompt_id();
    first.runs("a").await;
    let second = Node::new(&address, &schema, folder.path(), false).await;
    first.backend.fault_next("take_command", Fault::HangReply);
    let there = second.fleet.tenant("default").unwrap().session("a").unwrap();
    let mut interrupting = JoinSet::new();
    interrupting.spawn(async move { there.interrupt().await });
    within(SOON, first.backend.wait_for_hanging(1)).await;
    first.backend.plan(|_| Fault::Hang);
    first.fleet.inject(FleetFault::Supervisor);
    let answer = within(SOON, interrupting.join_next()).await.unwrap().unwrap();
    assert!(matches!(answer, Err(FleetError::OutcomeUnknown { .. })), "{answer:?}");
    let outcome = within(SOON, second.fleet.operator().turn(turn).outcome()).await.unwrap();
    let by_loss = matches!(outcome, PromptOutcome::Interrupted { by: InterruptedBy::OwnerLost { .. }, .. });
    assert!(by_loss, "{outcome:?}");
    assert_eq!(second.backend.requests("take_command"), 0, "nobody carries it out again");
    within(SOON, second.fleet.drain(Duration::from_secs(20))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_taken_or_withdrawn_and_never_both() {
    let Some(address) = server::address() else { return };
    let backend = connect(&address, &schema()).await;
    let node = joined(&backend).await;
    accepted(&backend, "a").await;
    let mut taken = 0;
    for round in 0..100 {
        let owner = owner(&backend, node, "a").await;
        let (attempt, deadline) = (AttemptId::new(), backend.now().after(HOUR));
        let put = CommandRecord::new(owner.clone(), CommandKind::Passivate, deadline);
        let command = put.id;
        assert!(matches!(backend.put_command(put).await.unwrap(), CommandPut::Put(_)));
        let (other, mut racing) = (backend.clone(), JoinSet::new());
        let releases = (round % 2 == 0).then(|| owner.clone());
        racing.spawn(async move {
            match releases {
                Some(owner) => drop(other.release(owner).await.unwrap()),
                None => drop(other.withdraw_command(command).await.unwrap()),
            }
        });
        let answer = backend.take_command(command, owner.clone(), attempt).await.unwrap();
        within(SOON, racing.join_all()).await;
        let state = backend.command(command).await.unwrap().unwrap().state;
        match (&answer, &state) {
            (Owned::Done(true), CommandState::Taken { .. }) => {
                taken += 1;
                assert!(backend.finish_command(command, attempt, CommandResult::Done).await.unwrap());
            }
            (Owned::Done(false), CommandState::Ended { result: CommandResult::Withdrawn, .. }) => {}
            (Owned::Fenced, CommandState::Waiting) => drop(backend.withdraw_command(command).await.unwrap()),
            other => panic!("{other:?}"),
        }
        if round % 2 == 0 {
            // The owner has gone, whoever was first.
            assert_eq!(backend.take_command(command, owner, attempt).await.unwrap(), Owned::Fenced);
        } else {
            assert!(matches!(backend.release(owner).await.unwrap(), Owned::Done(_)));
        }
    }
    println!("{taken} of 100 commands were taken");
}
